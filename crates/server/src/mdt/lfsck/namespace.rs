//! Whether the keys of the name space fit together: inodes, entries, the ways back from inodes to entries, attributes and orphans.
//!
//! It reads keys in order, some at a time, from something that does not change meanwhile: a snapshot, or a target that is stopped.

use bytes::Bytes;
use proto::{Fid, FileKind, Layout, Name};
use service::keys::behind;
use store::{Scan, StoreError, Value, after};

use crate::mdt::inode::Inode;
use crate::mdt::keys;

/// Which keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Inodes,
    Entries,
    Links,
    Attributes,
    Orphans,
}

impl Pass {
    const FIRST: Pass = Pass::Inodes;

    fn prefix(self) -> u8 {
        match self {
            Pass::Inodes => keys::INODE,
            Pass::Entries => keys::ENTRY,
            Pass::Links => keys::LINK,
            Pass::Attributes => keys::XATTR,
            Pass::Orphans => keys::ORPHAN,
        }
    }

    fn next(self) -> Option<Pass> {
        match self {
            Pass::Inodes => Some(Pass::Entries),
            Pass::Entries => Some(Pass::Links),
            Pass::Links => Some(Pass::Attributes),
            Pass::Attributes => Some(Pass::Orphans),
            Pass::Orphans => None,
        }
    }
}

/// Keys of one inode that were read so far: they stand together.
struct Group {
    fid: Fid,
    /// None if it is missing, or damaged.
    inode: Option<Inode>,
    /// Directories among the entries, or names that lead back.
    count: u64,
}

/// A check of the name space, and where it is.
pub struct Check {
    pass: Option<Pass>,
    from: Bytes,
    group: Option<Group>,
    /// Keys that were read.
    pub checked: u64,
    /// What does not fit, in sentences, since somebody took it.
    pub found: Vec<String>,
}

impl Default for Check {
    fn default() -> Check {
        let pass = Pass::FIRST;
        Check {
            pass: Some(pass),
            from: Bytes::copy_from_slice(&[pass.prefix()]),
            group: None,
            checked: 0,
            found: Vec::new(),
        }
    }
}

impl Check {
    /// Where it is, for people.
    pub fn position(&self) -> String {
        let of = |pass| format!("{pass:?}").to_lowercase();
        match (self.pass, keys::fid_of(&self.from)) {
            (Some(pass), Some(fid)) => format!("{} {fid}", of(pass)),
            (Some(pass), None) => of(pass),
            (None, _) => String::new(),
        }
    }

    /// Reads up to `count` keys more. False if there are no others.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn step(&mut self, scan: &dyn Scan, count: usize) -> Result<bool, StoreError> {
        let Some(pass) = self.pass else { return Ok(false) };
        let page = scan.scan(&self.from, &behind(&[pass.prefix()]), count)?;
        for (key, value) in &page {
            self.checked += 1;
            match pass {
                Pass::Inodes => self.inode(scan, key, value)?,
                Pass::Entries => self.entry(scan, key, value)?,
                Pass::Links => self.link(scan, key)?,
                Pass::Attributes => self.belongs(scan, key, "extended attribute")?,
                Pass::Orphans => self.belongs(scan, key, "mark of an open file without a name")?,
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == count => self.from = after(last),
            _ => {
                self.end_group(pass);
                self.pass = pass.next();
                self.from =
                    self.pass.map(|pass| Bytes::copy_from_slice(&[pass.prefix()])).unwrap_or_default();
            }
        }
        Ok(self.pass.is_some())
    }

    fn find(&mut self, sentence: String) {
        self.found.push(sentence);
    }

    fn inode(&mut self, scan: &dyn Scan, key: &Bytes, value: &Value) -> Result<(), StoreError> {
        let decoded = keys::fid_of(key).and_then(|fid| Inode::decode(fid, &value.bytes, value.version.0));
        let Some(inode) = decoded else {
            self.find(format!("The inode with key {key:x} is damaged."));
            return Ok(());
        };
        let fid = inode.fid;
        if inode.kind() == FileKind::File && inode.layout.as_ref().is_some_and(|layout| !layout.is_sane()) {
            self.find(format!("The layout of {fid} is damaged."));
        }
        // A file without a name that took a layout over goes with it.
        if inode.nlink > 0 {
            self.released(&inode);
        }
        if fid != Fid::ROOT && !has_any(scan, &keys::of(keys::LINK, fid))? {
            let is_orphan = scan.get(&keys::orphan(fid))?.is_some();
            if !is_orphan {
                self.find(format!("The inode {fid} has no name, and is not marked as open."));
            } else if inode.nlink != 0 {
                self.find(format!("The inode {fid} has no name, and says that it has {}.", inode.nlink));
            }
        }
        if inode.is_dir() && inode.nlink > 2 && !has_any(scan, &keys::of(keys::ENTRY, fid))? {
            self.find(format!("The directory {fid} is empty, and says that it has {} links.", inode.nlink));
        }
        Ok(())
    }

    /// Whether a file without data says so everywhere, and has a copy that can be relied on (`docs/hsm.md#releasing`).
    fn released(&mut self, inode: &Inode) {
        let fid = inode.fid;
        let has_none = inode.layout.as_ref().is_some_and(Layout::is_released);
        if has_none != inode.hsm.is_released() {
            self.find(format!(
                "The layout of {fid} and its HSM flags disagree about whether it is released."
            ));
        } else if has_none && !(inode.hsm.is_there_alone() && inode.size_known) {
            self.find(format!("The file {fid} is released, and its copy cannot be relied on."));
        }
    }

    fn entry(&mut self, scan: &dyn Scan, key: &Bytes, value: &Value) -> Result<(), StoreError> {
        let parts = keys::fid_of(key).zip(keys::entry_parts(key)).zip(keys::entry_of(&value.bytes));
        let Some(((dir, (hash, name)), (fid, kind))) = parts else {
            self.find(format!("The entry with key {key:x} is damaged."));
            return Ok(());
        };
        if self.begin_group(scan, Pass::Entries, dir)? {
            let of = self.group.as_ref().and_then(|group| group.inode.as_ref());
            match of {
                Some(inode) if inode.is_dir() => {}
                Some(_) => self.find(format!("The inode {dir} has entries, and is no directory.")),
                None => self.find(format!("The directory {dir} has entries, and no inode.")),
            }
        }
        if hash != name.hash() {
            self.find(format!("The entry {} stands at a wrong place.", shown(dir, &name)));
        }
        if let Some(group) = self.group.as_mut().filter(|_| kind == FileKind::Dir) {
            group.count += 1;
        }
        match inode_of(scan, fid)? {
            None => self.find(format!("The entry {} leads to {fid}, which is missing.", shown(dir, &name))),
            Some(inode) if inode.kind() != kind => {
                self.find(format!(
                    "The entry {} says another kind of file than {fid} is.",
                    shown(dir, &name)
                ));
            }
            Some(inode) if inode.is_dir() && inode.parent != dir => {
                let above = inode.parent;
                self.find(format!("The directory {fid} is in {dir}, and says that it is in {above}."));
            }
            Some(_) => {}
        }
        if scan.get(&keys::link(fid, dir, &name))?.is_none() {
            self.find(format!("The entry {} leads to {fid}, which knows nothing of it.", shown(dir, &name)));
        }
        Ok(())
    }

    fn link(&mut self, scan: &dyn Scan, key: &Bytes) -> Result<(), StoreError> {
        let Some((fid, (dir, name))) = keys::fid_of(key).zip(keys::link_parts(key)) else {
            self.find(format!("The way back with key {key:x} is damaged."));
            return Ok(());
        };
        if self.begin_group(scan, Pass::Links, fid)?
            && self.group.as_ref().is_some_and(|group| group.inode.is_none())
        {
            self.find(format!("The file {fid} has names, and no inode."));
        }
        if let Some(group) = &mut self.group {
            group.count += 1;
        }
        let entry = scan.get(&keys::entry(dir, &name))?.and_then(|value| keys::entry_of(&value.bytes));
        if entry.is_none_or(|(of, _)| of != fid) {
            self.find(format!("The file {fid} says that it is {}, where it is not.", shown(dir, &name)));
        }
        Ok(())
    }

    fn belongs(&mut self, scan: &dyn Scan, key: &Bytes, what: &str) -> Result<(), StoreError> {
        let Some(fid) = keys::fid_of(key) else {
            self.find(format!("The key {key:x} is damaged."));
            return Ok(());
        };
        let is_new = self.begin_group(scan, Pass::Attributes, fid)?;
        if is_new && self.group.as_ref().is_some_and(|group| group.inode.is_none()) {
            self.find(format!("There is an {what} of {fid}, which is missing."));
        }
        Ok(())
    }

    /// Keys of `fid` follow. Whether they are the first ones.
    fn begin_group(&mut self, scan: &dyn Scan, pass: Pass, fid: Fid) -> Result<bool, StoreError> {
        if self.group.as_ref().is_some_and(|group| group.fid == fid) {
            return Ok(false);
        }
        self.end_group(pass);
        self.group = Some(Group { fid, inode: inode_of(scan, fid)?, count: 0 });
        Ok(true)
    }

    /// All keys of an inode have been seen.
    fn end_group(&mut self, pass: Pass) {
        let Some(Group { fid, inode: Some(inode), count }) = self.group.take() else { return };
        let says = u64::from(inode.nlink);
        match pass {
            Pass::Entries if inode.is_dir() && inode.nlink != 0 && says != count + 2 => {
                self.find(format!(
                    "The directory {fid} has {count} directories, and says that it has {says} links."
                ));
            }
            Pass::Links if inode.is_dir() && count != 1 => {
                self.find(format!("The directory {fid} has {count} names."));
            }
            Pass::Links if !inode.is_dir() && says != count => {
                self.find(format!("The file {fid} has {count} names, and says that it has {says}."));
            }
            _ => {}
        }
    }
}

/// Whether there are keys that begin with `prefix`.
fn has_any(scan: &dyn Scan, prefix: &[u8]) -> Result<bool, StoreError> {
    Ok(!scan.scan(prefix, &behind(prefix), 1)?.is_empty())
}

/// The inode, if it is there and not damaged.
fn inode_of(scan: &dyn Scan, fid: Fid) -> Result<Option<Inode>, StoreError> {
    let found = scan.get(&keys::inode(fid))?;
    Ok(found.and_then(|value| Inode::decode(fid, &value.bytes, value.version.0)))
}

fn shown(dir: Fid, name: &Name) -> String {
    format!("\"{}\" of {dir}", name.as_bytes().escape_ascii())
}
