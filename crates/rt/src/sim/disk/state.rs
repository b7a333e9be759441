//! A machine's disk: its directories and files, what is on its way to it, and what a crash does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::super::cut::Moment;
use super::super::rng::Rng;
use super::super::slab::Key;
use super::super::trace::Kind;
use super::super::world::{Event, Power, World};
use super::LARGE_BYTES;
use super::heads::{Heads, Written};
use super::image::{Image, Point};
use super::names::{Entry, Names};
use crate::disk::Space;

/// The directory that all paths start from.
const ROOT: u64 = 0;

pub(in crate::sim) struct Disk {
    dirs: BTreeMap<u64, Names>,
    files: BTreeMap<u64, FileState>,
    /// The next directory's or file's number.
    next: u64,
    used_bytes: u64,
    pub(in crate::sim) capacity_bytes: u64,
    pub(in crate::sim) writes_fail: bool,
    pub(in crate::sim) syncs_fail: bool,
    /// How much of the unsynced survives a crash, in parts per million; `None` draws it.
    pub(in crate::sim) keep_in_crash: Option<u32>,
    rng: Rng,
    /// Operations under way.
    operations: BTreeSet<Key>,
    /// When the last byte that is to be read or written will have passed.
    free_at: u64,
    heads: Heads,
}

struct FileState {
    image: Image,
    dir: u64,
    /// Handles of the present incarnation.
    opens: u32,
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
            writes_fail: false,
            syncs_fail: false,
            keep_in_crash: None,
            rng: Rng::stream(seed, name, 2 << 32),
            operations: BTreeSet::new(),
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

    /// Changes a file's content and keeps count of the space.
    fn change<R>(&mut self, file: u64, change: impl FnOnce(&mut Image) -> R) -> io::Result<R> {
        let image = &mut self.file(file)?.image;
        let before = image.space_bytes();
        let result = change(image);
        let after = image.space_bytes();
        self.used_bytes = self.used_bytes + after - before;
        Ok(result)
    }

    fn check_space(&mut self, file: u64, offset: u64, len: u64) -> io::Result<()> {
        let missing = self.file(file)?.image.missing_bytes(offset, len);
        if missing > 0 && self.used_bytes + missing > self.capacity_bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        Ok(())
    }

    /// Throws a file away that has neither name nor user; if a crash may bring it back, only its space.
    fn settle(&mut self, number: u64) {
        let Some(file) = self.files.get(&number) else { return };
        if file.linked || file.opens > 0 {
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

    pub(super) fn make_dirs(&mut self, path: &str) -> io::Result<u64> {
        let mut dir = ROOT;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            let next = self.subdir(dir, name)?;
            self.dir(dir)?.put_durably(name, Entry::Dir(next));
            dir = next;
        }
        Ok(dir)
    }

    pub(super) fn subdir(&mut self, dir: u64, name: &str) -> io::Result<u64> {
        check_name(name)?;
        match self.dir(dir)?.get(name) {
            Some(Entry::Dir(found)) => return Ok(found),
            Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => {}
        }
        let number = self.number();
        self.dirs.insert(number, Names::default());
        self.dir(dir)?.put(name, Entry::Dir(number));
        Ok(number)
    }

    pub(super) fn create(&mut self, dir: u64, name: &str) -> io::Result<u64> {
        check_name(name)?;
        if self.dir(dir)?.get(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.number();
        self.dir(dir)?.put(name, Entry::File(number));
        self.files.insert(number, FileState { image: Image::default(), dir, opens: 1, linked: true });
        Ok(number)
    }

    pub(super) fn open(&mut self, dir: u64, name: &str) -> io::Result<u64> {
        match self.dir(dir)?.get(name) {
            Some(Entry::File(number)) => {
                self.file(number)?.opens += 1;
                Ok(number)
            }
            Some(Entry::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn list(&mut self, dir: u64) -> io::Result<Vec<String>> {
        Ok(self.dir(dir)?.list())
    }

    pub(super) fn remove(&mut self, dir: u64, name: &str) -> io::Result<()> {
        match self.dir(dir)?.get(name) {
            Some(Entry::File(number)) => {
                self.dir(dir)?.take(name);
                self.unlink(number);
                Ok(())
            }
            Some(Entry::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn rename(&mut self, dir: u64, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let names = self.dir(dir)?;
        match (names.get(from), names.get(to)) {
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
            (_, Some(Entry::Dir(_))) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::Dir(_)), Some(Entry::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            _ if from == to => return Ok(()),
            _ => {}
        }
        if let Some(Entry::File(replaced)) = names.rename(from, to) {
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

    pub(super) fn lock(&mut self, dir: u64, incarnation: u32) -> io::Result<()> {
        let names = self.dir(dir)?;
        match names.locked_by {
            Some(owner) if owner != incarnation => Err(io::ErrorKind::WouldBlock.into()),
            _ => {
                names.locked_by = Some(incarnation);
                Ok(())
            }
        }
    }

    pub(super) fn unlock(&mut self, dir: u64, incarnation: u32) -> io::Result<()> {
        let names = self.dir(dir)?;
        names.locked_by = names.locked_by.filter(|owner| *owner != incarnation);
        Ok(())
    }

    pub(super) fn space(&self) -> Space {
        let free = self.capacity_bytes.saturating_sub(self.used_bytes);
        Space { total: self.capacity_bytes, free, available: free }
    }

    pub(super) fn read(&mut self, file: u64, offset: u64, len: usize) -> io::Result<Bytes> {
        Ok(self.file(file)?.image.read(offset, len))
    }

    pub(super) fn len(&mut self, file: u64) -> io::Result<u64> {
        Ok(self.file(file)?.image.len())
    }

    pub(super) fn punch(&mut self, file: u64, offset: u64, len: u64) -> io::Result<()> {
        self.change(file, |image| image.punch(offset, len))
    }

    pub(super) fn close(&mut self, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.opens = file.opens.saturating_sub(1);
            self.settle(number);
        }
    }

    /// All handles are gone at once.
    fn close_all(&mut self) {
        for dir in self.dirs.values_mut() {
            dir.locked_by = None;
        }
        for file in self.files.values_mut() {
            file.opens = 0;
        }
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            self.settle(number);
        }
    }

    /// Power fails. How much of the unsynced survives is drawn for each crash: nothing, everything, or a part.
    fn crash(&mut self) -> u64 {
        let rng = &mut self.rng;
        let keep_data = *rng.pick(&[0, 300_000, 500_000, 950_000, 1_000_000]);
        let keep_names = *rng.pick(&[0, 500_000, 500_000, 1_000_000]);
        let (keep_data, keep_names) = self.keep_in_crash.map_or((keep_data, keep_names), |keep| (keep, keep));
        let mut lost = 0;
        for dir in self.dirs.values_mut() {
            dir.crash(rng, keep_names);
        }
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
        self.dirs.retain(|number, _| dirs.contains(number));
        self.files.retain(|number, _| files.contains(number));
        self.used_bytes = 0;
        for file in self.files.values_mut() {
            lost += file.image.crash(rng, keep_data);
            file.opens = 0;
            file.linked = true;
            self.used_bytes += file.image.space_bytes();
        }
        self.free_at = 0;
        self.heads.forget();
        lost
    }

    /// When something that takes `latency` and moves `bytes` is done.
    fn done_at(&mut self, now: u64, latency: u64, bytes: u64, bytes_per_second: Option<u64>) -> u64 {
        let Some(rate) = bytes_per_second else { return now + latency };
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

impl World {
    /// The disk of a node, if its incarnation still lives.
    pub(super) fn disk(&mut self, node: u32, incarnation: u32) -> io::Result<&mut Disk> {
        if !self.lives(node, incarnation) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the node has crashed"));
        }
        Ok(&mut self.nodes[node as usize].disk)
    }

    /// When an operation on names that begins now is done.
    pub(super) fn name_done_at(&mut self, node: u32) -> u64 {
        self.note(Kind::Name, node, 0);
        self.now + self.options.disk.name.draw(&mut self.nodes[node as usize].disk.rng)
    }

    /// When a read of `len` bytes that begins now is done.
    pub(super) fn read_done_at(&mut self, node: u32, offset: u64, len: usize) -> u64 {
        let stats = self.stats(node);
        stats.reads += 1;
        stats.bytes_read += len as u64;
        self.note(Kind::Read, node, offset ^ (len as u64).rotate_left(40));
        let options = self.options.disk;
        let disk = &mut self.nodes[node as usize].disk;
        let latency = options.read.draw(&mut disk.rng);
        disk.done_at(self.now, latency, len as u64, options.bytes_per_second)
    }

    /// Writes here and now; whether it fails is decided here.
    pub(super) fn write(&mut self, node: u32, file: u64, offset: u64, slices: &[Bytes]) -> io::Result<()> {
        let len: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let stats = self.stats(node);
        stats.writes += 1;
        stats.bytes_written += len;
        self.note(Kind::Write, node, offset ^ len.rotate_left(40));
        self.check_write_fails(node)?;
        let has_heads = self.options.disk.seek_ns > 0;
        let disk = &mut self.nodes[node as usize].disk;
        disk.check_space(file, offset, len)?;
        if has_heads && len < LARGE_BYTES {
            disk.heads.remember(file, offset, len);
        }
        disk.change(file, |image| image.write(offset, slices))
    }

    pub(super) fn allocate(&mut self, node: u32, file: u64, offset: u64, len: u64) -> io::Result<()> {
        self.check_write_fails(node)?;
        let disk = &mut self.nodes[node as usize].disk;
        disk.check_space(file, offset, len)?;
        disk.change(file, |image| image.allocate(offset, len))
    }

    fn check_write_fails(&mut self, node: u32) -> io::Result<()> {
        let disk = &mut self.nodes[node as usize].disk;
        if disk.writes_fail || self.options.disk.write_fails.strikes(&mut disk.rng) {
            self.note(Kind::WriteFailed, node, 0);
            return Err(broken("the write failed"));
        }
        Ok(())
    }

    fn count_pieces(&mut self, node: u32, written: Written) {
        let stats = self.stats(node);
        stats.pieces += written.pieces;
        stats.pieces_small += written.small;
        stats.piece_bytes += written.bytes;
        stats.seeks += written.seeks;
    }

    /// Begins something that takes time and goes on by itself.
    pub(super) fn begin_disk(&mut self, node: u32, incarnation: u32, request: Request) -> io::Result<Key> {
        self.disk(node, incarnation)?;
        let is_sync = !matches!(request, Request::Write { .. });
        let sync = if is_sync { self.count_sync(node) } else { 0 };
        if self.cut_power_at(node, sync, Moment::Before) {
            return Err(broken("the power was cut"));
        }
        let options = self.options.disk;
        let disk = &mut self.nodes[node as usize].disk;
        let mut bytes = 0;
        let written;
        let (work, latency) = match request {
            Request::SyncFile { file } => {
                let point = disk.file(file)?.image.begin_sync();
                written = disk.heads.flush(file);
                (Work::SyncFile { file, point }, options.sync)
            }
            Request::SyncDir { dir } => {
                let end = disk.dir(dir)?.begin_sync();
                written = disk.heads.names();
                (Work::SyncDir { dir, end }, options.sync)
            }
            Request::Write { file, offset, slices } => {
                bytes = slices.iter().map(|slice| slice.len() as u64).sum();
                written = disk.heads.write(file, offset, bytes);
                (Work::Write { file, offset, slices }, options.write)
            }
        };
        let latency = latency.draw(&mut disk.rng);
        let moving = if options.seek_ns > 0 {
            bytes = written.bytes;
            written.seeks * options.seek_ns
        } else {
            0
        };
        if moving > 0 {
            disk.free_at = disk.free_at.max(self.now) + moving;
        }
        let done_at = disk.done_at(self.now, latency, bytes, options.bytes_per_second);
        if options.seek_ns > 0 {
            self.count_pieces(node, written);
        }
        let operation =
            Operation { node, sync, work: Some(work), waiter: None, abandoned: false, result: None };
        let key = self.disk_operations.insert(operation);
        self.nodes[node as usize].disk.operations.insert(key);
        self.schedule(done_at, Event::Disk(key));
        Ok(key)
    }

    pub(super) fn poll_disk(&mut self, key: Key, waker: &Waker) -> Poll<io::Result<()>> {
        let Some(operation) = self.disk_operations.get_mut(key) else {
            return Poll::Ready(Err(broken("the node has crashed")));
        };
        match operation.result.take() {
            Some(result) => {
                self.disk_operations.remove(key);
                Poll::Ready(result)
            }
            None => {
                operation.waiter = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Nobody waits any more; what is under way goes on.
    pub(super) fn abandon_disk(&mut self, key: Key) {
        if let Some(operation) = self.disk_operations.get_mut(key) {
            operation.abandoned = true;
            if operation.result.is_some() {
                self.disk_operations.remove(key);
            }
        }
    }

    pub(in crate::sim) fn disk_done(&mut self, key: Key) {
        let Some(operation) = self.disk_operations.get_mut(key) else { return };
        let (node, sync) = (operation.node, operation.sync);
        if self.cut_power_at(node, sync, Moment::During) {
            return;
        }
        let Some(operation) = self.disk_operations.get_mut(key) else { return };
        let Some(work) = operation.work.take() else { return };
        self.stats(node).events += 1;
        self.nodes[node as usize].disk.operations.remove(&key);
        let result = match work {
            Work::Write { file, offset, slices } => self.write(node, file, offset, &slices),
            work => self.end_sync(node, work),
        };
        if self.cut_power_at(node, sync, Moment::After) {
            return;
        }
        let operation = self.disk_operations.get_mut(key).expect("it was just seen");
        operation.result = Some(result);
        let waiter = operation.waiter.take();
        if operation.abandoned {
            self.disk_operations.remove(key);
        }
        self.wake(waiter);
    }

    fn end_sync(&mut self, node: u32, sync: Work) -> io::Result<()> {
        self.stats(node).syncs += 1;
        let disk = &mut self.nodes[node as usize].disk;
        let fails = disk.syncs_fail || self.options.disk.sync_fails.strikes(&mut disk.rng);
        let lies = self.options.disk.sync_lies.strikes(&mut disk.rng);
        match sync {
            Work::SyncFile { file, .. } if lies => {
                if let Some(state) = disk.files.get_mut(&file) {
                    state.image.forget_sync();
                }
            }
            Work::SyncDir { .. } if lies => {}
            // A file may have lost its last name and handle meanwhile.
            Work::SyncFile { file, point } => {
                if let Some(state) = disk.files.get_mut(&file) {
                    if fails {
                        state.image.fail_sync(point, &mut disk.rng);
                    } else {
                        state.image.end_sync(point);
                    }
                }
            }
            Work::SyncDir { dir, end } if !fails => {
                for entry in disk.dir(dir)?.end_sync(end) {
                    if let Entry::File(number) = entry {
                        disk.settle(number);
                    }
                }
            }
            _ => {}
        }
        if fails {
            self.stats(node).syncs_failed += 1;
            self.note(Kind::SyncFailed, node, 0);
            return Err(broken("the sync failed"));
        }
        self.note(Kind::Sync, node, 0);
        Ok(())
    }

    /// A handle of a file is gone.
    pub(super) fn close_file(&mut self, node: u32, incarnation: u32, file: u64) {
        let state = &mut self.nodes[node as usize];
        if state.incarnation == incarnation {
            state.disk.close(file);
        }
    }

    /// The node stops. When power fails, writes under way are done in part.
    pub(in crate::sim) fn disk_stop(&mut self, node: u32, power: Power) {
        let disk = &mut self.nodes[node as usize].disk;
        if power != Power::Down {
            return disk.close_all();
        }
        for key in std::mem::take(&mut disk.operations) {
            let Some(operation) = self.disk_operations.remove(key) else { continue };
            if let Some(Work::Write { file, offset, slices }) = operation.work {
                let disk = &mut self.nodes[node as usize].disk;
                let len = slices.iter().map(|slice| slice.len() as u64).sum();
                if disk.check_space(file, offset, len).is_ok() {
                    // The file is there: it has the space.
                    let _ = disk.change(file, |image| image.write(offset, &slices));
                }
            }
        }
        let lost = self.nodes[node as usize].disk.crash();
        self.stats(node).sectors_lost += lost;
        self.note(Kind::DiskCrash, node, lost);
    }
}
