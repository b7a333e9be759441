//! Owner, group and mode of a file, and how they change: the rules of Linux (`setattr_prepare`, `setattr_copy`), without access control
//! lists. An MDT decides by them, and a client that tells ahead what an MDT will say.

use crate::code::Code;
use crate::types::{Cred, FileKind, MODE_PERMISSIONS, MODE_SETGID, MODE_SETUID};

/// Permission of the group to execute.
const MODE_GROUP_EXECUTE: u32 = 0o010;

/// Owner, group and mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Kind and permissions.
    pub mode: u32,
}

/// What is to be changed of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnershipChange {
    /// Another owner.
    pub uid: Option<u32>,
    /// Another group.
    pub gid: Option<u32>,
    /// Other permissions.
    pub mode: Option<u32>,
    /// The change comes with a write or a truncate: what gives the owner's rights to whoever executes the file goes with it.
    pub writes: bool,
}

/// Whether `cred` has the rights of the superuser.
pub fn is_root(cred: &Cred) -> bool {
    cred.uid == 0
}

/// Whether `cred` is in group `gid`; `None` if its supplementary groups would have to be known.
pub fn in_group(cred: &Cred, gid: u32) -> Option<bool> {
    if cred.gid == gid {
        return Some(true);
    }
    cred.groups.as_ref().map(|groups| groups.contains(&gid))
}

/// Whether `cred` is in group `gid`, or the superuser.
///
/// # Errors
/// [`Code::NeedGroups`] if its supplementary groups would have to be known.
pub fn is_member(cred: &Cred, gid: u32) -> Result<bool, Code> {
    if is_root(cred) { Ok(true) } else { in_group(cred, gid).ok_or(Code::NeedGroups) }
}

impl Ownership {
    /// Whether `cred` is the owner, or the superuser.
    pub fn is_owner(&self, cred: &Cred) -> bool {
        is_root(cred) || cred.uid == self.uid
    }

    /// Changes them as `cred` asks for.
    ///
    /// # Errors
    /// [`Code::NotPermitted`]: `cred` may not. [`Code::NeedGroups`] if its supplementary groups would have to be known.
    pub fn change(&mut self, cred: &Cred, change: &OwnershipChange) -> Result<(), Code> {
        self.check(cred, change)?;
        if let Some(mode) = change.mode {
            self.mode = self.mode & !MODE_PERMISSIONS | mode & MODE_PERMISSIONS;
        }
        let chown = change.uid.is_some() || change.gid.is_some();
        let gid_before = self.gid;
        self.uid = change.uid.unwrap_or(self.uid);
        self.gid = change.gid.unwrap_or(self.gid);
        if change.mode.is_some() && self.mode & MODE_SETGID != 0 && !is_member(cred, self.gid)? {
            self.mode &= !MODE_SETGID;
        }
        let kind = FileKind::from_mode(self.mode);
        let written = kind == Some(FileKind::File) && !is_root(cred) && change.writes;
        if chown && kind != Some(FileKind::Dir) || written {
            self.drop_privileges(cred, gid_before)?;
        }
        Ok(())
    }

    fn check(&self, cred: &Cred, change: &OwnershipChange) -> Result<(), Code> {
        let owner = self.is_owner(cred);
        if let Some(uid) = change.uid
            && !(is_root(cred) || owner && uid == self.uid)
        {
            return Err(Code::NotPermitted);
        }
        if let Some(gid) = change.gid {
            let allowed = owner && (gid == self.gid || is_member(cred, gid)?);
            if !allowed {
                return Err(Code::NotPermitted);
            }
        }
        if change.mode.is_some() && !owner && !self.only_drops_privileges(change) {
            return Err(Code::NotPermitted);
        }
        Ok(())
    }

    /// Whether the new mode is the old one without setuid or setgid, as it comes with a write or truncate of somebody
    /// who may write but does not own.
    fn only_drops_privileges(&self, change: &OwnershipChange) -> bool {
        const PRIVILEGES: u32 = MODE_SETUID | MODE_SETGID;
        let drops = |mode: u32| {
            let changed = (mode ^ self.mode) & MODE_PERMISSIONS;
            changed & !PRIVILEGES == 0 && mode & changed == 0
        };
        change.writes && change.mode.is_some_and(drops)
    }

    /// Drops the bits that give the owner's or the group's rights to whoever executes the file. Setgid of what the group may not execute
    /// goes too unless `cred` is in the group `gid`, which the file had before: as Linux has it (`setattr_should_drop_sgid`).
    fn drop_privileges(&mut self, cred: &Cred, gid: u32) -> Result<(), Code> {
        self.mode &= !MODE_SETUID;
        if self.mode & MODE_SETGID != 0 && (self.mode & MODE_GROUP_EXECUTE != 0 || !is_member(cred, gid)?) {
            self.mode &= !MODE_SETGID;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32) -> Ownership {
        Ownership { uid: 5, gid: 5, mode: 0o100_000 | mode }
    }

    fn user(uid: u32, groups: Option<&[u32]>) -> Cred {
        Cred { uid, gid: uid, groups: groups.map(<[u32]>::to_vec) }
    }

    fn changed(mode: u32, cred: &Cred, change: OwnershipChange) -> Result<(u32, u32, u32), Code> {
        let mut file = file(mode);
        file.change(cred, &change).map(|()| (file.uid, file.gid, file.mode & MODE_PERMISSIONS))
    }

    #[test]
    fn the_owner_gives_a_file_to_his_groups_and_to_nobody_else() {
        let none = OwnershipChange::default();
        let to_uid = |uid| OwnershipChange { uid: Some(uid), ..none };
        let to_gid = |gid| OwnershipChange { gid: Some(gid), ..none };
        let (owner, other) = (user(5, Some(&[9])), user(6, Some(&[])));
        assert_eq!(changed(0o644, &owner, to_uid(6)), Err(Code::NotPermitted));
        assert_eq!(changed(0o644, &owner, to_uid(5)), Ok((5, 5, 0o644)));
        assert_eq!(changed(0o644, &other, to_gid(6)), Err(Code::NotPermitted));
        assert_eq!(changed(0o644, &owner, to_gid(9)), Ok((5, 9, 0o644)));
        assert_eq!(changed(0o644, &user(5, None), to_gid(9)), Err(Code::NeedGroups));
        assert_eq!(changed(0o644, &Cred::root(), to_uid(7)), Ok((7, 5, 0o644)));
    }

    #[test]
    fn privileges_go_with_the_owner_and_with_a_write() {
        let none = OwnershipChange::default();
        let mode = |mode| OwnershipChange { mode: Some(mode), ..none };
        let owner = user(5, Some(&[]));
        assert_eq!(changed(0o644, &owner, mode(0o6755)), Ok((5, 5, 0o6755)));
        let to_other = OwnershipChange { gid: Some(7), ..mode(0o2755) };
        assert_eq!(changed(0o644, &user(5, Some(&[7])), to_other), Ok((5, 7, 0o755)), "chown drops setgid");
        assert_eq!(
            changed(0o6755, &Cred::root(), OwnershipChange { uid: Some(5), ..none }),
            Ok((5, 5, 0o755))
        );
        let writes = OwnershipChange { writes: true, ..none };
        assert_eq!(changed(0o6755, &user(6, Some(&[])), writes), Ok((5, 5, 0o755)));
        assert_eq!(changed(0o6755, &Cred::root(), writes), Ok((5, 5, 0o6755)));
        assert_eq!(changed(0o2644, &owner, writes), Ok((5, 5, 0o2644)), "not executable, and of the group");
        let drops = OwnershipChange { mode: Some(0o755), ..writes };
        assert_eq!(changed(0o6755, &user(6, Some(&[])), drops), Ok((5, 5, 0o755)));
        assert_eq!(changed(0o6755, &user(6, Some(&[])), mode(0o755)), Err(Code::NotPermitted));
    }
}
