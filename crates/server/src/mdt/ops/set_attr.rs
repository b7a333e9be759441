//! SetAttr: mode, owner, size and times.

use proto::changelog::Kind;
use proto::ownership::{Ownership, OwnershipChange};
use proto::types::XATTR_CAPABILITY;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_WRITE, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR, SetAttr};
use proto::{Code, FileKind};

use crate::mdt::cuts::Cutter;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::opens::Opener;
use crate::mdt::plan::Step;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog, keys};

pub(in crate::mdt) fn set_attr(mdt: &Mdt, ctx: &Ctx, request: &SetAttr) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let Planned { inode, mut changes, is_given } = plan(mdt, ctx, request)?;
    if is_given {
        changes.bound(mdt.quotas.bounds(mdt, ctx, &request.cred, &inode)?);
    }
    let done = mdt.commit(ctx, changes, Reply::SetAttr(inode.entry()))?;
    committed(mdt, ctx, request);
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS)
}

/// A file as it will be.
pub(super) struct Planned {
    pub(super) inode: Inode,
    /// Whether others own it than before.
    pub(super) is_given: bool,
    /// Without what limits say.
    pub(super) changes: Changes,
}

/// What is to be committed. The caller holds the guard of the inode.
pub(super) fn plan(mdt: &Mdt, ctx: &Ctx, request: &SetAttr) -> Step<Planned> {
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    let before = inode.clone();
    let ownership = changed_ownership(request, &inode)?;
    check_times(request, &inode)?;
    match request.size {
        Some(size) => check_size(mdt, ctx, request, &inode, size)?,
        None if request.kill_privileges => check_writer(mdt, ctx, request, &inode)?,
        None => {}
    }
    (inode.uid, inode.gid, inode.mode) = (ownership.uid, ownership.gid, ownership.mode);
    if let (Some(mode), Some(acl)) = (request.mode, &mut inode.acl) {
        acl.set_mode(mode);
    }
    apply_project(request, &mut inode)?;
    if request.size.is_some() {
        inode.begin_writing();
        inode.touch_data(request.time);
    }
    if let Some(atime) = &request.atime {
        inode.atime = atime.time;
    }
    if let Some(mtime) = &request.mtime {
        inode.mtime = mtime.time;
        inode.mtime_set = request.time.max(inode.mtime_set);
    }
    inode.touch(request.time);
    let mut changes = Changes::default();
    let is_given = inode.counts_for_others(&before);
    if is_given {
        mdt.names.owners_counted(ctx.reads(), &before)?;
        mdt.names.owners_counted(ctx.reads(), &inode)?;
        changes.change_owners(&before, &inode);
        changes.give_objects(&mut inode, &mdt.objects.numbers);
    }
    let mut seen = affected(request, before.seen_changes(&inode));
    if strips(request, &inode) && strip_capability(mdt, ctx, &mut changes, &inode)? {
        seen |= LOCK_XATTR;
    }
    changes.put_inode(&inode, seen);
    if request.size.is_some() && mdt.opens.takes_cut(inode.fid) {
        changes.put_raw(keys::cut(ctx.session().client(), inode.fid), keys::cut_value());
    }
    mdt.tell(&mut changes, recorded(request), inode.fid, changelog::by(&request.cred));
    Ok(Planned { inode, is_given, changes })
}

/// What has to be known of it once it is committed.
pub(super) fn committed(mdt: &Mdt, ctx: &Ctx, request: &SetAttr) {
    if request.atime.is_some() {
        mdt.opens.set_atime(request.fid, request.time);
    }
    if request.size.is_some() {
        mdt.opens.truncated(request.fid, cutter(ctx));
    }
}

/// The session, if it cuts a file.
pub(super) fn cutter(ctx: &Ctx) -> Cutter {
    Cutter { session: ctx.session().handle(), client: ctx.session().client() }
}

/// What the changelog calls it.
fn recorded(request: &SetAttr) -> Kind {
    match request {
        SetAttr { size: Some(_), .. } => Kind::Truncate,
        SetAttr { mode: Some(_), .. } | SetAttr { uid: Some(_), .. } | SetAttr { gid: Some(_), .. } => {
            Kind::SetAttr
        }
        SetAttr { project: Some(_), .. } | SetAttr { inherits: Some(_), .. } => Kind::SetAttr,
        SetAttr { mtime: Some(_), .. } => Kind::ModifyTime,
        SetAttr { atime: Some(_), .. } => Kind::AccessTime,
        SetAttr { kill_privileges: true, .. } => Kind::SetAttr,
        _ => Kind::ChangeTime,
    }
}

/// Takes the attribute away that gives rights to whoever executes the file; says whether there was one.
fn strip_capability(mdt: &Mdt, ctx: &Ctx, changes: &mut Changes, inode: &Inode) -> Step<bool> {
    let found = super::xattr::find_xattr(mdt, ctx, inode, XATTR_CAPABILITY)?.is_some();
    if found {
        changes.remove(keys::xattr(inode.fid, XATTR_CAPABILITY));
    }
    Ok(found)
}

fn check_size(mdt: &Mdt, ctx: &Ctx, request: &SetAttr, inode: &Inode, size: u64) -> Result<(), Code> {
    match inode.kind() {
        FileKind::File => {}
        FileKind::Dir => return Err(Code::IsDirectory),
        _ => return Err(Code::Invalid),
    }
    if size > proto::limits::FILE_BYTES_MAX {
        return Err(Code::TooLarge);
    }
    super::open::check_whole(mdt, ctx, inode)?;
    inode.check_there()?;
    check_writer(mdt, ctx, request, inode)
}

/// Whoever has the file open for writing may write, and otherwise whom its mode permits.
fn check_writer(mdt: &Mdt, ctx: &Ctx, request: &SetAttr, inode: &Inode) -> Result<(), Code> {
    let session = ctx.session().handle();
    let by_handle =
        request.handle.is_some_and(|handle| mdt.opens.is_writer(inode.fid, Opener { session, handle }));
    if by_handle { Ok(()) } else { access::may(&request.cred, inode, ACCESS_WRITE) }
}

/// Whether a file loses its capabilities: whoever writes to it or gives it away takes them, the superuser too.
fn strips(request: &SetAttr, inode: &Inode) -> bool {
    let changes_owner = request.uid.is_some() || request.gid.is_some();
    inode.kind() == FileKind::File && (request.kill_privileges || request.size.is_some() || changes_owner)
}

/// What others see change besides `seen`: a time of access or a size that is set, and the time of the change itself, which
/// they keep only together with mode and owner.
fn affected(request: &SetAttr, seen: u32) -> u32 {
    let chooses = request.mode.is_some() || request.uid.is_some() || request.gid.is_some();
    match seen {
        // A time may be the same by chance.
        _ if request.atime.is_some() || request.size.is_some() => seen | LOCK_UPDATE,
        0 if chooses => LOCK_PERM,
        0 => LOCK_UPDATE,
        seen => seen,
    }
}

/// The owner sets any time; who may write sets the present one.
fn check_times(request: &SetAttr, inode: &Inode) -> Result<(), Code> {
    let times = || [&request.atime, &request.mtime].into_iter().flatten();
    if times().next().is_none() || access::is_owner(&request.cred, inode) {
        return Ok(());
    }
    // A write or truncate brings its times along; what allows it is checked there.
    if request.size.is_some() && times().all(|time| time.now) {
        return Ok(());
    }
    // One of both alone is for the owner, also the present one (utimensat(2), UTIME_OMIT).
    if times().count() != 2 || times().any(|time| !time.now) {
        return Err(Code::NotPermitted);
    }
    access::may(&request.cred, inode, ACCESS_WRITE)
}

/// Only the superuser says for which project something counts: others would take it out of a limit.
fn apply_project(request: &SetAttr, inode: &mut Inode) -> Result<(), Code> {
    if request.project.is_none() && request.inherits.is_none() {
        return Ok(());
    }
    if !access::is_root(&request.cred) {
        return Err(Code::NotPermitted);
    }
    if request.inherits == Some(true) && !inode.is_dir() || request.project == Some(u32::MAX) {
        return Err(Code::Invalid);
    }
    inode.project = request.project.unwrap_or(inode.project);
    inode.inherits = request.inherits.unwrap_or(inode.inherits);
    Ok(())
}

/// Owner, group and mode as they will be.
fn changed_ownership(request: &SetAttr, inode: &Inode) -> Result<Ownership, Code> {
    let Inode { uid, gid, mode, .. } = *inode;
    let change = OwnershipChange {
        uid: request.uid,
        gid: request.gid,
        mode: request.mode,
        writes: request.kill_privileges || request.size.is_some(),
    };
    let mut ownership = Ownership { uid, gid, mode };
    ownership.change(&request.cred, &change)?;
    Ok(ownership)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{Client, World, user};
    use bytes::Bytes;
    use proto::wire::messages::{GetXattr, OPEN_WRITE, SetXattr, TimeChange};
    use proto::{Attr, Cred, Fid, Timestamp};

    fn set(client: &Client, request: SetAttr) -> Result<Attr, Code> {
        client.call(request).map(|entry| entry.attr)
    }

    fn file_of(client: &Client, uid: u32, mode: u32) -> Fid {
        let text = format!("f{}", client.xid());
        let fid = client.file(Fid::ROOT, &text);
        client.chown(fid, uid, uid);
        client.chmod(fid, mode);
        fid
    }

    #[test]
    fn owners() {
        let world = World::new();
        let client = world.client(1);
        let fid = file_of(&client, 5, 0o644);
        let member = Cred { groups: Some(vec![9]), ..user(5) };
        let unknown = Cred { groups: None, ..user(5) };
        let chown = |cred: &Cred, uid, gid| {
            set(&client, SetAttr { uid, gid, ..client.set_attr(fid, cred) }).map(|attr| (attr.uid, attr.gid))
        };
        assert_eq!(chown(&user(5), Some(6), None), Err(Code::NotPermitted));
        assert_eq!(chown(&user(5), Some(5), None), Ok((5, 5)));
        assert_eq!(chown(&user(6), None, Some(6)), Err(Code::NotPermitted));
        assert_eq!(chown(&user(5), None, Some(9)), Err(Code::NotPermitted));
        assert_eq!(chown(&unknown, None, Some(9)), Err(Code::NeedGroups));
        assert_eq!(chown(&member, None, Some(9)), Ok((5, 9)));
        let chmod = |cred: &Cred, mode| {
            set(&client, SetAttr { mode: Some(mode), ..client.set_attr(fid, cred) })
                .map(|attr| attr.mode & 0o7777)
        };
        assert_eq!(chmod(&user(6), 0o600), Err(Code::NotPermitted));
        assert_eq!(chmod(&user(5), 0o2755), Ok(0o755), "not in the group");
        assert_eq!(chmod(&member, 0o2755), Ok(0o2755));
        assert_eq!(chmod(&member, 0o6755), Ok(0o6755));
        assert_eq!(chown(&user(0), Some(5), Some(5)), Ok((5, 5)));
        assert_eq!(
            client.attr(fid).map(|attr| attr.mode & 0o7777),
            Ok(0o755),
            "chown clears setuid and setgid"
        );
    }

    #[test]
    fn times() {
        let world = World::new();
        let client = world.client(1);
        let fid = file_of(&client, 5, 0o662);
        let time = Timestamp { secs: 1, nanos: 2 };
        let touch = |uid, now| {
            let change = Some(TimeChange { time, now });
            set(&client, SetAttr { atime: change.clone(), mtime: change, ..client.set_attr(fid, &user(uid)) })
        };
        assert_eq!(touch(6, false), Err(Code::NotPermitted));
        assert!(touch(6, true).is_ok());
        let one = TimeChange { time, now: true };
        let alone = SetAttr { mtime: Some(one), ..client.set_attr(fid, &user(6)) };
        assert_eq!(set(&client, alone), Err(Code::NotPermitted), "one of both is for the owner");
        client.chmod(fid, 0o660);
        assert_eq!(touch(6, true), Err(Code::AccessDenied));
        let before = client.attr(fid).expect("it exists");
        let after = touch(5, false).expect("the owner may");
        assert_eq!((after.atime, after.mtime), (time, time));
        assert!(after.ctime > before.ctime);
        let past = SetAttr { mode: Some(0o600), time, ..client.set_attr(fid, &user(5)) };
        assert_eq!(set(&client, past).map(|attr| attr.ctime), Ok(after.ctime), "ctime never goes back");
    }

    #[test]
    fn privileges_go_with_a_write() {
        let world = World::new();
        let client = world.client(1);
        let fid = file_of(&client, 5, 0o6772);
        let kill = |uid, handle| {
            let kill = SetAttr { kill_privileges: true, handle, ..client.set_attr(fid, &user(uid)) };
            set(&client, kill).map(|attr| attr.mode & 0o7777)
        };
        let name = Bytes::from_static(XATTR_CAPABILITY);
        let give = || {
            let (name, value) = (name.clone(), Bytes::from_static(b"rights"));
            let give = SetXattr { fid, name, value, flags: 0, cred: Cred::root(), time: client.time() };
            client.call(give).expect("root may");
        };
        let has = || client.call(GetXattr { fid, name: name.clone(), cred: Cred::root() }).is_ok();
        give();
        assert_eq!(kill(0, None), Ok(0o6772), "the superuser's writes leave setuid and setgid");
        assert!(!has(), "but not the capabilities");
        give();
        assert_eq!(kill(6, None), Ok(0o772));
        assert!(!has());
        give();
        client.chown(fid, 5, 5);
        assert!(!has(), "who gets the file does not get its capabilities");
        client.chmod(fid, 0o6762);
        let kill_by = |cred: &Cred| {
            set(&client, SetAttr { kill_privileges: true, ..client.set_attr(fid, cred) })
                .map(|attr| attr.mode & 0o7777)
        };
        let unknown = Cred { groups: None, ..user(6) };
        assert_eq!(kill_by(&unknown), Err(Code::NeedGroups));
        let member = Cred { groups: Some(vec![5]), ..user(6) };
        assert_eq!(kill_by(&member), Ok(0o2762), "of what the group may not execute");
        assert_eq!(kill(6, None), Ok(0o762), "for who is not in the group");
        client.chmod(fid, 0o4700);
        assert_eq!(kill(6, None), Err(Code::AccessDenied), "only a writer drops them");
        let opened = client.open(fid, OPEN_WRITE, &user(5)).expect("the owner may");
        assert_eq!(kill(6, Some(opened.handle)), Ok(0o700));
    }

    #[test]
    fn sizes() {
        let world = World::new();
        let client = world.client(1);
        let fid = file_of(&client, 5, 0o4755);
        let truncate = |uid, size, handle| {
            set(&client, SetAttr { size: Some(size), handle, ..client.set_attr(fid, &user(uid)) })
        };
        assert_eq!(truncate(6, 0, None), Err(Code::AccessDenied));
        let cut = truncate(5, 7, None).expect("the owner may");
        assert!(!cut.size_known && cut.mode & 0o7777 == 0o755);
        assert_eq!(truncate(5, u64::MAX, None), Err(Code::TooLarge));
        let opened = client.open(fid, OPEN_WRITE, &user(5)).expect("the owner may");
        client.chmod(fid, 0);
        assert_eq!(truncate(5, 1, None), Err(Code::AccessDenied));
        assert!(truncate(5, 1, Some(opened.handle)).is_ok());
        let dir = client.mkdir(Fid::ROOT, "d");
        let request = SetAttr { size: Some(0), ..client.set_attr(dir, &Cred::root()) };
        assert_eq!(set(&client, request), Err(Code::IsDirectory));
    }
}
