//! A served target: carries each request of a session out once, in the right order after a restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::session::ReplyRecord;
use proto::wire::header::Room;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{Code, Transno};
use rpc::{Answer, Call, Safeguards, Service};
use rt::{BoxFuture, Rt};
use store::{Batch, Need, Store, StoreError};

use crate::absent::Awaited;
use crate::claimant;
use crate::clients::{self, Clients};
use crate::context::{Ctx, Done, code_of};
use crate::dead::Reaper;
use crate::disk_queues::DiskQueues;
use crate::eviction::Tracer;
use crate::exports::Exports;
use crate::gauge::Gauge;
use crate::handler::{Env, Handler, Start, Supervision};
use crate::jobs::Jobs;
use crate::lives::Lives;
use crate::recovery::Recovery;
use crate::session::{Session, Sessions};
use crate::slot::{self, Begin};
use crate::stop::Stop;
use crate::tally::ByClient;
use crate::timing::{Counting, Timing};
use crate::watch::{Held, Watch};

/// How far in front of a target's newest number one may be that it gave before a crash.
const REPLAYED_MAX: u64 = 1 << 32;

/// A served target of role `H`.
pub struct Target<H: Handler> {
    pub(crate) rt: Rt,
    pub(crate) store: Arc<Store>,
    pub(crate) stop: Stop,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) under_way: Gauge,
    pub(crate) exports: Exports<H::Session>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) handler: Arc<H>,
    pub(crate) measures: Measures,
    pub(crate) disk_queues: Arc<DiskQueues>,
    pub(crate) began: Began,
}

/// How long requests took, and how much they moved.
pub(crate) struct Measures {
    pub timing: Timing,
    /// By the job that they came from.
    pub jobs: Jobs,
    /// By the client.
    pub by_client: ByClient,
}

/// How a target was started, and what became known of that.
pub(crate) struct Began {
    pub supervision: Supervision,
    /// What is not left out in an experiment.
    pub safeguards: Safeguards,
    /// Sessions with starts of the target up to this one are over.
    pub accepted: u64,
    /// The MGS has told clients of this start.
    pub told: AtomicBool,
    /// A server remembers a later state of the target: nobody is served.
    pub older: AtomicBool,
}

impl<H: Handler> Target<H> {
    /// Opens the role in the store of `start` and knows the clients again that had a session before.
    pub async fn open(start: Start) -> Result<Arc<Target<H>>, StoreError> {
        let Start { rt, hub, store, mgs, backchannel, supervision, claimant } = start;
        let sessions = Sessions::load(&store)?;
        let accepted = claimant::accepted(&store)?;
        let expected = if H::ORDERED { sessions.expected() } else { Vec::new() };
        let next = Transno(store.last_transno().0 + 1);
        let recovery = Arc::new(Recovery::new(&rt, expected, next));
        // Replays bring their numbers, and nothing else is changed before they are over. A number that a crash took back is not given again:
        // its client may have been told it, and hear later that the change is lost (`docs/recovery.md#renumbered`).
        store.draw_from(store.first_transno());
        let stop = Stop::default();
        let id = store.label().target;
        let safeguards = hub.habits().safeguards;
        let asked = mgs.clone().filter(|_| safeguards.asking_who_lives);
        let lives = Arc::new(Lives::new(&rt, asked, id, store.boot()));
        let clients = Arc::new(Clients::new(&rt, id, stop.clone(), backchannel, lives));
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
        let (timing, by_client) = (Timing::new(&rt), ByClient::new(&rt));
        let tracer = Tracer::new(rt.clone(), store.clone());
        let disk_queues = Arc::new(DiskQueues::new(id, store.dir().clone()));
        disk_queues.report().await;
        let exports = Exports { sessions, departed: Mutex::default(), door: Mutex::default() };
        let (told, older) = (AtomicBool::new(false), AtomicBool::new(false));
        let target = Arc::new(Target {
            rt,
            stop,
            recovery,
            under_way: Gauge::default(),
            exports,
            clients,
            tracer,
            handler,
            measures: Measures { timing, jobs: Jobs::new(H::STATS), by_client },
            disk_queues,
            store,
            began: Began { supervision, safeguards, accepted, told, older },
        });
        let doorman: Weak<dyn clients::Doorman> =
            Arc::downgrade(&(target.clone() as Arc<dyn clients::Doorman>));
        target.clients.set_doorman(doorman);
        if target.exports.sessions.has_absent() {
            target.rt.spawn(Awaited::new(target.clone()).forget_late());
            target.rt.spawn(Awaited::new(target.clone()).ask_about_missing());
            target.rt.spawn(target.clone().clear_away_after_recovery());
        }
        target.rt.spawn(Reaper::new(target.clone()).run());
        Ok(target)
    }

    /// The role.
    pub fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The MGS has told clients of this start.
    pub fn set_told(&self) {
        self.began.told.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests, waits for those under way, and closes the store.
    pub async fn close(&self) {
        self.stop.stop();
        self.under_way.wait_for_none().await;
        self.handler.finish().await;
        if let Err(error) = self.store.close().await {
            tracing::error!(target = %self.store.label().target, %error, "the store did not close in order");
        }
    }

    /// Whether it is started again when it fails: who asks then looks for it.
    fn is_supervised(&self) -> bool {
        !matches!(self.began.supervision, Supervision::None)
    }

    /// A call goes down by reference: each future that got it by value would hold it twice.
    async fn answer(&self, call: &mut Call) -> Answer {
        if call.session == 0
            && let Some(answer) = Box::pin(self.administer(&call.peer, &call.request)).await
        {
            return answer;
        }
        let _entered = self.under_way.enter();
        if self.stop.is_stopped() {
            return Answer::refuse(if self.is_supervised() { Code::NotHere } else { Code::TryAgain });
        }
        let mut answer = match &call.request {
            // Who asks in a session has not proved for whom.
            Request::Connect(_) if call.session != 0 => Answer::refuse(Code::Malformed),
            Request::Connect(connect) => Box::pin(self.connect(&call.peer, connect)).await,
            _ => self.answer_in_session(call).await,
        };
        answer.last_committed = self.store.last_committed();
        answer.room = self.handler.room(|| self.exports.sessions.count());
        if self.is_supervised() && (!self.store.is_owner() || self.store.has_failed()) {
            return Box::pin(self.confirm(answer)).await;
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

    async fn answer_in_session(&self, call: &mut Call) -> Answer {
        let session = match self.exports.sessions.find(call.session, call.session_epoch) {
            Some(session) if session.role() == call.peer.role => session,
            Some(_) => return Answer::refuse(Code::Forbidden),
            None => return Answer::refuse(Code::NoSession),
        };
        // Nobody can have been told such a number, and a target that took it would have none left.
        let newest = self.store.last_transno().max(self.store.first_transno()).0;
        if call.replay.is_some_and(|replay| replay.0 > newest.saturating_add(REPLAYED_MAX)) {
            return Answer::refuse(Code::Malformed);
        }
        let mut began = self.rt.now();
        session.recent().note(began, call.xid, call.request.opcode());
        if self.recovery.is_active() {
            if let Err(code) = Box::pin(self.recover(&session, call)).await {
                return Answer::refuse(code);
            }
            began = self.rt.now();
        }
        let counting = Counting::of::<H>(&call.request);
        // Another function would be another future around those of the role, which are deep enough.
        let answer = match &call.request {
            Request::Disconnect(msg::Disconnect {}) => {
                self.disconnect(&session);
                answered::<H>(Done::unchanged(Reply::Disconnect(msg::Done {})))
            }
            Request::Sync(msg::Sync { transno }) => self.sync(*transno).await,
            request if request.changes() => self.change(&session, call, &counting).await,
            _ => {
                let ctx = Ctx::new(&self.store, session, call.peer.clone(), call.xid, None, None, call.job);
                let (request, bulk) = taken(call);
                let done = self.carry_out(&ctx, (request, bulk), &counting).await;
                self.clear_away_after(ctx.session());
                result::<H>(done)
            }
        };
        self.measures.timing.note(&counting, self.rt.now() - began);
        answer
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
        (request, bulk): (Request, Vec<Bytes>),
        counting: &Counting,
    ) -> Result<Done, Code> {
        // Nobody has to know of most.
        let stats = H::STATS.filter(|_| !ctx.job.is_none() || self.measures.by_client.is_on());
        let (began, sent) = (self.rt.now(), bytes_of(&bulk));
        let done = match H::Request::try_from(request) {
            Ok(request) => {
                let done = self.handler.handle(ctx, request, bulk).await?;
                self.measures.timing.moved(sent, bytes_of(&done.bulk));
                done
            }
            Err(Request::Statfs(msg::Statfs {})) => {
                Done::unchanged(Reply::Statfs(Box::pin(self.handler.space()).await?))
            }
            // Another role's, or one that is asked for outside any session.
            Err(_) => return Err(Code::NotSupported),
        };
        if let Some(stats) = stats {
            let (took, moved) = (self.rt.now() - began, [bytes_of(&done.bulk), sent]);
            if !ctx.job.is_none() {
                self.measures.jobs.done(ctx.job, &self.rt, (counting, took), moved);
            }
            if self.measures.by_client.is_on() {
                ctx.session().counted().note(stats, counting, took, moved);
            }
        }
        Ok(done)
    }

    /// A changing request: done once, however often it comes.
    async fn change(
        &self,
        session: &Arc<Session<H::Session>>,
        call: &mut Call,
        counting: &Counting,
    ) -> Answer {
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
        let running = slot::Running::new(session, slot, call.xid);
        // What gives space back has to go on when there is none, and what was carried out before is not refused.
        let goes_on = call.replay.is_some() || call.request.frees_space();
        let need = if goes_on { Need::Release } else { Need::Growth };
        match self.prepare(session, need).await {
            Ok(()) => {}
            Err(error) => {
                let refused = Err(code_of(&error));
                running.finish(ReplyRecord::new(call.xid, call.request.opcode(), &refused, Transno(0)));
                return self::result::<H>(refused.map(Done::unchanged));
            }
        }
        let ctx = Ctx::new(
            &self.store,
            session.clone(),
            call.peer.clone(),
            call.xid,
            Some(slot),
            call.replay,
            call.job,
        );
        let opcode = call.request.opcode();
        let asked = tracing::enabled!(tracing::Level::TRACE).then(|| format!("{:?}", call.request));
        let (request, bulk) = taken(call);
        let result = self.carry_out(&ctx, (request, bulk), counting).await;
        self.clear_away_after(session);
        if let Some(asked) = asked {
            let client = session.client();
            let transno = result.as_ref().map(|done| done.transno);
            tracing::trace!(target = %self.store.label().target, %client, xid = call.xid.0, replay = ?call.replay, ?transno, asked, "changed");
        }
        let mut result = self.numbered(&ctx, result);
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

    /// A replay that finds nothing to change any more, or is refused, takes its number all the same: its client counts on the target
    /// having given every number that it was told (`docs/recovery.md#renumbered`).
    fn numbered(&self, ctx: &Ctx<H::Session>, result: Result<Done, Code>) -> Result<Done, Code> {
        if ctx.replay.is_none() {
            return result;
        }
        match result {
            Ok(done) if done.transno == Transno(0) => ctx.commit(Batch::default(), done.reply),
            Err(code) if code != Code::TryAgain => {
                let taken = Batch { replay: ctx.replay, ..Batch::default() };
                self.store.commit(taken).map_err(|error| code_of(&error))?;
                Err(code)
            }
            result => result,
        }
    }

    /// Waits until the client's record is durable (or a replay of what follows would find no session) and the
    /// store has room.
    async fn prepare(&self, session: &Session<H::Session>, need: Need) -> Result<(), StoreError> {
        self.record_durable(session).await?;
        self.store.room(need).await
    }

    pub(crate) async fn record_durable(&self, session: &Session<H::Session>) -> Result<(), StoreError> {
        if !session.is_durable() {
            self.store.committed(session.recorded()).await?;
            session.set_durable();
        }
        Ok(())
    }
}

impl<H: Handler> Watch for Target<H> {
    fn sessions(&self) -> Option<Vec<u64>> {
        let all = || self.exports.sessions.all().into_iter().map(|(handle, _)| handle).collect();
        (!self.recovery.is_active()).then(all)
    }

    fn held(&self) -> Vec<Held> {
        self.handler.held()
    }

    fn waits(&self) -> Vec<String> {
        let mut waits = self.clients.waits();
        waits.extend(self.handler.waits());
        let handles: BTreeSet<u64> = waits.iter().flat_map(|wait| &wait.sessions).copied().collect();
        let sessions = handles.into_iter().filter_map(|handle| self.exports.sessions.of_handle(handle));
        let named =
            sessions.map(|session| format!("session {:#x} is client {}", session.handle(), session.client()));
        let mut lines = self.recovery.waits();
        lines.extend(waits.into_iter().map(|wait| wait.text));
        lines.extend(named);
        lines
    }

    fn is_owner(&self) -> bool {
        !self.stop.is_stopped() && !self.store.has_failed() && self.store.is_owner()
    }

    fn set_parameter(&self, pattern: &str, value: &str) -> Result<(), Code> {
        self.set_here(pattern, value)
    }

    fn set_kept(&self, pattern: &str, value: &str) -> Result<(), Code> {
        Target::set_kept(self, pattern, value)
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
    fn call(self: Arc<Self>, mut call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.answer(&mut call).await })
    }
}

/// What a call asks for and sends along, taken out of it.
fn taken(call: &mut Call) -> (Request, Vec<Bytes>) {
    let nothing = Request::Disconnect(msg::Disconnect {});
    (std::mem::replace(&mut call.request, nothing), std::mem::take(&mut call.bulk))
}

fn bytes_of(bulk: &[Bytes]) -> u64 {
    bulk.iter().map(|slice| slice.len() as u64).sum()
}

pub(crate) fn answered<H: Handler>(done: Done) -> Answer {
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
