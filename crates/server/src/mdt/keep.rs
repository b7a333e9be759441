//! What a client may keep of an answer: inode bits are granted here and nowhere else (`docs/locks.md#inode-bits`).

use std::sync::Arc;

use proto::Code;
use proto::Fid;
use proto::wire::Reply;
use proto::wire::messages::{
    FEATURE_LOCKS, Granted, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR,
};
use service::{Done, Env};

use super::bits::{BitLocks, Grant};
use super::inode::Inode;
use super::plan::Step;
use super::reclaim::Reclaimer;
use super::revoke::Revoker;
use super::{Ctx, Mdt, Outcome};

/// What an answer with the attributes of a file lets its client keep.
pub const KEEP_ATTRS: u32 = LOCK_UPDATE | LOCK_PERM | LOCK_LAYOUT | LOCK_XATTR;
/// The same if it says what a name means, too.
pub const KEEP_NAME: u32 = KEEP_ATTRS | LOCK_LOOKUP;

impl Ctx<'_> {
    /// Whether the client can keep anything. Replays are answered without: what is replayed is not the newest.
    pub(super) fn keeps(&self) -> bool {
        self.session().features() & FEATURE_LOCKS != 0 && self.replay.is_none()
    }

    /// Records an answer as it is: what is added to it from now on is for this time only, and not for a client that asks again.
    pub(super) fn record(&self, done: &mut Done) {
        if done.record.is_none() {
            done.record = self.recorder().record(&done.reply).map(|(_, record)| record);
        }
    }
}

impl Mdt {
    /// The inode `fid`, if there is one, and which of `bits` the client may keep of an answer that shows it.
    pub(super) fn find_and_keep(&self, ctx: &Ctx, fid: Fid, bits: u32) -> Step<Option<(Inode, Grant)>> {
        let read = || Ok(self.names.find_inode(ctx, fid)?.map(|inode| (inode, ())));
        let found = self.grants.read_and_keep(ctx, fid, bits, read)?;
        Ok(found.map(|(inode, (), grant)| {
            let grant = self.grants.bits.untold(ctx.session().handle(), fid, grant, hidden(&inode));
            (inode, grant)
        }))
    }

    /// The same of an inode that has to be there.
    pub(super) fn inode_and_keep(&self, ctx: &Ctx, fid: Fid, bits: u32) -> Step<(Inode, Granted)> {
        let (inode, grant) = self.find_and_keep(ctx, fid, bits)?.ok_or(Code::Stale)?;
        Ok((inode, grant.lock))
    }
}

/// What clients may keep: what was granted, and how it is called back.
pub(super) struct Grants {
    pub bits: Arc<BitLocks>,
    pub revoker: Arc<Revoker>,
    pub reclaimer: Arc<Reclaimer>,
}

impl Grants {
    /// Nobody keeps anything.
    pub fn new(env: &Env) -> Grants {
        let bits = Arc::new(BitLocks::new(env.store.boot(), env.rt.memory_bytes()));
        let revoker = Revoker::new(&env.rt, env.clients.clone(), bits.clone());
        let reclaimer = Reclaimer::new(&env.rt, env.stop.clone(), env.clients.clone(), bits.clone());
        Grants { bits, revoker: Arc::new(revoker), reclaimer: Arc::new(reclaimer) }
    }

    /// What `read` finds of `fid` besides its inode, and which of `bits` the client may keep.
    pub(super) fn read_and_keep<T>(
        &self,
        ctx: &Ctx,
        fid: Fid,
        bits: u32,
        read: impl FnOnce() -> Step<Option<(Inode, T)>>,
    ) -> Step<Option<(Inode, T, Grant)>> {
        if !ctx.keeps() {
            return Ok(read()?.map(|(inode, more)| (inode, more, Grant::default())));
        }
        let session = ctx.session().handle();
        let (found, grant) = self.bits.reading(session, fid, bits, read);
        match found {
            Ok(Some((inode, more))) => {
                let lock = self.of_named(ctx, &inode, grant.lock);
                Ok(Some((inode, more, Grant { lock, ..grant })))
            }
            Ok(None) => {
                self.bits.take_back(session, fid, grant.lock);
                Ok(None)
            }
            // An error carries no lock.
            Err(code) => {
                self.bits.untold(session, fid, grant, bits);
                Err(code)
            }
        }
    }

    /// The answer of an operation that has held the guard of `inode` since it read or changed it: `bits` of it are
    /// granted. What is recorded for a client that asks again carries no lock.
    pub(super) fn keep_guarded(&self, ctx: &Ctx, mut done: Done, inode: &Inode, bits: u32) -> Outcome {
        if !ctx.keeps() {
            return Ok(done);
        }
        let granted = self.grant_guarded(ctx, inode, bits);
        ctx.record(&mut done);
        if let Some(lock) = lock_of(&mut done.reply) {
            *lock = granted;
        }
        Ok(done)
    }

    /// Grants `bits` of an inode whose guard the operation has held since it read or changed it.
    pub(super) fn grant_guarded(&self, ctx: &Ctx, inode: &Inode, bits: u32) -> Granted {
        if !ctx.keeps() {
            return Granted::default();
        }
        let granted = self.bits.grant_guarded(ctx.session().handle(), inode.fid, bits & !hidden(inode));
        self.of_named(ctx, inode, granted)
    }

    /// Nothing is kept of a file without a name: what becomes of it concerns only those who have it open.
    fn of_named(&self, ctx: &Ctx, inode: &Inode, granted: Granted) -> Granted {
        if inode.nlink != 0 {
            return granted;
        }
        self.bits.take_back(ctx.session().handle(), inode.fid, granted);
        Granted::default()
    }
}

/// Bits that protect what an answer does not say that shows the inode: of extended attributes it says only that there are none.
fn hidden(inode: &Inode) -> u32 {
    if inode.xattrs { LOCK_XATTR } else { 0 }
}

/// Where a reply to a changing request says what its client may keep.
fn lock_of(reply: &mut Reply) -> Option<&mut Granted> {
    match reply {
        Reply::Create(created) => Some(&mut created.lock),
        Reply::Open(opened) => Some(&mut opened.lock),
        Reply::Link(entry) | Reply::SetAttr(entry) | Reply::SetLayout(entry) => Some(&mut entry.lock),
        Reply::Close(settled) | Reply::SetSize(settled) => {
            settled.entry.as_mut().map(|entry| &mut entry.lock)
        }
        _ => None,
    }
}
