//! SetSize: a client has asked the objects and tells the size.

use proto::changelog::Kind;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, LOCK_UPDATE, SetSize};
use proto::{Code, FileKind};
use service::{Done, VERSION_OF_THIS};

use super::close::{check_size, take_size};
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::{Changes, Ctx, Mdt, Outcome};

pub(in crate::mdt) fn set_size(mdt: &Mdt, ctx: &Ctx, request: &SetSize) -> Outcome {
    check_size(&request.update)?;
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    if inode.kind() != FileKind::File {
        return Err(Code::Invalid.into());
    }
    // A known size was told by whoever wrote; who asked the objects meanwhile may know less.
    let session = ctx.session().handle();
    if inode.size_known || !mdt.opens.set_size(request.fid, session, &request.update) {
        // After a restart nobody is known to have cut it.
        let wants_size = !inode.size_known && mdt.opens.wants_size(request.fid, session);
        return Ok(Done::unchanged(Reply::SetSize(msg::Settled { wants_size, ..Default::default() })));
    }
    take_size(&mut inode, &request.update);
    // A copy of what was there before the objects were cut is an old one.
    inode.hsm.data_may_change();
    inode.version = VERSION_OF_THIS;
    let mut changes = Changes::default();
    changes.put_inode(&inode, LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::ModifyTime, inode.fid, |record| record);
    let settled = msg::Settled { entry: Some(inode.entry()), wants_size: false };
    let done = mdt.commit(ctx, changes, Reply::SetSize(settled))?;
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS)
}
