//! Link: one more name for a file.

use proto::limits::LINKS_MAX;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, Link};
use proto::{Code, FileKind};

use crate::mdt::{Changes, Ctx, Mdt, Outcome, access};

impl Mdt {
    pub(in crate::mdt) fn link(&self, ctx: &Ctx, request: &Link) -> Outcome {
        let _name = self.locks.name(request.parent, &request.name);
        let _inodes = self.locks.inodes(&[request.parent, request.fid]);
        let mut parent = self.living_dir(request.parent)?;
        access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
        if self.find_entry(request.parent, &request.name)?.is_some() {
            return Err(Code::Exists);
        }
        access::may_change(&request.cred, &parent)?;
        let mut inode = self.inode(request.fid)?;
        match inode.kind() {
            FileKind::Dir => return Err(Code::NotPermitted),
            _ if inode.nlink == 0 => return Err(Code::NotFound),
            _ if inode.nlink >= LINKS_MAX => return Err(Code::TooManyLinks),
            _ => {}
        }
        inode.nlink += 1;
        inode.touch(request.time);
        parent.touch_data(request.time);
        let mut changes = Changes::default();
        changes.put_inode(&inode);
        changes.put_entry(parent.fid, &request.name, inode.fid, inode.kind());
        changes.put_inode(&parent);
        self.commit(ctx, changes, Reply::Link(inode.entry()))
    }
}
