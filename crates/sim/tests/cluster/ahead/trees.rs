//! Whole trees that are made ahead: directories, files, links, and their attributes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use bytes::Bytes;
use client::TimeSet;
use proto::Timestamp;

use super::*;

const OSS: &str = "oss0";

/// What a client was told of a file.
#[derive(Debug, Clone)]
struct Told {
    dir: Fid,
    name: String,
    attr: Attr,
    is_written: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// What looking at a file does not change.
fn lasting(attr: &Attr) -> (u32, u32, u32, u32) {
    (attr.mode, attr.uid, attr.gid, attr.nlink)
}

/// One client and what it was told.
struct Tree<'a> {
    client: &'a Client,
    random: Random,
    dirs: Vec<Fid>,
    files: BTreeMap<Fid, Told>,
    made: usize,
}

impl Tree<'_> {
    async fn make(&mut self, mode: u32, target: &str) -> Fid {
        let (dir, name) = (self.random.pick(&self.dirs), format!("n{}", self.made));
        self.made += 1;
        let target = Bytes::copy_from_slice(target.as_bytes());
        let made = self.client.names().make(&root(), dir, name.as_bytes(), mode, 0, target).await;
        let attr: Attr = made.expect("a new name").into();
        if attr.nlink == 2
            && let Some(above) = self.files.get_mut(&dir)
        {
            above.attr.nlink += 1;
        }
        let fid = attr.fid;
        self.files.insert(fid, Told { dir, name, attr, is_written: false });
        fid
    }

    async fn write(&mut self) {
        let (dir, name) = (self.random.pick(&self.dirs), format!("n{}", self.made));
        self.made += 1;
        let (attr, handle) = create(self.client, dir, &name).await.expect("a new name");
        let is_written = self.random.below(3) > 0;
        if is_written {
            self.client.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
        }
        let fid = attr.fid;
        self.files.insert(fid, Told { dir, name, attr, is_written });
        for _ in 0..self.random.below(3) {
            self.set(fid, Some(handle)).await;
        }
        self.client.files().release(handle).await;
    }

    async fn set(&mut self, fid: Fid, handle: Option<Handle>) {
        let number = self.random.below(1000) as u32;
        let time = Some(TimeSet::At(Timestamp { secs: i64::from(number), nanos: number }));
        let change = match self.random.below(4) {
            0 => AttrChange { mode: Some(0o400 | (number % 8)), ..AttrChange::default() },
            1 => AttrChange { uid: Some(number), gid: Some(number + 1), ..AttrChange::default() },
            2 => AttrChange { atime: time, mtime: time, ..AttrChange::default() },
            _ => AttrChange { uid: Some(0), mode: Some(0o4711), atime: time, ..AttrChange::default() },
        };
        let Some(told) = self.files.get_mut(&fid) else { return };
        let before = told.attr.clone();
        let set = self.client.files().setattr(&root(), fid, change.clone(), handle).await;
        told.attr = set.expect("root may").into();
        let after = &told.attr;
        assert_eq!(after.uid, change.uid.unwrap_or(before.uid));
        assert_eq!(after.gid, change.gid.unwrap_or(before.gid));
        if change.mtime.is_some() {
            assert_eq!((after.mtime.secs, after.atime.secs), (i64::from(number), i64::from(number)));
        }
        let here: Attr = self.client.names().getattr(fid).await.expect("it is there").into();
        assert_eq!((lasting(&here), here.mtime), (lasting(after), after.mtime));
    }

    async fn remove(&mut self) {
        let all: Vec<Fid> = self.files.keys().copied().collect();
        let fid = self.random.pick(&all);
        let told = self.files[&fid].clone();
        let (dir, name) = (told.dir, told.name.as_bytes());
        if told.attr.nlink == 1 {
            self.client.names().unlink(&root(), dir, name).await.expect("root may");
            self.files.remove(&fid);
            return;
        }
        let is_empty = !self.files.values().any(|told| told.dir == fid);
        let removed = self.client.names().rmdir(&root(), dir, name).await;
        if !is_empty {
            return assert_eq!(removed, Err(Error::Refused(Code::NotEmpty)));
        }
        removed.expect("it is empty");
        self.files.remove(&fid);
        self.dirs.retain(|dir| *dir != fid);
        if let Some(above) = self.files.get_mut(&told.dir) {
            above.attr.nlink -= 1;
        }
    }

    /// A file loses its name while it is open.
    async fn write_nameless(&mut self) {
        let (dir, name) = (self.random.pick(&self.dirs), format!("n{}", self.made));
        self.made += 1;
        let (told, handle) = create(self.client, dir, &name).await.expect("a new name");
        let files = self.client.files();
        files.write(handle, 0, b"before").await.expect("there is room");
        self.client.names().unlink(&root(), dir, name.as_bytes()).await.expect("root may");
        files.write(handle, 6, b" and after").await.expect("there is room");
        let seen: Attr = self.client.names().getattr(told.fid).await.expect("it is open").into();
        assert_eq!((seen.nlink, seen.size), (0, 16));
        let read = files.read(handle, 0, 100).await.expect("it is open").concat();
        assert_eq!(read, b"before and after");
        files.release(handle).await;
        let again = create(self.client, dir, &name).await;
        let (told, handle) = again.expect("the name is free");
        files.release(handle).await;
        self.files.insert(told.fid, Told { dir, name, attr: told, is_written: false });
    }

    async fn rename(&mut self) {
        let all: Vec<Fid> = self.files.keys().copied().collect();
        let (fid, to) = (self.random.pick(&all), self.random.pick(&self.dirs));
        let Some(told) = self.files.get_mut(&fid).filter(|told| told.attr.nlink == 1) else { return };
        let (name, caller) = (format!("r{}", told.name), root());
        let (from, to_name) = (told.name.as_bytes(), name.as_bytes());
        let renamed = self.client.names().rename(&caller, told.dir, from, to, to_name, 0);
        renamed.await.expect("root may");
        (told.dir, told.name) = (to, name);
    }

    async fn step(&mut self) {
        match self.random.below(20) {
            0..3 => {
                let dir = self.make(0o040_755, "").await;
                self.dirs.push(dir);
            }
            3..10 => self.write().await,
            10 => drop(self.make(0o120_777, "somewhere").await),
            11 => drop(self.make(0o100_640, "").await),
            12 => self.write_nameless().await,
            13..17 if !self.files.is_empty() => {
                let all: Vec<Fid> = self.files.keys().copied().collect();
                let fid = self.random.pick(&all);
                self.set(fid, None).await;
            }
            17..19 if !self.files.is_empty() => self.remove().await,
            19 if !self.files.is_empty() => self.rename().await,
            _ => {}
        }
    }

    /// Another client comes to a directory by its names, from the top.
    async fn walk(&self, other: &Client, dir: Fid) {
        let mut above = Vec::new();
        let mut at = dir;
        while let Some(told) = self.files.get(&at) {
            above.push(told);
            at = told.dir;
        }
        for told in above.into_iter().rev() {
            attr(other, told.dir, &told.name).await.expect("others see it");
        }
    }

    /// What another client sees of a file is what this one was told.
    async fn is_seen(&self, other: &Client, fid: Fid) {
        let told = &self.files[&fid];
        self.walk(other, told.dir).await;
        let here: Attr = self.client.names().getattr(fid).await.expect("it is there").into();
        let there = attr(other, told.dir, &told.name).await.expect("others see it");
        assert_eq!((there.fid, lasting(&there)), (fid, lasting(&told.attr)), "{}", told.name);
        assert_eq!((here.mtime, here.size, lasting(&here)), (there.mtime, there.size, lasting(&there)));
        // Of what the other one has read just now, it alone may know that.
        assert!(there.atime == here.atime || told.is_written && there.atime > here.atime, "{}", told.name);
        if there.mode & 0o170_000 == 0o120_000 {
            assert_eq!(other.names().readlink(fid).await.as_deref(), Ok(&b"somewhere"[..]));
        }
        if told.is_written {
            let content = content(other, fid).await;
            assert_eq!(content, told.name.trim_start_matches('r').as_bytes());
        }
    }
}

#[test]
fn a_tree_is_as_it_was_told() {
    let mut ahead = 0;
    for seed in 0..60 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let top = mkdir(&a, Fid::ROOT, b"d").await;
            let random = Random(seed);
            let mut tree = Tree { client: &a, random, dirs: vec![top], files: BTreeMap::new(), made: 0 };
            for step in 0..150 {
                tree.step().await;
                match tree.random.below(60) {
                    0 if seed % 2 == 0 && step < 100 => {
                        let server = if seed % 4 == 0 { MDS } else { OSS };
                        cluster.cut_power(&[server.to_owned()]);
                        cluster.restart(&[server.to_owned()]);
                    }
                    1 if seed % 3 == 0 && !tree.files.is_empty() => {
                        let all: Vec<Fid> = tree.files.keys().copied().collect();
                        let fid = tree.random.pick(&all);
                        tree.is_seen(&b, fid).await;
                    }
                    2..10 => rt.sleep(Duration::from_millis(tree.random.below(15) as u64)).await,
                    _ => {}
                }
            }
            for fid in tree.files.keys() {
                tree.is_seen(&b, *fid).await;
            }
            assert_eq!(count(&a, "ahead.lost"), 0);
            ahead += count(&a, "ahead.made");
        });
    }
    assert!(ahead > 3000, "most of it is told ahead: {ahead}");
}

/// What a client does next, and whether others see that it was done.
async fn do_next(client: &Client, top: Fid, dir: &mut Fid, n: usize) {
    let name = format!("n{n:03}");
    match n % 6 {
        0 => *dir = mkdir(client, top, name.as_bytes()).await,
        5 => {
            let mode = AttrChange { mode: Some(0o700), ..AttrChange::default() };
            client.files().setattr(&root(), *dir, mode, None).await.expect("root may");
        }
        // The MDT is asked for a pipe. Nothing was told of its directory since this one was made.
        4 => drop(client.names().make(&root(), top, name.as_bytes(), 0o010_644, 0, Bytes::new()).await),
        _ => {
            let (_, handle) = create(client, *dir, &name).await.expect("a new name");
            client.files().release(handle).await;
        }
    }
}

async fn was_done(client: &Client, top: Fid, n: usize) -> bool {
    if n % 6 == 4 {
        return attr(client, top, &format!("n{n:03}")).await.is_some();
    }
    let Some(dir) = attr(client, top, &format!("n{:03}", n - n % 6)).await else { return false };
    match n % 6 {
        0 => true,
        5 => dir.mode & 0o777 == 0o700,
        _ => attr(client, dir.fid, &format!("n{n:03}")).await.is_some(),
    }
}

/// Whatever is lost together: what is left is what was done first, over all directories.
#[test]
fn what_is_left_of_a_tree_is_what_was_done_first() {
    let (mut some, mut fewer) = (0, 0);
    for seed in 0..80 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, c) = cluster.mount("c").await;
            let top = mkdir(&a, Fid::ROOT, b"d").await;
            a.sync_all().await.expect("the disks work");
            let (done, dir) = (Cell::new(0), RefCell::new(top));
            let doing = async {
                for n in 0..480 {
                    let mut at = *dir.borrow();
                    do_next(&a, top, &mut at, n).await;
                    *dir.borrow_mut() = at;
                    done.set(n + 1);
                    // In some the directory is there before anything is told of what is in it.
                    let pause = if n % 6 == 0 && seed % 4 == 1 { 12_000 } else { 80 };
                    rt.sleep(Duration::from_micros(pause)).await;
                }
            };
            let failing = async {
                rt.sleep(Duration::from_micros(1 + seed * 300)).await;
                // The MDT makes everything durable that it has.
                mkdir(&c, Fid::ROOT, b"other").await;
                c.sync_all().await.expect("the disks work");
                if seed % 2 == 0 {
                    // What was on its way is sent again.
                    cluster.handle().partition("a", MDS);
                    rt.sleep(Duration::from_millis(seed % 7)).await;
                    cluster.handle().heal("a", MDS);
                    rt.sleep(Duration::from_millis(seed % 5)).await;
                }
                c.names().rmdir(&root(), Fid::ROOT, b"other").await.expect("it is empty");
                c.sync_all().await.expect("the disks work");
            };
            let _ = rt.timeout(Duration::from_millis(40), both(doing, failing)).await;
            cluster.handle().crash("a");
            cluster.cut_power(&[MDS.to_owned()]);
            cluster.restart(&[MDS.to_owned()]);
            let mut left = Vec::new();
            for n in 0..done.get() {
                left.push(was_done(&b, top, n).await);
            }
            let first = left.iter().take_while(|is_done| **is_done).count();
            assert!(left[first..].iter().all(|is_done| !is_done), "{left:?}");
            some += usize::from(first > 0);
            fewer += usize::from(first < done.get());
        });
    }
    assert!(some > 10 && fewer > 10, "both happen: {some}, {fewer}");
}

/// The MDS is lost again while its clients say what they have: nobody waits for ever, and nothing is lost.
#[test]
fn the_mds_may_be_lost_twice() {
    for seed in 0..60 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let mut dirs = Vec::new();
            for n in 0..8 {
                dirs.push(mkdir(&a, Fid::ROOT, format!("d{n}").as_bytes()).await);
            }
            a.sync_all().await.expect("the disks work");
            for dir in &dirs {
                let (_, handle) = create(&a, *dir, "f").await.expect("a new name");
                a.files().write(handle, 0, b"some").await.expect("there is room");
                a.files().release(handle).await;
            }
            rt.sleep(Duration::from_millis(seed % 20)).await;
            // What a client has to say takes a while.
            let slow = rt::sim::Span { min_ns: 100_000_000, max_ns: 200_000_000 };
            cluster.handle().set_latency("a", MDS, slow);
            cluster.cut_power(&[MDS.to_owned()]);
            cluster.restart(&[MDS.to_owned()]);
            rt.sleep(Duration::from_millis(seed * 50)).await;
            cluster.cut_power(&[MDS.to_owned()]);
            cluster.restart(&[MDS.to_owned()]);
            for dir in &dirs {
                create(&a, *dir, "g").await.expect("a new name");
                let fid = attr(&b, *dir, "f").await.expect("others see it").fid;
                assert_eq!(content(&b, fid).await, b"some");
            }
            assert_eq!(count(&a, "ahead.lost"), 0);
        });
    }
}
