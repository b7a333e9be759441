//! Locks of flock(2) and fcntl(2).

use client::Handle;

use super::{Asked, Dispatcher, done};
use crate::errno::{Errno, Result};
use crate::interrupt::Ends;
use crate::kernel::abi::{FileLock, LkOut};
use crate::kernel::reply::Answer;
use crate::kernel::request::Lock;
use crate::ops::{LockKind, LockMode, LockRequest, fid_of};

impl Dispatcher {
    pub(super) fn get_lock(&self, Asked { node, pid, reply, .. }: Asked, lock: Lock) {
        self.look(reply, pid, |ops| async move {
            let found = ops.get_lock(request(node, lock)?).await?;
            let lk = match found {
                Some(found) => FileLock {
                    start: found.start,
                    end: found.end,
                    kind: number(Some(found.mode)).cast_unsigned(),
                    pid: found.pid,
                },
                None => {
                    FileLock { start: lock.start, end: lock.end, kind: number(None).cast_unsigned(), pid: 0 }
                }
            };
            Ok(Answer::Lock(LkOut { lk }))
        });
    }

    /// A request that waits ends with any signal; one that does not wait runs to its end, as do all that unlock.
    pub(super) fn set_lock(&self, Asked { node, pid, reply, .. }: Asked, lock: Lock, wait: bool) {
        let request = match request(node, lock) {
            Ok(request) => request,
            Err(error) => return reply.send(Err(error)),
        };
        if wait && request.mode.is_some() {
            let set =
                |ops: std::sync::Arc<crate::ops::Ops>| async move { done(ops.set_lock(request, true).await) };
            self.interruptible(reply, pid, Ends::AnySignal, set, |_, _| std::future::ready(()));
        } else {
            self.run(reply, |ops| async move { done(ops.set_lock(request, false).await) });
        }
    }
}

fn request(node: u64, lock: Lock) -> Result<LockRequest> {
    let mode = match lock.kind.cast_signed() {
        kind if kind == number(None) => None,
        kind if kind == number(Some(LockMode::Read)) => Some(LockMode::Read),
        kind if kind == number(Some(LockMode::Write)) => Some(LockMode::Write),
        _ => return Err(Errno::INVALID),
    };
    Ok(LockRequest {
        fid: fid_of(node),
        handle: Handle(lock.handle),
        owner: lock.owner,
        pid: lock.pid,
        kind: if lock.flock { LockKind::Flock } else { LockKind::Posix },
        mode,
        start: lock.start,
        end: lock.end,
    })
}

/// The number of fcntl.h.
fn number(mode: Option<LockMode>) -> i32 {
    match mode {
        None => libc::F_UNLCK,
        Some(LockMode::Read) => libc::F_RDLCK,
        Some(LockMode::Write) => libc::F_WRLCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_modes_are_told_apart() {
        let lock = Lock { handle: 3, owner: 9, start: 1, end: 2, kind: 1, pid: 4, flock: false };
        let asked = request(1, lock).expect("a write lock");
        assert_eq!((asked.kind, asked.mode), (LockKind::Posix, Some(LockMode::Write)));
        let asked = request(1, Lock { kind: 2, flock: true, ..lock }).expect("an unlock");
        assert_eq!((asked.kind, asked.mode), (LockKind::Flock, None));
        assert_eq!(request(1, Lock { kind: 7, ..lock }).map(|_| ()), Err(Errno::INVALID));
    }
}
