//! ReadLink: where a symbolic link points.

use proto::wire::Reply;
use proto::wire::messages::{LinkTarget, ReadLink};
use proto::{Code, FileKind};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome};

pub(in crate::mdt) fn read_link(mdt: &Mdt, ctx: &Ctx, request: &ReadLink) -> Outcome {
    let inode = mdt.names.inode(ctx, request.fid)?;
    if inode.kind() != FileKind::Symlink {
        return Err(Code::Invalid.into());
    }
    Ok(Done::unchanged(Reply::ReadLink(LinkTarget { target: inode.target })))
}
