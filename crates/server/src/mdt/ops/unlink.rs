//! Unlink: a name goes (unlink and rmdir); with the last one the file.

use proto::changelog::{Kind, LAST_NAME, Record};
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, LOCK_LOOKUP, LOCK_UPDATE, Unlink, Unlinked};
use proto::{Code, Fid};

use crate::mdt::inode::Inode;
use crate::mdt::plan::Step;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog};

pub(in crate::mdt) fn unlink(mdt: &Mdt, ctx: &Ctx, request: &Unlink) -> Outcome {
    let _name = mdt.names.locks.name(request.parent, &request.name);
    let fid = find(mdt, ctx, request)?;
    let _inodes = mdt.names.locks.inodes(&[request.parent, fid]);
    let (victim, changes) = plan(mdt, ctx, request, fid)?;
    mdt.commit(ctx, changes, Reply::Unlink(Unlinked { fid, nlink: victim.nlink }))
}

/// What the name means. The caller holds its guard.
pub(super) fn find(mdt: &Mdt, ctx: &Ctx, request: &Unlink) -> Step<Fid> {
    if let Some((fid, _)) = mdt.names.find_entry(ctx, request.parent, &request.name)? {
        return Ok(fid);
    }
    access::may(&request.cred, &mdt.names.dir(ctx, request.parent)?, ACCESS_EXECUTE)?;
    Err(Code::NotFound.into())
}

/// What is to be committed, and the file as it is then. The caller holds the guards of the name and of both inodes.
pub(super) fn plan(mdt: &Mdt, ctx: &Ctx, request: &Unlink, fid: Fid) -> Step<(Inode, Changes)> {
    let mut parent = mdt.names.dir(ctx, request.parent)?;
    access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
    let mut victim = mdt.names.inode(ctx, fid)?;
    access::may_remove(&request.cred, &parent, &victim)?;
    check_kind(mdt, ctx, request, &victim)?;
    let mut changes = Changes::default();
    changes.remove_entry(parent.fid, &request.name, fid);
    parent.touch_data(request.time);
    if victim.is_dir() {
        parent.lose_link();
        mdt.drop_name(&ctx.plan, &mut changes, &mut victim, request.time)?;
    } else if victim.nlink <= 1 {
        mdt.drop_name(&ctx.plan, &mut changes, &mut victim, request.time)?;
    } else {
        victim.lose_link();
        victim.touch(request.time);
        changes.put_inode(&victim, LOCK_LOOKUP | LOCK_UPDATE);
    }
    changes.put_inode(&parent, LOCK_UPDATE);
    let kind = if victim.is_dir() { Kind::RemoveDir } else { Kind::Unlink };
    let flags = if victim.nlink == 0 { LAST_NAME } else { 0 };
    let named = changelog::named(parent.fid, &request.name, &request.cred);
    mdt.tell(&mut changes, kind, fid, |record| Record { flags, ..named(record) });
    Ok((victim, changes))
}

fn check_kind(mdt: &Mdt, ctx: &Ctx, request: &Unlink, victim: &Inode) -> Step<()> {
    match (request.directory, victim.is_dir()) {
        (true, false) => Err(Code::NotDirectory.into()),
        (false, true) => Err(Code::IsDirectory.into()),
        (true, true) if !mdt.names.is_empty(ctx, victim)? => Err(Code::NotEmpty.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::keys;
    use crate::mdt::testing::{World, user};
    use proto::wire::messages::{OPEN_READ, OPEN_WRITE};
    use proto::{Cred, OstIndex};

    #[test]
    fn refusals() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        client.file(dir, "f");
        client.mkdir(dir, "sub");
        client.file(Fid::ROOT, "top");
        let full = client.lookup(dir, "sub").expect("it was made").fid;
        client.file(full, "x");
        let table = [
            ("missing", false, 0, Code::NotFound),
            ("missing", true, 0, Code::NotFound),
            ("sub", false, 0, Code::IsDirectory),
            ("f", true, 0, Code::NotDirectory),
            ("sub", true, 0, Code::NotEmpty),
            ("f", false, 5, Code::AccessDenied),
            ("missing", false, 5, Code::NotFound),
            ("sub", true, 5, Code::AccessDenied),
        ];
        for (text, directory, uid, expected) in table {
            let refused = client.remove(dir, text, directory, &user(uid));
            assert_eq!(refused, Err(expected), "{text} {directory} {uid}");
        }
        client.chmod(dir, 0o1777);
        assert_eq!(client.remove(dir, "f", false, &user(5)), Err(Code::NotPermitted));
        client.chmod(dir, 0o700);
        assert_eq!(client.remove(dir, "missing", false, &user(5)), Err(Code::AccessDenied));
    }

    #[test]
    fn the_last_name_takes_the_inode_along() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        let file = client.file(dir, "f");
        assert_eq!(client.unlink(dir, "f").map(|unlinked| unlinked.nlink), Ok(0));
        assert_eq!(client.attr(file), Err(Code::Stale));
        assert_eq!(client.lookup(dir, "f"), Err(Code::NotFound));
        client.rmdir(Fid::ROOT, "d").expect("it is empty");
        assert_eq!(client.attr(Fid::ROOT).map(|attr| attr.nlink), Ok(2));
        assert_eq!((world.keys(keys::INODE), world.keys(keys::ENTRY), world.keys(keys::LINK)), (1, 0, 0));
        assert_eq!(world.destroys(), [], "a file that was never written has no objects");
    }

    #[test]
    fn written_files_go_on_the_destroy_list() {
        let world = World::new();
        let client = world.client(1);
        let hint = proto::layout::LayoutHint { stripe_count: 2, start_index: 0, ..Default::default() };
        let file = client.file_with(Fid::ROOT, "f", hint).expect("a file").attr.fid;
        let opened = client.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
        client.close(file, opened.handle, true, Some(10));
        client.unlink(Fid::ROOT, "f").expect("it exists");
        let destroys = world.destroys().into_iter().map(|(of, id, stripes)| (of.ost(), id, stripes));
        assert_eq!(
            destroys.collect::<Vec<_>>(),
            [(Some(OstIndex(0)), file, vec![0]), (Some(OstIndex(2)), file, vec![1])]
        );
    }

    #[test]
    fn open_files_live_until_they_are_closed() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let (a, b) =
            (client.open(file, OPEN_READ, &Cred::root()), client.open(file, OPEN_WRITE, &Cred::root()));
        let (a, b) = (a.expect("root may").handle, b.expect("root may").handle);
        client.unlink(Fid::ROOT, "f").expect("it exists");
        assert_eq!(client.attr(file).map(|attr| attr.nlink), Ok(0));
        client.close(file, b, true, None);
        assert_eq!(world.keys(keys::ORPHAN), 1);
        client.close(file, a, false, None);
        assert_eq!(client.attr(file), Err(Code::Stale));
        assert_eq!(world.keys(keys::ORPHAN), 0);
        assert_eq!(world.destroys().len(), 1);
    }

    #[test]
    fn a_client_that_leaves_closes_what_it_had_open() {
        let world = World::new();
        let (client, other) = (world.client(1), world.client(2));
        let file = client.file(Fid::ROOT, "f");
        client.open(file, OPEN_READ, &Cred::root()).expect("root may");
        other.unlink(Fid::ROOT, "f").expect("it exists");
        assert_eq!(other.attr(file).map(|attr| attr.nlink), Ok(0));
        client.call(proto::wire::messages::Disconnect {}).expect("it is connected");
        assert_eq!(other.attr(file), Err(Code::Stale));
        assert_eq!(client.attr(file), Err(Code::NoSession));
    }

    #[test]
    fn orphans_are_cleaned_after_a_restart() {
        let world = World::new();
        let client = world.client(1);
        let (file, kept) = (client.file(Fid::ROOT, "f"), client.file(Fid::ROOT, "g"));
        for (fid, text) in [(file, "f"), (kept, "g")] {
            client.open(fid, OPEN_READ, &Cred::root()).expect("root may");
            client.unlink(Fid::ROOT, text).expect("it exists");
        }
        world.sync();
        let boot = world.store.boot();
        let world = world.crash();
        let client = world.connect(proto::ClientId(1), boot, 2).expect("a known client");
        client.skip_to(1000);
        client.open(kept, OPEN_READ, &Cred::root()).expect("it is opened again");
        world.sim.run_for(std::time::Duration::from_secs(200));
        assert_eq!(client.attr(file), Err(Code::Stale));
        assert_eq!(client.attr(kept).map(|attr| attr.nlink), Ok(0));
    }
}
