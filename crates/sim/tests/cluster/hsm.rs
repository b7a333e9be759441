//! Files whose data goes to an archive and comes back, while they are used, and while servers and copytools are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::hsm::{Archive, Copy, Copytool, CopytoolOptions, Get, HsmFlags, Put};
use client::{AttrChange, Client, Error, Handle, OpenFlags, Seek, TimeSet};
use parking_lot::Mutex;
use proto::hsm::{Action, ActionState, flag};
use proto::layout::LayoutHint;
use proto::{Attr, Code, Fid, TargetId, Timestamp};
use rt::Rt;
use rt::sim::{Handle as World, Rng};
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scenario::on;
use weft_sim::workload::{READ_WRITE, root};

const BYTES: usize = 300_000;
/// How long it takes until a copy is complete: somebody may change the file meanwhile.
const WRITE_TIME: Duration = Duration::from_millis(300);

/// By file and name of the copy.
type Copies = BTreeMap<(Fid, u64), Vec<u8>>;

/// Copies in memory. They survive every machine.
#[derive(Clone, Default)]
struct Memory {
    copies: Arc<Mutex<Copies>>,
    fails: Arc<Mutex<Option<Code>>>,
    reads: Arc<AtomicUsize>,
    /// Of the copytool that uses it: a copy takes a while.
    rt: Option<Rt>,
}

struct Making {
    memory: Memory,
    name: (Fid, u64),
    bytes: Vec<u8>,
}

struct Reading {
    bytes: Vec<u8>,
    at: usize,
}

impl Memory {
    /// The only copy of a file.
    fn of(&self, fid: Fid) -> Option<Vec<u8>> {
        let copies = self.copies.lock();
        let mut all = copies.iter().filter(|((of, _), _)| *of == fid);
        let first = all.next().map(|(_, bytes)| bytes.clone());
        first.filter(|_| all.next().is_none())
    }

    /// Exchanges the copies of a file.
    fn put_all(&self, fid: Fid, bytes: &[u8]) {
        let mut copies = self.copies.lock();
        copies.iter_mut().filter(|((of, _), _)| *of == fid).for_each(|(_, copy)| *copy = bytes.to_vec());
    }

    fn check(&self) -> client::Result<()> {
        self.fails.lock().map_or(Ok(()), |code| Err(Error::Refused(code)))
    }
}

impl Archive for Memory {
    type Put = Making;
    type Get = Reading;

    async fn put(&self, of: Copy<'_>) -> client::Result<Making> {
        self.check()?;
        Ok(Making { memory: self.clone(), name: (of.fid, of.copy), bytes: Vec::new() })
    }

    async fn get(&self, of: Copy<'_>) -> client::Result<Reading> {
        self.check()?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes =
            self.copies.lock().get(&(of.fid, of.copy)).cloned().ok_or(Error::Refused(Code::NotFound))?;
        Ok(Reading { bytes, at: 0 })
    }

    async fn remove(&self, of: Copy<'_>) -> client::Result<()> {
        self.copies.lock().remove(&(of.fid, of.copy));
        self.check()
    }
}

impl Put for Making {
    async fn write(&mut self, offset: u64, bytes: Bytes) -> client::Result<()> {
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(mut self, size: u64) -> client::Result<()> {
        if let Some(rt) = &self.memory.rt {
            rt.sleep(WRITE_TIME).await;
        }
        self.bytes.resize(size as usize, 0);
        self.memory.copies.lock().insert(self.name, self.bytes);
        Ok(())
    }
}

impl Get for Reading {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn next(&mut self) -> client::Result<Option<(u64, Bytes)>> {
        let at = self.at;
        let end = self.bytes.len().min(at + 70_000);
        self.at = end;
        Ok((at < end).then(|| (at as u64, Bytes::copy_from_slice(&self.bytes[at..end]))))
    }
}

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster, &World)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        test(cluster, cluster.handle()).await;
    });
}

async fn copytool(cluster: &Cluster, node: &str, archive: &Memory) {
    let (rt, client) = cluster.mount(node).await;
    let archive = Memory { rt: Some(rt), ..archive.clone() };
    let options = CopytoolOptions { agent: node.to_owned(), archives: vec![1], parallel: 3 };
    let tool = Copytool::new(client, archive, options, |_, _| {});
    let _running = on(cluster.handle(), node, async move {
        let _ = tool.run().await;
    });
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|n| (n / 7 * seed + n) as u8).collect()
}

/// Makes a file over two OSTs, closed.
async fn make(client: &Client, name: &[u8], data: &[u8]) -> Fid {
    let hint = LayoutHint { stripe_count: 2, stripe_size: 1 << 16, ..LayoutHint::default() };
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name, 0o644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    write(client, fid, data).await;
    fid
}

async fn write(client: &Client, fid: Fid, data: &[u8]) {
    let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
    client.files().write(handle, 0, data).await.expect("there is room");
    client.files().release(handle).await;
    client.sync_all().await.expect("what is healthy can be synced");
}

async fn open(client: &Client, fid: Fid) -> Handle {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    client.files().open(&root(), fid, flags).await.expect("root may open")
}

async fn read(client: &Client, handle: Handle, offset: u64) -> client::Result<Vec<u8>> {
    Ok(client.files().read(handle, offset, BYTES as u32).await?.concat())
}

async fn objects(client: &Client) -> u64 {
    let mut objects = 0;
    for ost in (0..4).map(TargetId::ost) {
        let space = client.admin().target_space(ost, Duration::from_secs(10)).await;
        let space = space.expect("it tells its space").expect("it is served");
        objects += space.files_total - space.files_free;
    }
    objects
}

/// Nothing of the answer is kept: whoever has it holds callbacks up.
async fn attr(client: &Client, fid: Fid) -> Attr {
    Attr::clone(&client.names().getattr(fid).await.expect("it is there"))
}

async fn flags(client: &Client, fid: Fid) -> u32 {
    client.hsm_state(fid).await.expect("it is there").flags
}

/// Asks for an action, and waits until it is over.
async fn act(cluster: &Cluster, client: &Client, fid: Fid, action: Action) {
    client.hsm_ask(&root(), fid, Some(action), 0).await.expect("root may ask");
    for _ in 0..600 {
        if client.hsm_state(fid).await.expect("it is there").action == 0 {
            return;
        }
        cluster.handle().rt("user").sleep(Duration::from_millis(100)).await;
    }
    panic!("nobody carries {action} out");
}

#[test]
fn data_goes_and_comes_back() {
    check(1, async |cluster, _| {
        let (rt, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        let archive = Memory::default();
        copytool(cluster, "copytool", &archive).await;
        let data = bytes(3);
        let fid = make(&user, b"f", &data).await;
        let old = TimeSet::At(Timestamp { secs: 1_000_000, nanos: 7 });
        let change = AttrChange { mtime: Some(old), ..AttrChange::default() };
        user.files().setattr(&root(), fid, change, None).await.expect("root may");
        let own = open(&other, fid).await;
        assert_eq!(read(&other, own, 0).await, Ok(data.clone()));
        let refused = user.hsm_release(&root(), fid).await;
        assert_eq!(refused, Err(Error::Refused(Code::NotPermitted)), "there is no copy");
        act(cluster, &user, fid, Action::Archive).await;
        assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED);
        assert_eq!(archive.of(fid), Some(data.clone()));
        let before = attr(&user, fid).await;
        user.hsm_release(&root(), fid).await.expect("the archive has it");
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(objects(&user).await, 0, "its objects are gone");
        let after = attr(&other, fid).await;
        assert_eq!((after.size, after.mtime, after.blocks), (BYTES as u64, before.mtime, 1));
        let sought = other.files().seek(fid, 5, Seek::Data).await;
        assert_eq!(sought, Ok(Some(5)), "it is no hole");
        assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED | flag::RELEASED);
        // Who has it open reads on.
        assert_eq!(read(&other, own, 100_000).await, Ok(data[100_000..].to_vec()));
        let layout = other.names().layout(fid).await.expect("it is there").expect("of a file");
        assert_eq!((layout.object_count(), layout.components[0].stripe_size), (2, 1 << 16), "as before");
        let after = attr(&user, fid).await;
        assert_eq!((after.size, after.mtime, after.blocks), (BYTES as u64, before.mtime, before.blocks));
        assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED, "it is still archived");
        // The data and its times are in the objects, too.
        let writer = user.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        let told = attr(&other, fid).await;
        assert_eq!((told.size, told.mtime), (BYTES as u64, before.mtime));
        user.files().release(writer).await;
    });
}

/// Whatever may change the data of a file waits for it, and makes the copy an old one.
#[test]
fn changes_wait_for_the_data_and_make_the_copy_old() {
    check(2, async |cluster, _| {
        let (rt, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        let archive = Memory::default();
        copytool(cluster, "copytool", &archive).await;
        let data = bytes(5);
        for (n, change) in ["write", "cut", "grow", "append"].into_iter().enumerate() {
            let fid = make(&user, change.as_bytes(), &data).await;
            act(cluster, &user, fid, Action::Archive).await;
            user.hsm_release(&root(), fid).await.expect("the archive has it");
            let mut wanted = data.clone();
            match change {
                "write" => {
                    write(&other, fid, b"new").await;
                    wanted[..3].copy_from_slice(b"new");
                }
                "append" => {
                    let flags = OpenFlags { append: true, ..READ_WRITE };
                    let handle = other.files().open(&root(), fid, flags).await.expect("root may open");
                    other.files().write(handle, 0, b"more").await.expect("there is room");
                    other.files().release(handle).await;
                    wanted.extend_from_slice(b"more");
                }
                size => {
                    let size = if size == "cut" { 1000 } else { BYTES + 1000 };
                    let change = AttrChange { size: Some(size as u64), ..AttrChange::default() };
                    other.files().setattr(&root(), fid, change, None).await.expect("root may");
                    wanted.resize(size, 0);
                }
            }
            let own = open(&user, fid).await;
            let got = [read(&user, own, 0).await, read(&user, own, BYTES as u64).await];
            let got: Vec<u8> =
                got.into_iter().flat_map(|part| part.expect("what is healthy can be read")).collect();
            assert!(got == wanted, "{change}");
            user.files().release(own).await;
            rt.sleep(Duration::from_secs(3)).await;
            assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED | flag::DIRTY, "{change}");
            let refused = user.hsm_release(&root(), fid).await;
            assert_eq!(refused, Err(Error::Refused(Code::Busy)), "{change}: the copy is old");
            act(cluster, &user, fid, Action::Archive).await;
            assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED);
            assert!(archive.of(fid).as_ref() == Some(&wanted), "{change} {n}");
        }
    });
}

#[test]
fn flags_say_what_may_be_done() {
    check(3, async |cluster, _| {
        let (_, user) = cluster.mount("user").await;
        cluster.osts_are_known(&user).await;
        let archive = Memory::default();
        copytool(cluster, "copytool", &archive).await;
        let fid = make(&user, b"f", &bytes(2)).await;
        let caller = root();
        let set = |set, clear| user.hsm_set(&caller, fid, HsmFlags { set, clear, archive: 0 });
        let denied = Err(Error::Refused(Code::NotPermitted));
        set(flag::NOARCHIVE, 0).await.expect("root may");
        let asked = user.hsm_ask(&caller, fid, Some(Action::Archive), 0).await;
        assert_eq!(asked.map(drop), denied);
        set(flag::NORELEASE, flag::NOARCHIVE).await.expect("root may");
        act(cluster, &user, fid, Action::Archive).await;
        assert_eq!(user.hsm_release(&caller, fid).await, denied);
        set(0, flag::NORELEASE).await.expect("root may");
        user.hsm_release(&caller, fid).await.expect("the archive has it");
        // The copy is all that there is.
        assert_eq!(set(0, flag::ARCHIVED).await.map(drop), denied);
        let asked = user.hsm_ask(&caller, fid, Some(Action::Remove), 0).await;
        assert_eq!(asked.map(drop), denied);
        let moved = user.migrate(&caller, fid, LayoutHint::default()).await;
        assert_eq!(moved, Err(Error::Refused(Code::Released)));
        act(cluster, &user, fid, Action::Restore).await;
        act(cluster, &user, fid, Action::Remove).await;
        assert_eq!((flags(&user, fid).await, archive.copies.lock().len()), (0, 0));
        let own = open(&user, fid).await;
        assert_eq!(read(&user, own, 0).await, Ok(bytes(2)));
    });
}

/// A file that is written again and again, archived and released by others, with servers and copytools that are lost, always has what
/// was written last.
#[test]
fn nothing_is_lost_whatever_ends() {
    let mut released = 0;
    for seed in 0..30 {
        check(seed, async |cluster, world| {
            let (rt, user) = cluster.mount("user").await;
            let (_, other) = cluster.mount("other").await;
            cluster.osts_are_known(&user).await;
            let archive = Memory::default();
            copytool(cluster, "copytool0", &archive).await;
            copytool(cluster, "copytool1", &archive).await;
            let (mut data, mut copytools) = (bytes(3), 2);
            let fid = make(&user, b"f", &data).await;
            for round in 0..6usize {
                let (asking, there) = (other.clone(), world.rt("other"));
                let acted = on(world, "other", async move {
                    let archive = asking.hsm_ask(&root(), fid, Some(Action::Archive), 0).await;
                    let mut released = false;
                    for _ in 0..40 {
                        there.sleep(Duration::from_millis(100)).await;
                        released |= asking.hsm_release(&root(), fid).await.is_ok();
                    }
                    archive.map(|_| released)
                });
                rt.sleep(Duration::from_micros((seed * 37 + round as u64 * 911) % 5000)).await;
                match (seed as usize + round) % 5 {
                    0 => {
                        world.crash(&format!("copytool{}", copytools - 2));
                        copytool(cluster, &format!("copytool{copytools}"), &archive).await;
                        copytools += 1;
                    }
                    1 => {
                        let servers = ["mds".to_owned()];
                        cluster.cut_power(&servers);
                        cluster.restart(&servers);
                    }
                    2 => {
                        let servers = ["oss0".to_owned(), "oss1".to_owned()];
                        cluster.cut_power(&servers);
                        cluster.restart(&servers);
                    }
                    _ => {}
                }
                if round % 2 == 1 {
                    let new = bytes(round + 10);
                    let at = round * 1000;
                    let handle = user.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
                    user.files().write(handle, at as u64, &new[..5000]).await.expect("there is room");
                    data[at..at + 5000].copy_from_slice(&new[..5000]);
                    user.files().release(handle).await;
                }
                let was_released = acted.await.expect("it lives").expect("root may ask");
                released += u32::from(was_released);
                let own = open(&user, fid).await;
                let got = read(&user, own, 0).await.expect("what is healthy can be read");
                assert!(got == data, "seed {seed}, round {round}: other data");
                user.files().release(own).await;
            }
        });
    }
    assert!(released > 60, "{released} of 180 were released");
}

/// An action that is asked for is carried out whenever a copytool comes, and who waits for data that cannot be had hears of it.
#[test]
fn actions_outlive_servers_and_end_with_an_error() {
    check(4, async |cluster, world| {
        let (rt, user) = cluster.mount("user").await;
        cluster.osts_are_known(&user).await;
        let archive = Memory::default();
        let fid = make(&user, b"f", &bytes(2)).await;
        let asked = user.hsm_ask(&root(), fid, Some(Action::Archive), 0).await.expect("root may ask");
        assert_eq!(asked.state(), ActionState::Waiting);
        let again = user.hsm_ask(&root(), fid, Some(Action::Archive), 0).await.expect("root may ask");
        assert_eq!(again.cookie, asked.cookie, "it is one action");
        let servers = ["mds".to_owned()];
        cluster.cut_power(&servers);
        cluster.restart(&servers);
        copytool(cluster, "copytool", &archive).await;
        rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(flags(&user, fid).await, flag::EXISTS | flag::ARCHIVED);
        user.hsm_release(&root(), fid).await.expect("the archive has it");
        *archive.fails.lock() = Some(Code::NoSpace);
        let own = open(&user, fid).await;
        assert_eq!(read(&user, own, 0).await, Err(Error::Refused(Code::Io)));
        *archive.fails.lock() = None;
        // A copy that has another size is not taken for the file's data.
        archive.put_all(fid, &[1; 5]);
        assert_eq!(read(&user, own, 0).await, Err(Error::Refused(Code::Io)));
        archive.put_all(fid, &bytes(2));
        assert_eq!(read(&user, own, 0).await, Ok(bytes(2)));
        // Nobody carries it out: it waits, and can be canceled.
        world.crash("copytool");
        user.hsm_set(&root(), fid, HsmFlags { set: flag::DIRTY, ..HsmFlags::default() })
            .await
            .expect("root may");
        user.hsm_ask(&root(), fid, Some(Action::Archive), 0).await.expect("root may ask");
        rt.sleep(Duration::from_secs(30)).await;
        let state = user.hsm_state(fid).await.expect("it is there");
        assert_eq!((state.action, state.state), (Action::Archive as u8, ActionState::Waiting as u8));
        user.hsm_ask(&root(), fid, None, 0).await.expect("root may ask");
        assert_eq!(user.hsm_state(fid).await.expect("it is there").action, 0);
    });
}

/// How far the only writer of a file has begun to write, and how far it is done.
#[derive(Clone, Copy, Default)]
struct Written {
    begun: u32,
    done: u32,
}

const FILES: usize = 3;
/// All of a file lies in one stripe: a write is seen whole or not at all.
const NUMBERS: usize = 10_000;

/// One of several clients: it writes its own file, and reads, archives and releases all.
struct Player {
    rt: Rt,
    client: Arc<Client>,
    own: usize,
    fids: Vec<Fid>,
    written: Arc<Mutex<[Written; FILES]>>,
    rng: Rng,
}

impl Player {
    async fn play(mut self) {
        for _ in 0..60 {
            // A close comes to the MDT a moment later, and an archive needs files that nobody writes.
            self.rt.sleep(Duration::from_millis(self.rng.below(400))).await;
            let file = self.rng.below(FILES as u64) as usize;
            match self.rng.below(10) {
                0 => self.write().await,
                1..6 => self.read(file).await,
                6 | 7 => {
                    let asked = self.client.hsm_ask(&root(), self.fids[file], Some(Action::Archive), 0).await;
                    asked.expect("root may ask");
                }
                _ => match self.client.hsm_release(&root(), self.fids[file]).await {
                    Ok(()) | Err(Error::Refused(Code::NotPermitted | Code::Busy | Code::TryAgain)) => {}
                    Err(error) => panic!("release: {error}"),
                },
            }
        }
    }

    async fn write(&self) {
        let number = {
            let mut written = self.written.lock();
            written[self.own].begun += 1;
            written[self.own].begun
        };
        let (files, fid) = (self.client.files(), self.fids[self.own]);
        let handle = files.open(&root(), fid, READ_WRITE).await.expect("root may open");
        let bytes: Vec<u8> = number.to_le_bytes().repeat(NUMBERS);
        files.write(handle, 0, &bytes).await.expect("there is room");
        files.release(handle).await;
        self.written.lock()[self.own].done = number;
    }

    async fn read(&self, file: usize) {
        let least = self.written.lock()[file].done;
        let handle = open(&self.client, self.fids[file]).await;
        let got = read(&self.client, handle, 0).await.expect("what is healthy can be read");
        self.client.files().release(handle).await;
        let most = self.written.lock()[file].begun;
        let (numbers, rest) = got.as_chunks::<4>();
        let number = numbers.first().map_or(0, |first| u32::from_le_bytes(*first));
        assert!((least..=most).contains(&number), "{number} is not from {least} to {most}");
        assert!(rest.is_empty() && numbers.iter().all(|one| *one == number.to_le_bytes()));
        assert!(numbers.is_empty() || numbers.len() == NUMBERS, "{}", numbers.len());
    }
}

#[test]
fn what_was_written_last_is_read_by_everybody() {
    let mut restored = 0;
    for seed in 100..130 {
        check(seed, async |cluster, world| {
            let (rt, user) = cluster.mount("user").await;
            cluster.osts_are_known(&user).await;
            let archive = Memory::default();
            copytool(cluster, "copytool0", &archive).await;
            copytool(cluster, "copytool1", &archive).await;
            let mut fids = Vec::new();
            for n in 0..FILES {
                fids.push(make(&user, format!("f{n}").as_bytes(), &[]).await);
            }
            let written = Arc::new(Mutex::new([Written::default(); FILES]));
            let mut playing = Vec::new();
            for own in 0..FILES {
                let name = format!("player{own}");
                let (rt, client) = cluster.mount(&name).await;
                let (rng, fids, written) = (world.rng(&name), fids.clone(), written.clone());
                playing.push(on(world, &name, Player { rt, client, own, fids, written, rng }.play()));
            }
            let mut rng = world.rng("fate");
            for step in 0..6 {
                rt.sleep(Duration::from_millis(rng.below(3000))).await;
                match rng.below(4) {
                    0 => {
                        world.crash(&format!("copytool{step}"));
                        copytool(cluster, &format!("copytool{}", step + 2), &archive).await;
                        continue;
                    }
                    1 => {
                        let servers = ["mds".to_owned()];
                        cluster.cut_power(&servers);
                        cluster.restart(&servers);
                    }
                    2 => {
                        let servers = [format!("oss{}", rng.below(2))];
                        cluster.cut_power(&servers);
                        cluster.restart(&servers);
                    }
                    _ => {}
                }
                // There are two all the time.
                copytool(cluster, &format!("copytool{}", step + 2), &archive).await;
            }
            for client in playing {
                client.await.expect("nobody has died");
            }
            restored += archive.reads.load(Ordering::Relaxed);
        });
    }
    assert!(restored > 300, "{restored} restores");
}
