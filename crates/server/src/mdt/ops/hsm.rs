//! GetHsm, SetHsm, ReleaseData, AskHsm: files whose data has a copy in an archive (FEATURES I7). Rules: `docs/hsm.md`.

use proto::changelog::Kind;
use proto::hsm::{Action, ActionState, SETTABLE_FLAGS, USER_FLAGS, flag};
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_READ, AskHsm, EndHsm, GetHsm, HSM_BEGIN_ARCHIVE, HSM_END_ARCHIVE, HSM_FORGET, HSM_SET_FLAGS,
    HsmAsked, HsmState, LOCK_LAYOUT, LOCK_UPDATE, ReleaseData, SetHsm, TakeHsm,
};
use proto::{Code, Cred, FileKind, Layout};
use service::{Done, VERSION_OF_THIS, code_of};

use super::close::{check_size, take_size};
use crate::mdt::inode::Inode;
use crate::mdt::plan::Step;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog};

/// Blocks of a file whose data is elsewhere: none at all would tell programs that it is a hole, which they need not read.
const RELEASED_BLOCKS: u64 = 1;

/// There is nothing to do.
const DONE: HsmAsked = HsmAsked { cookie: 0, state: ActionState::Succeeded as u8, code: 0 };

fn file(mdt: &Mdt, ctx: &Ctx, fid: proto::Fid) -> Step<Inode> {
    let inode = mdt.names.inode(ctx, fid)?;
    if inode.kind() == FileKind::File { Ok(inode) } else { Err(Code::Invalid.into()) }
}

fn state(mdt: &Mdt, inode: &Inode) -> HsmState {
    let action = mdt.hsm.of_file(inode.fid);
    HsmState {
        flags: inode.hsm.flags,
        archive: inode.hsm.archive,
        action: action.as_ref().map_or(0, |action| action.item.action as u8),
        state: action.as_ref().map_or(ActionState::None, |action| action.state) as u8,
        done: action.map_or(0, |action| action.done),
        copy: inode.hsm.copy,
        replaced: 0,
    }
}

pub(in crate::mdt) fn get_hsm(mdt: &Mdt, ctx: &Ctx, request: &GetHsm) -> Outcome {
    let inode = file(mdt, ctx, request.fid)?;
    Ok(Done::unchanged(Reply::GetHsm(state(mdt, &inode))))
}

/// The reply comes when it is durable: whoever asked builds on it outside the file system.
pub(in crate::mdt) async fn set_hsm(mdt: &Mdt, ctx: &Ctx<'_>, request: &SetHsm) -> Outcome {
    let done = set_hsm_now(mdt, ctx, request)?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}

fn set_hsm_now(mdt: &Mdt, ctx: &Ctx, request: &SetHsm) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = file(mdt, ctx, request.fid)?;
    let before = inode.hsm.copy;
    if request.change != HSM_SET_FLAGS && !access::is_root(&request.cred) {
        return Err(Code::NotPermitted.into());
    }
    match request.change {
        HSM_SET_FLAGS => set_flags(mdt, request, &mut inode)?,
        HSM_BEGIN_ARCHIVE => begin_archive(mdt, request, &mut inode)?,
        HSM_END_ARCHIVE => end_archive(mdt, request, &mut inode)?,
        HSM_FORGET => forget(&mut inode)?,
        _ => return Err(Code::NotSupported.into()),
    }
    inode.version = VERSION_OF_THIS;
    let mut changes = Changes::default();
    // Nobody keeps anything of it.
    changes.put_inode(&inode, 0);
    if request.change != HSM_BEGIN_ARCHIVE {
        mdt.tell(&mut changes, Kind::Hsm, inode.fid, changelog::by(&request.cred));
    }
    let replaced = if inode.hsm.copy == before { 0 } else { before };
    let state = HsmState { replaced, ..state(mdt, &inode) };
    mdt.commit(ctx, changes, Reply::SetHsm(state))
}

fn set_flags(mdt: &Mdt, request: &SetHsm, inode: &mut Inode) -> Result<(), Code> {
    let changed = request.set | request.clear;
    if changed & !SETTABLE_FLAGS != 0 || request.set & request.clear != 0 {
        return Err(Code::Invalid);
    }
    let may = if changed & !USER_FLAGS != 0 || request.archive != 0 {
        access::is_root(&request.cred)
    } else {
        access::is_owner(&request.cred, inode)
    };
    // The copy is all that there is of the data.
    let needs_copy = inode.hsm.is_released()
        && (request.clear & (flag::EXISTS | flag::ARCHIVED) != 0 || request.set & flag::DIRTY != 0);
    // Only a new copy is what the file has.
    let cleans = request.clear & inode.hsm.flags & flag::DIRTY != 0;
    if !may || needs_copy || cleans {
        return Err(Code::NotPermitted);
    }
    if request.archive != 0 {
        check_archive(inode, request.archive)?;
        inode.hsm.archive = mdt.hsm.archive(request.archive, 0)?;
    }
    inode.hsm.flags = (inode.hsm.flags | request.set) & !request.clear;
    Ok(())
}

/// A copy is where it is.
fn check_archive(inode: &Inode, archive: u32) -> Result<(), Code> {
    let is_elsewhere = inode.hsm.copy != 0 && ![0, inode.hsm.archive].contains(&archive);
    if is_elsewhere { Err(Code::CrossDevice) } else { Ok(()) }
}

/// From here on it is noticed if somebody may change the data.
fn begin_archive(mdt: &Mdt, request: &SetHsm, inode: &mut Inode) -> Result<(), Code> {
    inode.check_there()?;
    if inode.hsm.flags & flag::NOARCHIVE != 0 {
        return Err(Code::NotPermitted);
    }
    // Whoever cuts it may have the objects still to do.
    let is_being_cut = !inode.size_known && mdt.opens.is_cut(inode.fid);
    if mdt.opens.is_written(inode.fid) || is_being_cut {
        return Err(Code::Busy);
    }
    inode.hsm.copying = request.copy;
    Ok(())
}

fn end_archive(mdt: &Mdt, request: &SetHsm, inode: &mut Inode) -> Result<(), Code> {
    // The first of two copytools that did the same may have been followed by a release.
    inode.check_there()?;
    // Of the copy, and not of the action: two copytools may do that, and the file may have changed between their beginnings.
    let is_same = inode.hsm.copying == request.copy && request.copy != 0;
    let hsm = &mut inode.hsm;
    if !is_same && (hsm.is_current() || hsm.copying != 0) {
        // Another copytool was taken for gone, and was slow: what was, or is, copied after it counts.
        return Ok(());
    }
    if request.copy == 0 {
        return Err(Code::Invalid);
    }
    hsm.copy = request.copy;
    hsm.archive = mdt.hsm.archive(request.archive, 0)?;
    hsm.flags |= flag::EXISTS | flag::ARCHIVED;
    hsm.flags = if is_same { hsm.flags & !(flag::DIRTY | flag::LOST) } else { hsm.flags | flag::DIRTY };
    hsm.copying = 0;
    Ok(())
}

fn forget(inode: &mut Inode) -> Result<(), Code> {
    if inode.hsm.is_released() {
        return Err(Code::NotPermitted);
    }
    let keeps = flag::NORELEASE | flag::NOARCHIVE;
    inode.hsm.flags &= keeps;
    (inode.hsm.archive, inode.hsm.copy, inode.hsm.copying) = (0, 0, 0);
    Ok(())
}

/// The reply comes when it is durable: whoever asked gives the objects up.
pub(in crate::mdt) async fn release_data(mdt: &Mdt, ctx: &Ctx<'_>, request: &ReleaseData) -> Outcome {
    let done = release_data_now(mdt, ctx, request)?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}

fn release_data_now(mdt: &Mdt, ctx: &Ctx, request: &ReleaseData) -> Outcome {
    let ReleaseData { fid, with, generation, cred, size } = request;
    check_size(size)?;
    let _inodes = mdt.names.locks.inodes(&[*fid, *with]);
    let mut inode = file(mdt, ctx, *fid)?;
    check_release(mdt, &inode, cred)?;
    let before = inode.layout.clone().ok_or(Code::Invalid)?;
    if before.generation != *generation {
        return Err(Code::Busy.into());
    }
    if !inode.size_known {
        // Its last writer was lost. Whoever asks has locked all of it, and nobody has it open for writing.
        take_size(&mut inode, size);
    }
    inode.layout = Some(before.released(*fid).ok_or(Code::TooLarge)?);
    inode.hsm.flags |= flag::RELEASED;
    inode.blocks = if inode.size == 0 { 0 } else { RELEASED_BLOCKS };
    inode.version = VERSION_OF_THIS;
    let mut other = mdt.names.inode(ctx, *with)?;
    // A file that somebody else knows of may be in use.
    let is_unnamed = other.kind() == FileKind::File && other.nlink == 0;
    // It is never in force again, so that nobody takes a seal away.
    let given_up = Layout { generation: u32::MAX, ..before };
    other.layout.replace(given_up).filter(|_| is_unnamed && fid != with).ok_or(Code::Invalid)?;
    other.written = true;
    other.version = VERSION_OF_THIS;
    let mut changes = Changes::default();
    changes.put_inode(&other, LOCK_LAYOUT | LOCK_UPDATE);
    changes.put_inode(&inode, LOCK_LAYOUT | LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::Hsm, inode.fid, changelog::by(cred));
    mdt.commit(ctx, changes, Reply::ReleaseData(inode.entry()))
}

/// Whether the archive has the data, and the file may do without it.
fn check_release(mdt: &Mdt, inode: &Inode, cred: &Cred) -> Result<(), Code> {
    if !access::is_owner(cred, inode) || inode.hsm.flags & flag::NORELEASE != 0 {
        return Err(Code::NotPermitted);
    }
    // Flags that root has set make no copy.
    if inode.hsm.flags & flag::ARCHIVED == 0 || inode.hsm.copy == 0 {
        return Err(Code::NotPermitted);
    }
    if inode.hsm.is_released() || !inode.hsm.is_current() || mdt.opens.is_written(inode.fid) {
        return Err(Code::Busy);
    }
    Ok(())
}

/// Asks for an action. What changes nothing any more is done at once.
pub(in crate::mdt) async fn ask_hsm(mdt: &Mdt, ctx: &Ctx<'_>, request: &AskHsm) -> Outcome {
    let answer = |asked| Ok(Done::unchanged(Reply::AskHsm(asked)));
    if let Some(asked) = Some(request.cookie)
        .filter(|cookie| *cookie != 0)
        .and_then(|cookie| mdt.hsm.told(request.fid, cookie))
    {
        return answer(asked);
    }
    let inode = file(mdt, ctx, request.fid)?;
    let is_owner = access::is_owner(&request.cred, &inode);
    if request.action == 0 {
        if !is_owner {
            return Err(Code::NotPermitted.into());
        }
        mdt.hsm.cancel(request.fid).await?;
        return answer(HsmAsked { state: ActionState::Canceled as u8, ..DONE });
    }
    let action = Action::of(request.action).ok_or(Code::NotSupported)?;
    if action == Action::Archive {
        check_archive(&inode, request.archive)?;
    }
    let hsm = inode.hsm;
    let is_done = match action {
        // Whoever may read the file has to wait for its data.
        Action::Restore if !is_owner => {
            access::may(&request.cred, &inode, ACCESS_READ)?;
            !hsm.is_released()
        }
        Action::Restore => !hsm.is_released(),
        _ if !is_owner => return Err(Code::NotPermitted.into()),
        Action::Archive if hsm.flags & flag::NOARCHIVE != 0 => return Err(Code::NotPermitted.into()),
        Action::Archive => hsm.is_released() || hsm.is_current(),
        Action::Remove if hsm.is_released() => return Err(Code::NotPermitted.into()),
        Action::Remove => hsm.flags & flag::EXISTS == 0,
    };
    if is_done {
        return answer(DONE);
    }
    let archive = match action {
        Action::Archive => mdt.hsm.archive(request.archive, hsm.archive)?,
        // The copy is where it is.
        Action::Restore | Action::Remove => mdt.hsm.archive(hsm.archive, request.archive)?,
    };
    answer(mdt.hsm.ask(request.fid, action, archive).await?)
}

/// For copytools: the superuser's.
pub(in crate::mdt) async fn take_hsm(mdt: &Mdt, ctx: &Ctx<'_>, request: &TakeHsm) -> Outcome {
    Ok(Done::unchanged(Reply::TakeHsm(mdt.hsm.take(ctx.session().handle(), request).await?)))
}

pub(in crate::mdt) async fn end_hsm(mdt: &Mdt, request: &EndHsm) -> Outcome {
    mdt.hsm.ended(request).await?;
    Ok(Done::unchanged(Reply::EndHsm(DONE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{Client, World, user};
    use proto::Fid;
    use proto::layout::LayoutHint;
    use proto::wire::messages::{
        Create, CreateUnnamed, GetAttr, OPEN_EXCLUSIVE, OPEN_READ, OPEN_WRITE, Parameter, PlaceData, SetAttr,
        SetParameters, SetSize, SizeUpdate,
    };

    fn change(client: &Client, fid: Fid, change: u8) -> SetHsm {
        let (cred, time) = (Cred::root(), client.time());
        SetHsm { fid, change, set: 0, clear: 0, archive: 1, cookie: 5, copy: 9, cred, time }
    }

    /// A file of 100 bytes, closed.
    fn written(client: &Client, name: &str) -> Fid {
        let file = client.file(Fid::ROOT, name);
        let opened = client.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
        client.close(file, opened.handle, true, Some(100));
        file
    }

    fn archive(client: &Client, file: Fid) -> HsmState {
        client.call(change(client, file, HSM_BEGIN_ARCHIVE)).expect("nobody writes");
        client.call(change(client, file, HSM_END_ARCHIVE)).expect("it is there")
    }

    fn release(client: &Client, fid: Fid, cred: Cred) -> Result<Layout, Code> {
        let unnamed = CreateUnnamed {
            parent: Fid::ROOT,
            fid: client.new_fid(),
            mode: 0o100_600,
            open: OPEN_READ | OPEN_WRITE,
            hint: Some(LayoutHint::default()),
            cred: Cred::root(),
            time: client.time(),
            umask: 0,
        };
        let heir = client.call(unnamed).expect("root may");
        let generation = layout(client, fid).generation;
        let size = SizeUpdate { size: 100, blocks: 8, mtime: client.time(), ctime: client.time() };
        let released = client.call(ReleaseData { fid, with: heir.attr.fid, generation, cred, size });
        client.close(heir.attr.fid, heir.handle, true, None);
        released.map(|entry| entry.layout.expect("of a file"))
    }

    fn layout(client: &Client, fid: Fid) -> Layout {
        client.call(GetAttr { fid }).expect("it is there").layout.expect("of a file")
    }

    fn flags(client: &Client, fid: Fid) -> u32 {
        client.call(GetHsm { fid }).expect("it is there").flags
    }

    #[test]
    fn whatever_may_change_the_data_makes_the_copy_an_old_one() {
        let world = World::new();
        let (client, other) = (world.client(1), world.client(2));
        let root = Cred::root();
        let cut = |fid| SetAttr { size: Some(50), ..other.set_attr(fid, &root) };
        let write = |fid| other.open(fid, OPEN_WRITE, &root).expect("root may").handle;
        // While it is copied.
        let file = written(&client, "a");
        client.call(change(&client, file, HSM_BEGIN_ARCHIVE)).expect("nobody writes");
        other.close(file, write(file), false, None);
        let ended = client.call(change(&client, file, HSM_END_ARCHIVE)).expect("it is there");
        assert_eq!((ended.flags, ended.copy), (flag::EXISTS | flag::ARCHIVED | flag::DIRTY, 9));
        // Afterwards; and whoever reads or sets the mode changes nothing.
        for cuts in [false, true] {
            assert_eq!(archive(&client, file).flags, flag::EXISTS | flag::ARCHIVED);
            let read = other.open(file, OPEN_READ, &root).expect("root may");
            other.close(file, read.handle, false, None);
            other.chmod(file, 0o640);
            assert_eq!(flags(&client, file), flag::EXISTS | flag::ARCHIVED);
            if cuts {
                other.call(cut(file)).expect("root may");
            } else {
                other.close(file, write(file), true, Some(100));
            }
            assert_eq!(flags(&client, file), flag::EXISTS | flag::ARCHIVED | flag::DIRTY);
            assert_eq!(release(&client, file, Cred::root()), Err(Code::Busy));
        }
        // The objects are cut behind the inode.
        let file = written(&client, "b");
        other.call(cut(file)).expect("root may");
        assert_eq!(client.call(change(&client, file, HSM_BEGIN_ARCHIVE)), Err(Code::Busy));
        let update = SizeUpdate { size: 50, blocks: 1, mtime: other.time(), ctime: other.time() };
        other.call(SetSize { fid: file, update, cut: false, question: 0 }).expect("it has cut the file");
        assert_eq!(archive(&client, file).flags, flag::EXISTS | flag::ARCHIVED);
        // Somebody writes: the copy does not begin.
        let handle = write(file);
        assert_eq!(client.call(change(&client, file, HSM_BEGIN_ARCHIVE)), Err(Code::Busy));
        other.close(file, handle, true, Some(100));
    }

    #[test]
    fn flags_that_are_set_by_hand_make_no_copy() {
        let world = World::new();
        let client = world.client(1);
        let root = Cred::root();
        let file = written(&client, "f");
        let flags_of = |set, clear| SetHsm { set, clear, archive: 0, ..change(&client, file, HSM_SET_FLAGS) };
        let (copied, denied) = (flag::EXISTS | flag::ARCHIVED, Err(Code::NotPermitted));
        client.call(flags_of(copied, 0)).expect("root may");
        assert_eq!(release(&client, file, Cred::root()).map(drop), denied);
        archive(&client, file);
        // What was changed while no flag told of a copy is noticed all the same, and nobody says that it was not.
        client.call(flags_of(0, copied)).expect("root may");
        let opened = client.open(file, OPEN_WRITE, &root).expect("root may");
        client.close(file, opened.handle, true, Some(100));
        client.call(flags_of(copied, 0)).expect("root may");
        assert_eq!(release(&client, file, Cred::root()).map(drop), Err(Code::Busy));
        assert_eq!(client.call(flags_of(0, flag::DIRTY)).map(drop), denied);
        assert_eq!(client.call(flags_of(flag::RELEASED, 0)).map(drop), Err(Code::Invalid));
        client.chown(file, 5, 5);
        let of_user = |set| SetHsm { cred: user(5), ..flags_of(set, 0) };
        client.call(of_user(flag::NORELEASE)).expect("the owner may");
        assert_eq!(client.call(of_user(flag::ARCHIVED)).map(drop), denied);
        assert_eq!(client.call(SetHsm { cred: user(6), ..flags_of(flag::DIRTY, 0) }).map(drop), denied);
    }

    #[test]
    fn a_copy_is_in_the_archive_that_has_it() {
        let world = World::new();
        let client = world.client(1);
        let file = written(&client, "f");
        let ask = |archive| {
            let action = Action::Archive as u8;
            client.call(AskHsm { fid: file, action, archive, cookie: 0, cred: Cred::root() }).map(drop)
        };
        assert_eq!(ask(2), Ok(()), "there is no copy yet");
        archive(&client, file);
        assert_eq!((ask(2), ask(1), ask(0)), (Err(Code::CrossDevice), Ok(()), Ok(())));
        let moved = SetHsm { archive: 2, ..change(&client, file, HSM_SET_FLAGS) };
        assert_eq!(client.call(moved).map(drop), Err(Code::CrossDevice));
    }

    #[test]
    fn a_coordinator_that_is_shut_down_says_so() {
        let world = World::new();
        let client = world.client(1);
        let file = written(&client, "f");
        let parameter = Parameter { name: "mdt.weft-MDT0000.hsm_control".into(), value: "shutdown".into() };
        crate::mdt::testing::ask(&world, rpc::Role::Server, SetParameters { parameters: vec![parameter] })
            .expect("it can be set");
        let action = Action::Archive as u8;
        let ask = AskHsm { fid: file, action, archive: 0, cookie: 0, cred: Cred::root() };
        // A session would repeat TryAgain for ever.
        assert_eq!(client.call(ask).map(drop), Err(Code::Busy));
    }

    /// Both do the same action; the file has changed since the first of them began.
    #[test]
    fn a_copy_of_before_a_change_ends_nothing() {
        let world = World::new();
        let client = world.client(1);
        let file = written(&client, "f");
        let of = |copy, what| SetHsm { copy, ..change(&client, file, what) };
        client.call(of(8, HSM_BEGIN_ARCHIVE)).expect("nobody writes");
        let opened = client.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
        client.close(file, opened.handle, true, Some(100));
        client.call(of(9, HSM_BEGIN_ARCHIVE)).expect("nobody writes");
        let late = client.call(of(8, HSM_END_ARCHIVE)).expect("it is there");
        assert_eq!((late.copy, late.flags), (0, 0), "it is one of before the change");
        let ended = client.call(of(9, HSM_END_ARCHIVE)).expect("it is there");
        assert_eq!((ended.copy, ended.flags), (9, flag::EXISTS | flag::ARCHIVED));
    }

    #[test]
    fn a_late_copytool_writes_over_nothing_that_counts() {
        let world = World::new();
        let client = world.client(1);
        let file = written(&client, "f");
        let late = SetHsm { copy: 8, ..change(&client, file, HSM_END_ARCHIVE) };
        assert_eq!(archive(&client, file).copy, 9);
        let ended = client.call(late.clone()).expect("it is there");
        assert_eq!((ended.copy, ended.flags), (9, flag::EXISTS | flag::ARCHIVED));
        let begin = SetHsm { copy: 10, ..change(&client, file, HSM_BEGIN_ARCHIVE) };
        client.call(begin).expect("nobody writes");
        let again = SetHsm { copy: 10, ..change(&client, file, HSM_END_ARCHIVE) };
        let ended = client.call(again).expect("it is there");
        assert_eq!((ended.copy, ended.replaced), (10, 9), "the one before can go");
        release(&client, file, Cred::root()).expect("the archive has it");
        assert_eq!(client.call(late), Err(Code::Released));
        assert_eq!(client.call(change(&client, file, HSM_FORGET)), Err(Code::NotPermitted));
    }

    #[test]
    fn a_released_file_has_no_objects_and_nobody_changes_it() {
        let world = World::new();
        let (client, other) = (world.client(1), world.client(2));
        let root = Cred::root();
        let file = written(&client, "f");
        assert_eq!(release(&client, file, Cred::root()), Err(Code::NotPermitted), "there is no copy");
        archive(&client, file);
        client.chown(file, 5, 5);
        assert_eq!(release(&client, file, user(6)), Err(Code::NotPermitted));
        let before = layout(&client, file);
        let released = release(&client, file, user(5)).expect("the archive has it");
        assert!(released.is_released() && released.object_count() == 0);
        assert_eq!(released.generation, before.generation + 1);
        let destroyed: Vec<Fid> = world.destroys().into_iter().map(|(_, id, _)| id).collect();
        assert!(before.ids().all(|id| destroyed.contains(&id)));
        let attr = other.attr(file).expect("it is there");
        assert_eq!((attr.size, attr.size_known, attr.blocks), (100, true, 1));
        let refused = Err(Code::Released);
        assert_eq!(other.open(file, OPEN_WRITE, &root).map(drop), refused);
        let cut = SetAttr { size: Some(50), ..other.set_attr(file, &root) };
        assert_eq!(other.call(cut).map(drop), refused);
        assert_eq!(other.call(PlaceData { fid: file, offset: 0, len: 1 }).map(drop), refused);
        let again = Create { open: OPEN_WRITE, ..other.create_request(Fid::ROOT, "f", 0o100_644) };
        assert_eq!(other.call(again).map(drop), refused);
        let first =
            Create { open: OPEN_WRITE | OPEN_EXCLUSIVE, ..other.create_request(Fid::ROOT, "f", 0o100_644) };
        assert_eq!(other.call(first).map(drop), Err(Code::Exists));
        world.sync();
        let world = world.crash();
        let client = world.client(3);
        assert_eq!(layout(&client, file), released);
        assert_eq!(flags(&client, file), flag::EXISTS | flag::ARCHIVED | flag::RELEASED);
        client.unlink(Fid::ROOT, "f").expect("it is there");
    }

    #[test]
    fn actions_are_asked_for_once_and_outlive_a_crash() {
        let world = World::new();
        let (client, tool) = (world.client(1), world.client(2));
        let file = written(&client, "f");
        let ask = |action, cred| AskHsm { fid: file, action, archive: 0, cookie: 0, cred };
        let archive = Action::Archive as u8;
        assert_eq!(client.call(ask(archive, user(6))), Err(Code::NotPermitted));
        assert_eq!(client.call(ask(99, Cred::root())), Err(Code::NotSupported));
        let none = client.call(ask(Action::Restore as u8, Cred::root())).expect("root may");
        assert_eq!(none, DONE, "its data is there");
        let asked = client.call(ask(archive, Cred::root())).expect("root may");
        assert_eq!(client.call(ask(archive, Cred::root())), Ok(asked.clone()));
        let take = |archives| TakeHsm { agent: "a".into(), archives, working: vec![], max: 9, wait_ms: 0 };
        assert_eq!(tool.call(take(vec![2])).map(|work| work.actions.len()), Ok(0), "another archive");
        let work = tool.call(take(vec![1])).expect("there is some");
        assert_eq!(work.actions.iter().map(|item| item.cookie).collect::<Vec<_>>(), [asked.cookie]);
        let world = world.crash();
        let (client, tool) = (world.client(3), world.client(4));
        assert_eq!(tool.call(take(vec![])).map(|work| work.actions.len()), Ok(1));
        let end = |code| EndHsm { cookie: asked.cookie, agent: "a".into(), code };
        tool.call(end(Code::NoSpace.to_u32())).expect("it is known");
        let told = AskHsm { cookie: asked.cookie, ..ask(archive, Cred::root()) };
        let told = client.call(told).expect("it is remembered");
        assert_eq!((told.state(), told.failure()), (ActionState::Failed, Code::NoSpace));
        tool.call(end(0)).expect("that it ended before is no error");
        let next = client.call(ask(archive, Cred::root())).expect("root may");
        assert!(next.cookie > asked.cookie);
        client.call(ask(0, Cred::root())).expect("root may");
        assert_eq!(tool.call(take(vec![])).map(|work| work.actions.len()), Ok(0), "it was canceled");
    }
}
