//! Random writes, reads, cuts and answers against a plain vector of bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::layout::{Component, Place};
use proto::{Fid, JobId, Layout, ObjectId, OstIndex, Timestamp};
use rt::Time;
use rt::sim::Rng;

use super::cache::{Answered, Cache, ChunkId, Job, Piece};
use super::memory::Memory;

const CHUNK: u64 = 128 << 10;
const FILE: u64 = 1 << 20;

/// A file, its cache, and OSTs that answer when the test says so.
struct Model {
    random: Rng,
    layout: Layout,
    memory: Memory,
    cache: Cache,
    truth: Vec<u8>,
    objects: BTreeMap<ObjectId, Vec<u8>>,
    jobs: BTreeMap<ChunkId, Job>,
    charged: u64,
    clock: u64,
}

impl Model {
    fn new(seed: u64, stripes: u32) -> Model {
        let memory = Memory::of_test(CHUNK as usize);
        let id = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        // Behind the first quarter other objects hold the file.
        let (end, osts) = (FILE / 4 / 65_536 * 65_536, || (0..stripes).map(OstIndex));
        let head = Component { end, ..Component::striped(id, 65_536, osts()) };
        let tail = Fid { oid: 2, ..id };
        let tail = Component { start: end, ..Component::striped(tail, 131_072, osts()) };
        let layout = Layout { generation: 0, components: [head, tail].into_iter().collect() };
        Model {
            random: Rng::new(seed),
            cache: Cache::new(memory.clone(), CHUNK),
            memory,
            objects: layout.places().map(|place| (place.object, Vec::new())).collect(),
            layout,
            truth: Vec::new(),
            jobs: BTreeMap::new(),
            charged: 0,
            clock: 0,
        }
    }

    fn take_jobs(&mut self, jobs: impl IntoIterator<Item = Job>) {
        for job in jobs {
            assert!(!job.writes.is_empty(), "a job has something to send");
            let before = self.jobs.insert(job.chunk, job);
            assert!(before.is_none(), "a chunk is sent again only after it was answered");
        }
    }

    fn write(&mut self, offset: u64, len: u64) {
        let fill = self.random.below(255) as u8 + 1;
        let mut data = vec![fill; len as usize];
        for at in (0..data.len()).step_by(37) {
            data[at] = at as u8;
        }
        if self.truth.len() < (offset + len) as usize {
            self.truth.resize((offset + len) as usize, 0);
        }
        self.truth[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        self.clock += 1;
        let runs: Vec<_> = self.layout.runs(offset, len).collect();
        for run in runs {
            let (mut at, end) = (run.object_offset, run.object_offset + run.len);
            while at < end {
                let len = (end - at).min(CHUNK - at % CHUNK);
                let from = (run.file_offset - offset + (at - run.object_offset)) as usize;
                self.write_piece(run.place, at, &data[from..from + len as usize]);
                at += len;
            }
        }
    }

    fn write_piece(&mut self, place: Place, offset: u64, data: &[u8]) {
        let whole_pages = (offset | data.len() as u64).is_multiple_of(4096);
        let ready = (whole_pages && data.len() >= 16_384).then(|| {
            let mut buffer = self.memory.buffer(offset, data.len());
            buffer.bytes_mut().copy_from_slice(data);
            buffer
        });
        let time = Timestamp { secs: self.clock as i64, nanos: 0 };
        let stored = self.cache.write(
            Piece { place, offset, data, ready, time, owner: JobId::NONE, hold: false },
            Time(self.clock),
        );
        assert!(stored.charge <= data.len() as u64 + Cache::COST_MAX, "no more than a writer reserves");
        self.charged += stored.charge;
        self.take_jobs(stored.job);
    }

    /// Answers one job: the OST takes its writes, in any order.
    fn answer(&mut self) {
        let count = self.jobs.len() as u64;
        if count == 0 {
            return;
        }
        let nth = self.random.below(count) as usize;
        let Some(id) = self.jobs.keys().nth(nth).copied() else { return };
        let job = self.jobs.remove(&id).expect("the key was just found");
        let object = self.objects.get_mut(&id.object).expect("of the layout");
        for (offset, slices) in job.writes.into_iter().rev() {
            let mut at = offset as usize;
            for slice in slices {
                object.resize(object.len().max(at + slice.len()), 0);
                object[at..at + slice.len()].copy_from_slice(&slice);
                at += slice.len();
            }
        }
        let Answered { slices, charge, next, .. } = self.cache.answered(id);
        assert_eq!(charge, job.charge);
        for (offset, slice) in slices {
            assert_eq!(object[offset as usize..][..slice.len()], slice, "it is what was sent");
        }
        self.charged -= charge;
        self.take_jobs(next);
    }

    fn answer_all(&mut self) {
        while !self.jobs.is_empty() {
            self.answer();
        }
    }

    fn cut(&mut self, size: u64) {
        let layout = self.layout.clone();
        let refunds = self.cache.cut(|object| (layout.object_size(object, size), u64::MAX));
        self.charged -= refunds.into_iter().map(|(_, bytes)| bytes).sum::<u64>();
        self.answer_all();
        self.truth.resize(size as usize, 0);
        for (id, object) in &mut self.objects {
            let wanted = self.layout.object_size(*id, size) as usize;
            let last = size.checked_sub(1).and_then(|last| self.layout.locate(last));
            let last = last.is_some_and(|(place, _)| place.object == *id);
            if object.len() > wanted || last {
                object.resize(wanted, 0);
            }
        }
    }

    fn flush(&mut self) {
        let last = self.cache.last_write();
        let jobs = self.cache.start_all();
        self.take_jobs(jobs);
        while self.cache.is_pending(last) {
            assert!(!self.jobs.is_empty(), "what is pending is on its way");
            self.answer();
        }
    }

    fn size(&self) -> u64 {
        let size = |(id, object): (&ObjectId, &Vec<u8>)| self.layout.file_size_from(*id, object.len() as u64);
        let size = self.objects.iter().map(size).max();
        size.unwrap_or(0).max(self.cache.file_end(&self.layout))
    }

    fn check(&mut self) {
        assert_eq!(self.size(), self.truth.len() as u64);
        let offset = self.random.below(FILE);
        let len = 1 + self.random.below(300_000);
        let mut seen = vec![0; len as usize];
        for run in self.layout.runs(offset, len) {
            let object = &self.objects[&run.place.object];
            let at = (run.file_offset - offset) as usize;
            let out = &mut seen[at..at + run.len as usize];
            let from = object.len().min(run.object_offset as usize);
            let to = object.len().min((run.object_offset + run.len) as usize);
            out[..to - from].copy_from_slice(&object[from..to]);
            let mut end = run.object_offset;
            for (start, bytes) in self.cache.overlay(run.place.object, end, run.object_offset + run.len) {
                assert!(start >= end && !bytes.is_empty(), "slices are disjoint and in order");
                end = start + bytes.len() as u64;
                let at = (start - run.object_offset) as usize;
                out[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            assert!(end <= run.object_offset + run.len, "slices lie in the range");
        }
        let from = self.truth.len().min(offset as usize);
        let to = self.truth.len().min((offset + len) as usize);
        let mut wanted = self.truth[from..to].to_vec();
        wanted.resize(len as usize, 0);
        assert!(seen == wanted, "a read of {len} bytes at {offset} differs");
    }

    fn step(&mut self) {
        let offset = self.random.below(FILE);
        match self.random.below(20) {
            0..=5 => {
                let len = 1 + self.random.below(5000);
                self.write(offset, len);
            }
            6..=8 => {
                let len = 1 + self.random.below(200_000);
                self.write(offset, len);
            }
            9 => {
                let pages = 4096 * (4 + self.random.below(40));
                self.write(offset / 4096 * 4096, pages);
            }
            10 => self.write(offset / CHUNK * CHUNK, CHUNK),
            11..=12 => {
                let (at, len) = (self.truth.len() as u64 % FILE, 1 + self.random.below(47_008));
                for i in 0..4 {
                    self.write(at + i * len, len);
                }
            }
            13..=16 => self.answer(),
            17 => {
                let until = Time(self.random.below(self.clock + 1));
                let jobs = match self.random.below(2) {
                    0 => self.cache.start_older(until),
                    _ => self.cache.start_oldest(self.random.below(2 * CHUNK), |_| true),
                };
                self.take_jobs(jobs);
            }
            18 => self.flush(),
            _ => self.cut(offset),
        }
    }
}

#[test]
fn cache_and_objects_together_are_the_file() {
    for seed in 0..16 {
        let mut model = Model::new(seed, 1 + seed as u32 % 4);
        for _ in 0..120 {
            model.step();
            model.check();
        }
        model.flush();
        assert!(model.cache.is_empty());
        assert_eq!((model.charged, model.cache.bytes()), (0, 0), "all room is given back");
        assert_eq!(model.cache.newest_time(), None);
        model.check();
    }
}

#[test]
fn a_whole_chunk_is_one_write_of_one_slice() {
    let mut model = Model::new(1, 1);
    model.write(CHUNK, CHUNK);
    let job = model.jobs.values().next().expect("a full chunk is sent at once");
    let slices: Vec<usize> = job.writes.iter().map(|(_, slices)| slices.len()).collect();
    assert_eq!((job.writes[0].0, slices), (CHUNK, vec![1]));
    assert!(rt::buf::is_aligned(&job.writes[0].1[0], CHUNK));
}

#[test]
fn small_writes_in_a_row_become_one_aligned_slice() {
    for len in [100, 4096, 47_008, 100_000] {
        let mut model = Model::new(1, 1);
        let mut at = 0;
        while model.jobs.is_empty() {
            model.write(at, len);
            at += len;
        }
        let job = model.jobs.values().next().expect("the loop ended");
        assert_eq!(job.writes.len(), 1, "writes of {len}");
        let bytes: &Bytes = &job.writes[0].1[0];
        assert_eq!((job.writes[0].1.len(), bytes.len() as u64), (1, CHUNK), "writes of {len}");
        assert!(rt::buf::is_aligned(bytes, 0), "writes of {len}");
    }
}

#[test]
fn writes_in_any_order_become_one_aligned_slice() {
    for len in [1000, 4096, 20_000] {
        let mut model = Model::new(1, 1);
        let count = CHUNK.div_ceil(len);
        // Every third one, and then those between.
        for index in (0..3).flat_map(|first| (first..count).step_by(3)) {
            assert!(model.jobs.is_empty(), "a chunk with gaps is not sent");
            model.write(index * len, len.min(CHUNK - index * len));
        }
        let job = model.jobs.values().next().expect("a full chunk is sent at once");
        assert_eq!((job.writes.len(), job.writes[0].1.len()), (1, 1), "writes of {len}");
        assert!(rt::buf::is_aligned(&job.writes[0].1[0], 0), "writes of {len}");
        model.check();
    }
}

#[test]
fn the_oldest_chunks_go_first() {
    let mut model = Model::new(1, 1);
    for chunk in [3, 1, 2, 0] {
        model.write(chunk * CHUNK + 10, 1000);
    }
    let numbers = |jobs: &[super::cache::Job]| jobs.iter().map(|job| job.chunk.number).collect::<Vec<_>>();
    let jobs = model.cache.start_oldest(1513, |_| true);
    assert_eq!(numbers(&jobs), [3, 1]);
    model.take_jobs(jobs);
    model.write(3 * CHUNK, 10);
    let jobs = model.cache.start_oldest(u64::MAX, |_| true);
    assert_eq!(numbers(&jobs), [2, 0], "what is being sent is left out");
    assert!(model.cache.start_oldest(u64::MAX, |_| false).is_empty());
}

#[test]
fn a_chunk_in_flight_is_never_changed() {
    let mut model = Model::new(1, 1);
    model.write(0, CHUNK);
    let sent = model.jobs.values().next().expect("a full chunk is sent at once").writes[0].1[0].clone();
    let copy = sent.to_vec();
    model.write(0, CHUNK);
    model.write(17, 4096);
    assert!(sent == copy, "what was sent stays");
    model.answer();
    assert_eq!(model.jobs.len(), 1, "the next version goes after the answer");
}

#[test]
fn a_whole_chunk_that_is_ready_is_taken_as_it_is() {
    let mut model = Model::new(1, 1);
    let place = model.layout.places().next().expect("a stripe");
    // Two thirds in small pieces: memory for all of the chunk.
    for at in (0..CHUNK - 3000).step_by(3000) {
        model.write_piece(place, at, &[1; 2000]);
    }
    let data = vec![2; CHUNK as usize];
    let mut buffer = model.memory.buffer(0, data.len());
    buffer.bytes_mut().copy_from_slice(&data);
    let address = buffer.bytes().as_ptr();
    let (time, owner) = (Timestamp::default(), JobId::NONE);
    let piece = Piece { place, offset: 0, data: &data, ready: Some(buffer), time, owner, hold: false };
    let job = model.cache.write(piece, Time(1)).job.expect("a full chunk is sent at once");
    assert_eq!(job.writes[0].1[0].as_ptr(), address, "without a copy");
    assert_eq!(job.writes[0].1[0], data);
}
