//! The client's side: when to renew, until when to use what it holds, what to drop.

use crate::wire::messages::{DropOrder, LeaseRenewed, RenewLease};

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
    /// It had ended, and the MGS did not know who was told; nobody has looked since.
    suspect: bool,
}

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
    /// It had ended, and the MGS does not know who was told: each session has to be looked at.
    LookAtAll,
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
        let old = std::mem::take(self);
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
        let told = if self.suspect { Told::LookAtAll } else { Told::Goes };
        Renewed { orders: answer.orders.clone(), told }
    }

    /// Each session was looked at: the next answer lets the client go on.
    pub fn looked(&mut self) {
        self.suspect = false;
        self.renewed = None;
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
    use crate::TargetId;

    const SECOND: u64 = 1_000_000_000;

    fn answer(lease: u64, known: bool) -> LeaseRenewed {
        LeaseRenewed { lease, known, ttl_ms: super::super::TTL_MS, orders: vec![], awaited: vec![] }
    }

    /// Renews at `at`, with an answer after `took`.
    fn renew(lease: &mut ClientLease, at: u64, took: u64, answer: &LeaseRenewed) -> Renewed {
        let renewal = lease.renewal();
        let renewed = lease.answered(&renewal, at, at + took, answer);
        if renewed.told != Told::TooLate {
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
        assert_eq!(lease.until(), 0, "not before that is done");
        lease.looked();
        assert_eq!(lease.due(80 * SECOND), Due::Renew);
        assert_eq!(renew(&mut lease, 81 * SECOND, 0, &answer(9, true)).told, Told::Goes);
        assert_eq!(lease.until(), 93 * SECOND);
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
