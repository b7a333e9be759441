//! The client's lease with the MGS: its sign of life while it holds something, and its right to use what it keeps
//! (`docs/recovery.md#leases`; the state machine is [`proto::lease`]).
//!
//! As long as the lease lasts everything is as ever. When it ends (the MGS is not reached for too long, or this process was
//! stopped) the client does not know any more what others were given: nothing is answered from what it keeps, the kernel
//! forgets, and data waits for the lease; what was written and not sent stays. When the MGS answers again, it says what the
//! client has lost. If it has forgotten, each target is looked at, and what is held of it may be used when it has answered.
//! A client that holds nothing has no lease, and sends nothing.

mod keeper;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proto::TargetId;
use proto::lease::{ClientLease, Look};
use rt::sync::{Notify, Semaphore};
use rt::{BoxFuture, Rt, Time};

use crate::order::{LEAF, Mutex};
use crate::targets::SignOfLife;

pub(crate) use keeper::{Holder, LeaseKeeper};

/// Renewals without an answer.
const ATTEMPTS_MAX: usize = 4;
/// The MGS is in this process, and lives as long as the client.
const FOR_EVER: u64 = u64::MAX;

/// The lease of a client, which ends with its mount at the latest.
pub(crate) struct Lease {
    rt: Rt,
    /// Until when what is kept may be used, in nanoseconds of the clock; 0 for not at all.
    until: AtomicU64,
    /// There are targets of which nothing may be used: the machine knows which. Set before `until` is.
    has_unseen: AtomicBool,
    /// Something was asked of a target since this was last looked at.
    used: AtomicBool,
    /// There is a lease, or is to be one.
    on: AtomicBool,
    /// The MGS knows of it. Nothing is asked of a target before.
    begun: AtomicBool,
    /// The client is unmounted.
    closed: AtomicBool,
    closing: Notify,
    /// Grows with each release: late answers to renewals of before count no more.
    era: AtomicU64,
    attempts: Semaphore,
    machine: Mutex<LEAF, ClientLease>,
    /// Orders that are being carried out.
    obeying: Mutex<LEAF, BTreeSet<u64>>,
    /// It is to end as soon as nothing is held.
    ending: AtomicBool,
    /// There is something to do before its time.
    wake: Notify,
    /// What is kept may be used again; or `on` changed.
    changed: Notify,
    renewals: AtomicU64,
    lapses: AtomicU64,
}

/// What a client knows of its lease, for status displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseState {
    /// Names it at the MGS; 0 for none.
    pub number: u64,
    /// For how long what is kept may be used, if nothing is heard of the MGS; `None` for ever.
    pub left: Option<Duration>,
    /// Renewals that were answered.
    pub renewals: u64,
    /// How often it ended without the client's will.
    pub lapses: u64,
}

impl Lease {
    pub(crate) fn new(rt: Rt) -> Lease {
        Lease {
            rt,
            until: AtomicU64::new(0),
            has_unseen: AtomicBool::new(false),
            used: AtomicBool::new(false),
            on: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            era: AtomicU64::new(0),
            attempts: Semaphore::new(ATTEMPTS_MAX),
            machine: Mutex::default(),
            obeying: Mutex::default(),
            ending: AtomicBool::new(false),
            wake: Notify::new(),
            changed: Notify::new(),
            renewals: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
        }
    }

    /// Whether the lease lasts: what is kept may be used, but of targets that have to be seen before ([`Lease::may_use`]).
    #[inline]
    pub(crate) fn lasts(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == FOR_EVER || self.rt.now().0 < until
    }

    /// Whether what is kept of a target may be used now. Asked for each answer from the caches.
    #[inline]
    pub(crate) fn may_use(&self, target: impl Into<TargetId>) -> bool {
        self.lasts() && (!self.has_unseen.load(Ordering::Acquire) || self.look_due(target.into()).is_none())
    }

    /// The look that a target has to answer before it may be.
    fn look_due(&self, target: TargetId) -> Option<Look> {
        self.machine.lock().look_due(target)
    }

    /// A target has answered: what it has given up was told.
    fn seen(&self, target: TargetId, look: Look) {
        {
            let mut machine = self.machine.lock();
            machine.seen(target, look);
            self.has_unseen.store(machine.has_unseen(), Ordering::Release);
        }
        self.changed.notify_waiters();
    }

    /// All these targets are to be looked at before they are used; gives those that nobody looks at yet.
    fn look_at(&self, targets: impl IntoIterator<Item = TargetId>) -> Vec<TargetId> {
        let mut machine = self.machine.lock();
        let fresh = machine.look_at(targets);
        self.has_unseen.store(machine.has_unseen(), Ordering::Release);
        fresh
    }

    /// For how long what is kept may be used, if nothing is heard of the MGS.
    pub(crate) fn left(&self) -> Duration {
        match self.until.load(Ordering::Relaxed) {
            FOR_EVER => Duration::MAX,
            until => Duration::from_nanos(until.saturating_sub(self.rt.now().0)),
        }
    }

    /// Waits until the lease lasts.
    pub(crate) async fn until_lasts(&self) {
        self.until(|| self.lasts()).await;
    }

    /// Waits until what is kept of a target may be used.
    pub(crate) async fn until_may_use(&self, target: impl Into<TargetId>) {
        let target = target.into();
        self.until(|| self.may_use(target)).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            self.touch();
            if is_so() || self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the client has a lease, or has none.
    pub(crate) async fn until_leased(&self, wanted: bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_on() == wanted {
                return;
            }
            changed.await;
        }
    }

    /// When there is something to do about the end of the lease.
    fn end_of_use(&self) -> u64 {
        match self.until.load(Ordering::Relaxed) {
            0 => FOR_EVER,
            until => until,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The client is unmounted: nobody waits for the lease any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.changed.notify_waiters();
    }

    /// Whether the client is unmounted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until it is.
    pub(crate) async fn ended(&self) {
        let closing = self.closing.notified();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// How it is.
    pub(crate) fn state(&self) -> LeaseState {
        let until = self.until.load(Ordering::Relaxed);
        LeaseState {
            number: self.machine.lock().number(),
            left: (until != FOR_EVER).then(|| Time(until.max(self.rt.now().0)) - self.rt.now()),
            renewals: self.renewals.load(Ordering::Relaxed),
            lapses: self.lapses.load(Ordering::Relaxed),
        }
    }

    /// The order was carried out.
    fn obeyed(&self, number: u64) {
        self.machine.lock().dropped(number);
        self.obeying.lock().remove(&number);
        self.wake.notify_one();
    }
}

impl SignOfLife for Lease {
    fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::SeqCst);
            if !self.on.load(Ordering::SeqCst) {
                self.wake.notify_one();
            }
        }
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    fn until_begun(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.begun.load(Ordering::SeqCst) || self.closed.load(Ordering::SeqCst) {
                    return;
                }
                self.touch();
                changed.await;
            }
        })
    }
}
