//! Pages of directories.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use proto::wire::messages::{DirEntry, DirPage, ReadDir};
use proto::{Fid, Name};

use super::Names;
use crate::Result;

/// Most bytes of a page.
const PAGE_BYTES_MAX: u32 = 128 << 10;

/// A position in a directory: behind one name, or behind all names of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// The hash.
    pub cookie: u64,
    /// The name; none for all of that hash.
    pub name: Option<Name>,
}

impl Behind {
    /// In front of all names.
    pub const START: Behind = Behind::hash(0);

    /// Behind all names of this hash.
    pub const fn hash(cookie: u64) -> Behind {
        Behind { cookie, name: None }
    }

    /// Behind this entry of a directory.
    pub fn entry(entry: &PageEntry) -> Behind {
        Behind { cookie: entry.cookie, name: Some(entry.name.clone()) }
    }

    /// Whether an entry lies behind this position.
    pub fn has_behind(&self, entry: &PageEntry) -> bool {
        self.has_name_behind(entry.cookie, &entry.name)
    }

    /// Whether a name with that hash lies behind this position.
    pub(super) fn has_name_behind(&self, cookie: u64, of: &Name) -> bool {
        match (cookie.cmp(&self.cookie), &self.name) {
            (Ordering::Equal, Some(name)) => of > name,
            (order, _) => order.is_gt(),
        }
    }
}

impl PartialOrd for Behind {
    fn partial_cmp(&self, other: &Behind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Behind {
    fn cmp(&self, other: &Behind) -> Ordering {
        // Behind all names of a hash is behind each of them.
        let key = |at: &Behind| (at.cookie, at.name.is_none());
        key(self).cmp(&key(other)).then_with(|| self.name.cmp(&other.name))
    }
}

/// A page of a directory, without `.` and `..`.
#[derive(Debug, Clone)]
pub struct Page {
    /// The directory above.
    pub parent: Fid,
    /// Entries in the order of their cookies, and of their names within a cookie.
    pub entries: Vec<PageEntry>,
    /// Whether nothing comes behind them.
    pub end: bool,
    /// Whether more of the last entry's cookie may come behind them.
    pub splits: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct PageEntry {
    /// Position: the hash of the name.
    pub cookie: u64,
    /// The name.
    pub name: Name,
    /// The file.
    pub fid: Fid,
    /// The kind's bits of its mode.
    pub mode: u32,
}

impl Page {
    fn of(page: &DirPage) -> Page {
        let entries = page.entries.iter().map(|entry| PageEntry {
            cookie: entry.cookie,
            name: entry.name.clone(),
            fid: entry.fid,
            mode: entry.mode,
        });
        Page { parent: page.parent, entries: entries.collect(), end: page.end, splits: page.splits }
    }

    /// Where the next page begins; none at the end of the directory.
    pub fn next(&self) -> Option<Behind> {
        let last = self.entries.last().filter(|_| !self.end)?;
        Some(if self.splits { Behind::entry(last) } else { Behind::hash(last.cookie) })
    }
}

impl Names {
    /// A page of a directory behind a position. With `plus`, the attributes of its files are fetched with it, for
    /// [`Names::entry`].
    pub async fn read_dir(&self, fid: Fid, behind: &Behind, plus: bool) -> Result<Page> {
        if let Some(own) = self.meta.kept.own_page(fid, behind) {
            return Ok(own);
        }
        if let Some(kept) = self.meta.kept.page(fid, behind) {
            let known = |entry: &&DirEntry| self.meta.kept.entry(entry.fid).is_some();
            // If most attributes were called back meanwhile, one request brings them all again.
            if !plus || kept.entries.iter().filter(known).count() * 2 >= kept.entries.len() {
                return Ok(Page::of(&kept));
            }
        }
        let asked = self.meta.inodes.ask();
        let name = behind.name.as_ref().map_or(Bytes::new(), Name::to_bytes);
        let read =
            ReadDir { fid, cookie: behind.cookie, bytes_max: PAGE_BYTES_MAX, plus, behind: Some(name) };
        let page = Arc::new(self.targets.settled_mdt_of(fid).await?.call(read).await?.reply);
        for DirEntry { name, entry, .. } in &page.entries {
            let Some(entry) = entry else { continue };
            self.meta.answers.learn_named(&asked, fid, name, entry);
        }
        self.meta.answers.learn_page(&asked, fid, behind, &page);
        Ok(Page::of(&page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_hash_is_behind_its_names() {
        let at = |cookie, name: Option<&'static str>| Behind {
            cookie,
            name: name.map(|name| Name::new(name.as_bytes()).expect("a name")),
        };
        let order =
            [Behind::START, at(4, None), at(5, Some("a")), at(5, Some("b")), at(5, None), at(6, Some("a"))];
        assert!(order.is_sorted());
        for (index, at) in order.iter().enumerate() {
            for (other, entry) in order.iter().enumerate() {
                let Some(name) = entry.name.clone() else { continue };
                let entry = PageEntry { cookie: entry.cookie, name, fid: Fid::ROOT, mode: 0 };
                assert_eq!(at.has_behind(&entry), other > index, "{entry:?} behind {at:?}");
            }
        }
    }
}
