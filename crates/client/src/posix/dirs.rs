//! Positions in directories.
//!
//! The kernel gets an offset with every entry and later asks for what comes behind the last offset that the
//! application took. 0 is the start, 1 and 2 stand behind `.` and `..`, and an entry's offset is its cookie, the
//! hash of its name (16 or more). A server's page never ends inside entries of equal hash, but the application's
//! buffer can. So of several entries with equal hash only the last has the cookie as its offset; those before it
//! get offsets of the unused numbers just below the cookie, and the open directory remembers which name each of
//! these stands behind. If such an offset is asked for that is not remembered any more, it is a plain position
//! below the cookie: all entries of that hash come again, and none is lost.
//!
//! The open directory also keeps the page that it gave entries of last, so that a reader with a small buffer does
//! not ask the server once per buffer. Offset 0 (rewinddir) drops it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{Code, Fid, FileKind, Ino};

use super::{Posix, Result};
use crate::{Caller, Handle, Page as DirPage, PageEntry as DirEntry};

/// Most remembered positions within entries of equal hash, per open directory.
const WITHIN_MAX: usize = 1024;

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

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Entries with a cookie above this one are asked of the server.
    pub cookie: u64,
    /// Of these, what lies not behind this name of this hash is left out.
    behind: Option<(u64, Vec<u8>)>,
}

/// A position within entries of equal hash.
#[derive(Clone)]
struct Within {
    /// The hash.
    cookie: u64,
    /// The name that it is behind.
    name: Vec<u8>,
    /// A cookie below the hash, with no entry between.
    below: u64,
}

impl Position {
    fn is_behind(&self, entry: &DirEntry) -> bool {
        match &self.behind {
            Some((cookie, name)) => {
                entry.cookie > *cookie || (entry.cookie == *cookie && entry.name.as_bytes() > &name[..])
            }
            None => entry.cookie > self.cookie,
        }
    }
}

/// A page and the cookie that it was asked for with.
pub struct Page {
    from: u64,
    page: DirPage,
}

impl Page {
    /// The page that the server gave for `from`.
    pub fn new(from: u64, page: DirPage) -> Page {
        Page { from, page }
    }

    /// Whether the page has what comes behind `position`, or nothing comes.
    fn covers(&self, position: &Position) -> bool {
        let last = self.page.entries.last().map_or(self.from, |entry| entry.cookie);
        self.from <= position.cookie && (self.page.end || position.cookie < last)
    }

    /// Whether an answer that starts at `position` has to go on with another page, and with which cookie.
    pub fn next(&self, position: &Position) -> Option<u64> {
        let has_any = self.page.entries.iter().any(|entry| position.is_behind(entry));
        if has_any || self.page.end { None } else { self.page.entries.last().map(|entry| entry.cookie) }
    }
}

#[derive(Default)]
struct Stream {
    page: Option<Arc<Page>>,
    within: BTreeMap<u64, Within>,
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
    pub fn find(&self, handle: Handle, offset: u64) -> (Position, Option<Arc<Page>>) {
        let stream = self.stream(handle);
        let mut stream = stream.lock();
        let position = match stream.within.get(&offset) {
            Some(at) => Position { cookie: at.below, behind: Some((at.cookie, at.name.clone())) },
            None if offset <= BEHIND_DOTDOT => Position { cookie: 0, behind: None },
            None => Position { cookie: offset, behind: None },
        };
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
        position: &Position,
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
        let mut below = page.from;
        for (index, entry) in entries.iter().enumerate() {
            let equal_behind =
                entries[index + 1..].iter().take_while(|next| next.cookie == entry.cookie).count();
            if position.is_behind(entry) {
                let offset = offset_of(entry.cookie, equal_behind as u64, below);
                let item = Item {
                    ino: entry.fid.ino(),
                    offset,
                    kind: FileKind::from_mode(entry.mode).unwrap_or(FileKind::File),
                    name: entry.name.as_bytes(),
                    entry: Some(entry),
                };
                if emit(item) {
                    return;
                }
                stream.lock().remember(offset, entry, below);
            }
            if equal_behind == 0 {
                below = entry.cookie;
            }
        }
    }
}

/// The offset of an entry behind which `equal_behind` more have the same cookie; every cookie before is at most
/// `below`.
fn offset_of(cookie: u64, equal_behind: u64, below: u64) -> u64 {
    let wanted = cookie.saturating_sub(equal_behind);
    // So many equal hashes right behind another hash do not happen by chance; then all of them come again.
    if wanted > below { wanted } else { below }
}

impl Stream {
    fn remember(&mut self, offset: u64, entry: &DirEntry, below: u64) {
        if offset == entry.cookie || offset == below {
            // A plain position. It could have stood for one within a group before an entry with this hash was made.
            self.within.remove(&offset);
            return;
        }
        let name = entry.name.as_bytes().to_vec();
        self.within.insert(offset, Within { cookie: entry.cookie, name, below });
        if self.within.len() > WITHIN_MAX {
            self.within.pop_first();
        }
    }
}

/// The handle of every directory that was opened after its removal. It has no entries; the client uses no such number.
const REMOVED_DIR: Handle = Handle(0);

impl Posix {
    /// Opens a directory.
    pub async fn open_dir(&self, caller: &Caller, fid: Fid) -> Result<Handle> {
        match self.client.files().open_dir(caller, fid).await {
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
        if !self.access_times.none && !self.access_times.no_directories {
            self.client.files().accessed(handle);
        }
        let (position, kept) = self.dirs.find(handle, offset);
        let mut page = match kept {
            Some(page) => page,
            None => self.page(fid, position.cookie, plus).await?,
        };
        while let Some(cookie) = page.next(&position) {
            page = self.page(fid, cookie, plus).await?;
        }
        self.dirs.keep(handle, &page);
        self.dirs.emit(handle, fid.ino(), offset, &position, &page, emit);
        Ok(())
    }

    async fn page(&self, fid: Fid, cookie: u64, plus: bool) -> Result<Arc<Page>> {
        Ok(Arc::new(Page::new(cookie, self.client.names().read_dir(fid, cookie, plus).await?)))
    }

    /// fsync of a directory.
    pub async fn fsync_dir(&self, fid: Fid, handle: Handle) -> Result<()> {
        match handle {
            REMOVED_DIR => self.client.files().fsync_dir(fid).await?,
            handle => self.client.files().fsync(handle).await?,
        }
        Ok(())
    }

    /// Closes a directory.
    pub async fn release_dir(&self, handle: Handle) {
        if handle != REMOVED_DIR {
            self.dirs.remove(handle);
            self.client.files().release(handle).await;
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

    /// A server that gives pages of at least `count` entries and never splits equal cookies.
    fn serve(all: &[DirEntry], from: u64, count: usize) -> DirPage {
        let rest: Vec<DirEntry> = all.iter().filter(|entry| entry.cookie > from).cloned().collect();
        let mut end = count.min(rest.len());
        while end > 0 && end < rest.len() && rest[end].cookie == rest[end - 1].cookie {
            end += 1;
        }
        DirPage { parent: Fid::ROOT, entries: rest[..end].to_vec(), end: end == rest.len() }
    }

    /// Reads a directory with a buffer of `fits` entries, each reading going on at the last offset taken.
    fn read(all: &[DirEntry], page_entries: usize, fits: usize) -> Vec<String> {
        let dirs = Dirs::default();
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let (position, kept) = dirs.find(Handle(1), offset);
            let mut page = kept.unwrap_or_else(|| {
                Arc::new(Page::new(position.cookie, serve(all, position.cookie, page_entries)))
            });
            while let Some(cookie) = page.next(&position) {
                page = Arc::new(Page::new(cookie, serve(all, cookie, page_entries)));
            }
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
        let page = Page::new(position.cookie, serve(&all, position.cookie, 8));
        let mut names = Vec::new();
        dirs.emit(Handle(1), Fid::ROOT.ino(), 48, &position, &page, &mut |item| {
            names.push(item.name.to_vec());
            false
        });
        assert_eq!(names, [b"b1".to_vec(), b"b2".to_vec()]);
    }

    #[test]
    fn crowded_hashes_come_again_rather_than_get_lost() {
        assert_eq!(offset_of(50, 0, 49), 50);
        assert_eq!(offset_of(50, 2, 20), 48);
        assert_eq!(offset_of(50, 2, 49), 49);
    }
}
