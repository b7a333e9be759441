//! Gives ranges back: what is called back, and what nobody uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::wire::messages::{CancelRanges, ObjectRange, RangeRevoked, RevokeRange};
use proto::{TargetId, TargetKind};
use rt::Rt;
use rt::wait::join_all;

use super::Users;
use super::held::Leaving;
use super::pages::KernelPages;
use super::table::{ObjectLocks, Table};
use crate::targets::Targets;

/// How long a callback waits for a grant that it overtook, so that it is used before it is given back.
const GRANT_WAIT: Duration = Duration::from_millis(200);
/// Objects whose locks are given back at the same time.
const OBJECTS_AT_ONCE: usize = 64;

/// Gives back what is held.
pub(crate) struct Leaver {
    rt: Rt,
    targets: Arc<Targets>,
    users: Arc<Users>,
    table: Arc<Table>,
    pages: Arc<KernelPages>,
}

impl Leaver {
    /// Nothing is given back yet.
    pub(super) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        users: Arc<Users>,
        table: Arc<Table>,
        pages: Arc<KernelPages>,
    ) -> Leaver {
        Leaver { rt, targets, users, table, pages }
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

    /// Gives everything of an object up that nobody uses.
    pub(crate) fn leave(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let leaving = object.held.lock().leave_all();
        let Some(leaving) = leaving else { return self.table.forget_if_empty(&object) };
        let leaver = self.clone();
        self.rt.spawn(async move { leaver.leave_object(&object, leaving).await });
    }

    /// The same, and waits until the OST has been told.
    pub(crate) async fn leave_now(self: &Arc<Self>, object: Arc<ObjectLocks>) {
        let leaving = object.held.lock().leave_all();
        match leaving {
            Some(leaving) => self.leave_object(&object, leaving).await,
            None => self.table.forget_if_empty(&object),
        }
    }

    /// Gives everything of every object up that nobody uses.
    pub(crate) fn leave_all(self: &Arc<Self>) {
        self.table.all().into_iter().for_each(|object| self.leave(object));
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

    async fn leave_object(self: &Arc<Self>, object: &Arc<ObjectLocks>, (leaving, number): (Leaving, u64)) {
        self.note_given_up(object, number);
        self.give_back(object, &leaving).await;
        let (start, end) = (leaving.start, leaving.end);
        self.cancel_ranges(object, vec![ObjectRange { object: object.id, start, end, number }]).await;
        self.table.forget_if_empty(object);
    }

    /// Gives up what was never used of an object that others use too.
    fn leave_unused(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        let (unused, number) = object.held.lock().give_up_unused();
        if unused.is_empty() {
            return;
        }
        tracing::trace!(object = ?object.id, ?unused, number, "what is not used is given up");
        // An answer may have brought its bytes without anybody having used them.
        unused.iter().for_each(|(start, end)| self.users.forget_read(object.id, *start..*end));
        self.note_given_up(object, number);
        let ranges =
            unused.into_iter().map(|(start, end)| ObjectRange { object: object.id, start, end, number });
        let (leaver, object, ranges) = (self.clone(), object.clone(), ranges.collect());
        self.rt.spawn(async move { leaver.cancel_ranges(&object, ranges).await });
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
                self.pages.forget_pages(object, leaving).await;
            }
            if dirty {
                self.flush(object, leaving).await;
            }
            if !leaving.keep_read {
                self.users.forget_read(object.id, leaving.start..leaving.end);
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
            // The kernel came in between: whatever it has now has to go too. What it wants from now on waits.
            object.held.lock().insist(leaving);
            self.until_unused(object, leaving, true).await;
        }
        object.changed.notify_waiters();
    }

    /// Has the user of the locks send what it has written to a range.
    async fn flush(&self, object: &ObjectLocks, leaving: &Leaving) {
        if let Some(user) = self.users.get() {
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
}
