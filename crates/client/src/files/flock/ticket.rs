//! Requests for file locks that are under way: a task for each, and whoever waits for it.

use std::sync::Arc;

use proto::Code;
use proto::lock::flock::Place;
use rt::sync::Notify;

use super::{FlockRequest, Flocks};
use crate::order::{Mutex, TICKET};
use crate::{Error, Handle, Result};

/// How far a request is; between its task and whoever waits for it.
pub(super) struct Ticket {
    stage: Mutex<TICKET, Stage>,
    changed: Notify,
}

/// Where it stands.
enum Stage {
    Running,
    Done(Outcome, Busy),
    /// Nobody waits for it any more.
    Abandoned,
    Taken,
}

/// What became of a request.
pub(super) type Outcome = Result<Set>;

/// A request that was granted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set {
    /// The number under which it may be cancelled; 0 for none.
    pub(super) number: u64,
    /// When.
    pub(super) change: u64,
    /// The session in which it was granted.
    pub(super) session: u64,
}

/// Whoever waits for a request.
pub(super) struct Waiting {
    flocks: Arc<Flocks>,
    place: Place,
    request: FlockRequest,
    ticket: Arc<Ticket>,
}

/// A request of an owner is under way.
pub(super) struct Busy {
    flocks: Arc<Flocks>,
    pub(super) place: Place,
    /// Its number in [`proto::lock::flock::Kept`].
    number: u64,
}

impl Ticket {
    /// The request has just begun.
    pub(super) fn new() -> Ticket {
        Ticket { stage: Mutex::new(Stage::Running), changed: Notify::new() }
    }

    /// The request is over; gives it back if nobody waits for it.
    pub(super) fn finish(&self, outcome: Outcome, busy: Busy) -> Option<(Outcome, Busy)> {
        {
            let mut stage = self.stage.lock();
            if matches!(*stage, Stage::Abandoned) {
                return Some((outcome, busy));
            }
            *stage = Stage::Done(outcome, busy);
        }
        self.changed.notify_waiters();
        None
    }

    fn take(&self) -> Option<(Outcome, Busy)> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Done(outcome, busy) => Some((outcome, busy)),
            before => {
                *stage = before;
                None
            }
        }
    }

    /// Waits until nobody waits for the request.
    pub(super) async fn abandoned(&self) {
        loop {
            let changed = self.changed.notified();
            if matches!(*self.stage.lock(), Stage::Abandoned) {
                return;
            }
            changed.await;
        }
    }
}

impl Waiting {
    /// Somebody waits for `request`, which has this `ticket`.
    pub(super) fn new(
        flocks: Arc<Flocks>,
        place: Place,
        request: FlockRequest,
        ticket: Arc<Ticket>,
    ) -> Waiting {
        Waiting { flocks, place, request, ticket }
    }

    /// Waits until the request is over, and keeps what was granted.
    pub(super) async fn outcome(self) -> Result<()> {
        let (outcome, busy) = loop {
            let changed = self.ticket.changed.notified();
            if let Some(done) = self.ticket.take() {
                break done;
            }
            changed.await;
        };
        let set = outcome?;
        let FlockRequest { range, mode, pid, .. } = self.request;
        let flocks = &self.flocks;
        let mdt = flocks.targets.mdt_of(self.place.fid)?;
        {
            let mut inner = flocks.inner.lock();
            // Under this lock: a session that ends later takes it away again ([`Flocks::flocks_lost`]).
            if mdt.session() != set.session && mode.is_some() {
                return Err(Error::Refused(Code::Evicted));
            }
            inner.kept.change(self.place, range, mode.map(|mode| (mode, pid)), set.change);
        }
        flocks.known(set.number);
        drop(busy);
        Ok(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let done = {
            let mut stage = self.ticket.stage.lock();
            match std::mem::replace(&mut *stage, Stage::Abandoned) {
                Stage::Taken => return,
                Stage::Done(outcome, busy) => Some((outcome, busy)),
                Stage::Running | Stage::Abandoned => None,
            }
        };
        // From here on what the owner asks for waits, before its next request can come.
        self.flocks.undoing(self.place);
        match done {
            Some((outcome, busy)) => {
                let flocks = self.flocks.clone();
                self.flocks.rt.spawn(async move { flocks.undo(outcome, busy).await });
            }
            None => self.ticket.changed.notify_waiters(),
        }
    }
}

impl Busy {
    /// A request begins, for a lock through an open file if it sets one.
    pub(super) fn new(
        flocks: &Arc<Flocks>,
        place: Place,
        request: &FlockRequest,
        through: Option<Handle>,
    ) -> Busy {
        let mut inner = flocks.inner.lock();
        let number = inner.kept.begin(place, request.range, request.mode);
        if let Some(handle) = through {
            inner.through.entry(place).or_default().insert(handle.0);
        }
        drop(inner);
        Busy { flocks: flocks.clone(), place, number }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut inner = self.flocks.inner.lock();
        inner.kept.end(self.place, self.number);
        if !inner.kept.has(self.place) {
            inner.through.remove(&self.place);
        }
    }
}
