//! Segment files: their names, their first block, and how they are read.

use bytes::{Bytes, BytesMut};
use rt::File;

use crate::limits::BLOCK_BYTES;
use crate::log::record;
use crate::log::sectors::{SECTOR_BYTES, Verdict, is_blank, judge};

const MAGIC: [u8; 8] = *b"WEFTSEG2";
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

/// What the first block of a segment file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Last transno before the segment.
    pub prev: u64,
    /// Drawn by its owner: no bytes that somebody else chose look like a record of the segment.
    pub salt: u64,
}

/// First block of a segment file.
pub fn encode_start(id: SegmentId, start: Start) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&MAGIC);
    block[8..16].copy_from_slice(&id.boot.to_le_bytes());
    block[16..24].copy_from_slice(&id.number.to_le_bytes());
    block[24..32].copy_from_slice(&start.prev.to_le_bytes());
    block[32..40].copy_from_slice(&start.salt.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&block[..BLOCK_BYTES - 4]);
    block[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// What a first block says; `None` if it is not the block of `id`.
pub fn decode_start(id: SegmentId, block: &[u8]) -> Option<Start> {
    let word = |at: usize| Some(u64::from_le_bytes(*block.get(at..)?.first_chunk()?));
    let start = Start { prev: word(24)?, salt: word(32)? };
    (encode_start(id, start)[..] == *block).then_some(start)
}

/// Whether a first block is one of a format that this program does not read.
pub fn is_other_format(block: &[u8]) -> bool {
    let name = MAGIC.len() - 1;
    block.get(..name) == Some(&MAGIC[..name])
        && block.get(name).is_some_and(|v| v.is_ascii_digit() && *v != MAGIC[name])
}

/// One record that was read and whose checksums hold.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its header.
    pub header: record::Header,
    /// Its body.
    pub body: Bytes,
}

/// What comes next in a segment.
#[derive(Debug)]
pub enum Next {
    /// A whole record.
    Record(Record),
    /// Nothing, or a record that is torn.
    End,
    /// Something that was written whole, and changed since.
    Damaged,
}

/// Reads a segment file from the front.
pub struct SegmentReader {
    file: File,
    id: SegmentId,
    salt: u64,
    /// What was read and not yet taken.
    ahead: BytesMut,
    /// Where the next read begins.
    read_to: u64,
}

impl SegmentReader {
    /// A reader of the records of `file`.
    pub fn new(file: File, id: SegmentId, salt: u64) -> SegmentReader {
        SegmentReader { file, id, salt, ahead: BytesMut::new(), read_to: BLOCK_BYTES as u64 }
    }

    /// Where the next record begins in the file, in bytes.
    pub fn at(&self) -> u64 {
        self.read_to - self.ahead.len() as u64
    }

    /// What comes next. Behind anything but a record nothing more can be asked but [`SegmentReader::beyond`].
    pub async fn next(&mut self) -> std::io::Result<Next> {
        self.fill(BLOCK_BYTES).await?;
        if is_blank(self.ahead.get(..SECTOR_BYTES).unwrap_or(&self.ahead)) {
            return Ok(Next::End);
        }
        let Some(header) = self.header() else { return Ok(Next::Damaged) };
        self.fill(header.stride()).await?;
        let body = self.ahead.get(record::HEADER_BYTES..header.covered());
        let Some(body) = body.filter(|body| crc_fast::crc32_iscsi(body) == header.body_crc) else {
            let there = &self.ahead[..header.stride().min(self.ahead.len())];
            return Ok(match judge(there, header.covered()) {
                Verdict::Torn => Next::End,
                Verdict::Damaged => Next::Damaged,
            });
        };
        // A copy, so that a record kept in memory does not keep its neighbours.
        let body = Bytes::copy_from_slice(body);
        self.skip(header.stride());
        Ok(Next::Record(Record { header, body }))
    }

    /// The last transno of all records behind this place that were written after it was durable; `None` if there are none.
    pub async fn beyond(mut self) -> std::io::Result<Option<u64>> {
        let place = self.at();
        let mut last = None;
        loop {
            self.skip(BLOCK_BYTES);
            self.fill(record::HEADER_BYTES).await?;
            if self.ahead.is_empty() {
                return Ok(last);
            }
            let later = self.header().filter(|header| header.synced > place);
            last = last.max(later.map(|header| header.last));
        }
    }

    /// Whether there is nothing in the rest of the file.
    pub async fn rest_is_blank(mut self) -> std::io::Result<bool> {
        loop {
            self.fill(BLOCK_BYTES).await?;
            if self.ahead.is_empty() {
                return Ok(true);
            }
            if !is_blank(&self.ahead) {
                return Ok(false);
            }
            self.skip(self.ahead.len());
        }
    }

    /// The header of a record of this segment that begins here.
    fn header(&self) -> Option<record::Header> {
        let header = record::Header::decode(&self.ahead)?;
        let fits = header.boot == self.id.boot && header.salt == self.salt && header.synced <= self.at();
        fits.then_some(header)
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
        let start = Start { prev: 99, salt: 0x0123_4567_89ab_cdef };
        let block = encode_start(id, start);
        assert_eq!(decode_start(id, &block), Some(start));
        assert_eq!(decode_start(SegmentId { boot: 3, number: 2 }, &block), None);
        assert_eq!(decode_start(id, &[0; BLOCK_BYTES]), None);
        assert_eq!(decode_start(id, &block[..512]), None);
        let hex: String = block[..40].iter().chain(&block[4092..]).map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "5745465453454732030000000000000001000000000000006300000000000000efcdab89674523014473d2bd"
        );
        assert!(
            !is_other_format(&block) && !is_other_format(&[0; BLOCK_BYTES]) && is_other_format(b"WEFTSEG1")
        );
    }
}
