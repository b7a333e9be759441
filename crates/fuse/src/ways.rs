//! Changes that give way.
//!
//! For a change of names the kernel locks the directories until the change is answered. The change may wait at the MDT for another client,
//! whose kernel waits for this mount's answer to a callback, which waits for the same locks here. Then the MDT refuses the change
//! ([`proto::Code::GiveWay`]), and the kernel is told ESTALE: it lets go of its locks, looks each name of the path up again, and asks
//! once more. It does that once for each call, and the next ESTALE reaches the application. So
//!
//! - the same change of the same thread does not give way again until it has succeeded,
//! - nor does a change whose thread was told ESTALE of late for another reason, for that may have been in the same call;
//! - when a thread asks again, and a directory on its way is gone, there is no such name (ENOENT). That may be the directory which it
//!   is to move: the kernel asks for its mode and owner first.
//!
//! `docs/locks.md#kernel-names`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::posix::{Errno, Result};
use parking_lot::Mutex;
use proto::{Code, FileKind};
use rt::{Rt, Time};
use smallvec::SmallVec;

use crate::kernel::reply::Answer;
use crate::kernel::request::{Operation, Request};
use crate::names::Names;

/// How long the kernel takes at most until it asks again. Not longer: a thread whose call ended without asking makes its next change of that
/// name without giving way, and that may wait until names are used no more.
const AGAIN: Duration = Duration::from_secs(1);
/// Threads that are remembered; changes of further ones do not give way.
const THREADS_MAX: usize = 4096;

/// Why a thread was told ESTALE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// This change gave way.
    Gave(Change),
    /// For another reason.
    Other,
}

/// A change, by what distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// All of it.
    whole: u64,
    /// The new name of a rename.
    to: Option<u64>,
}

fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The node that the answer is about, if that is a directory.
fn directory_of(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Holding(answer, _) => directory_of(answer),
        Answer::Entry(entry) if FileKind::from_mode(entry.attr.mode) == Some(FileKind::Dir) => {
            Some(entry.nodeid)
        }
        _ => None,
    }
}

impl Change {
    fn of(request: &Request<'_>) -> Option<Change> {
        let node = request.node;
        Some(match &request.operation {
            Operation::MkNod { name, .. } | Operation::MkDir { name, .. } => Change::of_name(node, name),
            Operation::Symlink { name, .. } | Operation::Create { name, .. } => Change::of_name(node, name),
            Operation::Unlink { name } | Operation::RmDir { name } | Operation::Link { name, .. } => {
                Change::of_name(node, name)
            }
            Operation::Rename { name, new_parent, new_name, .. } => Change {
                whole: hash_of((node, *name, *new_parent, *new_name)),
                to: Some(hash_of((*new_parent, *new_name))),
            },
            _ => return None,
        })
    }

    fn of_name(node: u64, name: &[u8]) -> Change {
        Change { whole: hash_of((node, name)), to: None }
    }
}

/// Which changes gave way.
pub struct Ways {
    rt: Rt,
    names: Arc<Mutex<Names>>,
    told: Mutex<HashMap<u32, Told>>,
    any: AtomicBool,
}

/// A thread that was told ESTALE of late.
#[derive(Debug, Clone, Copy)]
struct Told {
    why: Why,
    at: Time,
    /// Node of the directory that it looked up last since then.
    dir: Option<u64>,
}

/// A request that is under way; told of its answer before the kernel is.
pub struct Way {
    ways: Arc<Ways>,
    thread: u32,
    kind: Kind,
}

enum Kind {
    /// A name on the way to something.
    Lookup,
    /// Anything else that the kernel may ask on its way, about this node.
    Step(u64),
    /// A change for which the kernel has locked directories.
    Change { change: Change, dirs: SmallVec<[u64; 2]>, gives: bool },
}

impl Ways {
    /// None gave way yet. A directory of which one does is busy in `names`.
    pub fn new(rt: Rt, names: Arc<Mutex<Names>>) -> Ways {
        Ways { rt, names, told: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// What `request` is on the way of its thread; nothing for one that cannot be seen, or that no path leads to.
    pub fn of(self: &Arc<Self>, request: &Request<'_>) -> Option<Way> {
        if request.pid == 0 {
            return None;
        }
        let Some(change) = Change::of(request) else {
            return match &request.operation {
                Operation::Lookup { .. } => Some(self.way(request.pid, Kind::Lookup)),
                Operation::GetAttr { .. } | Operation::Open { .. } | Operation::ReadLink => {
                    Some(self.way(request.pid, Kind::Step(request.node)))
                }
                _ => None,
            };
        };
        let more = match &request.operation {
            Operation::Rename { new_parent, .. } => Some(*new_parent),
            _ => None,
        };
        let dirs = std::iter::once(request.node).chain(more).collect();
        let gives = match self.why(request.pid) {
            None => true,
            Some(Why::Gave(last)) => last != change,
            Some(Why::Other) => false,
        };
        Some(self.way(request.pid, Kind::Change { change, dirs, gives }))
    }

    fn way(self: &Arc<Self>, thread: u32, kind: Kind) -> Way {
        Way { ways: self.clone(), thread, kind }
    }

    fn why(&self, thread: u32) -> Option<Why> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let now = self.rt.now();
        let mut told = self.told.lock();
        told.retain(|_, told| now - told.at < AGAIN);
        self.any.store(!told.is_empty(), Ordering::Release);
        match told.get(&thread) {
            None if told.len() >= THREADS_MAX => Some(Why::Other),
            told => told.map(|told| told.why),
        }
    }

    /// Whether the thread may be asking again because its change gave way: the next ESTALE reaches the application.
    pub fn asks_again(&self, thread: u32) -> bool {
        matches!(self.why(thread), Some(Why::Gave(_)))
    }

    /// Whether the thread was told ESTALE a moment ago, for whatever reason: it is probably asking again in the same call.
    pub fn was_told(&self, thread: u32) -> bool {
        let now = self.rt.now();
        self.any.load(Ordering::Acquire)
            && self.told.lock().get(&thread).is_some_and(|told| now - told.at < AGAIN)
    }

    /// The same, of a rename to `name` in `dir` that gave way.
    pub fn asks_again_to(&self, thread: u32, dir: u64, name: &[u8]) -> bool {
        let to = hash_of((dir, name));
        matches!(self.why(thread), Some(Why::Gave(change)) if change.to == Some(to))
    }

    fn tells(&self, thread: u32, why: Why) {
        let mut told = self.told.lock();
        if told.len() < THREADS_MAX || told.contains_key(&thread) {
            told.insert(thread, Told { why, at: self.rt.now(), dir: None });
            self.any.store(true, Ordering::Release);
        }
    }

    /// The thread is about to be answered what a name means.
    fn looked_up(&self, thread: u32, answer: &Answer) {
        if self.any.load(Ordering::Acquire)
            && let Some(told) = self.told.lock().get_mut(&thread)
        {
            told.dir = directory_of(answer);
        }
    }

    /// Whether the thread, whose change gave way, has found this directory since.
    fn found_again(&self, thread: u32, dir: u64) -> bool {
        self.asks_again(thread) && self.told.lock().get(&thread).is_some_and(|told| told.dir == Some(dir))
    }

    fn is_over(&self, thread: u32) {
        if self.any.load(Ordering::Acquire) {
            self.told.lock().remove(&thread);
        }
    }
}

impl Way {
    /// Whether it is a change that gives way.
    pub fn gives(&self) -> bool {
        matches!(self.kind, Kind::Change { gives: true, .. })
    }

    /// The request is over, and the kernel is about to be told of `result`: gives what it is told.
    pub fn ended(self, result: Result<Answer>) -> Result<Answer> {
        let Way { ways, thread, kind } = self;
        let stale: Errno = Code::GiveWay.into();
        let is_stale = result.as_ref().is_err_and(|error| *error == stale);
        match kind {
            Kind::Change { change, dirs, gives: true } if is_stale => {
                let now = ways.rt.now();
                {
                    let mut names = ways.names.lock();
                    dirs.iter().for_each(|dir| names.is_late(*dir, now));
                }
                ways.tells(thread, Why::Gave(change));
            }
            Kind::Change { .. } => {
                let is_again = is_stale && ways.asks_again(thread);
                ways.is_over(thread);
                if is_again {
                    return Err(Code::NotFound.into());
                }
            }
            Kind::Lookup if is_stale && ways.asks_again(thread) => return Err(Code::NotFound.into()),
            Kind::Step(node) if is_stale && ways.found_again(thread, node) => {
                return Err(Code::NotFound.into());
            }
            Kind::Lookup | Kind::Step(_) if is_stale && !ways.asks_again(thread) => {
                ways.tells(thread, Why::Other);
            }
            Kind::Lookup => result.iter().for_each(|answer| ways.looked_up(thread, answer)),
            Kind::Step(_) => {}
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(thread: u32, operation: Operation<'_>) -> Request<'_> {
        Request { unique: 1, node: 7, uid: 0, gid: 0, pid: thread, operation }
    }

    fn stale() -> Result<Answer> {
        Err(Code::GiveWay.into())
    }

    fn errno(result: Result<Answer>) -> Option<Errno> {
        result.err()
    }

    #[test]
    fn the_same_change_gives_way_once_until_it_succeeds() {
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let names = Arc::<Mutex<Names>>::default();
        let ways = Arc::new(Ways::new(rt.clone(), names.clone()));
        let way = |thread, name| ways.of(&request(thread, Operation::Unlink { name })).expect("it locks");
        let gives = |thread, name| way(thread, name).gives();
        assert!(ways.of(&request(5, Operation::SyncFs)).is_none(), "nothing is locked for that");
        assert!(ways.of(&request(0, Operation::Unlink { name: b"a" })).is_none(), "it cannot be seen");
        assert!(gives(5, b"a"));
        let enoent = Some(Errno(libc::ENOENT));
        assert_eq!(errno(way(5, b"a").ended(Err(Errno(libc::ENOENT)))), enoent);
        assert!(gives(5, b"a"), "it did not give way");
        assert_eq!(errno(way(5, b"a").ended(stale())), errno(stale()));
        assert!(!gives(5, b"a") && gives(5, b"b") && gives(6, b"a"));
        assert!(way(5, b"a").ended(Ok(Answer::Done)).is_ok());
        assert!(gives(5, b"a"), "it has succeeded");
        let (fid, place) = (proto::Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 }, (7, bytes::Bytes::new()));
        let kept = names.lock().keep(fid, place, Duration::MAX, 5, rt.now());
        assert!(kept.is_zero(), "the directory is busy");
    }

    /// The call may have ended without asking again: what the thread renames next is another matter.
    #[test]
    fn a_rename_that_gave_way_asks_again_for_its_own_name() {
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let ways = Arc::new(Ways::new(rt, Arc::default()));
        let rename = Operation::Rename { name: b"a", new_parent: 8, new_name: b"b", flags: 0 };
        let gave = ways.of(&request(5, rename)).expect("it locks").ended(stale());
        assert_eq!(errno(gave), errno(stale()));
        assert!(ways.asks_again_to(5, 8, b"b") && !ways.asks_again_to(5, 7, b"b"));
        assert!(!ways.asks_again_to(5, 8, b"c") && !ways.asks_again_to(6, 8, b"b"));
    }

    #[test]
    fn the_kernel_asks_again_once_for_each_call() {
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let ways = Arc::new(Ways::new(rt, Arc::default()));
        let change = || ways.of(&request(5, Operation::Unlink { name: b"a" })).expect("it locks");
        let lookup = || ways.of(&request(5, Operation::Lookup { name: b"d" })).expect("on the way");
        assert!(!ways.was_told(5));
        assert_eq!(errno(lookup().ended(stale())), errno(stale()));
        assert!(ways.was_told(5) && !ways.was_told(6));
        assert!(!change().gives(), "that may have been in the same call");
        assert_eq!(errno(change().ended(stale())), errno(stale()), "nothing gave way");
        assert!(change().gives(), "the call is over");
        assert_eq!(errno(change().ended(stale())), errno(stale()));
        let enoent = Some(Errno(libc::ENOENT));
        assert_eq!(errno(lookup().ended(stale())), enoent, "the directory is gone");
        assert_eq!(errno(change().ended(stale())), enoent, "or goes now");
        assert!(change().gives());
    }

    /// What is moved is the last that is looked up.
    #[test]
    fn a_directory_that_is_gone_when_it_is_to_be_moved_has_no_name() {
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let ways = Arc::new(Ways::new(rt, Arc::default()));
        let rename = || {
            let rename = Operation::Rename { name: b"a", new_parent: 8, new_name: b"b", flags: 0 };
            ways.of(&request(5, rename)).expect("it locks")
        };
        let finds = |nodeid, kind: FileKind| {
            let attr = crate::kernel::abi::FileAttr { mode: kind.mode_bits(), ..Default::default() };
            let entry = crate::kernel::abi::EntryOut { nodeid, attr, ..Default::default() };
            let lookup = ways.of(&request(5, Operation::Lookup { name: b"a" })).expect("on the way");
            assert!(lookup.ended(Ok(Answer::Entry(entry))).is_ok());
        };
        let asks = |node| {
            let request = Request { node, ..request(5, Operation::GetAttr { handle: None }) };
            errno(ways.of(&request).expect("on the way").ended(stale()))
        };
        let enoent = Some(Errno(libc::ENOENT));
        finds(9, FileKind::Dir);
        assert_eq!(errno(rename().ended(stale())), errno(stale()));
        assert_eq!(asks(9), errno(stale()), "it was found before");
        finds(9, FileKind::Dir);
        assert_eq!((asks(8), asks(9)), (errno(stale()), enoent));
        finds(9, FileKind::File);
        assert_eq!(asks(9), errno(stale()), "others may have replaced it");
        assert_eq!(errno(rename().ended(stale())), enoent);
        finds(9, FileKind::Dir);
        assert_eq!(asks(9), errno(stale()), "the kernel asks again");
    }
}
