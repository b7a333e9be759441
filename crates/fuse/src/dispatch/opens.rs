//! Opens of regular files, and the look-ups that belong to them ([`crate::reopen`]).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use client::posix::Result;
use client::{AttrChange, Handle, Told};
use proto::{Code, Fid};
use rt::Rt;

use super::files::{file_flags, opened};
use super::told::Named;
use super::{Asked, Dispatcher, owned};
use crate::interrupt::Ends;
use crate::kernel::reply::Answer;
use crate::ops::{Ops, fid_of};
use crate::reopen::{Look, Opener, PATIENCE, Reopens};

impl Dispatcher {
    pub(super) fn lookup(&self, asked: Asked, name: &[u8]) {
        let name = owned(name);
        let opener = Opener::new(asked.pid, &asked.caller);
        match self.reopens.look(opener, &(asked.node, name.clone()), Instant::now()) {
            Look::Plainly => self.lookup_plainly(asked, name),
            Look::Opening(flags) => self.lookup_opening(asked, name, (opener, flags)),
            Look::Kept(fid) => self.lookup_kept(asked, name, fid),
        }
    }

    fn lookup_plainly(&self, Asked { node, pid, caller, reply }: Asked, name: Bytes) {
        let teller = self.teller.clone();
        self.look(reply, pid, |ops| async move {
            let told = ops.lookup(&caller, fid_of(node), &name).await?;
            teller.looked_up(told, Named { dir: node, name: &name, thread: pid })
        });
    }

    /// The name means a file that is kept open, whatever others did to it meanwhile.
    fn lookup_kept(&self, Asked { node, pid, reply, .. }: Asked, name: Bytes, fid: Fid) {
        let teller = self.teller.clone();
        self.look(reply, pid, |ops| async move {
            let told = Told { keep_name: false, ..ops.getattr(fid).await? };
            Ok(teller.entry(told, Named { dir: node, name: &name, thread: pid }))
        });
    }

    /// Opens what the name means, and keeps that open for a while: nobody need ever ask for it.
    fn lookup_opening(
        &self,
        Asked { node, pid, caller, reply }: Asked,
        name: Bytes,
        (opener, flags): (Opener, u32),
    ) {
        let (teller, reopens, rt) = (self.teller.clone(), self.reopens.clone(), self.rt.clone());
        // It is emptied when the open itself comes.
        let lasting = flags.cast_signed() & !libc::O_TRUNC;
        let look_up = |ops: Arc<Ops>| async move {
            let (fid, handle) = ops.posix().open_name(&caller, fid_of(node), &name, lasting).await?;
            if let Some(handle) = handle {
                let kept = ((node, name.clone()), fid, handle);
                if reopens.keep(opener, kept, Instant::now()) {
                    rt.clone().spawn(let_go(rt, ops.clone(), reopens, (opener, handle)));
                } else {
                    ops.posix().release(handle).await;
                }
            }
            let told = Told { keep_name: false, ..ops.getattr(fid).await? };
            Ok(teller.entry(told, Named { dir: node, name: &name, thread: pid }))
        };
        self.interruptible(reply, pid, Ends::Death, look_up, |_, rest| async move { drop(rest.await) });
    }

    pub(super) fn open(&self, asked: Asked, flags: u32) {
        let opener = Opener::new(asked.pid, &asked.caller);
        if let Some(handle) = self.reopens.take(opener, fid_of(asked.node), flags) {
            return self.open_kept(asked, flags, handle);
        }
        let Asked { node, pid, caller, reply } = asked;
        let reopens = self.reopens.clone();
        let open = |ops: Arc<Ops>| async move {
            let result = ops.posix().open(&caller, fid_of(node), flags.cast_signed()).await;
            if result == Err(Code::Stale.into()) {
                tracing::debug!(fid = %fid_of(node), thread = pid, "a file is gone that is to be opened");
                reopens.was_gone(opener, flags, Instant::now());
            }
            let handle = result?;
            Ok(Answer::Opened(opened(handle, file_flags(&ops, handle, flags))))
        };
        if flags.cast_signed() & libc::O_TRUNC != 0 {
            return self.run(reply, open);
        }
        self.interruptible(reply, pid, Ends::Death, open, |ops, rest| async move {
            if let Ok(Answer::Opened(opened)) = rest.await {
                ops.posix().release(Handle(opened.fh)).await;
            }
        });
    }

    /// The file is open since its name was looked up.
    fn open_kept(&self, Asked { node, caller, reply, .. }: Asked, flags: u32, handle: Handle) {
        let empties = flags.cast_signed() & libc::O_TRUNC != 0
            && flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY;
        self.run(reply, |ops| async move {
            let emptied: Result<()> = if empties {
                let change = AttrChange { size: Some(0), ..AttrChange::default() };
                ops.posix().setattr(&caller, fid_of(node), change, Some(handle)).await.map(drop)
            } else {
                Ok(())
            };
            if let Err(error) = emptied {
                ops.posix().release(handle).await;
                return Err(error);
            }
            Ok(Answer::Opened(opened(handle, file_flags(&ops, handle, flags))))
        });
    }
}

/// Closes after a while what nobody has asked for.
async fn let_go(rt: Rt, ops: Arc<Ops>, reopens: Arc<Reopens>, (opener, handle): (Opener, Handle)) {
    rt.sleep(PATIENCE).await;
    if reopens.expire(opener, handle) {
        ops.posix().release(handle).await;
    }
}
