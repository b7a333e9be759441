//! What one client does in a directory of its own: random operations, each result compared with the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use client::{Allocation, AttrChange, Behind, Caller, Client, Error, Handle, OpenFlags};
use parking_lot::Mutex;
use proto::layout::{HintPart, LayoutHint};
use proto::wire::messages::RENAME_EXCHANGE;
use proto::{Attr, Code, Fid, FileKind};
use rt::sim::Rng;

use crate::content;
use crate::model::{Id, Names, Node, Op, ROOT, Tree};

/// What is known of a client's directory from outside; outlives the client's crash.
#[derive(Debug, Default, Clone)]
pub struct Record {
    /// Added to an inode's number to make the tag of its bytes: no two clients share tags.
    pub tag_base: u32,
    /// The model, with the effect of an operation that was asked for but not answered yet.
    pub tree: Tree,
    /// The FIDs of the model's inodes, as far as answers told them.
    pub fids: BTreeMap<Id, Fid>,
    /// The names after each operation that changed some, with its number; the oldest is at or before `floor`.
    pub snapshots: Vec<(usize, Names)>,
    /// Every operation up to this number is durable.
    pub floor: usize,
    /// Operations asked for so far.
    pub number: usize,
    /// Operations whose result was compared.
    pub compared: usize,
}

impl Record {
    /// The tag that the bytes of a file carry.
    pub fn tag(&self, id: Id) -> u32 {
        self.tag_base + id
    }

    /// The tags of every file whose bytes a file may hold.
    pub fn tags(&self, id: Id) -> Vec<u32> {
        let copied = self.tree.contents.get(&id).into_iter().flat_map(|content| &content.copied_from);
        std::iter::once(&id).chain(copied).map(|id| self.tag(*id)).collect()
    }

    fn raise_floor(&mut self, number: usize) {
        self.floor = self.floor.max(number);
        let keep = self.snapshots.iter().rposition(|(at, _)| *at <= self.floor).unwrap_or(0);
        self.snapshots.drain(..keep);
    }

    /// A copy to check against while others go on.
    pub fn take_view(&self) -> Record {
        self.clone()
    }

    /// From now on only the newest state will do: nothing crashed.
    pub fn only_the_last(&mut self) {
        self.tree.all_durable();
        self.raise_floor(self.number);
    }

    fn snapshot(&mut self) {
        self.snapshots.push((self.number, self.tree.names.clone()));
    }
}

/// Opens for reading and writing.
pub const READ_WRITE: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    exclusive: false,
    truncate: false,
    execute: false,
    sync: false,
    no_atime: false,
};

/// Opens for reading.
pub const READ: OpenFlags = OpenFlags { write: false, ..READ_WRITE };

/// The superuser.
pub fn root() -> Caller {
    Caller { uid: 0, gid: 0, groups: Arc::new(Vec::new), umask: 0, gives_way: false }
}

const FILE_BYTES_MAX: u64 = 160 << 10;
const HANDLES_MAX: usize = 3;

/// One client at work.
pub struct Player {
    name: String,
    client: Arc<Client>,
    rng: Rng,
    record: Arc<Mutex<Record>>,
    handles: Vec<(Id, Handle)>,
}

impl Player {
    /// Makes the client's directory and starts with an empty model.
    pub async fn start(name: &str, client: Arc<Client>, mut rng: Rng, record: Arc<Mutex<Record>>) -> Player {
        let made = client.names().make(&root(), Fid::ROOT, name.as_bytes(), 0o040_755, 0, Bytes::new()).await;
        let base = made.expect("a directory of a new name can be made").fid;
        // Half of the players have the first bytes of their files on the MDT.
        if rng.one_in(2) {
            let parts = vec![HintPart::mdt(1 << 16), HintPart::new(u64::MAX, LayoutHint::default())];
            let hint = LayoutHint { parts, ..LayoutHint::default() };
            client.names().set_layout(&root(), base, Some(hint)).await.expect("the owner may");
        }
        client.sync_all().await.expect("what is healthy can be synced");
        {
            let mut record = record.lock();
            record.number = 1;
            record.fids.insert(ROOT, base);
            record.snapshot();
            record.raise_floor(1);
        }
        Player { name: name.into(), client, rng, record, handles: Vec::new() }
    }

    /// Does `steps` random operations.
    pub async fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.rng.below(100) {
                0..40 => self.change_names().await,
                40..54 => self.write().await,
                54..57 => self.copy().await,
                57..60 => self.allocate().await,
                60..70 => self.read().await,
                70..76 => self.truncate().await,
                76..82 => self.look().await,
                82..88 => self.list().await,
                88..93 => self.keep_or_drop_handle().await,
                93..98 => self.fsync().await,
                _ => self.sync_all().await,
            }
            self.record.lock().compared += 1;
        }
    }

    /// Closes what is open.
    pub async fn finish(&mut self) {
        for (_, handle) in std::mem::take(&mut self.handles) {
            self.client.files().flush(handle).await.expect("no write failed");
            self.client.files().release(handle).await;
        }
    }

    fn fid(&self, id: Id) -> Fid {
        *self.record.lock().fids.get(&id).expect("every inode of the model has a FID")
    }

    fn any_dir(&mut self) -> Id {
        let dirs = self.record.lock().tree.dirs();
        *self.rng.pick(&dirs)
    }

    fn any_file(&mut self) -> Option<Id> {
        let files = self.record.lock().tree.files();
        if files.is_empty() { None } else { Some(*self.rng.pick(&files)) }
    }

    fn any_name(&mut self) -> String {
        format!("n{}", self.rng.below(7))
    }

    fn any_op(&mut self) -> Op {
        let (dir, name) = (self.any_dir(), self.any_name());
        match self.rng.below(20) {
            0..3 => Op::Mkdir(dir, name),
            3..9 => Op::Create(dir, name),
            9 => Op::Symlink(dir, name, format!("to-{}", self.rng.below(100))),
            10..12 => match self.any_file() {
                Some(id) => Op::Link(id, dir, name),
                None => Op::Create(dir, name),
            },
            12..14 => Op::Unlink(dir, name),
            14 => Op::Rmdir(dir, name),
            15 => Op::Exchange(dir, name, self.any_dir(), self.any_name()),
            _ => Op::Rename(dir, name, self.any_dir(), self.any_name()),
        }
    }

    async fn change_names(&mut self) {
        let op = self.any_op();
        let (number, expected) = {
            let mut record = self.record.lock();
            record.number += 1;
            let number = record.number;
            let expected = record.tree.apply(&op, number);
            if expected.is_ok() {
                record.snapshot();
            }
            (number, expected)
        };
        let found = self.ask(&op).await;
        let same = match (&expected, &found) {
            (Ok(()), Ok(_)) => true,
            (Err(want), Err(got)) => want == got || both_refuse_a_full_place(*want, *got),
            _ => false,
        };
        assert!(same, "{} op {number} {op:?}: expected {expected:?}, found {found:?}", self.name);
        if let (Ok(Some(fid)), Op::Mkdir(dir, name) | Op::Create(dir, name) | Op::Symlink(dir, name, _)) =
            (found, &op)
        {
            let mut record = self.record.lock();
            let id = record.tree.names.find(*dir, name).expect("the model made it");
            record.fids.insert(id, fid);
        }
    }

    async fn ask(&mut self, op: &Op) -> Result<Option<Fid>, Code> {
        let (client, caller) = (self.client.clone(), root());
        let made = |result: client::Result<client::Told>| result.map(|told| Some(told.fid));
        let result = match op {
            Op::Mkdir(dir, name) => made(
                client
                    .names()
                    .make(&caller, self.fid(*dir), name.as_bytes(), 0o040_755, 0, Bytes::new())
                    .await,
            ),
            Op::Symlink(dir, name, target) => {
                let target = Bytes::from(target.clone().into_bytes());
                made(
                    client.names().make(&caller, self.fid(*dir), name.as_bytes(), 0o120_777, 0, target).await,
                )
            }
            Op::Create(dir, name) => {
                let flags = OpenFlags { exclusive: true, ..READ_WRITE };
                let made =
                    client.files().create(&caller, self.fid(*dir), name.as_bytes(), 0o100_644, flags).await;
                match made.map(|(told, handle)| (told.fid, handle)) {
                    Ok((fid, handle)) => {
                        client.files().flush(handle).await.expect("an empty file can be flushed");
                        client.files().release(handle).await;
                        Ok(Some(fid))
                    }
                    Err(error) => Err(error),
                }
            }
            Op::Link(id, dir, name) => {
                made(client.names().link(&caller, self.fid(*id), self.fid(*dir), name.as_bytes()).await)
            }
            Op::Unlink(dir, name) => {
                client.names().unlink(&caller, self.fid(*dir), name.as_bytes()).await.map(|()| None)
            }
            Op::Rmdir(dir, name) => {
                client.names().rmdir(&caller, self.fid(*dir), name.as_bytes()).await.map(|()| None)
            }
            Op::Exchange(dir, name, to, new) => client
                .names()
                .rename(
                    &caller,
                    self.fid(*dir),
                    name.as_bytes(),
                    self.fid(*to),
                    new.as_bytes(),
                    RENAME_EXCHANGE,
                )
                .await
                .map(|()| None),
            Op::Rename(dir, name, to, new) => client
                .names()
                .rename(&caller, self.fid(*dir), name.as_bytes(), self.fid(*to), new.as_bytes(), 0)
                .await
                .map(|()| None),
        };
        result.map_err(|error| match error {
            Error::Refused(code) => code,
            other => panic!("{} {op:?}: {other}", self.name),
        })
    }

    /// A handle for `id`: one that is open already, or a new one; and whether it has to be closed.
    async fn handle(&mut self, id: Id) -> (Handle, bool) {
        if let Some((_, handle)) = self.handles.iter().find(|(of, _)| *of == id) {
            return (*handle, false);
        }
        let opened = self.client.files().open(&root(), self.fid(id), READ_WRITE).await;
        (opened.unwrap_or_else(|error| panic!("{} open of {id}: {error}", self.name)), true)
    }

    async fn put_back(&self, handle: Handle, close: bool) {
        if close {
            tracing::debug!(name = self.name, ?handle, "close");
            self.client.files().flush(handle).await.expect("no write failed");
            self.client.files().release(handle).await;
        }
    }

    /// A file with a name, or an unlinked one that is open.
    fn any_data_file(&mut self) -> Option<Id> {
        if !self.handles.is_empty() && self.rng.one_in(2) {
            let at = self.rng.below(self.handles.len() as u64) as usize;
            return Some(self.handles[at].0);
        }
        self.any_file()
    }

    async fn write(&mut self) {
        let Some(id) = self.any_data_file() else { return };
        let offset = self.rng.below(FILE_BYTES_MAX);
        let len = *self.rng.pick(&[1, 100, 4096, 20_000, 47_008]);
        let (handle, close) = self.handle(id).await;
        let data = {
            let mut record = self.record.lock();
            let tag = record.tag(id);
            let model = record.tree.contents.get_mut(&id).expect("a regular file has contents");
            model.version += 1;
            model.durable = false;
            let data = content::bytes(tag, model.version, offset, len);
            let end = offset as usize + len;
            let size = model.data.len().max(end);
            model.data.resize(size, 0);
            model.data[offset as usize..end].copy_from_slice(&data);
            data
        };
        tracing::debug!(name = self.name, id, fid = %self.fid(id), ?handle, offset, len, "write");
        let written = self.client.files().write(handle, offset, &data).await;
        assert_eq!(written, Ok(len as u32), "{} write to {id}", self.name);
        self.put_back(handle, close).await;
    }

    /// Between two files, at the same place: so the bytes tell where they are from.
    async fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.any_data_file(), self.any_data_file()) else { return };
        if from == to {
            return;
        }
        let offset = self.rng.below(FILE_BYTES_MAX);
        let len = *self.rng.pick(&[1, 4096, 47_008, 200_000]);
        let (source, close_source) = self.handle(from).await;
        let (target, close_target) = self.handle(to).await;
        let copied = {
            let mut record = self.record.lock();
            let content = &record.tree.contents[&from];
            let start = content.data.len().min(offset as usize);
            let data = content.data[start..content.data.len().min(offset as usize + len)].to_vec();
            let sources: Vec<Id> = content.copied_from.iter().copied().chain([from]).collect();
            let model = record.tree.contents.get_mut(&to).expect("a regular file has contents");
            if !data.is_empty() {
                model.durable = false;
                model.copied_from.extend(sources);
                model.data.resize(model.data.len().max(start + data.len()), 0);
                model.data[start..start + data.len()].copy_from_slice(&data);
            }
            data.len() as u64
        };
        tracing::debug!(name = self.name, from, to, offset, len, "copy");
        let done = self.client.files().copy_range((source, offset), (target, offset), len as u64).await;
        assert_eq!(done, Ok(copied), "{} copy from {from} to {to}", self.name);
        self.put_back(source, close_source).await;
        self.put_back(target, close_target).await;
    }

    /// Reserves, zeroes or cuts out a range.
    async fn allocate(&mut self) {
        let Some(id) = self.any_data_file() else { return };
        let offset = self.rng.below(FILE_BYTES_MAX);
        let len = *self.rng.pick(&[1, 4096, 47_008]);
        let keep_size = self.rng.one_in(2);
        let what = *self.rng.pick(&[
            Allocation::Reserve { keep_size },
            Allocation::Zero { keep_size },
            Allocation::PunchHole,
        ]);
        let (handle, close) = self.handle(id).await;
        {
            let mut record = self.record.lock();
            let model = record.tree.contents.get_mut(&id).expect("a regular file has contents");
            model.durable = false;
            let end = offset as usize + len as usize;
            if !keep_size && what != Allocation::PunchHole {
                model.data.resize(model.data.len().max(end), 0);
            }
            if !matches!(what, Allocation::Reserve { .. }) {
                let end = model.data.len().min(end);
                model.data[end.min(offset as usize)..end].fill(0);
            }
        }
        tracing::debug!(name = self.name, id, offset, len, ?what, "allocate");
        let done = self.client.files().allocate(handle, offset, len, what).await;
        assert_eq!(done, Ok(()), "{} {what:?} of {id}", self.name);
        self.put_back(handle, close).await;
    }

    async fn read(&mut self) {
        let Some(id) = self.any_data_file() else { return };
        let (handle, close) = self.handle(id).await;
        let offset = if self.rng.one_in(2) { 0 } else { self.rng.below(FILE_BYTES_MAX) };
        let slices =
            self.client.files().read(handle, offset, 256 << 10).await.expect("what is healthy can be read");
        let found = slices.concat();
        {
            let record = self.record.lock();
            let model = &record.tree.contents[&id].data;
            let expected = model.get(offset as usize..).unwrap_or(&[]);
            if found != expected {
                let at = found.iter().zip(expected).position(|(a, b)| a != b);
                panic!(
                    "{} read of {id} at {offset}: {} bytes, expected {}, first difference {at:?}",
                    self.name,
                    found.len(),
                    expected.len()
                );
            }
        }
        self.put_back(handle, close).await;
    }

    async fn truncate(&mut self) {
        let Some(id) = self.any_data_file() else { return };
        let size = self.rng.below(FILE_BYTES_MAX);
        {
            let mut record = self.record.lock();
            let model = record.tree.contents.get_mut(&id).expect("a regular file has contents");
            model.durable = false;
            model.data.resize(size as usize, 0);
        }
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        let handle = self.handles.iter().find(|(of, _)| *of == id).map(|(_, handle)| *handle);
        let attr = self
            .client
            .files()
            .setattr(&root(), self.fid(id), change, handle)
            .await
            .expect("root may cut a file");
        assert_eq!(attr.size, size, "{} truncate of {id}", self.name);
    }

    async fn look(&mut self) {
        let (dir, name) = (self.any_dir(), self.any_name());
        let found = self.client.names().lookup(&root(), self.fid(dir), name.as_bytes()).await;
        let record = self.record.lock();
        match (record.tree.names.find(dir, &name), found) {
            (Err(code), Err(Error::Refused(refusal))) => assert_eq!(code, refusal),
            (Ok(id), Ok(attr)) => self.compare_attr(&record, id, &attr),
            (expected, found) => {
                panic!("{} lookup of {name} in {dir}: expected {expected:?}, found {found:?}", self.name)
            }
        }
    }

    fn compare_attr(&self, record: &Record, id: Id, attr: &Attr) {
        assert_eq!(Some(&attr.fid), record.fids.get(&id), "{} inode {id}", self.name);
        match &record.tree.names.nodes[&id] {
            Node::Dir(entries) => {
                let subdirs =
                    entries.values().filter(|id| matches!(record.tree.names.nodes[id], Node::Dir(_))).count();
                assert_eq!(
                    (attr.kind(), attr.nlink),
                    (FileKind::Dir, 2 + subdirs as u32),
                    "{} dir {id}",
                    self.name
                );
            }
            Node::File { nlink } => {
                let size = record.tree.contents[&id].data.len() as u64;
                assert_eq!(
                    (attr.kind(), attr.nlink, attr.size),
                    (FileKind::File, *nlink, size),
                    "{} file {id}",
                    self.name
                );
            }
            Node::Symlink(target) => {
                assert_eq!(
                    (attr.kind(), attr.size),
                    (FileKind::Symlink, target.len() as u64),
                    "{} link {id}",
                    self.name
                );
            }
        }
    }

    async fn list(&mut self) {
        let dir = self.any_dir();
        let found = read_whole_dir(&self.client, self.fid(dir)).await;
        let record = self.record.lock();
        let entries = record.tree.names.dir(dir).expect("a directory of the model");
        let expected: BTreeMap<String, Fid> =
            entries.iter().map(|(name, id)| (name.clone(), record.fids[id])).collect();
        assert_eq!(found, expected, "{} list of {dir}", self.name);
    }

    async fn keep_or_drop_handle(&mut self) {
        if self.handles.len() >= HANDLES_MAX || (!self.handles.is_empty() && self.rng.one_in(3)) {
            let at = self.rng.below(self.handles.len() as u64) as usize;
            let (_, handle) = self.handles.swap_remove(at);
            self.put_back(handle, true).await;
        } else if let Some(id) = self.any_file() {
            let (handle, new) = self.handle(id).await;
            if new {
                self.handles.push((id, handle));
            }
        }
    }

    async fn fsync(&mut self) {
        let Some(id) = self.any_file() else { return };
        let (handle, close) = self.handle(id).await;
        self.client.files().fsync(handle).await.expect("what is healthy can be synced");
        {
            let mut record = self.record.lock();
            let content = record.tree.contents.get_mut(&id).expect("a regular file has contents");
            content.durable = true;
            let made_by = content.made_by;
            record.raise_floor(made_by);
        }
        self.put_back(handle, close).await;
    }

    async fn sync_all(&mut self) {
        let number = self.record.lock().number;
        self.client.sync_all().await.expect("what is healthy can be synced");
        let mut record = self.record.lock();
        record.tree.all_durable();
        record.raise_floor(number);
    }
}

/// Linux answers either when a file is moved over a directory that holds the file's own place.
fn both_refuse_a_full_place(one: Code, other: Code) -> bool {
    let full = |code| matches!(code, Code::NotEmpty | Code::IsDirectory);
    full(one) && full(other)
}

/// Every entry of a directory.
pub async fn read_whole_dir(client: &Client, dir: Fid) -> BTreeMap<String, Fid> {
    let mut found = BTreeMap::new();
    let mut behind = Behind::START;
    loop {
        let page = client.names().read_dir(dir, &behind, false).await.expect("a directory can be read");
        for entry in &page.entries {
            let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
            assert!(found.insert(name.clone(), entry.fid).is_none(), "{name} came twice");
        }
        match page.next() {
            Some(next) => behind = next,
            None => return found,
        }
    }
}
