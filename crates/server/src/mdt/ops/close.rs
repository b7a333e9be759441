//! Close: the file is in use no more; the last writer tells its size.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, Close, SizeUpdate};

use crate::mdt::inode::Inode;
use crate::mdt::opens::{ClosedSize, Opener};
use crate::mdt::{Changes, Ctx, Mdt, Outcome};
use crate::target::{Done, VERSION_OF_THIS};

impl Mdt {
    /// A handle that is not known is one of before a restart, or closed already: that is no error.
    pub(in crate::mdt) fn close_file(&self, ctx: &Ctx, request: &Close) -> Outcome {
        let reply = Reply::Close(msg::Done {});
        if !ctx.data().closed(request.handle, request.fid) {
            return Ok(Done::unchanged(reply));
        }
        let _inode = self.locks.inodes(&[request.fid]);
        let opener = Opener { session: ctx.session().handle(), handle: request.handle };
        let closed = self.opens.close(request.fid, opener, request.wrote, request.size.clone());
        let Some(closed) = closed else { return Ok(Done::unchanged(reply)) };
        let Some(mut inode) = self.find_inode(request.fid)? else { return Ok(Done::unchanged(reply)) };
        let mut changes = Changes::default();
        if closed.last && inode.nlink == 0 {
            self.drop_if_nameless(&mut changes, inode.fid)?;
        } else if settle(&mut inode, request, closed.size) {
            inode.version = VERSION_OF_THIS;
            changes.put_inode(&inode);
        }
        if changes.is_empty() { Ok(Done::unchanged(reply)) } else { self.commit(ctx, changes, reply) }
    }
}

/// What the close says goes into the inode; says whether that changed it.
fn settle(inode: &mut Inode, request: &Close, size: ClosedSize) -> bool {
    let before = inode.clone();
    if let Some(atime) = request.atime {
        inode.atime = inode.atime.max(atime);
    }
    inode.written |= request.wrote;
    match size {
        ClosedSize::Stays | ClosedSize::Unknown => {}
        ClosedSize::AsBefore => inode.size_known = true,
        ClosedSize::Told(update) => take_size(inode, &update),
    }
    *inode != before
}

/// The size is known. Its times count unless newer ones are there.
pub(super) fn take_size(inode: &mut Inode, update: &SizeUpdate) {
    inode.size = update.size;
    inode.blocks = update.blocks;
    inode.size_known = true;
    inode.written |= update.size != 0;
    take_times(inode, update);
}

fn take_times(inode: &mut Inode, update: &SizeUpdate) {
    if update.mtime >= inode.mtime_set {
        inode.mtime = update.mtime;
        inode.mtime_set = update.mtime;
    }
    inode.ctime = inode.ctime.max(update.ctime);
}

/// What a size can be.
pub(super) fn check_size(update: &SizeUpdate) -> Result<(), Code> {
    if update.size <= proto::limits::FILE_BYTES_MAX { Ok(()) } else { Err(Code::TooLarge) }
}
