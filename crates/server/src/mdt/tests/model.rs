//! What a client keeps, by the rules of `docs/locks.md#inode-bits`, forgetting nothing that they let it keep; and the
//! look at the MDT that finds what is not true any more.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::wire::messages::{
    Entry, Granted, LOCK_ALL, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR,
};
use proto::{Attr, Fid, Layout, Name};
use service::keys::behind;

use crate::mdt::plan::Reads;
use crate::mdt::{Mdt, keys};

/// One client.
#[derive(Default)]
pub struct Model {
    /// Bits of each file.
    bits: BTreeMap<Fid, u32>,
    attrs: BTreeMap<Fid, Attr>,
    layouts: BTreeMap<Fid, Option<Layout>>,
    xattrs: BTreeMap<Fid, Vec<Bytes>>,
    names: BTreeMap<(Fid, Name), Fid>,
    /// Names that do not exist.
    absent: BTreeSet<(Fid, Name)>,
    /// Whole directories.
    lists: BTreeMap<Fid, BTreeMap<Name, Fid>>,
    /// Handles without a user.
    pub opens: BTreeMap<Fid, u64>,
    /// Newest grant of each bit that was called back.
    revoked: BTreeMap<(Fid, u32), u64>,
    /// How often UPDATE of a directory was lost.
    breaks: BTreeMap<Fid, u64>,
    /// Changes of its own that were begun, and that are under way.
    begun: u64,
    pub under_way: u64,
    /// Things that were looked at and found true.
    pub checked: u64,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub struct Asked {
    begun: u64,
    quiet: bool,
}

impl Model {
    /// A request is sent now.
    pub fn ask(&self) -> Asked {
        Asked { begun: self.begun, quiet: self.under_way == 0 }
    }

    /// A change of its own is sent now.
    pub fn begin(&mut self) -> Asked {
        let quiet = self.under_way == 0;
        self.begun += 1;
        self.under_way += 1;
        Asked { begun: self.begun, quiet }
    }

    /// No change of its own was under way at any moment since; but for the one that this is about.
    pub fn undisturbed(&self, asked: Asked) -> bool {
        asked.quiet && self.begun == asked.begun
    }

    pub fn has(&self, fid: Fid, bits: u32) -> bool {
        self.bits.get(&fid).is_some_and(|has| has & bits == bits)
    }

    /// UPDATE of a directory, and that it was never lost since the same was asked before.
    pub fn hold_on(&self, dir: Fid) -> Option<u64> {
        self.has(dir, LOCK_UPDATE).then(|| self.breaks.get(&dir).copied().unwrap_or(0))
    }

    /// Which bits of an answer count.
    pub fn take(&mut self, fid: Fid, lock: Granted) -> u32 {
        let counts = |bit: &u32| {
            lock.bits & bit != 0 && self.revoked.get(&(fid, *bit)).is_none_or(|until| lock.number > *until)
        };
        let bits = each(LOCK_ALL).filter(counts).sum();
        *self.bits.entry(fid).or_default() |= bits;
        bits
    }

    /// An answer shows a file.
    pub fn entry(&mut self, asked: Asked, entry: &Entry) -> u32 {
        let fid = entry.attr.fid;
        let newest = self.attrs.get(&fid).map_or(0, |attr| attr.version);
        if !self.undisturbed(asked) || entry.attr.version < newest {
            return 0;
        }
        let bits = self.take(fid, entry.lock);
        if bits & LOCK_UPDATE != 0 && bits & LOCK_PERM != 0 {
            self.attrs.insert(fid, entry.attr.clone());
        }
        if bits & LOCK_LAYOUT != 0 {
            self.layouts.insert(fid, entry.layout.clone());
        }
        if bits & LOCK_XATTR != 0 {
            assert!(!entry.xattrs, "which ones there are was not told");
            self.xattrs.insert(fid, Vec::new());
        }
        bits
    }

    /// An answer shows what a name means.
    pub fn named(&mut self, asked: Asked, parent: Fid, name: &Name, entry: &Entry) {
        if self.entry(asked, entry) & LOCK_LOOKUP != 0 {
            self.names.insert((parent, name.clone()), entry.attr.fid);
        }
    }

    /// A name was not found.
    pub fn not_found(&mut self, parent: Fid, name: &Name) {
        self.absent.insert((parent, name.clone()));
    }

    pub fn list(&mut self, dir: Fid, entries: BTreeMap<Name, Fid>) {
        self.lists.insert(dir, entries);
    }

    pub fn xattr_names(&mut self, asked: Asked, fid: Fid, names: msg::XattrNames) {
        if self.undisturbed(asked) && self.take(fid, names.lock) & LOCK_XATTR != 0 {
            self.xattrs.insert(fid, names.names);
        }
    }

    /// A callback; returns the handle that is to be closed before it is answered.
    pub fn revoke(&mut self, revoke: &msg::RevokeBits) -> Option<u64> {
        for bit in each(revoke.bits) {
            let until = self.revoked.entry((revoke.fid, bit)).or_default();
            *until = revoke.number.max(*until);
        }
        self.lose(revoke.fid, revoke.bits)
    }

    /// A change of its own is over. It changed attributes of `touched` and took names and bits of `gone` away.
    pub fn end(&mut self, touched: &[Fid], gone: Option<Fid>, names: &[(Fid, &Name)]) -> Option<u64> {
        self.under_way -= 1;
        for fid in touched {
            self.attrs.remove(fid);
            self.layouts.remove(fid);
            self.xattrs.remove(fid);
            self.lists.remove(fid);
            self.absent.retain(|(dir, _)| dir != fid);
        }
        for (parent, name) in names {
            self.names.remove(&(*parent, (*name).clone()));
        }
        gone.and_then(|fid| self.lose(fid, LOCK_ALL))
    }

    fn lose(&mut self, fid: Fid, bits: u32) -> Option<u64> {
        if let Some(has) = self.bits.get_mut(&fid) {
            *has &= !bits;
        }
        if bits & LOCK_UPDATE != 0 {
            *self.breaks.entry(fid).or_default() += 1;
            self.lists.remove(&fid);
            self.absent.retain(|(dir, _)| *dir != fid);
        }
        if bits & (LOCK_UPDATE | LOCK_PERM) != 0 {
            self.attrs.remove(&fid);
        }
        if bits & LOCK_LAYOUT != 0 {
            self.layouts.remove(&fid);
        }
        if bits & LOCK_LOOKUP != 0 {
            self.names.retain(|_, named| *named != fid);
        }
        if bits & LOCK_XATTR != 0 {
            self.xattrs.remove(&fid);
        }
        if bits & LOCK_OPEN != 0 { self.opens.remove(&fid) } else { None }
    }

    /// Whether everything that is kept is what the MDT has.
    pub fn check(&mut self, mdt: &Mdt, session: u64) {
        if self.under_way != 0 {
            return;
        }
        for (fid, bits) in &self.bits {
            let held = mdt.grants.bits.held_by(session, *fid);
            assert_eq!(bits & !held, 0, "{fid}: the MDT does not know of bits");
        }
        for (fid, attr) in &self.attrs {
            let now = mdt
                .names
                .read_inode(Reads::All, *fid)
                .expect("the store works")
                .expect("what is kept exists")
                .attr();
            let same = Attr { version: attr.version, ..now.clone() };
            assert_eq!(*attr, same);
        }
        for (fid, layout) in &self.layouts {
            assert_eq!(
                *layout,
                mdt.names
                    .read_inode(Reads::All, *fid)
                    .expect("the store works")
                    .expect("what is kept exists")
                    .layout,
                "{fid}"
            );
        }
        self.check_names(mdt);
    }

    fn check_names(&mut self, mdt: &Mdt) {
        for ((parent, name), fid) in &self.names {
            let now =
                mdt.names.read_entry(Reads::All, *parent, name).expect("the store works").map(|(fid, _)| fid);
            assert_eq!(now, Some(*fid), "{parent} {name:?}");
        }
        for (parent, name) in &self.absent {
            assert!(matches!(mdt.names.read_entry(Reads::All, *parent, name), Ok(None)), "{parent} {name:?}");
        }
        for (dir, entries) in &self.lists {
            let (from, until) = (keys::entries_from(*dir, 0), keys::entries_end(*dir));
            let now = mdt.store.scan(&from, &until, usize::MAX).expect("the store works");
            let now = now.iter().map(|(key, value)| {
                let (_, name) = keys::entry_parts(key).expect("an entry");
                (name, keys::entry_of(&value.bytes).expect("an entry").0)
            });
            assert_eq!(*entries, now.collect(), "{dir}");
        }
        for (fid, names) in &self.xattrs {
            let from = keys::of(keys::XATTR, *fid);
            let now = mdt.store.scan(&from, &behind(&from), usize::MAX).expect("the store works");
            let now: Vec<_> = now.iter().map(|(key, _)| keys::xattr_name(key)).collect();
            assert_eq!(*names, now, "{fid}");
        }
        for fid in self.opens.keys() {
            let inode = mdt
                .names
                .read_inode(Reads::All, *fid)
                .expect("the store works")
                .expect("what is open exists");
            assert_ne!(inode.nlink, 0, "{fid}");
        }
        let named = self.names.len() + self.absent.len() + self.lists.len();
        self.checked +=
            (self.attrs.len() + self.layouts.len() + self.xattrs.len() + self.opens.len() + named) as u64;
    }
}

fn each(bits: u32) -> impl Iterator<Item = u32> {
    (0..6).map(|shift| 1 << shift).filter(move |bit| bits & bit != 0)
}
