//! GetAttr: the attributes of a file, by its FID.

use proto::wire::Reply;
use proto::wire::messages::GetAttr;
use service::Done;

use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::{Ctx, Mdt, Outcome};

pub(in crate::mdt) fn get_attr(mdt: &Mdt, ctx: &Ctx, request: &GetAttr) -> Outcome {
    let (inode, lock) = mdt.inode_and_keep(ctx, request.fid, KEEP_ATTRS)?;
    Ok(Done::unchanged(Reply::GetAttr(inode.entry_kept(lock))))
}
