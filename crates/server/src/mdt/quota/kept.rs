//! What of quotas is in the store (`docs/disk-mdt.md`): limits, deadlines and times of grace, of everything and of pools.

use bytes::Bytes;
use proto::pool::is_pool_name;
use store::Change;

use super::limit::Limit;
use super::table::{Pool, Slot};
use super::{SPACE, is_kind};
use crate::mdt::keys;

/// In the second byte of a key: it is the deadline of an owner of that kind.
const DEADLINE: u8 = 0x80;
/// Version of the format of what is said of pools.
const FORMAT: u8 = 1;
/// In the second byte of a key about a pool: limits of an owner.
const PART_LIMIT: u8 = 1;
/// Until when an owner may be above its soft limit.
const PART_DEADLINE: u8 = 2;
/// How long all of a kind may be.
const PART_GRACE: u8 = 3;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// How long owners of a kind may be above their soft limits, in seconds.
    Grace(u8, Pool, u64),
    /// What was said of an owner.
    Limit(Slot, Limit),
    /// Until when it may be above its soft limit, in seconds since 1970.
    Deadline(Slot, u64),
}

impl Kept {
    /// Keeps it.
    pub fn put(&self) -> Change {
        let value = match self {
            Kept::Grace(_, _, number) | Kept::Deadline(_, number) => number.to_le_bytes().to_vec(),
            Kept::Limit(_, limit) => limit.encode(),
        };
        let value = match self.pool() {
            None => value,
            Some(_) => [&[FORMAT][..], &value].concat(),
        };
        Change { key: self.key(), value: Some(value.into()) }
    }

    /// Takes it away.
    pub fn remove(&self) -> Change {
        Change { key: self.key(), value: None }
    }

    fn pool(&self) -> &Pool {
        match self {
            Kept::Grace(_, pool, _) => pool,
            Kept::Limit(slot, _) | Kept::Deadline(slot, _) => &slot.pool,
        }
    }

    fn key(&self) -> Bytes {
        let (part, kind, id) = match self {
            Kept::Grace(kind, _, _) => (PART_GRACE, *kind, 0),
            Kept::Limit(slot, _) => (PART_LIMIT, slot.kind, slot.id),
            Kept::Deadline(slot, _) => (PART_DEADLINE, slot.kind, slot.id),
        };
        match (self.pool(), part) {
            (Some(pool), _) => keys::quota_of_pool((part, kind & !SPACE), id, pool),
            (None, PART_GRACE) => keys::quota_of_all(kind),
            (None, PART_DEADLINE) => keys::quota(kind ^ DEADLINE, id),
            (None, _) => keys::quota(kind, id),
        }
    }
}

/// Keeps until when an owner may be above its soft limit; nothing for 0.
pub fn deadline_change(slot: &Slot, deadline_s: u64) -> Change {
    let kept = Kept::Deadline(slot.clone(), deadline_s);
    if deadline_s == 0 { kept.remove() } else { kept.put() }
}

/// What is stored with `key`; `None` for what nobody stores.
pub fn read(key: &[u8], value: &[u8]) -> Option<Kept> {
    let id_of = |id: &[u8]| id.try_into().ok().map(u32::from_be_bytes);
    match *key {
        [keys::QUOTA, kind] if is_kind(kind & !SPACE) => Some(Kept::Grace(kind, None, number(value)?)),
        [keys::QUOTA, kind, ref id @ ..] if is_kind(kind & !SPACE) => {
            Some(Kept::Limit(Slot { kind, pool: None, id: id_of(id)? }, Limit::decode(value)?))
        }
        [keys::QUOTA, kind, ref id @ ..] if is_kind((kind ^ DEADLINE) & !SPACE) => {
            Some(Kept::Deadline(Slot { kind: kind ^ DEADLINE, pool: None, id: id_of(id)? }, number(value)?))
        }
        [keys::QUOTA_POOL, part, kind, a, b, c, d, ref name @ ..] if is_kind(kind) => {
            let name = std::str::from_utf8(name).ok().filter(|name| is_pool_name(name))?;
            let (kind, pool) = (kind | SPACE, Some(name.into()));
            let id = u32::from_be_bytes([a, b, c, d]);
            let value = value.strip_prefix(&[FORMAT])?;
            match part {
                PART_GRACE if id == 0 => Some(Kept::Grace(kind, pool, number(value)?)),
                PART_LIMIT => Some(Kept::Limit(Slot { kind, pool, id }, Limit::decode(value)?)),
                PART_DEADLINE => Some(Kept::Deadline(Slot { kind, pool, id }, number(value)?)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::messages::{QUOTA_GROUP, QUOTA_USER};

    fn all() -> [(Kept, &'static str, &'static str); 6] {
        let pool: Pool = Some("ssd".into());
        let of_pool = Slot::space((QUOTA_GROUP, 0x0102_0304), &pool);
        let plain = Slot::space((QUOTA_USER, 0x0102_0304), &None);
        let limit = Limit { soft: 0x0a, hard: 0x0b, deadline_s: 0 };
        let limits = "0a00000000000000 0b00000000000000";
        [
            (Kept::Grace(SPACE, None, 5), "1f 40", "0500000000000000"),
            (Kept::Limit(plain.clone(), limit), "1f 40 01020304", limits),
            (Kept::Deadline(plain, 6), "1f c0 01020304", "0600000000000000"),
            (Kept::Grace(QUOTA_GROUP | SPACE, pool, 7), "23 03 01 00000000 737364", "01 0700000000000000"),
            (
                Kept::Limit(of_pool.clone(), limit),
                "23 01 01 01020304 737364",
                "01 0a00000000000000 0b00000000000000",
            ),
            (Kept::Deadline(of_pool, 8), "23 02 01 01020304 737364", "01 0800000000000000"),
        ]
    }

    /// The bytes are pinned: targets that were written before have to be read.
    #[test]
    fn what_is_kept_has_these_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (kept, key, value) in all() {
            let Change { key: stored, value: bytes } = kept.put();
            assert_eq!(hex(&stored), key.replace(' ', ""), "{kept:?}");
            let bytes = bytes.expect("it is put");
            assert_eq!(hex(&bytes), value.replace(' ', ""), "{kept:?}");
            assert_eq!(read(&stored, &bytes), Some(kept.clone()));
            assert_eq!(kept.remove().key, stored);
        }
    }

    #[test]
    fn what_nobody_stores_is_refused() {
        for (kept, _, _) in all() {
            let Change { key, value } = kept.put();
            let value = value.expect("it is put");
            for len in 0..value.len() {
                assert_eq!(read(&key, &value[..len]), None, "{kept:?}: {len} bytes");
            }
            assert_eq!(read(&key, &[&value[..], &[0]].concat()), None, "{kept:?}: a byte more");
        }
        let value = [&[FORMAT][..], &[0; 16]].concat();
        let key =
            |part, kind, name: &str| [&[keys::QUOTA_POOL, part, kind, 0, 0, 0, 9], name.as_bytes()].concat();
        assert!(read(&key(PART_LIMIT, 0, "a"), &value).is_some());
        for wrong in [
            key(0, 0, "a"),
            key(PART_LIMIT, 3, "a"),
            key(PART_LIMIT, 0, ""),
            key(PART_LIMIT, 0, "none"),
            key(4, 0, "a"),
        ] {
            assert_eq!(read(&wrong, &value), None, "{wrong:?}");
        }
        assert_eq!(
            read(&key(PART_LIMIT, 0, "a"), &[&[2][..], &[0; 16]].concat()),
            None,
            "of another version"
        );
    }
}
