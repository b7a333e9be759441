//! CreateUnnamed: a regular file without a name, open at once (O_TMPFILE).
//!
//! It is an orphan from its first moment: its last close takes it away, and so does a restart after which nobody opens
//! it again. What its orphan key says decides whether Link may give it a name.

use proto::Code;
use proto::FileKind;
use proto::wire::Reply;
use proto::wire::messages::{CreateUnnamed, OPEN_EXCLUSIVE, OPEN_WRITE};

use super::create::{New, Opening, Wanted};
use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

pub(in crate::mdt) fn create_unnamed(mdt: &Mdt, ctx: &Ctx, request: &CreateUnnamed) -> Outcome {
    if request.open & OPEN_WRITE == 0 {
        return Err(Code::Invalid.into());
    }
    let _inodes = mdt.names.locks.inodes(&[request.parent, request.fid]);
    let parent = mdt.names.living_dir(ctx, request.parent)?;
    let wanted = Wanted {
        fid: request.fid,
        kind: FileKind::File,
        mode: request.mode,
        umask: request.umask,
        rdev: 0,
        target: &[],
        hint: request.hint.as_ref(),
        foretold: None,
        cred: &request.cred,
        time: request.time,
    };
    let mut inode = super::create::new_inode(mdt, ctx, &wanted, &parent)?;
    inode.nlink = 0;
    inode.size_known = false;
    ctx.data().has_room()?;
    let handle = ctx.xid.0;
    let mut changes = Changes::default();
    changes.add_inode(&inode);
    changes.bound(mdt.quotas.bounds(mdt, ctx, &request.cred, &inode)?);
    let linkable = request.open & OPEN_EXCLUSIVE == 0;
    changes.put_raw(keys::orphan(inode.fid), keys::orphan_value(linkable));
    changes.put_raw(keys::open(ctx.session().client(), handle), keys::open_value(inode.fid));
    let new = New { inode: &inode, opening: Some(Opening { handle, writes: true }) };
    super::create::finish(mdt, ctx, changes, &new, Reply::CreateUnnamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{Client, World, name, user};
    use proto::wire::messages::{Created, Link, OPEN_READ};
    use proto::{Cred, Fid};

    fn unnamed(client: &Client, parent: Fid, open: u32, cred: Cred) -> Result<Created, Code> {
        let (fid, time) = (client.new_fid(), client.time());
        client.call(CreateUnnamed { parent, fid, mode: 0o666, open, hint: None, cred, time, umask: 0o022 })
    }

    fn link(client: &Client, fid: Fid, text: &str) -> Result<u32, Code> {
        let (name, time) = (name(text), client.time());
        let link = Link { fid, parent: Fid::ROOT, name, cred: Cred::root(), time };
        client.call(link).map(|entry| entry.attr.nlink)
    }

    #[test]
    fn it_goes_with_its_last_close() {
        let world = World::new();
        let client = world.client(1);
        let before = client.attr(Fid::ROOT);
        let made = unnamed(&client, Fid::ROOT, OPEN_READ | OPEN_WRITE, Cred::root()).expect("root may");
        assert_eq!((made.attr.nlink, made.attr.mode, made.existed), (0, 0o100_644, false));
        assert_eq!(client.attr(Fid::ROOT), before, "the directory does not change");
        assert_eq!(client.names(Fid::ROOT), [""; 0]);
        assert_eq!(world.keys(keys::ORPHAN), 1);
        client.close(made.attr.fid, made.handle, true, Some(5));
        assert_eq!(client.attr(made.attr.fid), Err(Code::Stale));
        assert_eq!((world.keys(keys::ORPHAN), world.keys(keys::OPEN), world.keys(keys::INODE)), (0, 0, 1));
        assert_eq!(world.destroys().len(), 1, "what was written to it goes too");
    }

    #[test]
    fn it_can_get_a_name_once() {
        let world = World::new();
        let client = world.client(1);
        let made = unnamed(&client, Fid::ROOT, OPEN_WRITE, Cred::root()).expect("root may");
        let fid = made.attr.fid;
        assert_eq!(link(&client, fid, "f"), Ok(1));
        assert_eq!(world.keys(keys::ORPHAN), 0);
        client.unlink(Fid::ROOT, "f").expect("it has a name");
        assert_eq!(link(&client, fid, "g"), Err(Code::NotFound), "an unlinked file stays so");
        client.close(fid, made.handle, false, None);
        assert_eq!(client.attr(fid), Err(Code::Stale));
        let made = unnamed(&client, Fid::ROOT, OPEN_WRITE, Cred::root()).expect("root may");
        assert_eq!(link(&client, made.attr.fid, "f"), Ok(1));
        client.close(made.attr.fid, made.handle, true, Some(7));
        assert_eq!(client.attr(made.attr.fid).map(|attr| (attr.nlink, attr.size)), Ok((1, 7)));
    }

    #[test]
    fn refusals() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let make = |parent, open, uid| unnamed(&client, parent, open, user(uid)).map(|made| made.attr.fid);
        assert_eq!(make(Fid::ROOT, OPEN_WRITE, 5), Err(Code::AccessDenied));
        assert_eq!(make(Fid::ROOT, OPEN_READ, 0), Err(Code::Invalid));
        assert_eq!(make(file, OPEN_WRITE, 0), Err(Code::NotDirectory));
        let exclusive = make(Fid::ROOT, OPEN_WRITE | OPEN_EXCLUSIVE, 0).expect("root may");
        assert_eq!(link(&client, exclusive, "g"), Err(Code::NotFound));
        let hint = None;
        let (cred, time) = (Cred::root(), client.time());
        let again = CreateUnnamed {
            parent: Fid::ROOT,
            fid: file,
            mode: 0,
            open: OPEN_WRITE,
            hint,
            cred,
            time,
            umask: 0,
        };
        assert_eq!(client.call(again), Err(Code::Invalid), "the FID has been used");
    }

    #[test]
    fn it_survives_a_restart_only_while_it_is_open() {
        let world = World::new();
        let client = world.client(1);
        let kept = unnamed(&client, Fid::ROOT, OPEN_WRITE, Cred::root()).expect("root may").attr.fid;
        let lost = unnamed(&world.client(2), Fid::ROOT, OPEN_WRITE, Cred::root()).expect("root may").attr.fid;
        world.sync();
        let boot = world.store.boot();
        let world = world.crash();
        let client = world.connect(proto::ClientId(1), boot, 2).expect("a known client");
        client.skip_to(1000);
        assert_eq!(client.attr(kept).map(|attr| attr.nlink), Ok(0));
        world.sim.run_for(std::time::Duration::from_secs(200));
        assert_eq!(client.attr(lost), Err(Code::Stale), "its client did not come back");
        assert_eq!(client.attr(kept).map(|attr| attr.nlink), Ok(0));
        assert_eq!(link(&client, kept, "f"), Ok(1));
    }
}
