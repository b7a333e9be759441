//! An MGS and OSTs that do what a test wants: hold answers back, be full, forget nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto::wire::header::Room;
use proto::wire::messages::{self as msg, Config, ObjectAttr, TargetEntry};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Nid, ObjectId, TargetId, Timestamp, Transno};
use rpc::{Answer, Call, Service};
use rt::sync::Notify;
use rt::{BoxFuture, Rt};

fn connected(session: u64) -> Reply {
    Reply::Connect(msg::Connected {
        session,
        features: msg::FEATURES_ALL,
        boot: 1,
        slots: 64,
        last_committed: Transno(0),
        resumed: false,
    })
}

/// Tells a configuration that does not change.
pub struct Mgs {
    pub osts: u32,
    /// So many claims and registrations fail, in turns, as if its disk did.
    pub failures: AtomicU32,
}

impl Service for Mgs {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let is_kept = matches!(call.request, Request::Claim(_) | Request::Register(_));
            if is_kept && self.fails() {
                return Answer::refuse(Code::Io);
            }
            let reply = match call.request {
                Request::Connect(_) => connected(1),
                Request::Claim(_) => Reply::Claim(msg::Claimed { replaced: 0 }),
                Request::Register(_) => Reply::Register(msg::Registered { version: 1, told: true }),
                Request::GetConfig(ask) if ask.known == 0 => Reply::GetConfig(self.config()),
                Request::GetConfig(_) => std::future::pending().await,
                Request::RenewLease(_) => {
                    let (lease, known, ttl_ms, orders, awaited) = (7, true, 15_000, vec![], vec![]);
                    Reply::RenewLease(msg::LeaseRenewed { lease, known, ttl_ms, orders, awaited })
                }
                _ => return Answer::refuse(Code::NotSupported),
            };
            Answer {
                result: Ok(reply),
                bulk: vec![],
                transno: Transno(0),
                last_committed: Transno(0),
                room: Room::default(),
            }
        })
    }
}

impl Mgs {
    /// Every other time, as long as it is to.
    fn fails(&self) -> bool {
        let left = self.failures.load(Ordering::Relaxed);
        self.failures.store(left.saturating_sub(1), Ordering::Relaxed);
        left % 2 == 1
    }

    fn config(&self) -> Config {
        let entry = |target: TargetId| TargetEntry {
            target,
            uuid: ClientId(u128::from(target.index)),
            nids: vec![Nid::lo()],
            server: target.to_string(),
            replaces: false,
        };
        let osts = (0..self.osts).map(TargetId::ost);
        let targets = std::iter::once(TargetId::mdt(0)).chain(osts).map(entry).collect();
        Config { version: 1, targets, ..Config::empty("weft") }
    }
}

#[derive(Default)]
struct Object {
    data: Vec<u8>,
    time: Timestamp,
}

/// What an OST was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: usize,
    pub slices: usize,
    pub reads: usize,
    /// Bytes that were read.
    pub read_bytes: u64,
    pub attrs: usize,
    pub punches: usize,
    pub copies: usize,
    pub syncs: usize,
    /// Those of the writes that were answered when they were durable.
    pub sync_writes: usize,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<ObjectId, Object>,
    gone: BTreeSet<ObjectId>,
    writing: Vec<(ObjectId, u64, u64)>,
    held: bool,
    loses: bool,
    /// The client's session is over, and it has not come back.
    evicted: bool,
    /// How often that happened.
    evictions: usize,
    /// A client that was evicted has not asked for a range since.
    is_bare: bool,
    capacity: Option<u64>,
    /// Answers tell what is left.
    says_room: bool,
    latency: Duration,
    sync_latency: Duration,
    counts: Counts,
    transno: u64,
    committed: u64,
    sessions: u64,
    grants: u64,
}

/// One OST in memory.
pub struct Ost {
    rt: Rt,
    state: Mutex<State>,
    released: Notify,
}

impl Ost {
    pub fn new(rt: Rt) -> Arc<Ost> {
        Arc::new(Ost { rt, state: Mutex::default(), released: Notify::new() })
    }

    /// Writes are not answered until [`Ost::release`].
    pub fn hold(&self) {
        self.state.lock().held = true;
    }

    pub fn release(&self) {
        self.state.lock().held = false;
        self.released.notify_waiters();
    }

    /// Gives the client up: what it holds is gone.
    pub fn evict(&self) {
        let mut state = self.state.lock();
        (state.evicted, state.is_bare) = (true, true);
        state.evictions += 1;
    }

    /// Refuses writes beyond so many bytes of data.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// From now on answers tell what is left.
    pub fn say_room(&self) {
        self.state.lock().says_room = true;
    }

    /// Answers take up to this long.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// It takes this long to make things durable, for those who ask for nothing else.
    pub fn set_sync_latency(&self, latency: Duration) {
        self.state.lock().sync_latency = latency;
    }

    /// Nothing becomes durable.
    pub fn set_loses(&self, loses: bool) {
        self.state.lock().loses = loses;
    }

    /// Loses every object, and nobody hears of it.
    pub fn lose_objects(&self) {
        self.state.lock().objects.clear();
    }

    /// What was asked since the last call.
    pub fn counts(&self) -> Counts {
        std::mem::take(&mut self.state.lock().counts)
    }

    /// Whether everything is durable.
    pub fn is_committed(&self) -> bool {
        let state = self.state.lock();
        state.committed == state.transno
    }

    /// Number of objects.
    pub fn objects(&self) -> usize {
        self.state.lock().objects.len()
    }

    /// Bytes that wait for [`Ost::release`].
    pub fn held_bytes(&self) -> u64 {
        self.state.lock().writing.iter().map(|(_, start, end)| end - start).sum()
    }

    async fn pause(&self) {
        let latency = self.state.lock().latency.as_nanos() as u64;
        if latency > 0 {
            self.rt.sleep(Duration::from_nanos(self.rt.random_u64() % latency)).await;
        }
    }

    async fn pause_to_sync(&self, request: &Request) {
        if let Request::Sync(_) = request {
            let latency = self.state.lock().sync_latency;
            self.rt.sleep(latency).await;
        }
    }

    /// Writes parts, each with its offset and its length; the bytes lie one behind the other in `bulk`.
    async fn write(
        &self,
        id: ObjectId,
        parts: &[(u64, usize)],
        time: Timestamp,
        bulk: &[Bytes],
    ) -> Result<msg::ObjectAttr, Code> {
        let ranges: Vec<_> = parts.iter().map(|(offset, len)| (id, *offset, offset + *len as u64)).collect();
        let before = {
            let mut state = self.state.lock();
            if state.evicted {
                return Err(Code::NoSession);
            }
            state.counts.writes += 1;
            state.counts.slices += bulk.len();
            for range in &ranges {
                let overlaps = |other: &(ObjectId, u64, u64)| {
                    other.0 == range.0 && other.1 < range.2 && range.1 < other.2
                };
                assert!(!state.writing.iter().any(overlaps), "two writes of the same bytes are on their way");
                state.writing.push(*range);
            }
            state.evictions
        };
        self.pause().await;
        loop {
            let released = self.released.notified();
            if !self.state.lock().held {
                break;
            }
            released.await;
        }
        let mut state = self.state.lock();
        state.writing.retain(|other| !ranges.contains(other));
        if state.evictions > before {
            return Err(Code::NoSession);
        }
        assert!(!state.is_bare, "something is written without a lock: {parts:?}");
        let used: u64 = state.objects.values().map(|object| object.data.len() as u64).sum();
        let len: usize = parts.iter().map(|(_, len)| len).sum();
        if state.capacity.is_some_and(|capacity| used + len as u64 > capacity) {
            return Err(Code::NoSpace);
        }
        state.transno += 1;
        let object = state.object(id)?;
        let (bytes, mut from) = (bulk.concat(), 0);
        for (offset, len) in parts {
            let at = *offset as usize;
            object.data.resize(object.data.len().max(at + len), 0);
            object.data[at..at + len].copy_from_slice(&bytes[from..from + len]);
            from += len;
        }
        object.time = object.time.max(time);
        Ok(object.attr())
    }

    /// A write is durable before it is answered, if it asks for that.
    fn commit_if(&self, sync: bool) -> Result<(), Code> {
        let mut state = self.state.lock();
        if !sync {
            return Ok(());
        }
        state.counts.sync_writes += 1;
        if state.loses {
            return Err(Code::Io);
        }
        state.committed = state.transno;
        Ok(())
    }

    async fn answer(&self, request: Request, bulk: Vec<Bytes>) -> Result<(Reply, Vec<Bytes>), Code> {
        if let Request::Write(write) = &request {
            let part = (write.offset, bulk.iter().map(Bytes::len).sum());
            let attr = self.write(write.object, &[part], write.time, &bulk).await?;
            self.commit_if(write.sync)?;
            return Ok((Reply::Write(attr), vec![]));
        }
        if let Request::WriteParts(write) = &request {
            let parts: Vec<_> = write.parts.iter().map(|part| (part.offset, part.len as usize)).collect();
            let attr = self.write(write.object, &parts, write.time, &bulk).await?;
            self.commit_if(write.sync)?;
            return Ok((Reply::WriteParts(attr), vec![]));
        }
        self.pause().await;
        self.pause_to_sync(&request).await;
        let mut state = self.state.lock();
        state.admit(&request)?;
        let reply = match request {
            // Over a network sessions are known by their numbers; the MDT has one, too.
            Request::Connect(_) => {
                state.sessions += 1;
                connected(state.sessions)
            }
            Request::Disconnect(_) => Reply::Disconnect(msg::Done {}),
            Request::Sync(_) => {
                state.counts.syncs += 1;
                if state.loses {
                    return Err(Code::Io);
                }
                state.committed = state.transno;
                Reply::Sync(msg::Done {})
            }
            Request::Statfs(_) => Reply::Statfs(msg::Space {
                bytes_total: 1 << 30,
                bytes_free: 1 << 29,
                bytes_available: 1 << 28,
                files_total: 10,
                files_free: 5,
                ..msg::Space::default()
            }),
            Request::GetObjectAttr(ask) => {
                state.counts.attrs += 1;
                Reply::GetObjectAttr(state.attr(ask.object)?)
            }
            Request::Read(read) => return state.read(&read),
            Request::Punch(punch) => {
                state.transno += 1;
                state.counts.punches += 1;
                Reply::Punch(state.punch(&punch)?)
            }
            // Everybody gets everything: what clients do to each other is tested with real OSTs.
            Request::Enqueue(ask) => {
                state.grants += 1;
                let (number, write, contended) = (state.grants, ask.write, false);
                Reply::Enqueue(msg::Token { number, write, start: 0, end: u64::MAX, contended })
            }
            Request::CancelRanges(_) => Reply::CancelRanges(msg::Done {}),
            Request::Destroy(destroy) => {
                for object in destroy.objects {
                    state.objects.remove(&object);
                    state.gone.insert(object);
                }
                state.transno += 1;
                state.committed = state.transno;
                Reply::Destroy(msg::Done {})
            }
            request => state.range(request)?,
        };
        Ok((reply, vec![]))
    }
}

impl State {
    /// What is left, if that is to be said.
    fn room(&self) -> Room {
        let used: u64 = self.objects.values().map(|object| object.data.len() as u64).sum();
        let left = self.capacity.filter(|_| self.says_room).map(|capacity| capacity.saturating_sub(used));
        left.map_or(Room::default(), Room::of)
    }

    /// Who was evicted has to connect first.
    fn admit(&mut self, request: &Request) -> Result<(), Code> {
        match request {
            Request::Connect(_) => self.evicted = false,
            _ if self.evicted => return Err(Code::NoSession),
            Request::Enqueue(_) => self.is_bare = false,
            _ => {}
        }
        Ok(())
    }
}

impl Object {
    fn attr(&self) -> ObjectAttr {
        let size = self.data.len() as u64;
        ObjectAttr { size, blocks: size.div_ceil(512), mtime: self.time, ctime: self.time }
    }
}

impl State {
    fn object(&mut self, id: ObjectId) -> Result<&mut Object, Code> {
        if self.gone.contains(&id) { Err(Code::Gone) } else { Ok(self.objects.entry(id).or_default()) }
    }

    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Code> {
        if self.gone.contains(&id) {
            return Err(Code::Gone);
        }
        Ok(self.objects.get(&id).map_or_else(|| Object::default().attr(), Object::attr))
    }

    fn read(&mut self, read: &msg::Read) -> Result<(Reply, Vec<Bytes>), Code> {
        self.counts.reads += 1;
        let size = self.attr(read.object)?.size;
        let end = (read.offset + u64::from(read.len)).min(size);
        let mut bulk = Vec::new();
        if let Some(object) = self.objects.get(&read.object)
            && read.offset < end
        {
            let data = BytesMut::from(&object.data[read.offset as usize..end as usize]).freeze();
            // In two slices: a reader must not count on one.
            let middle = data.len() / 2;
            self.counts.read_bytes += data.len() as u64;
            bulk = vec![data.slice(..middle), data.slice(middle..)];
        }
        Ok((Reply::Read(msg::ReadDone { size }), bulk))
    }

    /// What is asked of ranges besides their bytes.
    fn range(&mut self, request: Request) -> Result<Reply, Code> {
        Ok(match request {
            // Everything of an object is data here.
            Request::SeekObject(seek) => {
                let size = self.attr(seek.object)?.size;
                let offset = if seek.hole {
                    Some(seek.offset.max(size))
                } else {
                    Some(seek.offset).filter(|at| *at < size)
                };
                Reply::SeekObject(msg::Sought { offset, more: false })
            }
            Request::AdviseObject(_) => return Err(Code::NotSupported),
            Request::AllocateObject(allocate) => {
                self.transno += 1;
                Reply::AllocateObject(self.attr(allocate.object)?)
            }
            Request::CopyObject(copy) => {
                self.counts.copies += 1;
                self.transno += 1;
                self.committed = self.transno;
                Reply::CopyObject(self.copy(&copy)?)
            }
            _ => return Err(Code::NotSupported),
        })
    }

    fn copy(&mut self, copy: &msg::CopyObject) -> Result<ObjectAttr, Code> {
        let (from, len) = (copy.source_offset as usize, copy.len as usize);
        let mut data = self.objects.get(&copy.source).map(|object| object.data.clone()).unwrap_or_default();
        data.resize(from + len, 0);
        let object = self.object(copy.target)?;
        let at = copy.target_offset as usize;
        object.data.resize(object.data.len().max(at + len), 0);
        object.data[at..at + len].copy_from_slice(&data[from..]);
        object.time = object.time.max(copy.time);
        Ok(object.attr())
    }

    fn punch(&mut self, punch: &msg::Punch) -> Result<ObjectAttr, Code> {
        let len = self.objects.get(&punch.object).map_or(0, |object| object.data.len() as u64);
        if punch.end == u64::MAX && self.capacity.is_some_and(|capacity| punch.start > len.max(capacity)) {
            return Err(Code::NoSpace);
        }
        if punch.start == 0 && punch.end == u64::MAX && !self.objects.contains_key(&punch.object) {
            return self.attr(punch.object);
        }
        let object = self.object(punch.object)?;
        if punch.end == u64::MAX {
            object.data.resize(punch.start as usize, 0);
        } else {
            let end = (punch.end as usize).min(object.data.len());
            let start = (punch.start as usize).min(end);
            object.data[start..end].fill(0);
        }
        object.time = object.time.max(punch.time);
        Ok(object.attr())
    }
}

impl Service for Ost {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let answered = self.answer(call.request, call.bulk).await;
            let state = self.state.lock();
            let (result, bulk) = match answered {
                Ok((reply, bulk)) => (Ok(reply), bulk),
                Err(code) => (Err(code), vec![]),
            };
            let transno = if call.slot.is_some() && result.is_ok() { state.transno } else { 0 };
            Answer {
                result,
                bulk,
                transno: Transno(transno),
                last_committed: Transno(state.committed),
                room: state.room(),
            }
        })
    }
}
