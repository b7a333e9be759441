//! Changes that give way.
//!
//! For a change of names the kernel locks the directories until the change is answered. The change may wait at the MDT for another client,
//! whose kernel waits for this mount's answer to a callback, which waits for the same locks here. Then the MDT refuses the change
//! ([`proto::Code::GiveWay`]), and the kernel is told ESTALE: it lets go of its locks, looks each name of the path up again, and asks
//! once more. It does that once for each call; so the same change of the same thread does not give way again until it has succeeded.
//! `docs/locks.md#kernel-names`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::posix::{Errno, Result};
use parking_lot::Mutex;
use proto::Code;
use rt::{Rt, Time};
use smallvec::SmallVec;

use crate::kernel::reply::Answer;
use crate::kernel::request::{Operation, Request};
use crate::names::Names;

/// How long the kernel takes at most until it asks again.
const AGAIN: Duration = Duration::from_secs(10);
/// Threads that are remembered; changes of further ones do not give way.
const THREADS_MAX: usize = 4096;

/// Which changes gave way.
pub struct Ways {
    rt: Rt,
    names: Arc<Mutex<Names>>,
    /// Threads whose last change did, which change it was, and when.
    gave: Mutex<HashMap<u32, (u64, Time)>>,
    any: AtomicBool,
}

/// A change that is under way; told of its answer before the kernel is.
pub struct Way {
    ways: Arc<Ways>,
    thread: u32,
    change: u64,
    dirs: SmallVec<[u64; 2]>,
    /// Whether it gives way.
    pub gives: bool,
}

impl Ways {
    /// None gave way yet. A directory of which one does is busy in `names`.
    pub fn new(rt: Rt, names: Arc<Mutex<Names>>) -> Ways {
        Ways { rt, names, gave: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// The change that `request` is, if the kernel has locked directories for it.
    pub fn of(self: &Arc<Self>, request: &Request<'_>) -> Option<Way> {
        let (name, more): (&[u8], Option<u64>) = match &request.operation {
            Operation::MkNod { name, .. } | Operation::MkDir { name, .. } => (*name, None),
            Operation::Symlink { name, .. } | Operation::Create { name, .. } => (*name, None),
            Operation::Unlink { name } | Operation::RmDir { name } | Operation::Link { name, .. } => {
                (*name, None)
            }
            Operation::Rename { name, new_parent, .. } => (*name, Some(*new_parent)),
            _ => return None,
        };
        let dirs = std::iter::once(request.node).chain(more).collect();
        let mut hasher = DefaultHasher::new();
        (request.node, more, name).hash(&mut hasher);
        let change = hasher.finish();
        // A thread that cannot be seen cannot be told apart from others.
        let gives = request.pid != 0 && self.may_give(request.pid, change);
        Some(Way { ways: self.clone(), thread: request.pid, change, dirs, gives })
    }

    fn may_give(&self, thread: u32, change: u64) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return true;
        }
        let now = self.rt.now();
        let mut gave = self.gave.lock();
        gave.retain(|_, (_, at)| now - *at < AGAIN);
        self.any.store(!gave.is_empty(), Ordering::Release);
        gave.len() < THREADS_MAX && gave.get(&thread).is_none_or(|(last, _)| *last != change)
    }
}

impl Way {
    /// The change is over: the kernel is about to be told of `result`.
    pub fn ended(self, result: &Result<Answer>) {
        let stale: Errno = Code::GiveWay.into();
        if self.gives && result.as_ref().is_err_and(|error| *error == stale) {
            let now = self.ways.rt.now();
            {
                let mut names = self.ways.names.lock();
                self.dirs.iter().for_each(|dir| names.is_late(*dir, now));
            }
            self.ways.gave.lock().insert(self.thread, (self.change, now));
            self.ways.any.store(true, Ordering::Release);
        } else if self.ways.any.load(Ordering::Acquire) {
            self.ways.gave.lock().remove(&self.thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(thread: u32, operation: Operation<'_>) -> Request<'_> {
        Request { unique: 1, node: 7, uid: 0, gid: 0, pid: thread, operation }
    }

    #[test]
    fn the_same_change_gives_way_once_until_it_succeeds() {
        let rt = Rt::os(rt::os::Node::start_without_rings(1).expect("a node"));
        let names = Arc::<Mutex<Names>>::default();
        let ways = Arc::new(Ways::new(rt.clone(), names.clone()));
        let way = |thread, name| ways.of(&request(thread, Operation::Unlink { name })).expect("it locks");
        let gives = |thread, name| way(thread, name).gives;
        assert!(ways.of(&request(5, Operation::ReadLink)).is_none(), "nothing is locked for that");
        assert!(!gives(0, b"a"), "it cannot be seen");
        assert!(gives(5, b"a"));
        way(5, b"a").ended(&Err(Errno(libc::ENOENT)));
        assert!(gives(5, b"a"), "it did not give way");
        way(5, b"a").ended(&Err(Code::GiveWay.into()));
        assert!(!gives(5, b"a") && gives(5, b"b") && gives(6, b"a"));
        way(5, b"a").ended(&Ok(Answer::Done));
        assert!(gives(5, b"a"), "it has succeeded");
        let (fid, place) = (proto::Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 }, (7, bytes::Bytes::new()));
        let kept = names.lock().keep(fid, place, Duration::MAX, 5, rt.now());
        assert!(kept.is_zero(), "the directory is busy");
    }
}
