//! Keys and records of objects. Layout: `docs/disk.md#objects`.

use bytes::Bytes;
use proto::wire::messages::ObjectAttr;
use proto::{Fid, FileOwner, ObjectId, Timestamp};

use super::extent::{BLOCK, FileId};
pub use crate::scan::after;

/// First byte of the keys of extents.
const EXTENT: u8 = b'E';
/// First byte of the keys of object records.
const RECORD: u8 = b'O';
/// First byte of the keys of objects that are unfinished.
const REST: u8 = b'R';
/// First byte of the keys of the sums of data files.
const USED: u8 = b'U';
/// First byte of the keys of seals.
const SEAL: u8 = b'S';
/// First byte of the keys of tombstones.
const TOMB: u8 = b'T';

/// Bytes of an encoded object id.
const ID_BYTES: usize = 20;
/// Bytes of an encoded record of an object that is nobody's.
const RECORD_BYTES: usize = 48;
/// Where in a record its blocks are: [`super::BLOCK_OWNERS`] reads them there.
pub(crate) const BLOCKS_AT: usize = 16;
/// Bytes that follow if the object is somebody's: user, group, the version of the inode that said so, and project.
const OWNER_BYTES: usize = 20;

fn with_id(prefix: u8, id: ObjectId) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + ID_BYTES + 8);
    key.push(prefix);
    key.extend_from_slice(&id.layout.to_key());
    key.extend_from_slice(&id.stripe.to_be_bytes());
    key
}

fn id_of(key: &[u8]) -> Option<(ObjectId, &[u8])> {
    let (id, rest) = key.split_at_checked(ID_BYTES)?;
    let layout = Fid::from_key(id)?;
    let stripe = u32::from_be_bytes(*id.last_chunk::<4>()?);
    Some((ObjectId { layout, stripe }, rest))
}

/// Key of an object's record.
pub fn record_key(id: ObjectId) -> Bytes {
    with_id(RECORD, id).into()
}

/// Key of the extent of an object that starts at byte `offset`.
pub fn extent_key(id: ObjectId, offset: u64) -> Bytes {
    let mut key = with_id(EXTENT, id);
    key.extend_from_slice(&offset.to_be_bytes());
    key.into()
}

/// First and last (exclusive) key of all records.
pub fn records() -> (Bytes, Bytes) {
    (Bytes::from_static(&[RECORD]), Bytes::from_static(&[RECORD + 1]))
}

/// First and last (exclusive) key of all extents.
pub fn extents() -> (Bytes, Bytes) {
    (Bytes::from_static(&[EXTENT]), Bytes::from_static(&[EXTENT + 1]))
}

/// Key that says that an object is unfinished: there are extents behind its end.
pub fn rest_key(id: ObjectId) -> Bytes {
    with_id(REST, id).into()
}

/// First and last (exclusive) key of all unfinished objects.
pub fn rests() -> (Bytes, Bytes) {
    (Bytes::from_static(&[REST]), Bytes::from_static(&[REST + 1]))
}

/// The unfinished object that `key` names.
pub fn parse_rest_key(key: &[u8]) -> Option<ObjectId> {
    let (id, rest) = id_of(key.strip_prefix(&[REST])?)?;
    rest.is_empty().then_some(id)
}

/// Key of the sum of the blocks of a data file that extents occupy.
pub fn used_key(file: FileId) -> Bytes {
    let mut key = Vec::with_capacity(13);
    key.push(USED);
    key.extend_from_slice(&file.boot.to_be_bytes());
    key.extend_from_slice(&file.seq.to_be_bytes());
    key.into()
}

/// First and last (exclusive) key of the sums of all data files.
pub fn all_used() -> (Bytes, Bytes) {
    (Bytes::from_static(&[USED]), Bytes::from_static(&[USED + 1]))
}

/// The data file whose sum has `key`.
pub fn parse_used_key(key: &[u8]) -> Option<FileId> {
    let (boot, seq) = key.strip_prefix(&[USED])?.split_first_chunk::<8>()?;
    Some(FileId { boot: u64::from_be_bytes(*boot), seq: u32::from_be_bytes(seq.try_into().ok()?) })
}

/// The object whose record has `key`.
pub fn parse_record_key(key: &[u8]) -> Option<ObjectId> {
    let (id, rest) = id_of(key.strip_prefix(&[RECORD])?)?;
    rest.is_empty().then_some(id)
}

/// The object and the offset of the extent that has `key`.
pub fn parse_extent_key(key: &[u8]) -> Option<(ObjectId, u64)> {
    let (id, rest) = id_of(key.strip_prefix(&[EXTENT])?)?;
    Some((id, u64::from_be_bytes(rest.try_into().ok()?)))
}

/// Key of the seal of a layout.
pub fn seal_key(layout: Fid) -> Bytes {
    let mut key = Vec::with_capacity(17);
    key.push(SEAL);
    key.extend_from_slice(&layout.to_key());
    key.into()
}

/// First and last (exclusive) key of all seals.
pub fn seals() -> (Bytes, Bytes) {
    (Bytes::from_static(&[SEAL]), Bytes::from_static(&[SEAL + 1]))
}

/// The layout whose seal has `key`.
pub fn parse_seal_key(key: &[u8]) -> Option<Fid> {
    Fid::from_key(key.strip_prefix(&[SEAL])?)
}

/// Key of the tombstone of the range of layout ids that ends with `last`.
pub fn tomb_key(last: Fid) -> Bytes {
    // The version stands before the oid: a range runs over oids. The store keeps keys together that have their
    // first 17 bytes in common.
    let mut key = Vec::with_capacity(21);
    key.push(TOMB);
    key.extend_from_slice(&last.seq.to_be_bytes());
    key.extend_from_slice(&last.ver.to_be_bytes());
    key.extend_from_slice(&[0; 4]);
    key.extend_from_slice(&last.oid.to_be_bytes());
    key.into()
}

/// The key right behind the tombstones of the sequence of `layout`.
pub fn tombs_end(layout: Fid) -> Bytes {
    after(&tomb_key(Fid { oid: u32::MAX, ..layout }))
}

/// First and last (exclusive) key of all tombstones.
pub fn tombs() -> (Bytes, Bytes) {
    (Bytes::from_static(&[TOMB]), Bytes::from_static(&[TOMB + 1]))
}

/// The last layout id of the range whose tombstone has `key`.
pub fn parse_tomb_key(key: &[u8]) -> Option<Fid> {
    let (seq, rest) = key.strip_prefix(&[TOMB])?.split_first_chunk::<8>()?;
    let (ver, rest) = rest.split_first_chunk::<4>()?;
    let oid = rest.strip_prefix(&[0; 4])?;
    Some(Fid {
        seq: u64::from_be_bytes(*seq),
        oid: u32::from_be_bytes(oid.try_into().ok()?),
        ver: u32::from_be_bytes(*ver),
    })
}

/// What is stored of an object besides its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// Bytes up to the last one written.
    pub size: u64,
    /// There may be extents in `[size, tail)`: cut off already, not yet taken away. Never below `size`.
    pub tail: u64,
    /// Blocks of data files that the extents occupy.
    pub blocks: u64,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Newest ctime that came with a change.
    pub ctime: Timestamp,
    /// Whose it is; of version 0 if nobody has said so.
    pub owner: FileOwner,
}

/// When something is written, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// When the application did it.
    pub time: Timestamp,
    /// Whose file it is.
    pub owner: FileOwner,
}

impl From<Timestamp> for By {
    /// By nobody.
    fn from(time: Timestamp) -> By {
        By { time, owner: FileOwner::default() }
    }
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.secs.to_le_bytes());
    out.extend_from_slice(&time.nanos.to_le_bytes());
}

fn take_time(from: &[u8]) -> Option<Timestamp> {
    let (secs, nanos) = from.split_first_chunk::<8>()?;
    Some(Timestamp { secs: i64::from_le_bytes(*secs), nanos: u32::from_le_bytes(nanos.try_into().ok()?) })
}

/// The inverse of what a record says of an owner.
fn take_owner(from: &[u8]) -> Option<FileOwner> {
    let from: &[u8; OWNER_BYTES] = from.try_into().ok()?;
    let (uid, rest) = from.split_first_chunk()?;
    let (gid, rest) = rest.split_first_chunk()?;
    let (version, project) = rest.split_first_chunk()?;
    let owner = FileOwner {
        uid: u32::from_le_bytes(*uid),
        gid: u32::from_le_bytes(*gid),
        version: u64::from_le_bytes(*version),
        project: u32::from_le_bytes(project.try_into().ok()?),
    };
    (owner.version != 0).then_some(owner)
}

/// Whose the object is that has this record; nobody's if nobody has said so, or it is no record.
pub fn owner_in(record: &[u8]) -> FileOwner {
    record.get(RECORD_BYTES..).and_then(take_owner).unwrap_or_default()
}

impl Record {
    /// The value that is stored.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(RECORD_BYTES + OWNER_BYTES);
        for number in [self.size, self.tail, self.blocks] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_time(&mut out, self.mtime);
        put_time(&mut out, self.ctime);
        if self.owner.version != 0 {
            out.extend_from_slice(&self.owner.uid.to_le_bytes());
            out.extend_from_slice(&self.owner.gid.to_le_bytes());
            out.extend_from_slice(&self.owner.version.to_le_bytes());
            out.extend_from_slice(&self.owner.project.to_le_bytes());
        }
        out.into()
    }

    /// The inverse of [`Record::encode`]; `None` for bytes that are no record.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let (bytes, owner) = bytes.split_first_chunk::<RECORD_BYTES>()?;
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let record = Record {
            size: number(0)?,
            tail: number(8)?,
            blocks: number(BLOCKS_AT)?,
            mtime: take_time(&bytes[24..36])?,
            ctime: take_time(&bytes[36..48])?,
            owner: if owner.is_empty() { FileOwner::default() } else { take_owner(owner)? },
        };
        (record.tail >= record.size).then_some(record)
    }

    /// Whether there may be extents behind the object's end.
    pub fn is_unfinished(&self) -> bool {
        self.tail > self.size
    }

    /// What others learn of the object.
    pub fn attr(&self) -> ObjectAttr {
        ObjectAttr {
            size: self.size,
            blocks: self.blocks * (BLOCK / 512),
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// Takes over the time of a change; the newest wins.
    pub fn touch(&mut self, time: Timestamp) {
        self.mtime = self.mtime.max(time);
        self.ctime = self.ctime.max(time);
    }

    /// Takes over what comes with a write.
    pub fn take(&mut self, by: By) {
        self.touch(by.time);
        self.owner = self.owner.newer(by.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId { layout: Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 }, stripe: 3 };

    #[test]
    fn keys_have_the_bytes_of_the_specification() {
        let hex = |key: &[u8]| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&record_key(ID)), "4f0000000200000400000000070000000000000003");
        assert_eq!(
            hex(&extent_key(ID, 0x1000)),
            "4500000002000004000000000700000000000000030000000000001000"
        );
        assert_eq!(hex(&tomb_key(ID.layout)), "540000000200000400000000000000000000000007");
        assert_eq!(hex(&rest_key(ID)), "520000000200000400000000070000000000000003");
        assert_eq!(hex(&used_key(FileId { boot: 3, seq: 9 })), "55000000000000000300000009");
    }

    #[test]
    fn keys_parse_back_and_foreign_keys_do_not() {
        assert_eq!(parse_record_key(&record_key(ID)), Some(ID));
        assert_eq!(parse_extent_key(&extent_key(ID, 99)), Some((ID, 99)));
        assert_eq!(parse_tomb_key(&tomb_key(ID.layout)), Some(ID.layout));
        assert_eq!(parse_rest_key(&rest_key(ID)), Some(ID));
        let file = FileId { boot: 3, seq: 9 };
        assert_eq!(parse_used_key(&used_key(file)), Some(file));
        assert_eq!(parse_record_key(&extent_key(ID, 99)), None);
        assert_eq!(parse_rest_key(&record_key(ID)), None);
        assert_eq!(parse_used_key(&used_key(file)[1..]), None);
        assert_eq!(parse_extent_key(&record_key(ID)), None);
        assert_eq!(parse_record_key(b"O"), None);
        assert_eq!(parse_tomb_key(b"T123"), None);
    }

    #[test]
    fn record_round_trips_and_refuses_other_bytes() {
        let time = Timestamp { secs: -5, nanos: 7 };
        let owner = FileOwner::default();
        let record = Record { size: 10, tail: 20, blocks: 3, mtime: time, ctime: time, owner };
        let hex: String = record.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "0a00000000000000",
                "1400000000000000",
                "0300000000000000", // size, tail, blocks
                "fbffffffffffffff",
                "07000000",
                "fbffffffffffffff",
                "07000000", // mtime, ctime
            )
        );
        assert_eq!(Record::decode(&record.encode()), Some(record));
        assert_eq!(Record::decode(&record.encode()[1..]), None);
        let backwards = Record { size: 20, tail: 10, ..record };
        assert_eq!(Record::decode(&backwards.encode()), None);
        let owner = FileOwner { uid: 0x0102, gid: 0x0304, version: 0x0506, project: 0x0708 };
        let owned = Record { owner, ..record };
        let hex: String = owned.encode()[RECORD_BYTES..].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, concat!("02010000", "04030000", "0605000000000000", "08070000"));
        assert_eq!(Record::decode(&owned.encode()), Some(owned));
        assert_eq!(Record::decode(&owned.encode()[..RECORD_BYTES + 8]), None);
        let nobody = [&record.encode()[..], &[0; OWNER_BYTES]].concat();
        assert_eq!(Record::decode(&nobody), None, "there is one form of nobody");
    }
}
