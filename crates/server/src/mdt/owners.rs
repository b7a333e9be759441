//! Objects of files that changed hands: the change itself leaves a list of them, a key for each target and layout, and the task that
//! destroys objects ([`super::destroy`]) tells the targets when it is durable.
//!
//! An owner has the version of the change that named it, so it does not matter in which order, or how often, a target hears of them.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proto::limits::STRIPES_MAX;
use proto::{DataTarget, FileOwner, ObjectId};
use service::keys::behind;
use store::{Store, StoreError};

use super::keys;

/// Version of the format of an entry's value.
const FORMAT: u8 = 1;
/// Entries that are sent in one request.
const ENTRIES_PER_REQUEST: usize = 512;
/// Objects that are sent in one request.
const OBJECTS_PER_REQUEST: usize = 8192;

/// Numbers of entries, of which none is used twice: a later entry of the same objects must not take the place of one that is being sent.
pub struct Numbers {
    boot: u64,
    next: AtomicU64,
}

impl Numbers {
    /// Those of one boot of the target.
    pub fn new(boot: u64) -> Numbers {
        Numbers { boot, next: AtomicU64::new(0) }
    }

    /// A new one.
    pub fn next(&self) -> (u64, u64) {
        (self.boot, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// What can be sent to a target.
pub struct Found {
    /// Keys of the entries.
    pub keys: Vec<Bytes>,
    /// What they name.
    pub owned: Vec<(ObjectId, FileOwner)>,
    /// Whether there are no more.
    pub is_all: bool,
    /// Whether some are not durable yet.
    pub is_early: bool,
}

/// The first entries of the list of `target` that are durable.
pub fn found(store: &Store, target: DataTarget) -> Result<Found, StoreError> {
    let first = keys::of_target(keys::OWNERS, target);
    let entries = store.scan(&first, &behind(&first), ENTRIES_PER_REQUEST)?;
    let durable = store.last_committed();
    let is_all = entries.len() < ENTRIES_PER_REQUEST;
    let mut found = Found { keys: Vec::new(), owned: Vec::new(), is_all, is_early: false };
    for (key, value) in entries {
        if value.version > durable {
            found.is_early = true;
            continue;
        }
        if found.owned.len() >= OBJECTS_PER_REQUEST {
            found.is_all = false;
            break;
        }
        let damaged = || StoreError::Corrupt { what: "the list of objects that got another owner".into() };
        let (_, layout) = keys::target_parts(&key).ok_or_else(damaged)?;
        let ([uid, gid, project], stripes) = decode(&value.bytes).ok_or_else(damaged)?;
        let owner = FileOwner { uid, gid, version: value.version.0, project };
        found.owned.extend(stripes.into_iter().map(|stripe| (ObjectId { layout, stripe }, owner)));
        found.keys.push(key);
    }
    Ok(found)
}

/// Value of an entry: format, user, group, project, then each stripe.
pub fn encode(owner: FileOwner, stripes: &[u32]) -> Bytes {
    let mut value = Vec::with_capacity(13 + 4 * stripes.len());
    value.push(FORMAT);
    let numbers = [owner.uid, owner.gid, owner.project];
    numbers.iter().chain(stripes).for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
    value.into()
}

/// The inverse of [`encode`]: user, group and project, and the stripes.
fn decode(value: &[u8]) -> Option<([u32; 3], Vec<u32>)> {
    let (&format, numbers) = value.split_first()?;
    let (numbers, rest) = numbers.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
    let owner = [numbers.next()?, numbers.next()?, numbers.next()?];
    let sane = format == FORMAT && rest.is_empty() && numbers.len() <= STRIPES_MAX;
    sane.then(|| (owner, numbers.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let owner = FileOwner { uid: 1, gid: 2, version: 9, project: 3 };
        let value = encode(owner, &[0, 7]);
        assert_eq!(value[..5], [1, 1, 0, 0, 0]);
        assert_eq!(decode(&value), Some(([1, 2, 3], vec![0, 7])));
        for wrong in [&value[..12], &value[..14], &[&[2], &value[1..]].concat()[..], &[]] {
            assert_eq!(decode(wrong), None);
        }
    }

    #[test]
    fn no_number_comes_twice() {
        let numbers = Numbers::new(3);
        assert_eq!((numbers.next(), numbers.next()), ((3, 0), (3, 1)));
    }
}
