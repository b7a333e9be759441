//! Positions in directories.
//!
//! The kernel gets an offset with every entry and later asks for what comes behind the last offset that the
//! application took. 0 is the start, 1 and 2 stand behind `.` and `..`, and an entry's offset is its cookie, the
//! hash of its name (16 or more). The application's buffer can end inside entries of equal hash, and a server's page
//! too. So of several entries with equal hash only the last has the cookie as its offset; those before it get offsets
//! of the numbers just below the cookie, and the open directory remembers which name each of these stands behind.
//! A later page can give the same numbers again: an offset means the entry that got it last. If an offset is asked for
//! that is not remembered any more, it is a plain position below the cookie: all entries of that hash come again, and
//! none is lost.
//!
//! The open directory also keeps the page that it gave entries of last, so that a reader with a small buffer does
//! not ask the server once per buffer. Offset 0 (rewinddir) drops it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{Code, Fid, FileKind, Ino};

use super::away::Away;
use super::{Posix, Result};
use crate::{Behind, Caller, Handle, OpenFlags, Page as DirPage, PageEntry as DirEntry};

/// So many positions within entries of equal hash an open directory remembers at least, and twice as many at most.
const WITHIN_MAX: usize = 4096;

/// The offset behind `.`.
const BEHIND_DOT: u64 = 1;
/// The offset behind `..`.
const BEHIND_DOTDOT: u64 = 2;

/// An entry as the kernel gets it.
pub struct Item<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Offset to go on behind it.
    pub offset: u64,
    /// Kind of the file.
    pub kind: FileKind,
    /// Name.
    pub name: &'a [u8],
    /// The entry as the client knows it; none for `.` and `..`.
    pub entry: Option<&'a DirEntry>,
}

/// A page and the position that it was asked for with.
pub struct Page {
    from: Behind,
    page: DirPage,
    /// By index, how many entries of the same hash come behind it; of those of a later page one stands for all.
    equal_behind: Vec<u64>,
}

impl Page {
    /// The page that the server gave for `from`.
    pub fn new(from: Behind, page: DirPage) -> Page {
        let entries = &page.entries;
        let mut equal_behind = vec![u64::from(page.splits); entries.len()];
        for index in (0..entries.len().saturating_sub(1)).rev() {
            let same = entries[index].cookie == entries[index + 1].cookie;
            equal_behind[index] = if same { equal_behind[index + 1] + 1 } else { 0 };
        }
        Page { from, page, equal_behind }
    }

    /// Whether the page has what comes behind `position`, or nothing comes.
    fn covers(&self, position: &Behind) -> bool {
        self.from <= *position
            && (self.page.end || self.page.entries.last().is_some_and(|last| position.has_behind(last)))
    }
}

#[derive(Default)]
struct Stream {
    page: Option<Arc<Page>>,
    /// What offsets mean that stand behind one of several entries of equal hash: those that were given last, and
    /// some that were given before.
    within: [HashMap<u64, Behind>; 2],
}

impl Stream {
    fn meaning(&self, offset: u64) -> Behind {
        let [given, before] = &self.within;
        match given.get(&offset).or_else(|| before.get(&offset)) {
            Some(position) => position.clone(),
            None if offset <= BEHIND_DOTDOT => Behind::START,
            None => Behind::hash(offset),
        }
    }

    /// An entry got this offset.
    fn remember(&mut self, offset: u64, entry: &DirEntry) {
        if offset == entry.cookie {
            // A plain position. It could have stood for one within a group before an entry with this hash was made; hardly ever is there one.
            for within in self.within.iter_mut().filter(|within| !within.is_empty()) {
                within.remove(&offset);
            }
            return;
        }
        if self.within[0].len() >= WITHIN_MAX {
            self.within.swap(0, 1);
            self.within[0].clear();
        }
        self.within[0].insert(offset, Behind::entry(entry));
    }
}

/// The open directories of a mount.
#[derive(Default)]
pub struct Dirs {
    streams: Mutex<HashMap<u64, Arc<Mutex<Stream>>>>,
}

impl Dirs {
    /// Forgets an open directory.
    pub fn remove(&self, handle: Handle) {
        self.streams.lock().remove(&handle.0);
    }

    fn stream(&self, handle: Handle) -> Arc<Mutex<Stream>> {
        self.streams.lock().entry(handle.0).or_default().clone()
    }

    /// What `offset` means, and the kept page if it serves.
    pub fn find(&self, handle: Handle, offset: u64) -> (Behind, Option<Arc<Page>>) {
        let stream = self.stream(handle);
        let mut stream = stream.lock();
        let position = stream.meaning(offset);
        if offset == 0 {
            stream.page = None;
        }
        let page = stream.page.clone().filter(|page| page.covers(&position));
        (position, page)
    }

    /// Keeps `page` for the next answer.
    pub fn keep(&self, handle: Handle, page: &Arc<Page>) {
        self.stream(handle).lock().page = Some(page.clone());
    }

    /// Gives what comes behind `offset` to `emit` until that says that it is full (and has not taken the entry).
    pub fn emit(
        &self,
        handle: Handle,
        this: Ino,
        offset: u64,
        position: &Behind,
        page: &Page,
        emit: &mut dyn FnMut(Item<'_>) -> bool,
    ) {
        let dot = Item { ino: this, offset: BEHIND_DOT, kind: FileKind::Dir, name: b".", entry: None };
        if offset < BEHIND_DOT && emit(dot) {
            return;
        }
        let above = page.page.parent.ino();
        let dotdot =
            Item { ino: above, offset: BEHIND_DOTDOT, kind: FileKind::Dir, name: b"..", entry: None };
        if offset < BEHIND_DOTDOT && emit(dotdot) {
            return;
        }
        let stream = self.stream(handle);
        let entries = &page.page.entries;
        let first = entries.partition_point(|entry| !position.has_behind(entry));
        for (entry, equal_behind) in entries.iter().zip(&page.equal_behind).skip(first) {
            let item = Item {
                ino: entry.fid.ino(),
                offset: offset_of(entry.cookie, *equal_behind),
                kind: FileKind::from_mode(entry.mode).unwrap_or(FileKind::File),
                name: entry.name.as_bytes(),
                entry: Some(entry),
            };
            let offset = item.offset;
            if emit(item) {
                return;
            }
            stream.lock().remember(offset, entry);
        }
    }
}

/// The offset of an entry behind which `equal_behind` more have the same cookie.
fn offset_of(cookie: u64, equal_behind: u64) -> u64 {
    cookie.saturating_sub(equal_behind).max(BEHIND_DOTDOT + 1)
}

/// The handle of every directory that was opened after its removal. It has no entries; the client uses no such number.
const REMOVED_DIR: Handle = Handle(0);

impl Posix {
    /// Opens a directory.
    pub async fn open_dir(&self, caller: &Caller, fid: Fid, flags: i32) -> Result<Handle> {
        let flags = OpenFlags { read: true, no_atime: flags & libc::O_NOATIME != 0, ..OpenFlags::default() };
        if fid == Fid::ROOT {
            return self.open_root(caller, flags).await;
        }
        match self.client.files().open(caller, fid, flags).await {
            // The kernel knows the directory, so it was there: it was removed, and somebody still works in it.
            Err(crate::Error::Refused(Code::Stale)) => Ok(REMOVED_DIR),
            opened => Ok(opened?),
        }
    }

    /// Gives the entries behind `offset` to `emit`, until it says that it is full.
    pub async fn read_dir(
        &self,
        fid: Fid,
        handle: Handle,
        (offset, plus): (u64, bool),
        emit: &mut (dyn FnMut(Item<'_>) -> bool + Send),
    ) -> Result<()> {
        if handle == REMOVED_DIR {
            return Ok(());
        }
        if Away::has(handle) {
            self.check_root(handle).await?;
        }
        if !self.access_times.none && !self.access_times.no_directories {
            self.client.files().accessed(handle);
        }
        let (position, kept) = self.dirs.find(handle, offset);
        let page = match kept {
            Some(page) => page,
            None => self.page(fid, &position, plus).await?,
        };
        self.dirs.keep(handle, &page);
        self.dirs.emit(handle, fid.ino(), offset, &position, &page, emit);
        Ok(())
    }

    async fn page(&self, fid: Fid, behind: &Behind, plus: bool) -> Result<Arc<Page>> {
        let page = self.client.names().read_dir(fid, behind, plus).await?;
        Ok(Arc::new(Page::new(behind.clone(), page)))
    }

    /// fsync of a directory.
    pub async fn fsync_dir(&self, fid: Fid, handle: Handle) -> Result<()> {
        match handle {
            REMOVED_DIR => self.client.files().fsync_dir(fid).await?,
            handle if Away::has(handle) => self.client.files().fsync_dir(fid).await?,
            handle => self.client.files().fsync(handle).await?,
        }
        Ok(())
    }

    /// Closes a directory.
    pub async fn release_dir(&self, handle: Handle) {
        if handle != REMOVED_DIR {
            self.dirs.remove(handle);
            match Away::has(handle) {
                true => self.away.close(handle),
                false => self.client.files().release(handle).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::{Fid, Name};

    use super::*;

    fn entry(cookie: u64, name: &str, oid: u32) -> DirEntry {
        DirEntry {
            cookie,
            name: Name::new(name.as_bytes().to_vec()).expect("a plain name"),
            fid: Fid { seq: 0x2_0000_0400, oid, ver: 0 },
            mode: 0o100_000,
        }
    }

    /// A server that gives pages of at most `count` entries.
    fn serve(all: &[DirEntry], from: &Behind, count: usize) -> DirPage {
        let rest: Vec<DirEntry> = all.iter().filter(|entry| from.has_behind(entry)).cloned().collect();
        let end = count.min(rest.len());
        let splits = rest.get(end).is_some_and(|next| next.cookie == rest[end - 1].cookie);
        DirPage { parent: Fid::ROOT, entries: rest[..end].to_vec(), end: end == rest.len(), splits }
    }

    /// Reads a directory with a buffer of `fits` entries, each reading going on at the last offset taken.
    fn read(all: &[DirEntry], page_entries: usize, fits: usize) -> Vec<String> {
        let dirs = Dirs::default();
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let (position, kept) = dirs.find(Handle(1), offset);
            let page = kept.unwrap_or_else(|| {
                Arc::new(Page::new(position.clone(), serve(all, &position, page_entries)))
            });
            dirs.keep(Handle(1), &page);
            let mut taken = 0;
            dirs.emit(Handle(1), Fid::ROOT.ino(), offset, &position, &page, &mut |item| {
                if taken == fits {
                    return true;
                }
                taken += 1;
                offset = item.offset;
                names.push(String::from_utf8(item.name.to_vec()).expect("text"));
                false
            });
            if taken == 0 {
                return names;
            }
        }
    }

    #[test]
    fn every_entry_comes_once_however_small_the_buffer() {
        let all = [
            entry(20, "a", 1),
            entry(50, "b1", 2),
            entry(50, "b2", 3),
            entry(50, "b3", 4),
            entry(70, "c", 5),
            entry(90, "d1", 6),
            entry(90, "d2", 7),
        ];
        let expected: Vec<&str> =
            [".", ".."].into_iter().chain(["a", "b1", "b2", "b3", "c", "d1", "d2"]).collect();
        for page_entries in 1..=8 {
            for fits in 1..=10 {
                assert_eq!(read(&all, page_entries, fits), expected, "{page_entries} per page, {fits} fit");
            }
        }
    }

    #[test]
    fn an_empty_directory_has_two_entries() {
        assert_eq!(read(&[], 4, 1), [".", ".."]);
    }

    #[test]
    fn a_forgotten_position_repeats_and_loses_nothing() {
        let dirs = Dirs::default();
        let (position, _) = dirs.find(Handle(1), 48);
        let all = [entry(20, "a", 1), entry(50, "b1", 2), entry(50, "b2", 3)];
        let page = Page::new(position.clone(), serve(&all, &position, 8));
        let mut names = Vec::new();
        dirs.emit(Handle(1), Fid::ROOT.ino(), 48, &position, &page, &mut |item| {
            names.push(item.name.to_vec());
            false
        });
        assert_eq!(names, [b"b1".to_vec(), b"b2".to_vec()]);
    }

    #[test]
    fn any_number_of_names_of_one_hash_comes_once() {
        let mut all = vec![entry(20, "a", 1), entry(1 << 40, "b", 2)];
        // Right behind another hash, and more than are remembered.
        all.extend((0..3 * WITHIN_MAX as u32).map(|n| entry((1 << 40) + 1, &format!("c{n:05}"), n + 3)));
        all.push(entry(1 << 41, "d", 2));
        for (page_entries, fits) in [(1000, 7), (100_000, 100), (300, 300), (50, 1000)] {
            let names = read(&all, page_entries, fits);
            assert_eq!(names.len(), all.len() + 2, "{page_entries} per page, {fits} fit");
            assert!(names[2..].is_sorted());
        }
    }
}
