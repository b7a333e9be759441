//! A machine's disk: its directories and files, what is on its way to it, and what a crash does.

mod operations;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::super::clock::Event;
use super::super::cut::{Moment, Step};
use super::super::machines::Power;
use super::super::options::Span;
use super::super::rng::Rng;
use super::super::slab::Key;
use super::super::trace::Kind;
use super::super::world::World;
use super::LARGE_BYTES;
use super::heads::{Heads, Written};
use super::image::{Image, Point};
use super::names::{Entry, Names};
use crate::disk::{Space, fnv};

/// When a write arrives that was under way when its node lost power.
const LATE: Span = Span::millis(0, 20_000);

/// The directory that all paths start from.
const ROOT: u64 = 0;

pub(in crate::sim) struct Disk {
    dirs: BTreeMap<u64, Names>,
    files: BTreeMap<u64, FileState>,
    /// The next directory's or file's number.
    next: u64,
    used_bytes: u64,
    pub(in crate::sim) capacity_bytes: u64,
    /// Bytes beyond which nothing more is given, of which [`Disk::space`] says nothing: a quota.
    pub(in crate::sim) quota_bytes: u64,
    /// What is told of the number of files that can be made.
    pub(in crate::sim) files_available: u64,
    identity: u64,
    /// Of this disk, where it is another one than the options say.
    pub(in crate::sim) bytes_per_second: Option<u64>,
    pub(in crate::sim) writes_fail: bool,
    pub(in crate::sim) syncs_fail: bool,
    /// How much of the unsynced survives a crash, in parts per million; `None` draws it.
    pub(in crate::sim) keep_in_crash: Option<u32>,
    rng: Rng,
    /// Operations under way.
    operations: BTreeSet<Key>,
    /// Several nodes use it.
    pub(super) is_shared: bool,
    /// When the last byte that is to be read or written will have passed.
    free_at: u64,
    heads: Heads,
}

struct FileState {
    image: Image,
    dir: u64,
    /// The node that wrote last, if no other one has looked since: what it did not sync is lost with it.
    writer: Option<u32>,
    /// Handles of the present incarnations, by node.
    opens: BTreeMap<u32, u32>,
    /// Whether it has a name now.
    linked: bool,
}

/// Something that the disk is doing; it goes on when nobody waits for it any more.
pub(in crate::sim) struct Operation {
    node: u32,
    /// Which sync it is of those that are counted; 0 if it is none.
    sync: u64,
    /// `None` when it is done.
    work: Option<Work>,
    waiter: Option<Waker>,
    abandoned: bool,
    result: Option<io::Result<()>>,
}

/// What a handle asks for.
pub(super) enum Request {
    Write { file: u64, offset: u64, slices: Vec<Bytes> },
    SyncFile { file: u64 },
    SyncDir { dir: u64 },
}

/// The same under way; a sync knows what it has to make durable.
enum Work {
    Write { file: u64, offset: u64, slices: Vec<Bytes> },
    SyncFile { file: u64, point: Point },
    SyncDir { dir: u64, end: u64 },
}

impl Disk {
    pub(in crate::sim) fn new(seed: u64, name: &str, capacity_bytes: u64) -> Disk {
        Disk {
            dirs: BTreeMap::from([(ROOT, Names::default())]),
            files: BTreeMap::new(),
            next: ROOT + 1,
            used_bytes: 0,
            capacity_bytes,
            quota_bytes: u64::MAX,
            files_available: u64::MAX,
            identity: fnv(name.bytes()).max(1),
            bytes_per_second: None,
            writes_fail: false,
            syncs_fail: false,
            keep_in_crash: None,
            rng: Rng::stream(seed, name, 2 << 32),
            operations: BTreeSet::new(),
            is_shared: false,
            free_at: 0,
            heads: Heads::default(),
        }
    }

    fn dir(&mut self, dir: u64) -> io::Result<&mut Names> {
        self.dirs.get_mut(&dir).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, file: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The same, of a directory that `node` looks at.
    fn dir_seen(&mut self, node: u32, dir: u64) -> io::Result<&mut Names> {
        let is_shared = self.is_shared;
        let names = self.dir(dir)?;
        if is_shared {
            names.seen_by(node);
        }
        Ok(names)
    }

    /// The same, of a file that `node` looks at.
    fn file_seen(&mut self, node: u32, file: u64) -> io::Result<&mut FileState> {
        let state = self.file(file)?;
        state.writer = state.writer.filter(|writer| *writer == node);
        Ok(state)
    }

    /// Changes a file's content and keeps count of the space.
    fn change<R>(&mut self, node: u32, file: u64, change: impl FnOnce(&mut Image) -> R) -> io::Result<R> {
        let state = self.file(file)?;
        state.writer = Some(node);
        let image = &mut state.image;
        let before = image.space_bytes();
        let result = change(image);
        let after = image.space_bytes();
        self.used_bytes = self.used_bytes + after - before;
        Ok(result)
    }

    fn check_space(&mut self, file: u64, offset: u64, len: u64) -> io::Result<()> {
        let missing = self.file(file)?.image.missing_bytes(offset, len);
        if missing > 0 && self.used_bytes + missing > self.quota_bytes {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the quota is used up"));
        }
        if missing > 0 && self.used_bytes + missing > self.capacity_bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        Ok(())
    }

    /// Throws a file away that has neither name nor user; if a crash may bring it back, only its space.
    fn settle(&mut self, number: u64) {
        let Some(file) = self.files.get(&number) else { return };
        if file.linked || !file.opens.is_empty() {
            return;
        }
        let returns = self.dirs.get(&file.dir).is_some_and(|dir| dir.may_return(Entry::File(number)));
        if !returns {
            let file = self.files.remove(&number).expect("it was just seen");
            self.used_bytes -= file.image.space_bytes();
        }
    }

    pub(super) fn find_dir(&mut self, path: &str) -> io::Result<u64> {
        let mut dir = ROOT;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            dir = match self.dir(dir)?.get(name) {
                Some(Entry::Dir(next)) => next,
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            };
        }
        Ok(dir)
    }

    pub(super) fn make_dirs(&mut self, node: u32, path: &str) -> io::Result<u64> {
        let mut dir = ROOT;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            let next = self.subdir(node, dir, name)?;
            self.dir(dir)?.put_durably(name, Entry::Dir(next));
            dir = next;
        }
        Ok(dir)
    }

    pub(super) fn subdir(&mut self, node: u32, dir: u64, name: &str) -> io::Result<u64> {
        check_name(name)?;
        match self.dir_seen(node, dir)?.get(name) {
            Some(Entry::Dir(found)) => return Ok(found),
            Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => {}
        }
        let number = self.number();
        self.dirs.insert(number, Names::default());
        self.dir(dir)?.put(node, name, Entry::Dir(number));
        Ok(number)
    }

    pub(super) fn create(&mut self, node: u32, dir: u64, name: &str) -> io::Result<u64> {
        check_name(name)?;
        if self.dir_seen(node, dir)?.get(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.number();
        self.dir(dir)?.put(node, name, Entry::File(number));
        let opens = BTreeMap::from([(node, 1)]);
        let state = FileState { image: Image::default(), dir, writer: None, opens, linked: true };
        self.files.insert(number, state);
        Ok(number)
    }

    pub(super) fn open(&mut self, node: u32, dir: u64, name: &str) -> io::Result<u64> {
        match self.dir_seen(node, dir)?.get(name) {
            Some(Entry::File(number)) => {
                *self.file_seen(node, number)?.opens.entry(node).or_default() += 1;
                Ok(number)
            }
            Some(Entry::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn list(&mut self, node: u32, dir: u64) -> io::Result<Vec<String>> {
        Ok(self.dir_seen(node, dir)?.list())
    }

    pub(super) fn remove(&mut self, node: u32, dir: u64, name: &str) -> io::Result<()> {
        match self.dir_seen(node, dir)?.get(name) {
            Some(Entry::File(number)) => {
                self.dir(dir)?.take(node, name);
                self.unlink(number);
                Ok(())
            }
            Some(Entry::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn rename(&mut self, node: u32, dir: u64, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let names = self.dir_seen(node, dir)?;
        match (names.get(from), names.get(to)) {
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
            (_, Some(Entry::Dir(_))) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::Dir(_)), Some(Entry::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            _ if from == to => return Ok(()),
            _ => {}
        }
        if let Some(Entry::File(replaced)) = names.rename(node, from, to) {
            self.unlink(replaced);
        }
        Ok(())
    }

    fn unlink(&mut self, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.linked = false;
        }
        self.settle(number);
    }

    /// A lock is seen by the processes of one machine only: so the code above must not rest on more.
    pub(super) fn lock(&mut self, dir: u64, by: (u32, u32)) -> io::Result<()> {
        let names = self.dir(dir)?;
        match names.locked_by {
            Some(owner) if owner.0 == by.0 && owner != by => Err(io::ErrorKind::WouldBlock.into()),
            _ => {
                names.locked_by = Some(by);
                Ok(())
            }
        }
    }

    pub(super) fn unlock(&mut self, dir: u64, by: (u32, u32)) -> io::Result<()> {
        let names = self.dir(dir)?;
        names.locked_by = names.locked_by.filter(|owner| *owner != by);
        Ok(())
    }

    pub(super) fn space(&self) -> Space {
        let free = self.capacity_bytes.saturating_sub(self.used_bytes);
        Space {
            total: self.capacity_bytes,
            free,
            available: free,
            files_available: self.files_available,
            identity: self.identity,
        }
    }

    pub(super) fn read(&mut self, node: u32, file: u64, offset: u64, len: usize) -> io::Result<Bytes> {
        Ok(self.file_seen(node, file)?.image.read(offset, len))
    }

    pub(super) fn space_of(&mut self, file: u64) -> io::Result<u64> {
        Ok(self.file(file)?.image.space_bytes())
    }

    pub(super) fn len(&mut self, file: u64) -> io::Result<u64> {
        Ok(self.file(file)?.image.len())
    }

    pub(super) fn punch(&mut self, node: u32, file: u64, offset: u64, len: u64) -> io::Result<()> {
        self.change(node, file, |image| image.punch(offset, len))
    }

    pub(super) fn close(&mut self, node: u32, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            if let Some(opens) = file.opens.get_mut(&node) {
                *opens -= 1;
                file.opens.retain(|_, opens| *opens > 0);
            }
            self.settle(number);
        }
    }

    /// All handles of a node are gone at once.
    fn close_all(&mut self, node: u32) {
        for dir in self.dirs.values_mut() {
            dir.locked_by = dir.locked_by.filter(|(by, _)| *by != node);
        }
        for file in self.files.values_mut() {
            file.opens.remove(&node);
        }
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            self.settle(number);
        }
    }

    /// How much of the unsynced survives a crash, of data and of names: nothing, everything, or a part.
    fn draw_keep(&mut self) -> (u32, u32) {
        let rng = &mut self.rng;
        let keep_data = *rng.pick(&[0, 300_000, 500_000, 950_000, 1_000_000]);
        let keep_names = *rng.pick(&[0, 500_000, 500_000, 1_000_000]);
        self.keep_in_crash.map_or((keep_data, keep_names), |keep| (keep, keep))
    }

    /// One of several nodes loses power: with it goes what it has not synced and nobody else has seen.
    fn crash_of(&mut self, node: u32) -> u64 {
        let (keep_data, keep_names) = self.draw_keep();
        self.dirs.values_mut().for_each(|dir| dir.crash_of(node, &mut self.rng, keep_names));
        let (_, named) = self.reachable();
        let mut lost = 0;
        for (number, file) in &mut self.files {
            file.linked = named.contains(number);
            if file.writer == Some(node) {
                let before = file.image.space_bytes();
                lost += file.image.crash(&mut self.rng, keep_data);
                self.used_bytes = self.used_bytes + file.image.space_bytes() - before;
                file.writer = None;
            }
        }
        self.close_all(node);
        lost
    }

    /// The directories and the files that have names.
    fn reachable(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut dirs, mut files) = (BTreeSet::from([ROOT]), BTreeSet::new());
        let mut unseen = vec![ROOT];
        while let Some(dir) = unseen.pop() {
            for entry in self.dirs[&dir].entries() {
                match entry {
                    Entry::File(number) => _ = files.insert(number),
                    Entry::Dir(number) if dirs.insert(number) => unseen.push(number),
                    Entry::Dir(_) => {}
                }
            }
        }
        (dirs, files)
    }

    /// Power fails for all who use the disk.
    fn crash(&mut self) -> u64 {
        let (keep_data, keep_names) = self.draw_keep();
        let rng = &mut self.rng;
        let mut lost = 0;
        for dir in self.dirs.values_mut() {
            dir.crash(rng, keep_names);
        }
        let (dirs, files) = self.reachable();
        let rng = &mut self.rng;
        self.dirs.retain(|number, _| dirs.contains(number));
        self.files.retain(|number, _| files.contains(number));
        self.used_bytes = 0;
        for file in self.files.values_mut() {
            lost += file.image.crash(rng, keep_data);
            file.opens.clear();
            file.writer = None;
            file.linked = true;
            self.used_bytes += file.image.space_bytes();
        }
        self.free_at = 0;
        self.heads.forget();
        lost
    }

    /// When something that takes `latency` and moves `bytes` is done.
    fn done_at(&mut self, now: u64, latency: u64, bytes: u64, bytes_per_second: Option<u64>) -> u64 {
        let Some(rate) = self.bytes_per_second.or(bytes_per_second) else { return now + latency };
        let passing = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        self.free_at = now.max(self.free_at).saturating_add(u64::try_from(passing).unwrap_or(u64::MAX));
        self.free_at.saturating_add(latency)
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if matches!(name, "" | "." | "..") || name.contains('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a name")));
    }
    Ok(())
}

fn broken(what: &'static str) -> io::Error {
    io::Error::other(what)
}
