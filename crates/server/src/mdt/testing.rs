//! An MDT on a simulated disk with two clients, for the tests of the operations.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::wire::messages as msg;
use proto::wire::messages::Operation;
use proto::wire::{Reply, Request};
use proto::{
    Attr, ClientId, Code, Cred, DataTarget, Fid, FileOwner, FsName, JobId, Name, ObjectId, OstIndex,
    TargetId, Timestamp, Transno, Xid,
};
use rpc::{Answer, Call, CallbackError, Hub, Keys, Peer, Role, Service};
use rt::sim::{Options, Sim};
use rt::sync::oneshot;
use rt::{BoxFuture, Rt};
use service::{Backchannel, CallbackAnswer, Handler, PATIENCE, Start, Supervision, Target};
use store::{Batch, Change, Label, Store};

use super::plan::Reads;
use super::{Mdt, destroy};

const PATH: &str = "mdt";
pub const NODE: &str = "server";

/// A world with one MDT and the OSTs 0, 1 (server a) and 2, 3 (server b).
pub struct World {
    pub sim: Sim,
    pub target: Arc<Target<Mdt>>,
    pub store: Arc<Store>,
    pub called: Arc<CalledBack>,
    /// What clients say they can.
    features: u64,
}

impl World {
    pub fn new() -> World {
        World::with_features(msg::FEATURES_ALL)
    }

    /// A world whose clients keep nothing: their answers carry no locks.
    pub fn without_locks() -> World {
        World::with_features(msg::FEATURES_ALL & !msg::FEATURE_LOCKS)
    }

    fn with_features(features: u64) -> World {
        let sim = Sim::new(Options::default());
        let rt = sim.rt(NODE);
        let label = Label {
            fsname: fsname(),
            target: TargetId::mdt(0),
            uuid: ClientId(7),
            mgs: vec![],
            service: vec![],
        };
        sim.run(Store::format(&rt, PATH, &label)).expect("an empty directory can be formatted");
        let called = Arc::new(CalledBack::default());
        let (target, store) = sim.run(open(rt, called.clone()));
        let world = World { sim, target, store, called, features };
        world.set_osts(&[(0, "a"), (1, "a"), (2, "b"), (3, "b")]);
        world
    }

    /// Power fails and comes back; what was not committed is gone.
    pub fn crash(self) -> World {
        self.check_inodes();
        let World { sim, target, store, features, .. } = self;
        sim.crash(NODE);
        drop((target, store));
        sim.restart(NODE);
        World::reopen(sim, features)
    }

    /// The target is stopped in order and started again.
    pub fn restart(self) -> World {
        self.check_inodes();
        let World { sim, target, store, features, .. } = self;
        sim.run(target.close());
        drop((target, store));
        World::reopen(sim, features)
    }

    /// The same for a target of before the inodes of each owner were counted.
    pub fn restart_uncounted(self) -> World {
        let owners = store::sums::INODE_OWNERS;
        let counted =
            self.store.scan(&owners.marker(), &[owners.sum + 1], usize::MAX).expect("the store can be read");
        let changes = counted.into_iter().map(|(key, _)| Change { key, value: None }).collect();
        self.store.commit(Batch { changes, ..Batch::default() }).expect("the store takes it");
        let World { sim, target, store, features, .. } = self;
        sim.run(target.close());
        drop((target, store));
        World::reopen(sim, features)
    }

    fn reopen(sim: Sim, features: u64) -> World {
        let called = Arc::new(CalledBack::default());
        let (target, store) = sim.run(open(sim.rt(NODE), called.clone()));
        let world = World { sim, target, store, called, features };
        world.set_osts(&[(0, "a"), (1, "a"), (2, "b"), (3, "b")]);
        world.check_inodes();
        world
    }

    /// The name space fits together, and the number of inodes that is known without looking is right, of all and of each owner.
    pub fn check_inodes(&self) {
        assert_eq!(super::lfsck::tests::found(self), Vec::<String>::new());
        let known = self.store.sum(&store::sums::INODES.key()).expect("the store can be read");
        assert_eq!(known, self.keys(super::keys::INODE) as u64);
        let scan = |from: &[u8], until: u8| {
            self.store.scan(from, &[until], usize::MAX).expect("the store can be read")
        };
        let mut owners = BTreeMap::new();
        for (key, value) in scan(&[super::keys::INODE], super::keys::INODE + 1) {
            let fid = super::keys::fid_of(&key).expect("the key of an inode");
            let inode = super::inode::Inode::decode(fid, &value.bytes, 0).expect("an inode");
            let of = [
                (msg::QUOTA_USER, inode.uid),
                (msg::QUOTA_GROUP, inode.gid),
                (msg::QUOTA_PROJECT, inode.project),
            ];
            for (kind, id) in of.into_iter().filter(|owner| *owner != (msg::QUOTA_PROJECT, 0)) {
                *owners.entry(store::sums::INODE_OWNERS.key(kind, id).to_vec()).or_insert(0) += 1;
            }
        }
        let from = [&store::sums::INODE_OWNERS.marker()[..], &[0]].concat();
        let known = scan(&from, store::sums::INODE_OWNERS.sum + 1).into_iter();
        let known =
            known.map(|(key, value)| (key.to_vec(), store::sums::sum_of(Some(&value.bytes)).expect("a sum")));
        assert_eq!(known.collect::<BTreeMap<_, u64>>(), owners);
    }

    pub fn set_osts(&self, osts: &[(u32, &str)]) {
        self.set_pools(osts, &[]);
    }

    /// The file system has these OSTs and these pools.
    pub fn set_pools(&self, osts: &[(u32, &str)], pools: &[(&str, &[u32])]) {
        let pool = |(name, osts): &(&str, &[u32])| msg::PoolEntry {
            name: (*name).to_owned(),
            osts: osts.iter().copied().map(OstIndex).collect(),
        };
        let pools = pools.iter().map(pool).collect();
        let entry = |(index, server): &(u32, &str)| msg::TargetEntry {
            target: TargetId::ost(*index),
            uuid: ClientId(100 + u128::from(*index)),
            nids: vec![],
            server: (*server).to_owned(),
            replaces: false,
        };
        let targets = osts.iter().map(entry).collect();
        let mut config = proto::ConfigCopy::new("weft");
        config.take(msg::Config { version: 1, targets, newest: 1, pools, ..msg::Config::empty("weft") });
        self.sim.run(self.target.handler().objects.osts.apply(&config)).expect("the disk works");
    }

    /// A client with a session and a sequence.
    pub fn client(&self, id: u128) -> Client<'_> {
        let client = loop {
            match self.connect(ClientId(id), 0, 1) {
                Ok(client) => break client,
                // Others have not replayed yet.
                Err(Code::TryAgain) => self.sim.run_for(Duration::from_secs(1)),
                Err(code) => panic!("a new client is let in, not refused: {code}"),
            }
        };
        let seq = client.call(msg::GetSequence {}).expect("a sequence is granted").seq;
        client.sequence.set(seq);
        client
    }

    pub fn connect(&self, id: ClientId, boot: u64, session_epoch: u64) -> Result<Client<'_>, Code> {
        let connect = msg::Connect {
            client: id,
            features: self.features,
            fsname: "weft".into(),
            boot,
            session_epoch,
            committed: Transno(0),
            proof: Default::default(),
        };
        let client = Client {
            world: self,
            session: Cell::new(0),
            epoch: session_epoch,
            connected: None,
            sequence: Cell::new(0),
            next: Cell::new(1),
            xid: Cell::new(0),
        };
        let connected = client.call(connect)?;
        client.session.set(connected.session);
        Ok(Client { connected: Some(connected), ..client })
    }

    pub fn sync(&self) {
        self.sim.run(self.store.committed(self.store.last_transno())).expect("the disk works");
    }

    /// The destroy list.
    pub fn destroys(&self) -> Vec<(DataTarget, Fid, Vec<u32>)> {
        destroy::listed(&self.store)
    }

    /// Makes an inode say that it has so many links.
    pub fn set_nlink(&self, fid: Fid, nlink: u32) {
        let mut inode = self
            .target
            .handler()
            .names
            .read_inode(Reads::All, fid)
            .expect("the store works")
            .expect("it exists");
        inode.nlink = nlink;
        let mut changes = super::Changes::default();
        changes.put_inode(&inode, msg::LOCK_UPDATE);
        self.store.commit(changes.into_batch()).expect("the disk works");
    }

    /// Number of keys that the MDT has with this first byte.
    pub fn keys(&self, prefix: u8) -> usize {
        self.store.scan(&[prefix], &[prefix + 1], usize::MAX).expect("the store can be read").len()
    }
}

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

/// The target as it starts, before anybody has told it what there is.
pub async fn open(rt: Rt, backchannel: Arc<CalledBack>) -> (Arc<Target<Mdt>>, Arc<Store>) {
    let store = Store::open(&rt, PATH).await.expect("the target opens");
    let hub = Hub::new(rt.clone(), fsname(), Keys::default());
    let start = Start {
        rt,
        hub,
        store: store.clone(),
        mgs: None,
        backchannel,
        supervision: Supervision::None,
        claimant: None,
    };
    let target = Target::<Mdt>::open(start).await.expect("the role opens");
    target.handler().started();
    (target, store)
}

/// What the clients of a [`World`] do when they are called back: each callback is noted, and answered at once unless
/// the test holds it.
#[derive(Default)]
pub struct CalledBack {
    state: Mutex<CalledState>,
}

#[derive(Default)]
struct CalledState {
    calls: Vec<(u64, msg::RevokeBits)>,
    ended: Vec<u64>,
    held: Option<Vec<oneshot::Sender<CallbackAnswer>>>,
    client: Option<Arc<CalledClient>>,
}

/// What a client does when it is called back: session, and what for.
pub type CalledClient = dyn Fn(u64, msg::RevokeBits) -> BoxFuture<'static, CallbackAnswer> + Send + Sync;

impl CalledBack {
    /// Everybody who was called back since this was asked last, in order.
    pub fn take(&self) -> Vec<(u64, msg::RevokeBits)> {
        std::mem::take(&mut self.state.lock().calls)
    }

    /// From now on no callback is answered before [`CalledBack::answer`].
    pub fn hold(&self) {
        self.state.lock().held = Some(Vec::new());
    }

    /// Answers what is held, and from now on everything at once.
    pub fn answer(&self, answer: CallbackAnswer) {
        for held in self.state.lock().held.take().into_iter().flatten() {
            let _ = held.send(answer.clone());
        }
    }

    /// From now on this answers.
    pub fn answer_by(&self, client: Arc<CalledClient>) {
        self.state.lock().client = Some(client);
    }

    /// Sessions that ended.
    pub fn ended(&self) -> Vec<u64> {
        self.state.lock().ended.clone()
    }
}

/// The answer of a client that gave back what it was asked for.
pub fn gave_back() -> CallbackAnswer {
    Ok(Ok(proto::wire::Reply::RevokeBits(msg::Done {})))
}

impl Backchannel for CalledBack {
    fn call_back(
        &self,
        _: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> BoxFuture<'static, CallbackAnswer> {
        assert_eq!(patience, PATIENCE);
        let Request::RevokeBits(revoke) = request else { panic!("no callback of an MDT: {request:?}") };
        let mut state = self.state.lock();
        state.calls.push((session, revoke.clone()));
        if let Some(client) = state.client.clone() {
            drop(state);
            return client(session, revoke);
        }
        let Some(held) = &mut state.held else { return Box::pin(async { gave_back() }) };
        let (sender, answer) = oneshot::channel();
        held.push(sender);
        Box::pin(async move { answer.await.unwrap_or(Err(CallbackError::Ended)) })
    }

    fn session_ended(&self, _: TargetId, session: u64) {
        self.state.lock().ended.push(session);
    }

    fn absent_for(&self, _: TargetId, _: u64) -> Option<(Duration, bool)> {
        Some((PATIENCE, false))
    }
}

/// A call outside any session.
pub fn outside(role: Role, request: Request) -> Call {
    Call {
        peer: Peer { role, from: rpc::Origin::Remote("operator:1".into()) },
        target: TargetId::mdt(0),
        session: 0,
        session_epoch: 0,
        xid: Xid(1),
        slot: None,
        resent: false,
        unchecked: false,
        replay: None,
        request,
        bulk: Vec::new(),
        job: JobId::NONE,
    }
}

/// What the target answers to it.
pub fn ask(world: &World, role: Role, request: impl Into<Request>) -> Result<Reply, Code> {
    world.sim.run(world.target.clone().call(outside(role, request.into()))).result
}

/// An answer that is waited for.
pub type Pending = BoxFuture<'static, Answer>;

/// One client of a [`World`].
pub struct Client<'a> {
    world: &'a World,
    session: Cell<u64>,
    epoch: u64,
    pub connected: Option<msg::Connected>,
    pub sequence: Cell<u64>,
    next: Cell<u32>,
    xid: Cell<u64>,
}

/// Who asks in most tests.
pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Some(vec![]) }
}

pub fn name(text: &str) -> Name {
    Name::new(Bytes::copy_from_slice(text.as_bytes())).expect("a plain name")
}

impl Client<'_> {
    pub fn session(&self) -> u64 {
        self.session.get()
    }

    /// Carries `operation` out, as the next request of this client.
    pub fn call<O: Operation>(&self, operation: O) -> Result<O::Reply, Code> {
        self.xid.set(self.xid.get() + 1);
        let answer = self.send(self.xid.get(), operation);
        answer.result.map(|reply| O::reply_of(reply).expect("the reply is of the operation"))
    }

    /// Number of the newest request.
    pub fn xid(&self) -> u64 {
        self.xid.get()
    }

    /// Goes on with this number.
    pub fn skip_to(&self, xid: u64) {
        self.xid.set(xid);
    }

    /// Sends a request with this number, in slot 0.
    pub fn send(&self, xid: u64, operation: impl Operation) -> Answer {
        self.send_call(xid, None, operation)
    }

    /// The same as a replay of what had `transno`.
    pub fn replay(&self, xid: u64, transno: Transno, operation: impl Operation) -> Answer {
        self.send_call(xid, Some(transno), operation)
    }

    /// The same without waiting for the answer.
    pub fn start_replay(&self, xid: u64, transno: Transno, operation: impl Operation) -> Pending {
        self.start_call(xid, Some(transno), operation)
    }

    /// Sends a request without waiting for the answer.
    pub fn start(&self, xid: u64, operation: impl Operation) -> Pending {
        self.start_call(xid, None, operation)
    }

    fn start_call(&self, xid: u64, replay: Option<Transno>, operation: impl Operation) -> Pending {
        let (sender, answer) = oneshot::channel();
        let call = self.world.target.clone().call(self.call_of(xid, replay, operation));
        self.world.sim.rt(NODE).spawn(async move {
            let _ = sender.send(call.await);
        });
        Box::pin(async move { answer.await.expect("the target answers") })
    }

    fn send_call(&self, xid: u64, replay: Option<Transno>, operation: impl Operation) -> Answer {
        let call = self.call_of(xid, replay, operation);
        self.world.sim.run(self.world.target.clone().call(call))
    }

    fn call_of(&self, xid: u64, replay: Option<Transno>, operation: impl Operation) -> Call {
        let request = operation.into();
        Call {
            peer: Peer { role: Role::Client, from: rpc::Origin::Remote("test".into()) },
            target: TargetId::mdt(0),
            session: self.session.get(),
            session_epoch: self.epoch,
            xid: Xid(xid),
            slot: request.changes().then_some(0),
            resent: false,
            unchecked: false,
            replay,
            request,
            bulk: vec![],
            job: rpc::job::current(),
        }
    }

    /// Writes `data` to an object that the MDT has.
    pub fn write(&self, (object, offset): (ObjectId, u64), data: &'static [u8]) -> Result<(), Code> {
        self.xid.set(self.xid.get() + 1);
        let write = msg::Write {
            object,
            offset,
            time: self.time(),
            locked: false,
            sync: false,
            owner: FileOwner::default(),
        };
        let mut call = self.call_of(self.xid.get(), None, write);
        call.bulk.push(Bytes::from_static(data));
        self.world.sim.run(self.world.target.clone().call(call)).result.map(drop)
    }

    pub fn new_fid(&self) -> Fid {
        let oid = self.next.get();
        self.next.set(oid + 1);
        Fid { seq: self.sequence.get(), oid, ver: 0 }
    }

    /// A time later than all before.
    pub fn time(&self) -> Timestamp {
        Timestamp { secs: 1_700_000_000 + self.xid.get() as i64, nanos: 5 }
    }

    pub fn create_request(&self, parent: Fid, text: &str, mode: u32) -> msg::Create {
        msg::Create {
            parent,
            name: name(text),
            fid: self.new_fid(),
            mode,
            rdev: 0,
            target: Bytes::new(),
            open: 0,
            hint: None,
            cred: Cred::root(),
            time: self.time(),
            umask: 0,
            foretold: None,
        }
    }

    pub fn make(&self, parent: Fid, text: &str, mode: u32, cred: &Cred) -> Result<Attr, Code> {
        let request = msg::Create { cred: cred.clone(), ..self.create_request(parent, text, mode) };
        self.call(request).map(|created| created.attr)
    }

    pub fn mkdir(&self, parent: Fid, text: &str) -> Fid {
        self.make(parent, text, 0o040_755, &Cred::root()).expect("the directory is made").fid
    }

    pub fn file(&self, parent: Fid, text: &str) -> Fid {
        self.make(parent, text, 0o100_644, &Cred::root()).expect("the file is made").fid
    }

    pub fn file_with(&self, parent: Fid, text: &str, hint: LayoutHint) -> Result<msg::Created, Code> {
        self.call(msg::Create { hint: Some(hint), ..self.create_request(parent, text, 0o100_644) })
    }

    pub fn lookup(&self, parent: Fid, text: &str) -> Result<Attr, Code> {
        let lookup = msg::Lookup { parent, name: Some(name(text)), cred: Cred::root() };
        self.call(lookup).map(|entry| entry.attr)
    }

    pub fn attr(&self, fid: Fid) -> Result<Attr, Code> {
        self.call(msg::GetAttr { fid }).map(|entry| entry.attr)
    }

    pub fn remove(
        &self,
        parent: Fid,
        text: &str,
        directory: bool,
        cred: &Cred,
    ) -> Result<msg::Unlinked, Code> {
        let (name, cred, time) = (name(text), cred.clone(), self.time());
        self.call(msg::Unlink { parent, name, directory, cred, time })
    }

    pub fn unlink(&self, parent: Fid, text: &str) -> Result<msg::Unlinked, Code> {
        self.remove(parent, text, false, &Cred::root())
    }

    pub fn rmdir(&self, parent: Fid, text: &str) -> Result<msg::Unlinked, Code> {
        self.remove(parent, text, true, &Cred::root())
    }

    pub fn rename(
        &self,
        from: (Fid, &str),
        to: (Fid, &str),
        flags: u32,
        cred: &Cred,
    ) -> Result<msg::Renamed, Code> {
        self.call(msg::Rename {
            parent: from.0,
            name: name(from.1),
            new_parent: to.0,
            new_name: name(to.1),
            flags,
            cred: cred.clone(),
            time: self.time(),
        })
    }

    pub fn open(&self, fid: Fid, open: u32, cred: &Cred) -> Result<msg::Opened, Code> {
        self.call(msg::Open { fid, open, cred: cred.clone() })
    }

    pub fn close(&self, fid: Fid, handle: u64, wrote: bool, size: Option<u64>) -> msg::Settled {
        let time = self.time();
        let size =
            size.map(|size| msg::SizeUpdate { size, blocks: size.div_ceil(512), mtime: time, ctime: time });
        self.call(msg::Close { fid, handle, atime: None, size, wrote }).expect("a close does not fail")
    }

    pub fn set_attr(&self, fid: Fid, cred: &Cred) -> msg::SetAttr {
        msg::SetAttr {
            fid,
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: None,
            mtime: None,
            handle: None,
            kill_privileges: false,
            cred: cred.clone(),
            time: self.time(),
            project: None,
            inherits: None,
        }
    }

    pub fn chmod(&self, fid: Fid, mode: u32) {
        let request = msg::SetAttr { mode: Some(mode), ..self.set_attr(fid, &Cred::root()) };
        self.call(request).expect("root may");
    }

    pub fn chown(&self, fid: Fid, uid: u32, gid: u32) {
        let request = msg::SetAttr { uid: Some(uid), gid: Some(gid), ..self.set_attr(fid, &Cred::root()) };
        self.call(request).expect("root may");
    }

    /// Names in a directory, in their order.
    pub fn names(&self, fid: Fid) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let page = self
                .call(msg::ReadDir { fid, cookie, bytes_max: 200, plus: true, behind: None })
                .expect("a directory");
            names
                .extend(page.entries.iter().map(|e| String::from_utf8_lossy(e.name.as_bytes()).into_owned()));
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => return names,
            }
        }
    }
}
