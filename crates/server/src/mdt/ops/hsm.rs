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
    if !may || needs_copy {
        return Err(Code::NotPermitted);
    }
    if request.archive != 0 {
        inode.hsm.archive = mdt.hsm.archive(request.archive, 0)?;
    }
    inode.hsm.flags = (inode.hsm.flags | request.set) & !request.clear;
    Ok(())
}

/// From here on it is noticed if somebody may change the data.
fn begin_archive(mdt: &Mdt, request: &SetHsm, inode: &mut Inode) -> Result<(), Code> {
    inode.check_there()?;
    if inode.hsm.flags & flag::NOARCHIVE != 0 {
        return Err(Code::NotPermitted);
    }
    if mdt.opens.is_written(inode.fid) {
        return Err(Code::Busy);
    }
    inode.hsm.copying = request.cookie;
    Ok(())
}

fn end_archive(mdt: &Mdt, request: &SetHsm, inode: &mut Inode) -> Result<(), Code> {
    // The first of two copytools that did the same may have been followed by a release.
    inode.check_there()?;
    let is_same = inode.hsm.copying == request.cookie && request.cookie != 0;
    let hsm = &mut inode.hsm;
    if !is_same && hsm.is_current() {
        // Another copytool was taken for gone, and was slow: what was copied after it counts.
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
    if inode.hsm.flags & flag::ARCHIVED == 0 {
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
    if let Some(asked) = Some(request.cookie).filter(|cookie| *cookie != 0).and_then(|cookie| mdt.hsm.told(request.fid, cookie)) {
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
