//! Clients that do random things to a small tree at the same time and keep all that they may, with answers and callbacks
//! that take their time and overtake each other: at every moment what a client keeps is what the MDT has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::wire::Request;
use proto::wire::messages as msg;
use proto::wire::messages::{
    Entry, LOCK_OPEN, LOCK_UPDATE, OPEN_READ, OPEN_WRITE, Operation, RENAME_EXCHANGE, RENAME_NOREPLACE,
};
use proto::{Code, Cred, Fid, JobId, Name, TargetId, Timestamp, Xid};
use rpc::{Call, Peer, Role, Service};
use rt::Rt;
use rt::sim::{Rng, Sim, Span};
use service::Target;

use super::model::{Asked, Model};
use crate::mdt::Mdt;
use crate::mdt::testing::{NODE, World, gave_back, name};

const CLIENTS: u128 = 3;
const TASKS: u32 = 2;
const STEPS: u64 = 120;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const XATTRS: [&str; 2] = ["user.x", "user.y"];

/// Random numbers, the same for all.
#[derive(Clone)]
struct Chance(Arc<Mutex<Rng>>);

impl Chance {
    fn below(&self, bound: u64) -> u64 {
        self.0.lock().below(bound)
    }

    fn of<T: Copy>(&self, choices: &[T]) -> T {
        *self.0.lock().pick(choices)
    }
}

/// One client with what it keeps.
#[derive(Clone)]
struct Actor {
    rt: Rt,
    target: Arc<Target<Mdt>>,
    session: u64,
    sequence: u64,
    chance: Chance,
    model: Arc<Mutex<Model>>,
    xid: Arc<Mutex<u64>>,
    /// Files and directories that anybody knows of.
    known: Arc<Mutex<Vec<Fid>>>,
    dirs: Arc<Mutex<Vec<Fid>>>,
}

impl Actor {
    async fn pause(&self) {
        let micros = self.chance.below(3000);
        self.rt.sleep(Duration::from_micros(micros)).await;
    }

    async fn call<O: Operation + Clone>(&self, slot: u32, operation: O) -> Result<(O::Reply, u64), Code> {
        loop {
            let xid = {
                let mut xid = self.xid.lock();
                *xid += 1;
                *xid
            };
            let request: Request = operation.clone().into();
            let call = Call {
                peer: Peer { role: Role::Client, from: rpc::Origin::Remote("test".into()) },
                target: TargetId::mdt(0),
                session: self.session,
                session_epoch: 1,
                xid: Xid(xid),
                slot: request.changes().then_some(slot),
                resent: false,
                unchecked: false,
                replay: None,
                request,
                bulk: vec![],
                job: JobId::NONE,
            };
            let answer = self.target.clone().call(call).await;
            self.pause().await;
            match answer.result {
                Err(Code::TryAgain) => {}
                result => return result.map(|reply| (O::reply_of(reply).expect("a reply to it"), xid)),
            }
        }
    }

    fn fid(&self) -> Fid {
        let known = self.known.lock();
        known[self.chance.below(known.len() as u64) as usize]
    }

    fn dir(&self) -> Fid {
        let dirs = self.dirs.lock();
        dirs[self.chance.below(dirs.len() as u64) as usize]
    }

    fn name(&self) -> Name {
        name(self.chance.of(&NAMES))
    }

    fn time(&self) -> Timestamp {
        let now = self.rt.wall();
        Timestamp { secs: now.secs, nanos: now.nanos }
    }

    fn seen(&self, entry: &Entry) {
        let (fid, dir) = (entry.attr.fid, entry.attr.mode & 0o170_000 == 0o040_000);
        for (list, wanted) in [(&self.known, true), (&self.dirs, dir)] {
            let mut list = list.lock();
            if wanted && !list.contains(&fid) {
                list.push(fid);
            }
        }
    }

    /// Something that changes nothing.
    async fn look(&self, slot: u32) {
        match self.chance.below(5) {
            0 | 1 => self.lookup(slot).await,
            2 => {
                let (asked, fid) = (self.model.lock().ask(), self.fid());
                if let Ok((entry, _)) = self.call(slot, msg::GetAttr { fid }).await {
                    self.model.lock().entry(asked, &entry);
                }
            }
            3 => self.list(slot).await,
            _ => {
                let (asked, fid) = (self.model.lock().ask(), self.fid());
                if let Ok((names, _)) = self.call(slot, msg::ListXattr { fid }).await {
                    self.model.lock().xattr_names(asked, fid, names);
                }
            }
        }
    }

    async fn lookup(&self, slot: u32) {
        let (parent, name) = (self.dir(), self.name());
        let (asked, held) = {
            let model = self.model.lock();
            (model.ask(), model.hold_on(parent))
        };
        let request = msg::Lookup { parent, name: Some(name.clone()), cred: Cred::root() };
        let answer = self.call(slot, request).await;
        let mut model = self.model.lock();
        match answer {
            Ok((entry, _)) => {
                model.named(asked, parent, &name, &entry);
                self.seen(&entry);
            }
            Err(Code::NotFound)
                if held.is_some() && model.hold_on(parent) == held && model.undisturbed(asked) =>
            {
                model.not_found(parent, &name);
            }
            Err(_) => {}
        }
    }

    async fn list(&self, slot: u32) {
        let (fid, asked) = (self.dir(), self.model.lock().ask());
        let (mut held, mut cookie, mut entries) = (None, 0, BTreeMap::new());
        for first in [true].into_iter().chain(std::iter::repeat(false)) {
            let bytes_max = 100 + self.chance.below(400) as u32;
            let plus = self.chance.below(2) == 0;
            let Ok((page, _)) =
                self.call(slot, msg::ReadDir { fid, cookie, bytes_max, plus, behind: None }).await
            else {
                return;
            };
            let mut model = self.model.lock();
            if first && model.undisturbed(asked) && model.take(fid, page.lock) & LOCK_UPDATE != 0 {
                held = model.hold_on(fid);
            }
            for entry in &page.entries {
                if let Some(shown) = &entry.entry {
                    model.named(asked, fid, &entry.name, shown);
                }
                entries.insert(entry.name.clone(), entry.fid);
                cookie = entry.cookie;
            }
            if page.end {
                if held.is_some() && model.hold_on(fid) == held && model.undisturbed(asked) {
                    model.list(fid, entries);
                }
                return;
            }
        }
    }

    fn begin(&self) -> Asked {
        self.model.lock().begin()
    }

    /// A change is over; closes what had to be kept open no longer.
    async fn end(&self, slot: u32, touched: &[Fid], gone: Option<Fid>, names: &[(Fid, &Name)]) {
        let handle = self.model.lock().end(touched, gone, names);
        if let (Some(handle), Some(fid)) = (handle, gone) {
            self.close(slot, fid, handle).await;
        }
    }

    /// Sometimes with the time of an access, for which others are called back.
    async fn close(&self, slot: u32, fid: Fid, handle: u64) {
        let atime = (self.chance.below(2) == 0).then(|| self.time());
        let _asked = self.begin();
        self.close_with(slot, fid, handle, atime).await;
        self.model.lock().end(&[fid], None, &[]);
    }

    async fn close_with(&self, slot: u32, fid: Fid, handle: u64, atime: Option<Timestamp>) {
        let close = msg::Close { fid, handle, atime, size: None, wrote: false };
        self.call(slot, close).await.expect("a close does not fail");
    }

    async fn change(&self, slot: u32) {
        match self.chance.below(10) {
            0 | 1 => self.create(slot).await,
            2 | 3 => self.unlink(slot).await,
            4 => self.rename(slot).await,
            5 => self.link(slot).await,
            6 => self.set_attr(slot).await,
            7 => self.set_xattr(slot).await,
            8 => self.write(slot).await,
            _ => self.set_layout(slot).await,
        }
    }

    async fn create(&self, slot: u32) {
        let (parent, name) = (self.dir(), self.name());
        let oid = {
            let mut xid = self.xid.lock();
            *xid += 1;
            *xid as u32
        };
        let request = msg::Create {
            parent,
            name: name.clone(),
            fid: Fid { seq: self.sequence, oid, ver: 0 },
            mode: self.chance.of(&[0o100_644, 0o100_644, 0o040_755, 0o120_777]),
            rdev: 0,
            target: Bytes::from("x"),
            open: self.chance.of(&[0, OPEN_READ, OPEN_WRITE]),
            hint: None,
            cred: Cred::root(),
            time: self.time(),
            umask: 0,
            foretold: None,
        };
        let asked = self.begin();
        let answer = self.call(slot, request).await;
        let Ok((created, _)) = answer else { return self.end(slot, &[], None, &[]).await };
        let msg::Created { attr, layout, handle, xattrs, lock, .. } = created;
        self.end(slot, &[parent, attr.fid], None, &[(parent, &name)]).await;
        let entry = Entry { attr, layout, xattrs, lock };
        self.model.lock().named(asked, parent, &name, &entry);
        self.seen(&entry);
        if handle != 0 {
            self.changing_close(slot, entry.attr.fid, handle).await;
        }
    }

    async fn unlink(&self, slot: u32) {
        let (parent, name, directory) = (self.dir(), self.name(), self.chance.below(3) == 0);
        let request =
            msg::Unlink { parent, name: name.clone(), directory, cred: Cred::root(), time: self.time() };
        self.begin();
        match self.call(slot, request).await {
            Ok((msg::Unlinked { fid, nlink }, _)) => {
                let gone = (nlink == 0).then_some(fid);
                self.end(slot, &[parent, fid], gone, &[(parent, &name)]).await;
            }
            Err(_) => self.end(slot, &[], None, &[]).await,
        }
    }

    async fn rename(&self, slot: u32) {
        let (parent, name, new_parent, new_name) = (self.dir(), self.name(), self.dir(), self.name());
        let flags = self.chance.of(&[0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE]);
        let request = msg::Rename {
            parent,
            name: name.clone(),
            new_parent,
            new_name: new_name.clone(),
            flags,
            cred: Cred::root(),
            time: self.time(),
        };
        self.begin();
        match self.call(slot, request).await {
            Ok((msg::Renamed { fid, replaced }, _)) => {
                let touched = [parent, new_parent, fid, replaced.unwrap_or(fid)];
                let gone = replaced.filter(|_| flags & RENAME_EXCHANGE == 0);
                self.end(slot, &touched, gone, &[(parent, &name), (new_parent, &new_name)]).await;
            }
            Err(_) => self.end(slot, &[], None, &[]).await,
        }
    }

    async fn link(&self, slot: u32) {
        let (fid, parent, name) = (self.fid(), self.dir(), self.name());
        let request = msg::Link { fid, parent, name: name.clone(), cred: Cred::root(), time: self.time() };
        let asked = self.begin();
        match self.call(slot, request).await {
            Ok((entry, _)) => {
                self.end(slot, &[parent, fid], None, &[(parent, &name)]).await;
                self.model.lock().named(asked, parent, &name, &entry);
            }
            Err(_) => self.end(slot, &[], None, &[]).await,
        }
    }

    /// The reply to a change of `fid` shows it.
    async fn shown(&self, slot: u32, asked: Asked, fid: Fid, answer: Result<(Entry, u64), Code>) {
        self.end(slot, &[fid], None, &[]).await;
        if let Ok((entry, _)) = answer {
            self.model.lock().entry(asked, &entry);
        }
    }

    /// The reply to a close, or to a size, shows the file if that has changed it.
    async fn settled(&self, slot: u32, asked: Asked, fid: Fid, answer: Result<(msg::Settled, u64), Code>) {
        let shown =
            |(settled, xid): (msg::Settled, u64)| settled.entry.map(|entry| (entry, xid)).ok_or(Code::Io);
        self.shown(slot, asked, fid, answer.and_then(shown)).await;
    }

    async fn set_attr(&self, slot: u32) {
        let (fid, what, time) = (self.fid(), self.chance.below(4), self.time());
        let change = Some(msg::TimeChange { time, now: false });
        let request = msg::SetAttr {
            fid,
            mode: (what == 0).then(|| self.chance.of(&[0o644, 0o600, 0o755])),
            uid: (what == 1).then(|| self.chance.below(3) as u32),
            gid: None,
            size: (what == 2).then(|| self.chance.below(100)),
            atime: None,
            mtime: change.filter(|_| what == 3),
            handle: None,
            kill_privileges: false,
            cred: Cred::root(),
            time,
            project: None,
            inherits: None,
        };
        let (size, asked) = (request.size, self.begin());
        let answer = self.call(slot, request).await;
        let told = size.filter(|_| answer.is_ok());
        self.shown(slot, asked, fid, answer).await;
        let Some(size) = told else { return };
        let update = msg::SizeUpdate { size, blocks: 1, mtime: time, ctime: time };
        let asked = self.begin();
        let answer = self.call(slot, msg::SetSize { fid, update, cut: false, question: 0 }).await;
        self.settled(slot, asked, fid, answer).await;
    }

    async fn set_xattr(&self, slot: u32) {
        let (fid, name) = (self.fid(), Bytes::from(self.chance.of(&XATTRS)));
        let (cred, time) = (Cred::root(), self.time());
        self.begin();
        if self.chance.below(2) == 0 {
            let _ = self.call(slot, msg::RemoveXattr { fid, name, cred, time }).await;
        } else {
            let set = msg::SetXattr { fid, name, value: Bytes::from("v"), flags: 0, cred, time };
            let _ = self.call(slot, set).await;
        }
        self.end(slot, &[fid], None, &[]).await;
    }

    async fn set_layout(&self, slot: u32) {
        let (fid, stripe_count) = (self.fid(), 1 + self.chance.below(3) as i32);
        let hint = Some(LayoutHint { stripe_count, ..LayoutHint::default() });
        let asked = self.begin();
        let request = msg::SetLayout { fid, hint, cred: Cred::root(), time: self.time() };
        let answer = self.call(slot, request).await;
        self.shown(slot, asked, fid, answer).await;
    }

    async fn write(&self, slot: u32) {
        let (fid, asked) = (self.fid(), self.begin());
        let answer = self.call(slot, msg::Open { fid, open: OPEN_WRITE, cred: Cred::root() }).await;
        let handle = answer.as_ref().map(|(opened, _)| opened.handle).ok();
        self.shown(slot, asked, fid, answer.map(|(opened, xid)| (entry_of(opened), xid))).await;
        if let Some(handle) = handle {
            self.pause().await;
            self.changing_close(slot, fid, handle).await;
        }
    }

    async fn changing_close(&self, slot: u32, fid: Fid, handle: u64) {
        let (size, time) = (self.chance.below(100), self.time());
        let update = msg::SizeUpdate { size, blocks: 1, mtime: time, ctime: time };
        let wrote = self.chance.below(2) == 0;
        let size = Some(update).filter(|_| wrote && self.chance.below(4) != 0);
        let asked = self.begin();
        let close = msg::Close { fid, handle, atime: None, size, wrote };
        let answer = self.call(slot, close).await;
        assert!(answer.is_ok(), "a close does not fail: {answer:?}");
        self.settled(slot, asked, fid, answer).await;
    }

    /// Opens to read, and leaves it open at the MDT if it may.
    async fn read(&self, slot: u32) {
        let (fid, asked) = (self.fid(), self.model.lock().ask());
        let answer = self.call(slot, msg::Open { fid, open: OPEN_READ, cred: Cred::root() }).await;
        let Ok((opened, _)) = answer else { return };
        let handle = opened.handle;
        let kept = {
            let mut model = self.model.lock();
            let may =
                model.entry(asked, &entry_of(opened)) & LOCK_OPEN != 0 && !model.opens.contains_key(&fid);
            if may {
                model.opens.insert(fid, handle);
            }
            may
        };
        if !kept {
            self.close(slot, fid, handle).await;
        }
    }

    async fn act(self, slot: u32) {
        for _ in 0..STEPS {
            match self.chance.below(10) {
                0..=4 => self.look(slot).await,
                5 => self.read(slot).await,
                _ => self.change(slot).await,
            }
            self.pause().await;
        }
    }

    async fn called(self, slot: u32, revoke: msg::RevokeBits) {
        for _ in 0..1 + self.chance.below(2) {
            self.pause().await;
            let handle = self.model.lock().revoke(&revoke);
            if let Some(handle) = handle {
                // Others wait for the answer: it must not wait for them.
                self.close_with(slot, revoke.fid, handle, None).await;
            }
        }
    }
}

fn entry_of(opened: msg::Opened) -> Entry {
    let msg::Opened { attr, layout, xattrs, lock, .. } = opened;
    Entry { attr, layout, xattrs, lock }
}

fn actors(world: &World, chance: &Chance) -> Vec<Actor> {
    let (known, dirs) = (Arc::new(Mutex::new(vec![Fid::ROOT])), Arc::new(Mutex::new(vec![Fid::ROOT])));
    let actor = |id| {
        let client = world.client(id);
        if id == 1 {
            for text in ["p", "q"] {
                let dir = client.mkdir(Fid::ROOT, text);
                known.lock().push(dir);
                dirs.lock().push(dir);
            }
        }
        Actor {
            rt: world.sim.rt(NODE),
            target: world.target.clone(),
            session: client.session(),
            sequence: client.sequence.get(),
            chance: chance.clone(),
            model: Arc::default(),
            // Also names files: behind those that are made already.
            xid: Arc::new(Mutex::new(client.xid() + 100)),
            known: known.clone(),
            dirs: dirs.clone(),
        }
    };
    (1..=CLIENTS).map(actor).collect()
}

/// Callbacks go to the client that they are for, each in a slot of its own.
fn connect(world: &World, actors: &[Actor]) {
    let by_session: BTreeMap<u64, Actor> =
        actors.iter().map(|actor| (actor.session, actor.clone())).collect();
    let slot = Mutex::new(0);
    world.called.answer_by(Arc::new(move |session, revoke| {
        let actor = by_session[&session].clone();
        let slot = {
            let mut slot = slot.lock();
            *slot = (*slot + 1) % 200;
            TASKS + *slot
        };
        Box::pin(async move {
            actor.called(slot, revoke).await;
            gave_back()
        })
    }));
}

fn run(sim: &Sim, world: &World, actors: &[Actor], memory: Memory) -> (u64, u64) {
    let left = Arc::new(Mutex::new(actors.len() as u32 * TASKS));
    for (actor, slot) in actors.iter().flat_map(|actor| (0..TASKS).map(move |slot| (actor, slot))) {
        let (actor, left) = (actor.clone(), left.clone());
        actor.rt.clone().spawn(async move {
            actor.act(slot).await;
            *left.lock() -= 1;
        });
    }
    let mdt = world.target.handler();
    for round in 0u64.. {
        if *left.lock() == 0 {
            break;
        }
        sim.run_for(Duration::from_micros(200));
        if memory == Memory::Short && round % FORGET_ROUNDS == 0 {
            world.store.forget_known();
        }
        for actor in actors {
            actor.model.lock().check(mdt, actor.session);
        }
    }
    let checked = actors.iter().map(|actor| actor.model.lock().checked).sum();
    (checked, mdt.grants.bits.counts().callbacks)
}

/// Between two times at which it forgets, operations have to get on.
const FORGET_ROUNDS: u64 = 50;

/// How much memory the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// All that it wants.
    Plenty,
    /// It forgets what it can again and again, and the engine takes its time.
    Short,
}

#[test]
fn what_clients_keep_is_what_the_mdt_has() {
    check(1..=6, Memory::Plenty);
}

/// What was read before the guards were taken may have changed when they are: the operation sees it then.
#[test]
fn what_clients_keep_is_what_the_mdt_has_though_reading_takes_time() {
    check(7..=12, Memory::Short);
}

fn check(seeds: std::ops::RangeInclusive<u64>, memory: Memory) {
    let (mut checked, mut callbacks) = (0, 0);
    for seed in seeds {
        let chance = Chance(Arc::new(Mutex::new(Rng::new(seed))));
        let world = World::new();
        if memory == Memory::Short {
            world.sim.change_disks(|disk| disk.look_up = Span::micros(10, 300));
        }
        let actors = actors(&world, &chance);
        connect(&world, &actors);
        let (more, calls) = run(&world.sim, &world, &actors, memory);
        checked += more;
        callbacks += calls;
        for actor in &actors {
            let opens = std::mem::take(&mut actor.model.lock().opens);
            for (fid, handle) in opens {
                world.sim.run(actor.close(0, fid, handle));
            }
        }
        assert_eq!(
            world.keys(crate::mdt::keys::ORPHAN),
            0,
            "whatever is kept open is closed when it is unlinked"
        );
        world.check_inodes();
    }
    println!("{checked} things kept were true, {callbacks} callbacks");
    assert!(checked > 100_000 && callbacks > 500, "{checked} {callbacks}");
}
