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
use crate::mdt::opens::Told;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

pub(in crate::mdt) fn set_size(mdt: &Mdt, ctx: &Ctx, request: &SetSize) -> Outcome {
    check_size(&request.update)?;
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let inode = mdt.names.inode(ctx, request.fid)?;
    if inode.kind() != FileKind::File {
        return Err(Code::Invalid.into());
    }
    // Behind this nothing is carried out again from its start.
    ctx.need(&[(request.fid, LOCK_UPDATE)])?;
    let is_cutting = mdt.opens.is_cut_by(request.fid, ctx.session().handle());
    // One of this process may come back when others have told already.
    if request.cut && (!is_cutting || inode.size_known) {
        return forget(mdt, ctx, inode);
    }
    let done = take(mdt, ctx, request, (inode, is_cutting));
    if done.is_err() && is_cutting {
        // Its session is over: what it cuts goes with that.
        mdt.opens.truncated(request.fid, cutter(ctx));
    }
    done
}

/// The session was asked, or cuts the file as far as the MDT knows.
fn take(mdt: &Mdt, ctx: &Ctx, request: &SetSize, (mut inode, is_cutting): (Inode, bool)) -> Outcome {
    let session = ctx.session().handle();
    let mut changes = Changes::default();
    if is_cutting {
        changes.remove(keys::cut(ctx.session().client(), request.fid));
    }
    // It tells behind its own cuts, whatever made it tell.
    let told = if is_cutting { Told::Cut } else { Told::Asked(request.question) };
    // A known size was told by whoever wrote; who asked the objects meanwhile may know less.
    let counts = mdt.opens.set_size(request.fid, session, told, &request.update);
    if inode.size_known || !counts {
        return answer(mdt, ctx, changes, question(mdt, &inode, session, is_cutting));
    }
    take_size(&mut inode, &request.update);
    // A copy of what was there before the objects were cut is an old one.
    inode.hsm.data_may_change();
    inode.version = VERSION_OF_THIS;
    changes.put_inode(&inode, LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::ModifyTime, inode.fid, |record| record);
    let settled = msg::Settled { entry: Some(inode.entry()), ..Default::default() };
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
    answer(mdt, ctx, changes, question(mdt, &inode, session, true))
}

/// Asks the session for the size, if it is not known: see [`crate::mdt::opens::Opens::ask`].
fn question(mdt: &Mdt, inode: &Inode, session: u64, takes_over: bool) -> u64 {
    if inode.size_known { 0 } else { mdt.opens.ask(inode.fid, session, takes_over) }
}

/// The size stays as it is.
fn answer(mdt: &Mdt, ctx: &Ctx, changes: Changes, question: u64) -> Outcome {
    let reply = Reply::SetSize(msg::Settled::asking(question));
    if changes.is_empty() { Ok(Done::unchanged(reply)) } else { mdt.commit(ctx, changes, reply) }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{OPEN_WRITE, SetAttr, Settled, SizeUpdate, Sync};
    use proto::{ClientId, Cred, Fid, Transno};

    use super::*;
    use crate::mdt::testing::{Client, World};

    fn tell(client: &Client<'_>, fid: Fid, size: u64, told: Told) -> Settled {
        let update = SizeUpdate { size, blocks: 1, mtime: client.time(), ctime: client.time() };
        let (cut, question) = match told {
            Told::Cut => (true, 0),
            Told::Asked(question) => (false, question),
        };
        client.call(SetSize { fid, update, cut, question }).expect("the file exists")
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

    /// A file of 100 bytes that `a` is about to cut at 40; the MDT restarts, and both are there again.
    fn cut_and_restarted(check: impl FnOnce(&World, [&Client<'_>; 2], Fid)) {
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
        check(&world, [a, b], file);
    }

    /// Another one writes, and is asked what it has written.
    #[test]
    fn a_cut_is_known_after_a_restart() {
        cut_and_restarted(|world, [a, b], file| {
            let opened = b.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
            assert!(!b.close(file, opened.handle, true, Some(100)).wants_size, "somebody cuts it");
            assert!(!tell(b, file, 100, Told::Asked(0)).wants_size);
            assert_eq!((size(b, file), world.keys(keys::CUT)), (None, 1));
            let asked = tell(a, file, 40, Told::Cut).asked();
            let question = asked.expect("it may have asked before the other one wrote");
            assert_eq!((size(b, file), world.keys(keys::CUT)), (None, 0));
            tell(b, file, 100, Told::Asked(question));
            assert_eq!(size(b, file), None, "another one is asked");
            let again = tell(a, file, 100, Told::Asked(question - 1)).asked();
            assert_eq!(size(b, file), None, "something else was asked");
            let question = again.expect("it is asked once more");
            assert!(!tell(a, file, 40, Told::Asked(question)).wants_size);
            assert_eq!(size(b, file), Some(40));
        });
    }

    /// It has the file open, and tells with its close. That does not count for a handle of before the restart, and ends the cut.
    #[test]
    fn a_close_ends_a_cut_of_before_a_restart() {
        let world = World::without_locks();
        let (a, b) = (world.client(1), world.client(2));
        let root = Cred::root();
        let file = a.file(Fid::ROOT, "f");
        let opened = a.open(file, OPEN_WRITE, &root).expect("root may");
        a.call(SetAttr { size: Some(40), ..a.set_attr(file, &root) }).expect("root may");
        world.sync();
        let (boot, xid) = (world.store.boot(), a.xid().max(b.xid()));
        let world = world.crash();
        let [a, _] = &reconnected(&world, boot, xid);
        let asked = a.close(file, opened.handle, true, Some(40)).asked().expect("it does not count");
        assert_eq!((size(a, file), world.keys(keys::CUT)), (None, 0));
        tell(a, file, 40, Told::Asked(asked));
        assert_eq!(size(a, file), Some(40));
    }

    /// The MDT can know of so many alone, and hears of one of its process late: whoever says that it has cut another one is believed.
    #[test]
    fn a_cut_that_was_not_known_counts_more_than_what_was_told_since() {
        let world = World::without_locks();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        for is_restored in [false, true] {
            let opened = b.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
            b.close(file, opened.handle, true, Some(100));
            assert_eq!(size(&b, file), Some(100));
            if is_restored {
                let cutter = crate::mdt::cuts::Cutter { session: a.session(), client: ClientId(1) };
                world.target.handler().opens.restore_cut(file, cutter);
            }
            let asked = tell(&a, file, 40, Told::Cut).asked().expect("as if it had been cut just now");
            assert_eq!(size(&a, file), None);
            tell(&b, file, 100, Told::Asked(asked));
            assert_eq!(size(&a, file), None, "asked before that");
            assert!(!tell(&a, file, 40, Told::Asked(asked)).wants_size);
            assert_eq!(size(&a, file), Some(40));
        }
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
        tell(&a, told, 40, Told::Cut);
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
