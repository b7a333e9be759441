//! What OSTs said last of owners with limits, as it is kept over a restart of the MDT: an OST may be away by then, and counts all the same.

use std::collections::BTreeMap;

use proto::{DataTarget, OstIndex};
use service::keys::behind;
use store::{Change, Store, StoreError};

use super::space::Owner;
use crate::mdt::keys;

/// Version of the format.
const FORMAT: u8 = 1;
/// What is kept differs from what was said by less than this, in bytes, and by less than this part of the owner's sum.
const STEP_MIN: u64 = 1 << 20;
const STEP_PART: u64 = 64;
/// Of owners of more OSTs nothing is kept.
const OSTS_MAX: usize = 4096;
/// Records that are read at a time.
const SCAN_COUNT: usize = 1024;

/// What each target said, in bytes.
pub(super) type Used = BTreeMap<DataTarget, u64>;

/// All that is kept.
pub(super) fn load(store: &Store) -> Result<BTreeMap<Owner, Used>, StoreError> {
    let mut all = BTreeMap::new();
    let (mut from, until) = (vec![keys::USED], behind(&[keys::USED]));
    loop {
        let page = store.scan(&from, &until, SCAN_COUNT)?;
        let Some((last, _)) = page.last() else { return Ok(all) };
        from = [last, &[0][..]].concat();
        for (key, value) in &page {
            let record = keys::used_of(key).zip(decode(&value.bytes));
            let (owner, used) =
                record.ok_or_else(|| StoreError::Corrupt { what: "what an owner had".into() })?;
            all.insert(owner, used);
        }
    }
}

/// Keeps what was said, if what is `kept` is another thing.
pub(super) fn change(owner: Owner, used: &Used, kept: &Used) -> Option<Change> {
    let sum = used.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let step = (sum / STEP_PART).max(STEP_MIN);
    let of = |all: &Used, target: DataTarget| all.get(&target).copied().unwrap_or(0);
    let osts = || used.keys().chain(kept.keys()).copied().filter(|target| target.ost().is_some());
    let differs = osts().any(|target| of(used, target).abs_diff(of(kept, target)) >= step);
    (differs && used.len() <= OSTS_MAX)
        .then(|| Change { key: keys::used(owner), value: Some(encode(used).into()) })
}

/// Keeps nothing of the owner any more.
pub(super) fn forget(owner: Owner) -> Change {
    Change { key: keys::used(owner), value: None }
}

fn encode(used: &Used) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    for (target, of) in used {
        if let DataTarget::Ost(OstIndex(index)) = target {
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&of.to_le_bytes());
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Used> {
    let (all, rest) = bytes.strip_prefix(&[FORMAT])?.as_chunks::<12>();
    let one = |one: &[u8; 12]| {
        let (index, bytes) = one.split_first_chunk()?;
        Some((OstIndex(u32::from_le_bytes(*index)).into(), u64::from_le_bytes(bytes.try_into().ok()?)))
    };
    if rest.is_empty() { all.iter().map(one).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::MdtIndex;

    #[test]
    fn what_differs_little_is_not_written_anew() {
        let of = |first: u64, second: u64| {
            Used::from([
                (DataTarget::Mdt(MdtIndex(0)), 9 << 30),
                (OstIndex(0).into(), first),
                (OstIndex(7).into(), second),
            ])
        };
        let (owner, kept) = ((2, 0x0102_0304), of(1 << 30, 5));
        assert_eq!(change(owner, &kept, &kept), None);
        assert_eq!(change(owner, &of((1 << 30) + (100 << 20), 5), &kept), None, "of 10 GiB it is little");
        let written = change(owner, &of(1 << 30, 1 << 30), &kept).expect("that is much");
        assert_eq!(keys::used_of(&written.key), Some(owner));
        let read = decode(&written.value.clone().expect("it has one")).expect("it was written so");
        assert_eq!(read, Used::from([(OstIndex(0).into(), 1 << 30), (OstIndex(7).into(), 1 << 30)]));
        assert!(change(owner, &Used::new(), &kept).is_some(), "all was removed");
        assert_eq!(forget(owner), Change { key: written.key, value: None });
        for wrong in [&[][..], &[2], &[1, 0]] {
            assert_eq!(decode(wrong), None);
        }
    }
}
