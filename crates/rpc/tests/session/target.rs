//! A small target that keeps the rules of `docs/wire.md#sessions`: a counter that clients advance by GetSequence,
//! with reply slots, a commit now and then, and a disk that outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::identity::Identity;
use proto::session::{Decision, ReplyRecord, SlotTable};
use proto::wire::messages::{
    Connect, Connected, Done, Enqueue, FEATURES_ALL, GetAttr, ReadDone, Sequence, Space, Token,
};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, FsName, Nid, TargetId, Transno};
use rpc::{Answer, Call, Hub, Import, Key, Keys, Role, Service};
use rt::sync::Notify;
use rt::{Addr, BoxFuture, Rt};

pub const CLIENT_KEY: Key = Key([2; 32]);
pub const SERVER_KEY: Key = Key([1; 32]);
pub const TARGET: TargetId = TargetId { kind: proto::TargetKind::Mdt, index: 0 };

pub fn fsname() -> FsName {
    "weft".parse().expect("a file system name")
}

pub fn all_keys() -> Keys {
    Keys { server: Some(SERVER_KEY), client: Some(CLIENT_KEY) }
}

/// A hub of a process that holds the clients' key only.
pub fn client_hub(rt: Rt) -> Hub {
    Hub::new(rt, fsname(), Keys { server: None, client: Some(CLIENT_KEY) })
}

pub fn import(hub: &Hub, client: u128) -> Arc<Import> {
    hub.import(TARGET, identify(hub, client), Role::Client, vec![nid()])
}

/// The name of a client that is known by a number here.
pub fn identify(hub: &Hub, client: u128) -> ClientId {
    hub.identify(&secret(client))
}

fn secret(client: u128) -> [u8; 32] {
    let mut secret = [0; 32];
    secret[..16].copy_from_slice(&client.to_le_bytes());
    secret
}

pub fn nid() -> Nid {
    "server:988@tcp".parse().expect("a plain NID")
}

/// What survives the target.
#[derive(Clone, Default)]
pub struct Durable {
    pub counter: u64,
    pub transno: u64,
    pub boot: u64,
    pub records: BTreeMap<(ClientId, u32), ReplyRecord>,
    pub clients: BTreeSet<ClientId>,
}

struct Session {
    client: ClientId,
    epoch: u64,
    slots: SlotTable,
}

#[derive(Default)]
struct State {
    now: Durable,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    /// Clients from before the restart that may still have replays.
    recovering: BTreeSet<ClientId>,
    released: bool,
    waiting: usize,
}

pub struct Target {
    rt: Rt,
    disk: Arc<Mutex<Durable>>,
    state: Mutex<State>,
    moved: Notify,
    pub options: Options,
    pub seen: Mutex<Seen>,
}

/// What a test wants of the target.
#[derive(Clone, Default)]
pub struct Options {
    /// Time that each change takes before it happens.
    pub work: Duration,
    /// No commit but when asked.
    pub lazy: bool,
    /// So many Syncs are refused first.
    pub syncs_refused: u64,
    /// GetAttr waits for [`Target::release`].
    pub stuck: bool,
    /// Time that it takes to answer what is stated again.
    pub restate: Duration,
    /// Reply slots of a session; 8 if nothing is said.
    pub slots: Option<u32>,
    /// What the target cannot do.
    pub lacks: u64,
    /// Changes beyond this many wait for [`Target::release`].
    pub changes_max: Option<u64>,
}

/// What the target has seen.
#[derive(Default, Clone, Debug)]
pub struct Seen {
    pub calls: u64,
    pub syncs: u64,
    pub replays: u64,
    pub connects: u64,
    /// What was stated again while the target waited for replays.
    pub restated: Vec<u64>,
}

impl Target {
    pub fn start(rt: &Rt, disk: &Arc<Mutex<Durable>>, options: Options) -> Arc<Target> {
        let now = {
            let mut disk = disk.lock();
            disk.boot += 1;
            disk.clone()
        };
        let recovering = now.clients.clone();
        let next_session = now.boot * 1000;
        let state = State { now, next_session, recovering, ..State::default() };
        let target = Arc::new(Target {
            rt: rt.clone(),
            disk: disk.clone(),
            state: Mutex::new(state),
            moved: Notify::new(),
            options,
            seen: Mutex::new(Seen::default()),
        });
        let (committer, clock) = (Arc::downgrade(&target), rt.clone());
        if !target.options.lazy {
            rt.spawn(async move {
                loop {
                    clock.sleep(Duration::from_millis(300)).await;
                    let Some(target) = committer.upgrade() else { return };
                    target.commit();
                }
            });
        }
        target
    }

    pub fn commit(&self) {
        let state = self.state.lock();
        let mut disk = self.disk.lock();
        let boot = disk.boot;
        // A target that was replaced writes no more.
        if boot == state.now.boot {
            *disk = state.now.clone();
        }
    }

    /// Forgets every client and what they had not committed, as an eviction does.
    pub fn evict_all(&self) {
        let mut state = self.state.lock();
        let mut disk = self.disk.lock();
        state.sessions.clear();
        state.recovering.clear();
        disk.clients.clear();
        disk.records.clear();
        state.now = disk.clone();
    }

    /// The session of a client, if it has one.
    pub fn session_of(&self, client: u128) -> Option<u64> {
        let client = Identity::from_secret(&secret(client)).client();
        let state = self.state.lock();
        state.sessions.iter().find(|(_, session)| session.client == client).map(|(id, _)| *id)
    }

    /// Lets the requests go on that wait for it.
    pub fn release(&self) {
        self.state.lock().released = true;
        self.moved.notify_waiters();
    }

    /// Requests that wait for [`Target::release`].
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    pub fn counter(&self) -> u64 {
        self.state.lock().now.counter
    }

    fn last_committed(&self) -> Transno {
        Transno(self.disk.lock().transno)
    }

    fn connect(&self, connect: &Connect) -> Result<Reply, Code> {
        self.seen.lock().connects += 1;
        if connect.fsname != "weft" {
            return Err(Code::WrongFilesystem);
        }
        let mut state = self.state.lock();
        let known = state.sessions.iter().find(|(_, s)| s.client == connect.client).map(|(id, _)| *id);
        if let Some(id) = known {
            let session = state.sessions.get_mut(&id).expect("just found");
            // A Connect that an older connection delivers late, or twice, must not end what came after it.
            if connect.session_epoch <= session.epoch {
                return Err(Code::NoSession);
            }
            if connect.boot != 0 {
                session.epoch = connect.session_epoch;
                return Ok(self.connected(&state, id, true));
            }
            state.sessions.remove(&id);
        }
        let resumed = connect.boot != 0 && state.now.clients.contains(&connect.client);
        state.next_session += 1;
        let id = state.next_session;
        let mut slots = SlotTable::new();
        if resumed {
            for ((client, slot), record) in &state.now.records {
                if *client == connect.client {
                    slots.restore(*slot, record.clone());
                }
            }
        } else {
            state.recovering.remove(&connect.client);
            state.now.clients.insert(connect.client);
            self.disk.lock().clients.insert(connect.client);
            state.now.records.retain(|(client, _), _| *client != connect.client);
        }
        state.sessions.insert(id, Session { client: connect.client, epoch: connect.session_epoch, slots });
        drop(state);
        self.moved.notify_waiters();
        Ok(self.connected(&self.state.lock(), id, resumed))
    }

    fn connected(&self, state: &State, session: u64, resumed: bool) -> Reply {
        Reply::Connect(Connected {
            session,
            features: FEATURES_ALL & !self.options.lacks,
            boot: state.now.boot,
            slots: self.options.slots.unwrap_or(8),
            last_committed: self.last_committed(),
            resumed,
        })
    }

    async fn answer(&self, call: Call) -> Answer {
        self.seen.lock().calls += 1;
        let (result, transno) = match &call.request {
            Request::Connect(connect) => (self.connect(connect), Transno(0)),
            _ => self.answer_in_session(&call).await,
        };
        let bulk = match (&result, &call.request) {
            (Ok(_), Request::Read(read)) => vec![Bytes::from(vec![7; read.len as usize])],
            _ => Vec::new(),
        };
        Answer { result, bulk, transno, last_committed: self.last_committed(), room: Default::default() }
    }

    async fn answer_in_session(&self, call: &Call) -> (Result<Reply, Code>, Transno) {
        let none = Transno(0);
        let client = {
            let mut state = self.state.lock();
            let client = match state.sessions.get(&call.session) {
                Some(session) if session.epoch == call.session_epoch => session.client,
                _ => return (Err(Code::NoSession), none),
            };
            if call.replay.is_none() && state.recovering.remove(&client) {
                self.moved.notify_waiters();
            }
            client
        };
        if call.replay.is_none() {
            self.until(|state| state.recovering.is_empty()).await;
        }
        match &call.request {
            Request::Disconnect(_) => {
                self.state.lock().sessions.remove(&call.session);
                (Ok(Reply::Disconnect(Done {})), none)
            }
            Request::Sync(_) => {
                let nth = {
                    let mut seen = self.seen.lock();
                    seen.syncs += 1;
                    seen.syncs
                };
                if nth <= self.options.syncs_refused {
                    return (Err(Code::Io), none);
                }
                self.rt.sleep(Duration::from_millis(1)).await;
                self.commit();
                (Ok(Reply::Sync(Done {})), none)
            }
            Request::Enqueue(enqueue) => {
                self.enqueue(call, client, enqueue).await;
                let Enqueue { write, start, end, .. } = *enqueue;
                (Ok(Reply::Enqueue(Token { number: 1, write, start, end, contended: false })), none)
            }
            Request::GetSequence(_) => self.change(call, client).await,
            Request::Read(read) => (Ok(Reply::Read(ReadDone { size: u64::from(read.len) })), none),
            Request::Write(_) => {
                assert!(call.slot.is_some());
                self.change(call, client).await
            }
            Request::Statfs(_) => {
                let files_total = self.counter();
                let (bytes_total, bytes_free, bytes_available, files_free) = (1, 1, 1, 1);
                (
                    Ok(Reply::Statfs(Space {
                        bytes_total,
                        bytes_free,
                        bytes_available,
                        files_total,
                        files_free,
                        ..Space::default()
                    })),
                    none,
                )
            }
            Request::GetAttr(GetAttr { .. }) => {
                if self.options.stuck {
                    self.state.lock().waiting += 1;
                    self.until(|state| state.released).await;
                }
                (Err(Code::NotFound), none)
            }
            _ => (Err(Code::NotSupported), none),
        }
    }

    /// Takes what is stated again, and lets everything else wait.
    async fn enqueue(&self, call: &Call, client: ClientId, enqueue: &Enqueue) {
        if enqueue.restate {
            assert!(call.replay.is_some(), "it comes with the replays");
            self.rt.sleep(self.options.restate).await;
            let recovering = self.state.lock().recovering.contains(&client);
            assert!(recovering, "nothing is stated again after the client said that it had no more");
            self.seen.lock().restated.push(enqueue.start);
            return;
        }
        self.state.lock().waiting += 1;
        self.until(|state| state.released).await;
        self.state.lock().waiting -= 1;
    }

    async fn change(&self, call: &Call, client: ClientId) -> (Result<Reply, Code>, Transno) {
        let slot = call.slot.expect("a change has a slot");
        let known = |record: ReplyRecord| {
            let result = record.result().expect("a record that was made here");
            (result, record.transno)
        };
        loop {
            let moved = self.moved.notified();
            let decision = {
                let mut state = self.state.lock();
                let Some(session) = state.sessions.get_mut(&call.session) else {
                    return (Err(Code::NoSession), Transno(0));
                };
                session.slots.begin(slot, call.xid)
            };
            match decision {
                Decision::New => break,
                Decision::Answered(record) => return known(record),
                Decision::InProgress => moved.await,
                Decision::Stale => return (Err(Code::Malformed), Transno(0)),
                Decision::TurnedAway => panic!("this target turns nobody away"),
                Decision::Broken => panic!("the client broke the rules: slot {slot}, {:?}", call.xid),
            }
        }
        if let Some(transno) = call.replay {
            self.seen.lock().replays += 1;
            self.until(|state| state.now.transno + 1 >= transno.0).await;
        } else if !self.options.work.is_zero() {
            self.rt.sleep(self.options.work).await;
        }
        if let Some(max) = self.options.changes_max {
            self.until(|state| state.released || state.now.counter < max).await;
        }
        let mut state = self.state.lock();
        state.now.transno += 1;
        state.now.counter += 1;
        let transno = Transno(state.now.transno);
        if let Some(replay) = call.replay {
            assert_eq!(transno, replay, "replays come in order and without gaps");
        }
        let result = match &call.request {
            Request::GetSequence(_) => Ok(Reply::GetSequence(Sequence { seq: state.now.counter })),
            _ => Err(Code::NotSupported),
        };
        let record = ReplyRecord::new(call.xid, call.request.opcode(), &result, transno);
        state.now.records.insert((client, slot), record.clone());
        if let Some(session) = state.sessions.get_mut(&call.session) {
            session.slots.answered(slot, record);
        }
        drop(state);
        self.moved.notify_waiters();
        (result, transno)
    }

    async fn until(&self, done: impl Fn(&State) -> bool) {
        loop {
            let moved = self.moved.notified();
            if done(&self.state.lock()) {
                return;
            }
            moved.await;
        }
    }
}

impl Service for Target {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.answer(call).await })
    }
}

/// A server process with one target.
pub struct Server {
    pub hub: Hub,
    pub target: Arc<Target>,
}

impl Server {
    pub async fn start(rt: Rt, disk: &Arc<Mutex<Durable>>, options: Options) -> Server {
        let target = Target::start(&rt, disk, options);
        let hub = Hub::new(rt, fsname(), all_keys());
        hub.serve(TARGET, target.clone());
        hub.listen(&Addr("server:988".into())).await.expect("the port is free");
        Server { hub, target }
    }
}
