//! What tells a record that is torn from one that is damaged (`docs/disk.md#torn`).
//!
//! A disk writes sectors as a whole, and space for records is zero before they are written. So when power fails each sector of
//! a record is as it was to be, or zero. The record carries a checksum of each of its sectors: one that is neither was changed
//! afterwards.

/// What a disk writes as a whole, in bytes.
pub const SECTOR_BYTES: usize = 512;
const SUM_BYTES: usize = 4;
/// Checksums in a sector of the table; its last is of the table's sector itself.
const SUMS_PER_SECTOR: usize = SECTOR_BYTES / SUM_BYTES - 1;

/// Why a record does not hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Sectors are missing, and all others as they were written.
    Torn,
    /// A sector is neither missing nor as it was written.
    Damaged,
}

/// Bytes of the table for `covered` bytes.
pub fn table_bytes(covered: usize) -> usize {
    covered.div_ceil(SECTOR_BYTES).div_ceil(SUMS_PER_SECTOR) * SECTOR_BYTES
}

/// Writes the table of the first `covered` bytes of `record` into the sectors behind them.
pub fn seal(record: &mut [u8], covered: usize) {
    let (data, table) = record.split_at_mut(covered.next_multiple_of(SECTOR_BYTES));
    let groups = data.chunks(SECTOR_BYTES * SUMS_PER_SECTOR);
    for (sectors, sums) in groups.zip(table.chunks_exact_mut(SECTOR_BYTES)) {
        let (places, own) = sums.split_at_mut(SECTOR_BYTES - SUM_BYTES);
        for (sector, place) in sectors.chunks(SECTOR_BYTES).zip(places.chunks_exact_mut(SUM_BYTES)) {
            place.copy_from_slice(&sum(sector));
        }
        own.copy_from_slice(&sum(places));
    }
}

/// What is wrong with a record that does not hold together: `record` is what there is of it, with `covered` bytes in front of
/// the table. What the file does not have is missing.
pub fn judge(record: &[u8], covered: usize) -> Verdict {
    let table_at = covered.next_multiple_of(SECTOR_BYTES);
    let data = &record[..table_at.min(record.len())];
    let table = record.get(table_at..(table_at + table_bytes(covered)).min(record.len())).unwrap_or_default();
    let mut is_whole = record.len() >= table_at + table_bytes(covered);
    let mut groups = data.chunks(SECTOR_BYTES * SUMS_PER_SECTOR);
    for sums in table.chunks(SECTOR_BYTES) {
        let sectors = groups.next().unwrap_or_default();
        if is_blank(sums) {
            // Nobody knows what the sectors were to be; but the record was never durable.
            is_whole = false;
            continue;
        }
        let Some((places, own)) = sums.split_at_checked(SECTOR_BYTES - SUM_BYTES) else {
            return Verdict::Damaged;
        };
        if *own != sum(places) {
            return Verdict::Damaged;
        }
        for (sector, place) in sectors.chunks(SECTOR_BYTES).zip(places.chunks_exact(SUM_BYTES)) {
            match sum(sector) == *place {
                true => {}
                false if is_blank(sector) => is_whole = false,
                false => return Verdict::Damaged,
            }
        }
    }
    if is_whole { Verdict::Damaged } else { Verdict::Torn }
}

/// Whether nothing was written there.
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn sum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sealed record with `covered` bytes, every seventh sector of which is zero.
    fn record(covered: usize) -> Vec<u8> {
        let mut bytes = vec![0; covered.next_multiple_of(SECTOR_BYTES) + table_bytes(covered)];
        for (at, byte) in bytes[..covered].iter_mut().enumerate() {
            *byte = if (at / SECTOR_BYTES) % 7 == 3 { 0 } else { at as u8 | 1 };
        }
        seal(&mut bytes, covered);
        bytes
    }

    /// Whatever sectors are missing, a record is torn; and with any bit changed in one that is there, and of which the table
    /// is there, it is damaged.
    #[test]
    fn torn_and_damaged_are_told_apart() {
        for covered in [80, 512, 600, 5000, 127 * 512, 128 * 512 + 1] {
            let whole = record(covered);
            let sectors = whole.len() / SECTOR_BYTES;
            for lost in 0..sectors {
                let mut torn = whole.clone();
                torn[lost * SECTOR_BYTES..(lost + 1) * SECTOR_BYTES].fill(0);
                if torn == whole {
                    continue;
                }
                assert_eq!(judge(&torn, covered), Verdict::Torn, "{covered}: sector {lost} is missing");
                assert_eq!(judge(&whole[..lost * SECTOR_BYTES], covered), Verdict::Torn, "cut at {lost}");
            }
            let step = if sectors > 40 { 97 } else { 1 };
            for at in (0..whole.len()).step_by(step) {
                for bit in 0..8 {
                    let mut bad = whole.clone();
                    bad[at] ^= 1 << bit;
                    assert_eq!(judge(&bad, covered), Verdict::Damaged, "{covered}: byte {at} bit {bit}");
                }
            }
        }
    }
}
