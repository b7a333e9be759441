//! The client's end of a session: requests in flight, and what was answered but is not durable yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::{Transno, Xid};
use crate::limits::SLOTS_MAX;

/// How much a session may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight, changing ones and others, but for those that wait.
    pub requests_max: usize,
    /// Requests in flight that wait at the target until others let them go on.
    pub waiting_max: usize,
    /// Changes that were answered and are not durable.
    pub retained_count_max: usize,
    /// Bytes of them.
    pub retained_bytes_max: usize,
}

/// What a request asks of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asks {
    /// It changes something, and needs a reply slot.
    pub changes: bool,
    /// It may have to wait for other clients: some room is left for those that do not.
    pub contends: bool,
}

/// A request is not to be sent now: wait until [`ClientSession::answered`] or [`ClientSession::committed`] made room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Every reply slot has a request in flight.
    Slots,
    /// Too many requests are in flight.
    Requests,
    /// Too many requests wait at the target.
    Waiting,
    /// Too much is not durable; a commit has to be asked for.
    Retained,
}

/// Number and slot of a request that may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Its number.
    pub xid: Xid,
    /// Its reply slot, if it changes something.
    pub slot: Option<u32>,
}

/// A request without a reply.
#[derive(Debug)]
pub struct Sent<M> {
    /// Its number.
    pub xid: Xid,
    /// Its reply slot, if it changes something.
    pub slot: Option<u32>,
    /// What was sent.
    pub message: Arc<M>,
    bytes: usize,
    room: Room,
}

/// What a request in flight takes room from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// All that there is.
    Plain,
    /// All but what is kept for those that never wait for other clients.
    Contending,
    /// Its own.
    Waiting,
}

/// A change that was answered and is not durable.
#[derive(Debug)]
pub struct Retained<M> {
    /// Number of the request.
    pub xid: Xid,
    /// Its reply slot.
    pub slot: Option<u32>,
    /// Its place in the order of commits.
    pub transno: Transno,
    /// The place that its caller was told: a target that restarts may give it another one (`docs/recovery.md#renumbered`).
    pub told: Transno,
    /// What was sent.
    pub message: Arc<M>,
    bytes: usize,
}

// Derived implementations would ask `M: Clone`, which nobody needs.
impl<M> Clone for Sent<M> {
    fn clone(&self) -> Sent<M> {
        Sent {
            xid: self.xid,
            slot: self.slot,
            message: self.message.clone(),
            bytes: self.bytes,
            room: self.room,
        }
    }
}

impl<M> Clone for Retained<M> {
    fn clone(&self) -> Retained<M> {
        Retained {
            xid: self.xid,
            slot: self.slot,
            transno: self.transno,
            told: self.told,
            message: self.message.clone(),
            bytes: self.bytes,
        }
    }
}

/// What a reply meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meant {
    /// Whether the request was in flight; a repeated reply is not.
    pub known: bool,
    /// Whether so much is retained that the target should be asked to commit.
    pub commit_wanted: bool,
}

/// What the target knew when the client came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything: only the connection was lost.
    SameBoot,
    /// What was durable: the target restarted, and takes the rest again.
    Restarted,
    /// Nothing: the session is a new one.
    Forgotten,
}

/// What to send after a reconnect, in this order.
#[derive(Debug)]
pub struct Resumption<M> {
    /// Changes that the target lost in its restart, in the order of their transnos; each waits for the reply of the
    /// one before.
    pub replays: Vec<Retained<M>>,
    /// Requests without a reply, in the order of their numbers.
    pub resends: Vec<Sent<M>>,
    /// Requests that nobody knows whether they happened: they are over.
    pub evicted: Vec<Xid>,
    /// Changes that were answered and are gone for ever, if any: those in (first, second].
    pub lost: Option<(Transno, Transno)>,
}

/// Reply slots that have a request, as bits.
#[derive(Debug, Default)]
struct UsedSlots([u64; WORDS]);

const WORDS: usize = SLOTS_MAX as usize / 64;

impl UsedSlots {
    /// The lowest free slot below `slots`, which is used from now on.
    fn take(&mut self, slots: u32) -> Option<u32> {
        let (n, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        let slot = n as u32 * 64 + bit;
        if slot >= slots {
            return None;
        }
        *word |= 1 << bit;
        Some(slot)
    }

    fn free(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }
}

/// A client's end of one session. `M` is whatever the transport needs to send a request again.
#[derive(Debug)]
pub struct ClientSession<M> {
    limits: Limits,
    last_xid: u64,
    slots: u32,
    slots_used: UsedSlots,
    in_flight: BTreeMap<Xid, Sent<M>>,
    /// Those in flight that never wait for other clients.
    plain: usize,
    /// Those in flight that may have to wait for other clients.
    contending: usize,
    /// Those in flight that wait by their nature.
    waiting: usize,
    retained: BTreeMap<Transno, Retained<M>>,
    /// What the target lost in a restart and has not taken again yet, in order. No commit mark says anything of it: the target may have
    /// given its transnos to others.
    unreplayed: VecDeque<Retained<M>>,
    /// Bytes of both.
    retained_bytes: usize,
    last_committed: Transno,
}

impl<M> ClientSession<M> {
    /// A session without slots: [`ClientSession::resume`] gives them.
    pub fn new(limits: Limits) -> ClientSession<M> {
        ClientSession {
            limits,
            last_xid: 0,
            slots: 0,
            slots_used: UsedSlots::default(),
            in_flight: BTreeMap::new(),
            plain: 0,
            contending: 0,
            waiting: 0,
            retained: BTreeMap::new(),
            retained_bytes: 0,
            unreplayed: VecDeque::new(),
            last_committed: Transno(0),
        }
    }

    /// Requests in flight, in the order of their numbers.
    pub fn sent(&self) -> impl Iterator<Item = &Sent<M>> {
        self.in_flight.values()
    }

    /// Takes a request up: from now on it is in flight. `bytes` is what keeping it costs.
    pub fn begin(&mut self, changes: bool, bytes: usize, message: Arc<M>) -> Result<Begun, Full> {
        self.begin_in(Room::Plain, changes, bytes, message)
    }

    /// The same for a request that may have to wait until other clients have done something: a quarter of the requests
    /// and slots is not for it, or these clients could not do it.
    pub fn begin_contending(&mut self, changes: bool, bytes: usize, message: Arc<M>) -> Result<Begun, Full> {
        let all = self.limits.requests_max;
        if self.contending >= all - all / 4 {
            return Err(Full::Requests);
        }
        self.begin_in(Room::Contending, changes, bytes, message)
    }

    /// The same for a request that may wait at the target for as long as others like. It changes nothing.
    pub fn begin_waiting(&mut self, bytes: usize, message: Arc<M>) -> Result<Begun, Full> {
        if self.waiting >= self.limits.waiting_max {
            return Err(Full::Waiting);
        }
        Ok(self.insert(Room::Waiting, None, bytes, message))
    }

    fn begin_in(&mut self, room: Room, changes: bool, bytes: usize, message: Arc<M>) -> Result<Begun, Full> {
        if self.plain + self.contending >= self.limits.requests_max {
            return Err(Full::Requests);
        }
        let slots = match room {
            Room::Contending => self.slots - self.slots / 4,
            Room::Plain | Room::Waiting => self.slots,
        };
        let slot = if changes { Some(self.take_slot(slots)?) } else { None };
        Ok(self.insert(room, slot, bytes, message))
    }

    fn insert(&mut self, room: Room, slot: Option<u32>, bytes: usize, message: Arc<M>) -> Begun {
        let xid = self.draw_xid();
        *self.count(room) += 1;
        self.in_flight.insert(xid, Sent { xid, slot, message, bytes, room });
        Begun { xid, slot }
    }

    fn count(&mut self, room: Room) -> &mut usize {
        match room {
            Room::Plain => &mut self.plain,
            Room::Contending => &mut self.contending,
            Room::Waiting => &mut self.waiting,
        }
    }

    /// A number for a request that is not kept here.
    pub fn draw_xid(&mut self) -> Xid {
        self.last_xid += 1;
        Xid(self.last_xid)
    }

    /// The request is in flight no more.
    fn take(&mut self, xid: Xid) -> Option<Sent<M>> {
        let sent = self.in_flight.remove(&xid)?;
        *self.count(sent.room) -= 1;
        Some(sent)
    }

    fn take_slot(&mut self, slots: u32) -> Result<u32, Full> {
        if self.retained().0 >= self.limits.retained_count_max
            || self.retained_bytes >= self.limits.retained_bytes_max
        {
            return Err(Full::Retained);
        }
        self.slots_used.take(slots).ok_or(Full::Slots)
    }

    /// Number and slot of a request of which nothing is kept: it cannot get lost on its way, and its target does not
    /// outlive this session. [`ClientSession::free_slot`] ends it.
    pub fn pass(&mut self, asks: Asks) -> Result<Begun, Full> {
        let slots = if asks.contends { self.slots - self.slots / 4 } else { self.slots };
        let slot = if asks.changes { Some(self.slots_used.take(slots).ok_or(Full::Slots)?) } else { None };
        Ok(Begun { xid: self.draw_xid(), slot })
    }

    /// The request of [`ClientSession::pass`] that had this slot was answered.
    pub fn free_slot(&mut self, slot: u32) {
        self.slots_used.free(slot);
    }

    /// The reply to `xid` came, with the transno of its change (0 for none) and the target's commit mark.
    pub fn answered(&mut self, xid: Xid, transno: Transno, last_committed: Transno) -> Meant {
        self.committed(last_committed);
        let Some(sent) = self.take(xid) else {
            return Meant { known: false, commit_wanted: false };
        };
        if let Some(slot) = sent.slot {
            self.slots_used.free(slot);
            if transno > self.last_committed {
                self.retained_bytes += sent.bytes;
                let Sent { xid, slot, message, bytes, .. } = sent;
                let before = self
                    .retained
                    .insert(transno, Retained { xid, slot, transno, told: transno, message, bytes });
                if let Some(before) = before {
                    self.retained_bytes -= before.bytes;
                }
            }
        }
        Meant { known: true, commit_wanted: self.commit_wanted() }
    }

    /// Whether half of what may be retained is.
    pub fn commit_wanted(&self) -> bool {
        self.retained().0 >= self.limits.retained_count_max / 2
            || self.retained_bytes >= self.limits.retained_bytes_max / 2
    }

    /// Every change up to `transno` is durable: what it holds is let go.
    pub fn committed(&mut self, transno: Transno) {
        if transno <= self.last_committed {
            return;
        }
        self.last_committed = transno;
        let next = Transno(transno.0.saturating_add(1));
        let rest = self.retained.split_off(&next);
        for gone in std::mem::replace(&mut self.retained, rest).into_values() {
            self.retained_bytes -= gone.bytes;
        }
    }

    /// The caller of `xid` has gone. A request that changes nothing is forgotten; another one stays in flight, since
    /// its change has to be known. Says whether it was forgotten.
    pub fn forget(&mut self, xid: Xid) -> bool {
        let plain = self.in_flight.get(&xid).is_some_and(|sent| sent.slot.is_none());
        if plain {
            self.take(xid);
        }
        plain
    }

    /// A change that was carried out nowhere is given up; its slot is free.
    pub fn drop_undone(&mut self, xid: Xid) {
        if let Some(slot) = self.take(xid).and_then(|sent| sent.slot) {
            self.slots_used.free(slot);
        }
    }

    /// The target is reached again, grants `slots` and has committed up to `last_committed`: what to send now.
    pub fn resume(&mut self, outcome: Outcome, slots: u32, last_committed: Transno) -> Resumption<M> {
        self.slots = slots.clamp(1, SLOTS_MAX);
        let mut plan =
            Resumption { replays: Vec::new(), resends: Vec::new(), evicted: Vec::new(), lost: None };
        match outcome {
            Outcome::SameBoot => self.committed(last_committed),
            Outcome::Restarted => {
                self.committed(last_committed);
                // What an earlier restart lost comes behind what was taken again since.
                let again = std::mem::take(&mut self.retained).into_values();
                self.unreplayed = again.chain(std::mem::take(&mut self.unreplayed)).collect();
            }
            Outcome::Forgotten => {
                // The commit mark of a target that forgot the client says nothing about the client's changes: its
                // transnos may have been given out a second time. What was not known to be durable is lost.
                let all = self.retained.values().chain(&self.unreplayed);
                let oldest = all.clone().map(|retained| Transno(retained.told.0 - 1)).min();
                let newest = all.map(|retained| retained.transno).max();
                plan.lost =
                    oldest.zip(newest).map(|(oldest, newest)| (self.last_committed.min(oldest), newest));
                self.retained.clear();
                self.retained_bytes = 0;
                self.unreplayed.clear();
                self.last_committed = last_committed;
                plan.evicted = self.in_flight.values().filter(|s| s.slot.is_some()).map(|s| s.xid).collect();
                for xid in &plan.evicted {
                    self.take(*xid);
                }
                self.slots_used = UsedSlots::default();
            }
        }
        // The connection may have broken in the middle of the replays of this same boot: the rest is still owed. What
        // was taken must not come again, since its slot may serve a later replay by now.
        plan.replays = self.unreplayed.iter().cloned().collect();
        plan.resends = self.in_flight.values().cloned().collect();
        plan
    }

    fn take_unreplayed(&mut self, transno: Transno) -> Option<Retained<M>> {
        let at = self.unreplayed.iter().position(|retained| retained.transno == transno)?;
        self.unreplayed.remove(at)
    }

    /// The target has taken the replay of `transno`, which is `now` from now on. Gives what its caller was told.
    pub fn replayed(&mut self, transno: Transno, now: Transno) -> Option<Transno> {
        let retained = self.take_unreplayed(transno)?;
        let told = retained.told;
        if now <= self.last_committed {
            self.retained_bytes -= retained.bytes;
        } else if let Some(before) = self.retained.insert(now, Retained { transno: now, ..retained }) {
            self.retained_bytes -= before.bytes;
        }
        Some(told)
    }

    /// The target refused the replay of `transno`: the change is lost. Gives what its caller was told.
    pub fn replay_refused(&mut self, transno: Transno) -> Option<Transno> {
        let gone = self.take_unreplayed(transno)?;
        self.retained_bytes -= gone.bytes;
        Some(gone.told)
    }

    /// The request with number `xid`, if it is in flight.
    pub fn in_flight(&self, xid: Xid) -> Option<&Sent<M>> {
        self.in_flight.get(&xid)
    }

    /// Requests in flight.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Every change up to here is durable.
    pub fn last_committed(&self) -> Transno {
        self.last_committed
    }

    /// Changes that are answered and not durable, and their bytes.
    pub fn retained(&self) -> (usize, usize) {
        (self.retained.len() + self.unreplayed.len(), self.retained_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { requests_max: 8, waiting_max: 3, retained_count_max: 6, retained_bytes_max: 1000 };

    fn connected() -> ClientSession<u32> {
        let mut session = ClientSession::new(LIMITS);
        let plan = session.resume(Outcome::Forgotten, 4, Transno(0));
        assert!(plan.replays.is_empty() && plan.resends.is_empty() && plan.lost.is_none());
        session
    }

    fn change(session: &mut ClientSession<u32>, message: u32) -> Begun {
        session.begin(true, 10, Arc::new(message)).expect("there is room")
    }

    #[test]
    fn a_slot_is_used_again_only_after_its_reply() {
        let mut session = connected();
        let first = change(&mut session, 1);
        let second = change(&mut session, 2);
        assert_eq!((first.slot, second.slot), (Some(0), Some(1)));
        session.answered(first.xid, Transno(1), Transno(0));
        let third = change(&mut session, 3);
        assert_eq!((third.slot, third.xid), (Some(0), Xid(3)));
        change(&mut session, 4);
        change(&mut session, 5);
        assert_eq!(session.begin(true, 10, Arc::new(6)).err(), Some(Full::Slots));
        assert!(session.begin(false, 10, Arc::new(7)).is_ok(), "reading needs no slot");
    }

    #[test]
    fn answered_changes_are_kept_until_they_are_durable() {
        let mut session = connected();
        let xids: Vec<Xid> = (0..3).map(|n| change(&mut session, n).xid).collect();
        // Replies overtake each other; replays follow the transnos.
        session.answered(xids[2], Transno(12), Transno(0));
        session.answered(xids[0], Transno(11), Transno(0));
        session.answered(xids[1], Transno(13), Transno(11));
        assert_eq!(session.retained(), (2, 20));
        let plan = session.resume(Outcome::Restarted, 4, Transno(11));
        let order: Vec<(Transno, u32)> = plan.replays.iter().map(|r| (r.transno, *r.message)).collect();
        assert_eq!(order, [(Transno(12), 2), (Transno(13), 1)]);
        session.committed(Transno(13));
        assert_eq!(session.retained(), (2, 20), "they may be others' transnos by now");
        session.replayed(Transno(12), Transno(12));
        session.replayed(Transno(13), Transno(14));
        assert_eq!(session.retained(), (1, 10));
        session.committed(Transno(14));
        assert_eq!(session.retained(), (0, 0));
    }

    #[test]
    fn a_lost_connection_resends_and_replays_nothing() {
        let mut session = connected();
        let done = change(&mut session, 1);
        let open = change(&mut session, 2);
        session.answered(done.xid, Transno(5), Transno(0));
        let plan = session.resume(Outcome::SameBoot, 4, Transno(0));
        assert!(plan.replays.is_empty());
        assert_eq!(plan.resends.iter().map(|s| s.xid).collect::<Vec<_>>(), [open.xid]);
        assert!(session.answered(open.xid, Transno(6), Transno(0)).known);
        assert!(!session.answered(open.xid, Transno(6), Transno(0)).known, "a repeated reply");
    }

    #[test]
    fn replays_without_an_answer_are_still_owed_after_a_lost_connection() {
        let mut session = connected();
        for n in 1..=5 {
            let xid = change(&mut session, n).xid;
            session.answered(xid, Transno(u64::from(n)), Transno(0));
        }
        let order = |plan: Resumption<u32>| plan.replays.iter().map(|r| r.transno.0).collect::<Vec<_>>();
        assert_eq!(order(session.resume(Outcome::Restarted, 4, Transno(1))), [2, 3, 4, 5]);
        session.replayed(Transno(2), Transno(2));
        session.replay_refused(Transno(3));
        assert_eq!(order(session.resume(Outcome::SameBoot, 4, Transno(1))), [4, 5]);
        assert_eq!(order(session.resume(Outcome::Restarted, 4, Transno(1))), [2, 4, 5], "it lost all again");
        session.replayed(Transno(2), Transno(2));
        session.committed(Transno(2));
        session.replayed(Transno(4), Transno(4));
        session.replayed(Transno(5), Transno(5));
        assert!(order(session.resume(Outcome::SameBoot, 4, Transno(2))).is_empty());
        session.resume(Outcome::Restarted, 4, Transno(2));
        session.resume(Outcome::Forgotten, 4, Transno(9));
        assert!(order(session.resume(Outcome::SameBoot, 4, Transno(9))).is_empty());
    }

    #[test]
    fn slots_are_as_many_as_were_granted() {
        for count in [1, 63, 64, 65, 130, SLOTS_MAX] {
            let mut session = connected();
            session.resume(Outcome::Forgotten, count, Transno(0));
            let taken =
                std::iter::from_fn(|| session.pass(Asks { changes: true, contends: false }).ok()?.slot);
            assert_eq!(taken.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
            assert_eq!(session.pass(Asks { changes: true, contends: false }).err(), Some(Full::Slots));
            session.free_slot(count / 2);
            assert_eq!(
                session.pass(Asks { changes: true, contends: false }).map(|begun| begun.slot),
                Ok(Some(count / 2))
            );
            assert_eq!(
                session.pass(Asks { changes: false, contends: true }).map(|begun| begun.slot),
                Ok(None)
            );
        }
    }

    #[test]
    fn what_passes_and_waits_for_others_leaves_slots_for_those_who_do_not() {
        let mut session = connected();
        session.resume(Outcome::Forgotten, SLOTS_MAX, Transno(0));
        let taken = std::iter::from_fn(|| session.pass(Asks { changes: true, contends: true }).ok()).count();
        assert_eq!(taken, SLOTS_MAX as usize * 3 / 4);
        assert!(session.pass(Asks { changes: true, contends: false }).is_ok());
    }

    #[test]
    fn a_forgotten_client_learns_what_it_lost() {
        let mut session = connected();
        let done = change(&mut session, 1);
        let open = change(&mut session, 2);
        let read = session.begin(false, 10, Arc::new(3)).expect("there is room");
        session.answered(done.xid, Transno(5), Transno(4));
        let plan = session.resume(Outcome::Forgotten, 4, Transno(9));
        assert_eq!(plan.lost, Some((Transno(4), Transno(5))));
        assert_eq!(plan.evicted, [open.xid]);
        assert_eq!(plan.resends.iter().map(|s| s.xid).collect::<Vec<_>>(), [read.xid]);
        assert_eq!(change(&mut session, 4).slot, Some(0), "the slots are free again");
    }

    #[test]
    fn half_of_the_bound_asks_for_a_commit_and_all_of_it_stops() {
        let mut session = connected();
        let mut wanted = Vec::new();
        for n in 1..=6 {
            let begun = change(&mut session, 0);
            wanted.push(session.answered(begun.xid, Transno(n), Transno(0)).commit_wanted);
        }
        assert_eq!(wanted, [false, false, true, true, true, true]);
        assert_eq!(session.begin(true, 10, Arc::new(0)).err(), Some(Full::Retained));
        session.committed(Transno(6));
        assert!(session.begin(true, 600, Arc::new(0)).is_ok());
        assert!(!session.commit_wanted());
    }

    #[test]
    fn what_waits_for_others_leaves_room_for_those_who_do_not() {
        let mut session = connected();
        let message = || Arc::new(0);
        // Three of four slots.
        let first = session.begin_contending(true, 10, message()).expect("there is room");
        for _ in 0..2 {
            assert!(session.begin_contending(true, 10, message()).is_ok());
        }
        assert_eq!(session.begin_contending(true, 10, message()).err(), Some(Full::Slots));
        assert_eq!(change(&mut session, 0).slot, Some(3));
        // Six of eight requests.
        for _ in 0..3 {
            assert!(session.begin_contending(false, 10, message()).is_ok());
        }
        assert_eq!(session.begin_contending(false, 10, message()).err(), Some(Full::Requests));
        assert!(session.begin(false, 10, message()).is_ok());
        assert_eq!(session.begin(false, 10, message()).err(), Some(Full::Requests));
        // Three that wait by their nature.
        let waiting: Vec<Begun> =
            (0..3).map(|_| session.begin_waiting(10, message()).expect("there is room")).collect();
        assert_eq!(session.begin_waiting(10, message()).err(), Some(Full::Waiting));
        assert!(session.forget(waiting[0].xid));
        session.answered(waiting[1].xid, Transno(0), Transno(0));
        assert!(session.begin_waiting(10, message()).is_ok());
        assert_eq!(session.begin(false, 10, message()).err(), Some(Full::Requests));
        session.answered(first.xid, Transno(1), Transno(0));
        assert!(session.begin_contending(true, 10, message()).is_ok());
        // Whoever is evicted takes no room any more.
        session.resume(Outcome::Forgotten, 4, Transno(0));
        for _ in 0..3 {
            assert!(session.begin_contending(true, 10, message()).is_ok());
        }
    }

    #[test]
    fn bytes_count_too() {
        let mut session = connected();
        let begun = session.begin(true, 600, Arc::new(0)).expect("there is room");
        assert!(session.answered(begun.xid, Transno(1), Transno(0)).commit_wanted);
        let begun = session.begin(true, 600, Arc::new(0)).expect("there is room");
        session.answered(begun.xid, Transno(2), Transno(0));
        assert_eq!(session.begin(true, 1, Arc::new(0)).err(), Some(Full::Retained));
    }

    #[test]
    fn a_caller_that_goes_leaves_its_change_in_flight() {
        let mut session = connected();
        let write = change(&mut session, 1);
        let read = session.begin(false, 10, Arc::new(2)).expect("there is room");
        assert!(!session.forget(write.xid));
        assert!(session.forget(read.xid));
        assert_eq!(session.in_flight_count(), 1);
        session.answered(write.xid, Transno(1), Transno(0));
        assert_eq!(session.retained().0, 1);
    }

    #[test]
    fn durable_changes_are_not_retained() {
        let mut session = connected();
        let begun = change(&mut session, 1);
        session.answered(begun.xid, Transno(3), Transno(3));
        assert_eq!(session.retained(), (0, 0));
    }
}
