//! Locks of flock(2) and fcntl(2).

use std::sync::Arc;

use client::{FlockRequest, Handle};
use proto::lock::flock::{Kind, Mode, Range};
use rt::sync::Semaphore;

use super::{Asked, Operations, done};
use crate::interrupt::Ends;
use crate::kernel::abi::{FileLock, LkOut};
use crate::kernel::reply::Answer;
use crate::kernel::request::Lock;
use crate::ops::Ops;
use client::posix::{Errno, Result};

/// The kernel's last byte of a lock without an end (OFFSET_MAX).
const NO_END: u64 = i64::MAX as u64;
/// Most requests of a mount that wait for locks: each keeps an entry of a ring, and an unlock needs one too.
const WAITS_MAX: usize = 2048;

/// Where file locks are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Locking {
    /// With the MDT: between all clients (`-o flock`).
    #[default]
    Shared,
    /// With the kernel: between processes of this mount (`-o localflock`).
    Local,
    /// Nowhere: ENOSYS (`-o noflock`).
    Off,
}

/// The locks of files, as far as weft has them.
pub(super) struct Locks {
    locking: Locking,
    /// Permits to wait for a lock.
    waits: Arc<Semaphore>,
}

impl Locks {
    /// Nobody waits for a lock.
    pub fn new(locking: Locking) -> Locks {
        Locks { locking, waits: Arc::new(Semaphore::new(WAITS_MAX)) }
    }

    pub fn get(&self, operations: &Operations, Asked { pid, reply, .. }: Asked, lock: Lock) {
        if self.locking == Locking::Off {
            return reply.send(Err(Errno::NO_SUCH_CALL));
        }
        operations.look(reply, pid, |ops| async move {
            let found = ops.get_lock(Handle(lock.handle), lock.owner, request(lock)?).await?;
            let free = FileLock { start: lock.start, end: lock.end, kind: number(libc::F_UNLCK), pid: 0 };
            let lk = found.map_or(free, |found| FileLock {
                start: found.range.start,
                end: found.range.end.min(NO_END),
                kind: match found.mode {
                    Mode::Read => number(libc::F_RDLCK),
                    Mode::Write => number(libc::F_WRLCK),
                },
                pid: found.pid,
            });
            Ok(Answer::Lock(LkOut { lk }))
        });
    }

    /// A request that waits ends with any signal; one that does not wait runs to its end, as do all that unlock.
    pub fn set(&self, operations: &Operations, Asked { pid, reply, .. }: Asked, lock: Lock, wait: bool) {
        if self.locking == Locking::Off {
            return reply.send(Err(Errno::NO_SUCH_CALL));
        }
        let request = match request(lock) {
            Ok(request) => request,
            Err(error) => return reply.send(Err(error)),
        };
        let handle = Handle(lock.handle);
        if !wait || request.mode.is_none() {
            return operations
                .run(reply, |ops| async move { done(ops.set_lock(handle, lock.owner, request).await) });
        }
        let Ok(permit) = self.waits.clone().try_acquire_owned() else {
            return reply.send(Err(Errno::NO_LOCKS));
        };
        let set = |ops: Arc<Ops>| async move {
            let _permit = permit;
            done(ops.set_lock_wait(handle, lock.owner, request).await)
        };
        let rest = move |ops: Arc<Ops>, waiting| {
            drop(waiting);
            async move { ops.given_up(handle, lock.owner, request.kind).await }
        };
        operations.interruptible(reply, pid, Ends::AnySignal, set, rest);
    }
}

fn number(kind: libc::c_int) -> u32 {
    kind.cast_unsigned()
}

fn request(lock: Lock) -> Result<FlockRequest> {
    let mode = match lock.kind.cast_signed() {
        libc::F_RDLCK => Some(Mode::Read),
        libc::F_WRLCK => Some(Mode::Write),
        libc::F_UNLCK => None,
        _ => return Err(Errno::INVALID),
    };
    let end = if lock.end >= NO_END { u64::MAX } else { lock.end };
    let (kind, range) = match lock.flock {
        true => (Kind::Flock, Some(Range::ALL)),
        false => (Kind::Posix, Range::new(lock.start, end)),
    };
    Ok(FlockRequest { kind, range: range.ok_or(Errno::INVALID)?, mode, pid: lock.pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_locks_are_ours() {
        let lock = Lock { handle: 1, owner: 2, start: 5, end: NO_END, kind: 1, pid: 7, flock: false };
        let all = Range { start: 5, end: u64::MAX };
        let asked = FlockRequest { kind: Kind::Posix, range: all, mode: Some(Mode::Write), pid: 7 };
        assert_eq!(request(lock), Ok(asked));
        let whole = FlockRequest { kind: Kind::Flock, range: Range::ALL, mode: None, pid: 7 };
        assert_eq!(request(Lock { flock: true, kind: 2, ..lock }), Ok(whole));
        assert_eq!(request(Lock { end: 4, ..lock }), Err(Errno::INVALID));
        assert_eq!(request(Lock { kind: 3, ..lock }), Err(Errno::INVALID));
    }
}
