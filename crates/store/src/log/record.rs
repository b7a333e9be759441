//! The record: what one group commit (or a megabyte of it) puts into the log.
//!
//! `docs/disk.md#record` is the specification. A record is a header of 80 bytes, a body of batches, and the checksums of its
//! sectors; the next record begins at the next multiple of 4096. The reader trusts nothing: a record counts only if both
//! checksums hold and it continues the one before.

use bytes::Bytes;

use crate::limits::{BLOCK_BYTES, KEY_RESERVED, RECORD_BYTES_MAX};
use crate::log::sectors::{SECTOR_BYTES, seal, table_bytes};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 80;
const MAGIC: u32 = u32::from_le_bytes(*b"WLR2");
const BATCH_HEADER_BYTES: usize = 16;
const CHANGE_HEADER_BYTES: usize = 16;
/// Value length of a change that takes its key away.
const VALUE_NONE: u32 = u32::MAX;
/// Version before a change that was not in memory when it was made.
pub const BEFORE_UNKNOWN: u64 = u64::MAX;

/// What a record's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub body_bytes: u32,
    /// Batches in the body.
    pub batches: u32,
    /// Boot of the owner that wrote it.
    pub boot: u64,
    /// Last transno of the record before; 0 in front of the first.
    pub prev: u64,
    /// First transno of the record.
    pub first: u64,
    /// Last transno of the record.
    pub last: u64,
    /// Where its group begins in the segment, in bytes: everything in front of that was durable when it was written.
    pub synced: u64,
    /// The segment's.
    pub salt: u64,
    /// crc32c of the body.
    pub body_crc: u32,
}

/// Where a record is written.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Boot of the owner that writes it.
    pub boot: u64,
    /// The segment's salt.
    pub salt: u64,
    /// Where the group begins in the segment, in bytes.
    pub synced: u64,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.batches.to_le_bytes());
        out[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        out[16..24].copy_from_slice(&self.boot.to_le_bytes());
        out[24..32].copy_from_slice(&self.prev.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..48].copy_from_slice(&self.last.to_le_bytes());
        out[48..56].copy_from_slice(&self.synced.to_le_bytes());
        out[56..64].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&out[..HEADER_BYTES - 4]);
        out[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the front of `bytes`; `None` if there is none that holds together.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let header = Header {
            body_bytes: u32_at(bytes, 4)?,
            batches: u32_at(bytes, 8)?,
            body_crc: u32_at(bytes, 12)?,
            boot: u64_at(bytes, 16)?,
            prev: u64_at(bytes, 24)?,
            first: u64_at(bytes, 32)?,
            last: u64_at(bytes, 40)?,
            synced: u64_at(bytes, 48)?,
            salt: u64_at(bytes, 56)?,
        };
        // Encoding again checks the magic, the reserved bytes and the checksum at once.
        let sane = header.encode() == *bytes
            && header.body_bytes as usize <= RECORD_BYTES_MAX
            && header.synced >= BLOCK_BYTES as u64
            && header.prev < header.first
            && header.first <= header.last;
        sane.then_some(header)
    }

    /// Bytes from the start of this record to the start of the next.
    pub fn stride(&self) -> usize {
        stride(self.body_bytes as usize)
    }

    /// Bytes of header and body.
    pub fn covered(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }
}

/// Bytes that a record with a body of `body_bytes` takes in a segment.
pub fn stride(body_bytes: usize) -> usize {
    let covered = HEADER_BYTES + body_bytes;
    (covered.next_multiple_of(SECTOR_BYTES) + table_bytes(covered)).next_multiple_of(BLOCK_BYTES)
}

/// Puts a record into `out`, which is zero and has its whole length.
pub fn put(out: &mut [u8], header: &Header, body: &[u8]) {
    out[..HEADER_BYTES].copy_from_slice(&header.encode());
    out[HEADER_BYTES..header.covered()].copy_from_slice(body);
    seal(out, header.covered());
}

/// Bytes of a change within a body.
pub fn change_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    CHANGE_HEADER_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// A body that is being filled.
#[derive(Debug, Default)]
pub struct Body {
    /// What was put in.
    pub bytes: Vec<u8>,
    /// Batches put in.
    pub batches: u32,
    /// First transno; 0 while empty.
    pub first: u64,
    /// Last transno; 0 while empty.
    pub last: u64,
}

impl Body {
    /// The body of a record that was read, to be written again.
    pub fn of(record: &super::segment::Record) -> Body {
        let Header { batches, first, last, .. } = record.header;
        Body { bytes: record.body.to_vec(), batches, first, last }
    }

    /// Starts a batch; `count` changes have to follow.
    pub fn begin_batch(&mut self, transno: u64, count: u32) {
        assert!(transno > self.last, "transnos only grow");
        if self.batches == 0 {
            self.first = transno;
        }
        self.last = transno;
        self.batches += 1;
        self.bytes.extend_from_slice(&transno.to_le_bytes());
        self.bytes.extend_from_slice(&count.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    /// Adds a change. `before` is the version that the key had, 0 if it was not there.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>, before: u64) {
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&value.map_or(VALUE_NONE, |v| v.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&before.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// The header of the body as it stands.
    pub fn header(&self, place: Place, prev: u64) -> Header {
        Header {
            body_bytes: self.bytes.len() as u32,
            batches: self.batches,
            boot: place.boot,
            prev,
            first: self.first,
            last: self.last,
            synced: place.synced,
            salt: place.salt,
            body_crc: crc_fast::crc32_iscsi(&self.bytes),
        }
    }
}

/// One change as it lies in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Transno of its batch.
    pub transno: u64,
    /// Version of the key before; 0 if it was not there, [`BEFORE_UNKNOWN`] if that was not in memory.
    pub before: u64,
    /// The key, shared with the body.
    pub key: Bytes,
    /// The new value, shared with the body.
    pub value: Option<Bytes>,
}

impl Logged {
    /// Whether only the log has it, and neither the memory tables nor the engine get it.
    pub fn is_log_only(&self) -> bool {
        self.key.first() == Some(&KEY_RESERVED)
    }
}

/// A body whose checksum holds does not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// All changes of a body in order. `each` is called for every one; batches without changes are counted only.
pub fn read_body(header: &Header, body: &Bytes, mut each: impl FnMut(Logged)) -> Result<(), Malformed> {
    let mut at = 0;
    let mut last = header.prev;
    for index in 0..header.batches {
        let transno = u64_at(body, at).ok_or(Malformed)?;
        let count = u32_at(body, at + 8).ok_or(Malformed)?;
        let in_order = if index == 0 { transno == header.first } else { transno > last };
        if !in_order || transno > header.last || u32_at(body, at + 12) != Some(0) {
            return Err(Malformed);
        }
        last = transno;
        at += BATCH_HEADER_BYTES;
        for _ in 0..count {
            let key_bytes = u32_at(body, at).ok_or(Malformed)? as usize;
            let value_bytes = u32_at(body, at + 4).ok_or(Malformed)?;
            let before = u64_at(body, at + 8).ok_or(Malformed)?;
            let key_end = at + CHANGE_HEADER_BYTES + key_bytes;
            let end = if value_bytes == VALUE_NONE { key_end } else { key_end + value_bytes as usize };
            if end > body.len() {
                return Err(Malformed);
            }
            each(Logged {
                transno,
                before,
                key: body.slice(at + CHANGE_HEADER_BYTES..key_end),
                value: (value_bytes != VALUE_NONE).then(|| body.slice(key_end..end)),
            });
            at = end;
        }
    }
    if at != body.len() || last != header.last { Err(Malformed) } else { Ok(()) }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|c| u32::from_le_bytes(*c))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|c| u64::from_le_bytes(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { boot: 2, salt: 0x0123_4567_89ab_cdef, synced: 8192 };

    fn sample() -> Body {
        let mut body = Body::default();
        body.begin_batch(5, 2);
        body.push(b"key", Some(b"value"), 3);
        body.push(b"gone", None, BEFORE_UNKNOWN);
        body.begin_batch(7, 0);
        body
    }

    #[test]
    fn golden() {
        let body = sample();
        let header = body.header(PLACE, 4);
        let mut record = vec![0; header.stride()];
        put(&mut record, &header, &body.bytes);
        assert!(record[header.covered()..512].iter().chain(&record[1024..]).all(|byte| *byte == 0));
        assert!(record[516..1020].iter().all(|byte| *byte == 0), "there is one sector");
        let used = record[..header.covered()].iter().chain(&record[512..516]).chain(&record[1020..1024]);
        let hex: String = used.map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "574c5232",
                "4c000000",
                "02000000",
                "bef2dfa5", // magic, body bytes, batches, body crc
                "0200000000000000",
                "0400000000000000", // boot, prev
                "0500000000000000",
                "0700000000000000", // first, last
                "0020000000000000",
                "efcdab8967452301", // synced, salt
                "000000000000000000000000",
                "79356da0", // reserved, header crc
                "0500000000000000",
                "02000000",
                "00000000", // batch 5 with 2 changes
                "03000000",
                "05000000",
                "0300000000000000",
                "6b6579",
                "76616c7565", // key = value
                "04000000",
                "ffffffff",
                "ffffffffffffffff",
                "676f6e65", // gone is taken away
                "0700000000000000",
                "00000000",
                "00000000", // batch 7 without changes
                "9bd9a2a2",
                "c66f6906", // checksums of the sector, and of the table's own
            )
        );
    }

    #[test]
    fn a_body_reads_as_it_was_written() {
        let body = sample();
        let header = body.header(PLACE, 4);
        assert_eq!(Header::decode(&header.encode()), Some(header));
        let mut seen = Vec::new();
        let bytes = Bytes::from(body.bytes);
        assert_eq!(read_body(&header, &bytes, |logged| seen.push(logged)), Ok(()));
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].value.as_deref(), Some(&b"value"[..]));
        assert_eq!((seen[1].transno, seen[1].before, &seen[1].value), (5, BEFORE_UNKNOWN, &None));
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let body = sample();
        let header = body.header(PLACE, 4);
        for at in 0..body.bytes.len() {
            for bit in 0..8 {
                let mut bad = body.bytes.clone();
                bad[at] ^= 1 << bit;
                let _ = read_body(&header, &Bytes::from(bad), |_| {});
            }
            let cut = Bytes::from(body.bytes[..at].to_vec());
            assert_eq!(read_body(&header, &cut, |_| {}), Err(Malformed), "cut at {at}");
        }
        let encoded = header.encode();
        for at in 0..HEADER_BYTES {
            let mut bad = encoded;
            bad[at] ^= 1;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
    }
}
