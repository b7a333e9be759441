//! Unlink: a name goes (unlink and rmdir); with the last one the file.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, Unlink, Unlinked};

use crate::mdt::inode::Inode;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access};

impl Mdt {
    pub(in crate::mdt) fn unlink(&self, ctx: &Ctx, request: &Unlink) -> Outcome {
        let _name = self.locks.name(request.parent, &request.name);
        let found = self.find_entry(request.parent, &request.name)?;
        let Some((fid, _)) = found else {
            access::may(&request.cred, &self.dir(request.parent)?, ACCESS_EXECUTE)?;
            return Err(Code::NotFound);
        };
        let _inodes = self.locks.inodes(&[request.parent, fid]);
        let mut parent = self.dir(request.parent)?;
        access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
        let mut victim = self.inode(fid)?;
        access::may_remove(&request.cred, &parent, &victim)?;
        self.check_kind(request, &victim)?;
        let mut changes = Changes::default();
        changes.remove_entry(parent.fid, &request.name, fid);
        victim.touch(request.time);
        parent.touch_data(request.time);
        if victim.is_dir() {
            parent.nlink -= 1;
            self.drop_name(&mut changes, &mut victim)?;
        } else if victim.nlink <= 1 {
            self.drop_name(&mut changes, &mut victim)?;
        } else {
            victim.nlink -= 1;
            changes.put_inode(&victim);
        }
        changes.put_inode(&parent);
        self.commit(ctx, changes, Reply::Unlink(Unlinked { fid, nlink: victim.nlink }))
    }

    fn check_kind(&self, request: &Unlink, victim: &Inode) -> Result<(), Code> {
        match (request.directory, victim.is_dir()) {
            (true, false) => Err(Code::NotDirectory),
            (false, true) => Err(Code::IsDirectory),
            (true, true) if !self.is_empty(victim.fid)? => Err(Code::NotEmpty),
            _ => Ok(()),
        }
    }
}
