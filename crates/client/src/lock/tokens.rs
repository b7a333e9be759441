//! Asks OSTs for ranges, and pins them for operations.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::layout::Place;
use proto::wire::messages::{Enqueue, Token};
use proto::{Code, Fid, Layout, ObjectId};

use super::RangeLocks;
use super::held::{Pages, Progress, Want};
use super::needs::Need;
use super::table::{ObjectLocks, Pin, Pins};
use crate::{Error, Result};

/// Separate ranges of one object; beyond it all of them go as soon as nobody uses them.
const RANGES_MAX: usize = 1024;

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
        leavers.into_iter().for_each(|leaver| self.leaver.leave(leaver));
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
            self.leaver.leave(object.clone());
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
        leavers.into_iter().for_each(|leaver| self.leaver.leave(leaver));
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

    /// Whether this client holds an object from `start` to its end: nobody else has written there.
    pub(crate) fn holds_end(&self, object: ObjectId, start: u64) -> bool {
        self.table.find(object).is_some_and(|object| {
            self.lease.may_use(object.target) && object.held.lock().holds(start, u64::MAX)
        })
    }
}
