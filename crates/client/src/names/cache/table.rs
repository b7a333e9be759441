//! Every file of which something is kept.
//!
//! An answer is kept only if nothing of the file was called back, since it was asked for, and nothing changed by this client
//! ([`super::asked`]): requests, replies and callbacks pass each other on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use proto::second_chance::{Look, Round};
use proto::wire::messages::{Granted, LOCK_ALL};
use proto::{Fid, Shards};
use rt::memory::{Share, User};
use rt::sync::oneshot;
use smallvec::SmallVec;

use super::asked::{Asked, Requests};
use super::gate::{Filling, Gate};
use super::inode::{BITS, DeadName, Inode, OpenKept};
use crate::lock::Keep;
use crate::order::{CHANGES, INODES, LEAF, Mutex, MutexGuard};

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;
/// Memory that a unit (a file, a name, an entry of a page) takes, about, in bytes.
pub(super) const UNIT_BYTES: u64 = 512;
/// The part of a share of the process's memory that is for them.
const MEMORY_PART: u64 = 8;
/// Units that are kept however little memory there is.
const UNITS_MIN: usize = 1 << 14;
/// Files that go together when there is too much: one request gives back what is held of them.
const LEAVING_MAX: usize = 256;
/// Where fewer may be kept, no greater part of them goes together.
const LEAVING_PART: usize = 32;
/// The part of what may be kept that the pages of one directory may take.
const PAGES_PART: usize = 4;
/// Names of a directory that are looked at, for those that mean nothing any more, when one comes and there is little room.
const SWEPT_MAX: usize = 4;
/// What an answer counts that permits nothing, where one that does counts 1 against it.
const REFUSED_WEIGHT: usize = 4;
/// So much of that, and files go: the MDT has granted as much as it may.
const REFUSED_MAX: usize = 1024;
/// Files that are looked at to find one that can go.
const LOOKED_AT_MAX: usize = 8;

/// Callbacks for one file: an answer whose grant they took may still be on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tombstone {
    /// Up to which number each bit was taken.
    numbers: [u64; BITS],
    /// Requests from this one on were sent later.
    until: u64,
}

impl Tombstone {
    fn bury(&mut self, bits: u32, number: u64) {
        for (at, taken) in self.numbers.iter_mut().enumerate() {
            if bits & 1 << at != 0 {
                *taken = number.max(*taken);
            }
        }
    }

    /// The bits that were taken of a grant with this number.
    fn taken(&self, number: u64) -> u32 {
        let taken = self.numbers.iter().enumerate().filter(|(_, taken)| **taken >= number);
        taken.fold(0, |bits, (at, _)| bits | 1 << at)
    }
}

/// What is kept in all parts.
struct Totals {
    files: AtomicUsize,
    units: AtomicUsize,
    /// Accounts for them.
    user: User,
}

impl Totals {
    /// What is kept of a file took `before` units, and takes `after`.
    fn changed(&self, before: usize, after: usize) {
        self.user.changed(before as u64 * UNIT_BYTES, after as u64 * UNIT_BYTES);
        if after > before {
            self.units.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.units.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

/// One part of the table.
pub(crate) struct Part {
    pub(crate) inodes: BTreeMap<Fid, Inode>,
    order: Round<Fid>,
    totals: Arc<Totals>,
    gate: Gate,
    pub(super) tombstones: BTreeMap<Fid, Tombstone>,
    /// What questions before this one are granted nobody knows any more.
    lost_until: u64,
}

/// Every file of which something is kept.
pub(crate) struct Inodes {
    parts: Shards<Mutex<INODES, Part>, SHARDS>,
    /// Whose answers are on their way.
    pub(super) requests: Mutex<CHANGES, Requests>,
    /// The next stamp: never drawn twice.
    stamps: AtomicU64,
    /// How much may be kept.
    keep: Mutex<LEAF, Keep>,
    /// [`Keep::count_max`].
    count_max: AtomicUsize,
    totals: Arc<Totals>,
    /// Files that are on their way out: they count as gone.
    leaving: AtomicUsize,
    /// How many answers permitted nothing, as [`REFUSED_WEIGHT`] says.
    refused: AtomicUsize,
    memory: Share,
    /// The part that is looked at next for what can go.
    hand: AtomicUsize,
}

impl Part {
    fn new(totals: Arc<Totals>) -> Part {
        Part {
            inodes: BTreeMap::new(),
            order: Round::default(),
            totals,
            gate: Gate::new(),
            tombstones: BTreeMap::new(),
            lost_until: 0,
        }
    }

    /// Keeps the part's callbacks waiting until the answer has reached the kernel.
    pub(super) fn filling(&self) -> Arc<Filling> {
        self.gate.filling()
    }

    /// Answers that are on their way to the kernel now: done when all have arrived.
    pub(super) fn close_gate(&mut self) -> oneshot::Receiver<()> {
        self.gate.close()
    }
}

impl Inodes {
    /// With a part of a share of the process's memory.
    pub(crate) fn new(memory: Share) -> Inodes {
        let user = memory.memory().user("names");
        let totals = Arc::new(Totals { files: AtomicUsize::new(0), units: AtomicUsize::new(0), user });
        Inodes {
            parts: Shards::new(|| Mutex::new(Part::new(totals.clone()))),
            requests: Mutex::default(),
            stamps: AtomicU64::new(1),
            keep: Mutex::default(),
            count_max: AtomicUsize::new(0),
            totals,
            leaving: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            memory,
            hand: AtomicUsize::new(0),
        }
    }

    /// How much may be kept.
    pub(crate) fn keep(&self) -> Keep {
        *self.keep.lock()
    }

    /// Sets that.
    pub(crate) fn set_keep(&self, set: impl FnOnce(&mut Keep)) {
        let mut keep = self.keep.lock();
        set(&mut keep);
        self.count_max.store(keep.count_max, Ordering::Relaxed);
    }

    /// Units that may be kept.
    fn units_max(&self) -> usize {
        let fits = self.memory.bytes() / MEMORY_PART / UNIT_BYTES;
        usize::try_from(fits).unwrap_or(usize::MAX).max(UNITS_MIN)
    }

    /// How many entries the pages of one directory may have.
    pub(super) fn page_entries_max(&self) -> usize {
        self.units_max() / PAGES_PART
    }

    /// Files that have to go to make room, if there is too much: some together, so that the next ones have room. They count as
    /// gone until [`Inodes::has_left`].
    pub(super) fn take_leavers(&self) -> Vec<Fid> {
        let count = self.leavers_due();
        if count == 0 {
            return Vec::new();
        }
        let mut fids = Vec::with_capacity(count);
        for turn in 0..2 * (SHARDS + count) {
            // Most may be in use, or were used lately.
            if fids.len() == count || fids.is_empty() && turn == 2 * SHARDS {
                break;
            }
            let at = self.hand.fetch_add(1, Ordering::Relaxed);
            fids.extend(self.parts.at(at).lock().oldest());
        }
        self.leaving.fetch_add(fids.len(), Ordering::Relaxed);
        fids
    }

    fn leavers_due(&self) -> usize {
        let (units_max, count_max) = (self.units_max(), self.count_max.load(Ordering::Relaxed));
        let leaving = self.leaving.load(Ordering::Relaxed);
        let files = self.count().saturating_sub(leaving);
        let units = self.totals.units.load(Ordering::Relaxed).saturating_sub(leaving);
        let max = if count_max == 0 { units_max } else { count_max.min(units_max) };
        let together = (max / LEAVING_PART).clamp(1, LEAVING_MAX);
        if units > units_max || count_max > 0 && files > count_max {
            return together;
        }
        let is_refused = self.refused.load(Ordering::Relaxed) > REFUSED_MAX;
        if !is_refused {
            return 0;
        }
        self.refused.store(0, Ordering::Relaxed);
        // Two for each that was refused, unless the reason is another one.
        if files > 2 * LEAVING_MAX { 2 * LEAVING_MAX } else { 0 }
    }

    /// A file that was to go is gone, or has come again.
    pub(super) fn has_left(&self, fid: Fid) {
        self.part(fid).forget_evicted(fid);
        self.leaving.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the MDT lets the client keep something of what it was asked about.
    pub(super) fn note_permission(&self, granted: bool) {
        if !granted {
            self.refused.fetch_add(REFUSED_WEIGHT, Ordering::Relaxed);
        } else if self.refused.load(Ordering::Relaxed) > 0 {
            let less = |refused: usize| Some(refused.saturating_sub(1));
            let _ = self.refused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Takes some names out of a directory that mean nothing any more, if there is little room: of files that were given up, or
    /// called back. Otherwise a directory that is always in use would have the names of all that was ever looked at in it.
    pub(super) fn sweep(&self, dir: Fid) {
        if self.totals.units.load(Ordering::Relaxed) < self.units_max() / 8 * 7 {
            return;
        }
        let Some(names) = self.part(dir).change(dir, |dir| dir.names.next(SWEPT_MAX)) else { return };
        let is_dead = |(fid, stamp): (Fid, u64)| {
            let part = self.part(fid);
            part.inodes.get(&fid).is_none_or(|file| file.stamp != stamp || !file.keeps_names())
        };
        let dead: SmallVec<[_; SWEPT_MAX]> = names.into_iter().filter(|(_, known)| is_dead(*known)).collect();
        if !dead.is_empty() {
            self.part(dir).change(dir, |dir| {
                dead.iter().for_each(|(name, known)| dir.names.forget_known(name, *known))
            });
        }
    }

    /// All files that should go because there are too many; the parts take turns.
    pub(crate) fn all_excess(&self) -> Vec<Fid> {
        let (max, count) = (self.count_max.load(Ordering::Relaxed), self.count());
        let too_many = if max == 0 { 0 } else { count.saturating_sub(max) };
        let mut fids = Vec::new();
        // A first look may only note what was used since the last.
        for turn in 0..3 * count + SHARDS {
            if fids.len() == too_many {
                break;
            }
            fids.extend(self.parts.at(turn).lock().oldest());
        }
        fids
    }

    /// Files of which something is held, and that nobody has open here.
    pub(crate) fn unused_count(&self) -> usize {
        let unused = |inode: &&Inode| inode.held().bits != 0 && inode.open.is_none_or(|open| open.users == 0);
        self.parts.iter().map(|part| part.lock().inodes.values().filter(unused).count()).sum()
    }

    /// The part of the table that `fid` belongs to.
    pub(crate) fn part(&self, fid: Fid) -> MutexGuard<'_, INODES, Part> {
        self.parts.of(&fid).lock()
    }

    pub(super) fn parts(&self) -> &Shards<Mutex<INODES, Part>, SHARDS> {
        &self.parts
    }

    /// Does `learn` to what is kept of a file, if the answer to `asked`, which came with `granted`, may be kept; says
    /// whether it may. Otherwise only that is noted what the MDT has granted and not called back.
    pub(crate) fn learn(
        &self,
        asked: &Asked<'_>,
        fid: Fid,
        granted: Granted,
        learn: impl FnOnce(&mut Inode),
    ) -> bool {
        let mut part = self.part(fid);
        let taken = part.taken(asked, fid, granted.number);
        if taken != 0 || asked.is_outdated(fid) {
            self.note_unkept(&mut part, fid, Granted { bits: granted.bits & !taken, ..granted });
            return false;
        }
        let is_new = self.make_known(&mut part, fid);
        part.change(fid, |inode| {
            // Who looks at many files once must not drive those out that are used again and again.
            inode.recent |= !is_new;
            learn(inode);
        });
        true
    }

    /// The same of a file of which this client has told ahead: what it has told since is in what is kept already.
    pub(super) fn learn_promised(
        &self,
        asked: &Asked<'_>,
        fid: Fid,
        granted: Granted,
        learn: impl FnOnce(&mut Inode),
    ) {
        let mut part = self.part(fid);
        let taken = part.taken(asked, fid, granted.number);
        if taken == 0 && part.inodes.contains_key(&fid) {
            part.change(fid, learn);
        } else {
            self.note_unkept(&mut part, fid, Granted { bits: granted.bits & !taken, ..granted });
        }
    }

    /// Nothing of an answer is kept: notes what came with it, as [`Inodes::learn`] does.
    pub(super) fn not_kept(&self, asked: &Asked<'_>, fid: Fid, granted: Granted) {
        let mut part = self.part(fid);
        let taken = part.taken(asked, fid, granted.number);
        self.note_unkept(&mut part, fid, Granted { bits: granted.bits & !taken, ..granted });
    }

    fn note_unkept(&self, part: &mut Part, fid: Fid, granted: Granted) {
        if granted.bits != 0 {
            self.make_known(part, fid);
            part.change(fid, |inode| inode.grant_unkept(granted));
        }
    }

    /// Whether nothing was known of the file; something is from now on.
    fn make_known(&self, part: &mut Part, fid: Fid) -> bool {
        let is_new = !part.inodes.contains_key(&fid);
        if is_new {
            part.add(fid, Inode::new(self.new_stamp()));
        }
        is_new
    }

    /// A stamp for a file whose names were called back.
    pub(super) fn new_stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a callback for something that is not here, as long as an answer may bring it.
    pub(super) fn bury(&self, part: &mut Part, fid: Fid, bits: u32, number: u64) {
        let requests = self.requests.lock();
        let (oldest, until) = requests.under_way();
        part.tombstones.retain(|_, tombstone| oldest.is_some_and(|oldest| oldest < tombstone.until));
        if oldest.is_some() {
            let grave = part.tombstones.entry(fid).or_insert(Tombstone { numbers: [0; BITS], until });
            grave.bury(bits, number);
            grave.until = until;
        }
    }

    /// The MDT knows nothing any more of what it granted: nothing is kept of answers that are on their way, whatever file
    /// they tell of.
    pub(super) fn bury_all(&self, part: &mut Part) {
        (_, part.lost_until) = self.requests.lock().under_way();
        part.tombstones.clear();
    }

    /// Takes everything of a file away, to make room: what was held, the open file that nobody uses, and what is done
    /// when the answers have arrived that were made before. Answers that are on their way and were granted before are
    /// not kept any more: what is held is given up with their grants.
    pub(super) fn give_up(&self, fid: Fid) -> Option<(Granted, Option<OpenKept>, oneshot::Receiver<()>)> {
        let mut part = self.part(fid);
        let stamp = self.new_stamp();
        let (held, name, unused) = part.change(fid, |inode| {
            let held = inode.held();
            (held, inode.take_names(stamp), inode.revoke_all())
        })?;
        self.bury(&mut part, fid, LOCK_ALL, held.number);
        let gate = part.close_gate();
        drop(part);
        self.drop_name(fid, name);
        Some((held, unused, gate))
    }

    /// Forgets a name of a file that means nothing any more.
    pub(super) fn drop_name(&self, fid: Fid, name: Option<DeadName>) {
        if let Some(DeadName { dir, name, stamp }) = name {
            self.part(dir).change(dir, |dir| dir.names.forget_known(&name, (fid, stamp)));
        }
    }

    /// Forgets a file of which nothing is held, and nothing known.
    pub(super) fn remove_bare(&self, fid: Fid) {
        let mut part = self.part(fid);
        let is_bare = |inode: &Inode| inode.is_bare() && !inode.names.has_any() && inode.target.is_none();
        if part.inodes.get(&fid).is_some_and(is_bare) {
            part.remove(fid);
        }
    }

    /// The bits that are held of each file.
    pub(crate) fn held(&self) -> Vec<(Fid, u32)> {
        let of_part = |part: &Mutex<INODES, Part>| -> Vec<(Fid, u32)> {
            let part = part.lock();
            part.inodes.iter().map(|(fid, inode)| (*fid, inode.held().bits)).collect()
        };
        self.parts.iter().flat_map(of_part).filter(|(_, bits)| *bits != 0).collect()
    }

    /// Whether any bits are held.
    pub(crate) fn holds_any(&self) -> bool {
        self.parts.iter().any(|part| part.lock().inodes.values().any(|inode| inode.held().bits != 0))
    }

    /// Number of files of which something is kept.
    pub(crate) fn count(&self) -> usize {
        self.totals.files.load(Ordering::Relaxed)
    }
}

impl Part {
    /// The bits that were called back, or given up, of a grant with this number while its answer was on its way.
    fn taken(&self, asked: &Asked<'_>, fid: Fid, number: u64) -> u32 {
        if asked.is_before(self.lost_until) {
            return u32::MAX;
        }
        let grave = self.tombstones.get(&fid).filter(|grave| asked.is_before(grave.until));
        grave.map_or(0, |grave| grave.taken(number))
    }

    /// Changes what is kept of a file, if anything is.
    pub(super) fn change<T>(&mut self, fid: Fid, change: impl FnOnce(&mut Inode) -> T) -> Option<T> {
        let inode = self.inodes.get_mut(&fid)?;
        let before = inode.cost();
        let result = change(inode);
        self.totals.changed(before, inode.cost());
        Some(result)
    }

    fn remove(&mut self, fid: Fid) {
        let Some(inode) = self.inodes.remove(&fid) else { return };
        self.totals.changed(inode.cost(), 0);
        self.totals.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Everything of a file was given up: it goes, unless something was told of it since.
    pub(super) fn forget_evicted(&mut self, fid: Fid) {
        let Some(inode) = self.inodes.get(&fid) else { return };
        if inode.is_bare() {
            self.remove(fid);
        } else {
            self.order.push(fid);
        }
    }

    fn add(&mut self, fid: Fid, inode: Inode) {
        self.order.tidy(self.inodes.len(), |fid| self.inodes.contains_key(fid));
        self.order.push(fid);
        self.totals.changed(0, inode.cost());
        self.totals.files.fetch_add(1, Ordering::Relaxed);
        self.inodes.insert(fid, inode);
    }

    /// A file that was not looked at lately.
    fn oldest(&mut self) -> Option<Fid> {
        self.order.find(LOOKED_AT_MAX, |fid| {
            let Some(inode) = self.inodes.get_mut(&fid) else { return Look::Gone };
            let stays = std::mem::take(&mut inode.recent) || inode.open.is_some_and(|open| open.users > 0);
            if stays { Look::Stays } else { Look::Found }
        })
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE};
    use proto::{Name, Timestamp, Transno};

    use super::super::inode::Touch;
    use super::super::inode::tests::directory;
    use proto::second_chance::GONE_MAX;

    use super::*;

    const DIR: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    fn inodes() -> Inodes {
        Inodes::new(Share::of(0))
    }

    fn name(n: usize) -> Name {
        Name::new(format!("n{n}").into_bytes()).expect("a plain name")
    }

    fn units(inodes: &Inodes) -> usize {
        inodes.totals.units.load(Ordering::Relaxed)
    }

    fn update(number: u64) -> Granted {
        Granted { bits: LOCK_UPDATE, number }
    }

    /// What an answer with a grant and some names does.
    fn told(number: u64, names: usize) -> impl FnOnce(&mut Inode) {
        move |inode| {
            inode.grant(update(number));
            for n in 0..names {
                inode.names.learn_absence(name(n));
            }
        }
    }

    /// A directory that was called back again and again was taken for a large one, and given up all the time.
    #[test]
    fn what_was_called_back_takes_no_room() {
        let inodes = inodes();
        for number in 1..200 {
            let asked = inodes.ask();
            inodes.learn(&asked, DIR, update(number), told(number, 1000));
            assert_eq!(inodes.take_leavers(), [], "there is room");
            drop(asked);
            let gone = inodes.part(DIR).change(DIR, |inode| inode.revoke(LOCK_ALL, number));
            assert_eq!(gone, Some(LOCK_UPDATE));
        }
        assert_eq!(units(&inodes), 1);
    }

    /// An answer that was under way when the file was given up brought a lock that the MDT was then told to forget: the
    /// client kept what nobody would call back.
    #[test]
    fn an_answer_from_before_is_not_kept_when_the_file_is_given_up() {
        let inodes = inodes();
        let (early, late) = (inodes.ask(), inodes.ask());
        inodes.learn(&late, DIR, update(7), told(7, 1));
        let (held, _, _) = inodes.give_up(DIR).expect("it is kept");
        assert_eq!(held, update(7));
        inodes.learn(&early, DIR, update(6), told(6, 1));
        assert!(!inodes.part(DIR).inodes.get(&DIR).is_some_and(|inode| inode.has(LOCK_UPDATE)));
        inodes.learn(&early, DIR, update(8), told(8, 1));
        assert!(
            inodes.part(DIR).inodes.get(&DIR).is_some_and(|inode| inode.has(LOCK_UPDATE)),
            "granted after that"
        );
    }

    /// A restart of the MDT passed the answer to a look-up, and the client kept what the MDT did not know of.
    #[test]
    fn an_answer_from_before_a_restart_is_not_kept() {
        let inodes = inodes();
        let early = inodes.ask();
        inodes.bury_all(&mut inodes.part(DIR));
        let late = inodes.ask();
        assert!(!inodes.learn(&early, DIR, update(7), told(7, 1)), "nothing was known of it");
        assert_eq!(held(&inodes), None);
        assert!(inodes.learn(&late, DIR, update(8), told(8, 1)), "asked since");
        assert_eq!(held(&inodes), Some((update(8), true)));
    }

    /// A callback that passed the answer to an open was forgotten: the client kept a directory that nobody would call
    /// back, and listed it as it had been.
    #[test]
    fn a_callback_that_passes_the_answer_to_a_change_counts() {
        let inodes = inodes();
        let changing = inodes.change(&[DIR], &[]);
        inodes.bury(&mut inodes.part(DIR), DIR, LOCK_ALL, 5);
        let asked = changing.done(&[]);
        inodes.learn(&asked, DIR, update(5), told(5, 1));
        assert!(inodes.part(DIR).inodes.is_empty(), "called back before it came");
        inodes.learn(&asked, DIR, update(6), told(6, 1));
        assert!(inodes.part(DIR).inodes.get(&DIR).is_some_and(|inode| inode.has(LOCK_UPDATE)));
    }

    fn held(inodes: &Inodes) -> Option<(Granted, bool)> {
        inodes.part(DIR).inodes.get(&DIR).map(|inode| (inode.held(), inode.has(LOCK_UPDATE)))
    }

    /// The MDT believed for ever that the client had what came with an answer that was not kept, and a drain said that
    /// it was in use.
    #[test]
    fn what_came_with_an_answer_that_is_not_kept_is_given_back() {
        let inodes = inodes();
        let asked = inodes.ask();
        let own = inodes.change(&[DIR], &[]);
        own.not_kept(DIR, update(7));
        assert_eq!(held(&inodes), Some((update(7), false)), "nothing is known under it");
        drop(own.done(&[]));
        assert!(!inodes.learn(&asked, DIR, update(9), told(9, 1)), "from before the change");
        assert_eq!(held(&inodes), Some((update(9), false)));
        let (one, other) = (inodes.change(&[DIR], &[]), inodes.change(&[DIR], &[]));
        drop(one.done(&[]));
        assert!(!inodes.learn(&other.done(&[]), DIR, update(10), told(10, 1)), "one passed the other");
        let (given_up, _, _) = inodes.give_up(DIR).expect("something is held");
        assert_eq!(given_up, update(10));
        inodes.has_left(DIR);
        assert!(held(&inodes).is_none(), "nothing is left");
    }

    /// A client held bits that the MDT had called back: nobody would have called them back once more.
    #[test]
    fn what_was_called_back_before_its_answer_came_is_not_held() {
        let inodes = inodes();
        let asked = inodes.ask();
        drop(inodes.change(&[DIR], &[]).done(&[]));
        inodes.bury(&mut inodes.part(DIR), DIR, LOCK_UPDATE, 7);
        let both = |number| Granted { bits: LOCK_UPDATE | LOCK_PERM, number };
        assert!(!inodes.learn(&asked, DIR, both(7), told(7, 1)));
        assert_eq!(held(&inodes), Some((Granted { bits: LOCK_PERM, number: 7 }, false)), "the other one is");
        assert!(!inodes.learn(&asked, DIR, both(8), told(8, 1)));
        assert_eq!(held(&inodes), Some((both(8), false)), "granted after that");
        let gone = inodes.part(DIR).change(DIR, |inode| inode.revoke(LOCK_ALL, 8));
        assert_eq!((gone, held(&inodes)), (Some(0), Some((Granted { bits: 0, number: 8 }, false))));
    }

    /// What a later answer brought for the same bits counts as kept, and an earlier number never replaces a later one.
    #[test]
    fn an_answer_that_is_kept_takes_over_what_was_not() {
        let inodes = inodes();
        let asked = inodes.ask();
        inodes.change(&[DIR], &[]).not_kept(DIR, Granted { bits: LOCK_UPDATE | LOCK_OPEN, number: 9 });
        drop(asked);
        let asked = inodes.ask();
        assert!(inodes.learn(&asked, DIR, Granted { bits: LOCK_UPDATE, number: 8 }, told(8, 1)));
        assert_eq!(held(&inodes), Some((Granted { bits: LOCK_UPDATE | LOCK_OPEN, number: 9 }, true)));
        assert_eq!(inodes.part(DIR).change(DIR, |inode| inode.revoke(LOCK_ALL, 8)), Some(0));
        assert_eq!(inodes.part(DIR).change(DIR, |inode| inode.revoke(LOCK_ALL, 9)), Some(LOCK_UPDATE));
        assert!(inodes.part(DIR).inodes.get(&DIR).is_some_and(Inode::is_bare));
    }

    #[test]
    fn files_that_come_and_go_leave_nothing() {
        let inodes = inodes();
        for number in 1..10_000 {
            let asked = inodes.ask();
            inodes.learn(&asked, DIR, update(number), told(number, 0));
            inodes.part(DIR).remove(DIR);
        }
        assert_eq!((inodes.count(), units(&inodes)), (0, 0));
        assert!(inodes.part(DIR).order.len() <= LOOKED_AT_MAX + GONE_MAX);
    }

    fn file(oid: usize) -> Fid {
        Fid { seq: 0x2_0000_0401, oid: oid as u32, ver: 0 }
    }

    /// A file and its name in the directory are learnt, and what is too much goes; gives how many at once.
    fn look_at(inodes: &Inodes, oid: usize) -> usize {
        let (fid, number) = (file(oid), oid as u64 + 2);
        let asked = inodes.ask();
        let bits = LOCK_LOOKUP | LOCK_UPDATE;
        let granted = Granted { bits, number };
        inodes.learn(&asked, fid, granted, |inode| inode.grant(granted));
        let name_file = |inode: &mut Inode| {
            inode.named = Some((DIR, name(oid)));
            inode.stamp
        };
        let stamp = inodes.part(fid).change(fid, name_file).unwrap_or_default();
        let granted = Granted { bits: 0, number: u64::MAX };
        inodes.learn(&asked, DIR, granted, |dir| dir.names.learn(name(oid), fid, stamp));
        inodes.sweep(DIR);
        let leavers = inodes.take_leavers();
        for leaver in &leavers {
            inodes.give_up(*leaver);
            inodes.has_left(*leaver);
        }
        leavers.len()
    }

    /// All names of a directory counted for the part of the table that it was in: nothing else could be kept there, and the names
    /// of what was given up stayed, and were more and more.
    #[test]
    fn what_is_too_much_goes_with_its_names_and_many_together() {
        let inodes = inodes();
        let asked = inodes.ask();
        inodes.learn(&asked, DIR, update(1), told(1, 10));
        drop(asked);
        let (mut batches, mut most) = (Vec::new(), 0);
        for oid in 0..20 * UNITS_MIN {
            let left = look_at(&inodes, oid);
            batches.extend((left > 0).then_some(left));
            most = most.max(units(&inodes));
            // What is used again and again stays.
            if let Some(first) = inodes.part(file(0)).inodes.get_mut(&file(0)) {
                first.recent = true;
            }
        }
        assert!(most <= UNITS_MIN + UNITS_MIN / 8, "{most} units where {UNITS_MIN} may be");
        assert!(inodes.count() >= UNITS_MIN / 3, "{} files", inodes.count());
        assert!(batches.iter().all(|left| *left == LEAVING_MAX), "{batches:?}");
        assert!(
            inodes.part(file(0)).inodes.contains_key(&file(0)) && inodes.part(DIR).inodes.contains_key(&DIR)
        );
        let known = |n: usize| inodes.part(DIR).inodes.get(&DIR).and_then(|dir| dir.names.get(&name(n)));
        let (first, last) = (known(0), known(20 * UNITS_MIN - 1));
        assert!(first.is_some() && last.is_some(), "{first:?} {last:?}");
        assert_eq!(inodes.leaving.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_the_mdt_does_not_permit_makes_room() {
        let inodes = inodes();
        for oid in 0..4 * LEAVING_MAX {
            look_at(&inodes, oid);
        }
        let refused = |count: usize| (0..count).for_each(|_| inodes.note_permission(false));
        refused(REFUSED_MAX / REFUSED_WEIGHT);
        assert_eq!(inodes.take_leavers(), [], "somebody may be changing them");
        inodes.note_permission(true);
        refused(1);
        assert_eq!(inodes.take_leavers().len(), 2 * LEAVING_MAX);
        assert_eq!(inodes.take_leavers(), [], "it begins anew");
    }

    #[test]
    fn attributes_of_a_directory_outlive_single_changes_only() {
        let inodes = inodes();
        let learn = || {
            let asked = inodes.ask();
            inodes.learn(&asked, DIR, Granted { bits: LOCK_ALL, number: 1 }, |inode| {
                inode.learn(&directory(DIR, 1));
            });
        };
        let known =
            || inodes.part(DIR).inodes.get(&DIR).and_then(|dir| dir.entry.clone()).map(|e| e.attr.version);
        let touch =
            |transno| Touch { dir: DIR, transno: Transno(transno), time: Timestamp::default(), links: 0 };
        learn();
        for transno in 2..4 {
            drop(inodes.change(&[DIR], &[]).done_in(touch(transno), &[]));
            assert_eq!(known(), Some(transno));
        }
        let (one, two) = (inodes.change(&[DIR], &[]), inodes.change(&[DIR], &[]));
        drop(one.done_in(touch(4), &[]));
        assert_eq!(known(), None, "the other one may have been carried out before");
        learn();
        drop(two.done_in(touch(5), &[]));
        assert_eq!(known(), None);
        learn();
        drop(inodes.change(&[DIR], &[]));
        assert_eq!(known(), None, "nobody knows what became of it");
        learn();
        drop(inodes.change(&[DIR], &[]).done_in(touch(6), &[]));
        assert_eq!(known(), Some(6));
    }
}
