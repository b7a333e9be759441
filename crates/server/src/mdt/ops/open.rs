//! Open: a file or directory is in use; for writing, its size is not known any more.

use proto::types::FileKind;
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, FEATURE_OVERSTRIPING, Granted, LOCK_OPEN, LOCK_UPDATE,
    OPEN_AGAIN, OPEN_EXECUTE, OPEN_READ, OPEN_WRITE, Open, Opened,
};
use proto::{Code, Cred, Fid};
use service::Done;

use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::opens::{OpenMode, Opener};
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, keys};

pub(in crate::mdt) fn open_file(mdt: &Mdt, ctx: &Ctx, request: &Open) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let wanted = Wanted { fid: request.fid, open: request.open, cred: &request.cred, keep: KEEP_ATTRS };
    open_inode(mdt, ctx, &wanted, |inode, handle| {
        Reply::Open(Opened {
            attr: inode.attr(),
            layout: inode.layout.clone(),
            handle,
            xattrs: inode.xattrs,
            lock: Granted::default(),
            range: None,
        })
    })
}

/// Which file is to be opened, and how.
pub(super) struct Wanted<'a> {
    pub(super) fid: Fid,
    /// Bits of `OPEN_*`.
    pub(super) open: u32,
    pub(super) cred: &'a Cred,
    /// What the client may keep of it.
    pub(super) keep: u32,
}

/// Opens an inode whose lock the caller holds, and grants what is to be kept of it. The handle is the number of the request,
/// so that a replay gives the same one.
pub(super) fn open_inode(
    mdt: &Mdt,
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    reply: impl FnOnce(&Inode, u64) -> Reply,
) -> Outcome {
    let Wanted { fid, open, cred, keep } = *wanted;
    let mut inode = mdt.names.inode(ctx, fid)?;
    check(ctx, &inode, open, cred)?;
    if open & OPEN_WRITE != 0 {
        check_whole(mdt, ctx, &inode)?;
        inode.check_there()?;
    }
    ctx.data().has_room()?;
    let handle = ctx.xid.0;
    let write = open & OPEN_WRITE != 0;
    let known = inode.size_known;
    let mut changes = Changes::default();
    if write {
        changes.put_raw(keys::open(ctx.session().client(), handle), keys::open_value(fid));
    }
    if write && mdt.opens.is_written_by_another_alone(fid, ctx.session().handle()) {
        // It may keep the size, which it alone could change until now.
        ctx.need(&[(fid, LOCK_UPDATE)])?;
    }
    if write && (known || inode.hsm.is_relied_on()) {
        inode.begin_writing();
        inode.version = service::VERSION_OF_THIS;
        changes.put_inode(&inode, LOCK_UPDATE);
    }
    let reply = reply(&inode, handle);
    let done = if changes.is_empty() { Done::unchanged(reply) } else { mdt.commit(ctx, changes, reply)? };
    mdt.opens.open(
        fid,
        Opener { session: ctx.session().handle(), handle },
        OpenMode { write, size_known: known },
    );
    ctx.data().opened(handle, fid);
    let keep = if write { keep } else { keep | LOCK_OPEN };
    mdt.grants.keep_guarded(ctx, done, &inode, keep)
}

/// A file that has lost a part is not written any more ([`Table::check_whole`](crate::mdt::osts::Table::check_whole)).
pub(super) fn check_whole(mdt: &Mdt, ctx: &Ctx, inode: &Inode) -> Result<(), Code> {
    match &inode.layout {
        Some(layout) if ctx.replay.is_none() => mdt.objects.osts.table().check_whole(layout),
        _ => Ok(()),
    }
}

fn check(ctx: &Ctx, inode: &Inode, open: u32, cred: &Cred) -> Result<(), Code> {
    match inode.kind() {
        FileKind::File => {}
        FileKind::Dir if open & (OPEN_WRITE | OPEN_EXECUTE) == 0 => {}
        FileKind::Dir => return Err(Code::IsDirectory),
        FileKind::Symlink => return Err(Code::Loop),
        FileKind::Fifo | FileKind::Char | FileKind::Block | FileKind::Socket => {
            return Err(Code::NotSupported);
        }
    }
    let overstriped = inode.layout.as_ref().is_some_and(|layout| layout.is_overstriped());
    if overstriped && ctx.session().features() & FEATURE_OVERSTRIPING == 0 {
        return Err(Code::NotSupported);
    }
    if open & OPEN_AGAIN != 0 && cred.uid == inode.uid {
        return Ok(());
    }
    let wanted = [(OPEN_READ, ACCESS_READ), (OPEN_WRITE, ACCESS_WRITE), (OPEN_EXECUTE, ACCESS_EXECUTE)];
    let mask = wanted.iter().filter(|(bit, _)| open & bit != 0).fold(0, |mask, (_, access)| mask | access);
    access::may(cred, inode, mask)
}
