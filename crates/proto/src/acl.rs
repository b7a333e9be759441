//! POSIX access control lists (IEEE 1003.1e draft 17, as Linux has them): their form as an extended attribute, who may
//! do what, and what a new file inherits. Pure.
//!
//! The mode and the ACL of a file say the same: its owner's bits are those of the owner's entry, its group bits are the
//! mask (or, without one, those of the group's entry), the others' bits those of the others' entry. An ACL that says no
//! more than a mode is not kept.

use bytes::Bytes;

/// Name of the attribute that holds the ACL of a file.
pub const XATTR_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that holds what new files in a directory inherit.
pub const XATTR_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Most entries of an ACL.
pub const ENTRIES_MAX: usize = 500;

/// Version of the attribute's form.
const VERSION: u32 = 2;
/// Bytes in front of the entries.
const HEAD_BYTES: usize = 4;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;
/// The id in entries that name nobody.
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about. The order is that of the entries of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// The owner.
    Owner,
    /// Another user.
    User(u32),
    /// The file's group.
    Group,
    /// Another group.
    NamedGroup(u32),
    /// Nobody: what entries of users, and of groups, give at most.
    Mask,
    /// Everybody else.
    Other,
}

/// What one entry gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// To whom.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub bits: u32,
}

/// Why bytes are not an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// It has a form that is not known.
    #[error("an ACL of another version")]
    Version,
    /// Its entries make no ACL.
    #[error("not an ACL")]
    Invalid,
    /// It has too many entries.
    #[error("an ACL with too many entries")]
    TooLong,
}

/// A valid ACL: one entry each for owner, group and others, and a mask if anybody else is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// Who asks, in the terms of an ACL.
pub struct Asker<'a> {
    /// The user.
    pub uid: u32,
    /// Whether the user is in a group; `None` if the supplementary groups would have to be known.
    pub in_group: &'a dyn Fn(u32) -> Option<bool>,
}

/// What a new file is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// Its permissions.
    pub mode: u32,
    /// Its ACL, if that says more than the mode.
    pub access: Option<Acl>,
}

impl Acl {
    /// The ACL of these entries.
    pub fn new(entries: Vec<Entry>) -> Result<Acl, AclError> {
        if entries.len() > ENTRIES_MAX {
            return Err(AclError::TooLong);
        }
        let rank = |tag: Tag| match tag {
            Tag::Owner => 0,
            Tag::User(_) => 1,
            Tag::Group => 2,
            Tag::NamedGroup(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        };
        // Only entries that name somebody repeat, and ids need not be in order.
        let ordered = entries
            .iter()
            .zip(entries.iter().skip(1))
            .all(|(a, b)| rank(a.tag) < rank(b.tag) || rank(a.tag) == rank(b.tag) && is_named(a.tag));
        let has = |tag| entries.iter().any(|entry| entry.tag == tag);
        let named = entries.iter().any(|entry| is_named(entry.tag));
        let complete = has(Tag::Owner) && has(Tag::Group) && has(Tag::Other) && (has(Tag::Mask) || !named);
        let nobody =
            entries.iter().any(|entry| matches!(entry.tag, Tag::User(NO_ID) | Tag::NamedGroup(NO_ID)));
        let sane = entries.iter().all(|entry| entry.bits <= 7) && !nobody;
        if ordered && complete && sane { Ok(Acl { entries }) } else { Err(AclError::Invalid) }
    }

    /// The ACL in the value of an attribute; `None` for one without entries, which takes the ACL away.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>, AclError> {
        if value.is_empty() {
            return Ok(None);
        }
        let (head, rest) = value.split_first_chunk::<HEAD_BYTES>().ok_or(AclError::Invalid)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(AclError::Version);
        }
        if !rest.len().is_multiple_of(ENTRY_BYTES) {
            return Err(AclError::Invalid);
        }
        if rest.len() / ENTRY_BYTES > ENTRIES_MAX {
            return Err(AclError::TooLong);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let entries = rest.chunks_exact(ENTRY_BYTES).map(decode_entry).collect::<Result<Vec<Entry>, _>>()?;
        Acl::new(entries).map(Some)
    }

    /// The value of an attribute.
    pub fn encode(&self) -> Bytes {
        let mut value = Vec::with_capacity(HEAD_BYTES + self.entries.len() * ENTRY_BYTES);
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id): (u16, u32) = match entry.tag {
                Tag::Owner => (0x01, NO_ID),
                Tag::User(uid) => (0x02, uid),
                Tag::Group => (0x04, NO_ID),
                Tag::NamedGroup(gid) => (0x08, gid),
                Tag::Mask => (0x10, NO_ID),
                Tag::Other => (0x20, NO_ID),
            };
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&(entry.bits as u16).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value.into()
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn bits(&self, tag: Tag) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.bits)
    }

    fn set(&mut self, tag: Tag, bits: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tag == tag) {
            entry.bits = bits;
        }
    }

    /// The entry whose bits are the group bits of the mode.
    fn group_class(&self) -> Tag {
        if self.bits(Tag::Mask).is_some() { Tag::Mask } else { Tag::Group }
    }

    /// The nine permission bits that say the same, as far as they can.
    pub fn mode(&self) -> u32 {
        let of = |tag| self.bits(tag).unwrap_or(0);
        of(Tag::Owner) << 6 | of(self.group_class()) << 3 | of(Tag::Other)
    }

    /// Whether it says more than its mode does.
    pub fn is_extended(&self) -> bool {
        self.entries.iter().any(|entry| is_named(entry.tag) || entry.tag == Tag::Mask)
    }

    /// chmod: the permission bits of `mode` go into the entries that stand for them.
    pub fn set_mode(&mut self, mode: u32) {
        self.set(Tag::Owner, mode >> 6 & 7);
        self.set(self.group_class(), mode >> 3 & 7);
        self.set(Tag::Other, mode & 7);
    }

    /// Whether the ACL of a file gives everything in `wanted` to somebody; `None` if that depends on supplementary
    /// groups that are not known. `gid` is the file's group; the owner is not asked about here, nor is a file whose
    /// mask is empty: Linux looks at the mode alone then, so that everybody but the owner counts as one of the others
    /// or of the file's group.
    pub fn gives(&self, asker: &Asker<'_>, gid: u32, wanted: u32) -> Option<bool> {
        let mask = self.bits(Tag::Mask).unwrap_or(7);
        if let Some(bits) = self.bits(Tag::User(asker.uid)) {
            return Some(bits & mask & wanted == wanted);
        }
        let (mut member, mut unknown) = (false, false);
        for entry in &self.entries {
            let of = match entry.tag {
                Tag::Group => gid,
                Tag::NamedGroup(of) => of,
                _ => continue,
            };
            match (asker.in_group)(of) {
                Some(true) if entry.bits & mask & wanted == wanted => return Some(true),
                Some(true) => member = true,
                Some(false) => {}
                None => unknown = true,
            }
        }
        match (member, unknown) {
            (_, true) => None,
            (true, false) => Some(false),
            (false, false) => Some(self.bits(Tag::Other).unwrap_or(0) & wanted == wanted),
        }
    }

    /// What a file of permissions `mode` gets in a directory whose default this is. The umask does not count.
    pub fn inherit(&self, mode: u32) -> Inherited {
        let mut access = self.clone();
        let mut given = 0;
        for (tag, shift) in [(Tag::Owner, 6), (self.group_class(), 3), (Tag::Other, 0)] {
            let bits = self.bits(tag).unwrap_or(0) & mode >> shift & 7;
            access.set(tag, bits);
            given |= bits << shift;
        }
        Inherited { mode: mode & !0o777 | given, access: Some(access).filter(Acl::is_extended) }
    }
}

fn is_named(tag: Tag) -> bool {
    matches!(tag, Tag::User(_) | Tag::NamedGroup(_))
}

fn decode_entry(bytes: &[u8]) -> Result<Entry, AclError> {
    let bytes: &[u8; ENTRY_BYTES] = bytes.try_into().map_err(|_| AclError::Invalid)?;
    let [t0, t1, b0, b1, id @ ..] = *bytes;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([t0, t1]) {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::Group,
        0x08 => Tag::NamedGroup(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return Err(AclError::Invalid),
    };
    Ok(Entry { tag, bits: u32::from(u16::from_le_bytes([b0, b1])) })
}

#[cfg(test)]
mod tests {
    use rt::sim::Rng;

    use super::*;

    struct Random(Rng);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0.below(bound)
        }

        fn bits(&mut self) -> u32 {
            self.below(8) as u32
        }

        fn acl(&mut self) -> Acl {
            let mut entries = vec![Entry { tag: Tag::Owner, bits: self.bits() }];
            for uid in 1..4 {
                if self.below(2) == 0 {
                    entries.push(Entry { tag: Tag::User(uid), bits: self.bits() });
                }
            }
            entries.push(Entry { tag: Tag::Group, bits: self.bits() });
            for gid in 11..14 {
                if self.below(2) == 0 {
                    entries.push(Entry { tag: Tag::NamedGroup(gid), bits: self.bits() });
                }
            }
            if entries.len() > 2 || self.below(2) == 0 {
                entries.push(Entry { tag: Tag::Mask, bits: self.bits() });
            }
            entries.push(Entry { tag: Tag::Other, bits: self.bits() });
            Acl::new(entries).expect("a valid ACL")
        }
    }

    /// The standard's words, one permission at a time and without a thought for speed.
    fn naive(acl: &Acl, uid: u32, groups: &[u32], gid: u32, wanted: u32) -> bool {
        let find = |tag| acl.entries().iter().find(|entry| entry.tag == tag).map(|entry| entry.bits);
        let mask = find(Tag::Mask).unwrap_or(7);
        if let Some(bits) = find(Tag::User(uid)) {
            return wanted & !(bits & mask) == 0;
        }
        let mut matching = Vec::new();
        for group in groups {
            matching.extend(find(Tag::NamedGroup(*group)));
            matching.extend(find(Tag::Group).filter(|_| *group == gid));
        }
        if !matching.is_empty() {
            return matching.iter().any(|bits| wanted & !(bits & mask) == 0);
        }
        wanted & !find(Tag::Other).expect("every ACL has one") == 0
    }

    #[test]
    fn the_answer_is_that_of_the_standard() {
        let mut random = Random(Rng::new(1));
        for _ in 0..20_000 {
            let acl = random.acl();
            let (uid, gid, wanted) = (random.below(5) as u32, 10 + random.below(5) as u32, random.bits());
            let groups: Vec<u32> = (10..15).filter(|_| random.below(3) == 0).collect();
            let known = |group: u32| Some(groups.contains(&group));
            let want = naive(&acl, uid, &groups, gid, wanted);
            assert_eq!(
                acl.gives(&Asker { uid, in_group: &known }, gid, wanted),
                Some(want),
                "{acl:?} {uid} {groups:?}"
            );
            // Who does not tell its groups gets the same answer, or is asked for them.
            let first = groups.first().copied();
            let partly = |group: u32| if Some(group) == first { Some(true) } else { None };
            let given = acl.gives(&Asker { uid, in_group: &partly }, gid, wanted);
            assert!(given.is_none() || given == Some(want));
        }
    }

    #[test]
    fn mode_and_entries_say_the_same() {
        let mut random = Random(Rng::new(2));
        for _ in 0..10_000 {
            let mut acl = random.acl();
            assert_eq!(Acl::decode(&acl.encode()), Ok(Some(acl.clone())));
            let mode = random.below(0o1000) as u32;
            let before = acl.clone();
            acl.set_mode(mode);
            assert_eq!(acl.mode(), mode);
            assert_eq!(acl.is_extended(), before.is_extended());
            let changed = before.entries().iter().zip(acl.entries()).filter(|(a, b)| a != b);
            assert!(changed.map(|(a, _)| a.tag).all(|tag| !is_named(tag)));
            let default = random.acl();
            let new = default.inherit(0o102_000 | mode);
            assert_eq!(new.mode, 0o102_000 | mode & default.mode());
            assert_eq!(new.access.is_some(), default.is_extended());
            if let Some(access) = new.access {
                assert_eq!(access.mode(), new.mode & 0o777);
                assert!(
                    access
                        .entries()
                        .iter()
                        .zip(default.entries())
                        .all(|(a, b)| a.tag == b.tag && a.bits & !b.bits == 0)
                );
            }
        }
    }

    #[test]
    fn entries_that_are_no_acl_are_refused() {
        let entry = |tag, bits| Entry { tag, bits };
        let (owner, group, other) = (entry(Tag::Owner, 7), entry(Tag::Group, 5), entry(Tag::Other, 0));
        let (user, mask) = (entry(Tag::User(5), 6), entry(Tag::Mask, 7));
        let table: &[(&[Entry], bool)] = &[
            (&[owner, group, other], true),
            (&[owner, group, mask, other], true),
            (&[owner, user, group, mask, other], true),
            (&[owner, user, entry(Tag::User(3), 1), group, mask, other], true),
            (&[owner, user, group, other], false),
            (&[owner, group], false),
            (&[group, other], false),
            (&[owner, other], false),
            (&[owner, owner, group, other], false),
            (&[group, owner, other], false),
            (&[owner, group, user, mask, other], false),
            (&[owner, group, other, mask], false),
            (&[owner, group, entry(Tag::Other, 8)], false),
            (&[owner, entry(Tag::User(NO_ID), 1), group, mask, other], false),
        ];
        for (entries, valid) in table {
            assert_eq!(Acl::new(entries.to_vec()).is_ok(), *valid, "{entries:?}");
        }
        let long = (0..600).map(|uid| entry(Tag::User(uid), 1));
        let long: Vec<Entry> = [owner].into_iter().chain(long).chain([group, mask, other]).collect();
        assert_eq!(Acl::new(long), Err(AclError::TooLong));
    }

    #[test]
    fn the_attribute_is_that_of_the_kernel() {
        let value = [
            2, 0, 0, 0, // version
            1, 0, 7, 0, 255, 255, 255, 255, // owner
            2, 0, 6, 0, 0xe8, 3, 0, 0, // user 1000
            4, 0, 5, 0, 255, 255, 255, 255, // group
            8, 0, 4, 0, 100, 0, 0, 0, // group 100
            16, 0, 7, 0, 255, 255, 255, 255, // mask
            32, 0, 0, 0, 255, 255, 255, 255, // others
        ];
        let acl = Acl::decode(&value).expect("it is valid").expect("it has entries");
        assert_eq!((acl.entries().len(), acl.mode(), &acl.encode()[..]), (6, 0o770, &value[..]));
        assert_eq!(Acl::decode(&[]), Ok(None));
        assert_eq!(Acl::decode(&value[..4]), Ok(None));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(AclError::Version));
        for len in (1..value.len()).filter(|len| *len != 4) {
            assert_eq!(Acl::decode(&value[..len]), Err(AclError::Invalid), "{len}");
        }
        let mut odd = value;
        odd[4] = 3;
        assert_eq!(Acl::decode(&odd), Err(AclError::Invalid));
    }
}
