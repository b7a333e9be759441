//! The changelog on disk. Specified in `docs/disk-mdt.md#changelog`.

use bytes::Bytes;
use proto::changelog::Record;
use proto::wire::Reader;
use proto::{Fid, Timestamp};

/// Version of the format of a record without a job.
const RECORD_FORMAT: u8 = 1;
/// The same with one, behind everything else.
const RECORD_FORMAT_JOB: u8 = 2;
/// Version of the format of a reader.
const USER_FORMAT: u8 = 1;
/// Version of the format of the state.
const STATE_FORMAT: u8 = 1;

/// Value of a record; its number is in the key.
pub fn encode(record: &Record) -> Bytes {
    let texts = [&record.name[..], &record.source_name, &record.xattr, record.nid.as_bytes()];
    let mut out = Vec::with_capacity(96 + texts.iter().map(|text| text.len() + 2).sum::<usize>());
    let format = if record.job.is_empty() { RECORD_FORMAT } else { RECORD_FORMAT_JOB };
    out.extend_from_slice(&[format, record.kind]);
    out.extend_from_slice(&record.flags.to_le_bytes());
    out.extend_from_slice(&record.time.secs.to_le_bytes());
    out.extend_from_slice(&record.time.nanos.to_le_bytes());
    for fid in [record.target, record.parent, record.source, record.source_parent] {
        out.extend_from_slice(&fid.to_key());
    }
    out.extend_from_slice(&record.uid.to_le_bytes());
    out.extend_from_slice(&record.gid.to_le_bytes());
    let job = (format == RECORD_FORMAT_JOB).then_some(record.job.as_bytes());
    for text in texts.into_iter().chain(job) {
        // Names and addresses are shorter by far.
        let text = &text[..text.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(text);
    }
    out.into()
}

/// The inverse of [`encode`].
pub fn decode(index: u64, value: &Bytes) -> Option<Record> {
    let mut from = Reader::new(value.clone());
    let has_job = match from.take::<u8>().ok()? {
        RECORD_FORMAT => false,
        RECORD_FORMAT_JOB => true,
        _ => return None,
    };
    let (kind, flags) = (from.take().ok()?, from.take().ok()?);
    let time = Timestamp { secs: from.take().ok()?, nanos: from.take().ok()? };
    let [target, parent, source, source_parent] =
        [take_fid(&mut from)?, take_fid(&mut from)?, take_fid(&mut from)?, take_fid(&mut from)?];
    let (uid, gid) = (from.take().ok()?, from.take().ok()?);
    let [name, source_name, xattr, nid] =
        [take_text(&mut from)?, take_text(&mut from)?, take_text(&mut from)?, take_text(&mut from)?];
    let nid = String::from_utf8(nid.to_vec()).ok()?;
    let job = if has_job { String::from_utf8(take_text(&mut from)?.to_vec()).ok()? } else { String::new() };
    let record = Record {
        index,
        kind,
        flags,
        time,
        target,
        parent,
        name,
        source,
        source_parent,
        source_name,
        xattr,
        uid,
        gid,
        nid,
        job,
    };
    from.is_empty().then_some(record)
}

fn take_fid(from: &mut Reader) -> Option<Fid> {
    Fid::from_key(&from.take_array::<16>().ok()?)
}

fn take_text(from: &mut Reader) -> Option<Bytes> {
    let len: u16 = from.take().ok()?;
    from.take_bytes(usize::from(len)).ok()
}

/// Value of a reader: how far it is, and the number of its registration.
pub fn encode_user(index: u64, number: u64) -> Bytes {
    let mut out = vec![USER_FORMAT];
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.into()
}

/// The inverse of [`encode_user`].
pub fn decode_user(value: &Bytes) -> Option<(u64, u64)> {
    let mut from = Reader::new(value.clone());
    let format: u8 = from.take().ok()?;
    let user = (from.take().ok()?, from.take().ok()?);
    (format == USER_FORMAT && from.is_empty()).then_some(user)
}

/// What is kept of the changelog besides its records and readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The newest record.
    pub last: u64,
    /// The oldest one that may be there.
    pub oldest: u64,
    /// The next reader.
    pub next_user: u32,
    /// The kinds that are recorded.
    pub mask: u32,
}

impl Kept {
    /// The value.
    pub fn encode(self) -> Bytes {
        let mut out = vec![STATE_FORMAT];
        out.extend_from_slice(&self.last.to_le_bytes());
        out.extend_from_slice(&self.oldest.to_le_bytes());
        out.extend_from_slice(&self.next_user.to_le_bytes());
        out.extend_from_slice(&self.mask.to_le_bytes());
        out.into()
    }

    /// The inverse.
    pub fn decode(value: &Bytes) -> Option<Kept> {
        let mut from = Reader::new(value.clone());
        let format: u8 = from.take().ok()?;
        let (last, oldest) = (from.take().ok()?, from.take().ok()?);
        let (next_user, mask) = (from.take().ok()?, from.take().ok()?);
        (format == STATE_FORMAT && from.is_empty()).then_some(Kept { last, oldest, next_user, mask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::changelog::Kind;

    #[test]
    fn values_round_trip_and_damage_is_seen() {
        let fid = |oid| Fid { seq: 0x2_0000_0401, oid, ver: 0 };
        let record = Record::new(Kind::Rename, fid(1)).named(fid(2), &Bytes::from_static(b"new")).by(5, 6);
        let time = Timestamp { secs: -3, nanos: 999_999_999 };
        let source_name = Bytes::from_static(b"o\xff");
        let record = Record { index: 9, source: fid(3), source_parent: fid(4), source_name, time, ..record };
        let record = Record { nid: "10.1.1.2@tcp".into(), xattr: Bytes::from_static(b"user.a"), ..record };
        for record in [Record { job: "4711".into(), ..record.clone() }, record] {
            let value = encode(&record);
            assert_eq!(decode(9, &value), Some(record));
            for len in 0..value.len() {
                assert_eq!(decode(9, &value.slice(..len)), None);
            }
            let longer = Bytes::from([&value[..], b"x"].concat());
            assert_eq!(decode(9, &longer), None);
        }
        assert_eq!(decode_user(&encode_user(7, 8)), Some((7, 8)));
        assert_eq!(decode_user(&Bytes::from_static(&[2; 17])), None);
        let kept = Kept { last: 5, oldest: 2, next_user: 3, mask: 0xff };
        assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        assert_eq!(Kept::decode(&Bytes::new()), None);
    }
}
