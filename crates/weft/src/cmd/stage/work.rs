//! Carries a plan out: directories, then files and links by several streams, then the attributes of the directories.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::copy::{self, How, stamp};
use super::plan::{self, Entry, Kind, Record};
use super::progress::{self, Counts, Whole};
use super::state::{State, sync_directory};
use crate::control::describe;
use crate::failure::Failure;

/// Files that get their names together, and whose directory is made durable once: at most so many, and of so many bytes.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 64 << 20;
/// Files that could not be copied and are named.
pub const NAMED_MAX: usize = 20;

/// What is carried out, and where.
pub struct Work<'a> {
    /// The tree that is copied.
    pub source: &'a Path,
    /// Where it goes.
    pub target: &'a Path,
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

/// Copies with a temporary name that are durable.
struct Ready {
    temporary: PathBuf,
    path: PathBuf,
    record: Option<Record>,
}

impl Work<'_> {
    /// Removes temporary names of former runs in the directories that the plan writes to. Gives their number.
    pub fn remove_leftovers<'e>(&self, entries: impl Iterator<Item = &'e Entry>) -> Result<u64, Failure> {
        let mut directories = BTreeSet::from([self.target.to_path_buf()]);
        directories
            .extend(entries.filter_map(|entry| entry.path.parent()).map(|path| self.target.join(path)));
        let mut count = 0;
        for directory in directories {
            // One that is not there yet has nothing in it.
            let Ok(names) = fs::read_dir(&directory) else { continue };
            for name in names.flatten().filter(|name| is_marked(&name.file_name(), self.mark)) {
                let failed = |error| {
                    Failure::new(format!(
                        "{} is left over from a former run and cannot be removed: {}",
                        name.path().display(),
                        describe(&error)
                    ))
                };
                copy::remove_if_there(&name.path()).map_err(failed)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Makes the directories that are not there, durably.
    pub fn make_directories(&self, entries: &[Entry]) -> Result<(), Failure> {
        let mut grown = BTreeSet::new();
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory) {
            let path = self.target.join(&entry.path);
            let failed = |error: io::Error| {
                Failure::new(format!(
                    "{}: the directory cannot be made: {}",
                    path.display(),
                    describe(&error)
                ))
            };
            // Until everything in it is there, nobody else looks at what may be private: its own mode comes at the end.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    grown.extend(path.parent().map(Path::to_path_buf));
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                Err(_) => {
                    let status = fs::symlink_metadata(&path).map_err(failed)?;
                    if !status.is_dir() {
                        return Err(Failure::new(format!(
                            "{} is no directory, and the source has one there; move it away",
                            path.display()
                        )));
                    }
                    // Its own mode comes at the end.
                    let mode = Permissions::from_mode(status.mode() & 0o7777 | 0o700);
                    fs::set_permissions(&path, mode).map_err(failed)?;
                }
            }
        }
        for path in grown {
            sync_directory(&path)
                .map_err(|error| Failure::new(format!("{}: {}", path.display(), describe(&error))))?;
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
        loop {
            let index = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(index) else { return };
            let mut ready = Vec::new();
            for (at, entry) in batch.iter().enumerate() {
                // Of all batches: several of them may be of one directory.
                let number = index * BATCH_FILES + at;
                if shared.is_full.load(Ordering::Relaxed) {
                    shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                match self.prepare(entry, number, shared) {
                    Ok(Some(copy)) => ready.push(copy),
                    Ok(None) => {
                        shared.counts.up_to_date.fetch_add(1, Ordering::Relaxed);
                        shared.counts.bytes_there.fetch_add(entry.size, Ordering::Relaxed);
                    }
                    Err(error) => {
                        // Whatever could not be written must not stay; a name that cannot be removed now is removed by the next run.
                        let _ = copy::remove_if_there(&self.temporary(entry, number));
                        shared.trouble(&entry.path, &error);
                    }
                }
            }
            self.name(ready, shared);
        }
    }

    /// The copy of one thing under its temporary name; none if the target has it.
    fn prepare(&self, entry: &Entry, number: usize, shared: &Shared) -> io::Result<Option<Ready>> {
        let (from, to) = (self.source.join(&entry.path), self.target.join(&entry.path));
        let there = match fs::symlink_metadata(&to) {
            Ok(there) if there.is_dir() => {
                let message = "a directory has its name in the target; move that away";
                return Err(io::Error::other(message));
            }
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let temporary = self.temporary(entry, number);
        let path = entry.path.clone();
        if entry.kind == Kind::Link {
            if let Some(there) = there.filter(fs::Metadata::is_symlink)
                && fs::read_link(&from)? == fs::read_link(&to)?
            {
                let status = fs::symlink_metadata(&from)?;
                if stamp(&there) != stamp(&status) || !copy::has_attributes(&there, &status, self.how) {
                    copy::keep_link_attributes(&to, &status, self.how)?;
                }
                return Ok(None);
            }
            copy::copy_link(&from, &temporary, self.how)?;
            return Ok(Some(Ready { temporary, path, record: None }));
        }
        let status = fs::symlink_metadata(&from)?;
        if !status.is_file() {
            return Err(io::Error::other("it is no file any more; run the same command again"));
        }
        if let Some(there) = there.filter(fs::Metadata::is_file)
            && plan::is_up_to_date(stamp(&status), Some(stamp(&there)), self.records.get(&entry.path))
        {
            if !copy::has_attributes(&there, &status, self.how) {
                copy::keep_attributes(&File::open(&to)?, &status, self.how)?;
            }
            return Ok(None);
        }
        let record = copy::copy_file(&from, &temporary, self.how, &shared.counts.bytes)?;
        Ok(Some(Ready { temporary, path, record: Some(record) }))
    }

    fn temporary(&self, entry: &Entry, number: usize) -> PathBuf {
        let name = proto::wire::header::crc32c(entry.path.as_os_str().as_bytes());
        self.target.join(&entry.path).with_file_name(format!("{}{number}-{name:08x}", self.mark))
    }

    /// Gives copies of one directory their names, and then notes them.
    fn name(&self, ready: Vec<Ready>, shared: &Shared) {
        let mut named = Vec::new();
        let mut lines = String::new();
        for copy in ready {
            match fs::rename(&copy.temporary, self.target.join(&copy.path)) {
                Ok(()) => {
                    lines.extend(copy.record.map(|record| plan::write_record(&copy.path, &record)));
                    named.push(copy);
                }
                Err(error) => {
                    let _ = copy::remove_if_there(&copy.temporary);
                    shared.trouble(&copy.path, &error);
                }
            }
        }
        let Some(first) = named.first() else { return };
        let directory = self.target.join(&first.path);
        let kept = directory.parent().map_or(Ok(()), sync_directory).and_then(|()| self.state.add(&lines));
        for copy in &named {
            match &kept {
                Ok(()) => {
                    shared.counts.copied.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => shared.trouble(&copy.path, error),
            }
        }
    }

    /// Gives directories their modes, owners and times: of those deepest first, since each change below changes a time.
    pub fn end_directories(&self, entries: &[Entry]) -> Vec<String> {
        let mut troubles = Vec::new();
        for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
            let path = self.target.join(&entry.path);
            let kept = fs::symlink_metadata(self.source.join(&entry.path))
                .and_then(|status| copy::keep_attributes(&File::open(&path)?, &status, self.how));
            if let Err(error) = kept {
                troubles.push(format!("{}: {}", path.display(), describe(&error)));
            }
        }
        troubles
    }
}

fn is_marked(name: &OsStr, mark: &str) -> bool {
    name.as_bytes().starts_with(mark.as_bytes())
}

/// Files and links, those of one directory together.
fn batches(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut by_directory: BTreeMap<&Path, Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.kind != Kind::Directory) {
        by_directory.entry(entry.path.parent().unwrap_or(Path::new(""))).or_default().push(entry);
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
