//! A client's end of a session with one target.
//!
//! Callers see one thing: a call that comes back with the reply, over as many reconnects as it takes. Behind it the
//! session is open in one of two ways, [`crate::lo`] or [`crate::tcp`]; [`crate::connect`] opens it again when it
//! breaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use proto::limits::{BODY_BYTES_MAX, BULK_BYTES_MAX};
use proto::session::{Begun, ClientSession, Estimate, Estimated, Full, Limits};
use proto::wire::header::{HEADER_BYTES, JobId, Room, SLOT_NONE};
use proto::wire::messages::{Disconnect, Operation, Sync as SyncRequest};
use proto::wire::{Header, Reply, Request};
use proto::{ClientId, Code, Nid, TargetId, Transno, Xid};
use rt::sync::{Notify, oneshot};
use rt::{Addr, Time, Wall};

use crate::call::{Calling, Options};
use crate::callback::{Called, Told};
use crate::event::{Either, race};
use crate::frame;
use crate::hub::Hub;
use crate::keys::Role;
use crate::limits;
use crate::lo::{Lo, Marks};
use crate::tcp::Link;

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The target refused; nothing was changed.
    #[error("refused: {0}")]
    Refused(Code),
    /// The session is over: the process is stopping, or the target threw the client out.
    #[error("the session with the target is over")]
    Closed,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Answered<R> {
    /// What the target answered.
    pub reply: R,
    /// The reply's bulk.
    pub bulk: Vec<Bytes>,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// The session in which the target answered ([`Import::session`]): what it granted holds in this one only.
    pub session: u64,
}

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

/// What is needed to send a request, as often as it takes.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) opcode: u16,
    pub(crate) changes: bool,
    pub(crate) waits: bool,
    /// It tells of life: it is sent again at a steady pace, however long other answers take.
    pub(crate) pulses: bool,
    pub(crate) contends: bool,
    pub(crate) body: Bytes,
    pub(crate) bulk: Vec<Bytes>,
    pub(crate) job: JobId,
    pub(crate) deadline_ms: u32,
}

impl Message {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.bulk.iter().map(Bytes::len).sum::<usize>()
    }
}

/// A reply as it came in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) xid: Xid,
    pub(crate) session_epoch: u64,
    pub(crate) transno: Transno,
    pub(crate) last_committed: Transno,
    pub(crate) result: Result<Reply, Code>,
    pub(crate) bulk: Vec<Bytes>,
}

pub(crate) type Outcome = Result<Answered<Reply>, Code>;

/// A reply that counts, and who waits for it.
enum Settled {
    Replay(oneshot::Sender<Result<(), Code>>, Result<(), Code>),
    Restated(oneshot::Sender<Result<Reply, Code>>, Result<Reply, Code>),
    Answer(Option<oneshot::Sender<Outcome>>, Outcome),
}

impl Settled {
    /// Whether the reply's marks are those of the session as it is.
    fn is_change(&self) -> bool {
        !matches!(self, Settled::Restated(..))
    }
}

/// A request in flight: who waits for it, and when to send it again.
pub(crate) struct Flight {
    pub(crate) waiter: Option<oneshot::Sender<Outcome>>,
    pub(crate) resend_at: Time,
    pub(crate) resend_after: Duration,
    /// Whether it may take as long as others like.
    pub(crate) waits: bool,
    /// See [`Message::pulses`].
    pub(crate) pulses: bool,
    /// When it was sent again last.
    pub(crate) resent_at: Option<Time>,
    /// When it was sent first.
    since: Time,
    pub(crate) arrived: Arrived,
}

/// Whether a request has been with the target since it was sent first: then its answer says how long the target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// As far as is known.
    Yes,
    /// It was sent again, and the target has not said anything.
    Perhaps,
    /// Its connection broke, and the target may have been away.
    No,
}

impl Flight {
    pub(crate) fn new(
        waiter: Option<oneshot::Sender<Outcome>>,
        message: &Message,
        resend_after: Duration,
        now: Time,
    ) -> Flight {
        Flight {
            waiter,
            resend_at: now + resend_after,
            resend_after,
            waits: message.waits,
            pulses: message.pulses,
            resent_at: None,
            since: now,
            arrived: Arrived::Yes,
        }
    }
}

/// A replay whose reply is awaited.
pub(crate) struct Replaying {
    pub(crate) header: Header,
    pub(crate) message: Arc<Message>,
    pub(crate) waiter: oneshot::Sender<Result<(), Code>>,
}

/// How the session is open.
pub(crate) enum Phase {
    Idle,
    /// A task ([`crate::connect`]) is at work.
    Connecting,
    Lo(Arc<Lo>),
    Tcp(Arc<Link>),
    /// It is being ended, because nobody needs it ([`crate::rest`]).
    Resting,
    Closed,
}

/// The one Sync that may be under way.
#[derive(Default)]
pub(crate) struct Syncing {
    running: bool,
    pub(crate) wanted: Transno,
    /// Counts failures, so that each waiter sees those that came while it waited.
    failures: u64,
    failure: Option<RpcError>,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) nids: Vec<Nid>,
    pub(crate) requests: ClientSession<Message>,
    pub(crate) flights: BTreeMap<Xid, Flight>,
    /// The replay whose reply is awaited.
    pub(crate) replaying: Option<Replaying>,
    /// Who waits for the answers to what is stated again.
    pub(crate) restating: BTreeMap<Xid, oneshot::Sender<Result<Reply, Code>>>,
    pub(crate) told: Told,
    /// The target restarted, and was not told yet that no more replays come.
    pub(crate) recovering: bool,
    /// Until when those who watch requests sleep; `None` if nobody watches.
    pub(crate) watched_until: Option<Time>,
    pub(crate) session: u64,
    pub(crate) session_epoch: u64,
    /// How often in a row the target knew a larger epoch.
    pub(crate) outgrown: u32,
    /// The target takes several requests in one frame.
    pub(crate) batches: bool,
    /// The target's boot; 0 while there is no session.
    pub(crate) boot: u64,
    pub(crate) backoff: Duration,
    /// How long answers take.
    pub(crate) answers: Estimate,
    pub(crate) problem: Option<String>,
    /// Counts refusals of a connect, so that each caller sees those that came while it waited.
    pub(crate) refusals: u64,
    pub(crate) refusal: Option<Code>,
    pub(crate) evictions: u64,
    /// Grows whenever the target knew nothing of this client: transnos of before and after do not compare.
    pub(crate) generation: u64,
    /// Changes that were answered and are gone for ever: each range without its first, with its last.
    pub(crate) lost: Vec<(Transno, Transno)>,
    pub(crate) syncing: Syncing,
}

/// Is told how many bytes an import keeps of changes that are not durable: before, and now. Called with the import's state
/// locked: it must not call the import.
pub type Retaining = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// A client's end of a session with one target. Made by [`Hub::import`].
pub struct Import {
    pub(crate) me: Weak<Import>,
    pub(crate) hub: Hub,
    pub(crate) target: TargetId,
    pub(crate) client: ClientId,
    pub(crate) role: Role,
    /// The way of every request to a target of this process; empty if the target is elsewhere.
    pub(crate) lo: RwLock<Option<Arc<Lo>>>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) state: Mutex<State>,
    pub(crate) called: Mutex<Called>,
    /// The newest session; 0 before the first.
    pub(crate) session: AtomicU64,
    /// How often the target has forgotten the client.
    pub(crate) era: AtomicU64,
    /// Bytes of changes that are kept, and who is told when that changes.
    retained: AtomicUsize,
    retaining: OnceLock<Retaining>,
    /// The phase changed, or there is room for requests again.
    pub(crate) changed: Notify,
    /// The target may be reached elsewhere than before.
    pub(crate) moved: Notify,
    /// Told when a request is to be looked at before the moment for which those who watch them wait.
    pub(crate) earlier: Notify,
}

pub(crate) enum Ready {
    Lo(Arc<Lo>),
    Tcp(Arc<Link>),
}

impl Import {
    pub(crate) fn new(
        hub: Hub,
        target: TargetId,
        client: ClientId,
        role: Role,
        nids: Vec<Nid>,
    ) -> Arc<Import> {
        let bounds = Limits {
            requests_max: limits::REQUESTS_MAX,
            waiting_max: limits::WAITING_MAX,
            retained_count_max: limits::RETAINED_COUNT_MAX,
            retained_bytes_max: limits::RETAINED_BYTES_MAX,
        };
        let state = State {
            phase: Phase::Idle,
            nids,
            requests: ClientSession::new(bounds),
            flights: BTreeMap::new(),
            replaying: None,
            restating: BTreeMap::new(),
            told: Told::Nothing,
            recovering: false,
            watched_until: None,
            session: 0,
            // Epochs go on growing if the same client comes back with a new import, after a reboot of its machine too.
            session_epoch: first_epoch(hub.incarnation(client), hub.rt().wall()),
            outgrown: 0,
            batches: false,
            boot: 0,
            backoff: Duration::ZERO,
            answers: Estimate::default(),
            problem: None,
            refusals: 0,
            refusal: None,
            evictions: 0,
            generation: 0,
            lost: Vec::new(),
            syncing: Syncing::default(),
        };
        Arc::new_cyclic(|me| Import {
            me: me.clone(),
            hub,
            target,
            client,
            role,
            lo: RwLock::new(None),
            marks: Arc::new(Marks::default()),
            state: Mutex::new(state),
            called: Mutex::new(Called::default()),
            session: AtomicU64::new(0),
            era: AtomicU64::new(0),
            retained: AtomicUsize::new(0),
            retaining: OnceLock::new(),
            changed: Notify::new(),
            moved: Notify::new(),
            earlier: Notify::new(),
        })
    }

    /// The target.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// The session, as the target named it last; 0 before the first. Another one after the target restarted, or
    /// forgot the client.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// The target's boot in which the session was opened last; 0 if there is no session.
    pub fn boot(&self) -> u64 {
        self.state.lock().boot
    }

    /// Where the target may be reached from now on, best first.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        let mut state = self.state.lock();
        if state.nids != nids {
            state.nids = nids;
            self.look_again(&mut state);
        }
    }

    /// The target has an owner of this epoch: a session with one of before is over, even if that one still says something.
    pub(crate) fn owned_by(&self, epoch: u64) {
        let mut state = self.state.lock();
        if state.boot != 0 && state.boot < epoch && matches!(state.phase, Phase::Tcp(_)) {
            tracing::info!(target = %self.target, epoch, "the target has moved");
            self.start_connecting(&mut state);
        }
    }

    /// Whoever tries to reach the target begins anew, at once.
    fn look_again(&self, state: &mut State) {
        state.backoff = Duration::ZERO;
        self.moved.notify_waiters();
    }

    /// Sends `operation` and waits for its reply, over as many reconnects as it takes.
    pub fn call<O: Operation>(&self, operation: O) -> Calling<'_, O> {
        Calling::new(self, operation, Vec::new(), Options::default())
    }

    /// The same with bulk.
    pub fn call_bulk<O: Operation>(&self, operation: O, bulk: Vec<Bytes>) -> Calling<'_, O> {
        Calling::new(self, operation, bulk, Options::default())
    }

    /// The same as part of a job.
    pub fn call_in_job<O: Operation>(&self, job: JobId, operation: O, bulk: Vec<Bytes>) -> Calling<'_, O> {
        Calling::new(self, operation, bulk, Options { job, ..Options::default() })
    }

    /// Sends all `operations`, which need not wait for one another, and waits for all replies; they are in order. As
    /// [`Import::call`] for each, but in few frames ([`Hub::together`]); more than there are slots wait.
    pub async fn batch<O: Operation>(&self, operations: Vec<O>) -> Vec<Result<Answered<O::Reply>, RpcError>> {
        let calls = operations.into_iter().map(|operation| self.call(operation)).collect();
        self.hub.together_within(limits::TOGETHER_MAX, calls).await
    }

    /// Which session this is: it changes when the client's callbacks have heard that the target has forgotten it.
    pub fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Like [`Import::call_bulk`], but [`Code::Evicted`] if the session is another one by now. For what rests on something
    /// that the target had granted in the session.
    pub fn call_in_era<O: Operation>(&self, era: u64, operation: O, bulk: Vec<Bytes>) -> Calling<'_, O> {
        Calling::new(self, operation, bulk, Options { era: Some(era), ..Options::default() })
    }

    /// Whether a request that belongs to a session may be sent still.
    pub(crate) fn is_in(&self, era: Option<u64>) -> bool {
        era.is_none_or(|era| era == self.era())
    }

    /// Like [`Import::call`], but gives up after `duration`. A change may happen nevertheless.
    pub async fn call_within<O: Operation>(
        &self,
        duration: Duration,
        operation: O,
    ) -> Option<Result<Answered<O::Reply>, RpcError>> {
        let deadline_ms = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let options = Options { deadline_ms, ..Options::default() };
        let call = Calling::new(self, operation, Vec::new(), options);
        self.hub.rt().timeout(duration, call).await
    }

    /// How many bytes may be written before they are sent, so that the target has space for them; `None` if it did not say.
    pub fn room(&self) -> Option<u64> {
        self.marks.room().bytes()
    }

    pub(crate) fn note_room(&self, room: Room) {
        self.marks.note_room(room);
    }

    /// Bytes of changes that were answered and are kept until they are durable. Nothing is kept for a target of this process.
    pub fn retained_bytes(&self) -> usize {
        self.retained.load(Ordering::Relaxed)
    }

    /// Says who is told when [`Import::retained_bytes`] changes; once, before the first call.
    pub fn set_retaining(&self, retaining: Retaining) {
        assert!(self.retaining.set(retaining).is_ok(), "one is told what is retained");
    }

    /// To be called after every step that may change what is kept.
    pub(crate) fn count_retained(&self, state: &State) {
        let (_, now) = state.requests.retained();
        let before = self.retained.swap(now, Ordering::Relaxed);
        if let Some(retaining) = self.retaining.get().filter(|_| before != now) {
            retaining(before, now);
        }
    }

    /// Asks for a commit of what is kept, unless one is under way.
    pub fn commit_soon(&self) {
        let mut state = self.state.lock();
        let is_open = matches!(state.phase, Phase::Tcp(_));
        if is_open && state.requests.retained().0 > 0 {
            self.want_sync(&mut state, Transno(0));
        }
    }

    /// Every change up to here is durable, as far as replies have told.
    pub fn last_committed(&self) -> Transno {
        self.marks.last_committed()
    }

    /// Waits until every change up to `transno` is durable; asks the target to make it so. Refused with
    /// [`Code::Evicted`] if the change is lost.
    pub async fn committed(&self, transno: Transno) -> Result<(), RpcError> {
        let failures = self.state.lock().syncing.failures;
        loop {
            let advanced = self.marks.advanced();
            let here = self.lo.read().is_some();
            {
                let mut state = self.state.lock();
                if state.lost.iter().any(|(from, to)| *from < transno && transno <= *to) {
                    return Err(RpcError::Refused(Code::Evicted));
                }
                if self.marks.last_committed() >= transno {
                    return Ok(());
                }
                if let Some(failure) = state.syncing.failure.filter(|_| state.syncing.failures > failures) {
                    return Err(failure);
                }
                if !here {
                    self.want_sync(&mut state, transno);
                }
            }
            match here {
                // The target joins the requests for a commit by itself: no task is worth its switch.
                true => self.sync(transno).await?,
                false => advanced.await,
            }
        }
    }

    /// How the session is.
    pub fn state(&self) -> ImportState {
        let state = self.state.lock();
        let link = match &state.phase {
            Phase::Idle | Phase::Resting => LinkState::Idle,
            Phase::Connecting => LinkState::Connecting,
            Phase::Lo(_) => LinkState::InProcess,
            Phase::Tcp(link) => LinkState::Connected(link.addr().clone()),
            Phase::Closed => LinkState::Closed,
        };
        let (retained_count, retained_bytes) = state.requests.retained();
        ImportState {
            link,
            problem: state.problem.clone(),
            in_flight: state.requests.in_flight_count(),
            retained_count,
            retained_bytes,
            last_committed: self.marks.last_committed(),
            evictions: state.evictions,
            answers: state.answers.at(self.hub.rt().now() - Time::default()),
        }
    }

    /// What is waited for in this session, a line for each: requests over a connection that have no reply yet, and
    /// callbacks that are not answered yet.
    pub fn waits(&self) -> Vec<String> {
        let (target, now) = (self.target, self.hub.rt().now());
        let mut lines = Vec::new();
        {
            let state = self.state.lock();
            if let Some(problem) = &state.problem {
                lines.push(format!("{target} is not reached: {problem}"));
            }
            for sent in state.requests.sent() {
                let since = state.flights.get(&sent.xid).map_or(Duration::ZERO, |flight| now - flight.since);
                let what = match Request::take_body(sent.message.opcode, sent.message.body.clone()) {
                    Ok(request) => format!("{request:?}"),
                    Err(_) => format!("operation {}", sent.message.opcode),
                };
                lines.push(format!("{target} has not answered request {} for {since:?}: {what}", sent.xid.0));
            }
        }
        let called = self.under_way().into_iter();
        lines.extend(called.map(|request| format!("{target} called back and has no answer: {request:?}")));
        lines
    }

    /// Ends the session in order.
    pub async fn disconnect(&self) {
        let open = matches!(self.state.lock().phase, Phase::Lo(_) | Phase::Tcp(_));
        if open {
            let session = self.session();
            match self.call_within(limits::GOODBYE_TIME_MAX, Disconnect {}).await {
                // If the target is of this process; the hub of another one sees it by itself.
                Some(Ok(_)) => self.hub.sessions().ended((self.target, session)),
                _ => tracing::debug!(target = %self.target, "no answer to the goodbye"),
            }
        }
        self.close();
        self.hub.forget(self);
    }

    /// Ends the session here; whoever waits is told.
    pub(crate) fn close(&self) {
        let (link, flights) = {
            let mut state = self.state.lock();
            *self.lo.write() = None;
            let link = match std::mem::replace(&mut state.phase, Phase::Closed) {
                Phase::Tcp(link) => Some((link, state.session)),
                _ => None,
            };
            state.replaying = None;
            state.restating.clear();
            state.syncing.failures += 1;
            state.syncing.failure = Some(RpcError::Closed);
            (link, std::mem::take(&mut state.flights))
        };
        // Dropping the waiters' senders tells them.
        drop(flights);
        self.called_no_more();
        self.hub.sessions().lost_here((self.target, self.session()));
        if let Some((link, session)) = link {
            link.leave(self.target, session);
            link.close_if_idle();
        }
        self.changed.notify_waiters();
        self.marks.wake();
    }

    /// Every case of a call: connecting, waiting for a slot, a target elsewhere.
    pub(crate) async fn request(
        &self,
        request: Request,
        bulk: Vec<Bytes>,
        options: Options,
    ) -> Result<Answered<Reply>, RpcError> {
        let mut message = None;
        let mut pause = limits::BACKOFF_MIN;
        loop {
            let lo = self.lo.read().clone();
            let ready = match lo {
                Some(lo) => Ready::Lo(lo),
                None => self.ready().await?,
            };
            if !self.is_in(options.era) {
                return Err(RpcError::Refused(Code::Evicted));
            }
            let outcome = match &ready {
                Ready::Lo(lo) => {
                    // The copies are for the rare case that the target is not there any more.
                    let answer = lo.clone().call(request.clone(), bulk.clone(), options.job).await;
                    let (bulk, transno, session) = (answer.bulk, answer.transno, lo.session());
                    answer.result.map(|reply| Answered { reply, bulk, transno, session })
                }
                Ready::Tcp(link) => {
                    let message = match &message {
                        Some(message) => Arc::clone(message),
                        None => message.insert(encode(&request, &bulk, options)?).clone(),
                    };
                    match self.call_over(link, message, options.era).await? {
                        Some(outcome) => outcome,
                        None => continue,
                    }
                }
            };
            match (outcome, &ready) {
                (Ok(answered), _) => return Ok(answered),
                (Err(Code::TryAgain), _) => {
                    self.hub.rt().sleep(pause).await;
                    pause = (pause * 2).min(limits::BACKOFF_MAX);
                }
                (Err(Code::NoSession | Code::NotHere), Ready::Lo(lo)) => self.lo_lost(lo),
                (Err(code), _) => return Err(RpcError::Refused(code)),
            }
        }
    }

    /// Waits until the session is open.
    pub(crate) async fn ready(&self) -> Result<Ready, RpcError> {
        let mut refusals = None;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                let seen = *refusals.get_or_insert(state.refusals);
                if let Some(code) = state.refusal.filter(|_| state.refusals > seen) {
                    return Err(RpcError::Refused(code));
                }
                match &state.phase {
                    Phase::Lo(lo) => return Ok(Ready::Lo(lo.clone())),
                    Phase::Tcp(link) => return Ok(Ready::Tcp(link.clone())),
                    Phase::Closed => return Err(RpcError::Closed),
                    Phase::Connecting | Phase::Resting => {}
                    Phase::Idle => self.start_connecting(&mut state),
                }
            }
            changed.await;
        }
    }

    /// Sends a request over `link` and waits for the outcome; `None` if the session moved before it was sent.
    async fn call_over(
        &self,
        link: &Arc<Link>,
        message: Arc<Message>,
        era: Option<u64>,
    ) -> Result<Option<Outcome>, RpcError> {
        let (reply, xid) = loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                match &state.phase {
                    // A link of another session is there only after the era has changed.
                    Phase::Tcp(now) if Arc::ptr_eq(now, link) && self.is_in(era) => {}
                    _ => return Ok(None),
                }
                match begin(&mut state.requests, &message) {
                    Ok(begun) => {
                        let (waiter, reply) = oneshot::channel();
                        let now = self.hub.rt().now();
                        let after = self.resend_after(&state, &message, now);
                        let flight = Flight::new(Some(waiter), &message, after, now);
                        self.watch(&mut state, flight.resend_at);
                        state.flights.insert(begun.xid, flight);
                        let header = self.header(&state, &message, begun.xid, begun.slot);
                        let batches = state.batches;
                        drop(state);
                        match batches {
                            true => self.hub.gathering().send(link, header, &message),
                            false => link.send(header, &message),
                        }
                        break (reply, begun.xid);
                    }
                    Err(Full::Retained) => self.want_sync(&mut state, Transno(0)),
                    Err(Full::Slots | Full::Requests | Full::Waiting) => {}
                }
            }
            changed.await;
        };
        let waiting = InFlight { import: self, xid };
        let outcome = reply.await.map_err(|_| RpcError::Closed)?;
        std::mem::forget(waiting);
        Ok(Some(outcome))
    }

    /// When a request without a reply is sent again first.
    pub(crate) fn resend_after(&self, state: &State, message: &Message, now: Time) -> Duration {
        match self.hub.habits().slow_retries {
            _ if message.waits => limits::RESEND_WAITING,
            Some(slow) => slow.resend,
            None if message.pulses => limits::RESEND_MIN,
            None => state.answers.patience(now - Time::default(), limits::RESEND_MAX),
        }
    }

    /// The header of a request of this session.
    pub(crate) fn header(&self, state: &State, message: &Message, xid: Xid, slot: Option<u32>) -> Header {
        Header {
            session: state.session,
            session_epoch: state.session_epoch,
            slot: slot.unwrap_or(SLOT_NONE),
            deadline_ms: message.deadline_ms,
            job: message.job,
            ..frame::header(message.opcode, self.target, xid)
        }
    }

    /// Replies came, in one frame.
    pub(crate) fn incoming(&self, replies: impl IntoIterator<Item = Incoming>) {
        let mut settled = Vec::new();
        let mut roomier = false;
        {
            let mut state = self.state.lock();
            for reply in replies {
                let (transno, last_committed) = (reply.transno, reply.last_committed);
                if let Some(one) = self.settle(&mut state, reply, &mut roomier) {
                    settled.push((one, transno, last_committed));
                }
            }
        }
        for (_, transno, last_committed) in settled.iter().filter(|(one, ..)| one.is_change()) {
            self.marks.note(*transno, *last_committed);
        }
        if roomier {
            self.changed.notify_waiters();
        }
        // A caller that has gone does not want the outcome.
        for (one, ..) in settled {
            match one {
                Settled::Replay(waiter, result) => drop(waiter.send(result)),
                Settled::Restated(waiter, result) => drop(waiter.send(result)),
                Settled::Answer(Some(waiter), outcome) => drop(waiter.send(outcome)),
                Settled::Answer(None, _) => {}
            }
        }
    }

    /// Takes note of a reply: who is to be told. `None` if it counts no more, or is no answer.
    fn settle(&self, state: &mut State, incoming: Incoming, roomier: &mut bool) -> Option<Settled> {
        let Incoming { xid, session_epoch, transno, last_committed, result, bulk } = incoming;
        // What an older connection still delivers was sent again over the newer one, and is answered there.
        if session_epoch != state.session_epoch {
            return None;
        }
        if state.replaying.as_ref().is_some_and(|replay| replay.header.xid == xid) {
            state.requests.committed(last_committed);
            self.count_retained(state);
            let Replaying { waiter, .. } = state.replaying.take()?;
            return Some(Settled::Replay(waiter, result.map(drop)));
        }
        if let Some(waiter) = state.restating.remove(&xid) {
            return Some(Settled::Restated(waiter, result));
        }
        if matches!(result, Err(Code::NoSession | Code::NotHere)) {
            // The request stays in flight: connecting again sends it again.
            if let Phase::Tcp(_) = &state.phase {
                self.start_connecting(state);
            }
            return None;
        }
        let before = state.requests.last_committed();
        let answered = state.requests.answered(xid, transno, last_committed);
        self.count_retained(state);
        *roomier |= answered.known || state.requests.last_committed() > before;
        if answered.commit_wanted {
            self.want_sync(state, Transno(0));
        }
        state.backoff = Duration::ZERO;
        let (flight, session) = (state.flights.remove(&xid), state.session);
        if let Some(flight) = flight.as_ref().filter(|flight| flight.arrived == Arrived::Yes && !flight.waits)
        {
            let now = self.hub.rt().now();
            state.answers.note(now - Time::default(), now - flight.since);
        }
        let outcome = result.map(|reply| Answered { reply, bulk, transno, session });
        Some(Settled::Answer(flight.and_then(|flight| flight.waiter), outcome))
    }

    /// The target says that a request is under way.
    pub(crate) fn under_way_there(&self, xid: Xid, session_epoch: u64) {
        let mut state = self.state.lock();
        if session_epoch == state.session_epoch
            && let Some(flight) = state.flights.get_mut(&xid)
            && flight.arrived == Arrived::Perhaps
        {
            flight.arrived = Arrived::Yes;
        }
    }

    /// The target has not got a request, or answered it and the answer was lost.
    pub(crate) fn send_again(&self, link: &Link, xid: Xid, session_epoch: u64) {
        let state = self.state.lock();
        if session_epoch != state.session_epoch {
            return;
        }
        if let Some(replay) = state.replaying.as_ref().filter(|replay| replay.header.xid == xid) {
            link.send_again(replay.header.clone(), &replay.message);
        } else if let Some(sent) = state.requests.in_flight(xid) {
            link.send_again(self.header(&state, &sent.message, sent.xid, sent.slot), &sent.message);
        }
    }

    /// Asks for a commit up to `transno` (0: of everything answered so far) unless one is on its way; then another
    /// follows it if it is not enough.
    pub(crate) fn want_sync(&self, state: &mut State, transno: Transno) {
        let newest = self.marks.newest();
        let wanted = if transno == Transno(0) { newest } else { transno };
        state.syncing.wanted = state.syncing.wanted.max(wanted);
        if state.syncing.running {
            return;
        }
        state.syncing.running = true;
        let Some(import) = self.me.upgrade() else { return };
        self.hub.rt().spawn(async move { import.sync_all().await });
    }

    async fn sync_all(&self) {
        loop {
            let wanted = {
                let mut state = self.state.lock();
                let wanted = state.syncing.wanted;
                if wanted <= self.marks.last_committed() {
                    state.syncing.running = false;
                    return;
                }
                wanted
            };
            if let Err(error) = self.sync(wanted).await {
                {
                    let mut state = self.state.lock();
                    let failures = state.syncing.failures + 1;
                    state.syncing =
                        Syncing { running: false, wanted: Transno(0), failures, failure: Some(error) };
                }
                self.marks.wake();
                // Who waits for room to send a change asks again, in a while.
                self.hub.rt().sleep(limits::BACKOFF_MAX).await;
                self.changed.notify_waiters();
                return;
            }
        }
    }

    /// Asks once for a commit up to `transno` and waits for it.
    pub(crate) async fn sync(&self, transno: Transno) -> Result<(), RpcError> {
        let generation = self.state.lock().generation;
        let request = self.request(SyncRequest { transno }.into(), Vec::new(), Options::default());
        match race(self.hub.ended().wait(), request).await {
            Either::First(()) => return Err(RpcError::Closed),
            Either::Second(done) => done?,
        };
        {
            let mut state = self.state.lock();
            // The reply comes when the changes are durable, but a target that forgot the client meanwhile speaks of
            // others.
            if state.generation == generation {
                state.requests.committed(transno);
                self.count_retained(&state);
                self.marks.note_committed(transno);
            }
        }
        self.changed.notify_waiters();
        Ok(())
    }
}

/// From here on are epochs of clients that count their incarnations; what clocks give is below for another 200 years.
const INCARNATIONS: u64 = 1 << 63;
/// Epochs of one incarnation.
const EPOCHS_BITS: u32 = 24;

fn first_epoch(incarnation: Option<u64>, wall: Wall) -> u64 {
    if let Some(incarnation) = incarnation {
        // Clocks of several machines may differ.
        return INCARNATIONS | (incarnation << EPOCHS_BITS);
    }
    u64::try_from(wall.secs).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::from(wall.nanos))
}

/// Takes a request up, by what it may do.
pub(crate) fn begin(requests: &mut ClientSession<Message>, message: &Arc<Message>) -> Result<Begun, Full> {
    let (bytes, kept) = (message.bytes(), message.clone());
    match (message.waits, message.contends) {
        (true, _) => requests.begin_waiting(bytes, kept),
        (false, true) => requests.begin_contending(message.changes, bytes, kept),
        (false, false) => requests.begin(message.changes, bytes, kept),
    }
}

pub(crate) fn encode(request: &Request, bulk: &[Bytes], options: Options) -> Result<Arc<Message>, RpcError> {
    let mut body = Vec::with_capacity(256);
    request.put_body(&mut body);
    let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
    if body.len() > BODY_BYTES_MAX || bulk_bytes > BULK_BYTES_MAX {
        return Err(RpcError::Refused(Code::TooBig));
    }
    Ok(Arc::new(Message {
        opcode: request.opcode(),
        changes: request.changes(),
        waits: request.waits(),
        pulses: request.pulses(),
        contends: request.contends(),
        body: Bytes::from(body),
        bulk: bulk.to_vec(),
        job: options.job,
        deadline_ms: options.deadline_ms,
    }))
}

/// A caller that waits for a reply; tells the session if it goes away.
struct InFlight<'a> {
    import: &'a Import,
    xid: Xid,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.import.state.lock();
        if state.requests.forget(self.xid) {
            state.flights.remove(&self.xid);
            drop(state);
            self.import.changed.notify_waiters();
        } else if let Some(flight) = state.flights.get_mut(&self.xid) {
            flight.waiter = None;
        }
    }
}
