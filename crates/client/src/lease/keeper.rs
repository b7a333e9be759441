//! Renews the lease while anything is held, and carries out what the MGS says.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use proto::TargetId;
use proto::lease::{Due, Told};
use proto::wire::messages::{Awaited, DropOrder, LeaseRenewed, RenewLease};
use rpc::LinkState;
use rt::sync::oneshot;
use rt::wait::unless;
use rt::{BoxFuture, Rt, Time};

use super::{FOR_EVER, Lease};
use crate::Error;
use crate::targets::{Target, Targets};

/// An answer that takes longer may be lost: the next renewal is sent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause after the MGS refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two looks at a target that refuses this client.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(16);
/// Time for the goodbye.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(1);

/// The client, as its lease sees it: it holds something, and gives it up.
pub(crate) trait Holder: Send + Sync {
    /// Whether anything is held, open, or not durable yet.
    fn holds_something(&self) -> bool;
    /// How long what the MDT lets the client keep stays when nothing is asked of anybody.
    fn age_max(&self) -> Duration;
    /// Gives back everything that nobody uses.
    fn give_back_unused(&self) -> BoxFuture<'static, ()>;
    /// Looks after sessions that are not used; called every few seconds.
    fn rest_unused(&self);
    /// Nothing is held any more, and nobody looks after sessions from now on.
    fn rest_all(&self);
    /// Has the kernel forget everything that it keeps.
    fn forget_everything(&self) -> BoxFuture<'static, ()>;
    /// Drops at once what is held of a target; done when the kernel keeps nothing of it.
    fn drop_held(&self, target: TargetId) -> BoxFuture<'static, ()>;
}

/// Keeps the lease of a client.
pub(crate) struct LeaseKeeper {
    rt: Rt,
    lease: Arc<Lease>,
    targets: Arc<Targets>,
    holder: OnceLock<Weak<dyn Holder>>,
}

impl LeaseKeeper {
    pub(crate) fn new(rt: Rt, lease: Arc<Lease>, targets: Arc<Targets>) -> LeaseKeeper {
        LeaseKeeper { rt, lease, targets, holder: OnceLock::new() }
    }

    /// Says for whom the lease is. Nothing is kept for one that is gone.
    pub(crate) fn set_holder(&self, holder: Weak<dyn Holder>) {
        let _ = self.holder.set(holder);
    }

    fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.holder.get()?.upgrade()
    }

    fn holds_something(&self) -> bool {
        self.holder().is_some_and(|holder| holder.holds_something())
    }

    /// Keeps the lease while there is something to hold, until the client is unmounted.
    pub(crate) async fn keep_lease(self: &Arc<Self>) {
        unless(self.lease.ended(), async {
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
        while let Some(holder) = self.holder() {
            self.lapse_if_over();
            let now = self.rt.now();
            let due = match self.lease.ending.swap(false, Ordering::SeqCst) {
                true => Due::Renew,
                false => self.lease.machine.lock().due(now.0),
            };
            match due {
                Due::At(time) => {
                    let next = Time(time.min(self.lease.end_of_use()));
                    let wake = self.lease.wake.notified();
                    self.rt.timeout(next - now, wake).await;
                }
                Due::Renew => {
                    if self.lease.used.swap(false, Ordering::SeqCst) {
                        used = self.rt.now();
                    } else if self.release_lease().await {
                        return holder.rest_all();
                    } else if self.rt.now() - used >= holder.age_max() && self.lease.lasts() {
                        used = self.rt.now();
                        tracing::debug!("nothing was asked for long: what is kept is given back");
                        self.rt.spawn(holder.give_back_unused());
                    }
                    holder.rest_unused();
                    self.renew_lease().await;
                }
            }
        }
    }

    /// Sends a renewal, and waits for its answer for a while: one that comes later counts too, but the next one is sent.
    async fn renew_lease(self: &Arc<Self>) {
        let (keeper, era) = (self.clone(), self.lease.era.load(Ordering::SeqCst));
        let (done, answered) = oneshot::channel();
        let attempt = async move {
            let Ok(_place) = keeper.lease.attempts.acquire().await else { return };
            let (renewal, sent) = (keeper.lease.machine.lock().renewal(), keeper.rt.now());
            let answer = keeper.targets.mgs().call(renewal.clone());
            match unless(keeper.lease.ended(), answer).await {
                Some(Ok(answered)) if keeper.lease.era.load(Ordering::SeqCst) == era => {
                    keeper.lease_answered(&renewal, sent, &answered.reply);
                }
                Some(Ok(_) | Err(Error::Closed)) | None => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "the MGS does not renew the lease");
                    keeper.rt.sleep(REFUSED_PAUSE).await;
                }
            }
            let _ = done.send(());
        };
        let now = self.rt.now();
        let end = Time(self.lease.end_of_use().min((now + ANSWER_TIME_MAX).0));
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
            Told::Goes => self.go_on(sent, answer),
            Told::LookAtAll => {
                // In this order: nothing is used of a target that was not seen.
                self.look_at_all();
                self.go_on(sent, answer);
            }
            // The rest is asked for as soon as some of it is done.
            Told::MoreToDrop | Told::TooLate => {}
        }
    }

    /// What is kept may be used.
    fn go_on(&self, sent: Time, answer: &LeaseRenewed) {
        let lease = &self.lease;
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
        if let Some(holder) = self.holder() {
            self.rt.spawn(holder.forget_everything());
        }
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
        let dropped = self.holder().map(|holder| holder.drop_held(order.target));
        let (lease, number) = (self.lease.clone(), order.number);
        self.rt.spawn(async move {
            if let Some(dropped) = dropped {
                dropped.await;
            }
            lease.obeyed(number);
        });
    }

    /// A target waits for this client, which may not have noticed that it started again.
    fn come_back(&self, awaited: &Awaited) {
        let Some(target) = self.targets.made(awaited.target) else { return };
        if target.is_older_than(awaited.boot) {
            self.rt.spawn(async move {
                let _ = target.look().await;
            });
        } else if target.rests() || target.is_connected() {
            // It has not heard the goodbye, or has lost the connection.
            self.rt.spawn(async move { target.show_up().await });
        }
    }

    /// Nobody knows who was told that this client is dead: each target says whether it still knows it. One that stays away is used no
    /// more until it is back; what is held of the others may be used when they have answered.
    fn look_at_all(self: &Arc<Self>) {
        let targets = self.targets.all();
        let fresh = self.lease.look_at(targets.iter().map(|target| target.id()));
        for target in targets.into_iter().filter(|target| fresh.contains(&target.id())) {
            let keeper = self.clone();
            self.rt.spawn(async move {
                let _ = unless(keeper.lease.ended(), keeper.look_at(&target)).await;
            });
        }
    }

    /// Looks at a target until it has answered the latest look that is due, or the lease has ended.
    async fn look_at(&self, target: &Target) {
        let (id, era) = (target.id(), self.lease.era.load(Ordering::SeqCst));
        let mut pause = REFUSED_PAUSE;
        while let Some(look) = self.lease.look_due(id)
            && self.lease.era.load(Ordering::SeqCst) == era
        {
            if target.look().await.is_ok() {
                self.lease.seen(id, look);
                continue;
            }
            // It refuses this client, or an operator has nobody ask it: whoever needs it is told so.
            self.rt.sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
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
        let release = {
            let mut machine = self.lease.machine.lock();
            let release = machine.release();
            self.lease.has_unseen.store(machine.has_unseen(), Ordering::Release);
            release
        };
        if let Some(release) = release {
            // Without an answer the lease ends by itself.
            let _ = self.rt.timeout(RELEASE_TIME_MAX, self.tell_goodbye(release)).await;
        }
    }

    /// An MGS that started a moment ago knows nothing of this client, and targets that start would wait for it: it hears of the client
    /// first, so that it knows that it has left.
    async fn tell_goodbye(&self, release: RenewLease) -> Result<(), Error> {
        let mgs = self.targets.mgs();
        if mgs.call(release).await?.reply.known {
            return Ok(());
        }
        let begun = mgs.call(RenewLease { lease: 0, release: false, dropped: Vec::new() }).await?.reply;
        mgs.call(RenewLease { lease: begun.lease, release: true, dropped: Vec::new() }).await.map(drop)
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
        let _ = self.rt.timeout(wait, self.lease.until_leased(false)).await;
    }
}
