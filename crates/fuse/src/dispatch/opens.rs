//! Look-ups and opens, and the files that are held between them ([`crate::reopen`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::posix::Result;
use client::{Handle, Told};
use proto::{Code, Fid};
use rt::Rt;

use super::files::{file_flags, opened};
use super::told::Named;
use super::{Asked, Dispatcher, owned};
use crate::interrupt::Ends;
use crate::kernel::reply::Answer;
use crate::ops::{Ops, fid_of};
use crate::reopen::{Look, PATIENCE, Reopens};

impl Dispatcher {
    pub(super) fn lookup(&self, asked: Asked, name: &[u8]) {
        let name = owned(name);
        match self.reopens.look(asked.pid, &(asked.node, name.clone()), self.rt.now()) {
            Look::Plainly => self.lookup_plainly(asked, name),
            Look::Holding => self.lookup_holding(asked, name),
            Look::Held(fid) => self.lookup_held(asked, name, fid),
        }
    }

    fn lookup_plainly(&self, Asked { node, pid, caller, reply }: Asked, name: Bytes) {
        let (teller, reopens) = (self.teller.clone(), self.reopens.clone());
        self.operations.look(reply, pid, |ops| async move {
            let look_up = || async {
                let found = ops.lookup(&caller, fid_of(node), &name).await;
                noted(&reopens, (pid, teller.rt()), found)
            };
            teller.looked_up(Named { dir: node, name: &name, thread: pid }, look_up).await
        });
    }

    /// The name means a file that is held, whatever others did to it meanwhile.
    fn lookup_held(&self, Asked { node, pid, reply, .. }: Asked, name: Bytes, fid: Fid) {
        let teller = self.teller.clone();
        self.operations.look(reply, pid, |ops| async move {
            let named = Named { dir: node, name: &name, thread: pid };
            teller.looked_up(named, || unkept(&ops, fid)).await
        });
    }

    /// Holds what the name means for a while.
    fn lookup_holding(&self, Asked { node, pid, caller, reply }: Asked, name: Bytes) {
        let (teller, reopens, rt) = (self.teller.clone(), self.reopens.clone(), self.rt.clone());
        let look_up = |ops: Arc<Ops>| async move {
            let named = Named { dir: node, name: &name, thread: pid };
            let (fid, handle) = ops.posix().hold_name(&caller, fid_of(node), &name).await?;
            let Some(handle) = handle else {
                return teller.looked_up(named, || ops.lookup(&caller, fid_of(node), &name)).await;
            };
            reopens.holds(pid, ((node, name.clone()), fid, handle), rt.now());
            rt.clone().spawn(let_go(rt, ops.clone(), reopens, (pid, handle)));
            teller.looked_up(named, || unkept(&ops, fid)).await
        };
        self.operations.interruptible(
            reply,
            pid,
            Ends::Death,
            look_up,
            |_, rest| async move { drop(rest.await) },
        );
    }

    pub(super) fn open(&self, Asked { node, pid, caller, reply }: Asked, flags: u32) {
        let (reopens, rt) = (self.reopens.clone(), self.rt.clone());
        let open = |ops: Arc<Ops>| async move {
            let handle = ops.posix().open(&caller, fid_of(node), flags.cast_signed()).await;
            let handle = noted(&reopens, (pid, &rt), handle)?;
            Ok(Answer::Opened(opened(handle, file_flags(&ops, handle, flags))))
        };
        if flags.cast_signed() & libc::O_TRUNC != 0 {
            return self.operations.run(reply, open);
        }
        self.operations.interruptible(reply, pid, Ends::Death, open, |ops, rest| async move {
            if let Ok(Answer::Opened(opened)) = rest.await {
                ops.posix().release(Handle(opened.fh)).await;
            }
        });
    }
}

/// The same answer; what the thread looks up next is held if its file is gone.
pub(super) fn noted<T>(reopens: &Reopens, (thread, rt): (u32, &Rt), answer: Result<T>) -> Result<T> {
    answer.inspect_err(|error| {
        if *error == Code::Stale.into() {
            reopens.was_gone(thread, rt.now());
        }
    })
}

/// What is told of a file by a name that the kernel is not to keep.
async fn unkept(ops: &Ops, fid: Fid) -> Result<Told> {
    Ok(Told { keep_name: Duration::ZERO, ..ops.getattr(fid).await? })
}

/// Holds a file for a while.
async fn let_go(rt: Rt, ops: Arc<Ops>, reopens: Arc<Reopens>, (thread, handle): (u32, Handle)) {
    rt.sleep(PATIENCE).await;
    reopens.lets_go(thread, handle);
    ops.posix().release_held(handle).await;
}
