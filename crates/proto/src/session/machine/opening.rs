//! How a session is opened, and opened again after its connection or its target was lost.
//!
//! One task per session asks for the steps, while callers wait: reach the target, say who one is, replay what the target
//! lost in a restart, send again what had no reply, let the callers go on (`docs/wire.md#sessions`).

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::event::{Event, Failure, Incoming, Note, Outgoing, Output, Step};
use super::{Known, Machine, Phase, Told};
use crate::code::Code;
use crate::ids::{TargetId, Transno, Xid};
use crate::nid::Nid;
use crate::session::client::{Outcome, Resumption, Retained, Sent};
use crate::session::limits;
use crate::session::message::Message;
use crate::wire::Header;
use crate::wire::header::{FLAG_REPLAY, FLAG_RESENT};
use crate::wire::messages::{Connect, Connected, FEATURE_BATCH, FEATURE_JOBS};

/// How far the opening is.
#[derive(Debug)]
pub(super) struct Opening<W> {
    stage: Stage<W>,
    /// Steps that are certain; the stage says what comes behind them.
    certain: VecDeque<Step<W>>,
    /// Addresses that this attempt has not tried.
    untried: VecDeque<Nid>,
    /// Why the newest address of this attempt did not do.
    failure: Failure,
    /// The next pause between two attempts.
    pub(super) backoff: Duration,
    /// The session that has been opened over what was reached.
    joined: Option<u64>,
    replays: VecDeque<Retained<Message>>,
    replaying: Option<Replaying>,
    resends: Vec<Sent<Message>>,
}

/// What comes next.
#[derive(Debug)]
enum Stage<W> {
    /// An attempt.
    Begin,
    Pause,
    Seek,
    /// The addresses that were not tried, then another attempt.
    Reach,
    /// Something was reached.
    Ask,
    /// The answer is awaited to what the last step asked.
    Asked,
    /// The client has heard of a session that was forgotten; with those who wait for changes that are forgotten.
    Forgotten {
        first: bool,
        evicted: Vec<W>,
    },
    Replay,
    Restate,
    Restating,
    Resend,
    Open,
    /// The task has nothing to do.
    Over,
}

/// A replay whose reply is awaited.
#[derive(Debug)]
struct Replaying {
    header: Header,
    message: Arc<Message>,
    transno: Transno,
    patience: Duration,
    again_at: Duration,
    /// The transno that it has now.
    result: Option<Result<Transno, Code>>,
}

impl<W> Opening<W> {
    pub(super) fn new() -> Opening<W> {
        Opening {
            stage: Stage::Over,
            certain: VecDeque::new(),
            untried: VecDeque::new(),
            failure: Failure::Again(String::new()),
            backoff: Duration::ZERO,
            joined: None,
            replays: VecDeque::new(),
            replaying: None,
            resends: Vec::new(),
        }
    }

    /// A task asks for steps from now on.
    pub(super) fn begin(&mut self) {
        self.certain.clear();
        self.stage = Stage::Begin;
    }

    /// The task ends.
    pub(super) fn stop(&mut self) {
        self.certain.retain(|step| matches!(step, Step::Leave(_)));
        self.stage = Stage::Over;
        self.replaying = None;
    }

    /// Whether a reply is that to a replay.
    pub(super) fn takes(&mut self, reply: &Incoming) -> bool {
        match &mut self.replaying {
            Some(replaying) if replaying.header.xid == reply.xid => {
                // The first one counts.
                let now = reply.transno.max(replaying.transno);
                replaying.result.get_or_insert(reply.result.as_ref().map(|_| now).map_err(|code| *code));
                true
            }
            _ => false,
        }
    }

    /// The replay with this number, if its reply is awaited.
    pub(super) fn replaying(&self, xid: Xid) -> Option<Outgoing> {
        let replaying = self.replaying.as_ref().filter(|replaying| replaying.header.xid == xid)?;
        Some((replaying.header.clone(), replaying.message.clone()))
    }

    /// How long to wait before the next attempt: nothing before the first, then longer and longer until a reply comes.
    fn pause(&mut self, steady: Option<Duration>) -> Step<W> {
        let pause = self.backoff;
        let longer = (pause * 2).clamp(limits::BACKOFF_MIN, limits::BACKOFF_MAX);
        self.backoff = steady.unwrap_or(longer);
        Step::Pause { least: pause / 2, spread: pause / 2 }
    }

    /// What was reached is not used any more.
    fn leave(&mut self) {
        self.replaying = None;
        self.replays.clear();
        self.resends.clear();
        if let Some(session) = self.joined.take() {
            self.certain.push_back(Step::Leave(session));
        }
    }
}

impl Known {
    /// The target has refused a Connect.
    fn refused(&mut self, code: Code, target: TargetId, fsname: &str) -> Failure {
        let problem = match code {
            Code::TryAgain => format!("{target} is starting or recovering"),
            Code::NotHere => format!("{target} is not served there"),
            Code::Forbidden => format!("{target} does not let this key do this"),
            Code::WrongFilesystem => format!("{target} does not belong to file system {fsname}"),
            Code::Older => {
                format!("{target} is older than it was: a copy of it, or it lost what was durable")
            }
            Code::Version => format!("{target} speaks another version, or lacks a feature"),
            code => format!("{target} refuses: {code}"),
        };
        match code {
            // What the client was is over; the next attempt begins something new.
            Code::Evicted => self.boot = 0,
            Code::NoSession => {
                // Whoever has a larger epoch came later under this name; it is outgrown in a few attempts.
                self.outgrown = (self.outgrown + 1).min(limits::OUTGROW_MAX);
                self.epoch += (1 << self.outgrown) - 1;
            }
            Code::Forbidden | Code::WrongFilesystem | Code::Version => {
                return Failure::Refused(code, problem);
            }
            _ => {}
        }
        Failure::Again(problem)
    }
}

impl<W> Machine<W> {
    /// What the task that opens the session does next.
    pub fn next(&mut self, now: Duration) -> Step<W> {
        loop {
            if let Some(step) = self.opening.certain.pop_front() {
                return step;
            }
            if self.phase != Phase::Connecting {
                return self.opening.joined.take().map_or(Step::Done, Step::Leave);
            }
            if let Some(step) = self.advance(now) {
                return step;
            }
        }
    }

    /// Something came of the last step.
    pub(super) fn progress(&mut self, event: Event<W>, out: &mut Vec<Output<W>>) {
        match event {
            Event::Sought { here: true } | Event::Reached => self.opening.stage = Stage::Ask,
            Event::Sought { here: false } => {
                self.opening.stage = Stage::Reach;
                self.opening.untried = self.ends.nids.iter().filter(|nid| !nid.is_lo()).cloned().collect();
            }
            Event::Failed(failure) => self.failed(failure),
            Event::Elsewhere => {
                self.opening.untried.clear();
                self.failed(Failure::Again(format!("{} has moved", self.ends.target)));
            }
            Event::Connected(result) => self.connected(result),
            Event::Restated => {
                self.told.tell_open();
                self.opening.stage = Stage::Resend;
            }
            Event::Opened { here } if self.phase == Phase::Connecting => {
                self.opening.stop();
                self.opening.joined = None;
                self.phase = Phase::Open { here };
                self.trouble.problem = None;
                out.push(Output::Room);
                if mem::take(&mut self.known.recovering) {
                    out.push(Output::EndOfReplays);
                }
            }
            _ => {}
        }
    }

    /// The last step did not succeed, and with it this way to the target.
    fn failed(&mut self, failure: Failure) {
        if matches!(self.opening.stage, Stage::Restating) {
            self.told.tell_open();
        }
        self.opening.leave();
        self.opening.failure = failure;
        self.opening.stage = Stage::Reach;
    }

    /// The target has answered a Connect.
    fn connected(&mut self, result: Result<Connected, Code>) {
        match result {
            Ok(connected) => {
                self.opening.joined = Some(connected.session);
                // It may have been closed meanwhile.
                if self.phase != Phase::Connecting {
                    return;
                }
                if let Err(problem) = self.resume(&connected) {
                    self.failed(Failure::Again(problem));
                }
            }
            Err(code) => {
                let failure = self.known.refused(code, self.ends.target, &self.ends.fsname);
                self.failed(failure);
            }
        }
    }

    /// The step of this stage; `None` if it has none.
    fn advance(&mut self, now: Duration) -> Option<Step<W>> {
        let stage = mem::replace(&mut self.opening.stage, Stage::Asked);
        match stage {
            Stage::Begin => {
                self.opening.stage = Stage::Pause;
                let told = self.told;
                self.told = told.lost();
                (told == Told::Open).then_some(Step::TellLost)
            }
            Stage::Pause => {
                if let Some(code) = self.barred {
                    return Some(self.give_up(code, format!("{} is not asked: {code}", self.ends.target)));
                }
                self.opening.stage = Stage::Seek;
                Some(self.opening.pause(self.pacing.get().connect))
            }
            Stage::Seek => {
                let nothing = format!("no address of {} is known", self.ends.target);
                self.opening.failure = Failure::Again(nothing);
                self.opening.untried.clear();
                Some(Step::Seek)
            }
            Stage::Reach => match self.opening.untried.pop_front() {
                Some(nid) => Some(Step::Dial(nid)),
                None => self.attempt_failed(),
            },
            Stage::Ask => Some(Step::Connect(self.next_connect())),
            // Whoever asks for steps says how each went; this one did not.
            Stage::Asked | Stage::Restating => {
                self.failed(Failure::Again(format!("{} was not asked", self.ends.target)));
                None
            }
            Stage::Forgotten { first, evicted } => {
                if !first {
                    self.known.era += 1;
                }
                self.opening.stage = Stage::Replay;
                let answer = |waiter| Output::Answer { waiter, result: Err(Code::Evicted) };
                // Only now may those go on whose changes nobody knows of.
                (!evicted.is_empty()).then(|| Step::Do(evicted.into_iter().map(answer).collect()))
            }
            Stage::Replay => self.replay(now),
            Stage::Restate if self.known.recovering && self.pacing.get().restate => {
                self.opening.stage = Stage::Restating;
                Some(Step::Restate)
            }
            Stage::Restate => {
                self.opening.stage = Stage::Resend;
                self.told.tell_open().then_some(Step::TellOpen)
            }
            Stage::Resend => {
                self.opening.stage = Stage::Open;
                self.resend(now)
            }
            Stage::Open => Some(Step::Open),
            Stage::Over => Some(Step::Done),
        }
    }

    /// No address has done.
    fn attempt_failed(&mut self) -> Option<Step<W>> {
        match self.opening.failure.clone() {
            Failure::Again(problem) => {
                self.opening.stage = Stage::Begin;
                let is_new = self.trouble.problem.as_ref() != Some(&problem);
                self.trouble.problem = Some(problem.clone());
                is_new.then(|| Step::Do(vec![Output::Note(Note::Unreached(problem))]))
            }
            Failure::Refused(code, problem) => Some(self.give_up(code, problem)),
        }
    }

    /// Everybody who waits is told that the target cannot be asked.
    fn give_up(&mut self, code: Code, problem: String) -> Step<W> {
        self.opening.stage = Stage::Over;
        self.phase = Phase::Idle;
        self.trouble.refusals += 1;
        self.trouble.refusal = Some(code);
        self.trouble.problem = Some(problem.clone());
        Step::GiveUp { code, problem, waiters: self.requests.refused() }
    }

    fn next_connect(&mut self) -> Connect {
        self.known.epoch += 1;
        self.requests.restate_nothing();
        Connect {
            client: self.ends.client,
            features: 0,
            fsname: self.ends.fsname.clone(),
            boot: self.known.boot,
            session_epoch: self.known.epoch,
            committed: self.commits.highest(),
            proof: Bytes::new(),
        }
    }

    /// The target has answered: both sides learn what the other one still knows.
    fn resume(&mut self, connected: &Connected) -> Result<(), String> {
        if connected.resumed && self.known.boot == 0 {
            // It was asked before the session was forgotten here.
            return Err(format!("the session with {} is over", self.ends.target));
        }
        let same_boot = connected.resumed && connected.boot == self.known.boot;
        if same_boot && self.known.session != 0 && connected.session != self.known.session {
            // What this process had there is over; the next attempt begins anew, and tells what is lost.
            self.known.boot = 0;
            let problem = format!("somebody else has taken the session with {} over", self.ends.target);
            self.opening.certain.push_back(Step::Do(vec![Output::Note(Note::TakenOver(problem.clone()))]));
            return Err(problem);
        }
        self.known.outgrown = 0;
        let first = self.known.session == 0;
        let (outcome, plan, evicted) = self.take_over(connected);
        if first {
            self.told = Told::Open;
        }
        match outcome {
            // What an attempt before this one left undone remains to be done.
            Outcome::SameBoot => {}
            Outcome::Restarted => self.known.recovering = true,
            Outcome::Forgotten => self.known.recovering = false,
        }
        let (replays, resends) = (plan.replays.len(), plan.resends.len());
        let note = Note::Connected { outcome, replays, resends };
        self.opening.certain.push_back(Step::Do(vec![Output::Note(note)]));
        if self.pacing.get().replay {
            plan.replays.iter().for_each(|replay| self.commits.replays(replay.told));
        }
        self.opening.replays = match self.pacing.get().replay {
            true => plan.replays.into(),
            false => VecDeque::new(),
        };
        self.opening.resends = plan.resends;
        self.opening.stage = Stage::Replay;
        if outcome == Outcome::Forgotten {
            if self.told.tell_open() {
                self.opening.certain.push_back(Step::TellSessionLost);
            }
            self.opening.stage = Stage::Forgotten { first, evicted };
        }
        Ok(())
    }

    /// Takes over what the target knows; returns also those who wait for changes that it forgot.
    fn take_over(&mut self, connected: &Connected) -> (Outcome, Resumption<Message>, Vec<W>) {
        let outcome = match (connected.resumed, connected.boot == self.known.boot) {
            (true, true) => Outcome::SameBoot,
            (true, false) if self.known.boot != 0 => Outcome::Restarted,
            _ => Outcome::Forgotten,
        };
        self.known.boot = connected.boot;
        (self.known.session, self.known.shown) = (connected.session, connected.session);
        self.known.features = connected.features;
        self.known.batches = connected.features & FEATURE_BATCH != 0;
        self.known.jobs = connected.features & FEATURE_JOBS != 0;
        let (mut plan, evicted) = self.requests.resume(outcome, connected.slots, connected.last_committed);
        // Calls inside the process are not kept, but what they changed can be missed all the same.
        plan.lost = plan.lost.or_else(|| self.commits.missing(connected.last_committed));
        if let Some(range) = plan.lost {
            self.commits.remember_lost(range);
        }
        let mut out = Vec::new();
        if plan.lost.is_some() || !plan.evicted.is_empty() {
            self.trouble.evictions += 1;
            out.push(Output::Note(Note::Lost { range: plan.lost, unknown: plan.evicted.len() }));
        }
        match outcome {
            Outcome::Forgotten => {
                self.known.generation += 1;
                self.commits.reset(connected.last_committed);
                out.push(Output::Advanced);
            }
            Outcome::SameBoot | Outcome::Restarted => {
                self.commits.note_committed(connected.last_committed, &mut out);
            }
        }
        self.opening.certain.push_back(Step::Do(out));
        (outcome, plan, evicted)
    }

    /// Replays one change after the other, each when the target has taken the one before.
    fn replay(&mut self, now: Duration) -> Option<Step<W>> {
        self.opening.stage = Stage::Replay;
        let Some(replaying) = &mut self.opening.replaying else {
            let Some(replay) = self.opening.replays.pop_front() else {
                self.opening.stage = Stage::Restate;
                return None;
            };
            return Some(self.begin_replay(replay, now));
        };
        let Some(result) = replaying.result.take() else {
            if now < replaying.again_at {
                return Some(Step::Wait(replaying.again_at));
            }
            replaying.patience = (replaying.patience * 2).min(limits::REPLAY_RESEND_MAX);
            replaying.again_at = now + replaying.patience;
            let (header, message) = (replaying.header.clone(), replaying.message.clone());
            return Some(Step::Do(vec![Output::Again { header, message }]));
        };
        let transno = replaying.transno;
        self.opening.replaying = None;
        match result {
            Ok(now) => {
                let told = self.requests.replayed(transno, now);
                if told.is_some_and(|told| self.commits.replayed(told, Some(now))) {
                    return Some(Step::Do(vec![Output::Advanced]));
                }
            }
            Err(code @ (Code::TryAgain | Code::NoSession | Code::NotHere)) => {
                self.failed(Failure::Again(format!("{} refuses a replay: {code}", self.ends.target)));
            }
            Err(code) => {
                let told = self.requests.replay_refused(transno).unwrap_or(transno);
                self.commits.replayed(told, None);
                self.commits.remember_lost((Transno(told.0 - 1), told));
                self.trouble.evictions += 1;
                return Some(Step::Do(vec![Output::Note(Note::ReplayRefused(transno, code))]));
            }
        }
        None
    }

    fn begin_replay(&mut self, replay: Retained<Message>, now: Duration) -> Step<W> {
        let Retained { xid, slot, transno, message, .. } = replay;
        let mut header = self.known.header(self.ends.target, &message, xid, slot);
        header.flags |= FLAG_REPLAY;
        header.transno = transno;
        let patience = limits::RESEND_MIN;
        self.opening.replaying = Some(Replaying {
            header: header.clone(),
            message: message.clone(),
            transno,
            patience,
            again_at: now + patience,
            result: None,
        });
        Step::Do(vec![Output::Send { header, message, together: false }])
    }

    /// Sends everything again that had no reply.
    fn resend(&mut self, now: Duration) -> Option<Step<W>> {
        let (mut out, mut outgoing) = (Vec::new(), Vec::new());
        for sent in mem::take(&mut self.opening.resends) {
            let patience = self.requests.resend_after(&sent.message, self.pacing.get(), now);
            // Its caller may have gone during the replays.
            if !self.requests.moved(sent.xid, now, patience, &mut out) {
                continue;
            }
            let mut header = self.known.header(self.ends.target, &sent.message, sent.xid, sent.slot);
            header.flags |= FLAG_RESENT;
            outgoing.push((header, sent.message));
        }
        if outgoing.is_empty() {
            return None;
        }
        out.push(Output::SendAll { outgoing, together: self.known.batches });
        Some(Step::Do(out))
    }
}
