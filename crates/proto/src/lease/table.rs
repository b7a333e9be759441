//! The MGS's side: who lives, what targets were told, what clients have to drop.
//!
//! Whoever tells a target that a client's lease is over gives the client an order to drop what it holds there, should it
//! ever come back. A target that wants something from a client which lives has it ordered in the same way, and is told
//! that it is over when the client has dropped it. A target that only wants to hear from a client has it told so, and gives
//! no order. Nothing of it is on disk: an MGS that started less than a lease ago
//! says that it does not know, and a client whose lease had ended, and which the MGS does not know, looks at all of its
//! sessions itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::messages::{
    ASKED_TO_FENCE, ASKED_TO_RETURN, AskLeases, Awaited, DROP_ORDERS_MAX, DropOrder, LEASE_LEFT, LEASE_LIVES,
    LEASE_LONG_OVER, LEASE_NONE, LEASE_NOT_KNOWN, LEASE_OVER, LeaseAsked, LeaseRenewed, LeaseStates,
    RenewLease,
};
use crate::{ClientId, TargetId};

use super::{NANOS_PER_MS, SILENT_MAX_MS, TTL_MS};

/// Most clients that are known, dead ones included. Of these the oldest are forgotten first; beyond that no new lease is
/// given.
const CLIENTS_MAX: usize = 262_144;
/// How long a target is told again that a client has dropped what it held. In nanoseconds.
const DROPPED_KEPT_NANOS: u64 = 600_000_000_000;
/// An MGS that has done nothing for so long was stopped, in nanoseconds: renewals wait in its sockets.
const PAUSE_NANOS: u64 = 3_000_000_000;
/// Longest rest between two ticks, in nanoseconds.
const REST_NANOS_MAX: u64 = 5_000_000_000;
/// Rest between two ticks while the lease of somebody is about to end, in nanoseconds.
const REST_NANOS_MIN: u64 = 1_000_000_000;
/// A lease that ends so soon is about to end. It is longer than a pause that nobody notices, so that renewals which wait in sockets after one
/// are heard before the lease is over.
const END_NANOS: u64 = 5_000_000_000;

const TTL_NANOS: u64 = TTL_MS as u64 * NANOS_PER_MS;
/// How long a client may be silent.
const SILENT_NANOS_MAX: u64 = SILENT_MAX_MS as u64 * NANOS_PER_MS;

/// Every lease.
#[derive(Debug)]
pub struct Leases {
    clients: BTreeMap<ClientId, Record>,
    /// By the end of their leases; 0 for those that had none.
    ends: BTreeSet<(u64, ClientId)>,
    clients_max: usize,
    /// Since when renewals are heard.
    since: u64,
    /// When something happened last, or has to happen at the latest.
    due: u64,
    /// First half of the names of leases: another one for each start of the MGS.
    base: u64,
    last_lease: u64,
    last_order: u64,
}

#[derive(Debug, Default)]
struct Record {
    /// Names the lease; 0 if there was none.
    lease: u64,
    ends: u64,
    orders: BTreeMap<(TargetId, u64), Order>,
    /// Targets that wait for the client to come back, with their boots.
    awaited: BTreeMap<TargetId, u64>,
    /// It has said that it holds nothing anywhere.
    left: bool,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    number: u64,
    boot: u64,
    /// When the client said that it has dropped everything.
    dropped: Option<u64>,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Leases that live.
    pub live: usize,
    /// Clients that are remembered because somebody asked about them.
    pub over: usize,
}

/// One lease, for status displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// The client.
    pub client: ClientId,
    /// Nanoseconds that it lasts still; 0 if it is over.
    pub left: u64,
    /// What the client has not dropped yet.
    pub orders: usize,
}

impl Leases {
    /// No lease yet, at `now`. `base` is another number at each start.
    pub fn new(now: u64, base: u32) -> Leases {
        Leases {
            clients: BTreeMap::new(),
            ends: BTreeSet::new(),
            clients_max: CLIENTS_MAX,
            since: now,
            due: now,
            base: u64::from(base) << 32,
            last_lease: 0,
            last_order: 0,
        }
    }

    /// The MGS is at work at `now`. To be called after each [`Leases::rest`]: after a longer silence it was stopped itself, and has to
    /// hear first who lives.
    pub fn tick(&mut self, now: u64) {
        if now.saturating_sub(self.due) > PAUSE_NANOS {
            self.since = now;
        }
        self.due = self.due.max(now);
    }

    /// How many nanoseconds may pass from `now` to the next tick: few only while somebody's lease is about to end.
    pub fn rest(&mut self, now: u64) -> u64 {
        let next = self.ends.range((now.saturating_add(1), ClientId(0))..).next();
        let rest = next.map_or(REST_NANOS_MAX, |(ends, _)| (ends - now).saturating_sub(END_NANOS));
        let rest = rest.clamp(REST_NANOS_MIN, REST_NANOS_MAX);
        self.due = now.saturating_add(rest);
        rest
    }

    /// A client renews its lease, or begins one; `None` if there are too many.
    pub fn renew(&mut self, now: u64, client: ClientId, renewal: &RenewLease) -> Option<LeaseRenewed> {
        self.tick(now);
        if renewal.release {
            return Some(self.release(client, renewal));
        }
        if !self.clients.contains_key(&client) && !self.make_room(now) {
            return None;
        }
        let record = self.clients.entry(client).or_default();
        let known = record.lease != 0 && record.lease == renewal.lease;
        if !known {
            self.last_lease += 1;
            record.lease = self.base | self.last_lease;
        }
        record.left = false;
        record.dropped(now, &renewal.dropped);
        self.ends.remove(&(record.ends, client));
        record.ends = now.saturating_add(TTL_NANOS);
        self.ends.insert((record.ends, client));
        let orders = record.open_orders();
        let awaited = std::mem::take(&mut record.awaited).into_iter();
        let awaited = awaited.map(|(target, boot)| Awaited { target, boot }).collect();
        Some(LeaseRenewed { lease: record.lease, known, ttl_ms: TTL_MS, orders, awaited })
    }

    fn release(&mut self, client: ClientId, renewal: &RenewLease) -> LeaseRenewed {
        let known = self.clients.get(&client).is_some_and(|record| record.lease == renewal.lease);
        if known {
            let left = Record { left: true, ..Record::default() };
            if let Some(record) = self.clients.insert(client, left) {
                self.ends.remove(&(record.ends, client));
            }
            self.ends.insert((0, client));
        }
        LeaseRenewed { lease: 0, known, ttl_ms: 0, orders: Vec::new(), awaited: Vec::new() }
    }

    /// A target asks about clients.
    pub fn ask(&mut self, now: u64, asked: &AskLeases) -> LeaseStates {
        self.tick(now);
        let states = asked.clients.iter().map(|client| self.ask_one(now, asked.target, asked.boot, client));
        LeaseStates { states: states.collect() }
    }

    fn ask_one(&mut self, now: u64, target: TargetId, boot: u64, asked: &LeaseAsked) -> u8 {
        let key = (target, asked.session);
        let record = self.clients.get(&asked.client);
        let lives = record.is_some_and(|record| record.ends > now);
        if lives && asked.wish != ASKED_TO_FENCE {
            self.take_back(asked.client, key);
            if asked.session == 0 || asked.wish == ASKED_TO_RETURN {
                self.is_awaited(asked.client, target, boot);
            }
            return LEASE_LIVES;
        }
        if record.is_some_and(|record| record.left) {
            return LEASE_LEFT;
        }
        if !lives && now < self.since.saturating_add(TTL_NANOS) {
            return LEASE_NOT_KNOWN;
        }
        if asked.wish == ASKED_TO_RETURN {
            return match record.filter(|record| record.lease != 0) {
                Some(record) if self.is_long_over(now, record) => LEASE_LONG_OVER,
                Some(_) => LEASE_OVER,
                None => LEASE_NONE,
            };
        }
        if record.is_none() {
            if !self.make_room(now) {
                // The client will find out by itself.
                return LEASE_NONE;
            }
            self.ends.insert((0, asked.client));
        }
        self.last_order += 1;
        let number = self.last_order;
        let record = self.clients.entry(asked.client).or_default();
        let order = record.orders.entry(key).or_insert(Order { number, boot, dropped: None });
        if order.boot != boot && asked.session == 0 {
            *order = Order { number, boot, dropped: None };
        }
        match (lives, record.lease) {
            (true, _) if order.dropped.is_none() => LEASE_LIVES,
            (false, 0) => LEASE_NONE,
            _ => LEASE_OVER,
        }
    }

    /// Whether the client has not renewed for as long as one may be silent, and the MGS was there all the time.
    fn is_long_over(&self, now: u64, record: &Record) -> bool {
        let begin = record.ends.saturating_sub(TTL_NANOS).max(self.since);
        now >= begin.saturating_add(SILENT_NANOS_MAX)
    }

    /// A target waits for a client that lives. It asks again and again, so what does not get through is told later.
    fn is_awaited(&mut self, client: ClientId, target: TargetId, boot: u64) {
        if let Some(record) = self.clients.get_mut(&client) {
            record.awaited.insert(target, boot);
        }
    }

    /// A target that had wanted it does not want any more that a client drops something.
    fn take_back(&mut self, client: ClientId, key: (TargetId, u64)) {
        if let Some(record) = self.clients.get_mut(&client)
            && record.orders.get(&key).is_some_and(|order| order.dropped.is_none())
        {
            record.orders.remove(&key);
        }
    }

    /// Forgets the client whose lease has been over for longest, if there are too many.
    fn make_room(&mut self, now: u64) -> bool {
        if self.clients.len() < self.clients_max {
            return true;
        }
        let oldest = self.ends.first().copied().filter(|(ends, _)| *ends <= now);
        let Some((ends, client)) = oldest else { return false };
        self.ends.remove(&(ends, client));
        self.clients.remove(&client);
        true
    }

    /// How many leases there are at `now`.
    pub fn counts(&self, now: u64) -> Counts {
        let live = self.clients.values().filter(|record| record.ends > now).count();
        let left = self.clients.values().filter(|record| record.left).count();
        Counts { live, over: self.clients.len() - live - left }
    }

    /// Every client that is known.
    pub fn overview(&self, now: u64) -> impl Iterator<Item = Overview> + '_ {
        let there = self.clients.iter().filter(|(_, record)| !record.left);
        there.map(move |(client, record)| Overview {
            client: *client,
            left: record.ends.saturating_sub(now),
            orders: record.orders.values().filter(|order| order.dropped.is_none()).count(),
        })
    }
}

impl Record {
    fn dropped(&mut self, now: u64, numbers: &[u64]) {
        for order in self.orders.values_mut().filter(|order| numbers.contains(&order.number)) {
            order.dropped.get_or_insert(now);
        }
        self.orders
            .retain(|_, order| order.dropped.is_none_or(|at| now < at.saturating_add(DROPPED_KEPT_NANOS)));
    }

    fn open_orders(&self) -> Vec<DropOrder> {
        let open = self.orders.iter().filter(|(_, order)| order.dropped.is_none());
        let order = |((target, session), order): (&(TargetId, u64), &Order)| DropOrder {
            number: order.number,
            target: *target,
            session: *session,
            boot: order.boot,
        };
        open.map(order).take(DROP_ORDERS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientLease, Told};
    use super::*;
    use crate::wire::messages::ASKED;

    const SECOND: u64 = 1_000_000_000;
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    /// Leases of an MGS that has been there for long, and goes on ticking.
    fn leases() -> Leases {
        let mut leases = Leases::new(0, 9);
        run(&mut leases, 0, 100);
        leases
    }

    fn run(leases: &mut Leases, from: u64, until: u64) {
        (from..=until).for_each(|second| leases.tick(second * SECOND));
    }

    fn renew(leases: &mut Leases, at: u64, lease: u64, dropped: &[u64]) -> LeaseRenewed {
        let renewal = RenewLease { lease, release: false, dropped: dropped.to_vec() };
        leases.renew(at * SECOND, A, &renewal).expect("there is room")
    }

    fn ask(leases: &mut Leases, at: u64, client: ClientId, session: u64, wish: u8) -> u8 {
        let clients = vec![LeaseAsked { client, session, wish }];
        let asked = AskLeases { target: TargetId::ost(3), boot: 5, clients };
        leases.ask(at * SECOND, &asked).states[0]
    }

    #[test]
    fn who_was_silent_for_long_is_told_from_who_may_come_back() {
        let mut leases = leases();
        renew(&mut leases, 100, 0, &[]);
        run(&mut leases, 100, 400);
        for (at, state) in [(114, LEASE_LIVES), (116, LEASE_OVER), (269, LEASE_OVER), (270, LEASE_LONG_OVER)]
        {
            assert_eq!(ask(&mut leases, at, A, 7, ASKED_TO_RETURN), state, "{at}");
        }
        assert_eq!(ask(&mut leases, 271, B, 7, ASKED_TO_RETURN), LEASE_NONE);
        let back = renew(&mut leases, 300, 0, &[]);
        assert!(back.orders.is_empty(), "nobody who only asks has it drop anything");
        // An MGS that was stopped itself has not listened.
        leases.tick(460 * SECOND);
        run(&mut leases, 461, 700);
        assert_eq!(ask(&mut leases, 480, A, 7, ASKED_TO_RETURN), LEASE_OVER);
        assert_eq!(ask(&mut leases, 629, A, 7, ASKED_TO_RETURN), LEASE_OVER);
        assert_eq!(ask(&mut leases, 630, A, 7, ASKED_TO_RETURN), LEASE_LONG_OVER);
    }

    #[test]
    fn who_renews_lives_and_who_does_not_is_dead() {
        let mut leases = leases();
        let first = renew(&mut leases, 100, 0, &[]);
        assert!(!first.known && first.lease != 0);
        run(&mut leases, 100, 105);
        assert_eq!(ask(&mut leases, 105, B, 0, ASKED), LEASE_NONE, "it was never there");
        let second = renew(&mut leases, 105, first.lease, &[]);
        assert!(second.known && second.lease == first.lease);
        run(&mut leases, 105, 119);
        assert_eq!(ask(&mut leases, 119, A, 0, ASKED), LEASE_LIVES);
        run(&mut leases, 119, 120);
        assert_eq!(ask(&mut leases, 120, A, 0, ASKED), LEASE_OVER);
        assert_eq!(leases.counts(120 * SECOND), Counts { live: 0, over: 2 });
        let back = renew(&mut leases, 121, first.lease, &[]);
        let order = DropOrder { number: 2, target: TargetId::ost(3), session: 0, boot: 5 };
        assert!(back.known && back.orders == [order], "{back:?}");
    }

    #[test]
    fn who_lives_is_told_who_waits_for_it() {
        let mut leases = leases();
        let lease = renew(&mut leases, 100, 0, &[]).lease;
        assert_eq!(ask(&mut leases, 101, A, 8, ASKED), LEASE_LIVES);
        assert_eq!(renew(&mut leases, 102, lease, &[]).awaited, [], "it has a session");
        assert_eq!(ask(&mut leases, 103, A, 0, ASKED), LEASE_LIVES);
        let awaited = Awaited { target: TargetId::ost(3), boot: 5 };
        assert_eq!(renew(&mut leases, 104, lease, &[]).awaited, [awaited]);
        assert_eq!(renew(&mut leases, 105, lease, &[]).awaited, []);
    }

    #[test]
    fn who_takes_its_leave_is_dead_at_once() {
        let mut leases = leases();
        let lease = renew(&mut leases, 100, 0, &[]).lease;
        let release = RenewLease { lease, release: true, dropped: vec![] };
        assert!(leases.renew(101 * SECOND, A, &release).is_some_and(|left| left.known));
        assert_eq!(ask(&mut leases, 101, A, 0, ASKED), LEASE_LEFT);
        assert_eq!(ask(&mut leases, 101, A, 8, ASKED_TO_RETURN), LEASE_LEFT);
        assert_eq!(leases.counts(101 * SECOND), Counts::default());
        let back = renew(&mut leases, 102, 0, &[]);
        assert!(!back.known && back.orders.is_empty(), "{back:?}");
        assert_eq!(ask(&mut leases, 103, A, 0, ASKED), LEASE_LIVES);
    }

    #[test]
    fn who_is_asked_to_return_gets_no_order() {
        let mut leases = leases();
        assert_eq!(ask(&mut leases, 100, A, 8, ASKED_TO_RETURN), LEASE_NONE);
        let lease = renew(&mut leases, 100, 0, &[]).lease;
        assert_eq!(ask(&mut leases, 101, A, 8, ASKED_TO_RETURN), LEASE_LIVES);
        let awaited = Awaited { target: TargetId::ost(3), boot: 5 };
        assert_eq!(renew(&mut leases, 102, lease, &[]).awaited, [awaited], "it may have lost its session");
        run(&mut leases, 102, 120);
        assert_eq!(ask(&mut leases, 120, A, 8, ASKED_TO_RETURN), LEASE_OVER);
        let back = renew(&mut leases, 121, lease, &[]);
        assert!(back.known && back.orders.is_empty(), "{back:?}");
    }

    #[test]
    fn an_mgs_that_started_or_was_stopped_does_not_know_yet() {
        let mut leases = Leases::new(100 * SECOND, 9);
        assert_eq!(ask(&mut leases, 101, A, 0, ASKED), LEASE_NOT_KNOWN);
        renew(&mut leases, 102, 77, &[]);
        assert_eq!(ask(&mut leases, 103, A, 0, ASKED), LEASE_LIVES);
        run(&mut leases, 103, 114);
        assert_eq!(ask(&mut leases, 114, B, 0, ASKED), LEASE_NOT_KNOWN);
        assert_eq!(ask(&mut leases, 115, B, 0, ASKED), LEASE_NONE);
        renew(&mut leases, 116, 77, &[]);
        // Half a minute without a tick: A's renewals of that time have not been read yet.
        assert_eq!(ask(&mut leases, 150, A, 0, ASKED), LEASE_NOT_KNOWN);
        run(&mut leases, 150, 164);
        assert_eq!(ask(&mut leases, 165, A, 0, ASKED), LEASE_OVER);
    }

    #[test]
    fn who_lives_is_fenced_when_it_has_dropped_what_it_held() {
        let mut leases = leases();
        let lease = renew(&mut leases, 100, 0, &[]).lease;
        assert_eq!(ask(&mut leases, 101, A, 8, ASKED_TO_FENCE), LEASE_LIVES);
        assert_eq!(ask(&mut leases, 102, A, 8, ASKED_TO_FENCE), LEASE_LIVES);
        let ordered = renew(&mut leases, 103, lease, &[]);
        let [order] = &ordered.orders[..] else { panic!("one order, asked for twice: {ordered:?}") };
        assert_eq!((order.session, order.target), (8, TargetId::ost(3)));
        assert_eq!(renew(&mut leases, 104, lease, &[]).orders, ordered.orders, "the first may be lost");
        assert_eq!(renew(&mut leases, 105, lease, &[order.number]).orders, []);
        assert_eq!(ask(&mut leases, 105, A, 8, ASKED_TO_FENCE), LEASE_OVER);
        assert_eq!(ask(&mut leases, 106, A, 8, ASKED_TO_FENCE), LEASE_OVER, "that answer may be lost too");
        assert_eq!(
            ask(&mut leases, 106, A, 9, ASKED_TO_FENCE),
            LEASE_LIVES,
            "what it dropped was another session"
        );
        assert_eq!(renew(&mut leases, 107, lease, &[]).orders.len(), 1);
        assert_eq!(ask(&mut leases, 108, A, 9, ASKED), LEASE_LIVES);
        assert_eq!(renew(&mut leases, 109, lease, &[]).orders, [], "nobody wants it any more");
    }

    #[test]
    fn rests_are_short_while_a_lease_is_about_to_end() {
        let mut leases = leases();
        assert_eq!(leases.rest(100 * SECOND), 5 * SECOND, "nobody is there");
        renew(&mut leases, 100, 0, &[]);
        assert_eq!(leases.rest(102 * SECOND), 5 * SECOND);
        assert_eq!(leases.rest(107 * SECOND), 3 * SECOND);
        assert_eq!(leases.rest(112 * SECOND), SECOND);
        assert_eq!(leases.rest(115 * SECOND), 5 * SECOND, "it is over");
    }

    #[test]
    fn who_was_given_up_more_often_than_an_answer_holds_is_told_of_all() {
        let many = DROP_ORDERS_MAX as u64 + 1;
        let mut leases = leases();
        let mut client = ClientLease::default();
        let mut lives = |leases: &mut Leases, at: u64| {
            let (now, renewal) = (at * SECOND, client.renewal());
            let answer = leases.renew(now, A, &renewal).expect("there is room");
            let renewed = client.answered(&renewal, now, now, &answer);
            if renewed.told == Told::Goes {
                client.resume(now, now, &answer);
            }
            renewed.orders.iter().for_each(|order| client.dropped(order.number));
            (renewed.told, renewed.orders.len(), client.until() > now)
        };
        assert_eq!(lives(&mut leases, 100), (Told::Goes, 0, true));
        run(&mut leases, 100, 120);
        for session in 1..=many {
            assert_eq!(ask(&mut leases, 120, A, session, ASKED), LEASE_OVER);
        }
        assert_eq!(lives(&mut leases, 121), (Told::MoreToDrop, DROP_ORDERS_MAX, false));
        assert_eq!(lives(&mut leases, 121), (Told::Goes, 1, true));
        assert_eq!(lives(&mut leases, 122), (Told::Goes, 0, true));
    }

    /// An MGS that is stopped while it rests either notices, or goes on long before the lease of somebody ends.
    #[test]
    fn nobody_dies_of_a_pause_of_the_mgs() {
        for (stopped, goes_on) in (0..15).flat_map(|at| (at..40).map(move |until| (100 + at, 100 + until))) {
            let mut leases = leases();
            renew(&mut leases, 100, 0, &[]);
            let mut now = 100;
            while now < stopped {
                leases.tick(now * SECOND);
                now += leases.rest(now * SECOND) / SECOND;
            }
            // What was due while it was stopped comes late.
            now = now.max(goes_on);
            leases.tick(now * SECOND);
            let is_long = goes_on - stopped > 4;
            let asked = ask(&mut leases, now, A, 8, ASKED);
            if is_long || now < 115 {
                assert_ne!(asked, LEASE_OVER, "stopped at {stopped}, goes on at {goes_on}");
            }
        }
    }

    #[test]
    fn a_fence_ends_with_the_lease() {
        let mut leases = leases();
        renew(&mut leases, 100, 0, &[]);
        assert_eq!(ask(&mut leases, 101, A, 8, ASKED_TO_FENCE), LEASE_LIVES);
        run(&mut leases, 101, 115);
        assert_eq!(ask(&mut leases, 115, A, 8, ASKED_TO_FENCE), LEASE_OVER);
    }

    #[test]
    fn each_start_of_a_target_counts_by_itself() {
        let mut leases = leases();
        assert_eq!(ask(&mut leases, 100, A, 0, ASKED), LEASE_NONE);
        let lease = renew(&mut leases, 100, 0, &[]);
        let lease = renew(&mut leases, 101, lease.lease, &[lease.orders[0].number]).lease;
        run(&mut leases, 101, 116);
        let again = AskLeases {
            target: TargetId::ost(3),
            boot: 6,
            clients: vec![LeaseAsked { client: A, session: 0, wish: ASKED }],
        };
        assert_eq!(leases.ask(116 * SECOND, &again).states, [LEASE_OVER]);
        assert_eq!(renew(&mut leases, 117, lease, &[]).orders.len(), 1);
    }

    #[test]
    fn the_dead_make_room() {
        let mut leases = leases();
        leases.clients_max = 3;
        for n in 0..10 {
            ask(&mut leases, 100, ClientId(n + 10), 0, ASKED);
        }
        assert_eq!(leases.counts(100 * SECOND).over, 3);
        renew(&mut leases, 100, 0, &[]);
        assert_eq!(leases.counts(100 * SECOND), Counts { live: 1, over: 2 });
        let renewal = RenewLease { lease: 0, release: false, dropped: vec![] };
        assert!(leases.renew(101 * SECOND, ClientId(50), &renewal).is_some());
        assert!(leases.renew(101 * SECOND, ClientId(51), &renewal).is_some());
        assert_eq!(leases.renew(101 * SECOND, ClientId(52), &renewal), None, "nobody is dead");
        assert_eq!(ask(&mut leases, 101, ClientId(52), 0, ASKED), LEASE_NONE);
    }
}
