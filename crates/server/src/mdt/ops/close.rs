//! Close: the file is in use no more; the last writer tells its size.

use proto::changelog::Kind;
use proto::types::access_counts;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, Close, LOCK_UPDATE, NOT_OPEN, SizeUpdate};
use proto::{Code, Timestamp};
use service::{Done, VERSION_OF_THIS};

use super::set_attr::cutter;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::opens::{ClosedSize, OpenMode, Opener};
use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

/// A handle that is not known is one of before a restart, or closed already: that is no error.
pub(in crate::mdt) fn close_file(mdt: &Mdt, ctx: &Ctx, request: &Close) -> Outcome {
    let reply = Reply::Close(msg::Settled::default());
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let atime = request.atime.filter(|atime| !mdt.opens.atime_was_set_after(request.fid, *atime));
    let request = &Close { atime, ..request.clone() };
    let opener = Opener { session: ctx.session().handle(), handle: request.handle };
    let found = mdt.names.find_inode(ctx, request.fid)?;
    if request.handle == NOT_OPEN {
        return access(mdt, ctx, request, found);
    }
    // The last writer brings size and times, a reader perhaps the time of its access. Others are called back, and what goes with a
    // file that has no name is known, before anything is changed here.
    let accessed = found.as_ref().and_then(|inode| new_atime(inode, request)).is_some();
    if accessed || mdt.opens.is_last_writer(request.fid, opener) {
        ctx.need(&[(request.fid, LOCK_UPDATE)])?;
    }
    if let Some(nameless) = found.as_ref().filter(|inode| inode.nlink == 0) {
        ctx.plan.xattrs(nameless)?;
        mdt.names.counted(ctx.reads(), nameless)?;
    }
    if !ctx.data().closed(request.handle, request.fid) {
        return Ok(Done::unchanged(reply));
    }
    let closed = mdt.opens.close(request.fid, opener, request.wrote, request.size.clone());
    let Some(closed) = closed else { return Ok(Done::unchanged(reply)) };
    let Some(mut inode) = found else { return Ok(Done::unchanged(reply)) };
    let (mut changes, mut shown) = (Changes::default(), None);
    // Nobody would ever tell it: what a close says counts no more after a restart, for one, or beside other writers.
    let question = match closed.size {
        ClosedSize::Unknown if inode.nlink > 0 => mdt.opens.ask(request.fid, ctx.session().handle(), true),
        _ => 0,
    };
    if closed.write {
        changes.remove(keys::open(ctx.session().client(), request.handle));
    }
    if closed.cut {
        changes.remove(keys::cut(ctx.session().client(), request.fid));
    }
    if closed.last && inode.nlink == 0 {
        mdt.closed_last(&ctx.plan, &mut changes, &inode)?;
    } else {
        let before = inode.clone();
        if settle(&mut inode, request, closed.size) {
            inode.version = VERSION_OF_THIS;
            changes.put_inode(&inode, before.seen_changes(&inode));
            let kind = if closed.write { Kind::Close } else { Kind::AccessTime };
            mdt.tell(&mut changes, kind, inode.fid, |record| record);
            shown = Some(inode.entry());
        }
    }
    let is_shown = shown.is_some();
    let reply = Reply::Close(msg::Settled { entry: shown, ..msg::Settled::asking(question) });
    if changes.is_empty() {
        return Ok(Done::unchanged(reply));
    }
    let done = match mdt.commit(ctx, changes, reply) {
        Ok(done) => done,
        Err(error) => {
            // Its session is over: it is closed as all that the session had.
            if closed.cut {
                mdt.opens.truncated(request.fid, cutter(ctx));
            }
            mdt.opens.open(request.fid, opener, OpenMode { write: closed.write, size_known: false });
            ctx.data().opened(request.handle, request.fid);
            return Err(error);
        }
    };
    if is_shown { mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS) } else { Ok(done) }
}

/// A client has read what it had opened without the MDT. What was read before the inode changed last does not count.
fn access(mdt: &Mdt, ctx: &Ctx, request: &Close, found: Option<Inode>) -> Outcome {
    let settled = |entry| Reply::Close(msg::Settled { entry, ..Default::default() });
    let Some(mut inode) = found.filter(|inode| inode.nlink > 0) else {
        return Ok(Done::unchanged(settled(None)));
    };
    let Some(atime) = new_atime(&inode, request).filter(|atime| *atime > inode.ctime) else {
        // The client hears what the time is.
        let done = Done::unchanged(settled(Some(inode.entry())));
        return mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS);
    };
    ctx.need(&[(inode.fid, LOCK_UPDATE)])?;
    let before = inode.clone();
    inode.atime = atime;
    inode.version = VERSION_OF_THIS;
    let mut changes = Changes::default();
    changes.put_inode(&inode, before.seen_changes(&inode));
    mdt.tell(&mut changes, Kind::AccessTime, inode.fid, |record| record);
    let done = mdt.commit(ctx, changes, settled(Some(inode.entry())))?;
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS)
}

/// The time of access that the close brings, if it counts. Of several readers after a change the first one's does: the
/// others would call each other's attributes back for nothing that anybody asks for.
fn new_atime(inode: &Inode, request: &Close) -> Option<Timestamp> {
    request
        .atime
        .filter(|atime| *atime > inode.atime && access_counts(inode.atime, inode.mtime, inode.ctime, *atime))
}

/// What the close says goes into the inode; says whether that changed it.
fn settle(inode: &mut Inode, request: &Close, size: ClosedSize) -> bool {
    let before = inode.clone();
    inode.atime = new_atime(inode, request).unwrap_or(inode.atime);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::World;
    use proto::wire::messages::{OPEN_READ, OPEN_WRITE, SetSize};
    use proto::{Cred, Fid};

    #[test]
    fn the_last_writer_tells_the_size() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let root = Cred::root();
        let file = a.file(Fid::ROOT, "f");
        let size = || a.attr(file).map(|attr| attr.size_known.then_some(attr.size)).expect("it exists");
        let first = a.open(file, OPEN_WRITE, &root).expect("root may");
        assert!(!first.attr.size_known);
        let second = b.open(file, OPEN_WRITE, &root).expect("root may");
        a.close(file, first.handle, true, Some(100));
        assert_eq!(size(), None);
        b.close(file, second.handle, true, Some(30));
        assert_eq!(size(), None, "neither knows what the other wrote after it had asked the objects");
        let alone = b.open(file, OPEN_WRITE, &root).expect("root may");
        b.close(file, alone.handle, true, Some(100));
        assert_eq!(size(), Some(100));
        let idle = b.open(file, OPEN_WRITE, &root).expect("root may");
        assert_eq!(size(), None);
        b.close(file, idle.handle, false, None);
        assert_eq!(size(), Some(100), "nobody wrote");
        let crashed = b.open(file, OPEN_WRITE, &root).expect("root may");
        b.close(file, crashed.handle, true, None);
        assert_eq!(size(), None);
        b.close(file, crashed.handle, true, None);
        let update = |size| SizeUpdate { size, blocks: 1, mtime: a.time(), ctime: a.time() };
        a.call(SetSize { fid: file, update: update(40), cut: false, question: 0 }).expect("the file exists");
        assert_eq!(size(), None, "others may have written since it asked the objects");
        let cut = proto::wire::messages::SetAttr { size: Some(40), ..a.set_attr(file, &root) };
        a.call(cut).expect("root may");
        a.call(SetSize { fid: file, update: update(40), cut: false, question: 0 }).expect("the file exists");
        assert_eq!(size(), Some(40));
        a.call(SetSize { fid: file, update: update(50), cut: false, question: 0 }).expect("the file exists");
        assert_eq!(size(), Some(40), "a size that is known is not overwritten by whoever asks the objects");
    }

    #[test]
    fn a_time_of_access_that_is_set_stays() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let root = Cred::root();
        let file = a.file(Fid::ROOT, "f");
        let open = |client: &crate::mdt::testing::Client| {
            client.open(file, OPEN_READ, &root).expect("root may").handle
        };
        let close = |client: &crate::mdt::testing::Client, handle, atime| {
            let close = Close { fid: file, handle, atime: Some(atime), size: None, wrote: false };
            client.call(close).expect("a close does not fail");
        };
        let (first, second) = (open(&a), open(&b));
        let accessed = a.time();
        let past = Timestamp { secs: -5, nanos: 0 };
        let time = proto::wire::messages::TimeChange { time: past, now: false };
        let set = proto::wire::messages::SetAttr { atime: Some(time), ..a.set_attr(file, &root) };
        a.call(set).expect("root may");
        close(&a, first, accessed);
        close(&b, second, accessed);
        assert_eq!(a.attr(file).map(|attr| attr.atime), Ok(past), "both read before it was set");
        let third = open(&b);
        let later = b.time();
        close(&b, third, later);
        assert_eq!(a.attr(file).map(|attr| attr.atime), Ok(later));
    }

    #[test]
    fn a_size_survives_and_an_open_file_has_none_after_a_crash() {
        let world = World::new();
        let client = world.client(1);
        let (f, g) = (client.file(Fid::ROOT, "f"), client.file(Fid::ROOT, "g"));
        let root = Cred::root();
        let opened = client.open(f, OPEN_WRITE, &root).expect("root may");
        client.close(f, opened.handle, true, Some(9));
        client.open(g, OPEN_WRITE, &root).expect("root may");
        world.sync();
        let world = world.crash();
        let client = world.client(2);
        assert_eq!(client.attr(f).map(|attr| (attr.size_known, attr.size)), Ok((true, 9)));
        assert_eq!(client.attr(g).map(|attr| attr.size_known), Ok(false));
    }

    #[test]
    fn a_file_stays_open_for_writing_over_a_restart() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        let root = Cred::root();
        let handles = [&a, &b].map(|client| client.open(file, OPEN_WRITE, &root).expect("root may").handle);
        a.unlink(Fid::ROOT, "f").expect("it exists");
        let (boot, xid) = (world.store.boot(), a.xid().max(b.xid()));
        let world = world.restart();
        let [a, b] = [1, 2].map(|id| world.connect(proto::ClientId(id), boot, 2).expect("a known client"));
        a.skip_to(xid);
        b.skip_to(xid);
        let sync = proto::wire::messages::Sync { transno: proto::Transno(0) };
        let first = a.start(xid + 1, sync.clone());
        b.call(sync).expect("nobody has anything to replay");
        assert!(world.sim.run(first).result.is_ok());
        a.skip_to(xid + 1);
        b.skip_to(xid + 1);
        world.sim.run_for(std::time::Duration::from_secs(300));
        a.close(file, handles[0], true, Some(5));
        assert_eq!(b.attr(file).map(|attr| attr.nlink), Ok(0), "the other client has it open");
        b.close(file, handles[1], false, None);
        assert_eq!(b.attr(file), Err(Code::Stale));
        assert_eq!((world.keys(keys::OPEN), world.keys(keys::ORPHAN)), (0, 0));
    }

    #[test]
    fn times_told_late_do_not_undo_what_was_set() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let root = Cred::root();
        let opened = client.open(file, OPEN_WRITE, &root).expect("root may");
        let written = client.time();
        client.chmod(file, 0o600);
        let later = client.attr(file).expect("it exists").ctime;
        let update = SizeUpdate { size: 1, blocks: 1, mtime: written, ctime: written };
        let close =
            |update| Close { fid: file, handle: opened.handle, atime: None, size: Some(update), wrote: true };
        client.call(close(update)).expect("it is open");
        let attr = client.attr(file).expect("it exists");
        assert_eq!((attr.mtime, attr.ctime), (written, later));
    }

    #[test]
    fn reading_changes_nothing() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let before = (client.attr(file), world.store.last_transno());
        let opened = client.open(file, OPEN_READ, &Cred::root()).expect("root may");
        client.close(file, opened.handle, false, None);
        assert_eq!((client.attr(file), world.store.last_transno()), before);
    }
}
