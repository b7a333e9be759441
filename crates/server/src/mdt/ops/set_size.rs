//! SetSize: a client has asked the objects and tells the size.

use proto::changelog::Kind;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, LOCK_UPDATE, SetSize};
use proto::{Code, FileKind};
use service::{Done, VERSION_OF_THIS};

use super::close::{check_size, take_size};
use super::set_attr::cutter;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

pub(in crate::mdt) fn set_size(mdt: &Mdt, ctx: &Ctx, request: &SetSize) -> Outcome {
    check_size(&request.update)?;
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    if inode.kind() != FileKind::File {
        return Err(Code::Invalid.into());
    }
    // Behind this nothing is carried out again from its start.
    ctx.need(&[(request.fid, LOCK_UPDATE)])?;
    let session = ctx.session().handle();
    let is_cutting = mdt.opens.is_cut_by(request.fid, session);
    if request.cut && !is_cutting {
        return forget(mdt, ctx, inode);
    }
    // It tells behind its own cuts, whatever made it tell.
    let cut = request.cut || is_cutting;
    // A known size was told by whoever wrote; who asked the objects meanwhile may know less.
    let counts = mdt.opens.set_size(request.fid, session, cut, &request.update);
    let mut changes = Changes::default();
    if is_cutting {
        changes.remove(keys::cut(ctx.session().client(), request.fid));
    }
    if inode.size_known || !counts {
        let wants_size = !inode.size_known && mdt.opens.wants_size(request.fid, session, cut);
        return answer(mdt, ctx, changes, wants_size);
    }
    take_size(&mut inode, &request.update);
    // A copy of what was there before the objects were cut is an old one.
    inode.hsm.data_may_change();
    inode.version = VERSION_OF_THIS;
    changes.put_inode(&inode, LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::ModifyTime, inode.fid, |record| record);
    let settled = msg::Settled { entry: Some(inode.entry()), wants_size: false };
    let done = mdt.commit(ctx, changes, Reply::SetSize(settled))?;
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS)
}

/// The MDT did not know that the session has cut the file: a size that it has been told since may have been asked for before. It is not known any
/// more, and is asked for.
fn forget(mdt: &Mdt, ctx: &Ctx, mut inode: Inode) -> Outcome {
    let (fid, session) = (inode.fid, ctx.session().handle());
    let mut changes = Changes::default();
    // The size of one whose data is in the archive alone is that of the copy.
    if inode.size_known && !inode.hsm.is_there_alone() {
        inode.size_known = false;
        inode.hsm.data_may_change();
        inode.version = VERSION_OF_THIS;
        changes.put_inode(&inode, LOCK_UPDATE);
    }
    // There may be one of which memory had no room for.
    changes.remove(keys::cut(ctx.session().client(), fid));
    mdt.opens.was_cut(fid, cutter(ctx));
    let wants_size = !inode.size_known && mdt.opens.wants_size(fid, session, true);
    answer(mdt, ctx, changes, wants_size)
}

/// The size stays as it is.
fn answer(mdt: &Mdt, ctx: &Ctx, changes: Changes, wants_size: bool) -> Outcome {
    let reply = Reply::SetSize(msg::Settled { wants_size, ..Default::default() });
    if changes.is_empty() { Ok(Done::unchanged(reply)) } else { mdt.commit(ctx, changes, reply) }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{OPEN_WRITE, SetAttr, Settled, SizeUpdate, Sync};
    use proto::{ClientId, Cred, Fid, Transno};

    use super::*;
    use crate::mdt::testing::{Client, World};

    fn tell(client: &Client<'_>, fid: Fid, size: u64, cut: bool) -> Settled {
        let update = SizeUpdate { size, blocks: 1, mtime: client.time(), ctime: client.time() };
        client.call(SetSize { fid, update, cut }).expect("the file exists")
    }

    /// The clients of before a restart are there again, and have nothing to replay.
    fn reconnected(world: &World, boot: u64, xid: u64) -> [Client<'_>; 2] {
        let both = [1, 2].map(|id| world.connect(ClientId(id), boot, 2).expect("a known client"));
        both.iter().for_each(|client| client.skip_to(xid));
        let first = both[0].start(xid + 1, Sync { transno: Transno(0) });
        both[1].call(Sync { transno: Transno(0) }).expect("nobody has anything to replay");
        assert!(world.sim.run(first).result.is_ok());
        both.iter().for_each(|client| client.skip_to(xid + 1));
        both
    }

    fn size(client: &Client<'_>, file: Fid) -> Option<u64> {
        client.attr(file).map(|attr| attr.size_known.then_some(attr.size)).expect("it exists")
    }

    /// One has cut the file and is not done with its objects. The MDT restarts, another one writes, and is asked what it has written.
    #[test]
    fn a_cut_is_known_after_a_restart() {
        let world = World::without_locks();
        let (a, b) = (world.client(1), world.client(2));
        let root = Cred::root();
        let file = a.file(Fid::ROOT, "f");
        let opened = a.open(file, OPEN_WRITE, &root).expect("root may");
        a.close(file, opened.handle, true, Some(100));
        a.call(SetAttr { size: Some(40), ..a.set_attr(file, &root) }).expect("root may");
        world.sync();
        let (boot, xid) = (world.store.boot(), a.xid().max(b.xid()));
        let world = world.crash();
        let [a, b] = &reconnected(&world, boot, xid);
        let opened = b.open(file, OPEN_WRITE, &root).expect("root may");
        b.close(file, opened.handle, true, Some(100));
        assert_eq!(size(b, file), None, "somebody cuts it");
        assert!(!tell(b, file, 100, false).wants_size);
        assert_eq!((size(b, file), world.keys(keys::CUT)), (None, 1));
        assert!(tell(a, file, 40, true).wants_size, "it may have asked before the other one wrote");
        assert_eq!((size(b, file), world.keys(keys::CUT)), (None, 0));
        tell(b, file, 100, false);
        assert_eq!(size(b, file), None, "another one is asked");
        assert!(!tell(a, file, 40, false).wants_size);
        assert_eq!(size(b, file), Some(40));
    }

    /// The MDT can know of so many alone: whoever says that it has cut another one is believed.
    #[test]
    fn a_cut_that_was_not_known_counts_more_than_what_was_told_since() {
        let world = World::without_locks();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        let opened = b.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
        b.close(file, opened.handle, true, Some(100));
        assert_eq!(size(&b, file), Some(100));
        assert!(tell(&a, file, 40, true).wants_size, "as if it had been cut just now");
        assert_eq!(size(&a, file), None);
        tell(&b, file, 100, false);
        assert_eq!(size(&a, file), None, "asked before that");
        assert!(!tell(&a, file, 40, false).wants_size);
        assert_eq!(size(&a, file), Some(40));
    }

    /// What the store knows of a cut goes with the word of whoever cut, with its close, with the file and with the client.
    #[test]
    fn nothing_is_left_of_cuts() {
        let world = World::without_locks();
        let a = world.client(1);
        let root = Cred::root();
        let cut = |client: &Client<'_>, name| {
            let file = client.file(Fid::ROOT, name);
            client.call(SetAttr { size: Some(40), ..client.set_attr(file, &root) }).expect("root may");
            file
        };
        let told = cut(&a, "told");
        assert_eq!(world.keys(keys::CUT), 1);
        tell(&a, told, 40, true);
        assert_eq!((size(&a, told), world.keys(keys::CUT)), (Some(40), 0));
        let opened = a.open(told, OPEN_WRITE, &root).expect("root may");
        a.call(SetAttr { size: Some(50), ..a.set_attr(told, &root) }).expect("root may");
        assert_eq!(world.keys(keys::CUT), 1);
        a.close(told, opened.handle, true, Some(50));
        assert_eq!((size(&a, told), world.keys(keys::CUT)), (Some(50), 0));
        cut(&a, "gone");
        a.unlink(Fid::ROOT, "gone").expect("root may");
        assert_eq!(world.keys(keys::CUT), 0);
        cut(&a, "left");
        assert_eq!(world.keys(keys::CUT), 1);
        world.connect(ClientId(1), 0, 2).expect("it begins anew");
        assert_eq!(world.keys(keys::CUT), 0);
    }
}
