//! The client's lease with the MGS: its sign of life while it holds something, and its right to use what it keeps
//! (`docs/recovery.md#leases`; the state machine is [`proto::lease`]).
//!
//! As long as the lease lasts everything is as ever. When it ends (the MGS is not reached for too long, or this process was
//! stopped) the client does not know any more what others were given: nothing is answered from what it keeps, the kernel
//! forgets, and data waits for the lease; what was written and not sent stays. When the MGS answers again, it says what the
//! client has lost. A client that holds nothing has no lease, and sends nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::lease::{ClientLease, Due, Told};
use proto::wire::messages::{Awaited, DropOrder, LeaseRenewed, RenewLease};
use proto::{OstIndex, TargetKind};
use rpc::LinkState;
use rt::sync::{Notify, Semaphore, oneshot};
use rt::{Rt, Time};

use crate::util::{join_all, unless};
use crate::{Error, Forget, Shared};

/// An answer that takes longer may be lost: the next renewal is sent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Renewals without an answer.
const ATTEMPTS_MAX: usize = 4;
/// Pause after the MGS refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Time for the goodbye.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(1);
/// The MGS is in this process, and lives as long as the client.
const FOR_EVER: u64 = u64::MAX;

/// The lease of a client.
pub(crate) struct Lease {
    /// Until when what is kept may be used, in nanoseconds of the clock; 0 for not at all.
    until: AtomicU64,
    /// Something was asked of a target since this was last looked at.
    used: AtomicBool,
    /// There is a lease, or is to be one.
    on: AtomicBool,
    /// The MGS knows of it. Nothing is asked of a target before.
    begun: AtomicBool,
    closed: AtomicBool,
    /// Grows with each release: late answers to renewals of before count no more.
    era: AtomicU64,
    attempts: Semaphore,
    machine: Mutex<ClientLease>,
    /// Orders that are being carried out.
    obeying: Mutex<BTreeSet<u64>>,
    /// Sessions are being looked at.
    looking: AtomicBool,
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
    pub(crate) fn new() -> Lease {
        Lease {
            until: AtomicU64::new(0),
            used: AtomicBool::new(false),
            on: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            era: AtomicU64::new(0),
            attempts: Semaphore::new(ATTEMPTS_MAX),
            machine: Mutex::default(),
            obeying: Mutex::default(),
            looking: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake: Notify::new(),
            changed: Notify::new(),
            renewals: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
        }
    }

    /// Whether the MGS knows that this client lives: a target that restarts does not wait for others.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until it does.
    pub(crate) async fn until_begun(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.begun.load(Ordering::SeqCst) || self.closed.load(Ordering::SeqCst) {
                return;
            }
            self.touch();
            changed.await;
        }
    }

    /// Something is asked of a target: from now on there is something to hold.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::SeqCst);
            if !self.on.load(Ordering::SeqCst) {
                self.wake.notify_one();
            }
        }
    }

    /// Whether what is kept may be used now.
    #[inline]
    pub(crate) fn holds(&self, rt: &Rt) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until == FOR_EVER || rt.now().0 < until
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Nobody waits for it any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn state(&self, rt: &Rt) -> LeaseState {
        let until = self.until.load(Ordering::Relaxed);
        LeaseState {
            number: self.machine.lock().number(),
            left: (until != FOR_EVER).then(|| Time(until.max(rt.now().0)) - rt.now()),
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

impl crate::Client {
    /// The lease with the MGS.
    pub fn lease(&self) -> LeaseState {
        self.shared.lease.state(&self.shared.rt)
    }
}

impl Shared {
    /// Whether what is kept may be used now.
    #[inline]
    pub(crate) fn may_use(&self) -> bool {
        self.lease.holds(&self.rt)
    }

    /// Whether the client is unmounted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until what is kept may be used.
    pub(crate) async fn until_may_use(&self) {
        while !self.may_use() {
            let mut changed = std::pin::pin!(self.lease.changed.notified());
            changed.as_mut().enable();
            self.lease.touch();
            if self.may_use() || self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the client has a lease, or has none.
    pub(crate) async fn until_leased(&self, wanted: bool) {
        loop {
            let mut changed = std::pin::pin!(self.lease.changed.notified());
            changed.as_mut().enable();
            if self.lease.is_on() == wanted {
                return;
            }
            changed.await;
        }
    }

    /// Keeps the lease while there is something to hold, until the client is unmounted.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let ended = self.clone();
        unless(ended.ended(), async {
            loop {
                while !self.lease.used.load(Ordering::SeqCst) {
                    self.lease.wake.notified().await;
                }
                self.lease.set_on(true);
                self.hold_lease().await;
            }
        })
        .await;
    }

    /// Renews the lease until nothing is held any more. Who has asked nothing of anybody for long gives back what it keeps, so
    /// that it need not be waited for, and has no lease to renew (Lustre's `lru_max_age` and `idle_timeout`). What the kernel
    /// answers by itself does not count.
    async fn hold_lease(self: &Arc<Self>) {
        let mut used = self.rt.now();
        loop {
            self.lapse_if_over();
            let now = self.rt.now();
            let due = match self.lease.ending.swap(false, Ordering::SeqCst) {
                true => Due::Renew,
                false => self.lease.machine.lock().due(now.0),
            };
            match due {
                Due::At(time) => {
                    let next = Time(time.min(self.end_of_use()));
                    let wake = self.lease.wake.notified();
                    self.rt.timeout(next - now, wake).await;
                }
                Due::Renew => {
                    if self.lease.used.swap(false, Ordering::SeqCst) {
                        used = self.rt.now();
                    } else if self.release_lease().await {
                        return self.rest_all();
                    } else if self.rt.now() - used >= self.inodes.keep().age_max && self.may_use() {
                        used = self.rt.now();
                        let shared = self.clone();
                        self.rt.spawn(async move { shared.give_back_unused().await });
                    }
                    self.rest_unused();
                    self.renew_lease().await;
                }
            }
        }
    }

    /// When there is something to do about the end of the lease.
    fn end_of_use(&self) -> u64 {
        match self.lease.until.load(Ordering::Relaxed) {
            0 => FOR_EVER,
            until => until,
        }
    }

    /// Sends a renewal, and waits for its answer for a while: one that comes later counts too, but the next one is sent.
    async fn renew_lease(self: &Arc<Self>) {
        let (shared, era) = (self.clone(), self.lease.era.load(Ordering::SeqCst));
        let (done, answered) = oneshot::channel();
        let attempt = async move {
            let Ok(_place) = shared.lease.attempts.acquire().await else { return };
            let (renewal, sent) = (shared.lease.machine.lock().renewal(), shared.rt.now());
            let answer = shared.targets.mgs().call(renewal.clone());
            match unless(shared.ended(), answer).await {
                Some(Ok(answered)) if shared.lease.era.load(Ordering::SeqCst) == era => {
                    shared.lease_answered(&renewal, sent, &answered.reply);
                }
                Some(Ok(_) | Err(Error::Closed)) | None => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "the MGS does not renew the lease");
                    shared.rt.sleep(REFUSED_PAUSE).await;
                }
            }
            let _ = done.send(());
        };
        let now = self.rt.now();
        let end = Time(self.end_of_use().min((now + ANSWER_TIME_MAX).0));
        let pause = if end > now { end - now } else { Duration::ZERO };
        match self.lease.attempts.available_permits() {
            // What is under way is sent again by itself.
            0 => self.rt.sleep(pause).await,
            _ => {
                self.rt.spawn(attempt);
                self.rt.timeout(pause, answered).await;
            }
        }
    }

    fn lease_answered(self: &Arc<Self>, renewal: &RenewLease, sent: Time, answer: &LeaseRenewed) {
        let lease = &self.lease;
        // What the clock says counts, and not who has noticed already.
        self.lapse_if_over();
        let renewed = lease.machine.lock().answered(renewal, sent.0, self.rt.now().0, answer);
        if renewed.told != Told::TooLate && !lease.begun.swap(true, Ordering::SeqCst) {
            lease.changed.notify_waiters();
        }
        for order in renewed.orders {
            self.obey(order);
        }
        for awaited in &answer.awaited {
            self.come_back(awaited);
        }
        match renewed.told {
            Told::Goes => {
                let until = {
                    let mut machine = lease.machine.lock();
                    machine.resume(sent.0, self.rt.now().0, answer);
                    machine.until()
                };
                let is_here = self.targets.mgs().state().link == LinkState::InProcess;
                let is_heeded = self.targets.hub().habits().safeguards.client_leases;
                let until = if is_here || !is_heeded { FOR_EVER } else { until };
                lease.renewals.fetch_add(1, Ordering::Relaxed);
                if lease.until.swap(until, Ordering::SeqCst) == 0 {
                    lease.changed.notify_waiters();
                }
            }
            Told::LookAtAll => self.look_at_all(),
            Told::TooLate => {}
        }
    }

    /// Stops using what is kept if its time is over.
    fn lapse_if_over(self: &Arc<Self>) {
        let now = self.rt.now().0;
        let until = self.lease.until.load(Ordering::SeqCst);
        if until == 0 || now < until {
            return;
        }
        self.lease.machine.lock().lapse(now);
        self.lease.until.store(0, Ordering::SeqCst);
        self.lease.lapses.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("the MGS has not been heard for too long: what is kept is not used until it is");
        let shared = self.clone();
        self.rt.spawn(async move { shared.forget_everything().await });
    }

    /// Has the kernel forget everything that it keeps.
    async fn forget_everything(self: &Arc<Self>) {
        let mut forget = vec![Forget::Names];
        for (fid, filled) in self.kept_by_kernel() {
            match filled {
                // It ends when the answers have arrived that were made before.
                Some(filled) => drop(filled.await),
                None => forget.push(Forget::Attributes(fid)),
            }
        }
        if let Some(copies) = self.copies() {
            copies.forget(forget).await;
        }
        self.forget_pages_of_all().await;
    }

    /// Somebody else is given what this client holds of a target, or was: it is dropped.
    fn obey(self: &Arc<Self>, order: DropOrder) {
        if !self.lease.obeying.lock().insert(order.number) {
            return;
        }
        let target = self.targets.made(order.target).filter(|target| target.is_meant(&order));
        let Some(target) = target else { return self.lease.obeyed(order.number) };
        tracing::error!(
            target = %order.target,
            "the target has not reached this client for too long while others waited for what it holds: that is dropped"
        );
        target.forget_session();
        let (shared, number) = (self.clone(), order.number);
        match order.target.kind {
            TargetKind::Ost => {
                let objects = self.drop_ranges(OstIndex(order.target.index).into());
                self.rt.spawn(async move {
                    let forgotten = objects.iter().map(|object| shared.drop_lost_pages(object));
                    join_all(forgotten).await;
                    shared.lease.obeyed(number);
                });
            }
            TargetKind::Mdt => {
                self.flocks_lost();
                self.drop_bits();
                self.rt.spawn(async move {
                    shared.forget_lost().await;
                    shared.lease.obeyed(number);
                });
            }
            TargetKind::Mgs => self.lease.obeyed(number),
        }
    }

    /// A target waits for this client, which may not have noticed that it started again.
    fn come_back(&self, awaited: &Awaited) {
        let Some(target) = self.targets.made(awaited.target) else { return };
        if target.is_older_than(awaited.boot) {
            self.rt.spawn(async move { target.look().await });
        } else if target.rests() || target.is_connected() {
            // It has not heard the goodbye, or has lost the connection.
            self.rt.spawn(async move { target.show_up().await });
        }
    }

    /// Nobody knows who was told that this client is dead: each target says whether it still knows it.
    fn look_at_all(self: &Arc<Self>) {
        if self.lease.looking.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        self.rt.spawn(async move {
            let targets = shared.targets.all();
            let looked = join_all(targets.iter().map(|target| target.look()));
            if unless(shared.ended(), looked).await.is_some() {
                shared.lease.machine.lock().looked();
            }
            shared.lease.looking.store(false, Ordering::SeqCst);
            shared.lease.wake.notify_one();
        });
    }

    /// Ends the lease if nothing is held; whether it did.
    async fn release_lease(&self) -> bool {
        if self.holds_something() {
            return false;
        }
        self.lease.begun.store(false, Ordering::SeqCst);
        self.lease.set_on(false);
        // Who asks for something from now on wakes this task; who did before is seen here.
        if self.lease.used.load(Ordering::SeqCst) || self.holds_something() {
            self.lease.begun.store(true, Ordering::SeqCst);
            self.lease.set_on(true);
            return false;
        }
        self.lease.era.fetch_add(1, Ordering::SeqCst);
        self.lease.until.store(0, Ordering::SeqCst);
        self.say_goodbye().await;
        true
    }

    /// Tells the MGS that this client has no lease any more.
    pub(crate) async fn say_goodbye(&self) {
        let release = self.lease.machine.lock().release();
        if let Some(release) = release {
            // Without an answer the lease ends by itself.
            let _ = self.rt.timeout(RELEASE_TIME_MAX, self.targets.mgs().call(release)).await;
        }
    }

    /// Ends the lease now and not with its next renewal, if nothing is held; waits for that no longer than `wait`.
    pub(crate) async fn end_lease(&self, wait: Duration) {
        if self.holds_something() {
            return;
        }
        self.lease.used.store(false, Ordering::SeqCst);
        self.lease.ending.store(true, Ordering::SeqCst);
        self.lease.wake.notify_one();
        // A lease that goes on for now ends by itself.
        let _ = self.rt.timeout(wait, self.until_leased(false)).await;
    }

    async fn give_back_unused(self: &Arc<Self>) {
        tracing::debug!("nothing was asked for long: what is kept is given back");
        self.leave_all();
        self.give_up_inodes().await;
    }

    fn holds_something(&self) -> bool {
        !self.handles.is_empty()
            || self.keeper.has_dirty()
            || self.locks.holds_any()
            || self.inodes.holds_any()
            || self.has_busy_session()
    }
}
