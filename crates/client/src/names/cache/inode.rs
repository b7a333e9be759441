//! What is kept of one file. Pure state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proto::types::{MODE_SETGID, MODE_SETUID, XATTR_CAPABILITY};
use proto::wire::messages::{
    DirPage, Entry, Granted, LOCK_ALL, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE,
    LOCK_XATTR,
};
use proto::{Attr, Fid, Name, Timestamp, Transno};

use super::dir_names::DirNames;
use super::table::UNIT_BYTES;
use crate::Behind;

/// Number of lock bits.
pub(super) const BITS: usize = LOCK_ALL.count_ones() as usize;
/// Extended attributes that are kept of one file.
const XATTRS_MAX: usize = 64;
/// Under these nobody else changes the data of a file, or moves it, or changes the entries of a directory.
const MADE_BITS: u32 = LOCK_UPDATE | LOCK_LAYOUT;
/// What the attributes are kept under.
pub(crate) const ATTR_BITS: u32 = LOCK_PERM | LOCK_UPDATE | LOCK_LAYOUT;

/// A file that is open at the MDT for whoever opens it here to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenKept {
    /// The MDT's name for it.
    pub(crate) handle: u64,
    /// Handles of this client that use it.
    pub(crate) users: u32,
}

/// What making or removing an entry does to the attributes of its directory, as the MDT does it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    pub(crate) dir: Fid,
    /// The change.
    pub(crate) transno: Transno,
    /// The time that the request had.
    pub(crate) time: Timestamp,
    /// How many subdirectories come.
    pub(crate) links: i32,
}

/// A name that means nothing any more.
pub(super) struct DeadName {
    pub(super) dir: Fid,
    pub(super) name: Name,
    /// What it was told with.
    pub(super) stamp: u64,
}

/// Pages of a directory by the position that they begin behind.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    by_position: BTreeMap<Behind, Arc<DirPage>>,
    /// Of all of them.
    entries: usize,
}

impl Pages {
    /// The page behind a position.
    pub(crate) fn get(&self, behind: &Behind) -> Option<&Arc<DirPage>> {
        self.by_position.get(behind)
    }

    /// Keeps a page, unless they would have more than `entries_max` entries together.
    pub(crate) fn insert(&mut self, behind: &Behind, page: Arc<DirPage>, entries_max: usize) {
        let before = self.by_position.get(behind).map_or(0, |page| page.entries.len());
        let entries = self.entries - before + page.entries.len();
        if entries <= entries_max {
            self.entries = entries;
            self.by_position.insert(behind.clone(), page);
        }
    }

    fn clear(&mut self) {
        *self = Pages::default();
    }
}

/// What is kept of one file.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    bits: u32,
    /// Bits that came with answers that were not kept: nothing is known under them, but the MDT counts them.
    unkept: u32,
    /// Number of the newest grant of each bit.
    numbers: [u64; BITS],
    pub(crate) entry: Option<Arc<Entry>>,
    /// Under the present [`LOCK_PERM`]: it has neither setuid nor setgid nor capabilities, whatever others have written to it.
    plain: bool,
    /// Target of a symbolic link: it never changes.
    pub(crate) target: Option<Bytes>,
    /// Names of the file that were told under its present [`LOCK_LOOKUP`] carry this.
    pub(crate) stamp: u64,
    /// The name of it that was told last, if it is kept: it goes with the file.
    pub(super) named: Option<(Fid, Name)>,
    /// Of a directory.
    pub(crate) names: DirNames,
    pub(crate) pages: Pages,
    pub(crate) xattrs: BTreeMap<Bytes, Option<Bytes>>,
    pub(crate) xattr_names: Option<Vec<Bytes>>,
    pub(crate) open: Option<OpenKept>,
    /// Looked at since somebody last searched for one that can go.
    pub(crate) recent: bool,
}

impl Inode {
    /// Nothing is known yet of the file.
    pub(crate) fn new(stamp: u64) -> Inode {
        Inode { stamp, ..Inode::default() }
    }

    /// Whether all of `bits` are held.
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.bits & bits == bits
    }

    /// Whether nothing is held.
    pub(crate) fn is_bare(&self) -> bool {
        self.held().bits == 0 && self.open.is_none()
    }

    /// Units of the table's bound that it takes. Values and targets of links may be long, and count by their bytes.
    pub(crate) fn cost(&self) -> usize {
        let bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        let values: usize = self.xattrs.values().map(bytes).sum();
        let names: usize = self.xattr_names.iter().flatten().map(Bytes::len).sum();
        let long = (values + names + bytes(&self.target)) / UNIT_BYTES as usize;
        1 + self.names.count() + self.xattrs.len() + self.pages.entries + long
    }

    /// This client has just made it: nobody else has changed its data or its entries, as long as [`MADE_BITS`] are held.
    pub(crate) fn made(&mut self) {
        self.names.made(self.has(MADE_BITS));
    }

    /// Whether this client made it, and nobody else has changed its data or its entries since.
    pub(crate) fn is_made_here(&self) -> bool {
        self.names.is_made_here()
    }

    /// The names of the file that were told mean nothing any more; `stamp` is for those that come. Gives the one that is known.
    pub(super) fn take_names(&mut self, stamp: u64) -> Option<DeadName> {
        let before = std::mem::replace(&mut self.stamp, stamp);
        self.named.take().map(|(dir, name)| DeadName { dir, name, stamp: before })
    }

    /// Bits were granted, with an answer that is kept.
    pub(crate) fn grant(&mut self, granted: Granted) {
        self.number(granted);
        self.bits |= granted.bits & LOCK_ALL;
        self.unkept &= !granted.bits;
    }

    /// The same with an answer that is not kept.
    pub(super) fn grant_unkept(&mut self, granted: Granted) {
        self.number(granted);
        self.unkept |= granted.bits & LOCK_ALL & !self.bits;
    }

    fn number(&mut self, granted: Granted) {
        for (at, number) in self.numbers.iter_mut().enumerate() {
            if granted.bits & 1 << at != 0 {
                *number = granted.number.max(*number);
            }
        }
    }

    /// Keeps what a server told of the file, unless something newer is known.
    pub(crate) fn learn(&mut self, entry: &Entry) {
        self.grant(entry.lock);
        let newer = self.entry.as_ref().is_none_or(|known| known.attr.version <= entry.attr.version);
        // What was granted by itself may be younger than what this answer says.
        if newer && entry.lock.bits & ATTR_BITS == ATTR_BITS {
            self.entry = Some(Arc::new(entry.clone()));
        }
        if entry.lock.bits & LOCK_PERM != 0 && self.number_of(LOCK_PERM) == entry.lock.number {
            self.plain = entry.attr.mode & (MODE_SETUID | MODE_SETGID) == 0 && !entry.xattrs;
        }
        if !entry.xattrs && entry.lock.bits & LOCK_XATTR != 0 {
            self.xattr_names = Some(Vec::new());
        }
    }

    /// Whether a write has setuid or setgid to take away; `None`: another client may have set them, or capabilities.
    pub(crate) fn is_privileged(&self) -> Option<bool> {
        if self.plain {
            return Some(false);
        }
        let entry = self.entry.as_ref()?;
        match entry.attr.mode & (MODE_SETUID | MODE_SETGID) != 0 {
            true => Some(true),
            // Which attributes it has is not told with it.
            false if entry.xattrs && self.xattr(XATTR_CAPABILITY) != Some(None) => None,
            false => Some(false),
        }
    }

    /// Number of the newest grant of a bit.
    fn number_of(&self, bit: u32) -> u64 {
        self.numbers.get(bit.trailing_zeros() as usize).copied().unwrap_or_default()
    }

    /// Keeps an extended attribute; `None`: there is no such.
    pub(crate) fn learn_xattr(&mut self, granted: Granted, name: Bytes, value: Option<Bytes>) {
        self.grant(granted);
        if granted.bits & LOCK_XATTR != 0 && self.xattrs.len() < XATTRS_MAX {
            self.xattrs.insert(name, value);
        }
    }

    /// The value of an extended attribute if that is known; `Some(None)`: there is no such.
    pub(crate) fn xattr(&self, name: &[u8]) -> Option<Option<Bytes>> {
        if !self.has(LOCK_XATTR) {
            return None;
        }
        if let Some(known) = self.xattrs.get(name) {
            return Some(known.clone());
        }
        let absent = self.xattr_names.as_ref().is_some_and(|names| !names.iter().any(|known| known == name));
        absent.then_some(None)
    }

    /// Keeps the names of all extended attributes.
    pub(crate) fn learn_xattr_names(&mut self, granted: Granted, names: &[Bytes]) {
        self.grant(granted);
        if granted.bits & LOCK_XATTR != 0 {
            self.xattr_names = Some(names.to_vec());
        }
    }

    /// This client changed the file: what it knows of attributes and entries is not true any more.
    pub(crate) fn changed(&mut self) {
        self.entry = None;
        self.plain = false;
        self.pages.clear();
        self.xattrs.clear();
        self.xattr_names = None;
    }

    /// This client made or removed an entry of the directory, and nothing else at the same time: its attributes are known
    /// still. Those that were asked for later have it already.
    pub(crate) fn entry_changed(&mut self, touch: &Touch) {
        self.pages.clear();
        let Some(entry) = self.entry.as_mut().filter(|entry| entry.attr.version < touch.transno.0) else {
            return;
        };
        let attr = &mut Arc::make_mut(entry).attr;
        attr.mtime = touch.time;
        attr.mtime_set = touch.time;
        attr.ctime = attr.ctime.max(touch.time);
        attr.nlink = attr.nlink.saturating_add_signed(touch.links);
        attr.version = touch.transno.0;
    }

    /// This client has told of a file in the directory that the MDT will make: the attributes are those that it will have, with so many
    /// more links.
    pub(super) fn promised(&mut self, time: Timestamp, links: i32) {
        self.pages.clear();
        let Some(entry) = self.entry.as_mut() else { return };
        let attr = &mut Arc::make_mut(entry).attr;
        attr.mtime = time;
        attr.mtime_set = time;
        attr.ctime = attr.ctime.max(time);
        attr.nlink = attr.nlink.saturating_add_signed(links);
    }

    /// The MDT will make this file as one that nobody has open.
    pub(super) fn promise_closed(&mut self) {
        if let Some(told) = self.entry.as_mut().filter(|told| told.attr.version == 0) {
            Arc::make_mut(told).attr.size_known = true;
        }
    }

    /// The MDT has made a file in the directory that was told of before.
    pub(super) fn promise_kept_in(&mut self, transno: Transno) {
        if let Some(entry) = self.entry.as_mut().filter(|entry| entry.attr.version < transno.0) {
            Arc::make_mut(entry).attr.version = transno.0;
        }
    }

    /// The MDT has made this file, or changed its attributes, and granted `lock`. `attr` says what it is then, if nothing was told of it
    /// since. Whether it is what was told.
    pub(super) fn promise_kept(&mut self, lock: Granted, transno: Transno, attr: Option<&Attr>) -> bool {
        self.grant(lock);
        let Some(entry) = self.entry.as_mut() else { return true };
        let entry = Arc::make_mut(entry);
        entry.attr.version = transno.0.max(entry.attr.version);
        if lock.bits != 0 {
            entry.lock = lock;
        }
        let Some(attr) = attr else { return true };
        let as_told = entry.attr == *attr;
        entry.attr = attr.clone();
        as_told
    }

    /// Takes `bits` away that were granted up to `number`; returns those under which something may be kept.
    pub(crate) fn revoke(&mut self, bits: u32, number: u64) -> u32 {
        let numbers = self.numbers.iter().enumerate().filter(|(_, newest)| **newest <= number);
        let taken = numbers.fold(0, |taken, (at, _)| taken | 1 << at) & bits;
        let gone = taken & self.bits;
        self.bits &= !taken;
        self.unkept &= !taken;
        self.drop_unprotected();
        gone
    }

    fn drop_unprotected(&mut self) {
        if !self.has(ATTR_BITS) {
            self.entry = None;
        }
        self.plain &= self.has(LOCK_PERM);
        if !self.has(MADE_BITS) {
            self.names.doubts_all();
        }
        if !self.has(LOCK_UPDATE) {
            self.pages.clear();
            self.names.forget_absent();
        }
        if !self.has(LOCK_XATTR) {
            self.xattrs.clear();
            self.xattr_names = None;
        }
    }

    /// Takes everything away; returns the open file that nobody uses.
    pub(crate) fn revoke_all(&mut self) -> Option<OpenKept> {
        self.revoke(LOCK_ALL, u64::MAX);
        self.names.forget_all();
        self.unused_open()
    }

    /// The kept open file, if nobody uses it and it may not be kept any more.
    pub(crate) fn unused_open(&mut self) -> Option<OpenKept> {
        let unused = self.open.is_some_and(|open| open.users == 0) && !self.has(LOCK_OPEN);
        if unused { self.open.take() } else { None }
    }

    /// What the MDT has granted, with the newest number, for giving it up.
    pub(crate) fn held(&self) -> Granted {
        Granted { bits: self.bits | self.unkept, number: self.numbers.iter().copied().max().unwrap_or(0) }
    }

    /// Whether a positive name of the file may be kept.
    pub(crate) fn keeps_names(&self) -> bool {
        self.has(LOCK_LOOKUP)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn granted(bits: u32, number: u64) -> Granted {
        Granted { bits, number }
    }

    /// A directory as the MDT tells of it, with all locks.
    pub fn directory(fid: Fid, version: u64) -> Entry {
        let attr = Attr {
            fid,
            mode: 0o040_755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 4096,
            blocks: 8,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            btime: Timestamp::default(),
            size_known: true,
            version,
            mtime_set: Timestamp::default(),
            project: 0,
            inherits: false,
        };
        Entry { attr, layout: None, xattrs: false, lock: granted(LOCK_ALL, 1) }
    }

    #[test]
    fn long_values_cost_more() {
        let mut inode = Inode::new(1);
        let before = inode.cost();
        inode.learn_xattr(
            granted(LOCK_XATTR, 1),
            Bytes::from_static(b"user.a"),
            Some(vec![0; 60_000].into()),
        );
        assert_eq!(inode.cost(), before + 1 + 60_000 / UNIT_BYTES as usize);
        inode.target = Some(vec![b'x'; 4000].into());
        assert_eq!(inode.cost(), before + 1 + 64_000 / UNIT_BYTES as usize);
    }

    #[test]
    fn each_bit_has_its_own_number() {
        let mut inode = Inode::default();
        inode.grant(granted(LOCK_UPDATE, 5));
        inode.grant(granted(LOCK_LOOKUP, 9));
        assert_eq!(inode.revoke(LOCK_UPDATE | LOCK_LOOKUP, 5), LOCK_UPDATE, "the other was granted later");
        assert!(inode.has(LOCK_LOOKUP) && !inode.has(LOCK_UPDATE));
        assert_eq!(inode.revoke(LOCK_LOOKUP, 8), 0, "a late copy of an old callback");
        assert_eq!(inode.revoke(LOCK_ALL, 9), LOCK_LOOKUP);
        assert!(inode.is_bare());
    }

    #[test]
    fn a_file_without_attributes_of_its_own_needs_no_question() {
        let mut inode = Inode::default();
        assert_eq!(inode.xattr(b"user.a"), None);
        inode.grant(granted(LOCK_XATTR, 1));
        assert_eq!(inode.xattr(b"user.a"), None);
        inode.xattr_names = Some(vec![Bytes::from_static(b"user.b")]);
        assert_eq!(inode.xattr(b"user.a"), Some(None));
        assert_eq!(inode.xattr(b"user.b"), None, "it is there, its value is not known");
        let value = Bytes::from_static(b"v");
        inode.learn_xattr(granted(0, 0), Bytes::from_static(b"user.b"), Some(value.clone()));
        assert_eq!(inode.xattr(b"user.b"), None, "an answer without a lock may be from before");
        inode.learn_xattr(granted(LOCK_XATTR, 1), Bytes::from_static(b"user.b"), Some(value.clone()));
        assert_eq!(inode.xattr(b"user.b"), Some(Some(value)));
        inode.revoke(LOCK_XATTR, 1);
        assert_eq!(inode.xattr(b"user.b"), None);
    }

    /// Another mount sets capabilities, and the attributes are asked for before the next write.
    #[test]
    fn a_file_with_attributes_may_have_capabilities() {
        let mut inode = Inode::default();
        let with = |xattrs, number| Entry {
            xattrs,
            lock: granted(ATTR_BITS, number),
            ..directory(Fid::ROOT, number)
        };
        inode.learn(&with(false, 1));
        assert_eq!(inode.is_privileged(), Some(false));
        inode.revoke(LOCK_PERM | LOCK_XATTR, 1);
        inode.learn(&with(true, 2));
        assert_eq!(inode.is_privileged(), None);
        inode.learn_xattr(granted(LOCK_XATTR, 3), Bytes::from_static(XATTR_CAPABILITY), None);
        assert_eq!(inode.is_privileged(), Some(false), "they are others");
        inode.revoke(LOCK_PERM | LOCK_XATTR, 3);
        assert_eq!(inode.is_privileged(), None);
    }

    #[test]
    fn negative_names_go_with_the_directory() {
        let mut inode = Inode::default();
        inode.grant(granted(LOCK_UPDATE, 1));
        let name = |text: &'static str| Name::new(text.as_bytes()).expect("a plain name");
        inode.names.learn(name("here"), Fid::ROOT, 1);
        inode.names.learn_absence(name("not"));
        inode.revoke(LOCK_UPDATE, 1);
        let known = ["here", "not"].map(|text| inode.names.get(&name(text)));
        assert_eq!(known, [Some(Some((Fid::ROOT, 1))), None], "a positive name is the other file's");
    }

    #[test]
    fn a_directory_that_was_made_here_has_no_name_that_is_not_known() {
        let name = |text: &'static str| Name::new(text.as_bytes()).expect("a plain name");
        let made = || {
            let mut dir = Inode::default();
            dir.grant(granted(MADE_BITS, 1));
            dir.made();
            dir.names.learn(name("here"), Fid::ROOT, 1);
            dir
        };
        let known = |dir: &Inode| ["here", "not"].map(|text| dir.names.get(&name(text)));
        let here = Some(Some((Fid::ROOT, 1)));
        let mut dir = made();
        assert_eq!(known(&dir), [here, Some(None)]);
        dir.names.forget(&name("not"));
        assert_eq!(known(&dir), [here, None], "a change of it is under way");
        dir.names.learn_absence(name("not"));
        assert_eq!(known(&dir), [here, Some(None)]);
        dir.names.forget_known(&name("here"), (Fid::ROOT, 1));
        assert_eq!(known(&dir), [None, Some(None)], "it was given up for want of room");
        dir.names.learn(name("here"), Fid::ROOT, 1);
        dir.revoke(LOCK_UPDATE, 1);
        assert_eq!(known(&dir), [here, None], "others may make entries");
        dir.grant(granted(LOCK_UPDATE, 2));
        assert_eq!(known(&dir), [here, None], "others may have made some");
        let mut dir = made();
        dir.names.forget_all();
        assert_eq!(known(&dir), [None, None]);
        let mut late = Inode::default();
        late.made();
        assert_eq!(known(&late), [None, None], "its lock was called back before the answer came");
    }

    #[test]
    fn a_directory_is_touched_once_by_each_change() {
        let mut dir = Inode::default();
        dir.learn(&directory(Fid::ROOT, 7));
        let at = |secs| Timestamp { secs, nanos: 0 };
        let touch =
            |transno, secs, links| Touch { dir: Fid::ROOT, transno: Transno(transno), time: at(secs), links };
        let shown = |dir: &Inode| {
            dir.entry.as_ref().map(|e| (e.attr.version, e.attr.nlink, e.attr.mtime.secs, e.attr.ctime.secs))
        };
        dir.entry_changed(&touch(9, 50, 1));
        assert_eq!(shown(&dir), Some((9, 3, 50, 50)));
        dir.entry_changed(&touch(8, 60, 1));
        assert_eq!(shown(&dir), Some((9, 3, 50, 50)), "what was told has this change");
        dir.entry_changed(&touch(10, 40, -1));
        assert_eq!(shown(&dir), Some((10, 2, 40, 50)), "ctime does not go back");
        dir.revoke(LOCK_UPDATE, 1);
        dir.entry_changed(&touch(11, 70, 0));
        assert_eq!(shown(&dir), None);
    }

    #[test]
    fn an_unused_open_file_goes_with_its_lock() {
        let mut inode = Inode { open: Some(OpenKept { handle: 3, users: 0 }), ..Inode::default() };
        inode.grant(granted(LOCK_OPEN, 1));
        assert_eq!(inode.unused_open(), None);
        inode.revoke(LOCK_OPEN, 1);
        assert_eq!(inode.unused_open().map(|open| open.handle), Some(3));
        let mut used = Inode { open: Some(OpenKept { handle: 4, users: 1 }), ..Inode::default() };
        assert_eq!(used.unused_open(), None);
    }
}
