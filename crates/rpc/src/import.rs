//! A client's end of a session with one target, as callers see it.
//!
//! Callers see one thing: a call that comes back with the reply, over as many reconnects as it takes. Behind it is a machine
//! ([`proto::session::machine`]) that says what to do, and a carrier that does it, [`crate::session`] or [`crate::tcp`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::seal::Protection;
use proto::session::machine::Phase;
pub use proto::session::machine::{Answered, CallError as RpcError};
use proto::session::{Estimated, Event};
use proto::wire::Request;
use proto::wire::messages::{Disconnect, Operation};
use proto::{ClientId, Code, Nid, TargetId, Transno};
use rt::Addr;

use crate::callback::Callbacks;
use crate::hub::Hub;
use crate::keys::Role;
use crate::limits;
use crate::session::Carrier;
use crate::session::Driver;
use crate::session::{Calling, Options};

/// How a session is open, for status displays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Nobody asked for anything yet.
    Idle,
    /// The target is not reached; callers wait.
    Connecting,
    /// The target is in this process.
    InProcess,
    /// The target is reached over a connection to this address.
    Connected(Addr),
    /// The session is over.
    Closed,
}

/// A session as status displays show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportState {
    /// How it is open.
    pub link: LinkState,
    /// Why the last attempt to reach the target failed, as a sentence; `None` while it is reached.
    pub problem: Option<String>,
    /// Requests sent over a connection that have no reply yet.
    pub in_flight: usize,
    /// Changes that are kept because they are not durable yet.
    pub retained_count: usize,
    /// Bytes of them.
    pub retained_bytes: usize,
    /// Every change up to here is durable.
    pub last_committed: Transno,
    /// How often the target had forgotten this client, and with it changes or requests.
    pub evictions: u64,
    /// How long answers take.
    pub answers: Estimated,
}

/// Is told how many bytes an import keeps of changes that are not durable: before, and now. Called with the import's state
/// locked: it must not call the import.
pub type Retaining = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// A client's end of a session with one target. Made by [`Hub::import`].
pub struct Import {
    driver: Arc<Driver>,
}

impl Import {
    pub(crate) fn new(
        hub: Hub,
        target: TargetId,
        client: ClientId,
        role: Role,
        nids: Vec<Nid>,
    ) -> Arc<Import> {
        Arc::new(Import { driver: Driver::new(hub, target, client, role, nids) })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The target is not served by this process any more.
    pub(crate) fn withdrawn(&self) {
        self.driver.lo_lost(None);
    }

    /// The target.
    pub fn target(&self) -> TargetId {
        self.driver.target
    }

    /// The session, as the target named it last; 0 before the first. Another one after the target restarted, or
    /// forgot the client.
    pub fn session(&self) -> u64 {
        self.driver.session()
    }

    /// The features of the session; none before the first.
    pub fn features(&self) -> u64 {
        self.driver.look_at(|state| state.machine.known().features)
    }

    /// The target's boot in which the session was opened last; 0 if there is no session.
    pub fn boot(&self) -> u64 {
        self.driver.look_at(|state| state.machine.known().boot)
    }

    /// Where the target may be reached from now on, best first.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        self.driver.on(Event::Addresses(nids));
    }

    /// The target is not asked from now on, and whoever wants to is refused with `why`; `None`: it is, again.
    pub fn bar(&self, why: Option<Code>) {
        self.driver.on(Event::Barred(why));
    }

    /// Sets what is done when the target calls back, and who hears of the session's fate. It has to be set before the
    /// first call; the import does not keep it alive.
    pub fn set_callbacks(&self, callbacks: Arc<dyn Callbacks>) {
        self.driver.called().set_callbacks(&callbacks);
    }

    /// Sends `operation` and waits for its reply, over as many reconnects as it takes.
    pub fn call<O: Operation>(&self, operation: O) -> Calling<'_, O> {
        Calling::new(&self.driver, operation, Vec::new(), Options::default())
    }

    /// The same with bulk.
    pub fn call_bulk<O: Operation>(&self, operation: O, bulk: Vec<Bytes>) -> Calling<'_, O> {
        Calling::new(&self.driver, operation, bulk, Options::default())
    }

    /// Sends all `operations`, which need not wait for one another, and waits for all replies; they are in order. As
    /// [`Import::call`] for each, but in few frames ([`Hub::together`]); more than there are slots wait.
    pub async fn batch<O: Operation>(&self, operations: Vec<O>) -> Vec<Result<Answered<O::Reply>, RpcError>> {
        let calls = operations.into_iter().map(|operation| self.call(operation)).collect();
        self.driver.hub.together_within(limits::TOGETHER_MAX, calls).await
    }

    /// Which session this is: it changes when the client's callbacks have heard that the target has forgotten it.
    pub fn era(&self) -> u64 {
        self.driver.era()
    }

    /// Like [`Import::call_bulk`], but [`proto::Code::Evicted`] if the session is another one by now. For what rests on
    /// something that the target had granted in the session.
    pub fn call_in_era<O: Operation>(&self, era: u64, operation: O, bulk: Vec<Bytes>) -> Calling<'_, O> {
        Calling::new(&self.driver, operation, bulk, Options { era: Some(era), ..Options::default() })
    }

    /// Like [`Import::call`], but gives up after `duration`. A change may happen nevertheless.
    pub async fn call_within<O: Operation>(
        &self,
        duration: Duration,
        operation: O,
    ) -> Option<Result<Answered<O::Reply>, RpcError>> {
        self.driver.hub.rt().timeout(duration, self.call(operation)).await
    }

    /// How many bytes may be written before they are sent, so that the target has space for them; `None` if it did not say.
    pub fn room(&self) -> Option<u64> {
        self.driver.look_at(|state| state.machine.commits().room().bytes())
    }

    /// Bytes of changes that were answered and are kept until they are durable. Nothing is kept for a target of this process.
    pub fn retained_bytes(&self) -> usize {
        self.driver.retained_bytes()
    }

    /// Says who is told when [`Import::retained_bytes`] changes; once, before the first call.
    pub fn set_retaining(&self, retaining: Retaining) {
        self.driver.set_retaining(retaining);
    }

    /// Asks for a commit of what is kept, unless one is under way.
    pub fn commit_soon(&self) {
        self.driver.on(Event::CommitKept);
    }

    /// Every change up to here is durable, as far as replies have told.
    pub fn last_committed(&self) -> Transno {
        self.driver.look_at(|state| state.machine.commits().last_committed())
    }

    /// Waits until every change up to `transno` is durable; asks the target to make it so. Refused with
    /// [`proto::Code::Evicted`] if the change is lost.
    pub async fn committed(&self, transno: Transno) -> Result<(), RpcError> {
        let failures = self.driver.look_at(|state| state.machine.commits().failures());
        loop {
            let advanced = self.driver.advanced();
            let (durable, phase) = self
                .driver
                .look_at(|state| (state.machine.commits().durable(transno, failures), state.machine.phase()));
            match (durable, phase) {
                (Some(durable), _) => return durable,
                // The target joins the requests for a commit by itself: no task is worth its switch.
                (None, Phase::Open { here: true }) => self.driver.sync(transno).await?,
                (None, _) => {
                    self.driver.on(Event::Commit(transno));
                    advanced.await;
                }
            }
        }
    }

    /// Whether the data of requests and answers gets a checksum of its own, where it is not authenticated anyway. It does unless this
    /// says otherwise (Lustre's `osc.*.checksums`).
    pub fn set_checksums(&self, on: bool) {
        self.driver.set_checksums(on);
    }

    /// How the frames of the connection are protected; `None` without one.
    pub fn protection(&self) -> Option<Protection> {
        self.driver.look_at(|state| match &state.carrier {
            Some(Carrier::Tcp(link)) => Some(link.protection()),
            Some(Carrier::Lo(_)) | None => None,
        })
    }

    /// How the session is.
    pub fn state(&self) -> ImportState {
        let now = self.driver.moment();
        self.driver.look_at(|state| {
            let machine = &state.machine;
            let link = match (machine.phase(), &state.carrier) {
                (Phase::Idle | Phase::Resting, _) => LinkState::Idle,
                (Phase::Closed, _) => LinkState::Closed,
                (Phase::Connecting, _) | (Phase::Open { .. }, None) => LinkState::Connecting,
                (Phase::Open { .. }, Some(Carrier::Lo(_))) => LinkState::InProcess,
                (Phase::Open { .. }, Some(Carrier::Tcp(link))) => LinkState::Connected(link.addr().clone()),
            };
            let (retained_count, retained_bytes) = machine.requests().retained();
            ImportState {
                link,
                problem: machine.trouble().problem.clone(),
                in_flight: machine.requests().unanswered().count(),
                retained_count,
                retained_bytes,
                last_committed: machine.commits().last_committed(),
                evictions: machine.trouble().evictions,
                answers: machine.requests().answers(now),
            }
        })
    }

    /// Whether the target is being looked for: its session is open, or is to be, and there is no connection.
    pub fn is_lost(&self) -> bool {
        self.driver.look_at(|state| {
            matches!(
                (state.machine.phase(), &state.carrier),
                (Phase::Connecting, _) | (Phase::Open { .. }, None)
            )
        })
    }

    /// What is waited for in this session, a line for each: requests over a connection that have no reply yet, and
    /// callbacks that are not answered yet.
    pub fn waits(&self) -> Vec<String> {
        let (target, now) = (self.driver.target, self.driver.moment());
        let mut lines = self.driver.look_at(|state| {
            let problem = state.machine.trouble().problem.as_ref();
            let mut lines: Vec<String> =
                problem.map(|problem| format!("{target} is not reached: {problem}")).into_iter().collect();
            for (sent, since) in state.machine.requests().unanswered() {
                let since = since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
                let what = match Request::take_body(sent.message.opcode, sent.message.body.clone()) {
                    Ok(request) => format!("{request:?}"),
                    Err(_) => format!("operation {}", sent.message.opcode),
                };
                lines.push(format!("{target} has not answered request {} for {since:?}: {what}", sent.xid.0));
            }
            lines
        });
        let called = self.driver.called().under_way().into_iter();
        lines.extend(called.map(|request| format!("{target} called back and has no answer: {request:?}")));
        lines
    }

    /// Opens the session anew, and comes back when that is done: whether the target knows the client still has been told
    /// ([`crate::Callbacks`]) by then. Nothing happens if there has been no session.
    pub async fn look(&self) -> Result<(), RpcError> {
        if self.driver.look_at(|state| state.machine.known().session) == 0 {
            return Ok(());
        }
        self.driver.on(Event::Look);
        self.driver.ready().await
    }

    /// Waits until the session is open, however long that takes.
    ///
    /// # Errors
    /// The target refuses this client, or is not to be asked.
    pub async fn reached(&self) -> Result<(), RpcError> {
        self.driver.ready().await
    }

    /// The session is over, as somebody else than the target has said: what the target granted counts no more, and what
    /// was sent and has no answer is given up as soon as the target is reached.
    pub fn forget_session(&self) {
        self.driver.on(Event::Forget);
    }

    /// Ends the session in order. One that is being opened is opened first: a target that restarts has it already, and would wait for
    /// what its client sends.
    pub async fn disconnect(&self) {
        let driver = &self.driver;
        if driver.look_at(|state| matches!(state.machine.phase(), Phase::Open { .. } | Phase::Connecting)) {
            let session = self.session();
            match self.call_within(limits::GOODBYE_TIME_MAX, Disconnect {}).await {
                // If the target is of this process; the hub of another one sees it by itself.
                Some(Ok(_)) => driver.hub.sessions().ended((driver.target, session)),
                _ => tracing::debug!(target = %driver.target, "no answer to the goodbye"),
            }
        }
        driver.close();
        driver.hub.forget(self);
    }

    /// Ends the session if it is open over a connection, nothing is under way or not durable, and `holds_nothing` says that
    /// nothing was granted in it; calls wait meanwhile. Whether it has ended.
    pub async fn rest(&self, holds_nothing: impl FnOnce() -> bool) -> bool {
        self.driver.rest(holds_nothing).await
    }
}
