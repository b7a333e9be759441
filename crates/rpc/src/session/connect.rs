//! The task that opens a session, and opens it again: it does what the machine's steps say, one after the other.

use std::pin::Pin;
use std::sync::Arc;

use proto::session::machine::{Failure, Phase};
use proto::session::{Event, Step};
use proto::wire::messages::{Connect, Connected, FEATURE_LOCKS, FEATURES_ALL};
use proto::wire::{Reply, Request};
use proto::{Code, JobId, Nid, Xid};
use rt::{BoxFuture, Time};

use super::carrier::Carrier;
use super::driver::{Driver, Waiter};
use super::lo::Lo;
use super::{Link, LinkError, Restate};
use crate::address::dialled;
use crate::event::{Either, race};
use crate::limits;
use crate::service::{Call, Origin, Peer};

/// Opens the session of `driver`, or finds out that the target refuses.
pub(crate) async fn open(driver: &Arc<Driver>) {
    let ended = driver.hub.ended().clone();
    if let Either::First(()) = race(ended.wait(), Opener { driver, carrier: None, unanswered: 0 }.run()).await
    {
        driver.close();
    }
}

/// How long the answer to a Connect is waited for after so many that did not come.
fn connect_time(unanswered: u32) -> std::time::Duration {
    let time = limits::CONNECT_TIME_MIN.saturating_mul(1_u32.checked_shl(unanswered).unwrap_or(u32::MAX));
    time.min(limits::CONNECT_TIME_MAX)
}

/// Opens one session.
struct Opener<'a> {
    driver: &'a Arc<Driver>,
    /// What was reached.
    carrier: Option<Carrier>,
    /// How often no answer came to a Connect, one after the other.
    unanswered: u32,
}

/// The next time that the target may be elsewhere, from when it was made.
type Moved<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl<'a> Opener<'a> {
    async fn run(&mut self) {
        let mut moved = self.moved();
        loop {
            let now = self.driver.moment();
            let step = self.driver.change(|state| state.machine.next(now));
            match step {
                Step::Do(outputs) => self.driver.carry_out(outputs, self.carrier.as_ref()),
                Step::TellLost | Step::TellOpen | Step::TellSessionLost => self.tell(&step),
                Step::Pause { least, spread } => {
                    moved = self.moved();
                    if !least.is_zero() {
                        let spread = self.driver.hub.rt().random_u64() % spread.as_nanos().max(1) as u64;
                        let pause = least + std::time::Duration::from_nanos(spread);
                        let _ = race(moved.as_mut(), self.driver.hub.rt().sleep(pause)).await;
                    }
                }
                Step::Seek => {
                    self.seek();
                    moved = self.moved();
                }
                Step::Dial(nid) => self.dial(&nid, &mut moved).await,
                Step::Connect(connect) => self.connect(connect).await,
                Step::Wait(until) => self.wait(Time::default() + until).await,
                Step::Restate => self.restate().await,
                Step::Leave(session) => self.leave(session),
                Step::Open => {
                    if self.opened() {
                        return;
                    }
                }
                Step::GiveUp { code, problem, waiters } => return self.give_up(code, &problem, waiters),
                Step::Done => return,
            }
        }
    }

    fn moved(&self) -> Moved<'a> {
        Box::pin(self.driver.signals.moved.notified())
    }

    /// Tells the machine that the last step failed.
    fn failed(&self, problem: impl Into<String>) {
        let failure = Failure::Again(problem.into());
        self.driver.on(Event::Failed(failure));
    }

    fn tell(&self, what: &Step<Waiter>) {
        let Some(callbacks) = self.driver.called().callbacks() else { return };
        let target = self.driver.target;
        match what {
            Step::TellLost => callbacks.disconnected(target),
            Step::TellOpen => callbacks.reconnected(target),
            _ => callbacks.session_lost(target),
        }
    }

    fn seek(&mut self) {
        let driver = self.driver;
        self.carrier = driver.hub.service(driver.target).map(|service| {
            let peer = Peer { role: driver.role, from: Origin::Here };
            Carrier::Lo(Arc::new(Lo::new(driver.clone(), service, peer)))
        });
        let here = self.carrier.is_some();
        driver.on(Event::Sought { here });
    }

    async fn dial(&mut self, nid: &Nid, moved: &mut Moved<'a>) {
        let driver = self.driver;
        let addr = match dialled(nid) {
            Ok(addr) => addr,
            Err(error) => return self.failed(error.to_string()),
        };
        // One that says nothing must not hold up the news that the target is elsewhere.
        let linked =
            match race(moved.as_mut(), driver.hub.carried().link(&driver.hub, &addr, driver.role)).await {
                Either::First(()) => return driver.on(Event::Elsewhere),
                Either::Second(linked) => linked,
            };
        let failure = match linked {
            Ok(link) => {
                self.carrier = Some(Carrier::Tcp(link));
                return driver.on(Event::Reached);
            }
            Err(LinkError::Unreachable(error)) => Failure::Again(format!("{addr}: {error}")),
            Err(LinkError::Refused(code, error)) => Failure::Refused(code, format!("{addr}: {error}")),
        };
        driver.on(Event::Failed(failure));
    }

    /// Asks for the session over what was reached.
    async fn connect(&mut self, mut connect: Connect) {
        let driver = self.driver;
        connect.features = self.features();
        let epoch = connect.session_epoch;
        let answered = match &self.carrier {
            Some(Carrier::Lo(lo)) => lo.connect(connect_call(driver, lo.peer(), connect)).await,
            Some(Carrier::Tcp(link)) => match self.connect_over(&link.clone(), connect).await {
                Ok(answered) => answered,
                Err(problem) => return self.failed(problem),
            },
            None => return self.failed("there is no way any more"),
        };
        let connected: Result<Connected, Code> = match answered {
            Ok(Reply::Connect(connected)) => Ok(connected),
            Ok(_) => return self.failed(format!("{} answers nonsense", driver.target)),
            Err(code) => Err(code),
        };
        if let (Some(Carrier::Lo(_)), Ok(connected)) = (&self.carrier, &connected) {
            driver.called().over(None, connected.session, epoch);
            let key = (driver.target, connected.session);
            driver.hub.sessions().opened_here(key, epoch, &Arc::downgrade(driver));
        }
        driver.on(Event::Connected(connected));
    }

    async fn connect_over(
        &mut self,
        link: &Arc<Link>,
        mut connect: Connect,
    ) -> Result<Result<Reply, Code>, String> {
        let driver = self.driver;
        connect.proof = driver.hub.clients().prove(driver.client, link.binding());
        let asked = driver.hub.rt().now();
        let me = Arc::downgrade(driver);
        let answer = race(driver.signals.moved.notified(), link.connect(driver.target, connect, &me));
        match driver.hub.rt().timeout(connect_time(self.unanswered), answer).await {
            Some(Either::Second(Some(answered))) => {
                self.unanswered = 0;
                Ok(answered)
            }
            Some(_) => Err(format!("{}: no answer any more", link.addr())),
            None => {
                self.unanswered += 1;
                // It may be one whose other end is gone, which nobody has told: the next attempt makes another one. An answer alone may be lost
                // or late, and other sessions have requests under way here.
                if self.unanswered > 1 && link.heard_at() <= asked {
                    link.end("no answer to who asks for a session");
                }
                Err(format!("{}: no answer", link.addr()))
            }
        }
    }

    /// A client that nobody can call back keeps nothing, and says so.
    fn features(&self) -> u64 {
        match self.driver.called().callbacks() {
            Some(_) => FEATURES_ALL,
            None => FEATURES_ALL & !FEATURE_LOCKS,
        }
    }

    /// Waits until there is no use any more in what was begun over the carrier.
    async fn over(&self) {
        if let Some(carrier) = &self.carrier {
            race(self.driver.signals.moved.notified(), carrier.ended()).await;
        }
    }

    async fn wait(&self, until: Time) {
        let driver = self.driver;
        let stirred = race(driver.signals.stirred.notified(), driver.hub.rt().sleep_until(until));
        if let Either::First(()) = race(self.over(), stirred).await {
            self.failed("the connection broke during replay");
        }
    }

    /// Lets the client state again what it holds at a target that restarted.
    async fn restate(&self) {
        let driver = self.driver;
        if let (Some(callbacks), Some(carrier)) = (driver.called().callbacks(), &self.carrier) {
            let restate = Restate::new(driver.clone(), carrier.clone());
            let failed = restate.failed().clone();
            let broken = race(self.over(), failed.wait());
            let restarted: BoxFuture<'static, ()> = callbacks.restarted(driver.target, restate);
            if let Either::First(_) = race(broken, restarted).await {
                return self.failed("the session broke while locks were stated again");
            }
        }
        driver.on(Event::Restated);
    }

    fn leave(&self, session: u64) {
        if let Some(carrier) = &self.carrier {
            carrier.leave(self.driver, session);
        }
        self.driver.called().no_more();
    }

    /// The session lives on the carrier from now on, if that has not broken: whether it does.
    fn opened(&self) -> bool {
        let Some(carrier) = &self.carrier else { return false };
        let now = self.driver.moment();
        let outputs = self.driver.change(|state| {
            // It may have broken while nobody was told: then the loss is this task's to repair.
            if let Some(problem) = carrier.broken() {
                drop(state.machine.on(Event::Failed(Failure::Again(problem)), now));
                return None;
            }
            let outputs = state.machine.on(Event::Opened { here: carrier.is_lossless() }, now);
            let open = matches!(state.machine.phase(), Phase::Open { .. });
            state.carrier = open.then(|| carrier.clone());
            open.then_some(outputs)
        });
        let open = outputs.is_some();
        self.driver.carry_out(outputs.unwrap_or_default(), Some(carrier));
        open
    }

    /// Tells everybody who waits that the target does not want this client. The next call tries again.
    fn give_up(&self, code: Code, problem: &str, waiters: Vec<Waiter>) {
        // Of what an operator ordered nobody has to be warned, each time that somebody asks.
        if matches!(code, Code::Inactive | Code::Removed) {
            tracing::debug!(%problem);
        } else {
            tracing::warn!(target = %self.driver.target, %problem, "the target refuses");
        }
        for waiter in waiters {
            let _ = waiter.send(Err(code));
        }
        self.driver.signals.room.notify_waiters();
    }
}

fn connect_call(driver: &Driver, peer: &Peer, connect: Connect) -> Call {
    Call {
        peer: peer.clone(),
        target: driver.target,
        session: 0,
        session_epoch: connect.session_epoch,
        xid: Xid(0),
        slot: None,
        resent: false,
        unchecked: false,
        replay: None,
        request: Request::Connect(connect),
        bulk: Vec::new(),
        job: JobId::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::connect_time;

    #[test]
    fn two_lost_answers_take_less_than_a_lease() {
        let seconds = |unanswered| connect_time(unanswered).as_secs();
        assert_eq!([0, 1, 2, 3, 40].map(seconds), [3, 6, 10, 10, 10]);
    }
}
