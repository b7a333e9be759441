//! Who may do what: the rules of Linux, with one answer more: "send me your groups".

use proto::acl::Asker;
use proto::ownership::in_group;
pub use proto::ownership::{is_member, is_root};
use proto::types::{MODE_SETGID, MODE_STICKY};
use proto::wire::messages::{ACCESS_EXECUTE, ACCESS_WRITE};
use proto::{Code, Cred};

use super::inode::Inode;

/// The mode bits that say who may read, write and execute.
const MODE_ACCESS: u32 = 0o777;

/// Whether ACL and mode bits give `cred` everything in `mask` (`ACCESS_*`).
pub fn may(cred: &Cred, inode: &Inode, mask: u32) -> Result<(), Code> {
    if is_root(cred) {
        let executable = inode.is_dir() || inode.mode & 0o111 != 0;
        return if mask & ACCESS_EXECUTE == 0 || executable { Ok(()) } else { Err(Code::AccessDenied) };
    }
    let given_by = |shift: u32| inode.mode >> shift & mask == mask;
    let given = if cred.uid == inode.uid {
        given_by(6)
    } else if let Some(acl) = inode.acl.as_ref().filter(|_| inode.mode & 0o070 != 0) {
        // With an empty mask Linux does not look at the ACL.
        let in_group = |gid| in_group(cred, gid);
        acl.gives(&Asker { uid: cred.uid, in_group: &in_group }, inode.gid, mask).ok_or(Code::NeedGroups)?
    } else {
        match in_group(cred, inode.gid) {
            Some(true) => given_by(3),
            Some(false) => given_by(0),
            None if given_by(3) == given_by(0) => given_by(0),
            None => return Err(Code::NeedGroups),
        }
    };
    if given { Ok(()) } else { Err(Code::AccessDenied) }
}

/// Whether `cred` may change the entries of `dir`.
pub fn may_change(cred: &Cred, dir: &Inode) -> Result<(), Code> {
    may(cred, dir, ACCESS_WRITE | ACCESS_EXECUTE)
}

/// Whether `cred` may take the entry that names `victim` out of `dir`.
pub fn may_remove(cred: &Cred, dir: &Inode, victim: &Inode) -> Result<(), Code> {
    may_change(cred, dir)?;
    let sticky = dir.mode & MODE_STICKY != 0;
    if sticky && !is_owner(cred, victim) && !is_owner(cred, dir) {
        return Err(Code::NotPermitted);
    }
    Ok(())
}

/// Whether `cred` is the owner, or the superuser.
pub fn is_owner(cred: &Cred, inode: &Inode) -> bool {
    is_root(cred) || cred.uid == inode.uid
}

/// Permissions and ACLs of a new file in `dir`: what its default ACL says, or what the umask leaves.
pub fn inherit_acl(umask: u32, dir: &Inode, new: &mut Inode) {
    let Some(default) = &dir.default_acl else {
        new.mode &= !(umask & MODE_ACCESS);
        return;
    };
    let inherited = default.inherit(new.mode);
    new.mode = inherited.mode;
    new.acl = inherited.access;
    new.default_acl = new.is_dir().then(|| default.clone());
    new.xattrs = new.acl.is_some() || new.default_acl.is_some();
}

/// Mode and group of a new file in `dir`: a directory with the setgid bit hands its group on, and to directories
/// the bit too.
pub fn inherit(cred: &Cred, dir: &Inode, new: &mut Inode) -> Result<(), Code> {
    new.uid = cred.uid;
    if dir.mode & MODE_SETGID == 0 {
        new.gid = cred.gid;
        return Ok(());
    }
    new.gid = dir.gid;
    if new.is_dir() {
        new.mode |= MODE_SETGID;
    } else if new.mode & (MODE_SETGID | 0o010) == MODE_SETGID | 0o010 && !is_member(cred, new.gid)? {
        new.mode &= !MODE_SETGID;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::messages::ACCESS_READ;
    use proto::{Fid, Timestamp};

    fn inode(mode: u32) -> Inode {
        Inode { uid: 10, gid: 20, ..Inode::new(Fid::ROOT, mode, Timestamp::default()) }
    }

    fn cred(uid: u32, gid: u32, groups: Option<&[u32]>) -> Cred {
        Cred { uid, gid, groups: groups.map(<[u32]>::to_vec) }
    }

    #[test]
    fn classes() {
        let file = inode(0o100_640);
        let none: Option<&[u32]> = Some(&[]);
        let table: &[(Cred, u32, Result<(), Code>)] = &[
            (cred(10, 1, none), ACCESS_READ | ACCESS_WRITE, Ok(())),
            (cred(10, 20, none), ACCESS_EXECUTE, Err(Code::AccessDenied)),
            (cred(11, 20, None), ACCESS_READ, Ok(())),
            (cred(11, 1, Some(&[5, 20])), ACCESS_READ, Ok(())),
            (cred(11, 1, Some(&[5])), ACCESS_READ, Err(Code::AccessDenied)),
            (cred(11, 1, None), ACCESS_READ, Err(Code::NeedGroups)),
            (cred(11, 1, None), ACCESS_WRITE, Err(Code::AccessDenied)),
            (cred(0, 0, None), ACCESS_READ | ACCESS_WRITE, Ok(())),
            (cred(0, 0, None), ACCESS_EXECUTE, Err(Code::AccessDenied)),
        ];
        for (who, mask, expected) in table {
            assert_eq!(may(who, &file, *mask), *expected, "{who:?} {mask}");
        }
        // The first class that fits decides, even if a later one gives more.
        assert_eq!(may(&cred(10, 1, none), &inode(0o100_077), ACCESS_READ), Err(Code::AccessDenied));
        assert_eq!(may(&cred(0, 0, None), &inode(0o040_000), ACCESS_EXECUTE), Ok(()));
        assert_eq!(may(&cred(0, 0, None), &inode(0o100_001), ACCESS_EXECUTE), Ok(()));
    }

    #[test]
    fn sticky_directories_protect_entries() {
        let dir = Inode { uid: 1, ..inode(0o041_777) };
        let victim = Inode { uid: 2, ..inode(0o100_644) };
        let remove = |uid| may_remove(&cred(uid, 9, Some(&[])), &dir, &victim);
        assert_eq!(remove(1), Ok(()));
        assert_eq!(remove(2), Ok(()));
        assert_eq!(remove(3), Err(Code::NotPermitted));
        assert_eq!(remove(0), Ok(()));
    }

    #[test]
    fn setgid_directories_hand_their_group_on() {
        let dir = inode(0o042_777);
        let who = cred(5, 6, Some(&[]));
        let mut sub = inode(0o040_755);
        inherit(&who, &dir, &mut sub).expect("allowed");
        assert_eq!((sub.uid, sub.gid, sub.mode), (5, 20, 0o042_755));
        let mut file = inode(0o102_755);
        inherit(&who, &dir, &mut file).expect("allowed");
        assert_eq!((file.gid, file.mode), (20, 0o100_755));
        let mut plain = inode(0o100_644);
        inherit(&who, &inode(0o040_777), &mut plain).expect("allowed");
        assert_eq!(plain.gid, 6);
    }
}
