//! Asks OSTs for ranges, pins them for operations, and gives them back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::layout::Place;
use proto::wire::messages::{CancelRanges, Enqueue, ObjectRange, RangeRevoked, RevokeRange, Token};
use proto::{Code, Fid, Layout, ObjectId, TargetId, TargetKind};
use rt::wait::join_all;

use super::RangeLocks;
use super::held::{Leaving, Pages, Progress, Want};
use super::needs::Need;
use super::table::{ObjectLocks, Pin, Pins};
use crate::{Error, Result};

/// Separate ranges of one object; beyond it all of them go as soon as nobody uses them.
const RANGES_MAX: usize = 1024;
/// How long a callback waits for a grant that it overtook, so that it is used before it is given back.
const GRANT_WAIT: Duration = Duration::from_millis(200);
/// Objects whose locks are given back at the same time.
const OBJECTS_AT_ONCE: usize = 64;

/// What was so before a question ([`RangeLocks::before_head`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    generation: u64,
    writers: u64,
    /// The highest number of what was held.
    number: u64,
}

/// A write that is on its way ([`RangeLocks::writing`]).
pub(crate) struct Writing {
    object: Arc<ObjectLocks>,
    before: Before,
}

impl RangeLocks {
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
                self.until_may_use(needs).await?;
            }
            let pins = self.pin_needs(fid, layout, needs, write, pages).await?;
            if pages == Pages::WriteBack || self.may_use(needs) || self.lease.is_closed() {
                return Ok(pins);
            }
        }
    }

    /// Whether what is held of all these objects may be used.
    pub(super) fn may_use(&self, needs: &[Need]) -> bool {
        self.lease.lasts() && needs.iter().all(|need| self.lease.may_use(need.place.target))
    }

    /// Waits until it may be, in vain if one of the targets is not to be asked: the lease waits for what it knows nothing of, and an
    /// operator who has nobody ask a target that is gone does it for the sake of those who wait.
    pub(super) async fn until_may_use(&self, needs: &[Need]) -> Result<()> {
        self.lease.until_lasts().await;
        for need in needs {
            let target = need.place.target;
            if self.lease.lasts() && !self.lease.may_use(target) {
                self.targets.data(target).await?.reached().await?;
                self.lease.until_may_use(target).await;
            }
        }
        Ok(())
    }

    async fn pin_needs(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        needs: &[Need],
        write: bool,
        pages: Pages,
    ) -> Result<Pins> {
        let mut pins = self.table.no_pins();
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
        if !self.may_use(needs) {
            return None;
        }
        let mut pins = self.table.no_pins();
        for need in needs {
            let object = self.table.find(need.place.object).filter(|object| object.fid == fid)?;
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
        let (object, leavers) = self.table.get(need.place, fid, layout);
        leavers.into_iter().for_each(|leaver| self.leave(leaver));
        let user = object.held.lock().want(want);
        (Pin { object, user }, want)
    }

    /// Waits until the operation may go on, one way or the other.
    pub(super) async fn pinned(self: &Arc<Self>, pin: &Pin, want: Want) -> Progress {
        let object = &pin.object;
        loop {
            let changed = object.changed.notified();
            if object.held.lock().look(pin.user) == Progress::Ask && self.hold_unknown(object) {
                continue;
            }
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
                    let (locks, object) = (self.clone(), object.clone());
                    self.rt.run_in_place(async move { locks.enqueue(&object, ask, want).await });
                }
                None => changed.await,
            }
        }
    }

    /// Asks for a range. It goes on even if nobody waits for it any more: what is granted has to be known.
    async fn enqueue(self: &Arc<Self>, object: &Arc<ObjectLocks>, ask: u64, want: Want) {
        let Want { start, end, write, .. } = want;
        let generation = self.table.generation();
        self.table.counters.asked.fetch_add(1, Ordering::Relaxed);
        let asked = async {
            let target = self.targets.data(object.target).await?;
            target.call(Enqueue { object: object.id, write, start, end, restate: false }).await
        };
        let answered = asked.await.map(|answered| answered.reply);
        tracing::trace!(object = ?object.id, ?want, ?answered, "asked for a range");
        let full = {
            let mut held = object.held.lock();
            match answered {
                _ if generation != self.table.generation() => held.refused(ask, None),
                Ok(token) if token.contended => held.contended(ask),
                Ok(Token { start: from, end: until, write: writes, number, .. })
                    if from <= start && until >= end && (writes || !write) =>
                {
                    held.granted(ask, (from, until), writes, number);
                    object.knowledge.was_asked();
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

    /// Before a question whose answer may grant all of an object that does not exist yet.
    pub(crate) fn before_new(&self) -> Before {
        Before { generation: self.table.generation(), writers: 0, number: 0 }
    }

    /// Before a question whose answer may grant all of an object.
    pub(crate) fn before_head(&self, object: ObjectId) -> Before {
        let generation = self.table.generation();
        let known = self.table.find(object);
        Before { generation, writers: known.map_or(0, |object| object.held.lock().writers()), number: 0 }
    }

    /// An answer granted all of an object that nobody had asked for; `end`: where the object ends. It counts for nothing if a callback
    /// may have taken it away before it came, or if the target has forgotten it. Says whether
    /// what the answer has of the object is as it is now.
    pub(crate) fn granted_head(
        self: &Arc<Self>,
        (fid, place): (Fid, Place),
        layout: &Arc<Layout>,
        (token, end): (&Token, Option<u64>),
        before: Before,
    ) -> bool {
        let Token { start, end: until, write, number, contended } = *token;
        if contended || start >= until {
            return false;
        }
        let (object, leavers) = self.table.get(place, fid, layout);
        leavers.into_iter().for_each(|leaver| self.leave(leaver));
        let is_current = {
            let mut held = object.held.lock();
            let counts = before.generation == self.table.generation() && number > self.table.called();
            counts && held.brought((start, until), (write, number), end, before.writers)
        };
        let counters = &self.table.counters;
        let counter = if is_current { &counters.brought } else { &counters.brought_late };
        counter.fetch_add(1, Ordering::Relaxed);
        object.changed.notify_waiters();
        self.table.forget_if_empty(&object);
        is_current
    }

    /// Before what was written to an object is sent; `None` if somebody here is about to write more.
    pub(crate) fn writing(&self, object: ObjectId) -> Option<Writing> {
        let generation = self.table.generation();
        let object = self.table.find(object)?;
        let (writers, number) = object.held.lock().writers_so_far()?;
        Some(Writing { object, before: Before { generation, writers, number } })
    }

    /// An OST has answered a write. Whether the range was held all the time since; the object ends at `end` if that is told, and nobody
    /// here has written to it in between.
    pub(crate) fn has_held(&self, writing: &Writing, range: Range<u64>, end: Option<u64>) -> bool {
        let Writing { object, before } = writing;
        let mut held = object.held.lock();
        if !held.covers(range.start, range.end) || before.generation != self.table.generation() {
            return false;
        }
        if let Some(end) = end {
            held.ends(end, (before.writers, before.number));
        }
        true
    }

    /// Where an object ends, if an answer told it and it cannot have changed since.
    pub(crate) fn known_end(&self, object: ObjectId) -> Option<u64> {
        let object = self.table.find(object)?;
        let end = object.held.lock().end();
        end.filter(|_| self.lease.may_use(object.target))
    }

    /// Gives everything of an object up that nobody uses.
    pub(crate) fn leave(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let leaving = object.held.lock().leave_all();
        let Some(leaving) = leaving else { return self.table.forget_if_empty(&object) };
        let locks = self.clone();
        self.rt.spawn(async move { locks.leave_object(&object, leaving).await });
    }

    /// The same, and waits until the OST has been told.
    pub(crate) async fn leave_now(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let leaving = object.held.lock().leave_all();
        match leaving {
            Some(leaving) => self.leave_object(&object, leaving).await,
            None => self.table.forget_if_empty(&object),
        }
    }

    async fn leave_object(self: &Arc<Self>, object: &Arc<ObjectLocks>, (leaving, number): (Leaving, u64)) {
        self.note_given_up(object, number);
        self.give_back(object, &leaving).await;
        let (start, end) = (leaving.start, leaving.end);
        self.cancel_ranges(object, vec![ObjectRange { object: object.id, start, end, number }]).await;
        self.table.forget_if_empty(object);
    }

    /// Gives everything of every object up that nobody uses.
    pub(crate) fn leave_all(self: &Arc<Self>) {
        self.table.all().into_iter().for_each(|object| self.leave(object));
    }

    /// Gives up what was never used of an object that others use too.
    fn leave_unused(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        let (unused, number) = object.held.lock().give_up_unused();
        if unused.is_empty() {
            return;
        }
        tracing::trace!(object = ?object.id, ?unused, number, "what is not used is given up");
        // An answer may have brought its bytes without anybody having used them.
        unused.iter().for_each(|(start, end)| self.forget_read(object.id, *start..*end));
        self.note_given_up(object, number);
        let ranges =
            unused.into_iter().map(|(start, end)| ObjectRange { object: object.id, start, end, number });
        let (locks, object, ranges) = (self.clone(), object.clone(), ranges.collect());
        self.rt.spawn(async move { locks.cancel_ranges(&object, ranges).await });
    }

    /// What an MDT grants with an answer that is on its way may be gone by then.
    fn note_given_up(&self, object: &ObjectLocks, number: u64) {
        if object.target.ost().is_none() {
            self.table.note_called(number);
        }
    }

    async fn cancel_ranges(&self, object: &ObjectLocks, ranges: Vec<ObjectRange>) {
        self.table.counters.cancelled.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        let Ok(target) = self.targets.data(object.target).await else { return };
        if let Err(error) = target.call(CancelRanges { ranges }).await {
            tracing::debug!(%error, "an OST did not take a range back");
        }
    }

    /// A target wants a range back.
    pub(crate) async fn revoke_range(self: &Arc<Self>, target: TargetId, asked: RevokeRange) -> RangeRevoked {
        self.table.counters.called_back.fetch_add(1, Ordering::Relaxed);
        let RevokeRange { object, start, end, number, keep_read, trim } = asked;
        let nothing = RangeRevoked { start, end, kept_read: false, number };
        if target.kind == TargetKind::Mdt {
            self.table.note_called(number);
        }
        let Some(object) = self.table.find(object) else { return nothing };
        let asked = Leaving { start, end, keep_read };
        let until = self.rt.now() + GRANT_WAIT;
        let (leaving, up_to) = loop {
            let changed = object.changed.notified();
            let may_wait = self.rt.now() < until;
            let (found, up_to) = {
                let mut held = object.held.lock();
                let found = held.call_back(asked, number, trim, may_wait);
                (found, found.flatten().map_or(number, |leaving| held.number_of(&leaving, number)))
            };
            match found {
                None => return nothing,
                Some(Some(leaving)) => break (leaving, up_to),
                Some(None) => {
                    self.rt.timeout(GRANT_WAIT, changed).await;
                }
            }
        };
        tracing::trace!(object = ?object.id, ?asked, number, ?leaving, "a range is called back");
        self.note_given_up(&object, up_to);
        // The callback may have sent somebody on who waited.
        object.changed.notify_waiters();
        self.give_back(&object, &leaving).await;
        if trim {
            self.leave_unused(&object);
        }
        self.table.forget_if_empty(&object);
        RangeRevoked { start: leaving.start, end: leaving.end, kept_read: leaving.keep_read, number: up_to }
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
                self.flush(object, leaving).await;
            }
            if dirty || !leaving.keep_read {
                self.forget_pages(object, leaving).await;
            }
            if dirty {
                self.flush(object, leaving).await;
            }
            if !leaving.keep_read {
                self.forget_read(object.id, leaving.start..leaving.end);
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

    /// Has the user of the locks send what it has written to a range.
    async fn flush(&self, object: &ObjectLocks, leaving: &Leaving) {
        if let Some(user) = self.user() {
            user.flush(object.fid, object.id, leaving.start..leaving.end).await;
        }
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
        self.filling.forget_data(object.fid, forget).await;
    }

    /// Has the kernel forget every page of an object.
    pub(crate) async fn forget_all_pages(self: &Arc<Self>, object: &ObjectLocks) {
        let everything = Leaving { start: 0, end: u64::MAX, keep_read: false };
        self.forget_pages(object, &everything).await;
    }

    /// What this client held of an object is lost, and no page that was filled or changed under it may be written any more
    /// ([`RangeLocks::is_lost`]).
    pub(super) fn lose(object: &ObjectLocks) {
        object.lost.fetch_add(1, Ordering::AcqRel);
    }

    /// Has the kernel drop the pages of an object that is lost.
    pub(crate) async fn drop_lost_pages(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        self.forget_all_pages(object).await;
        object.lost.fetch_sub(1, Ordering::AcqRel);
        object.changed.notify_waiters();
        self.table.forget_if_empty(object);
    }

    /// Waits until the kernel has dropped the pages of lost objects.
    pub(super) async fn until_dropped(&self, needs: &[Need]) {
        for need in needs {
            let Some(object) = self.table.find(need.place.object) else { continue };
            loop {
                let changed = object.changed.notified();
                if object.lost.load(Ordering::Acquire) == 0 {
                    break;
                }
                changed.await;
            }
        }
    }

    /// Whether pages of these ranges, which the kernel writes back, were changed under locks that are lost: others may have
    /// written since.
    pub(crate) fn is_lost(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.table.find(need.place.object);
            object.is_some_and(|object| object.lost.load(Ordering::Acquire) > 0)
        })
    }

    /// Has the kernel forget every page of every object.
    pub(crate) async fn forget_pages_of_all(self: &Arc<Self>) {
        let objects = self.table.all();
        join_all(objects.iter().map(|object| self.forget_all_pages(object))).await;
    }

    /// Whether this client holds an object from `start` to its end: nobody else has written there.
    pub(crate) fn holds_end(&self, object: ObjectId, start: u64) -> bool {
        self.table.find(object).is_some_and(|object| {
            self.lease.may_use(object.target) && object.held.lock().holds(start, u64::MAX)
        })
    }

    /// The kernel is about to have pages of a file. Not said before their fill goes on: who has all pages forgotten while
    /// it waits leaves them out, and would take them for forgotten.
    pub(super) fn kernel_gets(&self, needs: &[Need]) {
        for need in needs {
            if let Some(object) = self.table.find(need.place.object) {
                object.kernel_end.fetch_max(need.end, Ordering::Relaxed);
            }
        }
    }

    /// Whether the kernel may have pages of a range of a file, which a direct write has to take from it.
    pub(crate) fn kernel_has(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.table.find(need.place.object);
            object.is_some_and(|object| object.kernel_end.load(Ordering::Relaxed) > need.start)
        })
    }

    /// Gives back what is held of objects that nobody uses; done when the OSTs know it.
    pub(crate) async fn leave_these(self: &Arc<Self>, objects: Vec<Arc<ObjectLocks>>) {
        let mut objects = objects.into_iter();
        loop {
            // Handed over: what is empty is forgotten if nobody else has it.
            let some: Vec<_> = objects.by_ref().take(OBJECTS_AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            join_all(some.into_iter().map(|object| self.leave_now(object))).await;
        }
    }
}
