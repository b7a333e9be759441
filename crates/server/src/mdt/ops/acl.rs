//! ACLs as the extended attributes that they are to Linux. They lie in the inode, where every check of a permission
//! finds them.

use bytes::Bytes;
use proto::acl::{Acl, AclError, XATTR_ACCESS, XATTR_DEFAULT};
use proto::types::MODE_SETGID;
use proto::wire::messages::{LOCK_PERM, LOCK_XATTR};
use proto::{Code, Cred, FileKind, Timestamp};

use crate::mdt::inode::Inode;
use crate::mdt::{Changes, access};

/// Permission bits that an ACL has a say in.
const MODE_ACCESS: u32 = 0o777;

/// Which ACL of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its own.
    Access,
    /// What new files in it inherit.
    Default,
}

/// The ACL that is kept as attribute `name`, if it is one.
pub(super) fn kind(name: &[u8]) -> Option<Kind> {
    match name {
        XATTR_ACCESS => Some(Kind::Access),
        XATTR_DEFAULT => Some(Kind::Default),
        _ => None,
    }
}

/// Names of the ACLs that a file has.
pub(super) fn names(inode: &Inode) -> impl Iterator<Item = Bytes> {
    let access = inode.acl.as_ref().map(|_| Bytes::from_static(XATTR_ACCESS));
    access.into_iter().chain(inode.default_acl.as_ref().map(|_| Bytes::from_static(XATTR_DEFAULT)))
}

/// The value of an ACL's attribute.
pub(super) fn get(inode: &Inode, kind: Kind) -> Result<Bytes, Code> {
    if inode.kind() == FileKind::Symlink {
        return Err(Code::NotSupported);
    }
    let acl = match kind {
        Kind::Access => &inode.acl,
        Kind::Default => &inode.default_acl,
    };
    acl.as_ref().map(Acl::encode).ok_or(Code::NoXattr)
}

/// The ACL that somebody wants to set; `None` takes it away.
pub(super) fn parse(value: &[u8]) -> Result<Option<Acl>, Code> {
    Acl::decode(value).map_err(|error| match error {
        AclError::Version => Code::NotSupported,
        AclError::Invalid => Code::Invalid,
        AclError::TooLong => Code::NoSpace,
    })
}

/// Sets an ACL, or takes it away, which is no error if there is none. An ACL of a file's own changes its mode, and is
/// not kept if the mode says all of it.
pub(super) fn set(inode: &mut Inode, kind: Kind, acl: Option<Acl>, cred: &Cred) -> Result<(), Code> {
    if inode.kind() == FileKind::Symlink {
        return Err(Code::NotSupported);
    }
    if !access::is_owner(cred, inode) {
        return Err(Code::NotPermitted);
    }
    match kind {
        Kind::Default if inode.is_dir() => inode.default_acl = acl,
        Kind::Default if acl.is_some() => return Err(Code::AccessDenied),
        Kind::Default => {}
        Kind::Access => {
            if let Some(acl) = &acl {
                inode.mode = inode.mode & !MODE_ACCESS | acl.mode();
                if inode.mode & MODE_SETGID != 0 && !access::is_member(cred, inode.gid)? {
                    inode.mode &= !MODE_SETGID;
                }
            }
            inode.acl = acl.filter(Acl::is_extended);
        }
    }
    Ok(())
}

/// What is committed when an ACL has changed.
pub(super) fn changes(mut inode: Inode, time: Timestamp) -> Changes {
    inode.xattrs |= inode.acl.is_some() || inode.default_acl.is_some();
    inode.touch(time);
    let mut changes = Changes::default();
    changes.put_inode(&inode, LOCK_PERM | LOCK_XATTR);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{Client, World, user};
    use proto::Fid;
    use proto::acl::{Entry, Tag};
    use proto::wire::messages::{
        ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, Access, GetXattr, ListXattr, OPEN_READ, RemoveXattr,
        SetXattr,
    };

    /// Owner, user 7, group, group 8, mask, others.
    fn acl(bits: [u32; 6]) -> Acl {
        let tags = [Tag::Owner, Tag::User(7), Tag::Group, Tag::NamedGroup(8), Tag::Mask, Tag::Other];
        let entries = tags.into_iter().zip(bits).map(|(tag, bits)| Entry { tag, bits }).collect();
        Acl::new(entries).expect("a valid ACL")
    }

    fn set(client: &Client, fid: Fid, name: &'static [u8], value: Bytes, cred: Cred) -> Result<(), Code> {
        let (name, time) = (Bytes::from_static(name), client.time());
        client.call(SetXattr { fid, name, value, flags: 0, cred, time }).map(drop)
    }

    fn get(client: &Client, fid: Fid, name: &'static [u8]) -> Result<Acl, Code> {
        let got = client.call(GetXattr { fid, name: Bytes::from_static(name), cred: user(99) })?;
        Ok(parse(&got.value).expect("a valid ACL").expect("it has entries"))
    }

    fn remove(client: &Client, fid: Fid, name: &'static [u8], cred: Cred) -> Result<(), Code> {
        let (name, time) = (Bytes::from_static(name), client.time());
        client.call(RemoveXattr { fid, name, cred, time }).map(drop)
    }

    #[test]
    fn the_acl_decides_and_follows_the_mode() {
        let world = World::new();
        let client = world.client(1);
        let fid = client.file(Fid::ROOT, "f");
        client.chown(fid, 5, 5);
        assert_eq!(
            set(&client, fid, XATTR_ACCESS, acl([6, 6, 0, 4, 6, 0]).encode(), user(6)),
            Err(Code::NotPermitted)
        );
        set(&client, fid, XATTR_ACCESS, acl([6, 6, 0, 4, 6, 0]).encode(), user(5)).expect("the owner may");
        assert_eq!(client.attr(fid).map(|attr| attr.mode), Ok(0o100_660));
        let may = |cred: Cred, mask| client.call(Access { fid, mask, cred }).map(drop);
        let of_eight = || Cred { groups: Some(vec![3, 8]), ..user(20) };
        assert_eq!(may(user(7), ACCESS_READ | ACCESS_WRITE), Ok(()));
        assert_eq!(may(user(7), ACCESS_EXECUTE), Err(Code::AccessDenied));
        assert_eq!(may(of_eight(), ACCESS_READ), Ok(()));
        assert_eq!(may(of_eight(), ACCESS_WRITE), Err(Code::AccessDenied));
        assert_eq!(may(user(20), ACCESS_READ), Err(Code::AccessDenied));
        assert_eq!(may(Cred { groups: None, ..user(20) }, ACCESS_READ), Err(Code::NeedGroups));
        assert_eq!(may(Cred { gid: 5, ..user(20) }, ACCESS_READ), Err(Code::AccessDenied));
        assert!(client.open(fid, OPEN_READ, &user(7)).is_ok());
        client.chmod(fid, 0o640);
        assert_eq!(get(&client, fid, XATTR_ACCESS), Ok(acl([6, 6, 0, 4, 4, 0])));
        assert_eq!(may(user(7), ACCESS_WRITE), Err(Code::AccessDenied), "the mask takes it");
        client.chmod(fid, 0o604);
        assert_eq!(may(user(7), ACCESS_READ), Ok(()), "with an empty mask the mode decides, as in Linux");
        let names = client.call(ListXattr { fid }).expect("it exists").names;
        assert_eq!(names, [Bytes::from_static(XATTR_ACCESS)]);
        world.sync();
        let world = world.crash();
        let client = world.client(2);
        assert_eq!(get(&client, fid, XATTR_ACCESS), Ok(acl([6, 6, 0, 4, 0, 4])));
        remove(&client, fid, XATTR_ACCESS, user(5)).expect("the owner may");
        assert_eq!(get(&client, fid, XATTR_ACCESS), Err(Code::NoXattr));
        assert_eq!(remove(&client, fid, XATTR_ACCESS, user(5)), Ok(()), "there is none any more");
        assert_eq!(remove(&client, fid, XATTR_ACCESS, user(6)), Err(Code::NotPermitted));
    }

    #[test]
    fn an_acl_that_says_no_more_than_a_mode_becomes_one() {
        let world = World::new();
        let client = world.client(1);
        let fid = client.file(Fid::ROOT, "f");
        client.chown(fid, 5, 6);
        client.chmod(fid, 0o2755);
        let tags = [Tag::Owner, Tag::Group, Tag::Other];
        let plain = tags.into_iter().zip([7, 1, 0]).map(|(tag, bits)| Entry { tag, bits }).collect();
        let plain = Acl::new(plain).expect("a valid ACL");
        set(&client, fid, XATTR_ACCESS, plain.encode(), Cred { groups: Some(vec![6]), ..user(5) })
            .expect("the owner may");
        assert_eq!(client.attr(fid).map(|attr| attr.mode), Ok(0o102_710));
        set(&client, fid, XATTR_ACCESS, plain.encode(), user(5)).expect("the owner may");
        assert_eq!(
            client.attr(fid).map(|attr| attr.mode),
            Ok(0o100_710),
            "who is not in the group loses setgid"
        );
        assert_eq!(get(&client, fid, XATTR_ACCESS), Err(Code::NoXattr));
        let dir = client.mkdir(Fid::ROOT, "d");
        set(&client, dir, XATTR_DEFAULT, plain.encode(), Cred::root()).expect("root may");
        assert_eq!(get(&client, dir, XATTR_DEFAULT), Ok(plain), "a default is kept as it is");
    }

    #[test]
    fn new_files_inherit() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        let default = acl([7, 7, 5, 4, 7, 1]);
        set(&client, dir, XATTR_DEFAULT, default.encode(), Cred::root()).expect("root may");
        assert_eq!(
            client.attr(dir).map(|attr| attr.mode),
            Ok(0o040_755),
            "the directory itself stays as it is"
        );
        let make = |text: &str, mode| {
            let request =
                proto::wire::messages::Create { umask: 0o077, ..client.create_request(dir, text, mode) };
            client.call(request).expect("root may")
        };
        let file = make("f", 0o100_666);
        assert_eq!((file.attr.mode, file.xattrs), (0o100_660, true), "the umask does not count");
        assert_eq!(get(&client, file.attr.fid, XATTR_ACCESS), Ok(acl([6, 7, 5, 4, 6, 0])));
        assert_eq!(get(&client, file.attr.fid, XATTR_DEFAULT), Err(Code::NoXattr));
        let sub = make("sub", 0o040_755).attr;
        assert_eq!(sub.mode, 0o040_751);
        assert_eq!(get(&client, sub.fid, XATTR_ACCESS), Ok(acl([7, 7, 5, 4, 5, 1])));
        assert_eq!(get(&client, sub.fid, XATTR_DEFAULT), Ok(default));
        let mut link = client.create_request(dir, "l", 0o120_777);
        (link.target, link.umask) = (Bytes::from_static(b"f"), 0o077);
        let link = client.call(link).expect("root may");
        assert_eq!((link.attr.mode, link.xattrs), (0o120_777, false));
        remove(&client, dir, XATTR_DEFAULT, Cred::root()).expect("root may");
        assert_eq!(make("g", 0o100_666).attr.mode, 0o100_600, "without a default the umask counts");
    }

    #[test]
    fn refusals() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let mut link = client.create_request(Fid::ROOT, "l", 0o120_777);
        link.target = Bytes::from_static(b"f");
        let link = client.call(link).expect("root may").attr.fid;
        let value = acl([7, 7, 7, 7, 7, 7]).encode();
        assert_eq!(set(&client, link, XATTR_ACCESS, value.clone(), Cred::root()), Err(Code::NotSupported));
        assert_eq!(get(&client, link, XATTR_ACCESS), Err(Code::NotSupported));
        assert_eq!(set(&client, file, XATTR_DEFAULT, value.clone(), Cred::root()), Err(Code::AccessDenied));
        assert_eq!(remove(&client, file, XATTR_DEFAULT, Cred::root()), Ok(()));
        assert_eq!(set(&client, file, XATTR_ACCESS, value.slice(..20), Cred::root()), Err(Code::Invalid));
        let other = [&[3, 0, 0, 0], &value[4..]].concat();
        assert_eq!(set(&client, file, XATTR_ACCESS, other.into(), Cred::root()), Err(Code::NotSupported));
        assert_eq!(
            set(&client, file, XATTR_ACCESS, value.slice(..4), Cred::root()),
            Ok(()),
            "no entries, no ACL"
        );
        let long = [&value[..], &[0; 8 * 600]].concat();
        assert_eq!(set(&client, file, XATTR_ACCESS, long.into(), Cred::root()), Err(Code::NoSpace));
    }
}
