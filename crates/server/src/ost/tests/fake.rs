//! A client in small: it keeps what it wrote until it is called back, and trims what it did not use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, FileOwner, FsName, Nid, ObjectId, TargetId, Timestamp};
use rpc::{Callbacks, Hub, Import, Key, Keys, Restate, Role};
use rt::sim::Sim;
use rt::sync::Semaphore;
use rt::{Addr, BoxFuture, Rt};
use service::{Start, Supervision, Target};
use store::{Label, Store};

use crate::ost::Ost;

pub const SERVER: &str = "server";
const OST: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 3 };
const PATH: &str = "ost";
const KEYS: Keys = Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) };

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn nid() -> Nid {
    "server:988@tcp".parse().expect("a plain NID")
}

/// An OST on a machine of its own.
pub struct Server {
    pub target: Arc<Target<Ost>>,
    hub: Hub,
}

impl Server {
    pub async fn make(sim: &Sim) -> Server {
        let rt = sim.rt(SERVER);
        let label = Label { fsname: fsname(), target: OST, uuid: ClientId(7), mgs: vec![], service: vec![] };
        Store::format(&rt, PATH, &label).await.expect("an empty directory can be formatted");
        Server::open(rt).await
    }

    pub async fn open(rt: Rt) -> Server {
        let hub = Hub::new(rt.clone(), fsname(), KEYS);
        let store = Store::open(&rt, PATH).await.expect("the target opens");
        let start = Start {
            rt,
            hub: hub.clone(),
            store,
            mgs: None,
            backchannel: Arc::new(hub.clone()),
            supervision: Supervision::None,
            claimant: None,
        };
        let target = Target::<Ost>::open(start).await.expect("the role opens");
        hub.serve(OST, target.clone());
        hub.listen(&Addr("server:988".into())).await.expect("the port is free");
        Server { target, hub }
    }

    pub async fn close(self) {
        self.hub.withdraw(OST);
        self.target.close().await;
        self.hub.close().await;
    }
}

/// What a client holds, has written and not sent, and was asked.
#[derive(Default)]
struct State {
    tokens: Vec<msg::Token>,
    /// What is being given up, and may still have something on its way.
    leaving: Vec<msg::Token>,
    /// Callbacks that count for grants which are still on their way: range, number, whether reading goes on.
    answered: Vec<(u64, u64, u64, bool)>,
    used: Vec<(u64, u64)>,
    /// What was written and not sent, by its place.
    dirty: BTreeMap<u64, (Bytes, Timestamp)>,
    contended_until: u64,
    pub figures: Figures,
}

/// What a client has seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub enqueues: u64,
    pub revocations: u64,
    pub glimpses: u64,
    pub writes: u64,
    pub restated: u64,
    pub lost: u64,
}

/// A client of one object.
pub struct Fake {
    rt: Rt,
    hub: Hub,
    pub import: Arc<Import>,
    object: ObjectId,
    /// How long it takes to answer a callback.
    slowness: Mutex<Duration>,
    state: Mutex<State>,
    /// Held while something is given up: what it sends then comes before whatever it does next.
    giving_up: Semaphore,
}

impl Fake {
    pub fn new(sim: &Sim, name: &str, client: u8, object: ObjectId) -> Arc<Fake> {
        let rt = sim.rt(name);
        let hub = Hub::new(rt.clone(), fsname(), Keys { server: None, ..KEYS });
        let client = hub.identify(&[client; 32]);
        let import = hub.import(OST, client, Role::Client, vec![nid()]);
        let (slowness, state) = (Mutex::default(), Mutex::default());
        let giving_up = Semaphore::new(1);
        let fake = Arc::new(Fake { rt, hub, import: import.clone(), object, slowness, state, giving_up });
        import.set_callbacks(fake.clone());
        fake
    }

    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    pub fn set_slowness(&self, slowness: Duration) {
        *self.slowness.lock() = slowness;
    }

    pub fn figures(&self) -> Figures {
        self.state.lock().figures
    }

    pub async fn leave(&self) {
        self.hub.close().await;
    }

    pub fn holds(&self, write: bool, start: u64, end: u64) -> bool {
        self.state.lock().holds(write, start, end)
    }

    /// Waits for a range; false if it is to be used without being held.
    pub async fn enqueue(&self, write: bool, start: u64, end: u64) -> Result<bool, rpc::RpcError> {
        self.state.lock().figures.enqueues += 1;
        let enqueue = msg::Enqueue { object: self.object, write, start, end, restate: false };
        let token = self.import.call(enqueue).await?.reply;
        let mut state = self.state.lock();
        if token.contended {
            state.contended_until = self.rt.now().0 + 1_000_000_000;
            return Ok(false);
        }
        assert!(token.start <= start && end <= token.end && (token.write || !write));
        state.granted(token);
        Ok(true)
    }

    /// Writes into its own memory if it may, else to the target.
    pub async fn write(&self, offset: u64, data: Bytes, time: Timestamp) {
        let end = offset + data.len() as u64;
        loop {
            {
                let mut state = self.state.lock();
                if state.holds(true, offset, end) {
                    state.put(offset, data, time);
                    return;
                }
            }
            let contended = self.rt.now().0 < self.state.lock().contended_until;
            if contended || !self.enqueue(true, offset, end).await.expect("the target answers") {
                self.send(offset, data, time, true).await;
                return;
            }
        }
    }

    /// Reads what it has, or what the target has.
    pub async fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let end = offset + u64::from(len);
        loop {
            let held = self.state.lock().holds(false, offset, end);
            let contended = self.rt.now().0 < self.state.lock().contended_until;
            let locked = !held && contended;
            if !held && !locked {
                if self.enqueue(false, offset, end).await.expect("the target answers") {
                    continue;
                }
                self.state.lock().contended_until = self.rt.now().0 + 1_000_000_000;
                continue;
            }
            self.settled().await;
            // What is sent while the target is asked is perhaps not in its answer, and not here any more.
            let mut own = BTreeMap::new();
            let number = {
                let state = self.state.lock();
                own.clone_from(&state.dirty);
                state.newest()
            };
            let read = msg::Read { object: self.object, offset, len, locked };
            let found = self.import.call(read).await.expect("it is read");
            let state = self.state.lock();
            // Somebody else may have changed it since, if it was given up meanwhile.
            if !locked && (!state.holds(false, offset, end) || state.newest() != number) {
                continue;
            }
            let mut found = found.bulk.concat();
            found.resize(len as usize, 0);
            overlay(&own, offset, &mut found);
            overlay(&state.dirty, offset, &mut found);
            return found;
        }
    }

    /// Nothing of what was given up is still on its way.
    async fn settled(&self) {
        drop(self.giving_up.acquire().await);
    }

    async fn send(&self, offset: u64, data: Bytes, time: Timestamp, locked: bool) {
        if locked {
            self.settled().await;
        }
        self.state.lock().figures.writes += 1;
        let write = msg::Write {
            object: self.object,
            offset,
            time,
            locked,
            sync: false,
            owner: FileOwner::default(),
        };
        // A client that was evicted has lost what it wrote.
        let _ = self.import.call_bulk(write, vec![data]).await;
    }

    async fn revoked(&self, revoke: msg::RevokeRange) -> msg::RangeRevoked {
        let slowness = *self.slowness.lock();
        self.rt.sleep(slowness).await;
        let _alone = self.giving_up.acquire().await.expect("it is never closed");
        let (answer, unsent) = {
            let mut state = self.state.lock();
            state.figures.revocations += 1;
            state.leaving = state.tokens.clone();
            let answer = state.give_up(&revoke);
            (answer.clone(), state.take_dirty(answer.start, answer.end))
        };
        for (offset, (data, time)) in unsent {
            self.send(offset, data, time, false).await;
        }
        self.state.lock().leaving.clear();
        answer
    }
}

impl State {
    fn newest(&self) -> u64 {
        self.tokens.iter().map(|token| token.number).max().unwrap_or(0)
    }

    fn holds(&self, write: bool, start: u64, end: u64) -> bool {
        let mut at = start;
        // Tokens are few, and in no order.
        while at < end {
            let here = self.tokens.iter().find(|t| t.start <= at && at < t.end && (t.write || !write));
            match here {
                Some(token) => at = token.end,
                None => return false,
            }
        }
        true
    }

    fn granted(&mut self, token: msg::Token) {
        let mut parts = vec![token];
        for (start, end, number, kept) in self.answered.clone() {
            parts = parts
                .into_iter()
                .flat_map(|part| match part.number <= number {
                    true => cut(part, start, end, kept),
                    false => vec![part],
                })
                .collect();
        }
        self.tokens.append(&mut parts);
    }

    fn put(&mut self, offset: u64, data: Bytes, time: Timestamp) {
        let end = offset + data.len() as u64;
        self.used.push((offset, end));
        // Records of one size at places of their own: nothing overlaps in part.
        self.dirty.insert(offset, (data, time));
    }

    fn take_dirty(&mut self, start: u64, end: u64) -> Vec<(u64, (Bytes, Timestamp))> {
        let overlap: Vec<u64> = self
            .dirty
            .iter()
            .filter(|(offset, (data, _))| **offset < end && start < **offset + data.len() as u64)
            .map(|(offset, _)| *offset)
            .collect();
        overlap.into_iter().filter_map(|offset| self.dirty.remove_entry(&offset)).collect()
    }

    fn give_up(&mut self, revoke: &msg::RevokeRange) -> msg::RangeRevoked {
        let (mut start, mut end) = (revoke.start, revoke.end);
        if revoke.trim {
            let before = self.used.iter().map(|used| used.1).filter(|used| *used <= revoke.start).max();
            let behind = self.used.iter().map(|used| used.0).filter(|used| *used >= revoke.end).min();
            (start, end) = (before.unwrap_or(0), behind.unwrap_or(u64::MAX));
            if self.used.iter().any(|(a, b)| *a < revoke.start && revoke.start < *b) {
                start = revoke.start;
            }
            if self.used.iter().any(|(a, b)| *a < revoke.end && revoke.end < *b) {
                end = revoke.end;
            }
        }
        let parts = std::mem::take(&mut self.tokens).into_iter();
        self.tokens = parts
            .flat_map(|part| match part.number <= revoke.number {
                true => cut(part, start, end, revoke.keep_read),
                false => vec![part],
            })
            .collect();
        self.answered.push((start, end, revoke.number, revoke.keep_read));
        msg::RangeRevoked { start, end, kept_read: revoke.keep_read, number: revoke.number }
    }
}

fn overlay(dirty: &BTreeMap<u64, (Bytes, Timestamp)>, offset: u64, found: &mut [u8]) {
    for (at, (data, _)) in dirty {
        if *at >= offset && *at + data.len() as u64 <= offset + found.len() as u64 {
            let from = (*at - offset) as usize;
            found[from..from + data.len()].copy_from_slice(data);
        }
    }
}

/// What is left of `token` without the range, or with the right to read it.
fn cut(token: msg::Token, start: u64, end: u64, keep_read: bool) -> Vec<msg::Token> {
    let (from, to) = (token.start.max(start), token.end.min(end));
    if from >= to {
        return vec![token];
    }
    let part = |start, end, write| msg::Token { start, end, write, ..token.clone() };
    let mut parts = vec![part(token.start, from, token.write), part(to, token.end, token.write)];
    if keep_read {
        parts.push(part(from, to, false));
    }
    parts.retain(|part| part.start < part.end);
    parts
}

impl Callbacks for Fake {
    fn called(self: Arc<Self>, _: TargetId, request: Request) -> BoxFuture<'static, Result<Reply, Code>> {
        Box::pin(async move {
            match request {
                Request::RevokeRange(revoke) => Ok(Reply::RevokeRange(self.revoked(revoke).await)),
                Request::Glimpse(_) => {
                    let mut state = self.state.lock();
                    state.figures.glimpses += 1;
                    let ends = state.dirty.iter().map(|(at, (data, _))| at + data.len() as u64);
                    let size = ends.max().unwrap_or(0);
                    let time = state.dirty.values().map(|(_, time)| *time).max().unwrap_or_default();
                    Ok(Reply::Glimpse(msg::Glimpsed { size, time }))
                }
                _ => Err(Code::NotSupported),
            }
        })
    }

    fn changes_lost(&self, _: TargetId) {}

    fn session_lost(&self, _: TargetId) {
        let mut state = self.state.lock();
        let figures = state.figures;
        *state = State { figures: Figures { lost: figures.lost + 1, ..figures }, ..State::default() };
    }

    fn restarted(self: Arc<Self>, _: TargetId, restate: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (held, leaving) = {
                let state = self.state.lock();
                (state.tokens.clone(), state.leaving.clone())
            };
            for token in held.iter().chain(&leaving) {
                let (write, start, end) = (token.write, token.start, token.end);
                let enqueue = msg::Enqueue { object: self.object, write, start, end, restate: true };
                let again = restate.call(enqueue).await.expect("nobody else holds it");
                let mut state = self.state.lock();
                state.figures.restated += 1;
                // What was given up meanwhile stays so: the target will hear of it when it asks.
                if let Some(at) = state.tokens.iter().position(|known| known == token) {
                    state.tokens.remove(at);
                    state.granted(again);
                }
            }
        })
    }

    fn disconnected(&self, _: TargetId) {}

    fn reconnected(&self, _: TargetId) {}
}
