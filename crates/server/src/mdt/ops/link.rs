//! Link: one more name for a file.

use proto::changelog::Kind;
use proto::limits::LINKS_MAX;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, LOCK_UPDATE, Link};
use proto::{Code, FileKind};

use crate::mdt::keep::KEEP_NAME;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog, keys};

pub(in crate::mdt) fn link(mdt: &Mdt, ctx: &Ctx, request: &Link) -> Outcome {
    let _name = mdt.names.locks.name(request.parent, &request.name);
    let _inodes = mdt.names.locks.inodes(&[request.parent, request.fid]);
    let mut parent = mdt.names.living_dir(ctx, request.parent)?;
    access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
    if mdt.names.find_entry(ctx, request.parent, &request.name)?.is_some() {
        return Err(Code::Exists.into());
    }
    access::may_change(&request.cred, &parent)?;
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    match inode.kind() {
        FileKind::Dir => return Err(Code::NotPermitted.into()),
        _ if inode.nlink == 0 && !mdt.names.is_linkable(ctx.reads(), inode.fid)? => {
            return Err(Code::NotFound.into());
        }
        _ if inode.nlink >= LINKS_MAX => return Err(Code::TooManyLinks.into()),
        _ if !inode.fits_into(&parent) => return Err(Code::CrossDevice.into()),
        _ => {}
    }
    let mut changes = Changes::default();
    if inode.nlink == 0 {
        changes.remove(keys::orphan(inode.fid));
    }
    inode.nlink += 1;
    inode.touch(request.time);
    parent.touch_data(request.time);
    changes.put_inode(&inode, LOCK_UPDATE);
    changes.put_entry(parent.fid, &request.name, inode.fid, inode.kind());
    changes.put_inode(&parent, LOCK_UPDATE);
    let named = changelog::named(parent.fid, &request.name, &request.cred);
    mdt.tell(&mut changes, Kind::Link, inode.fid, named);
    let done = mdt.commit(ctx, changes, Reply::Link(inode.entry()))?;
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{World, name, user};
    use proto::wire::messages::FidToPath;
    use proto::{Cred, Fid};

    #[test]
    fn links_and_refusals() {
        let world = World::new();
        let client = world.client(1);
        let (dir, file) = (client.mkdir(Fid::ROOT, "d"), client.file(Fid::ROOT, "f"));
        let link = |fid, parent, text, cred: Cred| {
            let (name, time) = (name(text), client.time());
            client.call(Link { fid, parent, name, cred, time }).map(|entry| entry.attr.nlink)
        };
        assert_eq!(link(file, dir, "g", Cred::root()), Ok(2));
        assert_eq!(link(file, dir, "g", Cred::root()), Err(Code::Exists));
        assert_eq!(link(dir, dir, "h", Cred::root()), Err(Code::NotPermitted));
        assert_eq!(link(file, dir, "h", user(5)), Err(Code::AccessDenied));
        let mut paths = client.call(FidToPath { fid: file, cred: Cred::root() }).expect("it exists").paths;
        paths.sort();
        assert_eq!(paths, ["d/g", "f"]);
        assert_eq!(client.unlink(Fid::ROOT, "f").map(|unlinked| unlinked.nlink), Ok(1));
        assert_eq!(client.lookup(dir, "g").map(|attr| attr.fid), Ok(file));
    }
}
