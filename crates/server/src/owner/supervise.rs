//! Serves one target for as long as this process may and lives: again after a failure of the disk, and after it had another
//! owner.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::TargetId;
use proto::wire::messages::Wanted;
use rpc::Hub;
use rt::Rt;
use rt::sync::{Notify, Semaphore};
use rt::wait::{Either, race};
use service::{HandOver, Stop};
use store::{Label, Owned, Store};

use super::fence::{FenceOrder, Pauses};
use super::ownerships::{Ownership, Ownerships};
use super::store::Grant;
use crate::{Config, Running, StartError, Supervision, start_supervised};

/// First pause after a target that was served before, or may be, did not start; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time for a target to stop in order. It takes longer only if the disk hangs, or nobody says whether it may write.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// What an operator has ordered.
#[derive(Default)]
pub struct Orders {
    hand_over: Mutex<Option<String>>,
    given: Notify,
}

impl HandOver for Orders {
    fn hand_over(&self, to: &str) {
        *self.hand_over.lock() = Some(to.to_owned());
        self.given.notify_waiters();
    }
}

impl Orders {
    async fn wait(&self) -> String {
        loop {
            let mut given = pin!(self.given.notified());
            given.as_mut().enable();
            if let Some(to) = self.hand_over.lock().take() {
                return to;
            }
            given.await;
        }
    }
}

/// How far a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Another server may serve it.
    StandingBy,
    /// It is being opened.
    Starting,
    /// It is served.
    Serving,
    /// It was stopped.
    Stopped,
}

/// A target that this process serves whenever it can.
pub struct Supervised {
    target: TargetId,
    state: Mutex<(State, Option<Arc<Running>>)>,
    changed: Notify,
    stop: Stop,
    /// Closed at the end.
    ended: Semaphore,
}

/// What ends a time of service.
enum End {
    Stopped,
    Ordered(String),
    Lost,
    Failed,
}

impl Supervised {
    fn new(target: TargetId) -> Arc<Supervised> {
        Arc::new(Supervised {
            target,
            state: Mutex::new((State::StandingBy, None)),
            changed: Notify::new(),
            stop: Stop::default(),
            ended: Semaphore::new(0),
        })
    }

    /// Which target it is.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// How far it is.
    pub fn state(&self) -> State {
        self.state.lock().0
    }

    /// The target, while it is served.
    pub fn running(&self) -> Option<Arc<Running>> {
        self.state.lock().1.clone()
    }

    /// Waits until `reached` is true of its state.
    pub async fn until(&self, reached: impl Fn(State) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if reached(self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Stops in order, and leaves it to other servers.
    pub async fn stop(&self) {
        self.stop.stop();
        // There is never a permit: the wait ends when the semaphore is closed.
        let _ = self.ended.acquire().await;
    }

    fn set(&self, state: State, running: Option<Arc<Running>>) {
        *self.state.lock() = (state, running);
        self.changed.notify_waiters();
    }
}

/// Serves the target in `config.path`. One that others may serve too (`ownerships`) as soon as it is this process's turn; another
/// one at once: an error says that it did not start.
pub async fn supervise(
    hub: &Hub,
    config: Config,
    label: &Label,
    ownerships: Option<Arc<Ownerships>>,
) -> Result<Arc<Supervised>, StartError> {
    let supervised = Supervised::new(label.target);
    match ownerships {
        Some(ownerships) => {
            let preferred = label.service.first().is_some_and(|first| config.nids.contains(first));
            let service = Shared { hub: hub.clone(), config, ownerships, preferred };
            service.start(supervised.clone());
        }
        None => {
            let (supervision, orders) = supervision(None);
            supervised.set(State::Starting, None);
            let running = start_supervised(hub, config.clone(), supervision).await?;
            let service = Sole { hub: hub.clone(), config };
            service.start(supervised.clone(), running, orders);
        }
    }
    Ok(supervised)
}

fn supervision(owned: Option<Owned>) -> (Supervision, Arc<Orders>) {
    let orders = Arc::new(Orders::default());
    (Supervision { owned, orders: orders.clone() }, orders)
}

/// A target that other servers reach too.
struct Shared {
    hub: Hub,
    config: Config,
    ownerships: Arc<Ownerships>,
    preferred: bool,
}

impl Shared {
    /// Not as a part of a future: its code is made in this crate, and not again wherever one is awaited.
    fn start(self, supervised: Arc<Supervised>) {
        let rt = self.hub.rt().clone();
        rt.spawn(self.run(supervised));
    }

    async fn run(self, supervised: Arc<Supervised>) {
        let (mut pause, mut fence_pauses) = (PAUSE_MIN, Pauses::default());
        loop {
            supervised.set(State::StandingBy, None);
            let Some((ownership, grant)) = supervised.stop.unless(self.own(supervised.target)).await else {
                break;
            };
            supervised.set(State::Starting, None);
            let Grant { taken, .. } = &grant;
            let target = supervised.target;
            tracing::info!(%target, epoch = taken.epoch, in_place = taken.in_place, "the target is this server's");
            let ready = race(ownership.until_lost(), supervised.stop.unless(self.ready(&ownership, &grant)));
            let rests = match ready.await {
                Either::First(()) => {
                    tracing::warn!(%target, "the target belongs to another server by now");
                    self.ownerships.forget(&ownership);
                    continue;
                }
                Either::Second(None) => {
                    self.ownerships.release(&ownership, "").await;
                    break;
                }
                Either::Second(Some(Err(()))) => Some(fence_pauses.next()),
                Either::Second(Some(Ok(()))) => None,
            };
            if let Some(rests) = rests {
                // Whoever can fence it, or is the former owner itself, may have it meanwhile.
                self.ownerships.release(&ownership, "").await;
                supervised.set(State::StandingBy, None);
                rest(self.hub.rt(), &supervised, rests).await;
                continue;
            }
            fence_pauses = Pauses::default();
            let owned = Owned {
                right: ownership.clone(),
                epoch: taken.epoch,
                before: taken.before,
                in_place: taken.in_place,
            };
            let (supervision, orders) = supervision(Some(owned));
            let starting = start_supervised(&self.hub, self.config.clone(), supervision);
            match supervised.stop.unless(starting).await {
                None => {
                    // Its directory may still be open until the process ends: nobody is told that it is free.
                    self.ownerships.forget(&ownership);
                    break;
                }
                Some(Err(error)) => {
                    tracing::error!(%target, %error, "the target does not start here");
                    self.ownerships.release(&ownership, "").await;
                    rest(self.hub.rt(), &supervised, pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Some(Ok(running)) => {
                    pause = PAUSE_MIN;
                    let running = Arc::new(running);
                    supervised.set(State::Serving, Some(running.clone()));
                    let end = self.until_end(&supervised, &running, &orders, &ownership).await;
                    let stopped = matches!(end, End::Stopped);
                    self.leave(&running, &ownership, end).await;
                    if stopped {
                        break;
                    }
                }
            }
        }
        supervised.set(State::Stopped, None);
        supervised.ended.close();
    }

    /// Waits for this process's turn.
    async fn own(&self, target: TargetId) -> (Arc<Ownership>, Grant) {
        let mut pause = PAUSE_MIN;
        let identity = self.ownerships.identity().await;
        let seen = loop {
            // Two servers that ask two stores would both get it.
            match Store::bind_owners(self.hub.rt(), &self.config.path, &identity).await {
                Err(error) => {
                    tracing::error!(%target, %error, "the target is not wanted here");
                }
                Ok(()) => match Store::newest_boot(self.hub.rt(), &self.config.path).await {
                    Ok(seen) => break seen,
                    Err(error) => tracing::warn!(%target, %error, "the target's directory cannot be read"),
                },
            }
            self.hub.rt().sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        self.ownerships.own(&Wanted { target, seen, preferred: self.preferred }).await
    }

    /// Has a former owner fenced that may still use the directory, and lets the store know that it does not matter any more.
    async fn ready(&self, ownership: &Ownership, grant: &Grant) -> Result<(), ()> {
        let Some(former) = &grant.former else { return Ok(()) };
        if let Some(fence) = self.ownerships.fence() {
            let target = former.target;
            tracing::warn!(%target, former = former.server, "the former owner of the target is fenced");
            let order = FenceOrder {
                fsname: self.hub.fsname().clone(),
                target,
                directory: self.config.path.clone(),
                epoch: grant.taken.epoch,
                server: former.server.clone(),
                nids: former.nids.clone(),
            };
            if let Err(error) = fence.fence(order).await {
                tracing::error!(
                    %target, former = former.server, error,
                    "the former owner is not fenced: the target is not served here, and it is tried again"
                );
                return Err(());
            }
            tracing::info!(%target, former = former.server, "the former owner is fenced");
        }
        self.ownerships.settle(ownership).await;
        Ok(())
    }

    async fn until_end(
        &self,
        supervised: &Supervised,
        running: &Running,
        orders: &Orders,
        ownership: &Ownership,
    ) -> End {
        // What is lost fails, too.
        let others = race(running.failed(), orders.wait());
        let ends = race(ownership.until_lost(), race(supervised.stop.until(), others));
        match ends.await {
            Either::First(()) => End::Lost,
            Either::Second(Either::First(())) => End::Stopped,
            Either::Second(Either::Second(Either::First(()))) => End::Failed,
            Either::Second(Either::Second(Either::Second(to))) => End::Ordered(to),
        }
    }

    async fn leave(&self, running: &Running, ownership: &Arc<Ownership>, end: End) {
        let rt = self.hub.rt();
        let target = running.target();
        let to = match end {
            End::Lost => {
                tracing::warn!(%target, "the target belongs to another server: it is stopped here");
                running.abandon().await;
                return self.ownerships.forget(ownership);
            }
            End::Failed => {
                tracing::error!(%target, "the target failed: it is opened again");
                running.abandon().await;
                self.ownerships.me().server.clone()
            }
            End::Ordered(to) => {
                tracing::info!(%target, to, "the target is handed over");
                match rt.timeout(STOP_TIME_MAX, running.close()).await {
                    Some(()) => to,
                    None => return self.ownerships.forget(ownership),
                }
            }
            End::Stopped => match rt.timeout(STOP_TIME_MAX, running.close()).await {
                Some(()) => String::new(),
                None => return self.ownerships.forget(ownership),
            },
        };
        self.ownerships.release(ownership, &to).await;
    }
}

/// A target that is served only here.
struct Sole {
    hub: Hub,
    config: Config,
}

impl Sole {
    /// As [`Shared::start`].
    fn start(self, supervised: Arc<Supervised>, first: Running, orders: Arc<Orders>) {
        let rt = self.hub.rt().clone();
        rt.spawn(self.run(supervised, first, orders));
    }

    async fn run(self, supervised: Arc<Supervised>, first: Running, orders: Arc<Orders>) {
        let (mut next, mut orders) = (Some(first), orders);
        let mut pause = PAUSE_MIN;
        loop {
            let Some(running) = next.take() else {
                let (supervision, new) = supervision(None);
                // It may wait for an MGS that is away.
                let starting = start_supervised(&self.hub, self.config.clone(), supervision);
                match supervised.stop.unless(starting).await {
                    None => break,
                    // What it took this time says nothing of the next.
                    Some(Ok(running)) => (next, orders, pause) = (Some(running), new, PAUSE_MIN),
                    Some(Err(error)) => {
                        tracing::error!(target = %supervised.target, %error, "the target does not start again");
                        if supervised.stop.unless(self.hub.rt().sleep(pause)).await.is_none() {
                            break;
                        }
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
                continue;
            };
            let running = Arc::new(running);
            supervised.set(State::Serving, Some(running.clone()));
            let ends = race(supervised.stop.until(), race(running.failed(), orders.wait()));
            match ends.await {
                Either::First(()) => {
                    running.close().await;
                    break;
                }
                Either::Second(_) => {
                    tracing::error!(target = %supervised.target, "the target failed: it is opened again");
                    supervised.set(State::Starting, None);
                    running.abandon().await;
                }
            }
            rest(self.hub.rt(), &supervised, pause).await;
        }
        supervised.set(State::Stopped, None);
        supervised.ended.close();
    }
}

/// A disk that fails at once again must not keep everybody busy.
async fn rest(rt: &Rt, supervised: &Supervised, pause: Duration) {
    let _ = supervised.stop.unless(rt.sleep(pause)).await;
}
