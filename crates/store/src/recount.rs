//! Counting everything again that sums say ([`crate::sums`]): to find what is wrong, and to put it right.

use std::sync::Arc;

use bytes::Bytes;
use rt::Rt;

use crate::check::Report;
use crate::engine::Item;
use crate::error::StoreError;
use crate::object::summary::{self, BLOCK_OWNERS, OBJECTS};
use crate::scan::{Scan, scan_all};
use crate::sums::{Count, INODE_OWNERS, INODES, Wrong, encode, sum_of};
use crate::target::Store;

/// All sums that count keys.
const COUNTS: &[Count] = &[OBJECTS, INODES];

/// Every sum of what `scan` has, and every other key of the objects' summary, that is not what everything read once comes to.
fn wrong(scan: &impl Scan) -> Result<Vec<Wrong>, StoreError> {
    let mut all = summary::wrong(scan)?;
    for count in COUNTS {
        let mut there = 0;
        let range = (Bytes::copy_from_slice(&[count.of]), Bytes::copy_from_slice(&[count.of + 1]));
        scan_all(scan, range, |_, _| {
            there += 1;
            Ok(())
        })?;
        let key = count.key();
        let found = scan.scan(&key, &[&key[..], &[0]].concat(), 1)?;
        let right = encode(there);
        let stored = found.first().map(|(_, value)| &value.bytes);
        if stored != right.as_ref() {
            let says = sum_of(stored).map_or("nonsense".into(), |sum| sum.to_string());
            let sentence =
                format!("The summary says that there are {says} {}, and there are {there}.", count.what);
            all.push(Wrong { key: Bytes::copy_from_slice(&key), right, sentence });
        }
    }
    all.extend(INODE_OWNERS.wrong(scan)?);
    all.extend(BLOCK_OWNERS.wrong(scan)?);
    Ok(all)
}

/// The same for anything with keys.
pub(crate) fn check_of(scan: &impl Scan, report: &mut Report) -> Result<(), StoreError> {
    wrong(scan)?.into_iter().for_each(|wrong| report.find(wrong.sentence));
    Ok(())
}

/// Sums everything again in the target in `path`, which nobody may serve meanwhile. Tells in sentences what was wrong.
///
/// No transno is drawn, as clients may have changes to replay: what is right goes into the engine beside the last change.
///
/// # Errors
/// The target cannot be opened, or has service nodes: their starts are numbered elsewhere.
pub async fn sum_again(rt: &Rt, path: &str) -> Result<Vec<String>, StoreError> {
    if !Store::read_label(rt, path).await?.service.is_empty() {
        let why = "sums of a target with service nodes cannot be put right: restore all targets together";
        return Err(StoreError::NotATarget(why.into()));
    }
    let store = Store::open(rt, path).await?;
    let found = put_right(rt, &store).await;
    store.close().await?;
    found
}

/// The same for a target that is open, and of which nobody uses the sums yet.
///
/// # Errors
/// The engine cannot be read or written.
pub async fn put_right(rt: &Rt, store: &Arc<Store>) -> Result<Vec<String>, StoreError> {
    let last = store.last_transno();
    store.applied(last).await?;
    let engine = store.shared.view.engine()?;
    let store = store.clone();
    rt.offload(move || {
        let found = wrong(&*store)?;
        let item =
            |wrong: &Wrong| Item { key: wrong.key.clone(), value: wrong.right.clone(), version: last.0 };
        let mut items: Vec<Item> = found.iter().map(item).collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        if !items.is_empty() {
            engine.apply(items, last.0)?;
            engine.persist()?;
        }
        Ok(found.into_iter().map(|wrong| wrong.sentence).collect())
    })
    .await
}
