//! Carries a plan out: directories, then files and links by several streams, then the attributes of the directories.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::copy::{self, How, stamp};
use super::plan::{self, Entry, Kind, Record};
use super::progress::{self, Counts, Whole};
use super::state::State;
use super::tree::{Directory, Tree, leads_to};
use crate::control::describe;
use crate::failure::Failure;

/// Files that get their names together, and whose directory is made durable once: at most so many, and of so many bytes.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 64 << 20;
/// The bits of a mode with which a program runs as its owner or group.
const SET_ID: u32 = 0o6000;
/// Files that could not be copied and are named.
pub const NAMED_MAX: usize = 20;

/// What is carried out, and where.
pub struct Work<'a> {
    /// The tree that is copied.
    pub source: &'a Tree,
    /// Where it goes.
    pub target: &'a Tree,
    /// How temporary names begin.
    pub mark: &'a str,
    /// How files are copied.
    pub how: How,
    /// What was copied before.
    pub records: &'a BTreeMap<PathBuf, Record>,
    /// Where records go.
    pub state: &'a State,
}

/// What the streams share.
#[derive(Default)]
struct Shared {
    counts: Counts,
    next: AtomicUsize,
    /// Nothing more can be written.
    is_full: AtomicBool,
    troubles: Mutex<Vec<String>>,
}

impl Shared {
    fn trouble(&self, path: &Path, error: &io::Error) {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        if matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let mut troubles = self.troubles.lock();
        if troubles.len() < NAMED_MAX {
            troubles.push(format!("{}: {}", path.display(), describe(error)));
        }
    }
}

/// What was done.
pub struct Done {
    /// Numbers.
    pub counts: Counts,
    /// What could not be copied, and why: the first ones.
    pub troubles: Vec<String>,
}

/// The directory of a batch on both sides.
struct Places<'d> {
    source: &'d Directory,
    target: &'d Directory,
}

/// A copy with a temporary name that is durable.
struct Ready<'e> {
    temporary: OsString,
    entry: &'e Entry,
    record: Option<Record>,
}

/// What is to be done yet for a thing.
enum Prepared<'e> {
    /// The target has it. With a record if that is another one from now on.
    There(Option<Record>),
    /// Its copy gets its name.
    Copied(Ready<'e>),
}

impl Work<'_> {
    /// Removes temporary names of former runs in the directories that the plan writes to. Gives their number.
    pub fn remove_leftovers<'e>(&self, entries: impl Iterator<Item = &'e Entry>) -> Result<u64, Failure> {
        let mut paths = BTreeSet::from([Path::new("")]);
        paths.extend(entries.map(Entry::parent));
        let mut way = self.target.way();
        let mut count = 0;
        for path in paths {
            // One that is not there yet has nothing in it.
            let Ok(directory) = way.to(path) else { continue };
            let Ok(names) = directory.names() else { continue };
            for name in names.iter().filter(|name| is_marked(name, self.mark)) {
                directory.remove(name).map_err(|error| {
                    Failure::new(format!(
                        "{} is left over from a former run and cannot be removed: {}",
                        self.target.path.join(path).join(name).display(),
                        describe(&error)
                    ))
                })?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Makes the directories that are not there, durably.
    pub fn make_directories(&self, entries: &[Entry]) -> Result<(), Failure> {
        let mut grown = BTreeSet::new();
        let mut way = self.target.way();
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory) {
            let made = way.to(entry.parent()).and_then(|parent| make_directory(parent, entry.name()));
            let is_new = made.map_err(|error| {
                Failure::new(format!(
                    "{}: the directory cannot be made: {}",
                    self.target.path.join(&entry.path).display(),
                    describe(&error)
                ))
            })?;
            if is_new {
                grown.insert(entry.parent());
            }
        }
        for path in grown {
            way.to(path).and_then(Directory::sync).map_err(|error| {
                Failure::new(format!("{}: {}", self.target.path.join(path).display(), describe(&error)))
            })?;
        }
        Ok(())
    }

    /// Copies files and links, by so many streams.
    pub fn copy(&self, entries: &[Entry], streams: usize) -> Done {
        let batches = batches(entries);
        let whole = Whole {
            files: batches.iter().map(|batch| batch.len() as u64).sum(),
            bytes: entries.iter().map(|entry| entry.size).sum(),
        };
        let shared = Shared::default();
        let (end, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            let counts = &shared.counts;
            scope.spawn(move || progress::tell(counts, whole, &ended));
            let streams: Vec<_> =
                (0..streams).map(|_| scope.spawn(|| self.stream(&batches, &shared))).collect();
            for stream in streams {
                stream.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            drop(end);
        });
        Done { counts: shared.counts, troubles: shared.troubles.into_inner() }
    }

    fn stream(&self, batches: &[Vec<&Entry>], shared: &Shared) {
        let (mut source, mut target) = (self.source.way(), self.target.way());
        loop {
            let index = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(index) else { return };
            let path = batch.first().map_or(Path::new(""), |entry| entry.parent());
            match source.to(path).and_then(|source| Ok(Places { source, target: target.to(path)? })) {
                Ok(at) => self.batch(index, batch, &at, shared),
                Err(error) => batch.iter().for_each(|entry| shared.trouble(&entry.path, &error)),
            }
        }
    }

    /// Copies what is in one directory.
    fn batch(&self, index: usize, batch: &[&Entry], at: &Places<'_>, shared: &Shared) {
        let mut ready = Vec::new();
        let mut lines = String::new();
        for (place, entry) in batch.iter().enumerate() {
            if shared.is_full.load(Ordering::Relaxed) {
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // The number is one of all batches: several of them may be of one directory.
            let temporary = self.temporary(entry, index * BATCH_FILES + place);
            match self.prepare(entry, &temporary, at, shared) {
                Ok(Prepared::Copied(copy)) => ready.push(copy),
                Ok(Prepared::There(record)) => {
                    lines.extend(record.map(|record| plan::write_record(&entry.path, &record)));
                    shared.counts.up_to_date.fetch_add(1, Ordering::Relaxed);
                    shared.counts.bytes_there.fetch_add(entry.size, Ordering::Relaxed);
                }
                Err(error) => {
                    // Whatever could not be written must not stay; a name that cannot be removed now is removed by the next run.
                    let _ = at.target.remove(&temporary);
                    shared.trouble(&entry.path, &error);
                }
            }
        }
        self.name(ready, lines, at.target, shared);
    }

    /// The copy of one thing under its temporary name, if the target does not have it.
    fn prepare<'e>(
        &self,
        entry: &'e Entry,
        temporary: &OsStr,
        at: &Places<'_>,
        shared: &Shared,
    ) -> io::Result<Prepared<'e>> {
        let there = match at.target.look(entry.name()) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(there) = &there
            && there.metadata()?.is_dir()
        {
            return Err(io::Error::other("a directory has its name in the target; move that away"));
        }
        let from = at.source.look(entry.name())?;
        let record = match entry.kind {
            Kind::Link => {
                if self.has_link(&from, there.as_ref())? {
                    return Ok(Prepared::There(None));
                }
                copy::copy_link(&from, at.target, temporary, self.how)?;
                None
            }
            Kind::File | Kind::Directory => {
                if let Some(record) = self.has_file(entry, &from, there.as_ref(), at)? {
                    let old = self.records.get(&entry.path);
                    return Ok(Prepared::There(Some(record).filter(|record| old != Some(record))));
                }
                let source = at.source.read(entry.name())?;
                Some(copy::copy_file(&source, at.target, temporary, self.how, &shared.counts.bytes)?)
            }
        };
        Ok(Prepared::Copied(Ready { temporary: temporary.to_owned(), entry, record }))
    }

    /// Whether the target has a link that leads where `from` does; it has the attributes then, too.
    fn has_link(&self, from: &File, there: Option<&File>) -> io::Result<bool> {
        let status = from.metadata()?;
        if !status.is_symlink() {
            return Err(io::Error::other("it is no symbolic link any more; run the same command again"));
        }
        let Some(copy) = there else { return Ok(false) };
        let there = copy.metadata()?;
        if !there.is_symlink() || leads_to(from)? != leads_to(copy)? {
            return Ok(false);
        }
        if stamp(&there) != stamp(&status) || !copy::has_attributes(&there, &status, self.how) {
            copy::keep_link_attributes(copy, &status, self.how)?;
        }
        Ok(true)
    }

    /// The record of a file whose copy in the target is what it is; that has the attributes then, too.
    fn has_file(
        &self,
        entry: &Entry,
        from: &File,
        there: Option<&File>,
        at: &Places<'_>,
    ) -> io::Result<Option<Record>> {
        let status = from.metadata()?;
        if !status.is_file() {
            return Err(io::Error::other("it is no file any more; run the same command again"));
        }
        let (Some(there), Some(record)) = (there, self.records.get(&entry.path)) else { return Ok(None) };
        let there = there.metadata()?;
        if !there.is_file() || !record.fits(stamp(&status), stamp(&there)) {
            return Ok(None);
        }
        let has_attributes = copy::has_attributes(&there, &status, self.how);
        if record.is_settled && has_attributes {
            return Ok(Some(*record));
        }
        // One that may not be read is made again.
        let Ok(copy) = at.target.read(entry.name()) else { return Ok(None) };
        let there = copy.metadata()?;
        // Others may have put something else in its place, or have given a file from elsewhere this name, too: that is replaced, and not changed.
        if !there.is_file() || !record.fits(stamp(&status), stamp(&there)) || there.nlink() != 1 {
            return Ok(None);
        }
        // Nothing runs as the owner of one file with the content of another one: both come from one copy.
        if !has_attributes && status.mode() & SET_ID != 0 {
            return Ok(None);
        }
        let record = if record.is_settled {
            Some(*record)
        } else {
            copy::compare(&at.source.read(entry.name())?, &copy, record)?
        };
        if record.is_some() && !has_attributes {
            copy::keep_attributes(&copy, &status, self.how)?;
        }
        Ok(record)
    }

    fn temporary(&self, entry: &Entry, number: usize) -> OsString {
        let name = proto::wire::header::crc32c(entry.path.as_os_str().as_bytes());
        format!("{}{number}-{name:08x}", self.mark).into()
    }

    /// Gives copies of one directory their names, and then notes them behind other `lines`.
    fn name(&self, ready: Vec<Ready<'_>>, mut lines: String, directory: &Directory, shared: &Shared) {
        let mut named = Vec::new();
        for Ready { temporary, entry, record } in ready {
            match directory.rename(&temporary, entry.name()) {
                Ok(()) => {
                    lines.extend(record.map(|record| plan::write_record(&entry.path, &record)));
                    named.push(entry);
                }
                Err(error) => {
                    let _ = directory.remove(&temporary);
                    shared.trouble(&entry.path, &error);
                }
            }
        }
        if named.is_empty() && lines.is_empty() {
            return;
        }
        // What is not noted of a file that was there is compared again.
        let synced = if named.is_empty() { Ok(()) } else { directory.sync() };
        let kept = synced.and_then(|()| self.state.add(&lines));
        for entry in named {
            match &kept {
                Ok(()) => {
                    shared.counts.copied.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => shared.trouble(&entry.path, error),
            }
        }
    }

    /// Gives directories their modes, owners and times: of those deepest first, since each change below changes a time.
    pub fn end_directories(&self, entries: &[Entry]) -> Vec<String> {
        let mut troubles = Vec::new();
        let (mut source, mut target) = (self.source.way(), self.target.way());
        for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
            let status = source.to(&entry.path).and_then(Directory::status);
            let kept = status.and_then(|status| {
                copy::keep_attributes(&target.to(&entry.path)?.readable()?, &status, self.how)
            });
            if let Err(error) = kept {
                let path = self.target.path.join(&entry.path);
                troubles.push(format!("{}: {}", path.display(), describe(&error)));
            }
        }
        troubles
    }
}

/// Makes a directory if it is not there. Whether it is new.
fn make_directory(parent: &Directory, name: &OsStr) -> io::Result<bool> {
    // Until everything in it is there, nobody else looks at what may be private: its own mode comes at the end.
    if parent.make(name)? {
        return Ok(true);
    }
    if !parent.look(name)?.metadata()?.is_dir() {
        return Err(io::Error::other("it is no directory, and the source has one there; move it away"));
    }
    parent.down(name)?.admit_owner()?;
    Ok(false)
}

fn is_marked(name: &OsStr, mark: &str) -> bool {
    name.as_bytes().starts_with(mark.as_bytes())
}

/// Files and links, those of one directory together.
fn batches(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut by_directory: BTreeMap<&Path, Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.kind != Kind::Directory) {
        by_directory.entry(entry.parent()).or_default().push(entry);
    }
    let mut batches = Vec::new();
    for files in by_directory.into_values() {
        let mut batch: Vec<&Entry> = Vec::new();
        let mut bytes = 0;
        for file in files {
            if batch.len() == BATCH_FILES || (!batch.is_empty() && bytes + file.size > BATCH_BYTES) {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += file.size;
            batch.push(file);
        }
        batches.push(batch);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> Entry {
        Entry { kind: Kind::File, size, path: path.into() }
    }

    #[test]
    fn batches_are_of_one_directory_and_bounded() {
        let mut entries = vec![file("b", 1), file("d/big", 1 << 40), file("d/small", 1), file("c", 1)];
        entries.push(Entry { kind: Kind::Directory, size: 0, path: "d".into() });
        entries.extend((0..BATCH_FILES + 1).map(|number| file(&format!("e/{number}"), 0)));
        let lengths: Vec<usize> = batches(&entries).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, BATCH_FILES, 1]);
    }
}
