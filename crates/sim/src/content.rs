//! File contents that tell where each byte came from: cells of 16 bytes with the file's tag, the version of the
//! write and the cell's place.

const CELL: u64 = 16;

/// The byte at `offset` of a file with this tag, written by write number `version`.
pub fn byte(tag: u32, version: u32, offset: u64) -> u8 {
    let mut cell = [0u8; CELL as usize];
    cell[..4].copy_from_slice(&(tag | (1 << 31)).to_le_bytes());
    cell[4..8].copy_from_slice(&version.to_le_bytes());
    cell[8..].copy_from_slice(&((offset / CELL) | (1 << 63)).to_le_bytes());
    cell[(offset % CELL) as usize]
}

/// What write number `version` puts into `[offset, offset + len)`.
pub fn bytes(tag: u32, version: u32, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| byte(tag, version, at)).collect()
}

/// The first offset where `data` holds neither zero nor a byte of one of these files, whatever the version.
pub fn first_foreign(tags: &[u32], data: &[u8]) -> Option<u64> {
    data.iter().enumerate().map(|(at, found)| (at as u64, *found)).find_map(|(at, found)| {
        let of_version = (4..8).contains(&(at % CELL));
        let own = tags.iter().any(|tag| found == byte(*tag, 0, at));
        (!of_version && found != 0 && !own).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_found() {
        let mut data = bytes(7, 3, 0, 100);
        data[40..50].copy_from_slice(&bytes(7, 4, 40, 10));
        data[60..70].fill(0);
        assert_eq!(first_foreign(&[7], &data), None);
        data[80..84].copy_from_slice(&bytes(8, 3, 80, 4));
        assert_eq!(first_foreign(&[7], &data), Some(80));
        assert_eq!(first_foreign(&[7, 8], &data), None);
    }
}
