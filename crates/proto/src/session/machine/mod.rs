//! A client's end of a session with one target, as one machine: events in, outputs out.
//!
//! It knows when to connect, what to send, when to send it again, what to replay after a restart, and who is to be told.
//! It does not know what carries its frames: a carrier (`rpc::lo`, `rpc::tcp`) tells it what happened ([`Event`]), and carries
//! out what it says ([`Output`]). Opening the session is a sequence of steps, each of which may take long; one task asks
//! for them ([`Machine::next`], [`Step`]). Rules: `docs/wire.md#sessions`.

mod commits;
mod event;
mod known;
mod opening;
mod pace;
mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use commits::Commits;
pub use event::{Answered, CallError, Event, Failure, Incoming, Note, Outgoing, Output, Step};
use known::Told;
pub use known::{Known, Trouble};
use opening::Opening;
pub use pace::Pace;
use pace::Pacing;
pub use requests::Requests;
use requests::Settled;

use super::client::{Asks, Full, Limits};
use super::limits;
use super::message::Message;
use crate::code::Code;
use crate::ids::{ClientId, TargetId, Transno, Xid};
use crate::nid::Nid;
use crate::wire::Header;
use crate::wire::header::{FLAG_REPLAY, FLAG_RESENT, Room};

/// What a machine is told at its beginning.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The target.
    pub target: TargetId,
    /// Whose session it is.
    pub client: ClientId,
    /// The file system.
    pub fsname: String,
    /// Where the target may be reached, best first.
    pub nids: Vec<Nid>,
    /// Epochs of the session are larger.
    pub epoch: u64,
    /// How much it may hold.
    pub limits: Limits,
}

/// How the session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nobody asked for anything yet, or the target has refused.
    Idle,
    /// A task asks for [`Step`]s.
    Connecting,
    /// Requests go out; `here`: to a target of this process.
    Open {
        /// Nothing is lost on the way, and both ends live and die together.
        here: bool,
    },
    /// It is being ended, because nobody needs it.
    Resting,
    /// It is over.
    Closed,
}

/// What [`Machine::pass`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The request may be handed over.
    Go(Ticket),
    /// It has to wait until there is room.
    Full,
    /// The session is not open in this process, or not in the era that was asked for.
    Elsewhere,
}

/// A request that was handed over to a target of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Its number.
    pub xid: Xid,
    /// Its reply slot, if it changes something.
    pub slot: Option<u32>,
    generation: u64,
}

/// Whose session it is, and with whom.
#[derive(Debug)]
struct Ends {
    target: TargetId,
    client: ClientId,
    fsname: String,
    nids: Vec<Nid>,
}

/// A client's end of a session. `W` is who waits for an answer; `now` is counted from any moment that stays the same.
#[derive(Debug)]
pub struct Machine<W> {
    ends: Ends,
    pacing: Pacing,
    phase: Phase,
    known: Known,
    told: Told,
    requests: Requests<W>,
    opening: Opening<W>,
    commits: Commits,
    trouble: Trouble,
    /// Why the target is not to be asked.
    barred: Option<Code>,
}

impl<W> Machine<W> {
    /// A session that nobody has asked for yet.
    pub fn new(setup: Setup) -> Machine<W> {
        let Setup { target, client, fsname, nids, epoch, limits } = setup;
        Machine {
            ends: Ends { target, client, fsname, nids },
            pacing: Pacing::today(),
            phase: Phase::Idle,
            known: Known::new(epoch),
            told: Told::Nothing,
            requests: Requests::new(limits),
            opening: Opening::new(),
            commits: Commits::default(),
            trouble: Trouble::default(),
            barred: None,
        }
    }

    /// Something happened: what is to be done.
    pub fn on(&mut self, event: Event<W>, now: Duration) -> Vec<Output<W>> {
        let mut out = Vec::new();
        match event {
            Event::Call { message, waiter, era } => self.call(message, waiter, era, now, &mut out),
            Event::Gone(xid) => {
                if self.requests.forget(xid) {
                    out.push(Output::Room);
                }
            }
            Event::Need if self.phase == Phase::Idle => self.start_connecting(&mut out),
            Event::Commit(transno) => self.commits.ask(transno, &mut out),
            Event::CommitKept => {
                if self.phase == (Phase::Open { here: false }) && self.requests.retained().0 > 0 {
                    self.commits.ask(Transno(0), &mut out);
                }
            }
            Event::Replies(replies) => {
                replies.into_iter().for_each(|reply| self.settle(reply, now, &mut out));
            }
            Event::UnderWay { xid, session_epoch } if session_epoch == self.known.epoch => {
                self.requests.has_arrived(xid);
            }
            Event::Wanted { xid, session_epoch } if session_epoch == self.known.epoch => {
                self.send_wanted(xid, &mut out);
            }
            Event::Due { heard } => self.due(heard, now, &mut out),
            Event::Addresses(nids) => {
                if self.ends.nids != nids {
                    self.ends.nids = nids;
                    self.opening.backoff = Duration::ZERO;
                    out.push(Output::Moved);
                }
            }
            Event::Barred(why) => self.bar(why, &mut out),
            Event::Owner(epoch) => self.owned_by(epoch, &mut out),
            Event::Broken => self.break_off(&mut out),
            Event::Look if self.known.session != 0 => self.break_off(&mut out),
            Event::Forget => {
                (self.known.boot, self.known.shown) = (0, 0);
                self.break_off(&mut out);
            }
            Event::Unneeded => {
                let idle = self.requests.is_idle() && !self.known.recovering;
                if idle && self.phase == (Phase::Open { here: false }) {
                    self.phase = Phase::Resting;
                }
            }
            Event::Goodbye { message, waiter } => self.say_goodbye(message, waiter, now, &mut out),
            Event::Needed { broken } => {
                if self.phase == Phase::Resting {
                    self.phase = Phase::Open { here: false };
                    if broken {
                        self.start_connecting(&mut out);
                    }
                }
                out.push(Output::Room);
            }
            Event::Rested { goodbye } => self.rest(goodbye, &mut out),
            Event::Close => self.close(&mut out),
            // Something of the opening, or something that is nothing in this phase.
            event => self.progress(event, &mut out),
        }
        out
    }

    /// Hands a request over to a target of this process: nothing of it is kept, for nothing is lost on the way, and
    /// both ends live and die together. [`Machine::passed`] has to follow.
    pub fn pass(&mut self, asks: Asks, era: Option<u64>) -> Pass {
        if self.phase != (Phase::Open { here: true }) || era.is_some_and(|era| era != self.known.era) {
            return Pass::Elsewhere;
        }
        match self.requests.pass(asks) {
            Ok(begun) => {
                Pass::Go(Ticket { xid: begun.xid, slot: begun.slot, generation: self.known.generation })
            }
            Err(_) => Pass::Full,
        }
    }

    /// A request that was handed over has its answer.
    pub fn passed(
        &mut self,
        ticket: Ticket,
        transno: Transno,
        last_committed: Transno,
        room: Room,
    ) -> Vec<Output<W>> {
        let mut out = Vec::new();
        self.commits.note_room(room);
        if ticket.generation != self.known.generation {
            return out;
        }
        if let Some(slot) = ticket.slot {
            self.requests.free_slot(slot, &mut out);
        }
        self.commits.note_unkept(transno, last_committed, &mut out);
        out
    }

    /// How the session is open.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What both sides know of the session.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// What went wrong.
    pub fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Requests in flight, and what is kept of those before.
    pub fn requests(&self) -> &Requests<W> {
        &self.requests
    }

    /// How far the target is.
    pub fn commits(&self) -> &Commits {
        &self.commits
    }

    /// The same, for the task that asks for commits.
    pub fn commits_mut(&mut self) -> &mut Commits {
        &mut self.commits
    }

    /// A Sync up to `transno` that was begun in `generation` was answered.
    pub fn synced(&mut self, transno: Transno, generation: u64) -> Vec<Output<W>> {
        let mut out = Vec::new();
        // The reply comes when the changes are durable, but a target that forgot the client meanwhile speaks of others.
        if generation == self.known.generation {
            self.requests.committed(transno);
            self.commits.note_committed(transno, &mut out);
        }
        out.push(Output::Room);
        out
    }

    /// When those who watch requests have to look again ([`Event::Due`]); `None` if there is nothing to watch any more.
    pub fn watch_until(&mut self) -> Option<Duration> {
        self.requests.watch_until()
    }

    /// A number for something that is stated again, and who waits for its answer; with its header.
    pub fn restate(&mut self, message: &Message, waiter: W) -> Header {
        let xid = self.requests.restate(waiter);
        let mut header = self.known.header(self.ends.target, message, xid, None);
        header.flags |= FLAG_REPLAY;
        header
    }

    /// Switches things off, for an experiment: before anything else is done with the machine.
    #[cfg(feature = "experiments")]
    pub fn set_pace(&mut self, pace: Pace) {
        self.pacing.set(pace);
    }

    fn call(
        &mut self,
        message: Arc<Message>,
        waiter: W,
        era: Option<u64>,
        now: Duration,
        out: &mut Vec<Output<W>>,
    ) {
        // A way of another session is there only after the era has changed.
        if self.phase != (Phase::Open { here: false }) || era.is_some_and(|era| era != self.known.era) {
            return out.push(Output::NotOpen);
        }
        let after = self.requests.resend_after(&message, self.pacing.get(), now);
        match self.requests.begin(&message, waiter, after, now, out) {
            Ok(begun) => {
                let header = self.known.header(self.ends.target, &message, begun.xid, begun.slot);
                out.push(Output::Send { header, message, together: self.known.batches });
            }
            Err(full) => {
                if full == Full::Retained {
                    self.commits.ask(Transno(0), out);
                }
                out.push(Output::Full);
            }
        }
    }

    /// Takes note of a reply.
    fn settle(&mut self, reply: Incoming, now: Duration, out: &mut Vec<Output<W>>) {
        self.commits.note_room(reply.room);
        // What an older connection still delivers was sent again over the newer one, and is answered there.
        if reply.session_epoch != self.known.epoch {
            return;
        }
        if self.opening.takes(&reply) {
            self.requests.committed(reply.last_committed);
            self.commits.note(reply.transno, reply.last_committed, out);
            return out.push(Output::Stir);
        }
        if let Some(waiter) = self.requests.restated(reply.xid) {
            let Incoming { result, bulk, transno, .. } = reply;
            let session = self.known.session;
            let result = result.map(|reply| Answered { reply, bulk, transno, session });
            return out.push(Output::Answer { waiter, result });
        }
        if let Err(code @ (Code::NoSession | Code::NotHere)) = reply.result {
            return self.not_known_there(reply.xid, code, out);
        }
        let (transno, last_committed) = (reply.transno, reply.last_committed);
        self.opening.backoff = Duration::ZERO;
        let Settled { roomier, commit_wanted, answer } =
            self.requests.answered(reply, self.known.session, now);
        self.commits.note(transno, last_committed, out);
        if commit_wanted {
            self.commits.ask(Transno(0), out);
        }
        if roomier {
            out.push(Output::Room);
        }
        if let Some((waiter, result)) = answer {
            out.push(Output::Answer { waiter, result });
        }
    }

    /// The target does not know the session, or is not there any more. The request stays in flight, and connecting again sends it again; but
    /// a change that was certainly not carried out is no reason to tell anybody that this is unknown. (NotHere says nothing of it: a
    /// target that lost its store to another owner says so behind a change, too.)
    fn not_known_there(&mut self, xid: Xid, code: Code, out: &mut Vec<Output<W>>) {
        if self.phase == (Phase::Open { here: false }) {
            self.start_connecting(out);
        }
        if code == Code::NoSession
            && let Some(waiter) = self.requests.undone(xid)
        {
            out.push(Output::Answer { waiter, result: Err(code) });
            out.push(Output::Room);
        }
    }

    /// The target has not got a request, or answered it and the answer was lost.
    fn send_wanted(&mut self, xid: Xid, out: &mut Vec<Output<W>>) {
        if let Some((mut header, message)) = self.opening.replaying(xid) {
            header.flags |= FLAG_RESENT;
            out.push(Output::Send { header, message, together: false });
        } else if let Some(sent) = self.requests.in_flight(xid) {
            let mut header = self.known.header(self.ends.target, &sent.message, sent.xid, sent.slot);
            header.flags |= FLAG_RESENT;
            out.push(Output::Send { header, message: sent.message.clone(), together: false });
            self.requests.sent_again(xid);
        }
    }

    /// Sends again what is overdue, on a connection that was heard last at `heard`.
    fn due(&mut self, heard: Option<Duration>, now: Duration, out: &mut Vec<Output<W>>) {
        // Without a connection, connecting again sends everything again.
        let open = self.phase == (Phase::Open { here: false });
        let Some(overdue) = self.requests.overdue(heard.filter(|_| open).unwrap_or(now), now, open) else {
            return out.push(Output::Silent);
        };
        if !open {
            return;
        }
        for xid in overdue {
            if let Some(sent) = self.requests.in_flight(xid) {
                let header = self.known.header(self.ends.target, &sent.message, sent.xid, sent.slot);
                out.push(Output::Again { header, message: sent.message.clone() });
            }
        }
    }

    fn say_goodbye(&mut self, message: Arc<Message>, waiter: W, now: Duration, out: &mut Vec<Output<W>>) {
        match self.requests.begin(&message, waiter, limits::RESEND_MIN, now, out) {
            Ok(begun) => {
                let header = self.known.header(self.ends.target, &message, begun.xid, begun.slot);
                out.push(Output::Send { header, message, together: false });
            }
            Err(_) => out.push(Output::Full),
        }
    }

    fn rest(&mut self, goodbye: Option<Xid>, out: &mut Vec<Output<W>>) {
        if let Some(xid) = goodbye {
            // Sent again it would end the session that follows.
            self.requests.forget(xid);
        }
        out.push(Output::Leave(self.known.session));
        if self.phase == Phase::Resting {
            self.phase = Phase::Idle;
            (self.known.session, self.known.shown, self.known.boot) = (0, 0, 0);
            self.told = Told::Nothing;
        }
        out.push(Output::Room);
    }

    fn bar(&mut self, why: Option<Code>, out: &mut Vec<Output<W>>) {
        let before = std::mem::replace(&mut self.barred, why);
        if before.is_some() && why.is_none() && self.known.session != 0 && self.phase == Phase::Idle {
            // The target has not forgotten this client, and could not call it until somebody asks for something.
            self.start_connecting(out);
        }
        if why.is_some() {
            // Whoever waits is told that it failed: it must not happen later after all.
            (self.known.boot, self.known.shown) = (0, 0);
            self.break_off(out);
            // The attempt that may be under way ends, too.
            out.push(Output::Moved);
        }
    }

    fn owned_by(&mut self, epoch: u64, out: &mut Vec<Output<W>>) {
        let older = self.known.boot != 0 && self.known.boot < epoch;
        if older && self.phase == (Phase::Open { here: false }) {
            out.push(Output::Note(Note::OwnerChanged(epoch)));
            self.start_connecting(out);
        }
    }

    /// Opens the session again if it is open.
    fn break_off(&mut self, out: &mut Vec<Output<W>>) {
        if matches!(self.phase, Phase::Open { .. }) {
            self.start_connecting(out);
        }
    }

    /// The caller has found it not open, or not open any more.
    fn start_connecting(&mut self, out: &mut Vec<Output<W>>) {
        if self.phase != Phase::Idle {
            out.push(Output::Leave(self.known.session));
        }
        self.phase = Phase::Connecting;
        self.opening.begin();
        out.push(Output::Connect);
    }

    fn close(&mut self, out: &mut Vec<Output<W>>) {
        if matches!(self.phase, Phase::Open { .. }) {
            out.push(Output::Leave(self.known.session));
        }
        self.phase = Phase::Closed;
        self.opening.stop();
        self.commits.fail(CallError::Closed);
        // Dropping the waiters tells them.
        out.push(Output::Drop(self.requests.waiters()));
        out.push(Output::Stir);
        out.push(Output::Room);
        out.push(Output::Advanced);
    }
}
