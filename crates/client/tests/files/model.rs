//! Random operations on one file by several handles against a vector of bytes, while OSTs answer late.

use std::sync::Arc;
use std::time::Duration;

use client::{Allocation, AttrChange, Client, Handle, Limits, OpenFlags, Seek};
use proto::Fid;

use crate::world::{MIB, World, join, read_write, root, striped};

const FILE: u64 = 700_000;

struct Model {
    client: Arc<Client>,
    fid: Fid,
    handles: Vec<Handle>,
    truth: Vec<u8>,
    seed: u64,
}

impl Model {
    fn below(&mut self, limit: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % limit
    }

    fn handle(&mut self) -> Handle {
        let n = self.below(self.handles.len() as u64) as usize;
        self.handles[n]
    }

    async fn write(&mut self, offset: u64, len: u64) {
        let fill = self.below(255) as u8 + 1;
        let handle = self.handle();
        let end = (offset + len) as usize;
        self.truth.resize(self.truth.len().max(end), 0);
        self.truth[offset as usize..end].fill(fill);
        let written = self.client.files().write(handle, offset, &vec![fill; len as usize]).await;
        assert_eq!(written, Ok(len as u32));
    }

    async fn append(&mut self) {
        let flags = OpenFlags { append: true, ..read_write() };
        let handle = self.client.files().open(&root(), self.fid, flags).await.expect("it is there");
        for _ in 0..self.below(3) + 1 {
            let at_once = self.client.files().write_at_once(handle, 0, b"appended").expect("there is room");
            if at_once.is_none() {
                self.client.files().write(handle, 0, b"appended").await.expect("there is room");
            }
            self.truth.extend_from_slice(b"appended");
        }
        self.client.files().release(handle).await;
    }

    async fn truncate(&mut self, size: u64) {
        let handle = if self.below(2) == 0 { Some(self.handle()) } else { None };
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        let attr = self.client.files().setattr(&root(), self.fid, change, handle).await.expect("root may");
        assert_eq!(attr.size, size);
        self.truth.resize(size as usize, 0);
    }

    async fn reopen(&mut self) {
        let n = self.below(self.handles.len() as u64) as usize;
        let handle = self.handles.swap_remove(n);
        if self.below(2) == 0 {
            self.client.files().flush(handle).await.expect("the OSTs take everything");
        }
        self.client.files().release(handle).await;
        let handle = self.client.files().open(&root(), self.fid, read_write()).await.expect("it is there");
        self.handles.push(handle);
    }

    async fn step(&mut self, world: &World) {
        let offset = self.below(FILE);
        match self.below(26) {
            0..=5 => {
                let len = 1 + self.below(9000);
                self.write(offset, len).await;
            }
            6..=9 => {
                let len = 1 + self.below(200_000);
                self.write(offset, len).await;
            }
            10..=11 => self.write(offset / 65_536 * 65_536, 131_072).await,
            12 => self.append().await,
            13..=14 => self.truncate(offset).await,
            15 => self.reopen().await,
            16 => {
                let handle = self.handle();
                self.client.files().fsync(handle).await.expect("everything works");
            }
            17 => world.hub.rt().sleep(Duration::from_millis(self.below(7000))).await,
            18 => {
                let handle = self.handle();
                let len = 1 + self.below(100_000);
                self.client
                    .files()
                    .allocate(handle, offset, len, Allocation::PunchHole)
                    .await
                    .expect("a hole");
                let end = self.truth.len().min((offset + len) as usize);
                let start = end.min(offset as usize);
                self.truth[start..end].fill(0);
            }
            19 => {
                let handle = self.handle();
                let (len, keep_size) = (1 + self.below(200_000), self.below(2) == 0);
                let what = Allocation::Reserve { keep_size };
                self.client.files().allocate(handle, offset, len, what).await.expect("there is room");
                self.grow(if keep_size { 0 } else { offset + len });
            }
            20 => {
                let handle = self.handle();
                let (len, keep_size) = (1 + self.below(200_000), self.below(2) == 0);
                let what = Allocation::Zero { keep_size };
                self.client.files().allocate(handle, offset, len, what).await.expect("there is room");
                self.grow(if keep_size { 0 } else { offset + len });
                let end = self.truth.len().min((offset + len) as usize);
                let start = end.min(offset as usize);
                self.truth[start..end].fill(0);
            }
            21 => self.copy().await,
            22 => self.seek(offset).await,
            _ => {
                let handle = self.handle();
                self.client.files().flush(handle).await.expect("the OSTs take everything");
            }
        }
    }

    fn grow(&mut self, size: u64) {
        self.truth.resize(self.truth.len().max(size as usize), 0);
    }

    /// From one half of the file to the other: ranges of one file must not overlap.
    async fn copy(&mut self) {
        let (low, high) = (self.below(FILE / 2), FILE / 2 + self.below(FILE / 2));
        let (from, to) = if self.below(2) == 0 { (low, high) } else { (high, low) };
        let len = (1 + self.below(200_000)).min(high - low);
        let (source, target) = (self.handle(), self.handle());
        let copied =
            self.client.files().copy_range((source, from), (target, to), len).await.expect("there is room");
        let start = self.truth.len().min(from as usize);
        let data = self.truth[start..self.truth.len().min((from + len) as usize)].to_vec();
        assert_eq!(copied, data.len() as u64, "a copy of {len} from {from} of {}", self.truth.len());
        if !data.is_empty() {
            self.grow(to + copied);
            self.truth[to as usize..(to + copied) as usize].copy_from_slice(&data);
        }
    }

    /// What counts as a hole is zeros; data and holes follow each other.
    async fn seek(&mut self, offset: u64) {
        let size = self.truth.len() as u64;
        let data = self.client.files().seek(self.fid, offset, Seek::Data).await.expect("it can be asked");
        let hole = self.client.files().seek(self.fid, offset, Seek::Hole).await.expect("it can be asked");
        if offset >= size {
            assert_eq!((data, hole), (None, None));
            return;
        }
        let hole = hole.expect("the end of the file is a hole");
        let zeros = offset..data.unwrap_or(size);
        assert!(zeros.end < size || data.is_none());
        assert!(self.truth[zeros.start as usize..zeros.end as usize].iter().all(|byte| *byte == 0));
        assert!(
            (offset..=size).contains(&hole) && (hole == offset) == (data != Some(offset)),
            "{hole} {data:?}"
        );
    }

    async fn check(&mut self) {
        let (offset, len) = (self.below(FILE), 1 + self.below(300_000));
        let handle = self.handle();
        let seen = join(&self.client.files().read(handle, offset, len as u32).await.expect("it can be read"));
        let from = self.truth.len().min(offset as usize);
        let to = self.truth.len().min((offset + len) as usize);
        assert_eq!(seen.len(), to - from, "a read of {len} at {offset} of {}", self.truth.len());
        assert!(seen == self.truth[from..to], "a read of {len} at {offset} differs");
        let attr = self.client.names().getattr(self.fid).await.expect("it is there");
        assert_eq!(attr.size, self.truth.len() as u64);
    }
}

fn check(world: &World, seed: u64, steps: usize) {
    for ost in &world.osts {
        ost.set_latency(Duration::from_millis(seed % 3 * 10));
    }
    let limits = Limits {
        dirty_bytes_max: MIB / 2,
        rpc_bytes_max: 128 << 10,
        rpcs_in_flight_max: 3,
        cached_bytes_max: MIB,
        ..Limits::default()
    };
    let client = world.mount_with(limits);
    world.run(async {
        let fid = striped(&client, 1 + (seed % 3) as i32).await;
        let mut handles = Vec::new();
        for _ in 0..3 {
            handles.push(client.files().open(&root(), fid, read_write()).await.expect("it is there"));
        }
        let mut model = Model { client: client.clone(), fid, handles, truth: vec![], seed };
        for _ in 0..steps {
            model.step(world).await;
            model.check().await;
        }
        client.unmount().await.expect("everything works");
        let after = world.mounted(Limits::default()).await;
        let attr = after.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.size_known), (model.truth.len() as u64, true), "seed {seed}");
        let handle = after.files().open(&root(), fid, read_write()).await.expect("it is there");
        let seen = after.files().read(handle, 0, 8 << 20).await.expect("it can be read");
        assert!(join(&seen) == model.truth, "seed {seed}");
    });
}

#[test]
fn random_operations_are_those_of_a_file() {
    for seed in 0..12 {
        check(&World::new(seed, 3), seed, 150);
    }
}

#[test]
fn random_operations_with_real_targets_in_the_same_process() {
    for seed in 0..6 {
        check(&World::real(seed, 3), seed, 100);
    }
}

#[test]
fn random_operations_with_real_targets_over_the_network() {
    for seed in 0..6 {
        check(&World::remote(seed, 3), seed, 100);
    }
}
