//! The client's side: when to renew, until when to use what it holds, what to drop.

use std::collections::BTreeMap;

use crate::TargetId;
use crate::wire::messages::{DROP_ORDERS_MAX, DropOrder, LeaseRenewed, RenewLease};

use super::{MARGIN_NANOS, NANOS_PER_MS, RENEW_NANOS};

/// The lease of a client.
#[derive(Debug, Default)]
pub struct ClientLease {
    /// The lease as the MGS names it; 0 for none.
    number: u64,
    /// What is held may be used until then; 0 while it may not.
    until: u64,
    /// When the last renewal that was answered was sent.
    renewed: Option<u64>,
    /// Orders that were carried out and not told to the MGS yet.
    dropped: Vec<u64>,
    /// It had ended, and the MGS did not know who was told; nobody has begun to look since.
    suspect: bool,
    /// Targets that may have been told, and have not answered since; with the last look at each.
    unseen: BTreeMap<TargetId, Look>,
    last_look: u64,
}

/// A look at a target: the answer to one that began before the latest suspicion says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

/// What a client has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Send a renewal now.
    Renew,
    /// Nothing before then.
    At(u64),
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// What is to be dropped now; each is to be told by [`ClientLease::dropped`].
    pub orders: Vec<DropOrder>,
    /// Whether what is held may be used once that is done.
    pub told: Told,
}

/// What a client knows of its lease after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nobody else was given anything that the orders do not name.
    Goes,
    /// It had ended, and the MGS does not know who was told: each session has to be looked at
    /// ([`ClientLease::look_at`]).
    LookAtAll,
    /// It had ended, and there are more orders than the answer has room for: they come when some of these were told as
    /// carried out.
    MoreToDrop,
    /// The answer took so long that it says nothing: renew again.
    TooLate,
}

impl ClientLease {
    /// The lease's name; 0 for none.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Until when what is held may be used; 0 if it may not.
    pub fn until(&self) -> u64 {
        self.until
    }

    /// What is due at `now`.
    pub fn due(&self, now: u64) -> Due {
        match self.renewed {
            // What was dropped is told at once: somebody waits for it.
            Some(renewed) if self.dropped.is_empty() && now < renewed.saturating_add(RENEW_NANOS) => {
                Due::At(renewed.saturating_add(RENEW_NANOS))
            }
            _ => Due::Renew,
        }
    }

    /// The renewal to send.
    pub fn renewal(&self) -> RenewLease {
        RenewLease { lease: self.number, release: false, dropped: self.dropped.clone() }
    }

    /// Ends the lease: the client holds nothing any more. Gives what to send, if the MGS knows of a lease.
    pub fn release(&mut self) -> Option<RenewLease> {
        // Looks that are under way say nothing of later sessions.
        let next = ClientLease { last_look: self.last_look, ..ClientLease::default() };
        let old = std::mem::replace(self, next);
        (old.number != 0).then_some(RenewLease { lease: old.number, release: true, dropped: old.dropped })
    }

    /// The time to use what is held is over. Whether it was not before.
    pub fn lapse(&mut self, now: u64) -> bool {
        let lapses = self.until != 0 && self.until <= now;
        if lapses {
            self.until = 0;
        }
        lapses
    }

    /// An answer to `renewal`, which was sent at `sent`, came at `now`. What is held may be used from
    /// [`ClientLease::resume`] on, if it may not be already.
    pub fn answered(&mut self, renewal: &RenewLease, sent: u64, now: u64, answer: &LeaseRenewed) -> Renewed {
        self.dropped.retain(|number| !renewal.dropped.contains(number));
        let had_one = self.number != 0;
        self.number = answer.lease;
        let lapsed = self.until <= now;
        let until = end(sent, answer);
        if lapsed {
            self.until = 0;
            self.suspect |= had_one && !answer.known;
        }
        if until <= now {
            // Renewed in vain; an order that came with it comes again.
            self.renewed = None;
            return Renewed { orders: Vec::new(), told: Told::TooLate };
        }
        // Answers may come in another order than the renewals were sent in.
        self.renewed = self.renewed.max(Some(sent));
        if !lapsed {
            self.until = self.until.max(until);
        }
        // While the lease lasts no target is told anything before the client has said that it has dropped what it holds.
        let is_cut = lapsed && answer.orders.len() >= DROP_ORDERS_MAX;
        let told = match (is_cut, self.suspect) {
            (true, _) => Told::MoreToDrop,
            (false, true) => Told::LookAtAll,
            (false, false) => Told::Goes,
        };
        Renewed { orders: answer.orders.clone(), told }
    }

    /// All `targets` with which there are sessions are looked at from now on: what is held of each may be used when it has
    /// answered ([`ClientLease::seen`]), so that one that stays away holds up none of the others. Nobody is told from here
    /// on, as the MGS knows again that the client lives. Gives those that nobody looks at yet.
    pub fn look_at(&mut self, targets: impl IntoIterator<Item = TargetId>) -> Vec<TargetId> {
        self.suspect = false;
        self.last_look += 1;
        let look = Look(self.last_look);
        let fresh = |target: &TargetId| self.unseen.insert(*target, look).is_none();
        targets.into_iter().filter(fresh).collect()
    }

    /// The look that a target has to answer before what is held of it may be used; `None`: it may be.
    pub fn look_due(&self, target: TargetId) -> Option<Look> {
        self.unseen.get(&target).copied()
    }

    /// A target has answered, and said whether it still knows the client. It counts unless there was a new suspicion after the
    /// look had begun.
    pub fn seen(&mut self, target: TargetId, look: Look) {
        if self.look_due(target) == Some(look) {
            self.unseen.remove(&target);
        }
    }

    /// Whether there is a target of which nothing may be used.
    pub fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// All that an answer asked for is done: what is held may be used, unless that took too long. `sent` is when the
    /// renewal was sent.
    pub fn resume(&mut self, sent: u64, now: u64, answer: &LeaseRenewed) {
        let until = end(sent, answer);
        if until > now && !self.suspect {
            self.until = self.until.max(until);
        }
    }

    /// An order was carried out.
    pub fn dropped(&mut self, number: u64) {
        if !self.dropped.contains(&number) {
            self.dropped.push(number);
        }
    }
}

fn end(sent: u64, answer: &LeaseRenewed) -> u64 {
    sent.saturating_add((u64::from(answer.ttl_ms) * NANOS_PER_MS).saturating_sub(MARGIN_NANOS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn answer(lease: u64, known: bool) -> LeaseRenewed {
        LeaseRenewed { lease, known, ttl_ms: super::super::TTL_MS, orders: vec![], awaited: vec![] }
    }

    /// Renews at `at`, with an answer after `took`.
    fn renew(lease: &mut ClientLease, at: u64, took: u64, answer: &LeaseRenewed) -> Renewed {
        let renewal = lease.renewal();
        let renewed = lease.answered(&renewal, at, at + took, answer);
        if matches!(renewed.told, Told::Goes | Told::LookAtAll) {
            lease.resume(at, at + took, answer);
        }
        renewed
    }

    #[test]
    fn it_is_counted_from_the_moment_of_sending() {
        let mut lease = ClientLease::default();
        assert_eq!((lease.due(0), lease.until()), (Due::Renew, 0));
        renew(&mut lease, 100 * SECOND, 2 * SECOND, &answer(7, false));
        assert_eq!((lease.number(), lease.until()), (7, 112 * SECOND));
        assert_eq!(lease.due(104 * SECOND), Due::At(105 * SECOND));
        assert_eq!(lease.due(105 * SECOND), Due::Renew);
        assert!(!lease.lapse(111 * SECOND));
        assert!(lease.lapse(112 * SECOND) && !lease.lapse(113 * SECOND));
        assert_eq!(lease.until(), 0);
    }

    #[test]
    fn an_answer_that_comes_too_late_says_nothing() {
        let mut lease = ClientLease::default();
        let renewed = renew(&mut lease, 100 * SECOND, 12 * SECOND, &answer(7, false));
        assert_eq!((renewed.told, lease.until(), lease.due(112 * SECOND)), (Told::TooLate, 0, Due::Renew));
    }

    #[test]
    fn who_lapsed_looks_at_everything_unless_the_mgs_knows() {
        let mut lease = ClientLease::default();
        assert_eq!(renew(&mut lease, 0, 0, &answer(7, false)).told, Told::Goes, "nothing was held before");
        assert_eq!(renew(&mut lease, 5 * SECOND, 0, &answer(8, false)).told, Told::Goes, "the MGS restarted");
        assert!(lease.lapse(20 * SECOND));
        assert_eq!(renew(&mut lease, 21 * SECOND, 0, &answer(8, true)).told, Told::Goes);
        // A process that was stopped may not have noticed.
        assert_eq!(renew(&mut lease, 60 * SECOND, 13 * SECOND, &answer(9, false)).told, Told::TooLate);
        assert_eq!(renew(&mut lease, 80 * SECOND, 0, &answer(9, true)).told, Told::LookAtAll);
        assert_eq!(lease.until(), 0, "not before somebody looks");
        assert_eq!(renew(&mut lease, 81 * SECOND, 0, &answer(9, true)).told, Told::LookAtAll);
        assert_eq!(lease.look_at([]), []);
        assert_eq!(renew(&mut lease, 82 * SECOND, 0, &answer(9, true)).told, Told::Goes);
        assert_eq!((lease.until(), lease.has_unseen()), (94 * SECOND, false));
    }

    /// A client whose lease is over at `at`, and which the MGS has forgotten then: it looks at `targets`.
    fn suspect(lease: &mut ClientLease, at: u64, targets: &[TargetId]) -> Vec<TargetId> {
        lease.lapse(at);
        let forgotten = answer(lease.number() + 1, false);
        assert_eq!(renew(lease, at, 0, &forgotten).told, Told::LookAtAll);
        let fresh = lease.look_at(targets.iter().copied());
        lease.resume(at, at, &forgotten);
        fresh
    }

    #[test]
    fn who_does_not_answer_holds_up_nobody_else() {
        let (healthy, dead) = (TargetId::ost(0), TargetId::ost(1));
        let mut lease = ClientLease::default();
        renew(&mut lease, 0, 0, &answer(7, false));
        assert_eq!(suspect(&mut lease, 20 * SECOND, &[healthy, dead]), [healthy, dead]);
        assert_eq!(lease.until(), 32 * SECOND, "what is held of those that answer may be used");
        let look = lease.look_due(healthy).expect("it has not answered");
        lease.seen(healthy, look);
        assert!(lease.look_due(healthy).is_none() && lease.look_due(dead).is_some());
        assert_eq!(lease.look_due(TargetId::mdt(0)), None, "there was no session then");
        for second in [25, 50, 55] {
            lease.lapse(second * SECOND);
            assert_eq!(renew(&mut lease, second * SECOND, 0, &answer(8, true)).told, Told::Goes);
            assert!(lease.look_due(dead).is_some(), "whatever the MGS says");
        }
        lease.seen(dead, look);
        assert!(!lease.has_unseen());
    }

    #[test]
    fn a_look_from_before_a_new_suspicion_says_nothing() {
        let (one, other) = (TargetId::ost(0), TargetId::ost(1));
        let mut lease = ClientLease::default();
        renew(&mut lease, 0, 0, &answer(7, false));
        suspect(&mut lease, 20 * SECOND, &[one, other]);
        let look = lease.look_due(one).expect("it has not answered");
        lease.seen(one, look);
        assert_eq!(suspect(&mut lease, 60 * SECOND, &[one, other]), [one], "the other is being looked at");
        for target in [one, other] {
            lease.seen(target, look);
            assert!(lease.look_due(target).is_some(), "it may have been told since");
        }
        // What is held is gone, and so is what was suspected.
        assert!(lease.release().is_some() && !lease.has_unseen());
        renew(&mut lease, 70 * SECOND, 0, &answer(9, false));
        suspect(&mut lease, 100 * SECOND, &[one]);
        lease.seen(one, look);
        assert!(lease.look_due(one).is_some_and(|due| due != look), "that was another session");
    }

    #[test]
    fn who_has_more_to_drop_than_an_answer_holds_asks_for_the_rest() {
        let order = |number| DropOrder { number, target: TargetId::ost(0), session: number, boot: 1 };
        let full =
            LeaseRenewed { orders: (0..DROP_ORDERS_MAX as u64).map(order).collect(), ..answer(7, true) };
        let mut lease = ClientLease::default();
        renew(&mut lease, 0, 0, &answer(7, false));
        assert_eq!(renew(&mut lease, 5 * SECOND, 0, &full).told, Told::Goes, "nobody was told anything yet");
        assert!(lease.lapse(20 * SECOND));
        let renewed = renew(&mut lease, 20 * SECOND, 0, &full);
        assert_eq!(
            (renewed.told, renewed.orders.len(), lease.until()),
            (Told::MoreToDrop, DROP_ORDERS_MAX, 0)
        );
        full.orders.iter().for_each(|order| lease.dropped(order.number));
        assert_eq!(lease.due(20 * SECOND), Due::Renew, "at once");
        let rest = LeaseRenewed { orders: vec![order(DROP_ORDERS_MAX as u64)], ..answer(7, true) };
        assert_eq!(renew(&mut lease, 21 * SECOND, 0, &rest).told, Told::Goes);
        assert_eq!(lease.until(), 33 * SECOND);
    }

    #[test]
    fn what_was_dropped_is_told_until_it_is_heard() {
        let mut lease = ClientLease::default();
        let order = DropOrder { number: 3, target: TargetId::ost(0), session: 5, boot: 1 };
        let ordered = LeaseRenewed { orders: vec![order.clone()], ..answer(7, false) };
        assert_eq!(renew(&mut lease, SECOND, 0, &ordered).orders, [order]);
        lease.dropped(3);
        assert_eq!(lease.due(2 * SECOND), Due::Renew, "at once");
        assert_eq!(lease.renewal().dropped, [3]);
        assert_eq!(lease.renewal().dropped, [3], "until it is answered");
        renew(&mut lease, 2 * SECOND, 0, &answer(7, true));
        assert_eq!(lease.renewal().dropped, []);
        assert_eq!(lease.release().map(|release| (release.lease, release.release)), Some((7, true)));
        assert_eq!((lease.release(), lease.until()), (None, 0));
    }
}
