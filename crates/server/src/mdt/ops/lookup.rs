//! Lookup: what a name means.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, Lookup};
use service::Done;

use crate::mdt::keep::{KEEP_ATTRS, KEEP_NAME};
use crate::mdt::{Ctx, Mdt, Outcome, access};

/// How often a name is looked up again because its file went, or it got another meaning, between entry and inode.
const RETRIES_MAX: usize = 100;

pub(in crate::mdt) fn lookup(mdt: &Mdt, ctx: &Ctx, request: &Lookup) -> Outcome {
    let parent = mdt.names.dir(ctx, request.parent)?;
    access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
    let Some(name) = &request.name else {
        let (above, lock) = mdt.inode_and_keep(ctx, parent.parent, KEEP_ATTRS)?;
        return Ok(Done::unchanged(Reply::Lookup(above.entry_kept(lock))));
    };
    for _ in 0..RETRIES_MAX {
        let (fid, _) = mdt.names.find_entry(ctx, parent.fid, name)?.ok_or(Code::NotFound)?;
        let Some((inode, grant)) = mdt.find_and_keep(ctx, fid, KEEP_NAME)? else { continue };
        // What the name means can be kept if it means it still: the entry was read before the grant.
        let lock = grant.lock;
        if lock.bits == 0 || mdt.names.find_entry(ctx, parent.fid, name)?.is_some_and(|(now, _)| now == fid) {
            return Ok(Done::unchanged(Reply::Lookup(inode.entry_kept(lock))));
        }
        mdt.grants.bits.untold(ctx.session().handle(), fid, grant, lock.bits);
    }
    Err(Code::TryAgain.into())
}
