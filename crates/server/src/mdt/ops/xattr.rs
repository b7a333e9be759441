//! GetXattr, SetXattr, ListXattr, RemoveXattr: extended attributes.

use bytes::Bytes;
use proto::changelog::Kind;
use proto::limits::{XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use proto::types::{MODE_STICKY, XATTR_CAPABILITY};
use proto::wire::Reply;
use proto::wire::messages::{
    self as msg, ACCESS_READ, ACCESS_WRITE, GetXattr, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR, ListXattr,
    RemoveXattr, SetXattr, XATTR_CREATE, XATTR_REPLACE, XattrNames, XattrValue,
};
use proto::{Code, Cred, Fid, FileKind};
use service::keys::behind;
use service::{Done, code_of};
use store::Value;

use super::acl;
use crate::mdt::bits::Grant;
use crate::mdt::inode::Inode;
use crate::mdt::plan::{Step, XATTRS_MAX};
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog, keys};

/// Most bytes that the names of one file's attributes have together (Linux XATTR_LIST_MAX), a terminator each.
const NAMES_BYTES_MAX: usize = 65_536;

pub(in crate::mdt) fn get_xattr(mdt: &Mdt, ctx: &Ctx, request: &GetXattr) -> Outcome {
    let found = mdt.grants.read_and_keep(ctx, request.fid, LOCK_XATTR, || {
        let Some(inode) = mdt.names.find_inode(ctx, request.fid)? else { return Ok(None) };
        let value = match acl::kind(&request.name) {
            Some(kind) => acl::get(&inode, kind)?,
            None => {
                check_name(&request.name)?;
                check_read(&request.name, &inode, &request.cred)?;
                find_xattr(mdt, ctx, &inode, &request.name)?.ok_or(Code::NoXattr)?.bytes
            }
        };
        Ok(Some((inode, value)))
    })?;
    let (_, value, Grant { lock, .. }) = found.ok_or(Code::Stale)?;
    Ok(Done::unchanged(Reply::GetXattr(XattrValue { value, lock })))
}

pub(in crate::mdt) fn set_xattr(mdt: &Mdt, ctx: &Ctx, request: &SetXattr) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    if let Some(kind) = acl::kind(&request.name) {
        acl::set(&mut inode, kind, acl::parse(&request.value)?, &request.cred)?;
        let mut changes = acl::changes(inode, request.time);
        let of_xattr = changelog::of_xattr(&request.name, &request.cred);
        mdt.tell(&mut changes, Kind::Xattr, request.fid, of_xattr);
        return mdt.commit(ctx, changes, Reply::SetXattr(msg::Done {}));
    }
    check_name(&request.name)?;
    check_write(&request.name, &inode, &request.cred)?;
    if request.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Code::Invalid.into());
    }
    if request.value.len() > XATTR_BYTES_MAX {
        return Err(Code::TooBig.into());
    }
    match find_xattr(mdt, ctx, &inode, &request.name)? {
        Some(_) if request.flags & XATTR_CREATE != 0 => return Err(Code::Exists.into()),
        None if request.flags & XATTR_REPLACE != 0 => return Err(Code::NoXattr.into()),
        Some(_) => {}
        None => check_room(ctx, &inode, &request.name)?,
    }
    inode.xattrs = true;
    inode.touch(request.time);
    let mut changes = Changes::default();
    // A write takes capabilities away as it does setuid: clients that have the file open hear of both.
    let more = if request.name == XATTR_CAPABILITY { LOCK_PERM } else { 0 };
    changes.put_inode(&inode, AFFECTED | more);
    changes.put_raw(keys::xattr(inode.fid, &request.name), request.value.clone());
    mdt.tell(&mut changes, Kind::Xattr, request.fid, changelog::of_xattr(&request.name, &request.cred));
    mdt.commit(ctx, changes, Reply::SetXattr(msg::Done {}))
}

pub(in crate::mdt) fn list_xattr(mdt: &Mdt, ctx: &Ctx, request: &ListXattr) -> Outcome {
    let found = mdt.grants.read_and_keep(ctx, request.fid, LOCK_XATTR, || {
        let Some(inode) = mdt.names.find_inode(ctx, request.fid)? else { return Ok(None) };
        let mut names = if inode.xattrs { xattr_names(mdt, inode.fid)? } else { Vec::new() };
        names.extend(acl::names(&inode));
        names.sort_unstable();
        Ok(Some((inode, names)))
    })?;
    let (_, names, Grant { lock, .. }) = found.ok_or(Code::Stale)?;
    Ok(Done::unchanged(Reply::ListXattr(XattrNames { names, lock })))
}

pub(in crate::mdt) fn remove_xattr(mdt: &Mdt, ctx: &Ctx, request: &RemoveXattr) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    if let Some(kind) = acl::kind(&request.name) {
        acl::set(&mut inode, kind, None, &request.cred)?;
        let mut changes = acl::changes(inode, request.time);
        let of_xattr = changelog::of_xattr(&request.name, &request.cred);
        mdt.tell(&mut changes, Kind::Xattr, request.fid, of_xattr);
        return mdt.commit(ctx, changes, Reply::RemoveXattr(msg::Done {}));
    }
    check_name(&request.name)?;
    check_write(&request.name, &inode, &request.cred)?;
    find_xattr(mdt, ctx, &inode, &request.name)?.ok_or(Code::NoXattr)?;
    inode.touch(request.time);
    let mut changes = Changes::default();
    changes.put_inode(&inode, AFFECTED);
    changes.remove(keys::xattr(inode.fid, &request.name));
    mdt.tell(&mut changes, Kind::Xattr, request.fid, changelog::of_xattr(&request.name, &request.cred));
    mdt.commit(ctx, changes, Reply::RemoveXattr(msg::Done {}))
}

pub(super) fn find_xattr(mdt: &Mdt, ctx: &Ctx, inode: &Inode, name: &[u8]) -> Step<Option<Value>> {
    if inode.xattrs { mdt.names.get(ctx.reads(), &keys::xattr(inode.fid, name)) } else { Ok(None) }
}

fn xattr_names(mdt: &Mdt, fid: Fid) -> Result<Vec<Bytes>, Code> {
    let from = keys::of(keys::XATTR, fid);
    let found = mdt.store.scan(&from, &behind(&from), XATTRS_MAX).map_err(|error| code_of(&error))?;
    Ok(found.iter().map(|(key, _)| keys::xattr_name(key)).collect())
}

/// Whether the file, which the caller has locked, may have an attribute more.
fn check_room(ctx: &Ctx, inode: &Inode, name: &[u8]) -> Step<()> {
    let names = ctx.plan.xattrs(inode)?;
    let bytes: usize = names.iter().map(|key| keys::xattr_name(key).len() + 1).sum();
    let fits = names.len() < XATTRS_MAX && bytes + name.len() < NAMES_BYTES_MAX;
    if fits { Ok(()) } else { Err(Code::NoSpace.into()) }
}

/// Names belong to one of the spaces that Linux has. Access control lists are none of these ([`super::acl`]).
fn check_name(name: &[u8]) -> Result<(), Code> {
    let space = name.iter().position(|&byte| byte == b'.').map(|dot| &name[..dot]);
    match space {
        _ if name.len() > XATTR_NAME_BYTES_MAX => Err(Code::Range),
        _ if name.contains(&0) => Err(Code::Invalid),
        Some(b"user" | b"trusted" | b"security") if !name.ends_with(b".") => Ok(()),
        Some(b"user" | b"trusted" | b"security") => Err(Code::Invalid),
        _ => Err(Code::NotSupported),
    }
}

/// What others see change with an attribute: every change has a time.
const AFFECTED: u32 = LOCK_XATTR | LOCK_UPDATE;

fn is_of(space: &[u8], name: &[u8]) -> bool {
    name.starts_with(space)
}

fn check_read(name: &[u8], inode: &Inode, cred: &Cred) -> Result<(), Code> {
    if is_of(b"trusted.", name) && !access::is_root(cred) {
        return Err(Code::NoXattr);
    }
    if is_of(b"user.", name) {
        if !matches!(inode.kind(), FileKind::File | FileKind::Dir) {
            return Err(Code::NoXattr);
        }
        return access::may(cred, inode, ACCESS_READ);
    }
    Ok(())
}

fn check_write(name: &[u8], inode: &Inode, cred: &Cred) -> Result<(), Code> {
    if !is_of(b"user.", name) {
        return if access::is_root(cred) { Ok(()) } else { Err(Code::NotPermitted) };
    }
    let shared = inode.is_dir() && inode.mode & MODE_STICKY != 0 && !access::is_owner(cred, inode);
    if shared || !matches!(inode.kind(), FileKind::File | FileKind::Dir) {
        return Err(Code::NotPermitted);
    }
    access::may(cred, inode, ACCESS_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{World, user};

    #[test]
    fn attributes_come_and_go() {
        let world = World::new();
        let client = world.client(1);
        let fid = client.file(Fid::ROOT, "f");
        let set = |name: &'static str, flags, cred: Cred| {
            let (name, value) = (Bytes::from(name), Bytes::from("value"));
            client.call(SetXattr { fid, name, value, flags, cred, time: client.time() }).map(drop)
        };
        let get = |name: &'static str, cred: Cred| {
            client.call(GetXattr { fid, name: Bytes::from(name), cred }).map(|got| got.value)
        };
        let root = Cred::root;
        assert_eq!(get("user.a", root()), Err(Code::NoXattr));
        assert_eq!(set("user.a", XATTR_REPLACE, root()), Err(Code::NoXattr));
        assert_eq!(set("user.a", XATTR_CREATE, root()), Ok(()));
        assert_eq!(set("user.a", XATTR_CREATE, root()), Err(Code::Exists));
        assert_eq!(set("trusted.b", 0, root()), Ok(()));
        assert_eq!(set("user.a", 0, user(5)), Err(Code::AccessDenied));
        assert_eq!(set("trusted.c", 0, user(5)), Err(Code::NotPermitted));
        assert_eq!(get("trusted.b", user(5)), Err(Code::NoXattr));
        assert_eq!(get("user.a", user(5)), Ok(Bytes::from("value")));
        for (bad, code) in [
            ("system.posix_acl", Code::NotSupported),
            ("user.", Code::Invalid),
            ("plain", Code::NotSupported),
        ] {
            assert_eq!(set(bad, 0, root()), Err(code), "{bad}");
        }
        let names = client.call(ListXattr { fid }).expect("it exists").names;
        assert_eq!(names, ["trusted.b", "user.a"]);
        let remove = |name: &'static str| {
            let name = Bytes::from(name);
            client.call(RemoveXattr { fid, name, cred: root(), time: client.time() }).map(drop)
        };
        assert_eq!(remove("user.a"), Ok(()));
        assert_eq!(remove("user.a"), Err(Code::NoXattr));
        client.unlink(Fid::ROOT, "f").expect("it exists");
        assert_eq!(world.keys(keys::XATTR), 0);
    }

    #[test]
    fn only_files_and_directories_have_attributes_of_users() {
        let world = World::new();
        let client = world.client(1);
        let fid = client.make(Fid::ROOT, "p", 0o010_666, &Cred::root()).expect("root may").fid;
        let (name, value) = (Bytes::from("user.a"), Bytes::new());
        let request = SetXattr { fid, name, value, flags: 0, cred: Cred::root(), time: client.time() };
        assert_eq!(client.call(request), Err(Code::NotPermitted));
    }
}
