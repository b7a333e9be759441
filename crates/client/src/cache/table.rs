//! Every file of which something is kept.
//!
//! An answer is kept only if nothing of the file was changed by this client, and nothing of it called back, since it
//! was asked for: requests, replies and callbacks pass each other on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use proto::{Fid, Name};
use rt::sync::oneshot;
use smallvec::SmallVec;

use super::inode::Inode;

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;
/// Units (files, names, entries of pages) that are kept in all.
const COST_MAX: usize = 1 << 20;
/// Own changes that are remembered before those are dropped that no question is older than.
const CHANGES_KEPT: usize = 1024;
/// Files that are looked at to find one that can go.
const LOOKED_AT_MAX: usize = 8;

/// A callback for something that was not here when it came: the answer may still be on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tombstone {
    pub(super) bits: u32,
    pub(super) number: u64,
    /// Requests from this one on were sent later.
    until: u64,
}

/// Answers that are on their way to the kernel; a callback waits for those that began before it.
struct Gate {
    filling: Arc<oneshot::Sender<()>>,
    filled: oneshot::Receiver<()>,
}

impl Gate {
    fn new() -> Gate {
        let (sender, filled) = oneshot::channel();
        Gate { filling: Arc::new(sender), filled }
    }
}

/// One part of the table.
pub(crate) struct Part {
    pub(crate) inodes: BTreeMap<Fid, Inode>,
    order: VecDeque<Fid>,
    cost: usize,
    gate: Gate,
    pub(super) tombstones: BTreeMap<Fid, Tombstone>,
}

/// Every file of which something is kept.
pub(crate) struct Inodes {
    parts: [Mutex<Part>; SHARDS],
    requests: Mutex<Requests>,
    /// The next stamp: never drawn twice.
    stamps: AtomicU64,
}

/// Questions that are under way, in the order in which they were asked.
#[derive(Default)]
struct Requests {
    next: u64,
    open: BTreeSet<u64>,
    /// Files that this client changed while questions were under way, with the number of the next question.
    changed: BTreeMap<Fid, u64>,
}

impl Requests {
    fn note_change(&mut self, fid: Fid) {
        if self.open.is_empty() {
            self.changed.clear();
            return;
        }
        if self.changed.len() >= CHANGES_KEPT {
            let oldest = self.open.first().copied().unwrap_or(0);
            self.changed.retain(|_, number| *number >= oldest);
        }
        self.changed.insert(fid, self.next);
    }
}

/// A question to the MDT that is under way.
pub(crate) struct Asked<'a> {
    inodes: &'a Inodes,
    number: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.inodes.requests.lock().open.remove(&self.number);
    }
}

impl Asked<'_> {
    /// Whether this client changed the file since the question was asked.
    fn is_outdated(&self, fid: Fid) -> bool {
        let requests = self.inodes.requests.lock();
        requests.changed.get(&fid).is_some_and(|number| *number >= self.number)
    }
}

/// A change by this client that is under way: whatever is known of the files and names ends with it, also if its
/// outcome is never known.
pub(crate) struct Changing<'a> {
    asked: Option<Asked<'a>>,
    inodes: &'a Inodes,
    fids: SmallVec<[Fid; 4]>,
    names: SmallVec<[(Fid, Name); 2]>,
}

impl<'a> Changing<'a> {
    /// The change was made; it concerned `more` too. Gives the right to keep what its answer says, unless another
    /// change of this client passed it.
    pub(crate) fn done(mut self, more: &[Fid]) -> Option<Asked<'a>> {
        self.fids.extend_from_slice(more);
        let asked = self.asked.take()?;
        let (number, passed) = {
            let mut requests = self.inodes.requests.lock();
            let passed = |fid: &Fid| requests.changed.get(fid).is_some_and(|number| *number >= asked.number);
            let passed = self.fids.iter().any(passed);
            self.fids.iter().for_each(|fid| requests.note_change(*fid));
            requests.next += 1;
            let number = requests.next;
            requests.open.insert(number);
            (number, passed)
        };
        let renewed = Asked { inodes: self.inodes, number };
        self.forget();
        if passed { None } else { Some(renewed) }
    }

    fn forget(&self) {
        for fid in &self.fids {
            if let Some(inode) = self.inodes.part(*fid).inodes.get_mut(fid) {
                inode.changed();
            }
        }
        for (parent, name) in &self.names {
            if let Some(inode) = self.inodes.part(*parent).inodes.get_mut(parent) {
                inode.names.remove(name);
            }
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.asked.is_some() {
            // Its outcome is not known: it may have happened.
            self.fids.iter().for_each(|fid| self.inodes.requests.lock().note_change(*fid));
            self.forget();
        }
    }
}

fn mixed(fid: Fid) -> u64 {
    (fid.seq ^ u64::from(fid.oid) << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Part {
    fn new() -> Part {
        Part {
            inodes: BTreeMap::new(),
            order: VecDeque::new(),
            cost: 0,
            gate: Gate::new(),
            tombstones: BTreeMap::new(),
        }
    }

    /// Keeps the part's callbacks waiting until the answer has reached the kernel.
    pub(super) fn filling(&self) -> Arc<oneshot::Sender<()>> {
        self.gate.filling.clone()
    }

    /// Answers that are on their way to the kernel now: done when all have arrived.
    pub(super) fn close_gate(&mut self) -> oneshot::Receiver<()> {
        let old = std::mem::replace(&mut self.gate, Gate::new());
        old.filled
    }
}

impl Inodes {
    pub(crate) fn new() -> Inodes {
        Inodes {
            parts: std::array::from_fn(|_| Mutex::new(Part::new())),
            requests: Mutex::default(),
            stamps: AtomicU64::new(1),
        }
    }

    /// The part of the table that `fid` belongs to.
    pub(crate) fn part(&self, fid: Fid) -> MutexGuard<'_, Part> {
        self.parts[(mixed(fid) >> 60) as usize % SHARDS].lock()
    }

    pub(super) fn parts(&self) -> &[Mutex<Part>] {
        &self.parts
    }

    /// A question is being asked.
    pub(crate) fn ask(&self) -> Asked<'_> {
        let mut requests = self.requests.lock();
        requests.next += 1;
        let number = requests.next;
        requests.open.insert(number);
        Asked { inodes: self, number }
    }

    /// A change of files and of names in directories is being asked for.
    pub(crate) fn change(&self, fids: &[Fid], names: &[(Fid, &Name)]) -> Changing<'_> {
        let names = names.iter().map(|(parent, name)| (*parent, (*name).clone())).collect();
        let fids = fids.iter().copied().filter(|fid| *fid != Fid::ZERO).collect();
        Changing { asked: Some(self.ask()), inodes: self, fids, names }
    }

    /// Does `learn` to what is kept of a file, if the answer to `asked` may be kept; `granted` is the number of its
    /// grant. Gives a file that should go to make room.
    pub(crate) fn learn(
        &self,
        asked: &Asked<'_>,
        fid: Fid,
        granted: u64,
        learn: impl FnOnce(&mut Inode),
    ) -> Option<Fid> {
        let mut part = self.part(fid);
        let buried = |grave: &Tombstone| asked.number < grave.until && granted <= grave.number;
        if asked.is_outdated(fid) || part.tombstones.get(&fid).is_some_and(buried) {
            return None;
        }
        let part = &mut *part;
        let inode = part.inodes.entry(fid).or_insert_with(|| {
            part.order.push_back(fid);
            part.cost += 1;
            Inode::new(self.stamps.fetch_add(1, Ordering::Relaxed))
        });
        inode.recent = true;
        let before = inode.cost();
        learn(inode);
        part.cost = part.cost + inode.cost() - before;
        if part.cost > COST_MAX / SHARDS { part.oldest() } else { None }
    }

    /// A stamp for a file whose names were called back.
    pub(super) fn new_stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a callback for something that is not here, as long as an answer may bring it.
    pub(super) fn bury(&self, part: &mut Part, fid: Fid, bits: u32, number: u64) {
        let requests = self.requests.lock();
        let oldest = requests.open.first().copied();
        part.tombstones.retain(|_, tombstone| oldest.is_some_and(|oldest| oldest < tombstone.until));
        if oldest.is_some() {
            let until = requests.next + 1;
            let grave = part.tombstones.entry(fid).or_insert(Tombstone { bits: 0, number: 0, until });
            grave.bits |= bits;
            grave.number = grave.number.max(number);
            grave.until = until;
        }
    }

    /// Forgets a file of which nothing is held.
    pub(super) fn remove(&self, fid: Fid) -> Option<Inode> {
        let mut part = self.part(fid);
        let inode = part.inodes.remove(&fid)?;
        part.cost = part.cost.saturating_sub(inode.cost());
        Some(inode)
    }

    /// Number of files of which something is kept.
    pub(crate) fn count(&self) -> usize {
        self.parts.iter().map(|part| part.lock().inodes.len()).sum()
    }
}

impl Part {
    /// A file that was not looked at lately.
    fn oldest(&mut self) -> Option<Fid> {
        for _ in 0..LOOKED_AT_MAX.min(self.order.len()) {
            let fid = self.order.pop_front()?;
            let Some(inode) = self.inodes.get_mut(&fid) else { continue };
            if std::mem::take(&mut inode.recent) || inode.open.is_some_and(|open| open.users > 0) {
                self.order.push_back(fid);
            } else {
                return Some(fid);
            }
        }
        None
    }
}
