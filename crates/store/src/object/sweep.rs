//! Giving back what former boots took of the disk and nothing refers to: space that was allocated ahead of need, and what was freed and
//! not yet given back at a crash.
//!
//! It runs in the background after an open. On a full disk writes over what is there, and those that are repeated after a crash, wait for
//! it, because only here they find what was free before; it waits for nobody. How many blocks of each file are used is known, and the file system
//! says what the file takes. Only where that is more, or nothing is used, every extent is looked at, a part of them at a time, each part as it was at one moment. Nothing
//! new ever refers to a file of a former boot, so what was not used at that moment is not used later; and the engine has durable changes
//! only, so no crash brings it back. No data file of a former boot is removed before: were its sum wrong, nothing would be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use proto::ObjectId;
use rt::Rt;
use rt::sync::{Notify, Semaphore};

use super::extent::{Extent, FileId, Run};
use super::files::Files;
use super::keys;
use crate::error::StoreError;
use crate::target::Store;

/// Extents that are looked at at a time, and those of one object more.
const EXTENTS_PER_PART: usize = 20_000;
/// Files that are looked for in one pass over all extents: 8 KiB of memory each.
const FILES_PER_PASS: usize = 4096;

/// How far the search for what former boots left allocated is.
pub(super) struct Sweeping {
    /// Whoever reads the engine in the background; it is not closed meanwhile.
    pub reader: Semaphore,
    is_over: AtomicBool,
    /// Some of it was found, or that ended.
    pub found: Notify,
}

impl Sweeping {
    /// It has not begun.
    pub fn new() -> Sweeping {
        Sweeping { reader: Semaphore::new(1), is_over: AtomicBool::new(false), found: Notify::new() }
    }

    /// Nothing more is found.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.found.notify_waiters();
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Blocks of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockSet {
    words: Vec<u64>,
}

impl BlockSet {
    /// Adds the blocks of `run`, as far as they are not in it.
    pub fn add(&mut self, run: Run) {
        let (mut at, end) = (run.block as usize, run.block as usize + run.count as usize);
        if self.words.len() * 64 < end {
            self.words.resize(end.div_ceil(64), 0);
        }
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let count = (64 - bit).min(end - at);
            self.words[word] |= (u64::MAX >> (64 - count)) << bit;
            at += count;
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The blocks of a file of `blocks` blocks that are not in it, as first block and count.
    pub fn gaps(&self, blocks: u32) -> Vec<(u32, u32)> {
        let is_in = |at: u32| self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1);
        let (mut gaps, mut at) = (Vec::new(), 0);
        while at < blocks {
            let first = at;
            while at < blocks && !is_in(at) {
                at += 1;
            }
            if at > first {
                gaps.push((first, at - first));
            }
            at += 1;
        }
        gaps
    }
}

/// Looks for what former boots left, and gives it back.
pub async fn sweep(rt: Rt, store: Arc<Store>, files: Arc<Files>) {
    let done = sweep_all(&rt, &store, &files).await;
    files.end_sweep();
    match done {
        Ok(()) | Err(StoreError::Poisoned | StoreError::NotOwner) => {}
        Err(error) => tracing::warn!(%error, "unused space stays taken until the next start"),
    }
}

async fn sweep_all(rt: &Rt, store: &Arc<Store>, files: &Arc<Files>) -> Result<(), StoreError> {
    // What an open found in the log may have freed blocks of former boots, of which nobody knows here.
    let opened_at = store.last_transno();
    let loose = files.loose().await?;
    if loose.is_empty() {
        return Ok(());
    }
    store.applied(opened_at).await?;
    for files_of_pass in loose.chunks(FILES_PER_PASS) {
        let Some(sets) = used_blocks(rt, store, files, files_of_pass).await? else { return Ok(()) };
        for (file, set) in &sets {
            files.give_unused(*file, set).await?;
        }
    }
    Ok(())
}

/// The used blocks of `wanted`; `None` if the target is being closed.
async fn used_blocks(
    rt: &Rt,
    store: &Arc<Store>,
    files: &Files,
    wanted: &[FileId],
) -> Result<Option<BTreeMap<FileId, BlockSet>>, StoreError> {
    let mut sets: BTreeMap<FileId, BlockSet> =
        wanted.iter().map(|file| (*file, BlockSet::default())).collect();
    let mut from = Some(keys::extents().0);
    while let Some(start) = from {
        let store = store.clone();
        let part = rt.offload(move || {
            let next = add_part(&store, &start, &mut sets)?;
            Ok::<_, StoreError>((next, sets))
        });
        let Some(part) = files.in_sweep(part).await else { return Ok(None) };
        (from, sets) = part?;
    }
    Ok(Some(sets))
}

/// Adds the blocks of extents from `start` on; where the next part begins. It is at an object: pieces of extents move within one only.
fn add_part(
    store: &Store,
    start: &[u8],
    sets: &mut BTreeMap<FileId, BlockSet>,
) -> Result<Option<Bytes>, StoreError> {
    let (mut count, mut last, mut next) = (0, None::<ObjectId>, None);
    let mut damaged = None;
    store.shared.scan_applied(start, &keys::extents().1, &mut |key, value, _| {
        let decoded = keys::parse_extent_key(key).zip(Extent::decode(&Bytes::copy_from_slice(value)));
        let Some(((id, _), extent)) = decoded else {
            damaged = Some(Bytes::copy_from_slice(key));
            return false;
        };
        if count >= EXTENTS_PER_PART && last != Some(id) {
            next = Some(Bytes::copy_from_slice(key));
            return false;
        }
        (count, last) = (count + 1, Some(id));
        if let Some(set) = sets.get_mut(&extent.file) {
            set.add(extent.run());
        }
        true
    })?;
    match damaged {
        Some(key) => Err(StoreError::Corrupt { what: format!("the extent with key {key:x}") }),
        None => Ok(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { boot: 1, seq: 0 };

    #[test]
    fn a_set_of_blocks_is_what_was_added() {
        let mut set = BlockSet::default();
        assert_eq!((set.count(), set.gaps(5)), (0, vec![(0, 5)]));
        for (block, count) in [(3, 2), (4, 1), (60, 10), (128, 64), (200, 1)] {
            set.add(Run { file: FILE, block, count });
        }
        assert_eq!(set.count(), 2 + 10 + 64 + 1);
        assert_eq!(set.gaps(202), [(0, 3), (5, 55), (70, 58), (192, 8), (201, 1)]);
        assert_eq!(set.gaps(4), [(0, 3)]);
        set.add(Run { file: FILE, block: 0, count: 300 });
        assert_eq!((set.count(), set.gaps(300)), (300, vec![]));
    }
}
