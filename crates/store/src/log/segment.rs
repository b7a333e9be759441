//! Segment files: their names, their first block, and how they are read.

use bytes::{Bytes, BytesMut};
use rt::File;

use crate::limits::BLOCK_BYTES;
use crate::log::record;

const MAGIC: [u8; 8] = *b"WEFTSEG1";
/// Bytes read at a time: large and aligned, so that what is read lies on the disk and not only in the page cache.
const READ_BYTES: usize = 1 << 20;

/// Which segment: boot of its owner, and its number within the boot from 0. Ordered as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId {
    /// Boot of the owner that made it.
    pub boot: u64,
    /// Number within the boot.
    pub number: u64,
}

impl SegmentId {
    /// The file's name, `<boot>-<number>`, both hexadecimal with 16 digits so that names sort.
    pub fn name(self) -> String {
        format!("{:016x}-{:016x}", self.boot, self.number)
    }

    /// The inverse of [`SegmentId::name`].
    pub fn parse(name: &str) -> Option<SegmentId> {
        let (boot, number) = name.split_once('-')?;
        let id = SegmentId {
            boot: u64::from_str_radix(boot, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (id.name() == name).then_some(id)
    }
}

/// First block of a segment file, `prev` being the last transno before the segment.
pub fn encode_start(id: SegmentId, prev: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&MAGIC);
    block[8..16].copy_from_slice(&id.boot.to_le_bytes());
    block[16..24].copy_from_slice(&id.number.to_le_bytes());
    block[24..32].copy_from_slice(&prev.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&block[..BLOCK_BYTES - 4]);
    block[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// What a first block says of the last transno before the segment; `None` if it is not the block of `id`.
pub fn decode_start(id: SegmentId, block: &[u8]) -> Option<u64> {
    let prev = u64::from_le_bytes(*block.get(24..)?.first_chunk()?);
    (encode_start(id, prev)[..] == *block).then_some(prev)
}

/// One record that was read and whose checksums hold.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its header.
    pub header: record::Header,
    /// Its body.
    pub body: Bytes,
}

/// Reads a segment file from the front.
pub struct SegmentReader {
    file: File,
    /// What was read and not yet taken.
    ahead: BytesMut,
    /// Where the next read begins.
    read_to: u64,
}

impl SegmentReader {
    /// A reader of `file`, with what its first block says of the last transno before it; `None` if the block was
    /// never written whole.
    pub async fn open(file: File, id: SegmentId) -> std::io::Result<(SegmentReader, Option<u64>)> {
        let mut reader = SegmentReader { file, ahead: BytesMut::new(), read_to: 0 };
        reader.fill(BLOCK_BYTES).await?;
        let prev = reader.ahead.get(..BLOCK_BYTES).and_then(|block| decode_start(id, block));
        reader.skip(BLOCK_BYTES);
        Ok((reader, prev))
    }

    /// The next record; `None` where no whole one follows.
    pub async fn next(&mut self) -> std::io::Result<Option<Record>> {
        self.fill(BLOCK_BYTES).await?;
        let Some(header) = record::Header::decode(&self.ahead) else { return Ok(None) };
        self.fill(header.stride()).await?;
        let end = record::HEADER_BYTES + header.body_bytes as usize;
        let Some(body) = self.ahead.get(record::HEADER_BYTES..end) else { return Ok(None) };
        if crc_fast::crc32_iscsi(body) != header.body_crc {
            return Ok(None);
        }
        // A copy, so that a record kept in memory does not keep its neighbours.
        let body = Bytes::copy_from_slice(body);
        self.skip(header.stride());
        Ok(Some(Record { header, body }))
    }

    fn skip(&mut self, len: usize) {
        let _ = self.ahead.split_to(len.min(self.ahead.len()));
    }

    /// Reads until `len` bytes are there or the file ends.
    async fn fill(&mut self, len: usize) -> std::io::Result<()> {
        while self.ahead.len() < len {
            let bytes = self.file.read_at(self.read_to, READ_BYTES).await?;
            self.read_to += bytes.len() as u64;
            let at_end = bytes.len() < READ_BYTES;
            self.ahead.extend_from_slice(&bytes);
            if at_end {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_and_parse() {
        let id = SegmentId { boot: 10, number: 2 };
        assert_eq!(id.name(), "000000000000000a-0000000000000002");
        assert_eq!(SegmentId::parse(&id.name()), Some(id));
        assert!(SegmentId { boot: 9, number: 255 }.name() < id.name());
        for bad in ["", "a-2", "label", "000000000000000A-0000000000000002"] {
            assert_eq!(SegmentId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_first_block_belongs_to_its_segment() {
        let id = SegmentId { boot: 3, number: 1 };
        let block = encode_start(id, 99);
        assert_eq!(decode_start(id, &block), Some(99));
        assert_eq!(decode_start(SegmentId { boot: 3, number: 2 }, &block), None);
        assert_eq!(decode_start(id, &[0; BLOCK_BYTES]), None);
        assert_eq!(decode_start(id, &block[..512]), None);
    }
}
