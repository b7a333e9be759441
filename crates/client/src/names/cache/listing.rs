//! Directories that are listed without asking: this client made them, and nobody else has changed their entries since
//! (`docs/locks.md#made-here`).

use proto::types::MODE_KIND;
use proto::{Fid, Name};

use super::MetadataCache;
use super::inode::Inode;
use crate::{Page, PageEntry};

/// Most entries of a directory that is listed here: one with more is asked for page by page.
const ENTRIES_MAX: usize = 16_384;

impl MetadataCache {
    /// All of a directory, in the order in which the MDT would give it; `None` if it has to be asked.
    pub(crate) fn own_listing(&self, dir: Fid) -> Option<Page> {
        // Whoever sees elsewhere what a change under way has done must not see here that it has not.
        if !self.may_use(dir) || self.inodes.is_changing(dir) {
            return None;
        }
        let (parent, names) = {
            let mut part = self.inodes.part(dir);
            let inode = part.inodes.get_mut(&dir)?;
            inode.recent = true;
            (inode.parent()?, inode.all_names(ENTRIES_MAX)?)
        };
        let known = names.into_iter().map(|(name, fid)| {
            let mode = self.inodes.part(fid).inodes.get(&fid).and_then(Inode::kind_bits)?;
            Some(PageEntry { cookie: name.hash(), name, fid, mode })
        });
        let mut entries = known.collect::<Option<Vec<PageEntry>>>()?;
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        Some(Page { parent, entries, end: true, splits: false })
    }
}

impl Inode {
    /// The directory that has the file, if that cannot change unseen.
    fn parent(&self) -> Option<Fid> {
        self.named.as_ref().filter(|_| self.keeps_names()).map(|(parent, _)| *parent)
    }

    /// Every entry of a directory, if all are known and there are not more than `most`.
    fn all_names(&self, most: usize) -> Option<Vec<(Name, Fid)>> {
        self.entries().filter(|names| names.len() <= most).map(Iterator::collect)
    }

    /// The kind's bits of its mode.
    fn kind_bits(&self) -> Option<u32> {
        self.entry.as_ref().map(|entry| entry.attr.mode & MODE_KIND)
    }
}
