//! Ranges that clients hold: carries out what [`Table`] decides. Rules: `docs/locks.md#ranges`. What becomes of a range that is given up
//! is its role's to say ([`GivenUp`]).
//!
//! Everything is decided in one step under one guard; callbacks are tasks of their own, and their answers are further
//! steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::lock::range::{
    self, Answer, Ask, Call, Holder, Mode, Numbers, Output, Purpose, Range, Reclaim, Settings, Table,
};
use proto::parameters::TargetTree;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Code, ObjectId};
use rt::sync::oneshot;
use rt::{BoxFuture, Rt};

use crate::clients::{Called, Clients};
use crate::handler::Env;
use crate::lock_room::LockRoom;
use crate::stop::Stop;
use crate::watch::{Held, Holding, Wait};

/// How long the answer to a callback is waited for that nobody needs. Then the client is asked for something else.
const RECLAIM_TIME: Duration = Duration::from_secs(60);
/// Pause after a client that refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// What is done before a range that a session gives up may be anybody else's.
pub trait GivenUp: Send + Sync + 'static {
    /// The session `by` gives up what it has of `range`.
    ///
    /// # Errors
    /// The target stops: nobody is granted anything any more.
    fn give_up(&self, object: ObjectId, range: Range, by: Holder) -> BoxFuture<'_, Result<(), Code>>;
}

/// The ranges that are held of a target's objects.
pub struct RangeLocks {
    /// For the tasks of callbacks.
    me: Weak<RangeLocks>,
    rt: Rt,
    stop: Stop,
    clients: Arc<Clients>,
    role: Arc<dyn GivenUp>,
    room: LockRoom,
    state: Mutex<State>,
    counters: Counters,
}

struct State {
    table: Table,
    next_ask: u64,
    /// Who waits for the answer to which request.
    waiters: BTreeMap<u64, oneshot::Sender<Decided>>,
}

/// What a request that waited is told.
#[derive(Debug)]
enum Decided {
    Granted(msg::Token),
    Contended,
    Go,
}

/// What was done so far.
#[derive(Default)]
struct Counters {
    enqueues: AtomicU64,
    granted_at_once: AtomicU64,
    waits: AtomicU64,
    revocations: AtomicU64,
    reclaims: AtomicU64,
    contended: AtomicU64,
    passed: AtomicU64,
}

/// Figures of a target's ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeCounts {
    /// Ranges that are held now.
    pub held: usize,
    /// Requests for ranges.
    pub enqueues: u64,
    /// Those that were granted without waiting.
    pub granted_at_once: u64,
    /// Requests for ranges, and accesses without one, that had to wait.
    pub waits: u64,
    /// Callbacks for ranges.
    pub revocations: u64,
    /// Those for want of room, of all that a client holds of an object.
    pub reclaims: u64,
    /// Requests that were told to go without.
    pub contended: u64,
    /// Grants of what another session could change until then.
    pub passed: u64,
}

/// A range that the target itself uses in the name of a session, until this is dropped.
pub struct Using<'a> {
    ranges: &'a RangeLocks,
    object: ObjectId,
    holder: Holder,
    id: u64,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.ranges.step(|table, now| {
            table.abandon(now, self.holder, self.id);
            table.end_use(now, self.object, self.id);
        });
    }
}

/// A request that may still wait. Dropped, it waits no more.
struct Waiting<'a> {
    ranges: &'a RangeLocks,
    holder: Holder,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.ranges.state.lock().waiters.remove(&self.id);
        self.ranges.step(|table, now| table.abandon(now, self.holder, self.id));
    }
}

impl RangeLocks {
    /// Nothing is held.
    pub fn new(env: &Env, role: Arc<dyn GivenUp>, settings: Settings) -> Arc<RangeLocks> {
        let room = LockRoom::new(env.rt.memory_bytes(), range::RANGES_MAX as u64);
        let settings = Settings { bounds: room.bounds(1), ..settings };
        let table = Table::new(Arc::new(Numbers::new(env.store.boot())), settings);
        Arc::new_cyclic(|me| RangeLocks {
            me: me.clone(),
            rt: env.rt.clone(),
            stop: env.stop.clone(),
            clients: env.clients.clone(),
            role,
            room,
            state: Mutex::new(State { table, next_ask: 0, waiters: BTreeMap::new() }),
            counters: Counters::default(),
        })
    }

    /// Grants a range as soon as nobody else holds it.
    ///
    /// # Errors
    /// `Invalid` for an empty range, `NoSession` if the session ends meanwhile, `TryAgain` if there is no room or the target is being stopped.
    pub async fn enqueue(&self, holder: Holder, enqueue: &msg::Enqueue) -> Result<msg::Token, Code> {
        count(&self.counters.enqueues);
        let range = range_of(enqueue.start, enqueue.end)?;
        let (id, answer, receiver) =
            self.ask(enqueue.object, holder, Purpose::Hold, Mode::of(enqueue.write), range);
        let decided = match answer {
            Answer::Granted(token) => {
                count(&self.counters.granted_at_once);
                return Ok(token);
            }
            Answer::Contended => Decided::Contended,
            Answer::Full => return Err(Code::TryAgain),
            Answer::Wait | Answer::Go => {
                let _waiting = Waiting { ranges: self, holder, id };
                self.decided(receiver).await?
            }
        };
        match decided {
            Decided::Granted(token) => Ok(token),
            Decided::Contended | Decided::Go => {
                count(&self.counters.contended);
                let (write, start, end) = (enqueue.write, enqueue.start, enqueue.end);
                Ok(msg::Token { number: 0, write, start, end, contended: true })
            }
        }
    }

    /// Grants all of an object if nobody has to be called back for it; `None` if that cannot be.
    pub fn grant_free(&self, holder: Holder, object: ObjectId, mode: Mode) -> Option<msg::Token> {
        let (answer, outputs) = {
            let mut state = self.state.lock();
            if !state.table.is_free(object, holder, mode) {
                return None;
            }
            state.next_ask += 1;
            let id = state.next_ask;
            let now = self.rt.now().0;
            let answer = state.table.ask(
                now,
                object,
                Ask { id, holder, purpose: Purpose::Hold, mode, range: Range::ALL },
            );
            if answer == Answer::Wait {
                state.table.abandon(now, holder, id);
            }
            (answer, state.take_outputs())
        };
        tracing::trace!(?object, ?holder, ?mode, ?answer, "all of an object that is free");
        self.carry_out(outputs);
        match answer {
            Answer::Granted(token) => Some(token),
            _ => None,
        }
    }

    /// Grants what the session held before the target restarted, without asking anybody.
    ///
    /// # Errors
    /// `Invalid` for an empty range, and for one that somebody else has stated.
    pub fn restate(&self, holder: Holder, enqueue: &msg::Enqueue) -> Result<msg::Token, Code> {
        let range = range_of(enqueue.start, enqueue.end)?;
        let ask = Ask { id: 0, holder, purpose: Purpose::Hold, mode: Mode::of(enqueue.write), range };
        let token = self.step(|table, _| table.restate(enqueue.object, ask));
        tracing::trace!(object = ?enqueue.object, ?holder, ?range, ?token, "a range is stated again");
        token.ok_or(Code::Invalid)
    }

    /// Waits until the target may use `range` in the name of a session that does not hold it. `None` if it is empty.
    ///
    /// # Errors
    /// As [`RangeLocks::enqueue`].
    pub async fn use_range(
        &self,
        object: ObjectId,
        holder: Holder,
        mode: Mode,
        range: Range,
    ) -> Result<Option<Using<'_>>, Code> {
        if range.start >= range.end {
            return Ok(None);
        }
        let (id, answer, receiver) = self.ask(object, holder, Purpose::Use, mode, range);
        let using = Using { ranges: self, object, holder, id };
        match answer {
            Answer::Go => {}
            Answer::Full => return Err(Code::TryAgain),
            Answer::Wait | Answer::Granted(_) | Answer::Contended => {
                let _waiting = Waiting { ranges: self, holder, id };
                self.decided(receiver).await?;
            }
        }
        Ok(Some(using))
    }

    /// Whether a session holds all of a range to change it.
    pub fn holds(&self, holder: Holder, object: ObjectId, range: Range) -> bool {
        self.state.lock().table.holds(object, holder, Mode::Write, range)
    }

    /// A session gives ranges up of its own accord.
    pub fn cancel(&self, holder: Holder, cancel: &msg::CancelRanges) {
        tracing::trace!(?holder, ?cancel, "ranges are given up");
        self.step(|table, now| {
            for range in cancel.ranges.iter().filter(|range| range.start < range.end) {
                table.cancelled(now, holder, range);
            }
        });
    }

    /// A session is over.
    pub fn drop_session(&self, holder: Holder) {
        let waited = self.step(|table, now| table.drop_session(now, holder));
        let mut state = self.state.lock();
        // Whoever waits in its name learns of it by its sender being dropped.
        let senders: Vec<_> = waited.iter().filter_map(|id| state.waiters.remove(id)).collect();
        drop(state);
        drop(senders);
    }

    /// Objects are no more: nobody is asked whether he agrees.
    pub fn drop_objects(&self, objects: &[ObjectId]) {
        self.step(|table, now| objects.iter().for_each(|object| table.drop_object(now, *object)));
    }

    /// Sessions other than `except` that may have changed what the object does not show yet.
    pub fn writers(&self, object: ObjectId, except: Holder) -> Vec<Holder> {
        self.state.lock().table.writers(object, except)
    }

    /// Whether clients that take a range from each other again and again are told to use it without holding it.
    pub fn set_contended_answers(&self, on: bool) {
        let bounds = self.room.bounds(1);
        self.state.lock().table.set(Settings { contended_answers: on, bounds });
    }

    /// Registers what operators can set.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.room.register(tree, || {
            let bounds = self.room.bounds(1);
            self.step(|table, _| table.set(Settings { bounds, ..table.settings() }));
        });
    }

    /// What sessions hold.
    pub fn held(&self) -> Vec<Held> {
        self.state.lock().table.held().map(shown).collect()
    }

    /// How many ranges that are, without a list of them.
    pub fn held_count(&self) -> usize {
        self.state.lock().table.ranges()
    }

    /// What this one holds.
    pub fn held_by(&self, holder: Holder) -> Vec<Held> {
        self.state.lock().table.held_by(holder).map(shown).collect()
    }

    /// Who waits for a range, who uses one without holding it, who is called back, and what is held of objects with
    /// any of these.
    pub fn waits(&self) -> Vec<Wait> {
        let state = self.state.lock();
        let mut busy = BTreeSet::new();
        let mut waits = Vec::new();
        let mut push = |holder: Holder, text| waits.push(Wait { sessions: vec![holder.0], text });
        for (object, Ask { id, holder, purpose, mode, range }) in state.table.asks() {
            busy.insert(object);
            let text = format!(
                "request {id} of session {:#x} for {object:?}: {purpose:?} {} to {}, {mode:?}",
                holder.0, range.start, range.end
            );
            push(holder, text);
        }
        for Call { object, holder, range, number, keep_read, .. } in state.table.calls() {
            busy.insert(object);
            let text = format!(
                "session {:#x} is called back for {object:?}: {} to {} up to grant {number}, keep_read {keep_read}",
                holder.0, range.start, range.end
            );
            push(holder, text);
        }
        for held in state.table.held().filter(|held| busy.contains(&held.object)) {
            let text = format!(
                "session {:#x} holds {:?}: {} to {}, write {}",
                held.holder.0, held.object, held.range.start, held.range.end, held.write
            );
            push(held.holder, text);
        }
        waits
    }

    /// The figures.
    pub fn counts(&self) -> RangeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RangeCounts {
            held: self.state.lock().table.ranges(),
            enqueues: read(&self.counters.enqueues),
            granted_at_once: read(&self.counters.granted_at_once),
            waits: read(&self.counters.waits),
            revocations: read(&self.counters.revocations),
            reclaims: read(&self.counters.reclaims),
            contended: read(&self.counters.contended),
            passed: read(&self.counters.passed),
        }
    }

    fn ask(
        &self,
        object: ObjectId,
        holder: Holder,
        purpose: Purpose,
        mode: Mode,
        range: Range,
    ) -> (u64, Answer, oneshot::Receiver<Decided>) {
        let (sender, receiver) = oneshot::channel();
        let (id, answer, outputs) = {
            let mut state = self.state.lock();
            state.next_ask += 1;
            let id = state.next_ask;
            let now = self.rt.now().0;
            let answer = state.table.ask(now, object, Ask { id, holder, purpose, mode, range });
            if answer == Answer::Wait {
                count(&self.counters.waits);
                state.waiters.insert(id, sender);
            }
            (id, answer, state.take_outputs())
        };
        tracing::trace!(?object, id, ?holder, ?purpose, ?mode, ?range, ?answer, "a range is asked for");
        self.carry_out(outputs);
        (id, answer, receiver)
    }

    /// Waits for an answer. An error means that the session is over, or the target is being stopped.
    async fn decided(&self, receiver: oneshot::Receiver<Decided>) -> Result<Decided, Code> {
        match self.stop.unless(receiver).await {
            Some(Ok(decided)) => Ok(decided),
            Some(Err(_)) => Err(Code::NoSession),
            None => Err(Code::TryAgain),
        }
    }

    /// Changes the table, and carries out what follows from it.
    fn step<T>(&self, change: impl FnOnce(&mut Table, u64) -> T) -> T {
        let (result, outputs) = {
            let mut state = self.state.lock();
            let now = self.rt.now().0;
            let result = change(&mut state.table, now);
            (result, state.take_outputs())
        };
        self.carry_out(outputs);
        result
    }

    fn carry_out(&self, outputs: Vec<(Output, Option<oneshot::Sender<Decided>>)>) {
        for (output, sender) in outputs {
            tracing::trace!(?output, "a range");
            let decided = match output {
                Output::Granted { holder, token, from, .. } => {
                    if let Some(from) = from {
                        self.passes(from, holder);
                    }
                    Decided::Granted(token)
                }
                Output::Contended { .. } => Decided::Contended,
                Output::Go { .. } => Decided::Go,
                Output::Call(call) => {
                    self.call_back(call);
                    continue;
                }
                Output::Reclaim(reclaim) => {
                    self.reclaim(reclaim);
                    continue;
                }
            };
            // Who is not there any more has abandoned its request, or is about to.
            if let Some(sender) = sender {
                let _ = sender.send(decided);
            }
        }
    }

    /// `to` is about to see or to overwrite what `from` could change until now.
    fn passes(&self, from: Holder, to: Holder) {
        count(&self.counters.passed);
        tracing::trace!(from = from.0, to = to.0, "a range passes from one session to another");
    }

    fn answered(&self, call: &Call, answer: msg::RangeRevoked) {
        tracing::trace!(?call, ?answer, "a callback is answered");
        self.step(|table, now| table.answered(now, call, answer));
    }

    /// Calls a client back that nobody waits for: whatever it does, it is not evicted.
    fn reclaim(&self, reclaim: Reclaim) {
        count(&self.counters.reclaims);
        let Some(ranges) = self.me.upgrade() else { return };
        self.rt.spawn(async move {
            let call = &reclaim.call;
            let answer = ranges.clients.ask(call.holder.0, call.request().into(), RECLAIM_TIME).await;
            let given = match answer {
                Some(Ok(Reply::RevokeRange(answer))) => Some(answer),
                Some(Err(Code::NotSupported)) => Some(nothing(call)),
                Some(_) => {
                    ranges.stop.unless(ranges.rt.sleep(REFUSED_PAUSE)).await;
                    None
                }
                None => None,
            };
            if let Some(answer) = &given {
                let range = Range { start: answer.start, end: answer.end };
                if ranges.role.give_up(call.object, range, call.holder).await.is_err() {
                    return;
                }
            }
            ranges.step(|table, now| table.reclaimed(now, &reclaim, given));
        });
    }

    fn call_back(&self, call: Call) {
        count(&self.counters.revocations);
        let Some(ranges) = self.me.upgrade() else { return };
        self.rt.spawn(async move {
            match ranges.clients.call_back(call.holder.0, call.request().into()).await {
                Called::Answered(reply) => {
                    let answer = match *reply {
                        Reply::RevokeRange(answer) => answer,
                        _ => nothing(&call),
                    };
                    let range = Range { start: answer.start, end: answer.end };
                    // A failure stops the target: nobody is granted anything any more.
                    if ranges.role.give_up(call.object, range, call.holder).await.is_ok() {
                        ranges.answered(&call, answer);
                    }
                }
                // It does not know what a range is, so it holds none.
                Called::Unknown => ranges.answered(&call, nothing(&call)),
                Called::Gone => ranges.drop_session(call.holder),
                Called::Stopped => {}
            }
        });
    }
}

impl State {
    /// What is to be done, and who is to be told.
    fn take_outputs(&mut self) -> Vec<(Output, Option<oneshot::Sender<Decided>>)> {
        let outputs = self.table.take_outputs().into_iter();
        let waiters = &mut self.waiters;
        outputs
            .map(|output| {
                let waiter = output.answers().and_then(|(id, _)| waiters.remove(&id));
                (output, waiter)
            })
            .collect()
    }
}

/// The answer of a client that holds nothing of what it was asked for.
fn shown(held: range::Held) -> Held {
    let range::Held { object, holder, range: Range { start, end }, write } = held;
    Held { session: holder.0, what: Holding::Range { object, start, end, write } }
}

fn nothing(call: &Call) -> msg::RangeRevoked {
    msg::RangeRevoked { start: call.range.start, end: call.range.end, kept_read: false, number: call.number }
}

fn range_of(start: u64, end: u64) -> Result<Range, Code> {
    if start < end { Ok(Range { start, end }) } else { Err(Code::Invalid) }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
