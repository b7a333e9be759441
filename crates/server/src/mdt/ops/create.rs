//! Create: a new file of any kind, and perhaps open at once.

use std::time::Duration;

use proto::limits::{LINKS_MAX, SYMLINK_BYTES_MAX};
use proto::types::{MODE_KIND, MODE_PERMISSIONS};
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_EXECUTE, Create, Created, FEATURE_OVERSTRIPING, OPEN_EXCLUSIVE, OPEN_READ, OPEN_WRITE,
};
use proto::{Code, Fid, FileKind};

use crate::mdt::inode::Inode;
use crate::mdt::opens::Opener;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, allocate};

/// How long a create waits for the first OST of a file system that has none yet.
const OST_WAIT: Duration = Duration::from_secs(10);

impl Mdt {
    /// Waits for an OST if the new file needs one and there is none.
    pub(in crate::mdt) async fn wait_for_osts(&self, request: &Create) {
        if kind(request) == Ok(FileKind::File) && self.osts.table().order.is_empty() {
            self.osts.wait_for_any(OST_WAIT).await;
        }
    }

    pub(in crate::mdt) fn create(&self, ctx: &Ctx, request: &Create) -> Outcome {
        let _name = self.locks.name(request.parent, &request.name);
        match self.find_entry(request.parent, &request.name)? {
            Some((fid, kind)) => self.create_over(ctx, request, fid, kind),
            None => self.create_new(ctx, request),
        }
    }

    /// The name exists: it can be opened at most.
    fn create_over(&self, ctx: &Ctx, request: &Create, fid: Fid, found: FileKind) -> Outcome {
        access::may(&request.cred, &self.dir(request.parent)?, ACCESS_EXECUTE)?;
        let opens = request.open & (OPEN_READ | OPEN_WRITE) != 0;
        if kind(request)? != FileKind::File || request.open & OPEN_EXCLUSIVE != 0 || !opens {
            return Err(Code::Exists);
        }
        match found {
            FileKind::File => {}
            FileKind::Dir => return Err(Code::IsDirectory),
            _ => return Err(Code::Exists),
        }
        let _inode = self.locks.inodes(&[fid]);
        self.open_inode(ctx, fid, request.open, &request.cred, |inode, handle| {
            Reply::Create(Created { attr: inode.attr(), layout: inode.layout.clone(), handle, existed: true })
        })
    }

    fn create_new(&self, ctx: &Ctx, request: &Create) -> Outcome {
        let _inodes = self.locks.inodes(&[request.parent, request.fid]);
        let mut parent = self.living_dir(request.parent)?;
        let mut inode = self.new_inode(ctx, request, &parent)?;
        let is_dir = inode.is_dir();
        let opens = inode.kind() == FileKind::File && request.open & (OPEN_READ | OPEN_WRITE) != 0;
        let writes = opens && request.open & OPEN_WRITE != 0;
        inode.size_known = !writes;
        if opens {
            ctx.data().has_room()?;
        }
        if is_dir {
            inode.parent = parent.fid;
            parent.nlink += 1;
        }
        parent.touch_data(request.time);
        let mut changes = Changes::default();
        changes.put_inode(&inode);
        changes.put_entry(parent.fid, &request.name, inode.fid, inode.kind());
        changes.put_inode(&parent);
        let handle = if opens { ctx.xid.0 } else { 0 };
        let reply = Created { attr: inode.attr(), layout: inode.layout.clone(), handle, existed: false };
        let done = self.commit(ctx, changes, Reply::Create(reply))?;
        if opens {
            let opener = Opener { session: ctx.session().handle(), handle };
            self.opens.open(inode.fid, opener, writes, true);
            ctx.data().opened(handle, inode.fid);
        }
        Ok(done)
    }

    /// The checks, and the inode as it will be.
    fn new_inode(&self, ctx: &Ctx, request: &Create, parent: &Inode) -> Result<Inode, Code> {
        let cred = &request.cred;
        access::may_change(cred, parent)?;
        let kind = kind(request)?;
        if matches!(kind, FileKind::Char | FileKind::Block) && !access::is_root(cred) {
            return Err(Code::NotPermitted);
        }
        if kind == FileKind::Dir && parent.nlink >= LINKS_MAX {
            return Err(Code::TooManyLinks);
        }
        if !ctx.data().owns(request.fid) || self.find_inode(request.fid)?.is_some() {
            return Err(Code::Invalid);
        }
        let mode = kind.mode_bits() | request.mode & MODE_PERMISSIONS;
        let mut inode = Inode::new(request.fid, mode, request.time);
        access::inherit(cred, parent, &mut inode)?;
        match kind {
            FileKind::File => inode.layout = Some(self.layout_of_new(ctx, request, parent)?),
            FileKind::Dir if parent.fid != Fid::ROOT => inode.hint = parent.hint.clone(),
            FileKind::Symlink => {
                check_target(&request.target)?;
                inode.size = request.target.len() as u64;
                inode.target = request.target.clone();
            }
            FileKind::Char | FileKind::Block => inode.rdev = request.rdev,
            FileKind::Dir | FileKind::Fifo | FileKind::Socket => {}
        }
        Ok(inode)
    }

    fn layout_of_new(&self, ctx: &Ctx, request: &Create, parent: &Inode) -> Result<proto::Layout, Code> {
        let default = self.effective_hint(parent);
        let hint = match &request.hint {
            Some(wanted) => allocate::inherit(wanted, &default),
            None => default,
        };
        let layout = allocate::allocate(request.fid, &hint, &self.osts.table().order, &self.cursor)?;
        if layout.overstriped && ctx.session().features() & FEATURE_OVERSTRIPING == 0 {
            return Err(Code::NotSupported);
        }
        Ok(layout)
    }
}

/// The kind that is to be made; a mode without one means a regular file, as for mknod(2).
fn kind(request: &Create) -> Result<FileKind, Code> {
    match request.mode & MODE_KIND {
        0 => Ok(FileKind::File),
        _ => FileKind::from_mode(request.mode).ok_or(Code::Invalid),
    }
}

fn check_target(target: &[u8]) -> Result<(), Code> {
    match target.len() {
        0 => Err(Code::NotFound),
        len if len > SYMLINK_BYTES_MAX => Err(Code::NameTooLong),
        _ if target.contains(&0) => Err(Code::Invalid),
        _ => Ok(()),
    }
}
