//! What a process owns and wants to own.
//!
//! Two tasks, whatever the number of targets: one renews all that is owned with one question, the other waits with one
//! question for all that is wanted. An owner that cannot reach the store holds still when its time is over: it says
//! nothing any more that another owner might contradict, and goes on when it learns that there was none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::TargetId;
use proto::owner::{RENEW_AFTER, TTL, valid_until};
use proto::wire::messages::{OWNED_MAX, Tenure, Wanted};
use rt::sync::{Notify, oneshot};
use rt::wait::unless;
use rt::{BoxFuture, Rt, Time};
use service::Stop;

use super::fence::Fence;
use super::store::{Grant, Me, OwnerStore, Unavailable};

/// Longest time that one question for what is wanted waits.
const TAKE_WAIT: Duration = Duration::from_secs(20);
/// Pause after the store did not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// One target that this process owns.
pub struct Ownership {
    rt: Rt,
    tenure: Tenure,
    /// Until when it is sure that nobody else has it, in nanoseconds of the clock.
    valid_until: AtomicU64,
    lost: AtomicBool,
    /// It was renewed, or lost.
    changed: Notify,
}

impl Ownership {
    /// What is owned.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Waits until it is lost.
    pub async fn until_lost(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if store::Right::is_lost(self) {
                return;
            }
            changed.await;
        }
    }

    fn renew(&self, until: u64) {
        self.valid_until.fetch_max(until, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl store::Right for Ownership {
    fn is_valid(&self) -> bool {
        // Once somebody else may have had it, what was valid before proves nothing.
        !self.is_lost() && self.rt.now().0 < self.valid_until.load(Ordering::SeqCst)
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    fn confirmed(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.is_lost() {
                    return false;
                }
                if self.is_valid() {
                    return true;
                }
                changed.await;
            }
        })
    }
}

/// Somebody who waits for a target.
struct Wish {
    wanted: Wanted,
    granted: oneshot::Sender<Grant>,
}

#[derive(Default)]
struct Lists {
    held: BTreeMap<TargetId, Arc<Ownership>>,
    wishes: BTreeMap<TargetId, Wish>,
}

/// What this process owns and wants to own.
pub struct Ownerships {
    rt: Rt,
    me: Me,
    store: Arc<dyn OwnerStore>,
    fence: Option<Arc<dyn Fence>>,
    lists: Mutex<Lists>,
    stop: Stop,
    /// The store did not answer the last renewal.
    unreachable: AtomicBool,
    /// It did not answer the last question for what is wanted.
    silent: AtomicBool,
    /// Something new is owned.
    gained: Notify,
    /// Something new is wanted.
    wished: Notify,
}

impl Ownerships {
    /// Starts without any; its tasks end with it. Without a `fence`, former owners are not kept from anything.
    pub fn start(
        rt: &Rt,
        me: Me,
        store: Arc<dyn OwnerStore>,
        fence: Option<Arc<dyn Fence>>,
    ) -> Arc<Ownerships> {
        let ownerships = Arc::new(Ownerships {
            rt: rt.clone(),
            me,
            store,
            fence,
            lists: Mutex::default(),
            stop: Stop::default(),
            unreachable: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            gained: Notify::new(),
            wished: Notify::new(),
        });
        rt.spawn(keep_renewing(Arc::downgrade(&ownerships), ownerships.stop.clone()));
        rt.spawn(keep_taking(Arc::downgrade(&ownerships), ownerships.stop.clone()));
        ownerships
    }

    /// The process that owns.
    pub fn me(&self) -> &Me {
        &self.me
    }

    /// What keeps former owners from what this process takes over.
    pub fn fence(&self) -> Option<&Arc<dyn Fence>> {
        self.fence.as_ref()
    }

    /// Which store of owners it is ([`OwnerStore::identity`]); waits until that can be known.
    pub async fn identity(&self) -> String {
        loop {
            let identity = self.store.identity().await;
            self.hear(&identity);
            match identity {
                Ok(identity) => return identity,
                Err(_) => self.rt.sleep(PAUSE).await,
            }
        }
    }

    /// Says once that the store does not answer, and once that it does.
    fn hear<T>(&self, answer: &Result<T, Unavailable>) {
        match answer {
            Ok(_) if self.silent.swap(false, Ordering::Relaxed) => {
                tracing::info!("the store of owners answers again");
            }
            Err(error) if !self.silent.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the store of owners does not answer: no target with service nodes is taken before it does, and it is asked again and again");
            }
            _ => {}
        }
    }

    /// Renews nothing any more, and takes nothing.
    pub fn end(&self) {
        self.stop.stop();
    }

    /// Waits until this process owns the target, and is sure of it. Gives how it got it.
    pub async fn own(&self, wanted: &Wanted) -> (Arc<Ownership>, Grant) {
        loop {
            let (granted, taken) = oneshot::channel();
            {
                let mut lists = self.lists.lock();
                assert!(lists.wishes.len() < OWNED_MAX, "a process has a directory for each target");
                lists.wishes.insert(wanted.target, Wish { wanted: wanted.clone(), granted });
            }
            self.wished.notify_one();
            // Another one who wants the same took this one's place.
            let Ok(grant) = taken.await else { continue };
            let tenure = Tenure { target: grant.taken.target, epoch: grant.taken.epoch };
            let ownership = Arc::new(Ownership {
                rt: self.rt.clone(),
                tenure,
                valid_until: AtomicU64::new(0),
                lost: AtomicBool::new(false),
                changed: Notify::new(),
            });
            self.lists.lock().held.insert(ownership.tenure.target, ownership.clone());
            self.gained.notify_one();
            if store::Right::confirmed(ownership.as_ref()).await {
                return (ownership, grant);
            }
        }
    }

    /// Begins to use a target's directory; waits until the store knows. Not before a former owner is known to do no harm.
    pub async fn settle(&self, ownership: &Ownership) {
        loop {
            match self.store.settle(&self.me, ownership.tenure.clone()).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(target = %ownership.tenure.target, %error, "not settled"),
            }
            self.rt.sleep(PAUSE).await;
        }
    }

    /// Owns a target no more, which is closed; `to` as in [`OwnerStore::release`]. Tries for as long as the store would
    /// wait for this process.
    pub async fn release(&self, ownership: &Arc<Ownership>, to: &str) {
        let asked = async {
            loop {
                match self.store.release(&self.me, ownership.tenure.clone(), to).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(target = %ownership.tenure.target, %error, "not released"),
                }
                self.rt.sleep(PAUSE).await;
            }
        };
        self.rt.timeout(TTL, asked).await;
        self.forget(ownership);
    }

    /// Has lost the target.
    pub fn forget(&self, ownership: &Arc<Ownership>) {
        ownership.lose();
        let mut lists = self.lists.lock();
        let target = ownership.tenure.target;
        if lists.held.get(&target).is_some_and(|held| Arc::ptr_eq(held, ownership)) {
            lists.held.remove(&target);
        }
    }

    async fn renew(&self, asked: Time) -> Result<(), Duration> {
        let held: Vec<Arc<Ownership>> = self.lists.lock().held.values().cloned().collect();
        if held.is_empty() {
            return Ok(());
        }
        let holds = held.iter().map(|ownership| ownership.tenure.clone()).collect();
        match self.store.renew(&self.me, holds).await {
            Ok(renewed) => {
                if self.unreachable.swap(false, Ordering::Relaxed) {
                    tracing::info!("ownership of targets is renewed again");
                }
                let until = valid_until(asked.0, renewed.ttl);
                for ownership in held {
                    if renewed.lost.contains(&ownership.tenure.target) {
                        tracing::warn!(target = %ownership.tenure.target, "it has another owner");
                        self.forget(&ownership);
                    } else {
                        ownership.renew(until);
                    }
                }
                Ok(())
            }
            Err(error) => {
                if !self.unreachable.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "ownership of targets is not renewed; without that they hold still in a while");
                }
                Err(PAUSE)
            }
        }
    }

    async fn take(&self) {
        let wanted: Vec<Wanted> = self.lists.lock().wishes.values().map(|wish| wish.wanted.clone()).collect();
        if wanted.is_empty() {
            return self.wished.notified().await;
        }
        let asked = self.store.take(&self.me, wanted, TAKE_WAIT);
        // A new wish joins the others in the next question. What this one may bring in vain is free again when it is
        // not renewed.
        let Some(answer) = unless(self.wished.notified(), asked).await else { return };
        self.hear(&answer);
        let Ok(grants) = answer else { return self.rt.sleep(PAUSE).await };
        for grant in grants {
            let wish = self.lists.lock().wishes.remove(&grant.taken.target);
            if let Some(wish) = wish {
                let _ = wish.granted.send(grant);
            }
        }
    }
}

impl Drop for Ownerships {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

async fn keep_renewing(ownerships: Weak<Ownerships>, stop: Stop) {
    loop {
        let step = async {
            let ownerships = ownerships.upgrade()?;
            let asked = ownerships.rt.now();
            let pause = match ownerships.renew(asked).await {
                Ok(()) => RENEW_AFTER.saturating_sub(ownerships.rt.now() - asked),
                Err(pause) => pause,
            };
            ownerships.rt.timeout(pause, ownerships.gained.notified()).await;
            Some(())
        };
        if stop.unless(step).await.flatten().is_none() {
            return;
        }
    }
}

async fn keep_taking(ownerships: Weak<Ownerships>, stop: Stop) {
    loop {
        let step = async {
            ownerships.upgrade()?.take().await;
            Some(())
        };
        if stop.unless(step).await.flatten().is_none() {
            return;
        }
    }
}
