//! Asks OSTs for ranges, pins them for operations, and gives them back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::layout::Place;
use proto::wire::messages::{CancelRanges, Enqueue, ObjectRange, RangeRevoked, RevokeRange, Token};
use proto::{Code, DataTarget, Fid, Layout, ObjectId};
use rt::sync::Notify;

use super::held::{Held, Leaving, Pages, Progress, Want};
use super::needs::Need;
use super::spaces::Spaces;
use crate::file::Grants;
use crate::util::join_all;
use crate::{Error, HeldRange, Result, Shared};

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;
/// Objects of which ranges are kept; beyond it those go that were not used lately.
const OBJECTS_MAX: usize = 1 << 16;
/// The same, however little memory there is.
const OBJECTS_MIN: usize = 1 << 10;
/// Memory that what is held of an object takes, about, in bytes.
const OBJECT_BYTES: u64 = 2048;
/// The part of the process's memory that is for it.
const MEMORY_PART: u64 = 16;
/// Entries of a shard's order, beyond twice its objects, from which on those that are there for nothing are taken out.
const ORDER_SPARE: usize = 64;
/// Separate ranges of one object; beyond it all of them go as soon as nobody uses them.
const RANGES_MAX: usize = 1024;
/// How long a callback waits for a grant that it overtook, so that it is used before it is given back.
const GRANT_WAIT: Duration = Duration::from_millis(200);
/// Objects that are looked at to find one that can go.
const LOOKED_AT_MAX: usize = 8;
/// Most that go for one that comes.
const LEAVING_MAX: usize = 2;

/// What this client holds of one object.
pub(crate) struct ObjectLocks {
    pub(super) id: ObjectId,
    /// The target that has it.
    pub(super) target: DataTarget,
    pub(super) fid: Fid,
    pub(super) layout: Arc<Layout>,
    pub(super) held: Mutex<Held>,
    pub(super) changed: Notify,
    /// Used since somebody last looked for one that can go.
    recent: AtomicBool,
    /// End of what the kernel's page cache may have, as an offset in the object.
    kernel_end: AtomicU64,
    /// How often the OST has forgotten it, and the kernel has not dropped its pages yet.
    lost: AtomicU32,
}

#[derive(Default)]
struct Shard {
    objects: BTreeMap<ObjectId, Arc<ObjectLocks>>,
    order: VecDeque<ObjectId>,
}

/// Everything that this client holds of objects.
pub(crate) struct Locks {
    shards: [Mutex<Shard>; SHARDS],
    /// The same, counted. Locked while a shard is, never the other way round.
    pub(crate) spaces: Spaces,
    /// Grows when an OST has forgotten what it granted: a grant of before counts no more.
    generation: AtomicU64,
    /// Objects of which something is kept, at most.
    objects_max: usize,
    counters: Counters,
}

/// How often what happened, for statistics.
#[derive(Default)]
struct Counters {
    asked: AtomicU64,
    called_back: AtomicU64,
    cancelled: AtomicU64,
}

/// What one operation holds; given back when dropped.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Vec<Pin>,
    /// Objects that are to be read and written under a lock of the OST.
    contended: Vec<ObjectId>,
    /// A page that the kernel writes back is not held any more.
    pub(crate) unlocked: bool,
    /// [`Locks::generation`] when the operation began.
    generation: u64,
}

pub(super) struct Pin {
    object: Arc<ObjectLocks>,
    user: u64,
}

impl Pin {
    /// How far the operation is.
    pub(super) fn look(&self) -> Progress {
        self.object.held.lock().look(self.user)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.object.held.lock().done(self.user);
        self.object.changed.notify_waiters();
    }
}

impl Pins {
    /// Whether the OST has to lock what is done to this object.
    pub(crate) fn is_contended(&self, object: ObjectId) -> bool {
        self.contended.contains(&object)
    }

    pub(super) fn add(&mut self, pin: Pin) {
        self.pins.push(pin);
    }

    /// What all objects of a file are held with, if these are pins of all of them from their beginning to their end.
    pub(crate) fn grants(&self, layout: &Layout) -> Option<Grants> {
        if !self.is_complete() || self.pins.len() != layout.object_count() {
            return None;
        }
        let number = |pin: &Pin| pin.object.held.lock().whole_number(pin.user);
        let numbers = self.pins.iter().map(number).collect::<Option<_>>()?;
        Some(Grants::new(layout, numbers))
    }

    /// Whether everything is held.
    pub(crate) fn is_complete(&self) -> bool {
        self.contended.is_empty() && !self.unlocked
    }
}

impl Locks {
    /// Of a process that may use `memory` bytes.
    pub(crate) fn new(memory: u64) -> Locks {
        let fits = usize::try_from(memory / MEMORY_PART / OBJECT_BYTES).unwrap_or(OBJECTS_MAX);
        Locks {
            objects_max: fits.clamp(OBJECTS_MIN, OBJECTS_MAX),
            shards: std::array::from_fn(|_| Mutex::default()),
            spaces: Spaces::default(),
            generation: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    fn shard(&self, id: ObjectId) -> &Mutex<Shard> {
        let mixed = (id.layout.seq ^ u64::from(id.layout.oid) << 3 ^ u64::from(id.stripe))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    pub(crate) fn find(&self, id: ObjectId) -> Option<Arc<ObjectLocks>> {
        self.shard(id).lock().objects.get(&id).cloned()
    }

    /// The object's state, made if there is none; and those that should go to make room.
    fn get(&self, place: Place, fid: Fid, layout: &Arc<Layout>) -> (Arc<ObjectLocks>, Vec<Arc<ObjectLocks>>) {
        let Place { object: id, target } = place;
        let mut shard = self.shard(id).lock();
        if let Some(found) = shard.objects.get(&id) {
            found.recent.store(true, Ordering::Relaxed);
            return (found.clone(), Vec::new());
        }
        let object = Arc::new(ObjectLocks {
            id,
            target,
            fid,
            layout: layout.clone(),
            held: Mutex::default(),
            changed: Notify::new(),
            recent: AtomicBool::new(false),
            kernel_end: AtomicU64::new(0),
            lost: AtomicU32::new(0),
        });
        shard.objects.insert(id, object.clone());
        shard.tidy_order();
        shard.order.push_back(id);
        let mut leavers = Vec::new();
        if shard.objects.len() > self.objects_max / SHARDS {
            leavers.extend(shard.oldest());
        }
        let too_many = self.spaces.add(target, id);
        drop(shard);
        if too_many > 0 {
            leavers.extend(self.unused(target, too_many.min(LEAVING_MAX), LOOKED_AT_MAX));
        }
        (object, leavers)
    }

    /// Up to `count` objects of an OST that nobody uses, and that were not used lately if there are such among the next
    /// `looks`.
    fn unused(&self, target: DataTarget, count: usize, looks: usize) -> Vec<Arc<ObjectLocks>> {
        let mut unused: Vec<Arc<ObjectLocks>> = Vec::new();
        for _ in 0..looks {
            if unused.len() == count {
                break;
            }
            let Some(object) = self.spaces.next(target).and_then(|id| self.find(id)) else { break };
            let is_idle = {
                let held = object.held.lock();
                held.is_idle() && !held.is_empty()
            };
            if !object.recent.swap(false, Ordering::Relaxed)
                && is_idle
                && !unused.iter().any(|other| other.id == object.id)
            {
                unused.push(object);
            }
        }
        unused
    }

    /// Objects of an OST that are too many, and that nobody uses.
    pub(crate) fn excess(&self, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        let too_many = self.spaces.too_many(target);
        self.unused(target, too_many, 2 * self.spaces.count(target))
    }

    /// Every object of an OST with its state.
    pub(crate) fn of(&self, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        self.spaces.objects(target).into_iter().filter_map(|id| self.find(id)).collect()
    }

    /// How many of them nobody uses now.
    pub(crate) fn unused_count(&self, target: DataTarget) -> usize {
        self.of(target).iter().filter(|object| object.held.lock().is_idle()).count()
    }

    /// Whether this client holds everything of an object from `start` on: nobody else can change how long it is.
    pub(crate) fn has_rest(&self, id: ObjectId, start: u64) -> bool {
        self.find(id).is_some_and(|object| object.held.lock().covers(start, u64::MAX))
    }

    /// Every object with its state.
    pub(crate) fn all(&self) -> Vec<Arc<ObjectLocks>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().objects.values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Whether any range is held or asked for.
    pub(crate) fn holds_any(&self) -> bool {
        let holds = |object: &Arc<ObjectLocks>| {
            let held = object.held.lock();
            !held.is_empty() || !held.is_idle()
        };
        self.shards.iter().any(|shard| shard.lock().objects.values().any(holds))
    }

    /// Every range that is held.
    pub(crate) fn held(&self) -> Vec<HeldRange> {
        let mut held = Vec::new();
        for object in self.all() {
            let (id, target, ranges) = (object.id, object.target, object.held.lock().all());
            let of = |(start, end, write)| HeldRange { target, object: id, start, end, write };
            held.extend(ranges.into_iter().map(of));
        }
        held
    }

    /// The state of each object that somebody uses, asks for or gives back: a line for each.
    pub(crate) fn waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for object in self.all() {
            let held = object.held.lock();
            if !held.is_idle() {
                lines.push(format!("{:?} of {}: {held:?}", object.id, object.fid));
            }
        }
        lines
    }

    /// Forgets the object if nothing of it is held.
    pub(super) fn forget_if_empty(&self, object: &Arc<ObjectLocks>) {
        let mut shard = self.shard(object.id).lock();
        let empty = {
            let held = object.held.lock();
            held.is_idle() && held.is_empty()
        };
        // The table and the caller: nobody else is about to use it, for that takes the shard's lock.
        if empty && Arc::strong_count(object) <= 2 {
            shard.objects.remove(&object.id);
            self.spaces.remove(object.target, object.id);
        }
    }

    /// Number of objects of which anything is held, ranges asked for, callbacks, and ranges given up unasked.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let objects: usize = self.shards.iter().map(|shard| shard.lock().objects.len()).sum();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { asked, called_back, cancelled } = &self.counters;
        [objects as u64, count(asked), count(called_back), count(cancelled)]
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Of an operation that begins.
    pub(super) fn no_pins(&self) -> Pins {
        Pins { generation: self.generation(), ..Pins::default() }
    }

    /// Whether no OST has forgotten anything since `pins` were taken.
    pub(crate) fn still_counts(&self, pins: &Pins) -> bool {
        self.generation() == pins.generation
    }

    /// An OST has forgotten what it granted.
    pub(super) fn forgotten(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Shard {
    /// Takes out of the order what was forgotten meanwhile, when that is much.
    fn tidy_order(&mut self) {
        if self.order.len() <= 2 * self.objects.len() + ORDER_SPARE {
            return;
        }
        let mut seen = BTreeSet::new();
        let objects = &self.objects;
        self.order.retain(|id| objects.contains_key(id) && seen.insert(*id));
    }

    fn oldest(&mut self) -> Option<Arc<ObjectLocks>> {
        for _ in 0..LOOKED_AT_MAX.min(self.order.len()) {
            let id = self.order.pop_front()?;
            let Some(object) = self.objects.get(&id) else { continue };
            self.order.push_back(id);
            if !object.recent.swap(false, Ordering::Relaxed) {
                return Some(object.clone());
            }
        }
        None
    }
}

impl Shared {
    /// Pins `needs` of a file, which are in the order of their stripes: everybody takes them in one order, so that
    /// nobody waits in a circle.
    pub(crate) async fn pin(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        needs: &[Need],
        write: bool,
        pages: Pages,
    ) -> Result<Pins> {
        loop {
            // What the kernel writes back waits for nobody.
            if pages != Pages::WriteBack {
                self.until_may_use().await;
            }
            let pins = self.pin_needs(fid, layout, needs, write, pages).await?;
            if pages == Pages::WriteBack || self.may_use() || self.is_closed() {
                return Ok(pins);
            }
        }
    }

    async fn pin_needs(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        needs: &[Need],
        write: bool,
        pages: Pages,
    ) -> Result<Pins> {
        let mut pins = self.locks.no_pins();
        for need in needs {
            let (pin, want) = self.register(fid, layout, need, write, pages);
            match self.pinned(&pin, want).await {
                Progress::Pinned => pins.pins.push(pin),
                Progress::Contended => pins.contended.push(need.place.object),
                Progress::Unlocked => pins.unlocked = true,
                Progress::Failed(error) => return Err(error),
                Progress::Ask | Progress::Wait => return Err(Error::Closed),
            }
        }
        if !pins.contended.is_empty() {
            // Whoever holds one range and waits for the OST to lock another one could wait in a circle.
            pins.pins.clear();
            pins.contended = needs.iter().map(|need| need.place.object).collect();
        }
        Ok(pins)
    }

    /// The same, if everything is held.
    pub(crate) fn pin_at_once(&self, fid: Fid, needs: &[Need], write: bool) -> Option<Pins> {
        if !self.may_use() {
            return None;
        }
        let mut pins = self.locks.no_pins();
        for need in needs {
            let object = self.locks.find(need.place.object).filter(|object| object.fid == fid)?;
            object.recent.store(true, Ordering::Relaxed);
            let want = Want { start: need.start, end: need.end, write, pages: Pages::No };
            let user = object.held.lock().want_at_once(want)?;
            pins.pins.push(Pin { object, user });
        }
        Some(pins)
    }

    /// Makes an operation known that needs a range.
    pub(super) fn register(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        need: &Need,
        write: bool,
        pages: Pages,
    ) -> (Pin, Want) {
        let want = Want { start: need.start, end: need.end, write, pages };
        let (object, leavers) = self.locks.get(need.place, fid, layout);
        leavers.into_iter().for_each(|leaver| self.leave(leaver));
        let user = object.held.lock().want(want);
        (Pin { object, user }, want)
    }

    /// Waits until the operation may go on, one way or the other.
    pub(super) async fn pinned(self: &Arc<Self>, pin: &Pin, want: Want) -> Progress {
        let object = &pin.object;
        loop {
            let changed = object.changed.notified();
            let ask = {
                let mut held = object.held.lock();
                match held.look(pin.user) {
                    Progress::Ask => Some(held.ask(want)),
                    Progress::Wait => None,
                    over => return over,
                }
            };
            match ask {
                Some(ask) => {
                    let (shared, object) = (self.clone(), object.clone());
                    self.rt.run_in_place(async move { shared.enqueue(&object, ask, want).await });
                }
                None => changed.await,
            }
        }
    }

    /// Asks for a range. It goes on even if nobody waits for it any more: what is granted has to be known.
    async fn enqueue(self: &Arc<Self>, object: &Arc<ObjectLocks>, ask: u64, want: Want) {
        let Want { start, end, write, .. } = want;
        let generation = self.locks.generation();
        self.locks.counters.asked.fetch_add(1, Ordering::Relaxed);
        let asked = async {
            let target = self.targets.data(object.target).await?;
            target.call(Enqueue { object: object.id, write, start, end, restate: false }).await
        };
        let answered = asked.await.map(|answered| answered.reply);
        tracing::trace!(object = ?object.id, ?want, ?answered, "asked for a range");
        let full = {
            let mut held = object.held.lock();
            match answered {
                _ if generation != self.locks.generation() => held.refused(ask, None),
                Ok(token) if token.contended => held.contended(ask),
                Ok(Token { start: from, end: until, write: writes, number, .. })
                    if from <= start && until >= end && (writes || !write) =>
                {
                    held.granted(ask, (from, until), writes, number);
                }
                Ok(_) => held.refused(ask, Some(Error::Refused(Code::Malformed))),
                Err(Error::Refused(Code::Gone)) => held.refused(ask, Some(Error::Refused(Code::Stale))),
                Err(error) => held.refused(ask, Some(error)),
            }
            held.range_count() > RANGES_MAX
        };
        object.changed.notify_waiters();
        if full {
            self.leave(object.clone());
        }
    }

    /// Gives everything of an object up that nobody uses.
    pub(crate) fn leave(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let Some(leaving) = object.held.lock().leave_all() else { return };
        let shared = self.clone();
        self.rt.spawn(async move { shared.leave_object(&object, leaving).await });
    }

    /// The same, and waits until the OST has been told.
    pub(crate) async fn leave_now(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let leaving = object.held.lock().leave_all();
        if let Some(leaving) = leaving {
            self.leave_object(&object, leaving).await;
        }
    }

    async fn leave_object(self: &Arc<Self>, object: &Arc<ObjectLocks>, (leaving, number): (Leaving, u64)) {
        self.give_back(object, &leaving).await;
        let (start, end) = (leaving.start, leaving.end);
        self.cancel_ranges(object, vec![ObjectRange { object: object.id, start, end, number }]).await;
        self.locks.forget_if_empty(object);
    }

    /// Gives everything of every object up that nobody uses.
    pub(crate) fn leave_all(self: &Arc<Self>) {
        self.locks.all().into_iter().for_each(|object| self.leave(object));
    }

    /// Gives up what was never used of an object that others use too.
    fn leave_unused(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        let (unused, number) = object.held.lock().give_up_unused();
        if unused.is_empty() {
            return;
        }
        tracing::trace!(object = ?object.id, ?unused, number, "what is not used is given up");
        let ranges =
            unused.into_iter().map(|(start, end)| ObjectRange { object: object.id, start, end, number });
        let (shared, object, ranges) = (self.clone(), object.clone(), ranges.collect());
        self.rt.spawn(async move { shared.cancel_ranges(&object, ranges).await });
    }

    async fn cancel_ranges(&self, object: &ObjectLocks, ranges: Vec<ObjectRange>) {
        self.locks.counters.cancelled.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        let Ok(target) = self.targets.data(object.target).await else { return };
        if let Err(error) = target.call(CancelRanges { ranges }).await {
            tracing::debug!(%error, "an OST did not take a range back");
        }
    }

    /// An OST wants a range back.
    pub(super) async fn revoke_range(self: &Arc<Self>, asked: RevokeRange) -> RangeRevoked {
        self.locks.counters.called_back.fetch_add(1, Ordering::Relaxed);
        let RevokeRange { object, start, end, number, keep_read, trim } = asked;
        let nothing = RangeRevoked { start, end, kept_read: false };
        let Some(object) = self.locks.find(object) else { return nothing };
        let asked = Leaving { start, end, keep_read };
        let until = self.rt.now() + GRANT_WAIT;
        let leaving = loop {
            let changed = object.changed.notified();
            let may_wait = self.rt.now() < until;
            let found = object.held.lock().call_back(asked, number, trim, may_wait);
            match found {
                None => return nothing,
                Some(Some(leaving)) => break leaving,
                Some(None) => {
                    self.rt.timeout(GRANT_WAIT, changed).await;
                }
            }
        };
        tracing::trace!(object = ?object.id, ?asked, number, ?leaving, "a range is called back");
        // The callback may have sent somebody on who waited.
        object.changed.notify_waiters();
        self.give_back(&object, &leaving).await;
        if trim {
            self.leave_unused(&object);
        }
        self.locks.forget_if_empty(&object);
        RangeRevoked { start: leaving.start, end: leaving.end, kept_read: leaving.keep_read }
    }

    /// Waits until nobody uses the range, writes what was changed in it, has the kernel forget it, and lets it go.
    async fn give_back(self: &Arc<Self>, object: &Arc<ObjectLocks>, leaving: &Leaving) {
        loop {
            self.until_unused(object, leaving, false).await;
            let (by_kernel, dirty) = {
                let held = object.held.lock();
                (held.by_kernel(), held.may_be_dirty(leaving))
            };
            if dirty {
                self.flush_range(object.fid, object.id, leaving.start, leaving.end).await;
            }
            if dirty || !leaving.keep_read {
                self.forget_pages(object, leaving).await;
            }
            if dirty {
                self.flush_range(object.fid, object.id, leaving.start, leaving.end).await;
            }
            if !leaving.keep_read {
                self.clean.drop_range(object.id, leaving.start, leaving.end);
            }
            {
                let mut held = object.held.lock();
                if held.by_kernel() == by_kernel && !held.is_used(leaving, true) {
                    held.gave_back(leaving);
                    if leaving.start == 0 && leaving.end == u64::MAX && !leaving.keep_read {
                        // Nothing is left in the kernel; fills that wait note their end when they go on.
                        object.kernel_end.store(0, Ordering::Relaxed);
                    }
                    break;
                }
            }
            // The kernel came in between: whatever it has now has to go too.
            self.until_unused(object, leaving, true).await;
        }
        object.changed.notify_waiters();
    }

    async fn until_unused(&self, object: &ObjectLocks, leaving: &Leaving, kernel_too: bool) {
        loop {
            let changed = object.changed.notified();
            if !object.held.lock().is_used(leaving, kernel_too) {
                return;
            }
            changed.await;
        }
    }

    /// Has the kernel forget its pages of a range of an object. Ranges of other objects of the file are left alone:
    /// their pages may be locked for a read that waits for another client.
    async fn forget_pages(self: &Arc<Self>, object: &ObjectLocks, leaving: &Leaving) {
        let end = leaving.end.min(object.kernel_end.load(Ordering::Relaxed));
        if leaving.start >= end {
            return;
        }
        let forget: Vec<_> = object.layout.file_ranges(object.id, leaving.start..end).collect();
        self.forget_data(object.fid, forget).await;
    }

    /// Has the kernel forget every page of an object.
    pub(crate) async fn forget_all_pages(self: &Arc<Self>, object: &ObjectLocks) {
        let everything = Leaving { start: 0, end: u64::MAX, keep_read: false };
        self.forget_pages(object, &everything).await;
    }

    /// What this client held of an object is lost, and no page that was filled or changed under it may be written any more
    /// ([`Shared::is_lost`]).
    pub(super) fn lose(object: &ObjectLocks) {
        object.lost.fetch_add(1, Ordering::AcqRel);
    }

    /// Has the kernel drop the pages of an object that is lost.
    pub(crate) async fn drop_lost_pages(self: &Arc<Self>, object: &ObjectLocks) {
        self.forget_all_pages(object).await;
        object.lost.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether pages of these ranges, which the kernel writes back, were changed under locks that are lost: others may have
    /// written since.
    pub(crate) fn is_lost(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.locks.find(need.place.object);
            object.is_some_and(|object| object.lost.load(Ordering::Acquire) > 0)
        })
    }

    /// Has the kernel forget every page of every object.
    pub(crate) async fn forget_pages_of_all(self: &Arc<Self>) {
        let objects = self.locks.all();
        join_all(objects.iter().map(|object| self.forget_all_pages(object))).await;
    }

    /// Whether this client holds an object from `start` to its end: nobody else has written there.
    pub(crate) fn holds_end(&self, object: ObjectId, start: u64) -> bool {
        self.may_use()
            && self.locks.find(object).is_some_and(|object| object.held.lock().holds(start, u64::MAX))
    }

    /// The kernel is about to have pages of a file. Not said before their fill goes on: who has all pages forgotten while
    /// it waits leaves them out, and would take them for forgotten.
    pub(super) fn kernel_gets(&self, needs: &[Need]) {
        for need in needs {
            if let Some(object) = self.locks.find(need.place.object) {
                object.kernel_end.fetch_max(need.end, Ordering::Relaxed);
            }
        }
    }

    /// Whether the kernel may have pages of a range of a file, which a direct write has to take from it.
    pub(crate) fn kernel_has(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.locks.find(need.place.object);
            object.is_some_and(|object| object.kernel_end.load(Ordering::Relaxed) > need.start)
        })
    }
}
