//! How a session is opened, and opened again after its connection or its target was lost.
//!
//! One task per import does it, while callers wait: reach the target, say who one is, replay what the target lost
//! in a restart, send again what had no reply, let the callers go on (`docs/wire.md#sessions`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use proto::session::{Outcome, Resumption, Retained, Sent};
use proto::wire::header::{FLAG_REPLAY, FLAG_RESENT};
use proto::wire::messages::{Connect, Connected, FEATURE_BATCH, FEATURE_LOCKS, FEATURES_ALL};
use proto::wire::{Header, Reply, Request};
use proto::{Code, Nid, Transno, Xid};
use rt::sync::oneshot;

use crate::address::dialled;
use crate::callback::{Restate, Told};
use crate::event::{Either, race};
use crate::frame;
use crate::import::{Import, Incoming, Message, Outcome as ImportOutcome, Phase, Replaying, RpcError, State};
use crate::limits;
use crate::lo::{Lo, LoConfig};
use crate::service::{Answer, Call, Origin, Peer, Service};
use crate::tcp::{Link, LinkError};

/// Each refused epoch is followed by one that is larger by twice as much as before, up to this power of two.
const OUTGROW_MAX: u32 = 56;

/// Why an attempt to open the session failed.
enum Failure {
    /// It is worth trying again.
    Again(String),
    /// Whoever waits has to know: trying again changes nothing by itself.
    Refused(Code, String),
    /// The import is closed.
    Closed,
}

/// Something that brings requests to the target.
#[derive(Clone)]
pub(crate) enum Carrier {
    Lo(Arc<dyn Service>, Peer),
    Tcp(Arc<Link>),
}

impl Import {
    /// Starts the task that opens the session. The caller has found it not open, or not open any more.
    pub(crate) fn start_connecting(&self, state: &mut State) {
        match &state.phase {
            Phase::Tcp(link) => link.leave(self.target, state.session),
            Phase::Lo(_) => self.hub.sessions().lost_here((self.target, state.session)),
            Phase::Idle | Phase::Connecting | Phase::Resting | Phase::Closed => {}
        }
        self.called_no_more();
        state.phase = Phase::Connecting;
        if let Some(import) = self.me.upgrade() {
            self.hub.rt().spawn(async move { import.connect().await });
        }
    }

    /// The target of this process, reached through `lo`, is not there any more, or forgot the session.
    pub(crate) fn lo_lost(&self, lo: &Arc<Lo>) {
        let mut state = self.state.lock();
        if !matches!(&state.phase, Phase::Lo(now) if Arc::ptr_eq(now, lo)) {
            return;
        }
        self.break_off(&mut state);
    }

    /// The target is not served in this process any more: the next call looks where it is.
    pub(crate) fn withdrawn(&self) {
        let lo = self.lo.read().clone();
        if let Some(lo) = lo {
            self.lo_lost(&lo);
        }
    }

    /// Opens the session anew, and comes back when that is done: whether the target knows the client still has been told
    /// ([`crate::Callbacks`]) by then. Nothing happens if there has been no session.
    pub async fn look(&self) -> Result<(), RpcError> {
        {
            let mut state = self.state.lock();
            if state.session == 0 {
                return Ok(());
            }
            self.break_off(&mut state);
        }
        self.ready().await.map(drop)
    }

    /// The session is over, as somebody else than the target has said: what the target granted counts no more, and what
    /// was sent and has no answer is given up as soon as the target is reached.
    pub fn forget_session(&self) {
        let mut state = self.state.lock();
        state.boot = 0;
        self.session.store(0, Ordering::Release);
        self.break_off(&mut state);
    }

    /// Opens the session again if it is open.
    fn break_off(&self, state: &mut State) {
        match &state.phase {
            Phase::Lo(lo) => {
                let last = lo.last_xid();
                *self.lo.write() = None;
                // Calls that are still under way draw no more numbers, but others may be about to.
                state.requests.skip_to(Xid(last.0 + u64::from(u32::MAX)));
                self.start_connecting(state);
            }
            Phase::Tcp(_) => self.start_connecting(state),
            Phase::Idle | Phase::Connecting | Phase::Resting | Phase::Closed => {}
        }
    }

    /// The connection of the session broke.
    pub(crate) fn link_lost(&self, link: &Arc<Link>) {
        let mut state = self.state.lock();
        if matches!(&state.phase, Phase::Tcp(now) if Arc::ptr_eq(now, link)) {
            self.start_connecting(&mut state);
        }
    }

    async fn connect(&self) {
        let ended = self.hub.ended().clone();
        if let Either::First(()) = race(ended.wait(), self.connect_until_open()).await {
            self.close();
        }
    }

    async fn connect_until_open(&self) {
        loop {
            self.tell_lost();
            let moved = self.moved.notified();
            let pause = self.next_pause();
            if !pause.is_zero() {
                let _ = race(moved, self.hub.rt().sleep(pause)).await;
            }
            match self.attempt().await {
                Ok(()) | Err(Failure::Closed) => return,
                Err(Failure::Again(problem)) => {
                    let mut state = self.state.lock();
                    if state.problem.as_ref() != Some(&problem) {
                        tracing::info!(target = %self.target, %problem, "the target is not reached");
                    }
                    state.problem = Some(problem);
                }
                Err(Failure::Refused(code, problem)) => return self.give_up(code, problem),
            }
        }
    }

    /// How long to wait before the next attempt: nothing before the first, then longer and longer until a reply
    /// comes. The random half keeps clients apart that lost the same server.
    fn next_pause(&self) -> Duration {
        let mut state = self.state.lock();
        let pause = state.backoff;
        state.backoff = match self.hub.habits().slow_retries {
            Some(slow) => slow.connect,
            None => (pause * 2).clamp(limits::BACKOFF_MIN, limits::BACKOFF_MAX),
        };
        let half = (pause / 2).as_nanos() as u64;
        Duration::from_nanos(half + if half == 0 { 0 } else { self.hub.rt().random_u64() % half })
    }

    /// Tells everybody who waits that the target does not want this client. The next call tries again.
    fn give_up(&self, code: Code, problem: String) {
        tracing::warn!(target = %self.target, %problem, "the target refuses");
        let flights = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Closed) {
                return;
            }
            state.phase = Phase::Idle;
            state.refusals += 1;
            state.refusal = Some(code);
            state.problem = Some(problem);
            let waiters = state.flights.values_mut().filter_map(|flight| flight.waiter.take());
            waiters.collect::<Vec<_>>()
        };
        for waiter in flights {
            let _ = waiter.send(Err(code));
        }
        self.changed.notify_waiters();
    }

    async fn attempt(&self) -> Result<(), Failure> {
        if let Some(service) = self.hub.service(self.target) {
            let peer = Peer { role: self.role, from: Origin::Here };
            return self.open(Carrier::Lo(service, peer)).await;
        }
        let moved = self.moved.notified();
        let nids: Vec<Nid> = self.state.lock().nids.iter().filter(|nid| !nid.is_lo()).cloned().collect();
        let mut moved = std::pin::pin!(moved);
        let mut failure = Failure::Again(format!("no address of {} is known", self.target));
        for nid in nids {
            let addr = match dialled(&nid) {
                Ok(addr) => addr,
                Err(error) => {
                    failure = Failure::Again(error.to_string());
                    continue;
                }
            };
            // One that says nothing must not hold up the news that the target is elsewhere.
            let linked = match race(moved.as_mut(), self.hub.link(&addr, self.role)).await {
                Either::First(()) => return Err(Failure::Again(format!("{} has moved", self.target))),
                Either::Second(linked) => linked,
            };
            let tried = match linked {
                Ok(link) => self.open(Carrier::Tcp(link)).await,
                Err(LinkError::Unreachable(error)) => Err(Failure::Again(format!("{addr}: {error}"))),
                Err(LinkError::Refused(code, error)) => {
                    Err(Failure::Refused(code, format!("{addr}: {error}")))
                }
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(Failure::Closed) => return Err(Failure::Closed),
                Err(next) => failure = next,
            }
        }
        Err(failure)
    }

    /// Opens the session through `carrier`.
    async fn open(&self, carrier: Carrier) -> Result<(), Failure> {
        let (mut connect, epoch) = self.next_connect()?;
        let answered = match &carrier {
            Carrier::Lo(service, peer) => service.clone().call(self.connect_call(peer, connect)).await.result,
            Carrier::Tcp(link) => {
                connect.proof = self.hub.prove(self.client, link.binding());
                let answer = link.connect(self.target, connect, &self.me);
                let answer = race(self.moved.notified(), answer);
                let answer = async {
                    match answer.await {
                        Either::First(()) => None,
                        Either::Second(answer) => answer,
                    }
                };
                match self.hub.rt().timeout(limits::CONNECT_TIME_MAX, answer).await {
                    Some(Some(result)) => result,
                    Some(None) => {
                        return Err(Failure::Again(format!("{}: no answer any more", link.addr())));
                    }
                    None => return Err(Failure::Again(format!("{}: no answer", link.addr()))),
                }
            }
        };
        let connected = match answered {
            Ok(Reply::Connect(connected)) => connected,
            Ok(_) => return Err(Failure::Again(format!("{} answers nonsense", self.target))),
            Err(code) => return Err(self.connect_refused(code)),
        };
        if let Carrier::Lo(..) = &carrier {
            self.called_over(None, connected.session, epoch);
            self.hub.sessions().opened_here((self.target, connected.session), epoch, &self.me);
        }
        let opened = self.resume(&carrier, &connected, epoch).await;
        if opened.is_err() {
            match &carrier {
                Carrier::Tcp(link) => link.leave(self.target, connected.session),
                Carrier::Lo(..) => self.hub.sessions().lost_here((self.target, connected.session)),
            }
            self.called_no_more();
        }
        opened
    }

    fn next_connect(&self) -> Result<(Connect, u64), Failure> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Closed) {
            return Err(Failure::Closed);
        }
        state.session_epoch += 1;
        state.restating.clear();
        let connect = Connect {
            client: self.client,
            features: self.features(),
            fsname: self.hub.fsname().as_str().to_owned(),
            boot: state.boot,
            session_epoch: state.session_epoch,
            committed: self.marks.highest(),
            proof: Bytes::new(),
        };
        Ok((connect, state.session_epoch))
    }

    /// A client that nobody can call back keeps nothing, and says so.
    fn features(&self) -> u64 {
        match self.callbacks() {
            Some(_) => FEATURES_ALL,
            None => FEATURES_ALL & !FEATURE_LOCKS,
        }
    }

    fn connect_call(&self, peer: &Peer, connect: Connect) -> Call {
        Call {
            peer: peer.clone(),
            target: self.target,
            session: 0,
            session_epoch: connect.session_epoch,
            xid: Xid(0),
            slot: None,
            resent: false,
            replay: None,
            job: [0; 32],
            request: Request::Connect(connect),
            bulk: Vec::new(),
        }
    }

    fn connect_refused(&self, code: Code) -> Failure {
        let problem = match code {
            Code::TryAgain => format!("{} is starting or recovering", self.target),
            Code::NotHere => format!("{} is not served there", self.target),
            Code::Forbidden => format!("{} does not let this key do this", self.target),
            Code::WrongFilesystem => {
                format!("{} does not belong to file system {}", self.target, self.hub.fsname())
            }
            Code::Older => {
                format!("{} is older than it was: a copy of it, or it lost what was durable", self.target)
            }
            Code::Version => format!("{} speaks another version, or lacks a feature", self.target),
            code => format!("{} refuses: {code}", self.target),
        };
        match code {
            Code::Evicted => {
                // What the client was is over; the next attempt begins something new.
                self.state.lock().boot = 0;
                Failure::Again(problem)
            }
            Code::NoSession => {
                // Whoever has a larger epoch came later under this name; it is outgrown in a few attempts.
                let mut state = self.state.lock();
                state.outgrown = (state.outgrown + 1).min(OUTGROW_MAX);
                state.session_epoch += (1 << state.outgrown) - 1;
                Failure::Again(problem)
            }
            Code::Forbidden | Code::WrongFilesystem | Code::Version => Failure::Refused(code, problem),
            _ => Failure::Again(problem),
        }
    }

    /// The target has answered: both sides learn what the other one still knows.
    async fn resume(&self, carrier: &Carrier, connected: &Connected, epoch: u64) -> Result<(), Failure> {
        let (first, outcome, plan, evicted) = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Closed) {
                return Err(Failure::Closed);
            }
            if connected.resumed && state.boot == 0 {
                // It was asked before the session was forgotten here.
                return Err(Failure::Again(format!("the session with {} is over", self.target)));
            }
            let same_boot = connected.resumed && connected.boot == state.boot;
            if same_boot && state.session != 0 && connected.session != state.session {
                // What this process had there is over; the next attempt begins anew, and tells what is lost.
                state.boot = 0;
                let problem = format!("somebody else has taken the session with {} over", self.target);
                tracing::error!(target = %self.target, client = %self.client, problem);
                return Err(Failure::Again(problem));
            }
            state.outgrown = 0;
            let first = state.session == 0;
            let (outcome, plan, evicted) = self.take_over(&mut state, connected);
            if first {
                state.told = Told::Open;
            }
            match outcome {
                // What an attempt before this one left undone remains to be done.
                Outcome::SameBoot => {}
                Outcome::Restarted => state.recovering = true,
                Outcome::Forgotten => state.recovering = false,
            }
            (first, outcome, plan, evicted)
        };
        tracing::info!(
            target = %self.target, ?outcome, replays = plan.replays.len(), resends = plan.resends.len(),
            "connected"
        );
        if outcome == Outcome::Forgotten {
            self.tell_session_lost();
            if !first {
                self.era.fetch_add(1, Ordering::AcqRel);
            }
        }
        // Only now may those go on whose changes nobody knows of.
        for waiter in evicted {
            let _ = waiter.send(Err(Code::Evicted));
        }
        let safeguards = self.hub.habits().safeguards;
        for replay in plan.replays.iter().filter(|_| safeguards.replay) {
            self.replay(carrier, replay).await?;
        }
        let recovering = self.state.lock().recovering && safeguards.restating;
        match recovering {
            true => self.restated(carrier).await?,
            false => self.tell_open(),
        }
        self.resend(carrier, &plan.resends);
        self.opened(carrier, connected, epoch)?;
        if std::mem::take(&mut self.state.lock().recovering) {
            self.end_of_replays();
        }
        Ok(())
    }

    /// Sends everything again that had no reply.
    fn resend(&self, carrier: &Carrier, unanswered: &[Sent<Message>]) {
        let mut state = self.state.lock();
        let now = self.hub.rt().now();
        let mut outgoing = Vec::new();
        for sent in unanswered {
            // Its caller may have gone during the replays.
            if state.requests.in_flight(sent.xid).is_none() {
                continue;
            }
            let patience = self.resend_after(&state, &sent.message, now);
            if let Some(flight) = state.flights.get_mut(&sent.xid) {
                flight.moved(now, patience);
            }
            self.watch(&mut state, now + patience);
            let mut header = self.header(&state, &sent.message, sent.xid, sent.slot);
            header.flags |= FLAG_RESENT;
            outgoing.push((header, sent.message.clone()));
        }
        match carrier {
            Carrier::Tcp(link) if state.batches => link.send_all(outgoing),
            _ => outgoing.into_iter().for_each(|(header, message)| self.carry(carrier, header, &message)),
        }
    }

    /// Takes over what the target knows; returns also those who wait for changes that it forgot.
    fn take_over(
        &self,
        state: &mut State,
        connected: &Connected,
    ) -> (Outcome, Resumption<Message>, Vec<oneshot::Sender<ImportOutcome>>) {
        let outcome = match (connected.resumed, connected.boot == state.boot) {
            (true, true) => Outcome::SameBoot,
            (true, false) if state.boot != 0 => Outcome::Restarted,
            _ => Outcome::Forgotten,
        };
        state.boot = connected.boot;
        state.session = connected.session;
        state.batches = connected.features & FEATURE_BATCH != 0;
        self.session.store(connected.session, Ordering::Release);
        let mut plan = state.requests.resume(outcome, connected.slots, connected.last_committed);
        self.count_retained(state);
        // Calls inside the process are not kept, but what they changed can be missed all the same.
        let unkept = self.marks.unkept();
        if plan.lost.is_none() && unkept > connected.last_committed {
            plan.lost = Some((connected.last_committed.min(self.marks.last_committed()), unkept));
        }
        if let Some(range) = plan.lost {
            state.remember_lost(range);
        }
        if plan.lost.is_some() || !plan.evicted.is_empty() {
            state.evictions += 1;
            tracing::error!(
                target = %self.target, lost = ?plan.lost, unknown = plan.evicted.len(),
                "changes are lost: the target does not know them any more"
            );
        }
        if outcome != Outcome::Forgotten {
            self.marks.note_committed(connected.last_committed);
            return (outcome, plan, Vec::new());
        }
        state.generation += 1;
        state.syncing.wanted = Transno(0);
        self.marks.reset(connected.last_committed);
        let flights = plan.evicted.iter().filter_map(|xid| state.flights.remove(xid));
        let evicted = flights.filter_map(|flight| flight.waiter).collect();
        (outcome, plan, evicted)
    }

    /// Tells the client that its connection is lost, unless it knows.
    fn tell_lost(&self) {
        if self.tell(Told::Open, Told::Lost)
            && let Some(callbacks) = self.callbacks()
        {
            callbacks.disconnected(self.target);
        }
    }

    /// Tells the client that its session goes on, unless it knows.
    fn tell_open(&self) {
        if self.tell(Told::Lost, Told::Open)
            && let Some(callbacks) = self.callbacks()
        {
            callbacks.reconnected(self.target);
        }
    }

    /// Tells the client that its session is another one, unless it had none before.
    fn tell_session_lost(&self) {
        if self.tell(Told::Lost, Told::Open)
            && let Some(callbacks) = self.callbacks()
        {
            callbacks.session_lost(self.target);
        }
    }

    fn tell(&self, from: Told, to: Told) -> bool {
        let mut state = self.state.lock();
        let changes = state.told == from;
        if changes {
            state.told = to;
        }
        changes
    }

    /// Lets the client state again what it holds at a target that restarted.
    async fn restated(&self, carrier: &Carrier) -> Result<(), Failure> {
        let (Some(callbacks), Some(import)) = (self.callbacks(), self.me.upgrade()) else { return Ok(()) };
        let restate = Restate::new(import, carrier.clone());
        let failed = restate.failed().clone();
        let broken = race(self.over(carrier), failed.wait());
        let result = match race(broken, callbacks.restarted(self.target, restate)).await {
            Either::First(_) => Err(Failure::Again("the session broke while locks were stated again".into())),
            Either::Second(()) => Ok(()),
        };
        self.tell(Told::Lost, Told::Open);
        result
    }

    /// Waits until there is no use any more in what was begun over `carrier`.
    async fn over(&self, carrier: &Carrier) {
        let _ = race(self.moved.notified(), carrier.ended()).await;
    }

    /// Replays one change and waits until the target has taken it.
    async fn replay(&self, carrier: &Carrier, replay: &Retained<Message>) -> Result<(), Failure> {
        let (waiter, mut taken) = oneshot::channel();
        let header = {
            let mut state = self.state.lock();
            let mut header = self.header(&state, &replay.message, replay.xid, replay.slot);
            header.flags |= FLAG_REPLAY;
            header.transno = replay.transno;
            state.replaying =
                Some(Replaying { header: header.clone(), message: replay.message.clone(), waiter });
            header
        };
        let mut patience = limits::RESEND_MIN;
        let mut over = std::pin::pin!(self.over(carrier));
        self.carry(carrier, header.clone(), &replay.message);
        let result = loop {
            let answer = self.hub.rt().timeout(patience, &mut taken);
            match race(over.as_mut(), answer).await {
                Either::First(()) => return Err(Failure::Again("the connection broke during replay".into())),
                Either::Second(Some(Ok(result))) => break result,
                Either::Second(Some(Err(_))) => return Err(Failure::Closed),
                Either::Second(None) => patience = (patience * 2).min(limits::REPLAY_RESEND_MAX),
            }
            match carrier {
                Carrier::Tcp(link) => link.ask_or_send(header.clone(), &replay.message),
                Carrier::Lo(..) => self.carry(carrier, header.clone(), &replay.message),
            }
        };
        match result {
            Ok(()) => {
                self.state.lock().requests.replayed(replay.transno);
                Ok(())
            }
            Err(code @ (Code::TryAgain | Code::NoSession | Code::NotHere)) => {
                Err(Failure::Again(format!("{} refuses a replay: {code}", self.target)))
            }
            Err(code) => {
                let transno = replay.transno;
                tracing::error!(target = %self.target, ?transno, %code, "a change is lost: its replay was refused");
                let mut state = self.state.lock();
                state.requests.replay_refused(transno);
                self.count_retained(&state);
                state.remember_lost((Transno(transno.0 - 1), transno));
                state.evictions += 1;
                Ok(())
            }
        }
    }

    fn opened(&self, carrier: &Carrier, connected: &Connected, epoch: u64) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Closed) {
            return Err(Failure::Closed);
        }
        match carrier {
            Carrier::Tcp(link) => {
                // It may have broken while nobody was told: then the loss is this task's to repair.
                if link.ended().is_ended() {
                    return Err(Failure::Again(format!("{}: the connection broke", link.addr())));
                }
                state.phase = Phase::Tcp(link.clone());
            }
            Carrier::Lo(service, peer) => {
                let lo = Arc::new(Lo::new(LoConfig {
                    rt: self.hub.rt().clone(),
                    service: service.clone(),
                    marks: self.marks.clone(),
                    session: connected.session,
                    session_epoch: epoch,
                    target: self.target,
                    peer: peer.clone(),
                    slots: connected.slots,
                    last_xid: state.requests.last_xid(),
                }));
                state.phase = Phase::Lo(lo.clone());
                *self.lo.write() = Some(lo);
            }
        }
        state.problem = None;
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The first ordinary request is the sign for the target that no replays follow; it may hold up other clients
    /// until then. A Sync also makes durable at once what was lost before.
    fn end_of_replays(&self) {
        let Some(import) = self.me.upgrade() else { return };
        self.hub.rt().spawn(async move {
            let newest = import.marks.newest();
            if let Err(error) = import.sync(newest).await {
                tracing::debug!(target = %import.target, %error, "no commit behind the replays");
            }
        });
    }

    /// Sends a request of former times through `carrier`; the reply comes to [`Import::incoming`].
    pub(crate) fn carry(&self, carrier: &Carrier, header: Header, message: &Arc<Message>) {
        match carrier {
            Carrier::Tcp(link) => link.send(header, message),
            Carrier::Lo(service, peer) => {
                let Some(import) = self.me.upgrade() else { return };
                let request = Request::take_body(message.opcode, message.body.clone());
                let request = request.expect("a body that this process encoded decodes");
                let replay = (header.flags & FLAG_REPLAY != 0).then_some(header.transno);
                let call = Call {
                    peer: peer.clone(),
                    target: self.target,
                    session: header.session,
                    session_epoch: header.session_epoch,
                    xid: header.xid,
                    slot: frame::slot_of(&header),
                    resent: header.flags & FLAG_RESENT != 0,
                    replay,
                    job: header.job,
                    request,
                    bulk: message.bulk.clone(),
                };
                let answer = service.clone().call(call);
                self.hub.rt().spawn(async move {
                    let Answer { result, bulk, transno, last_committed, room } = answer.await;
                    import.note_room(room);
                    let (xid, session_epoch) = (header.xid, header.session_epoch);
                    import.incoming([Incoming { xid, session_epoch, transno, last_committed, result, bulk }]);
                });
            }
        }
    }
}

impl Carrier {
    async fn ended(&self) {
        match self {
            Carrier::Lo(..) => std::future::pending().await,
            Carrier::Tcp(link) => link.ended().wait().await,
        }
    }
}

impl State {
    fn remember_lost(&mut self, range: (Transno, Transno)) {
        self.lost.push(range);
        if self.lost.len() > limits::LOST_RANGES_MAX {
            // Claiming too much lost costs an error; claiming too little would hide a loss.
            let (second, first) = (self.lost.remove(1), self.lost.remove(0));
            self.lost.insert(0, (first.0.min(second.0), first.1.max(second.1)));
        }
    }
}
