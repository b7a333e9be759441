//! Tells the kernel to forget what it keeps.
//!
//! The kernel takes its own page and inode locks when it is told, and it calls us while it holds them: so no thread
//! that serves requests may tell it anything, and nobody may who holds a lock of ours. A few threads do nothing else: one
//! for names and attributes, which never waits for a page, and some for data, which do: as long as a page is being filled,
//! the thread that has it forgotten waits, so there are as many as have to wait at the same time ([`crate::threads`]).
//!
//! Names are expired one by one (FUSE_NOTIFY_INVAL_ENTRY). That takes the lock of the directory, which a request may hold that waits for
//! the very answer that this notification is to make possible: so nobody waits for it longer than a name is kept ([`crate::expire`]).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use client::{Copies, Forget};
use proto::Fid;
use rt::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use rt::{BoxFuture, Rt};
use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes;

use crate::expire::Expirer;
use crate::kernel::abi::{self, NotifyInvalEntryOut, NotifyInvalInodeOut, OutHeader};
use crate::known::Known;
use crate::learning::Change;
use crate::ops::node_of;
use crate::threads::{self, Threads};

/// How often it is tried again to tell what the kernel cannot be told yet.
const SETTLING_TICK: Duration = Duration::from_micros(200);
/// Threads that have data forgotten, at most: each may wait for a page that is being filled.
const DATA_THREADS_MAX: usize = 256;

/// Jobs of one kind at the same time; whoever has another one waits with it.
const JOBS_MAX: usize = 4096;

/// Something to forget, and whom to tell that it is forgotten.
struct Job<T> {
    what: T,
    done: oneshot::Sender<()>,
    _room: OwnedSemaphorePermit,
}

type Attributes = BTreeMap<Fid, Change>;
type Data = Vec<(Fid, Range<u64>)>;

/// The threads that tell the kernel.
pub struct Notifier {
    attributes: mpsc::SyncSender<Job<Attributes>>,
    attributes_room: Arc<Semaphore>,
    data: Arc<Threads<Job<Data>>>,
    data_room: Arc<Semaphore>,
    names: Expirer,
}

impl Notifier {
    /// Starts the threads. They end with this value.
    pub fn start(rt: Rt, device: Arc<OwnedFd>, known: Known) -> io::Result<Notifier> {
        let (attributes, attribute_jobs) = mpsc::sync_channel(JOBS_MAX);
        let (kernel, asks, clock) = (Kernel { device: device.clone() }, known.asking.clone(), rt.clone());
        let expires = Kernel { device: device.clone() };
        let kept = known.names.clone();
        let names =
            Expirer::start(rt.clone(), kept, Box::new(move |(dir, name)| expires.expire(*dir, name)))?;
        let data =
            Threads::start("weft-data", DATA_THREADS_MAX, move |Job { what, done, _room }: Job<Data>| {
                for (fid, range) in what {
                    while asks.is_waited_for(fid, clock.now()) {
                        threads::pause(SETTLING_TICK);
                    }
                    kernel.forget_data(fid, &range);
                }
                // Nobody waits if the client is gone.
                let _ = done.send(());
            })?;
        threads::start("weft-forget", move || {
            Forgetting { rt, kernel: Kernel { device }, known }.run(&attribute_jobs);
        })?;
        let room = || Arc::new(Semaphore::new(JOBS_MAX));
        let (attributes_room, data_room) = (room(), room());
        Ok(Notifier { attributes, attributes_room, data: Arc::new(data), data_room, names })
    }
}

/// What the thread has that has attributes forgotten.
struct Forgetting {
    rt: Rt,
    kernel: Kernel,
    known: Known,
}

impl Forgetting {
    fn run(&self, jobs: &mpsc::Receiver<Job<Attributes>>) {
        let mut open = Vec::new();
        loop {
            if open.is_empty() {
                let Ok(job) = jobs.recv() else { return };
                open.push(job);
            }
            // What came meanwhile goes along: nobody waits for files of others, which may take long.
            open.extend(jobs.try_iter());
            self.forget(&mut open);
            if !open.is_empty() {
                threads::pause(SETTLING_TICK);
            }
        }
    }

    /// Has forgotten what can be, and answers jobs of which nothing is left. What is told twice is forgotten once.
    fn forget(&self, jobs: &mut Vec<Job<Attributes>>) {
        let mut left = Attributes::new();
        for (fid, change) in jobs.iter().flat_map(|job| &job.what) {
            add(&mut left, *fid, *change);
        }
        left.retain(|fid, change| self.is_left(*fid, *change));
        for job in jobs.iter_mut() {
            job.what.retain(|fid, _| left.contains_key(fid));
        }
        for job in jobs.extract_if(.., |job| job.what.is_empty()) {
            // Nobody waits if the client is gone.
            let _ = job.done.send(());
        }
    }

    /// Whether attributes could not be forgotten yet.
    fn is_left(&self, fid: Fid, change: Change) -> bool {
        let Known { settling, asking, learning, .. } = &self.known;
        // What it keeps nothing of it need not be told to forget, and drops no answer for that.
        if !learning.changed(fid, change, self.rt.now()) {
            return false;
        }
        if asking.is_waited_for(fid, self.rt.now()) {
            return true;
        }
        asking.forgets(fid);
        if self.kernel.forget_attributes(fid) {
            return false;
        }
        // An inode that the kernel does not know is forgotten, unless an answer made just now is about to bring it in.
        let is_left = settling.is_making(fid, self.rt.now());
        if !is_left {
            learning.is_unknown(fid);
        }
        is_left
    }
}

impl Copies for Notifier {
    fn forget(&self, what: Vec<Forget>) -> BoxFuture<'static, ()> {
        let (mut attributes, mut data, mut waits) = (Attributes::new(), Data::new(), Vec::new());
        for forget in what {
            match forget {
                Forget::Names => waits.extend(self.names.forget(None)),
                Forget::NamesOf(fid) => waits.extend(self.names.forget(Some(fid))),
                Forget::Attributes(fid) => add(&mut attributes, fid, Change::Access),
                Forget::SizeAndTimes(fid) => add(&mut attributes, fid, Change::Contents),
                Forget::Data(fid, range) => data.push((fid, range)),
            }
        }
        let (mut more_attributes, mut more_data) = (None, None);
        if !attributes.is_empty() {
            match self.attributes_room.clone().try_acquire_owned() {
                Ok(room) => waits.extend(give_attributes(&self.attributes, attributes, room)),
                Err(_) => more_attributes = Some((self.attributes.clone(), attributes)),
            }
        }
        if !data.is_empty() {
            match self.data_room.clone().try_acquire_owned() {
                Ok(room) => waits.push(give_data(&self.data, data, room)),
                Err(_) => more_data = Some((self.data.clone(), data)),
            }
        }
        let (attributes_room, data_room) = (self.attributes_room.clone(), self.data_room.clone());
        Box::pin(async move {
            if let Some((sender, what)) = more_attributes
                && let Ok(room) = attributes_room.acquire_owned().await
            {
                waits.extend(give_attributes(&sender, what, room));
            }
            if let Some((threads, what)) = more_data
                && let Ok(room) = data_room.acquire_owned().await
            {
                waits.push(give_data(&threads, what, room));
            }
            for wait in waits {
                // A thread that is gone tells nothing any more: the connection is gone, and all copies with it.
                let _ = wait.await;
            }
        })
    }
}

/// Of several changes of a file the one counts that takes more along.
fn add(attributes: &mut Attributes, fid: Fid, change: Change) {
    let there = attributes.entry(fid).or_insert(change);
    if change == Change::Access {
        *there = change;
    }
}

/// Has attributes forgotten; with its room there is a place in the channel. `None` if the thread is gone.
fn give_attributes(
    sender: &mpsc::SyncSender<Job<Attributes>>,
    what: Attributes,
    room: OwnedSemaphorePermit,
) -> Option<oneshot::Receiver<()>> {
    let (done, wait) = oneshot::channel();
    sender.send(Job { what, done, _room: room }).ok().map(|()| wait)
}

/// Has data forgotten.
fn give_data(threads: &Threads<Job<Data>>, what: Data, room: OwnedSemaphorePermit) -> oneshot::Receiver<()> {
    let (done, wait) = oneshot::channel();
    threads.give(Job { what, done, _room: room });
    wait
}

/// The notifications.
struct Kernel {
    device: Arc<OwnedFd>,
}

impl Kernel {
    /// Waits for the lock of the directory. A name that the kernel does not know needs nothing.
    fn expire(&self, dir: u64, name: &[u8]) {
        let flags = abi::notify::EXPIRE_ONLY;
        let out = NotifyInvalEntryOut { parent: dir, namelen: name.len() as u32, flags };
        self.notify(abi::notify::INVAL_ENTRY, &[out.as_bytes(), name, &[0]].concat());
    }

    /// `false` if the kernel does not know the inode.
    fn forget_attributes(&self, fid: Fid) -> bool {
        self.forget_inode(fid, -1, 0)
    }

    fn forget_data(&self, fid: Fid, range: &Range<u64>) {
        let off = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0 stands for all that follows.
        let len = i64::try_from(range.end).map_or(0, |end| end.saturating_sub(off));
        if range.start < range.end {
            self.forget_inode(fid, off, len);
        }
    }

    fn forget_inode(&self, fid: Fid, off: i64, len: i64) -> bool {
        let out = NotifyInvalInodeOut { ino: node_of(fid), off, len };
        self.notify(abi::notify::INVAL_INODE, out.as_bytes())
    }

    /// `false` if the kernel does not know what is named.
    fn notify(&self, code: i32, body: &[u8]) -> bool {
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let message = [OutHeader { len, error: code, unique: 0 }.as_bytes(), body].concat();
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.device, &message)) {
            Ok(_) => true,
            Err(OsErrno::NOENT) => false,
            // The connection is gone, and all that the kernel kept with it.
            Err(OsErrno::NODEV | OsErrno::NOTCONN | OsErrno::CONNABORTED | OsErrno::PERM) => true,
            Err(error) => {
                tracing::error!(%error, code, "the kernel does not forget what it is told to");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    /// A kernel that takes every notification and lets them be read.
    fn kernel() -> (Kernel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (Kernel { device: Arc::new(ours.into()) }, theirs)
    }

    fn sent(stream: &mut UnixStream, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).expect("a notification");
        bytes
    }

    #[test]
    fn notifications_have_the_layout_of_the_kernels() {
        let (kernel, mut stream) = kernel();
        kernel.expire(1, b"name");
        let header = |len: u32, code: i32| OutHeader { len, error: code, unique: 0 };
        let body = NotifyInvalEntryOut { parent: 1, namelen: 4, flags: 1 };
        assert_eq!(sent(&mut stream, 37), [header(37, 3).as_bytes(), body.as_bytes(), b"name\0"].concat());
        kernel.forget_data(FID, &(4096..8192));
        let body = NotifyInvalInodeOut { ino: FID.ino().0, off: 4096, len: 4096 };
        assert_eq!(sent(&mut stream, 40), [header(40, 2).as_bytes(), body.as_bytes()].concat());
        kernel.forget_data(Fid::ROOT, &(0..u64::MAX));
        let body = NotifyInvalInodeOut { ino: 1, off: 0, len: 0 };
        assert_eq!(sent(&mut stream, 40)[16..], *body.as_bytes(), "the root has the kernel's number");
        kernel.forget_attributes(FID);
        let body = NotifyInvalInodeOut { ino: FID.ino().0, off: -1, len: 0 };
        assert_eq!(sent(&mut stream, 40)[16..], *body.as_bytes());
    }

    fn is_done(done: &mut BoxFuture<'static, ()>) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        done.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn nobody_waits_for_files_of_others() {
        let (kernel, _stream) = kernel();
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let known = Known::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        known.asking.forgets(FID);
        known.asking.asked(FID, own, rt.now());
        let answer = known.asking.answers(FID, own);
        assert!(answer.is_some(), "it is on its way");
        let notifier = Notifier::start(rt, kernel.device.clone(), known).expect("threads");
        let mut first = notifier.forget(vec![Forget::Attributes(FID)]);
        for oid in 8..12 {
            let mut other = notifier.forget(vec![Forget::Attributes(Fid { oid, ..FID })]);
            while !is_done(&mut other) {
                std::thread::yield_now();
            }
        }
        assert!(!is_done(&mut first), "whoever asked has not had it");
        drop(answer);
        while !is_done(&mut first) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn jobs_are_done_and_said_to_be() {
        let (kernel, mut stream) = kernel();
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let known = Known::default();
        let place = (1, bytes::Bytes::from_static(b"name"));
        let kept = known.names.lock().keep(FID, place, Duration::from_millis(250), 1, rt.now());
        assert!(!kept.is_zero());
        let notifier = Notifier::start(rt.clone(), kernel.device.clone(), known).expect("threads");
        let attributes = Forget::Attributes(FID);
        let done = notifier.forget(vec![Forget::NamesOf(FID), attributes, Forget::Names]);
        let mut lens = [sent(&mut stream, 16)[0], 0];
        sent(&mut stream, usize::from(lens[0]) - 16);
        lens[1] = sent(&mut stream, 16)[0];
        sent(&mut stream, usize::from(lens[1]) - 16);
        lens.sort_unstable();
        assert_eq!(lens, [37, 40], "each once");
        let mut done = done;
        while !is_done(&mut done) {
            std::thread::yield_now();
        }
    }
}
