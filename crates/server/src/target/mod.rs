//! What every target has: sessions, reply slots, exactly-once, order of start and stop.
//!
//! A role implements [`Handler`] and sees only requests of live sessions, each of them once: what was answered
//! before is answered again from the slot's record, which the handler's batch carried to disk together with the
//! change ([`Ctx::commit`], [`Recorder`]). The role itself lives in [`Target`], which is the [`rpc::Service`].

mod absent;
mod admin;
mod clients;
mod connect;
mod context;
mod eviction;
mod gauge;
pub mod keys;
mod lives;
mod lock_room;
mod parameters;
mod recent;
mod recovery;
mod returns;
mod session;
mod slot;
mod stop;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::session::ReplyRecord;
use proto::wire::header::Room;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, TargetId, Transno};
use rpc::{Answer, Call, Hub, Import, Peer, Safeguards, Service};
use rt::{BoxFuture, Rt};
use store::{Need, Store, StoreError};

pub use clients::{Backchannel, Called, Clients};
#[cfg(test)]
pub use clients::{CallbackAnswer, DEADLINE, PATIENCE};
pub use context::{Ctx, Done, Recorder, VERSION_OF_THIS, code_of};
pub use lock_room::LockRoom;
pub use recovery::Recovery;
pub use session::Session;
pub use stop::Stop;

use crate::claimant::Claimant;
use crate::{Held, LockCounts, Supervision, TokenCounts};
use eviction::Tracer;
use gauge::Gauge;
use lives::Lives;
use session::Sessions;
use slot::Begin;

/// What a role is started with.
#[derive(Clone)]
pub struct Env {
    /// The door to the outside.
    pub rt: Rt,
    /// For imports to other targets.
    pub hub: Hub,
    /// The target's store.
    pub store: Arc<Store>,
    /// The MGS; `None` in the MGS itself.
    pub mgs: Option<Arc<Import>>,
    /// Ends the role's tasks.
    pub stop: Stop,
    /// Tells when clients have replayed what a restart lost; until then the role's tasks change nothing.
    pub recovery: Arc<Recovery>,
    /// Calls the clients of the target's sessions back.
    pub clients: Arc<Clients>,
    /// Has the MGS remember how far the target is; `None` if there is none.
    pub claimant: Option<Arc<Claimant>>,
}

/// What a target is started with.
pub struct Start {
    /// The door to the outside.
    pub rt: Rt,
    /// For imports to other targets.
    pub hub: Hub,
    /// The target's store.
    pub store: Arc<Store>,
    /// The MGS; `None` in the MGS itself.
    pub mgs: Option<Arc<Import>>,
    /// The way to the clients.
    pub backchannel: Arc<dyn Backchannel>,
    /// What there is if it is started again when it fails.
    pub supervision: Option<Supervision>,
    /// Has the MGS remember how far the target is; `None` if there is none.
    pub claimant: Option<Arc<Claimant>>,
}

/// A role: what a target does with the requests of its sessions.
pub trait Handler: Send + Sync + Sized + 'static {
    /// What the role keeps for each session.
    type Session: Default + Send + Sync + 'static;
    /// What it answers in sessions.
    type Request: TryFrom<Request, Error = Request> + Send;
    /// What it answers outside any session, besides what every target does.
    type Outside: TryFrom<Request, Error = Request> + Send;

    /// Whether changes of different clients rest on each other, so that after a restart all have to be replayed
    /// before anybody is served.
    const ORDERED: bool = true;

    /// Makes the role out of what lies in the store.
    fn open(env: Env) -> impl Future<Output = Result<Self, StoreError>> + Send;

    /// The target is being served and registered: the place to spawn tasks, which end with [`Env::stop`].
    fn started(self: &Arc<Self>) {
        let _ = self;
    }

    /// Answers `request`. What needs no waiting happens in the first poll. For a changing request the store has
    /// room already. No effect may be visible before everything that waits is over.
    fn handle<'a>(
        &'a self,
        ctx: &'a Ctx<Self::Session>,
        request: Self::Request,
        bulk: Vec<Bytes>,
    ) -> impl Future<Output = Result<Done, Code>> + Send + 'a;

    /// Space of the target, as [`msg::Statfs`] asks for it.
    fn space(&self) -> impl Future<Output = Result<msg::Space, Code>> + Send + '_;

    /// Puts the version that a change made where its reply says [`VERSION_OF_THIS`].
    fn stamp(reply: &mut Reply, transno: Transno) {
        let _ = (reply, transno);
    }

    /// Answers what the role offers outside any session.
    fn outside<'a>(
        &'a self,
        peer: &'a Peer,
        request: Self::Outside,
    ) -> impl Future<Output = Result<Reply, Code>> + Send + 'a;

    /// A session began: a new one, or one whose client was known before the restart.
    fn began(&self, session: &Session<Self::Session>) {
        let _ = session;
    }

    /// A session ended: its client holds nothing any more.
    fn ended(&self, session: &Session<Self::Session>) {
        let _ = session;
    }

    /// A client of before the restart did not come back: what the store has of it can go.
    fn forgotten(&self, client: ClientId) {
        let _ = client;
    }

    /// How many inode bits are granted, and how often.
    fn lock_counts(&self) -> LockCounts {
        LockCounts::default()
    }

    /// What is held of objects, and how often something happened with it.
    fn token_counts(&self) -> TokenCounts {
        TokenCounts::default()
    }

    /// What sessions hold.
    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    /// What this session holds.
    fn held_by(&self, session: u64) -> Vec<Held> {
        self.held().into_iter().filter(|held| held.session == session).collect()
    }

    /// Who waits for what, a line for each.
    fn waits(&self) -> Vec<String> {
        Vec::new()
    }

    /// What can be set while it is served, with its present value, in the order of the names.
    fn parameters(&self) -> Vec<msg::Parameter> {
        Vec::new()
    }

    /// Sets one of them.
    ///
    /// # Errors
    /// `NotFound` for a name, and `Invalid` for a value, that is none.
    fn set_parameter(&self, parameter: &msg::Parameter) -> Result<(), Code> {
        let _ = parameter;
        Err(Code::NotFound)
    }

    /// How much each client may write before it sends it; `sessions` counts them.
    fn room(&self, sessions: impl FnOnce() -> usize) -> Room {
        let _ = sessions;
        Room::default()
    }

    /// What is wrong with it, a sentence for each.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// What can only be read, or cleared, by name.
    fn statistic(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// The last step before the store is closed; no request is under way.
    fn finish(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A target to look at, and to end.
pub trait Watch: Send + Sync {
    /// Names of its sessions; `None` while it waits for what clients replay and state again.
    fn sessions(&self) -> Option<Vec<u64>>;

    /// What sessions hold.
    fn held(&self) -> Vec<Held>;

    /// Who waits for what, a line for each.
    fn waits(&self) -> Vec<String>;

    /// Whether it may answer now: it works, and nobody else had the target until now.
    fn is_owner(&self) -> bool;

    /// Sets a parameter.
    fn set_parameter(&self, parameter: &msg::Parameter) -> Result<(), Code>;

    /// Takes no more requests, and waits for those under way.
    fn refuse(&self) -> BoxFuture<'_, ()>;

    /// Closes the store after that.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Lets the store go instead, as if the process had been killed.
    fn abandon(&self) -> BoxFuture<'_, ()>;

    /// Waits until the store fails.
    fn failed(&self) -> BoxFuture<'_, ()>;
}

/// A served target of role `H`.
pub struct Target<H: Handler> {
    id: TargetId,
    fsname: String,
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    under_way: Gauge,
    sessions: Sessions<H::Session>,
    clients: Arc<Clients>,
    lives: Arc<Lives>,
    tracer: Arc<Tracer>,
    /// Sessions that ended and have something left in the store.
    departed: Mutex<Vec<Arc<Session<H::Session>>>>,
    /// Held through each connect and disconnect: they follow one another.
    door: Mutex<()>,
    handler: Arc<H>,
    supervision: Option<Supervision>,
    /// The MGS has told clients of this start.
    told: AtomicBool,
    /// What is not left out in an experiment.
    safeguards: Safeguards,
    /// A server remembers a later state of the target: nobody is served.
    older: AtomicBool,
    /// Sessions with starts of the target up to this one are over.
    accepted: u64,
}

impl<H: Handler> Target<H> {
    /// Opens the role in the store of `start` and knows the clients again that had a session before.
    pub async fn open(start: Start) -> Result<Arc<Target<H>>, StoreError> {
        let Start { rt, hub, store, mgs, backchannel, supervision, claimant } = start;
        let sessions = Sessions::load(&store)?;
        let accepted = crate::accept::accepted(&store)?;
        let expected = if H::ORDERED { sessions.expected() } else { Vec::new() };
        let next = Transno(store.last_transno().0 + 1);
        let recovery = Arc::new(Recovery::new(&rt, expected, next));
        let stop = Stop::default();
        let id = store.label().target;
        let safeguards = hub.habits().safeguards;
        let asked = mgs.clone().filter(|_| safeguards.asking_who_lives);
        let lives = Arc::new(Lives::new(&rt, asked, id, store.boot()));
        let clients = Arc::new(Clients::new(&rt, id, stop.clone(), backchannel, lives.clone()));
        let env = Env {
            rt: rt.clone(),
            hub,
            store: store.clone(),
            mgs,
            stop: stop.clone(),
            recovery: recovery.clone(),
            clients: clients.clone(),
            claimant,
        };
        let handler = Arc::new(H::open(env).await?);
        let tracer = Tracer::new(rt.clone(), store.clone());
        let target = Arc::new(Target {
            id,
            fsname: store.label().fsname.as_str().to_owned(),
            rt,
            stop,
            recovery,
            under_way: Gauge::default(),
            sessions,
            clients,
            lives,
            tracer,
            departed: Mutex::new(Vec::new()),
            door: Mutex::new(()),
            handler,
            store,
            supervision,
            told: AtomicBool::new(false),
            safeguards,
            older: AtomicBool::new(false),
            accepted,
        });
        let doorman: Weak<dyn clients::Doorman> =
            Arc::downgrade(&(target.clone() as Arc<dyn clients::Doorman>));
        target.clients.set_doorman(doorman);
        if target.sessions.has_absent() {
            target.rt.spawn(target.clone().forget_the_absent());
            target.rt.spawn(target.clone().ask_about_the_absent());
            target.rt.spawn(target.clone().clear_away_after_recovery());
        }
        Ok(target)
    }

    /// The role.
    pub fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The MGS has told clients of this start.
    pub fn set_told(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests, waits for those under way, and closes the store.
    pub async fn close(&self) {
        self.stop.stop();
        self.under_way.wait_for_none().await;
        self.handler.finish().await;
        if let Err(error) = self.store.close().await {
            tracing::error!(target = %self.id, %error, "the store did not close in order");
        }
    }

    async fn answer(&self, call: Call) -> Answer {
        if call.session == 0
            && let Some(answer) = Box::pin(self.administer(&call.peer, &call.request)).await
        {
            return answer;
        }
        let _entered = self.under_way.enter();
        if self.stop.is_stopped() {
            return Answer::refuse(if self.supervision.is_some() { Code::NotHere } else { Code::TryAgain });
        }
        let mut answer = match &call.request {
            Request::Connect(connect) => self.connect(&call.peer, connect).await,
            _ => self.answer_in_session(call).await,
        };
        answer.last_committed = self.store.last_committed();
        answer.room = self.handler.room(|| self.sessions.count());
        if self.supervision.is_some() && (!self.store.is_owner() || self.store.has_failed()) {
            return self.confirm(answer).await;
        }
        answer
    }

    /// The answer, once it is sure that no other owner may have given another one by now.
    async fn confirm(&self, answer: Answer) -> Answer {
        match self.stop.unless(self.store.confirmed()).await {
            Some(Ok(())) => answer,
            _ => Answer::refuse(Code::NotHere),
        }
    }

    async fn answer_in_session(&self, call: Call) -> Answer {
        let session = match self.sessions.find(call.session, call.session_epoch) {
            Some(session) if session.role() == call.peer.role => session,
            Some(_) => return Answer::refuse(Code::Forbidden),
            None => return Answer::refuse(Code::NoSession),
        };
        session.recent().note(self.rt.now(), call.xid, call.request.opcode());
        if self.recovery.is_active()
            && let Err(code) = self.recover(&session, &call).await
        {
            return Answer::refuse(code);
        }
        match call.request {
            Request::Disconnect(msg::Disconnect {}) => {
                self.disconnect(&session);
                answered::<H>(Done::unchanged(Reply::Disconnect(msg::Done {})))
            }
            Request::Sync(msg::Sync { transno }) => self.sync(transno).await,
            ref request if request.changes() => self.change(session, call).await,
            request => {
                let ctx = Ctx::new(&self.store, session, call.peer, call.xid, None, None);
                result::<H>(self.carry_out(&ctx, request, call.bulk).await)
            }
        }
    }

    /// Lets a replay wait for its turn, and everything else until there are no more.
    async fn recover(&self, session: &Session<H::Session>, call: &Call) -> Result<(), Code> {
        let client = session.client();
        let waiting = async {
            match (call.replay, &call.request) {
                (Some(transno), request) if request.changes() => self.recovery.turn(client, transno).await,
                // The client states again what it holds: a sign of life, and not the end of its replays.
                (Some(_), _) => {
                    self.recovery.restates(client);
                    Ok(())
                }
                // Who leaves is not kept waiting.
                (None, Request::Disconnect(_)) => Ok(()),
                (None, _) => {
                    self.recovery.is_done(client);
                    self.recovery.until_over().await;
                    Ok(())
                }
            }
        };
        self.stop.unless(waiting).await.unwrap_or(Err(Code::TryAgain))
    }

    async fn sync(&self, transno: Transno) -> Answer {
        let newest = self.store.last_transno();
        let until = if transno == Transno(0) { newest } else { transno.min(newest) };
        result::<H>(
            self.store
                .committed(until)
                .await
                .map(|()| Done::unchanged(Reply::Sync(msg::Done {})))
                .map_err(|error| code_of(&error)),
        )
    }

    /// Has the role carry out what is its own.
    async fn carry_out(
        &self,
        ctx: &Ctx<H::Session>,
        request: Request,
        bulk: Vec<Bytes>,
    ) -> Result<Done, Code> {
        match H::Request::try_from(request) {
            Ok(request) => self.handler.handle(ctx, request, bulk).await,
            Err(Request::Statfs(msg::Statfs {})) => {
                self.handler.space().await.map(|space| Done::unchanged(Reply::Statfs(space)))
            }
            // Another role's, or one that is asked for outside any session.
            Err(_) => Err(Code::NotSupported),
        }
    }

    /// A changing request: done once, however often it comes.
    async fn change(&self, session: Arc<Session<H::Session>>, call: Call) -> Answer {
        let Some(slot) = call.slot else { return Answer::refuse(Code::Malformed) };
        loop {
            match session.slots().begin(slot, call.xid, H::stamp) {
                Begin::Run => break,
                Begin::Answered(answer) => return *answer,
                Begin::UnderWay(finished) => {
                    if finished.await.is_err() {
                        return Answer::refuse(Code::NoSession);
                    }
                }
                Begin::Refused(code) => return Answer::refuse(code),
            }
        }
        let running = slot::Running::new(&session, slot, call.xid);
        // What gives space back has to go on when there is none, and what was carried out before is not refused.
        let goes_on = call.replay.is_some() || call.request.frees_space();
        let need = if goes_on { Need::Release } else { Need::Growth };
        match self.prepare(&session, need).await {
            Ok(()) => {}
            Err(error) => {
                let refused = Err(code_of(&error));
                running.finish(ReplyRecord::new(call.xid, call.request.opcode(), &refused, Transno(0)));
                return self::result::<H>(refused.map(Done::unchanged));
            }
        }
        let ctx = Ctx::new(&self.store, session.clone(), call.peer, call.xid, Some(slot), call.replay);
        let opcode = call.request.opcode();
        let asked = tracing::enabled!(tracing::Level::TRACE).then(|| format!("{:?}", call.request));
        let mut result = self.carry_out(&ctx, call.request, call.bulk).await;
        if let Some(asked) = asked {
            let client = session.client();
            let transno = result.as_ref().map(|done| done.transno);
            tracing::trace!(target = %self.id, %client, xid = call.xid.0, replay = ?call.replay, ?transno, asked, "changed");
        }
        let record = result.as_mut().ok().and_then(|done| done.record.take());
        let answer = self::result::<H>(result);
        if answer.result == Err(Code::TryAgain) {
            // The client asks the same again with a new number. What comes with this one again must not be carried out:
            // the client knows only of one.
            running.turn_away();
            return answer;
        }
        running.finish(match record {
            Some(record) => ReplyRecord { transno: answer.transno, ..record },
            None => ReplyRecord::new(call.xid, opcode, &answer.result, answer.transno),
        });
        answer
    }

    /// Waits until the client's record is durable (or a replay of what follows would find no session) and the
    /// store has room.
    async fn prepare(&self, session: &Session<H::Session>, need: Need) -> Result<(), StoreError> {
        self.record_durable(session).await?;
        self.store.room(need).await
    }

    async fn record_durable(&self, session: &Session<H::Session>) -> Result<(), StoreError> {
        if !session.is_durable() {
            self.store.committed(session.recorded()).await?;
            session.set_durable();
        }
        Ok(())
    }
}

impl<H: Handler> Watch for Target<H> {
    fn sessions(&self) -> Option<Vec<u64>> {
        let all = || self.sessions.all().into_iter().map(|(handle, _)| handle).collect();
        (!self.recovery.is_active()).then(all)
    }

    fn held(&self) -> Vec<Held> {
        self.handler.held()
    }

    fn waits(&self) -> Vec<String> {
        let mut lines = self.recovery.waits();
        lines.extend(self.clients.waits());
        lines.extend(self.handler.waits());
        let words = lines.iter().flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric()));
        let handles = words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let handles: BTreeSet<u64> = handles.collect();
        let named = handles.into_iter().filter_map(|handle| self.sessions.of_handle(handle));
        let named: Vec<String> = named
            .map(|session| format!("session {:#x} is client {}", session.handle(), session.client()))
            .collect();
        lines.extend(named);
        lines
    }

    fn is_owner(&self) -> bool {
        !self.stop.is_stopped() && !self.store.has_failed() && self.store.is_owner()
    }

    fn set_parameter(&self, parameter: &msg::Parameter) -> Result<(), Code> {
        self.handler.set_parameter(parameter)
    }

    fn refuse(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stop.stop();
            self.under_way.wait_for_none().await;
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Target::close(self))
    }

    fn abandon(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.store.abandon())
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.store.failed())
    }
}

impl<H: Handler> Service for Target<H> {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.answer(call).await })
    }
}

/// What is to be known of a target's space besides, as [`msg::Space`] tells it.
pub fn space_state(store: &Store) -> u32 {
    if store.is_full() { msg::Space::FULL } else { 0 }
}

fn answered<H: Handler>(done: Done) -> Answer {
    let mut reply = done.reply;
    H::stamp(&mut reply, done.transno);
    Answer {
        result: Ok(reply),
        bulk: done.bulk,
        transno: done.transno,
        last_committed: Transno(0),
        room: Room::default(),
    }
}

fn result<H: Handler>(result: Result<Done, Code>) -> Answer {
    match result {
        Ok(done) => answered::<H>(done),
        Err(code) => Answer::refuse(code),
    }
}
