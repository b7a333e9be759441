//! How a target reaches the clients of its sessions, and what becomes of one that cannot be reached.
//!
//! A client that holds what another one needs is called back. As long as it gets on it may take its time: slow is not
//! dead. One that somebody waits for and whose connection was closed is evicted when its lease with the MGS is over, and one
//! that only went silent when it has been so for [`DEADLINE`], too: its session ends as if it had said goodbye, and when it
//! comes back it learns that whatever it held is gone; meanwhile the MGS has it show up, if it lives. One whose lease lives is *fenced*, and only when it has not been
//! reached for [`DEADLINE`], or has got nothing done for [`STALL_MAX`]: the MGS has it drop what it holds of this target, and
//! nobody else gets anything before it has. Without an MGS ([`Lives`]) there is [`PATIENCE`], and as much more for the silent.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use proto::lease::SILENT_MAX_MS;
use proto::wire::messages::{
    ASKED, ASKED_TO_FENCE, ASKED_TO_RETURN, Drain, DrainDone, LEASE_LEFT, LEASE_LONG_OVER, LEASE_NONE,
    LEASE_OVER, LeaseAsked,
};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, TargetId};
use rpc::{CallbackError, Hub};
use rt::{BoxFuture, Rt, Time};

use crate::Stop;
use crate::lives::Lives;
use crate::watch::Wait;

/// How long a client that somebody waits for may be without a connection that was closed.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a client that lives and that somebody waits for may be out of reach.
pub const DEADLINE: Duration = Duration::from_millis(SILENT_MAX_MS as u64);
/// How long one that is connected may get nothing done. It may itself be waiting for one that is out of reach, and for another
/// one after that.
pub const STALL_MAX: Duration = DEADLINE.saturating_mul(3);
/// How long a callback may be without an answer before the MGS is asked whether the client is there at all.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Pause before it is looked again whether a client is given up.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What a client says to a callback.
pub type CallbackAnswer = Result<Result<Reply, Code>, CallbackError>;

/// The way to the clients: the hub, but for tests.
pub trait Backchannel: Send + Sync + 'static {
    /// See [`Hub::call_back`].
    fn call_back(
        &self,
        target: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> BoxFuture<'static, CallbackAnswer>;

    /// See [`Hub::session_ended`].
    fn session_ended(&self, target: TargetId, session: u64);

    /// See [`Hub::absent_for`].
    fn absent_for(&self, target: TargetId, session: u64) -> Option<(Duration, bool)> {
        let _ = (target, session);
        None
    }

    /// See [`Hub::session_evicted`]. [`Backchannel::session_ended`] follows.
    fn session_evicted(&self, target: TargetId, session: u64) {
        let _ = (target, session);
    }

    /// See [`Hub::waits`].
    fn waits(&self, target: TargetId) -> Vec<(u64, String)> {
        let _ = target;
        Vec::new()
    }

    /// See [`rpc::Habits::callback_timeout`].
    fn callback_timeout(&self) -> Option<Duration> {
        None
    }
}

impl Backchannel for Hub {
    fn call_back(
        &self,
        target: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> BoxFuture<'static, CallbackAnswer> {
        let hub = self.clone();
        Box::pin(async move { hub.call_back(target, session, request, patience).await })
    }

    fn session_ended(&self, target: TargetId, session: u64) {
        Hub::session_ended(self, target, session);
    }

    fn absent_for(&self, target: TargetId, session: u64) -> Option<(Duration, bool)> {
        Hub::absent_for(self, target, session)
    }

    fn session_evicted(&self, target: TargetId, session: u64) {
        Hub::session_evicted(self, target, session);
    }

    fn waits(&self, target: TargetId) -> Vec<(u64, String)> {
        Hub::waits(self, target)
    }

    fn callback_timeout(&self) -> Option<Duration> {
        self.habits().callback_timeout
    }
}

/// Ends sessions: the target itself.
pub(crate) trait Doorman: Send + Sync {
    /// Ends a session against its client's will, and says why in the log.
    fn evict(&self, session: u64, why: &str);

    /// Whose session it is; `None` if it is over.
    fn client(&self, session: u64) -> Option<ClientId>;

    /// Whether the target is this server's beyond doubt: another owner may have heard of the client.
    fn is_sure(&self) -> bool;

    /// When the session's last request came; `None` if it is over.
    fn heard(&self, session: u64) -> Option<Time>;
}

/// What became of a callback.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// The client answered.
    Answered(Box<Reply>),
    /// The client knows no callbacks, so it holds nothing.
    Unknown,
    /// The session is over: it holds nothing any more.
    Gone,
    /// The target is being stopped; whether the client still holds something is not known.
    Stopped,
}

/// The clients of a target's sessions.
pub struct Clients {
    rt: Rt,
    target: TargetId,
    stop: Stop,
    backchannel: Arc<dyn Backchannel>,
    lives: Arc<Lives>,
    doorman: OnceLock<Weak<dyn Doorman>>,
}

/// Why a client did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It has no connection.
    Unreachable,
    /// It has one, and has got nothing done for [`STALL_MAX`].
    Stalled,
    /// The MGS has not heard of it for [`DEADLINE`].
    Lost,
}

impl Clients {
    pub(crate) fn new(
        rt: &Rt,
        target: TargetId,
        stop: Stop,
        backchannel: Arc<dyn Backchannel>,
        lives: Arc<Lives>,
    ) -> Clients {
        Clients { rt: rt.clone(), target, stop, backchannel, lives, doorman: OnceLock::new() }
    }

    /// Who ends sessions; told once, when the target has been made.
    pub(crate) fn set_doorman(&self, doorman: Weak<dyn Doorman>) {
        assert!(self.doorman.set(doorman).is_ok(), "a target is made once");
    }

    /// Who says which clients live.
    pub(crate) fn lives(&self) -> &Lives {
        &self.lives
    }

    pub(crate) fn ended(&self, session: u64) {
        self.backchannel.session_ended(self.target, session);
    }

    pub(crate) fn evicted(&self, session: u64) {
        self.backchannel.session_evicted(self.target, session);
    }

    /// What is waited for in the sessions, a line for each.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        let waits = self.backchannel.waits(self.target).into_iter();
        waits.map(|(session, text)| Wait { sessions: vec![session], text }).collect()
    }

    /// Calls the client of `session` back. One that refuses is evicted, and so is one that is dead, or was told in vain to
    /// drop what it holds: the answer is then [`Called::Gone`].
    pub async fn call_back(&self, session: u64, request: Request) -> Called {
        let mut fencing = false;
        let called = match self.backchannel.callback_timeout() {
            None => self.stop.unless(self.called(session, &request, &mut fencing)).await,
            Some(timeout) => self.stop.unless(self.called_within(timeout, session, &request)).await,
        };
        let called = called.unwrap_or(Called::Stopped);
        if fencing && !matches!(called, Called::Gone | Called::Stopped) {
            self.take_fence_back(session).await;
        }
        called
    }

    /// Has the client of `session` give back what it keeps; `None` if it does not answer. It is not evicted for that.
    pub(crate) async fn drain(&self, session: u64) -> Option<DrainDone> {
        let request = Request::Drain(Drain {});
        let patience = rpc::limits::RETURN_TIME;
        let answer = self.backchannel.call_back(self.target, session, request, patience);
        match self.stop.unless(answer).await? {
            Ok(Ok(Reply::Drain(done))) => Some(done),
            _ => None,
        }
    }

    /// Calls the client of `session` back, and waits for its answer for `time` at most; `None` without one. It is not
    /// evicted, whatever it does.
    pub async fn ask(&self, session: u64, request: Request, time: Duration) -> Option<Result<Reply, Code>> {
        let answer = self.backchannel.call_back(self.target, session, request, PATIENCE);
        self.stop.unless(self.rt.timeout(time, answer)).await??.ok()
    }

    /// Ends the session of a client that is dead beyond doubt: it has no connection, and its lease is over or given back. Whose machine
    /// went silent may be back with all that it holds, so it is not dead. Says whether the session was ended.
    pub async fn end_if_dead(&self, session: u64) -> bool {
        let why = self.stop.unless(self.why_dead(session)).await.flatten();
        let Some((why, doorman)) = why.zip(self.doorman()) else { return false };
        doorman.evict(session, &why);
        true
    }

    async fn why_dead(&self, session: u64) -> Option<String> {
        let (absent, silent) = self.backchannel.absent_for(self.target, session)?;
        if !self.lives.has_mgs() || !self.doorman()?.is_sure() {
            return None;
        }
        let client = self.client_of(session)?;
        match self.lives.ask_one(LeaseAsked { client, session, wish: ASKED }).await? {
            LEASE_LEFT => {}
            LEASE_OVER if !silent => {}
            _ => return None,
        }
        // It may have come back while the MGS was asked.
        self.backchannel.absent_for(self.target, session)?;
        Some(format!(
            "somebody wants what it has locked, it has had no connection for {absent:?}, and its lease is over"
        ))
    }

    async fn called(&self, session: u64, request: &Request, fencing: &mut bool) -> Called {
        let (name, start) = (request.name(), self.rt.now());
        let why = loop {
            let trouble = match self.attempt(session, request, start).await {
                Ok(Ok(reply)) => return Called::Answered(Box::new(reply)),
                Ok(Err(Code::NotSupported)) => return Called::Unknown,
                Ok(Err(code)) => break format!("it refused {name}: {code}"),
                Err(Some(trouble)) => trouble,
                Err(None) => {
                    let over = self.client_of(session).is_none();
                    return if over { Called::Gone } else { Called::Stopped };
                }
            };
            if let Some(why) = self.verdict(session, trouble, fencing).await {
                break why;
            }
            self.rt.sleep(LOOK_PAUSE).await;
        };
        if let Some(doorman) = self.doorman() {
            doorman.evict(session, &why);
        }
        Called::Gone
    }

    /// Calls back once, with a fixed time for the answer: what was done before anything adapted.
    async fn called_within(&self, timeout: Duration, session: u64, request: &Request) -> Called {
        let answer = self.backchannel.call_back(self.target, session, request.clone(), timeout);
        let why = match self.rt.timeout(timeout, answer).await {
            Some(Ok(Ok(reply))) => return Called::Answered(Box::new(reply)),
            Some(Ok(Err(Code::NotSupported))) => return Called::Unknown,
            Some(Ok(Err(code))) => format!("it refused {}: {code}", request.name()),
            Some(Err(CallbackError::Ended)) => {
                let over = self.client_of(session).is_none();
                return if over { Called::Gone } else { Called::Stopped };
            }
            Some(Err(CallbackError::Unreachable)) | None => {
                format!("lock callback timer expired after {}s", timeout.as_secs())
            }
        };
        if let Some(doorman) = self.doorman() {
            doorman.evict(session, &why);
        }
        Called::Gone
    }

    /// Calls once; an error if the client is not reached or gets nothing done, and an empty one if its session is over.
    async fn attempt(
        &self,
        session: u64,
        request: &Request,
        start: Time,
    ) -> Result<Result<Reply, Code>, Option<Trouble>> {
        // The MGS may know earlier than the clock that it is dead, and who has been away for long need not be waited for again.
        let patience = if self.lives.has_mgs() {
            let absent =
                self.backchannel.absent_for(self.target, session).map_or(Duration::ZERO, |(time, _)| time);
            rpc::limits::RETURN_TIME.saturating_sub(absent)
        } else {
            PATIENCE
        };
        let mut answer = self.backchannel.call_back(self.target, session, request.clone(), patience);
        loop {
            let heard = self.doorman().and_then(|doorman| doorman.heard(session)).unwrap_or(start);
            let end = heard.max(start) + STALL_MAX;
            let now = self.rt.now();
            if now >= end && self.lives.has_mgs() {
                return Err(Some(Trouble::Stalled));
            }
            let pause = if now >= end { STALL_MAX } else { end - now };
            match self.rt.timeout(pause.min(ANSWER_TIME), &mut answer).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(CallbackError::Unreachable)) => return Err(Some(Trouble::Unreachable)),
                Some(Err(CallbackError::Ended)) => return Err(None),
                None if self.is_lost(session).await => return Err(Some(Trouble::Lost)),
                // Perhaps it has got on meanwhile.
                None => {}
            }
        }
    }

    /// Whether the MGS has not heard of the client for so long that nobody waits for it any more.
    async fn is_lost(&self, session: u64) -> bool {
        let Some(client) = self.client_of(session) else { return false };
        let asked = LeaseAsked { client, session, wish: ASKED_TO_RETURN };
        self.lives.has_mgs() && self.lives.ask_one(asked).await == Some(LEASE_LONG_OVER)
    }

    /// Why the client is to be evicted, if it is.
    async fn verdict(&self, session: u64, trouble: Trouble, fencing: &mut bool) -> Option<String> {
        if !self.lives.has_mgs() {
            let (absent, silent) = self.backchannel.absent_for(self.target, session)?;
            let is_late = absent >= if silent { DEADLINE } else { PATIENCE };
            return is_late.then(|| {
                format!("somebody waits for what it holds, and it has had no connection for {absent:?}")
            });
        }
        if !self.doorman()?.is_sure() {
            return None;
        }
        let (why, late, wish) = match trouble {
            Trouble::Stalled => (format!("it has got nothing done for {STALL_MAX:?}"), true, ASKED_TO_FENCE),
            Trouble::Lost => (format!("nobody has heard of it for {DEADLINE:?}"), true, ASKED_TO_FENCE),
            Trouble::Unreachable => {
                let (absent, silent) = self.backchannel.absent_for(self.target, session)?;
                let wish = match silent {
                    _ if absent >= DEADLINE => ASKED_TO_FENCE,
                    // Whose machine went silent may be back, with all that it holds.
                    true => ASKED_TO_RETURN,
                    false => ASKED,
                };
                (format!("it has had no connection for {absent:?}"), absent >= PATIENCE, wish)
            }
        };
        let client = self.client_of(session)?;
        let ask = async |wish| self.lives.ask_one(LeaseAsked { client, session, wish }).await;
        *fencing |= wish == ASKED_TO_FENCE;
        let mut state = ask(wish).await?;
        let mut wish = wish;
        if state == LEASE_LONG_OVER {
            // Others have waited for it for as long as anybody has to.
            (wish, *fencing) = (ASKED_TO_FENCE, true);
            state = ask(wish).await?;
        }
        let lease = match state {
            LEASE_LEFT => "it has said goodbye to the MGS",
            _ if wish == ASKED_TO_RETURN => return None,
            LEASE_OVER if wish == ASKED_TO_FENCE => "its lease is over, or it has dropped what it held",
            LEASE_OVER => "its lease is over",
            LEASE_NONE if late => "it has no lease",
            _ => return None,
        };
        // It may have come back while the MGS was asked.
        if trouble == Trouble::Unreachable && wish != ASKED_TO_FENCE {
            self.backchannel.absent_for(self.target, session)?;
        }
        Some(format!("somebody waits for what it holds, {why}, and {lease}"))
    }

    /// See [`Hub::absent_for`].
    pub(crate) fn absent_for(&self, session: u64) -> Option<(Duration, bool)> {
        self.backchannel.absent_for(self.target, session)
    }

    /// The client is not to drop what it holds any more, if it has not heard of it yet.
    async fn take_fence_back(&self, session: u64) {
        if let Some(client) = self.client_of(session) {
            self.lives.ask_one(LeaseAsked { client, session, wish: ASKED }).await;
        }
    }

    fn client_of(&self, session: u64) -> Option<ClientId> {
        self.doorman()?.client(session)
    }

    fn doorman(&self) -> Option<Arc<dyn Doorman>> {
        self.doorman.get().and_then(Weak::upgrade)
    }
}
