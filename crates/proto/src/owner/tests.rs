use rt::sim::Rng;

use super::*;

const SECOND: u64 = 1_000_000_000;
const OST: TargetId = TargetId { kind: crate::TargetKind::Ost, index: 1 };

fn server(name: &str, instance: u64) -> Server {
    let nids = vec![format!("{name}@tcp").parse().expect("a NID")];
    Server { name: name.into(), instance, nids }
}

fn wanted(preferred: bool) -> Wanted {
    Wanted { target: OST, seen: 4, preferred }
}

fn take(owners: &mut Owners, now: u64, server: &Server, preferred: bool) -> Result<(u64, bool), u64> {
    match owners.take(now, server, &wanted(preferred)) {
        Verdict::Granted(taken, record) => {
            assert_eq!((taken.target, taken.epoch), (OST, record.epoch));
            Ok((taken.epoch, taken.in_place))
        }
        Verdict::Wait(until) => Err(until),
    }
}

fn renews(owners: &mut Owners, now: u64, server: &Server, epoch: u64) -> bool {
    let hold = Tenure { target: OST, epoch };
    owners.renew(now, &server.name, server.instance, &[hold]).is_empty()
}

#[test]
fn the_first_of_the_service_nodes_goes_first() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, SECOND, &b, false), Err(11 * SECOND));
    assert_eq!(take(&mut owners, 2 * SECOND, &a, true), Ok((5, true)), "behind what its directory shows");
    assert_eq!(take(&mut owners, 2 * SECOND, &b, false), Err(5 * SECOND));
}

#[test]
fn nobody_gets_what_is_renewed() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    for now in 1..20 {
        assert!(renews(&mut owners, now * SECOND, &a, 5));
        assert_eq!(take(&mut owners, now * SECOND, &b, false), Err((now + 3) * SECOND));
    }
    assert_eq!(take(&mut owners, 22 * SECOND, &b, false), Ok((6, false)), "nobody knows what a does");
    assert!(!renews(&mut owners, 22 * SECOND, &a, 5), "it comes back");
    assert!(renews(&mut owners, 22 * SECOND, &b, 6));
    assert!(owners.is_owner(OST, 6) && !owners.is_owner(OST, 5));
}

#[test]
fn what_nobody_has_taken_meanwhile_goes_on() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    assert!(renews(&mut owners, 60 * SECOND, &a, 5));
    assert_eq!(take(&mut owners, 61 * SECOND, &b, false), Err(63 * SECOND));
}

#[test]
fn an_owner_acts_only_while_nobody_else_can_have_it() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    // Asked at 4 s, arrived at 4.2 s: clocks may differ in rate by a sixth.
    assert!(renews(&mut owners, 4 * SECOND + SECOND / 5, &a, 5));
    let until = valid_until(4 * SECOND, TTL);
    assert_eq!(take(&mut owners, until, &b, false), Err(7 * SECOND + SECOND / 5));
}

#[test]
fn a_server_that_starts_again_goes_on_at_once() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &b, true), Ok((5, true)));
    let again = server("b", 2);
    assert_eq!(take(&mut owners, 1, &a, false), Err(3 * SECOND));
    assert_eq!(take(&mut owners, 1, &again, true), Ok((6, true)));
    assert!(!renews(&mut owners, 2, &b, 5), "the process of before is gone");
    // Another machine with the same name is another server.
    let other = Server { nids: server("x", 1).nids, ..server("b", 3) };
    assert_eq!(take(&mut owners, 3, &other, true), Err(1 + 3 * SECOND));
}

#[test]
fn who_stops_in_order_may_name_its_heir() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    let tenure = Tenure { target: OST, epoch: 5 };
    assert_eq!(owners.release(SECOND, "b", 1, &tenure, ""), None, "it is not b's");
    let record = owners.release(SECOND, "a", 1, &tenure, "b@tcp").expect("it is a's");
    assert!(record.released && !owners.is_owner(OST, 5));
    assert_eq!(take(&mut owners, SECOND, &a, true), Err(3 * SECOND), "b has it reserved");
    assert_eq!(take(&mut owners, SECOND, &b, false), Ok((6, true)), "at once");
    let tenure = Tenure { target: OST, epoch: 6 };
    owners.release(2 * SECOND, "b", 1, &tenure, "").expect("it is b's");
    assert_eq!(take(&mut owners, 2 * SECOND, &b, false), Err(4 * SECOND), "it is not the first of them");
    assert_eq!(take(&mut owners, 4 * SECOND, &b, false), Ok((7, true)), "but the first one does not come");
}

#[test]
fn what_was_owned_before_a_restart_of_the_store_is_not_given_away() {
    let (a, b) = (server("a", 1), server("b", 1));
    let record =
        Record { epoch: 9, server: a.clone(), released: false, reserved: String::new(), former: None };
    let mut owners = Owners::new(100 * SECOND, [(OST, record.clone())]);
    assert_eq!(take(&mut owners, 100 * SECOND, &b, false), Err(103 * SECOND));
    assert!(renews(&mut owners, 102 * SECOND, &a, 9));
    assert_eq!(take(&mut owners, 103 * SECOND, &b, false), Err(105 * SECOND));
    let mut owners = Owners::new(100 * SECOND, [(OST, Record { released: true, ..record })]);
    assert_eq!(take(&mut owners, 100 * SECOND, &b, false), Err(110 * SECOND), "a may be starting too");
}

#[test]
fn a_former_owner_is_named_until_the_new_one_has_begun() {
    let (a, b, c) = (server("a", 1), server("b", 1), server("c", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    assert_eq!(owners.settle("a", 1, &Tenure { target: OST, epoch: 5 }).expect("its own").former, None);
    // b has it, and dies before it has begun; c fences a, not b.
    assert_eq!(take(&mut owners, 4 * SECOND, &b, false), Ok((6, false)));
    let former = |owners: &Owners| owners.records().next().and_then(|(_, record)| record.former.clone());
    assert_eq!(former(&owners), Some(a.clone()));
    assert_eq!(take(&mut owners, 8 * SECOND, &c, false), Ok((7, false)));
    assert_eq!(former(&owners), Some(a.clone()));
    // c cannot, and leaves it; that it stopped in order says nothing of a.
    owners.release(8 * SECOND, "c", 1, &Tenure { target: OST, epoch: 7 }, "").expect("it is c's");
    assert_eq!(take(&mut owners, 11 * SECOND, &b, false), Ok((8, true)));
    assert_eq!(former(&owners), Some(a.clone()));
    assert_eq!(owners.settle("c", 1, &Tenure { target: OST, epoch: 7 }), None, "it is c's no more");
    owners.release(11 * SECOND, "b", 1, &Tenure { target: OST, epoch: 8 }, "").expect("it is b's");
    // Nobody need be kept from what is its own.
    assert_eq!(take(&mut owners, 11 * SECOND, &server("a", 2), true), Ok((9, true)));
    assert_eq!(former(&owners), None);
    // Whoever has begun is the one to be fenced.
    assert_eq!(take(&mut owners, 15 * SECOND, &b, false), Ok((10, false)));
    owners.settle("b", 1, &Tenure { target: OST, epoch: 10 }).expect("it is b's");
    assert_eq!(take(&mut owners, 19 * SECOND, &c, false), Ok((11, false)));
    assert_eq!(former(&owners), Some(b));
}

#[test]
fn what_another_store_has_decided_is_noted_if_it_is_newer() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert!(owners.adopt(0, OST, 7, a.clone()).is_some());
    assert!(owners.is_owner(OST, 7));
    assert_eq!(owners.adopt(1, OST, 6, b.clone()), None, "an owner of before");
    assert!(owners.adopt(1, OST, 8, b.clone()).is_some(), "this table does not say for how long");
    assert!(!owners.is_owner(OST, 7));
    // An owner that this table chose is not replaced from elsewhere while it is one.
    assert_eq!(take(&mut owners, 4 * SECOND, &a, true), Ok((9, false)));
    assert_eq!(owners.adopt(5 * SECOND, OST, 10, b.clone()), None);
    assert!(owners.adopt(7 * SECOND, OST, 10, b).is_some());
}

/// A store and servers that want one target, with messages that are late or lost, clocks that go wrong, pauses, and restarts
/// of the store and of servers.
struct World {
    rng: Rng,
    now: u64,
    owners: Owners,
    durable: BTreeMap<TargetId, Record>,
    servers: Vec<Party>,
    messages: Vec<(u64, usize, Message)>,
    /// Whether owners wrongly count from when the answer comes.
    hopeful: bool,
    owned: u64,
}

struct Party {
    server: Server,
    /// Thousandths by which its clock is too fast.
    skew: i64,
    /// What it owns, as it believes, and until when it may act by its own clock.
    holds: Option<(u64, u64)>,
    paused_until: u64,
    next_step: u64,
}

enum Message {
    Take(Server),
    Taken(u64, u64),
    Renew(Server, u64, u64),
    Renewed(u64, u64, bool),
    Release(Server, u64),
}

const MILLISECOND: u64 = 1_000_000;

impl World {
    fn new(seed: u64, hopeful: bool) -> World {
        let party = |n: i64| Party {
            server: server(&format!("s{n}"), 1),
            skew: (n - 1) * 50,
            holds: None,
            paused_until: 0,
            next_step: 0,
        };
        World {
            rng: Rng::new(seed),
            now: 0,
            owners: Owners::new(0, []),
            durable: BTreeMap::new(),
            servers: (0..3).map(party).collect(),
            messages: Vec::new(),
            hopeful,
            owned: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn clock(&self, party: usize) -> u64 {
        let millis = (self.now / MILLISECOND) as i64;
        (millis * (1000 + self.servers[party].skew) / 1000) as u64 * MILLISECOND
    }

    /// Most come soon, some late, some never.
    fn send(&mut self, party: usize, message: Message) {
        let delay = match self.below(20) {
            0 => return,
            1..4 => self.below(4000),
            _ => self.below(50),
        };
        self.messages.push((self.now + delay * MILLISECOND, party, message));
    }

    fn may_act(&self, party: usize) -> bool {
        self.servers[party].holds.is_some_and(|(_, until)| self.clock(party) < until)
    }

    fn step(&mut self) {
        self.now += 10 * MILLISECOND;
        if self.below(1000) == 0 {
            let records = self.durable.clone();
            self.owners = Owners::new(self.now, records);
        }
        for party in 0..self.servers.len() {
            match self.below(3000) {
                0 => self.servers[party].paused_until = self.now + self.below(9000) * MILLISECOND,
                1 => {
                    self.servers[party].holds = None;
                    self.servers[party].server.instance += 1;
                }
                _ => {}
            }
            if self.now >= self.servers[party].paused_until.max(self.servers[party].next_step) {
                self.act(party);
            }
        }
        let (due, later) = std::mem::take(&mut self.messages).into_iter().partition(|m| m.0 <= self.now);
        self.messages = later;
        for (at, party, message) in due {
            self.deliver(at, party, message);
        }
        let acting = (0..self.servers.len()).filter(|party| self.may_act(*party)).count();
        assert!(acting <= 1, "{acting} servers believe that they own the target");
        self.owned += acting as u64;
    }

    fn act(&mut self, party: usize) {
        self.servers[party].next_step = self.now + 300 * MILLISECOND;
        let (server, asked) = (self.servers[party].server.clone(), self.clock(party));
        let leaves = self.below(100) == 0;
        match self.servers[party].holds {
            None => self.send(party, Message::Take(server)),
            Some((epoch, _)) if leaves => {
                self.servers[party].holds = None;
                self.send(party, Message::Release(server, epoch));
            }
            Some((epoch, _)) => self.send(party, Message::Renew(server, epoch, asked)),
        }
    }

    fn deliver(&mut self, at: u64, party: usize, message: Message) {
        let now = self.now;
        match message {
            Message::Take(server) => {
                if let Verdict::Granted(taken, record) = self.owners.take(now, &server, &wanted(party == 0)) {
                    self.durable.insert(OST, record);
                    self.send(party, Message::Taken(server.instance, taken.epoch));
                }
            }
            Message::Renew(server, epoch, asked) => {
                let hold = Tenure { target: OST, epoch };
                let lost = !self.owners.renew(now, &server.name, server.instance, &[hold]).is_empty();
                self.send(party, Message::Renewed(epoch, asked, lost));
            }
            Message::Release(server, epoch) => {
                let tenure = Tenure { target: OST, epoch };
                if let Some(record) = self.owners.release(now, &server.name, server.instance, &tenure, "") {
                    self.durable.insert(OST, record);
                }
            }
            // Who is paused reads it later.
            answer if now < self.servers[party].paused_until => self.messages.push((at, party, answer)),
            Message::Taken(instance, epoch) => {
                let party = &mut self.servers[party];
                if party.server.instance == instance && party.holds.is_none() {
                    party.holds = Some((epoch, 0));
                }
            }
            Message::Renewed(epoch, asked, lost) => {
                let from = if self.hopeful { self.clock(party) } else { asked };
                let holds = &mut self.servers[party].holds;
                if let Some((held, until)) = holds
                    && *held == epoch
                {
                    *until = (*until).max(valid_until(from, TTL));
                    *holds = holds.filter(|_| !lost);
                }
            }
        }
    }
}

#[test]
fn two_servers_never_act_at_the_same_time() {
    let mut owned = 0;
    for seed in 0..40 {
        let mut world = World::new(seed, false);
        (0..20_000).for_each(|_| world.step());
        owned += world.owned;
    }
    assert!(owned > 40 * 20_000 / 4, "somebody acts most of the time: {owned}");
}

#[test]
fn whoever_counts_from_the_answer_is_found_out() {
    let found = (0..40).any(|seed| {
        std::panic::catch_unwind(|| {
            let mut world = World::new(seed, true);
            (0..20_000).for_each(|_| world.step());
        })
        .is_err()
    });
    assert!(found, "the test above can fail");
}
