//! Directories that are listed without asking: this client made them, and nobody else has changed their entries since
//! (`docs/locks.md#made-here`).

use proto::types::MODE_KIND;
use proto::{Fid, Name};

use super::Kept;
use super::inode::Inode;
use crate::{Behind, Page, PageEntry};

/// Most entries of a directory that is listed here: one with more is asked for page by page.
const ENTRIES_MAX: usize = 16_384;
/// Most entries of a page.
const PAGE_ENTRIES_MAX: usize = 2048;

impl Kept {
    /// A page of a directory behind a position, in the order in which the MDT would give it; `None` if it has to be asked.
    pub(crate) fn own_page(&self, dir: Fid, behind: &Behind) -> Option<Page> {
        // Whoever sees elsewhere what a change under way has done must not see here that it has not.
        if !self.may_use(dir) || self.inodes.is_changing(dir) {
            return None;
        }
        let (parent, mut names) = {
            let mut part = self.inodes.part(dir);
            let inode = part.inodes.get_mut(&dir)?;
            inode.recent = true;
            (inode.parent()?, inode.names_behind(behind)?)
        };
        let end = names.len() <= PAGE_ENTRIES_MAX;
        let mut next = None;
        if !end {
            names.select_nth_unstable_by(PAGE_ENTRIES_MAX, |a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            next = names.get(PAGE_ENTRIES_MAX).map(|(cookie, ..)| *cookie);
            names.truncate(PAGE_ENTRIES_MAX);
        }
        let known = names.into_iter().map(|(cookie, name, fid)| {
            let mode = self.inodes.part(fid).inodes.get(&fid).and_then(Inode::kind_bits)?;
            Some(PageEntry { cookie, name, fid, mode })
        });
        let mut entries = known.collect::<Option<Vec<PageEntry>>>()?;
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        let splits = next.is_some() && next == entries.last().map(|entry| entry.cookie);
        Some(Page { parent, entries, end, splits })
    }
}

impl Inode {
    /// The directory that has the file, if that cannot change unseen.
    fn parent(&self) -> Option<Fid> {
        self.named.as_ref().filter(|_| self.keeps_names()).map(|(parent, _)| *parent)
    }

    /// The entries of a directory behind a position, with the hashes of their names, if all are known and there are not too many.
    fn names_behind(&self, behind: &Behind) -> Option<Vec<(u64, Name, Fid)>> {
        let names = self.names.entries().filter(|names| names.len() <= ENTRIES_MAX)?;
        let hashed = names.map(|(name, fid)| (name.hash(), name, fid));
        Some(hashed.filter(|(cookie, name, _)| behind.has_name_behind(*cookie, name)).collect())
    }

    /// The kind's bits of its mode.
    fn kind_bits(&self) -> Option<u32> {
        self.entry.as_ref().map(|entry| entry.attr.mode & MODE_KIND)
    }
}
