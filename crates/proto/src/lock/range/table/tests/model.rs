//! Clients that ask, use, give up and answer at random, over a network that delays, reorders and repeats.
//!
//! What a client believes that it holds is kept byte by byte, naively. Two clients must never believe things that do
//! not go together, and whoever asks is answered in the end.

use rt::sim::Rng;

use super::super::*;
use super::object;

/// Bytes that are told apart; what lies behind counts as one more.
const BYTES: usize = 24;
const CLIENTS: usize = 4;
const STEPS: usize = 800;

struct Random(Rng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn range(&mut self) -> Range {
        let start = self.below(BYTES);
        let len_max = if self.chance(20) { BYTES } else { 4 };
        let len = 1 + self.below(len_max);
        let end = if start + len > BYTES { u64::MAX } else { (start + len) as u64 };
        Range { start: start as u64, end }
    }

    /// A range with `inner` in it.
    fn around(&mut self, inner: Range) -> Range {
        if self.chance(50) { inner } else { inner.hull(self.range()) }
    }
}

fn bytes(range: Range) -> std::ops::Range<usize> {
    range.start as usize..if range.end == u64::MAX { BYTES + 1 } else { range.end as usize }
}

/// What a client may do with a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Right {
    #[default]
    None,
    Read,
    Write,
}

#[derive(Default)]
struct Client {
    holder: u64,
    held: [(Right, u64); BYTES + 1],
    /// Callbacks that it answered: they count for grants that come later but were made before.
    answered: Vec<(Range, u64, bool)>,
    /// Requests without an answer.
    asked: Vec<(u64, bool, Range)>,
    using: Vec<(u64, bool, Range)>,
}

impl Client {
    fn granted(&mut self, token: &Token) {
        for at in bytes(Range { start: token.start, end: token.end }) {
            let mut right = if token.write { Right::Write } else { Right::Read };
            for (range, number, kept) in &self.answered {
                if bytes(*range).contains(&at) && token.number <= *number {
                    right = right.min(if *kept { Right::Read } else { Right::None });
                }
            }
            let held = &mut self.held[at];
            if right > Right::None {
                *held = (held.0.max(right), held.1.max(token.number));
            }
        }
    }

    fn give_up(&mut self, range: Range, number: u64, keep_read: bool) {
        for at in bytes(range) {
            let held = &mut self.held[at];
            if held.1 <= number {
                *held = if keep_read { (held.0.min(Right::Read), held.1) } else { (Right::None, 0) };
            }
        }
        self.answered.push((range, number, keep_read));
    }
}

/// What is on its way.
#[derive(Clone)]
enum Message {
    Token(u64, Token),
    Call(Call),
    Answer(Call, RangeRevoked),
    Cancel(u64, ObjectRange),
}

struct Model {
    random: Random,
    table: Table,
    clients: Vec<Client>,
    messages: Vec<Message>,
    /// Callbacks without an answer.
    open: Vec<Call>,
    /// Those for want of room.
    reclaims: Vec<Reclaim>,
    now: u64,
    next: u64,
    next_holder: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random(Rng::new(seed));
        let mut settings = Settings { contended_answers: random.chance(50), ..Settings::default() };
        if random.chance(50) {
            settings.bounds.session = Bound { reclaim: 2, max: 6 };
        }
        let table = Table::new(Arc::new(Numbers::new(1)), settings);
        let clients = (1..=CLIENTS as u64).map(|holder| Client { holder, ..Client::default() }).collect();
        let next_holder = CLIENTS as u64;
        let (messages, open, reclaims) = (Vec::new(), Vec::new(), Vec::new());
        Model { random, table, clients, messages, open, reclaims, now: 0, next: 0, next_holder }
    }

    fn step(&mut self) {
        self.now += self.random.0.below(300_000_000);
        match self.random.below(100) {
            0..30 => self.ask(),
            30..36 => self.cancel(),
            36..46 => self.end_a_use(),
            46..47 => self.replace_a_client(),
            _ => self.deliver(),
        }
        self.collect();
        self.check();
    }

    fn ask(&mut self) {
        let (index, range) = (self.random.below(CLIENTS), self.random.range());
        let (write, purpose) =
            (self.random.chance(50), if self.random.chance(20) { Purpose::Use } else { Purpose::Hold });
        self.next += 1;
        let client = &mut self.clients[index];
        let holder = Holder(client.holder);
        client.asked.push((self.next, write, range));
        let ask = Ask { id: self.next, holder, purpose, mode: Mode::of(write), range };
        let answer = self.table.ask(self.now, object(1), ask);
        self.collect();
        let id = self.next;
        match answer {
            Answer::Granted(token) => self.granted(id, holder, token),
            Answer::Contended | Answer::Full => {
                self.forget(id, holder);
            }
            Answer::Go => self.go(id, holder),
            Answer::Wait => {}
        }
    }

    fn granted(&mut self, id: u64, holder: Holder, token: Token) {
        let Some(asked) = self.forget(id, holder) else { return };
        assert!(token.start <= asked.2.start && asked.2.end <= token.end && (token.write || !asked.1));
        self.messages.push(Message::Token(holder.0, token));
    }

    fn forget(&mut self, id: u64, holder: Holder) -> Option<(u64, bool, Range)> {
        let client = self.clients.iter_mut().find(|client| client.holder == holder.0)?;
        let at = client.asked.iter().position(|(known, ..)| *known == id)?;
        Some(client.asked.remove(at))
    }

    fn go(&mut self, id: u64, holder: Holder) {
        match self.forget(id, holder) {
            Some(asked) => {
                let client = self.clients.iter_mut().find(|client| client.holder == holder.0);
                client.expect("it lives").using.push(asked);
            }
            // The client died, and the access ends by itself.
            None => {
                self.table.end_use(self.now, object(1), id);
                self.collect();
            }
        }
    }

    fn collect(&mut self) {
        for output in self.table.take_outputs() {
            match output {
                Output::Granted { id, holder, token, .. } => self.granted(id, holder, token),
                Output::Contended { id, holder } => {
                    self.forget(id, holder);
                }
                Output::Go { id, holder } => self.go(id, holder),
                Output::Call(call) => {
                    let twice = |open: &Call| open.holder == call.holder && open.range.overlaps(call.range);
                    assert!(!self.open.iter().any(twice), "one callback at a time for a byte");
                    self.open.push(call);
                    self.messages.push(Message::Call(call));
                }
                Output::Reclaim(reclaim) => self.reclaims.push(reclaim),
            }
        }
    }

    fn cancel(&mut self) {
        let (index, range) = (self.random.below(CLIENTS), self.random.range());
        let client = &mut self.clients[index];
        let number = client.held[bytes(range)].iter().map(|held| held.1).max().unwrap_or(0);
        client.give_up(range, number, false);
        let range = ObjectRange { object: object(1), start: range.start, end: range.end, number };
        self.messages.push(Message::Cancel(client.holder, range));
    }

    fn end_a_use(&mut self) {
        let index = self.random.below(CLIENTS);
        if let Some((id, ..)) = self.clients[index].using.pop() {
            self.table.end_use(self.now, object(1), id);
        }
    }

    /// The client dies; another one comes in its place. Its accesses under way go on to their end.
    fn replace_a_client(&mut self) {
        let index = self.random.below(CLIENTS);
        self.next_holder += 1;
        let new = Client { holder: self.next_holder, ..Client::default() };
        let old = std::mem::replace(&mut self.clients[index], new);
        for (id, ..) in old.using {
            self.table.end_use(self.now, object(1), id);
        }
        self.open.retain(|open| open.holder.0 != old.holder);
        self.table.drop_session(self.now, Holder(old.holder));
    }

    /// A callback for want of room is answered, or not.
    fn reclaim(&mut self) {
        let index = self.random.below(self.reclaims.len());
        let reclaim = self.reclaims.swap_remove(index);
        let client = self.clients.iter_mut().find(|client| client.holder == reclaim.call.holder.0);
        let given = client.filter(|_| self.random.chance(80)).map(|client| {
            client.give_up(Range::ALL, reclaim.call.number, false);
            RangeRevoked { start: 0, end: u64::MAX, kept_read: false, number: reclaim.call.number }
        });
        self.table.reclaimed(self.now, &reclaim, given);
    }

    fn deliver(&mut self) {
        if !self.reclaims.is_empty() && self.random.chance(30) {
            self.reclaim();
        }
        if self.messages.is_empty() {
            return;
        }
        let index = self.random.below(self.messages.len());
        let message = match self.random.chance(20) {
            true => self.messages[index].clone(),
            false => self.messages.swap_remove(index),
        };
        match message {
            Message::Token(holder, token) => {
                if let Some(client) = self.clients.iter_mut().find(|client| client.holder == holder) {
                    client.granted(&token);
                }
            }
            Message::Call(call) => self.call(call),
            Message::Answer(call, answer) => {
                self.open.retain(|open| open.id != call.id);
                self.table.answered(self.now, &call, answer);
            }
            Message::Cancel(holder, range) => self.table.cancelled(self.now, Holder(holder), &range),
        }
    }

    fn call(&mut self, call: Call) {
        let range = self.random.around(call.range);
        let kept_read = call.keep_read && self.random.chance(70);
        let Some(client) = self.clients.iter_mut().find(|client| client.holder == call.holder.0) else {
            return;
        };
        // A client may give up later grants, too.
        let newest = bytes(range).map(|at| client.held[at].1).max().unwrap_or(0);
        let number = if self.random.chance(50) { call.number.max(newest) } else { call.number };
        client.give_up(range, number, kept_read);
        let answer = RangeRevoked { start: range.start, end: range.end, kept_read, number };
        self.messages.push(Message::Answer(call, answer));
    }

    /// No two clients believe what does not go together, and the table knows of everything that they believe.
    fn check(&self) {
        for at in 0..=BYTES {
            let right = |client: &Client| {
                let used = client.using.iter().filter(|(_, _, range)| bytes(*range).contains(&at));
                let used = used.map(|(_, write, _)| if *write { Right::Write } else { Right::Read });
                (client.held[at].0, used.max().unwrap_or_default())
            };
            for (index, one) in self.clients.iter().enumerate() {
                for other in &self.clients[index + 1..] {
                    let (a, b) = (right(one), right(other));
                    let clash = |a: Right, b: Right| a.min(b) > Right::None && a.max(b) == Right::Write;
                    // Accesses are atomic one by one and may be under way together.
                    let clashes = clash(a.0, b.0) || clash(a.0, b.1) || clash(a.1, b.0);
                    assert!(!clashes, "byte {at}: {a:?} of {} and {b:?} of {}", one.holder, other.holder);
                }
                let byte = Range { start: at as u64, end: at as u64 + 1 };
                let (held, write) = (one.held[at].0, one.held[at].0 == Right::Write);
                let known = self.table.holds(object(1), Holder(one.holder), Mode::of(write), byte);
                assert!(held == Right::None || known, "byte {at} of {}: {held:?}", one.holder);
            }
        }
    }

    /// Everything is delivered and every access ends: then nobody waits any more.
    fn settle_down(&mut self) {
        for _ in 0..100_000 {
            let idle = self.clients.iter().all(|client| client.asked.is_empty() && client.using.is_empty());
            if idle && self.messages.is_empty() {
                return;
            }
            match self.random.chance(30) {
                true => self.end_a_use(),
                false => self.deliver(),
            }
            self.collect();
            self.check();
        }
        let asked: Vec<_> = self.clients.iter().map(|client| client.asked.clone()).collect();
        panic!("somebody waits for ever: {asked:?}");
    }
}

#[test]
fn rights_go_together_and_nobody_waits_for_ever() {
    for seed in 0..8 {
        let mut model = Model::new(seed);
        for _ in 0..STEPS {
            model.step();
        }
        model.settle_down();
        for holder in 1..=model.next_holder {
            model.table.drop_session(model.now, Holder(holder));
        }
        model.table.fade(u64::MAX);
        assert_eq!((model.table.ranges(), model.table.objects(), model.table.sessions.len()), (0, 0, 0));
    }
}
