//! Requests in flight, with who waits for them and when they are sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::event::{Answered, Incoming, Output};
use super::pace::Pace;
use crate::code::Code;
use crate::ids::{Transno, Xid};
use crate::session::client::{Asks, Begun, ClientSession, Full, Limits, Outcome, Resumption, Sent};
use crate::session::estimate::{Estimate, Estimated};
use crate::session::flight::{Arrived, Due, Flight};
use crate::session::limits;
use crate::session::message::Message;
use crate::wire::Reply;

/// An answer, and who waits for it.
pub(super) type Answer<W> = (W, Result<Answered<Reply>, Code>);

/// The requests of a session that are in flight, and what is kept of those that were answered and are not durable.
#[derive(Debug)]
pub struct Requests<W> {
    session: ClientSession<Message>,
    flights: BTreeMap<Xid, Flight<W>>,
    /// Who waits for the answers to what is stated again.
    restating: BTreeMap<Xid, W>,
    /// Until when those who watch requests sleep; `None` if nobody watches.
    watched_until: Option<Duration>,
    /// Somebody found no room and waits for some.
    crowded: bool,
    /// How long answers take.
    pub(super) answers: Estimate,
}

/// What an answer to a request meant.
pub(super) struct Settled<W> {
    pub(super) roomier: bool,
    pub(super) commit_wanted: bool,
    pub(super) answer: Option<Answer<W>>,
}

impl<W> Requests<W> {
    pub(super) fn new(limits: Limits) -> Requests<W> {
        Requests {
            session: ClientSession::new(limits),
            flights: BTreeMap::new(),
            restating: BTreeMap::new(),
            watched_until: None,
            crowded: false,
            answers: Estimate::default(),
        }
    }

    /// Takes a request up, by what it may do.
    pub(super) fn begin(
        &mut self,
        message: &Arc<Message>,
        waiter: W,
        resend_after: Duration,
        now: Duration,
        out: &mut Vec<Output<W>>,
    ) -> Result<Begun, Full> {
        let (bytes, kept) = (message.bytes(), message.clone());
        let begun = match (message.waits, message.contends) {
            (true, _) => self.session.begin_waiting(bytes, kept),
            (false, true) => self.session.begin_contending(message.changes, bytes, kept),
            (false, false) => self.session.begin(message.changes, bytes, kept),
        };
        let begun = begun.inspect_err(|_| self.crowded = true)?;
        let flight = Flight::new(waiter, message, resend_after, now);
        self.watch(flight.resend_at, out);
        self.flights.insert(begun.xid, flight);
        Ok(begun)
    }

    /// A number and a slot for a request of which nothing is kept.
    pub(super) fn pass(&mut self, asks: Asks) -> Result<Begun, Full> {
        self.session.pass(asks).inspect_err(|_| self.crowded = true)
    }

    /// A slot of [`Requests::pass`] is free again.
    pub(super) fn free_slot(&mut self, slot: u32, out: &mut Vec<Output<W>>) {
        self.session.free_slot(slot);
        if std::mem::take(&mut self.crowded) {
            out.push(Output::Room);
        }
    }

    /// The caller has gone. True if there is more room now.
    pub(super) fn forget(&mut self, xid: Xid) -> bool {
        self.restating.remove(&xid);
        let forgotten = self.session.forget(xid);
        if forgotten {
            self.flights.remove(&xid);
        } else if let Some(flight) = self.flights.get_mut(&xid) {
            flight.waiter = None;
        }
        forgotten
    }

    pub(super) fn has_arrived(&mut self, xid: Xid) {
        if let Some(flight) = self.flights.get_mut(&xid).filter(|flight| flight.arrived == Arrived::Perhaps) {
            flight.arrived = Arrived::Yes;
        }
    }

    /// Number and waiter of something that is stated again.
    pub(super) fn restate(&mut self, waiter: W) -> Xid {
        let xid = self.session.draw_xid();
        self.restating.insert(xid, waiter);
        xid
    }

    /// Whatever was stated again is not waited for any more.
    pub(super) fn restate_nothing(&mut self) {
        self.restating.clear();
    }

    /// Who waits for the reply to something that was stated again, if that is what this number is of.
    pub(super) fn restated(&mut self, xid: Xid) -> Option<W> {
        self.restating.remove(&xid)
    }

    /// The reply to a request came.
    pub(super) fn answered(&mut self, reply: Incoming, session: u64, now: Duration) -> Settled<W> {
        let Incoming { xid, transno, last_committed, result, bulk, .. } = reply;
        let before = self.session.last_committed();
        let meant = self.session.answered(xid, transno, last_committed);
        let roomier = meant.known || self.session.last_committed() > before;
        let flight = self.flights.remove(&xid);
        if let Some(flight) = flight.as_ref().filter(|flight| flight.arrived == Arrived::Yes && !flight.waits)
        {
            self.answers.note(now, now.saturating_sub(flight.since));
        }
        let waiter = flight.and_then(|flight| flight.waiter);
        let result = result.map(|reply| Answered { reply, bulk, transno, session });
        Settled { roomier, commit_wanted: meant.commit_wanted, answer: waiter.map(|waiter| (waiter, result)) }
    }

    /// The target does not know the session in which `xid` came. A change that was sent once was carried out nowhere: it is in flight no more,
    /// and whoever waits for it may begin it anew in the session that follows. `None` for any other: it stays in flight.
    pub(super) fn undone(&mut self, xid: Xid) -> Option<W> {
        let changes = self.session.in_flight(xid)?.slot.is_some();
        let flight = self.flights.get_mut(&xid).filter(|flight| changes && flight.once)?;
        let waiter = flight.waiter.take()?;
        self.flights.remove(&xid);
        self.session.drop_undone(xid);
        Some(waiter)
    }

    /// The target asks for a request: the first sending of it may have arrived all the same.
    pub(super) fn sent_again(&mut self, xid: Xid) {
        if let Some(flight) = self.flights.get_mut(&xid) {
            flight.once = false;
        }
    }

    pub(super) fn committed(&mut self, last_committed: Transno) {
        self.session.committed(last_committed);
    }

    pub(super) fn in_flight(&self, xid: Xid) -> Option<&Sent<Message>> {
        self.session.in_flight(xid)
    }

    /// Changes that are answered and not durable, and their bytes.
    pub fn retained(&self) -> (usize, usize) {
        self.session.retained()
    }

    /// Requests in flight, each with the moment at which it was sent first.
    pub fn unanswered(&self) -> impl Iterator<Item = (&Sent<Message>, Option<Duration>)> {
        let since = |sent: &Sent<Message>| self.flights.get(&sent.xid).map(|flight| flight.since);
        self.session.sent().map(move |sent| (sent, since(sent)))
    }

    /// When a request without a reply is sent again first.
    pub(super) fn resend_after(&self, message: &Message, pace: Pace, now: Duration) -> Duration {
        match pace.resend {
            _ if message.waits => limits::RESEND_WAITING,
            Some(resend) => resend,
            None if message.pulses => limits::RESEND_MIN,
            None => self.answers.patience(now, limits::RESEND_MAX),
        }
    }

    /// How long answers take.
    pub fn answers(&self, now: Duration) -> Estimated {
        self.answers.at(now)
    }

    /// Nothing is under way, and nothing kept.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.session.in_flight_count() == 0 && self.retained().0 == 0
    }

    /// What the target knows, after it was reached again: what to send, and who waits for what nobody knows of any more.
    pub(super) fn resume(
        &mut self,
        outcome: Outcome,
        slots: u32,
        last_committed: Transno,
    ) -> (Resumption<Message>, Vec<W>) {
        let plan = self.session.resume(outcome, slots, last_committed);
        let flights = plan.evicted.iter().filter_map(|xid| self.flights.remove(xid));
        let evicted = flights.filter_map(|flight| flight.waiter).collect();
        (plan, evicted)
    }

    pub(super) fn replayed(&mut self, transno: Transno, now: Transno) -> Option<Transno> {
        self.session.replayed(transno, now)
    }

    pub(super) fn replay_refused(&mut self, transno: Transno) -> Option<Transno> {
        self.session.replay_refused(transno)
    }

    /// A request goes out over another connection, if its caller has not gone meanwhile.
    pub(super) fn moved(
        &mut self,
        xid: Xid,
        now: Duration,
        resend_after: Duration,
        out: &mut Vec<Output<W>>,
    ) -> bool {
        if self.session.in_flight(xid).is_none() {
            return false;
        }
        if let Some(flight) = self.flights.get_mut(&xid) {
            flight.moved(now, resend_after);
        }
        self.watch(now + resend_after, out);
        true
    }

    /// Everybody who waits for an answer; the requests stay in flight.
    pub(super) fn refused(&mut self) -> Vec<W> {
        self.flights.values_mut().filter_map(|flight| flight.waiter.take()).collect()
    }

    /// Everybody who waits for anything: there will be no answers.
    pub(super) fn waiters(&mut self) -> Vec<W> {
        let restating = std::mem::take(&mut self.restating).into_values();
        let flights = std::mem::take(&mut self.flights).into_values();
        restating.chain(flights.filter_map(|flight| flight.waiter)).collect()
    }

    /// Makes sure that a task watches the requests in flight, and looks at `resend_at` at the latest.
    fn watch(&mut self, resend_at: Duration, out: &mut Vec<Output<W>>) {
        match self.watched_until {
            Some(until) if until <= resend_at => {}
            // One that waits for others is looked at late; what comes after it is not to be.
            Some(_) => {
                self.watched_until = Some(resend_at);
                out.push(Output::Earlier);
            }
            None => {
                self.watched_until = Some(resend_at);
                out.push(Output::Watch);
            }
        }
    }

    pub(super) fn watch_until(&mut self) -> Option<Duration> {
        self.watched_until = self.flights.values().map(|flight| flight.resend_at).min();
        self.watched_until
    }

    /// What is to be sent again at `now`, on a connection that was heard last at `heard`; `None` if an `open` connection
    /// is to be given up, because it says nothing.
    pub(super) fn overdue(&mut self, heard: Duration, now: Duration, open: bool) -> Option<Vec<Xid>> {
        // Who is slow with answers may be slow with everything.
        let silence_max = self.answers.patience(now, limits::RESEND_MAX).max(limits::SILENCE_MAX);
        let mut overdue = Vec::new();
        for (xid, flight) in self.flights.iter_mut().filter(|(_, flight)| flight.resend_at <= now) {
            match flight.due(now, heard, silence_max) {
                Due::Nothing => {}
                Due::Send => overdue.push(*xid),
                Due::Silent if open => return None,
                Due::Silent => {}
            }
        }
        Some(overdue)
    }
}
