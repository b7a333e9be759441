//! The write-behind cache of one file: chunks, aligned in the objects, that fill up and are then sent.
//!
//! A chunk has at most two versions: one that writers fill, and one that was handed to send and is never changed
//! again. The next one is not sent before the OST has answered the last, so the OST sees the writes of a chunk in
//! order. Pure state: it says what to send, and is told what was answered.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto::layout::Place;
use proto::{DataTarget, JobId, Layout, ObjectId, Timestamp};
use rt::Time;
use smallvec::SmallVec;

use super::memory::{Buffer, Memory};
use super::version::{PIECE_COST, Version, space_of};

/// A chunk in so many pieces is sent although it is not full.
const PIECES_MAX: usize = 1024;

/// Names a chunk of a file: the object, and the number of the chunk in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId {
    pub(crate) object: ObjectId,
    pub(crate) number: u64,
}

/// What has to be sent for one chunk. [`Cache::answered`] has to be called when all of it was answered.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) chunk: ChunkId,
    /// Where the object is.
    pub(crate) target: DataTarget,
    /// Contiguous writes: offset in the object, and the bytes.
    pub(crate) writes: Vec<(u64, Vec<Bytes>)>,
    /// Time of the newest application call.
    pub(crate) time: Timestamp,
    /// The job of that call.
    pub(crate) owner: JobId,
    /// What goes back to the bounds of dirty data when it was answered.
    pub(crate) charge: u64,
    /// To be answered when it is durable.
    pub(crate) sync: bool,
}

/// One application write, or the part of it that lies in one chunk.
pub(crate) struct Piece<'a> {
    pub(crate) place: Place,
    /// In the object; the piece does not cross the end of a chunk.
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    /// A buffer that holds `data` already.
    pub(crate) ready: Option<Buffer>,
    /// Time of the application's call.
    pub(crate) time: Timestamp,
    /// Its job.
    pub(crate) owner: JobId,
    /// A chunk that becomes full is not handed out: everything is asked for at once.
    pub(crate) hold: bool,
}

/// What became of a write.
pub(crate) struct Stored {
    /// What it takes from the bounds of dirty data; at most the length and [`Cache::COST_MAX`].
    pub(crate) charge: u64,
    /// What to send now.
    pub(crate) job: Option<Job>,
}

/// A chunk that was sent.
#[derive(Default)]
pub(crate) struct Answered {
    /// Its bytes by their offset in the object: disjoint, in order.
    pub(crate) slices: Vec<(u64, Bytes)>,
    /// They are most of their buffers.
    pub(crate) is_lean: bool,
    /// What goes back to the bounds of dirty data.
    pub(crate) charge: u64,
    /// What to send next of the same chunk.
    pub(crate) next: Option<Job>,
}

/// What goes back to the bounds of dirty data: targets, and bytes of each.
pub(crate) type Refund = SmallVec<[(DataTarget, u64); 4]>;

struct Sending {
    slices: Vec<(u64, Bytes)>,
    /// They are most of their buffers.
    is_lean: bool,
    bytes: u64,
    charge: u64,
    first_write: u64,
    time: Timestamp,
    /// What it was locked under is lost.
    lost: bool,
}

struct Chunk {
    /// Where the object is.
    target: DataTarget,
    filling: Option<Version>,
    sending: Option<Sending>,
    /// `filling` is to be sent as soon as `sending` was answered.
    ready: bool,
}

impl Chunk {
    fn new(target: DataTarget) -> Chunk {
        Chunk { target, filling: None, sending: None, ready: false }
    }

    /// Whether some write up to number `write` was not answered yet.
    fn is_pending(&self, write: u64) -> bool {
        self.filling.as_ref().is_some_and(|version| version.first_write <= write)
            || self.sending.as_ref().is_some_and(|sending| sending.first_write <= write)
    }

    /// Offset in the object behind the last byte.
    fn end(&self) -> u64 {
        let sending = self.sending.as_ref().and_then(|sending| sending.slices.last());
        let sending = sending.map_or(0, |(offset, bytes)| offset + bytes.len() as u64);
        self.filling.as_ref().and_then(Version::end).unwrap_or(0).max(sending)
    }
}

/// Chunks by when the version was begun that writers fill.
type Begun = BTreeSet<(Time, ChunkId)>;

/// The dirty data of one file.
pub(crate) struct Cache {
    memory: Memory,
    chunk_bytes: u64,
    chunks: BTreeMap<ChunkId, Chunk>,
    /// Those of which some is to be sent, by when that was begun.
    begun: Begun,
    /// Number of the last write.
    writes: u64,
}

impl Cache {
    /// Most that a write is charged beyond its length.
    pub(crate) const COST_MAX: u64 = PIECE_COST;

    pub(crate) fn new(memory: Memory, chunk_bytes: u64) -> Cache {
        Cache { memory, chunk_bytes, chunks: BTreeMap::new(), begun: Begun::new(), writes: 0 }
    }

    /// Whether every write was answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Number of the last write, for [`Cache::is_pending`].
    pub(crate) fn last_write(&self) -> u64 {
        self.writes
    }

    /// Whether some write up to number `write` was not answered yet.
    pub(crate) fn is_pending(&self, write: u64) -> bool {
        self.chunks.values().any(|chunk| chunk.is_pending(write))
    }

    /// Whether some write up to number `write` was sent and not answered yet.
    pub(crate) fn is_sending(&self, write: u64) -> bool {
        self.chunks.values().any(|chunk| chunk.sending.as_ref().is_some_and(|s| s.first_write <= write))
    }

    /// When the oldest byte was written that nobody has sent yet.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.begun.first().map(|(since, _)| *since)
    }

    /// Time of the newest application call whose data was not answered yet.
    pub(crate) fn newest_time(&self) -> Option<Timestamp> {
        let times = |chunk: &Chunk| {
            chunk.filling.as_ref().map(|v| v.time).max(chunk.sending.as_ref().map(|s| s.time))
        };
        self.chunks.values().filter_map(times).max()
    }

    /// Bytes that were not answered yet.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |chunk: &Chunk| {
            chunk.filling.as_ref().map_or(0, |v| v.bytes) + chunk.sending.as_ref().map_or(0, |s| s.bytes)
        };
        self.chunks.values().map(bytes).sum()
    }

    /// The space that those targets that are `meant` need for what was not answered yet, in bytes, whatever they have there.
    pub(crate) fn space_on(&self, meant: impl Fn(DataTarget) -> bool) -> u64 {
        let sending = |of: &Sending| of.slices.iter().map(|(_, slice)| space_of(0, slice.len() as u64)).sum();
        let space = |chunk: &Chunk| {
            chunk.filling.as_ref().map_or(0, Version::space) + chunk.sending.as_ref().map_or(0, sending)
        };
        self.chunks.values().filter(|chunk| meant(chunk.target)).map(space).sum()
    }

    /// File offset behind the last byte that was not answered yet; 0 for none. Data for objects that the file has no more does not
    /// count.
    pub(crate) fn file_end(&self, layout: &Layout) -> u64 {
        let end = |(id, chunk): (&ChunkId, &Chunk)| layout.file_size_from(id.object, chunk.end());
        self.chunks.iter().map(end).max().unwrap_or(0)
    }

    /// Takes a write; tells what to send if it made its chunk full.
    pub(crate) fn write(&mut self, piece: Piece<'_>, now: Time) -> Stored {
        let number = piece.offset / self.chunk_bytes;
        let limit = (number + 1) * self.chunk_bytes;
        assert!(!piece.data.is_empty(), "a write has bytes");
        assert!(piece.offset + piece.data.len() as u64 <= limit, "a piece of a write lies within one chunk");
        self.writes += 1;
        let id = ChunkId { object: piece.place.object, number };
        let chunk = self.chunks.entry(id).or_insert_with(|| Chunk::new(piece.place.target));
        let version = chunk.filling.get_or_insert_with(|| {
            self.begun.insert((now, id));
            Version::new(self.writes, now, piece.time)
        });
        version.time = version.time.max(piece.time);
        version.owner = piece.owner;
        let charge = version.write(&self.memory, piece.offset, piece.data, piece.ready, limit);
        let full = version.bytes == self.chunk_bytes || version.pieces() > PIECES_MAX;
        let job = if full && !piece.hold { Self::start(&mut self.begun, id, chunk) } else { None };
        Stored { charge, job }
    }

    /// Hands what is being filled to send, or remembers that it has to go next.
    fn start(begun: &mut Begun, id: ChunkId, chunk: &mut Chunk) -> Option<Job> {
        if chunk.sending.is_some() {
            chunk.ready = chunk.filling.is_some();
            return None;
        }
        chunk.ready = false;
        let version = chunk.filling.take()?;
        begun.remove(&(version.since, id));
        let (bytes, charge) = (version.bytes, version.charge);
        let (first_write, time, owner) = (version.first_write, version.time, version.owner);
        let is_lean = version.is_lean();
        let slices = version.freeze();
        let mut writes: Vec<(u64, Vec<Bytes>)> = Vec::new();
        let mut end = None;
        for (offset, slice) in &slices {
            match writes.last_mut() {
                Some((_, run)) if end == Some(*offset) => run.push(slice.clone()),
                _ => writes.push((*offset, vec![slice.clone()])),
            }
            end = Some(offset + slice.len() as u64);
        }
        chunk.sending = Some(Sending { slices, is_lean, bytes, charge, first_write, time, lost: false });
        Some(Job { chunk: id, target: chunk.target, writes, time, owner, charge, sync: false })
    }

    /// Hands everything to send whose oldest byte was written at `until` or before.
    pub(crate) fn start_older(&mut self, until: Time) -> Vec<Job> {
        let old = |chunk: &Chunk| chunk.filling.as_ref().is_some_and(|v| v.since <= until);
        let chunks = self.chunks.iter_mut().filter(|(_, chunk)| old(chunk));
        chunks.filter_map(|(id, chunk)| Self::start(&mut self.begun, *id, chunk)).collect()
    }

    /// Hands everything to send.
    pub(crate) fn start_all(&mut self) -> Vec<Job> {
        self.start_older(Time(u64::MAX))
    }

    /// Hands everything to send that is to be durable. What is all that is under way to its object is to be answered when it is:
    /// that saves the question behind it. Several share one commit, and one question.
    pub(crate) fn start_durably(&mut self) -> Vec<Job> {
        let mut jobs = self.start_all();
        let mut under_way: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for (id, _) in self.chunks.iter().filter(|(_, chunk)| chunk.sending.is_some()) {
            *under_way.entry(id.object).or_default() += 1;
        }
        for job in &mut jobs {
            job.sync = under_way.get(&job.chunk.object) == Some(&1);
        }
        jobs
    }

    /// Hands everything to send that was written up to number `write`, with the chunks of `[from, to)` of an object that it is in.
    pub(crate) fn start_range(&mut self, object: ObjectId, (from, to): (u64, u64), write: u64) -> Vec<Job> {
        let mut jobs = Vec::new();
        for id in self.chunks_of(object, from, to) {
            let Some(chunk) = self.chunks.get_mut(&id) else { continue };
            if chunk.filling.as_ref().is_some_and(|version| version.first_write <= write) {
                jobs.extend(Self::start(&mut self.begun, id, chunk));
            }
        }
        jobs
    }

    /// Hands chunks to send that go to a target which is `meant`, from the one that was begun first on, until `bytes` of the bounds of
    /// dirty data were taken for them. A chunk that is being sent is left out.
    pub(crate) fn start_oldest(&mut self, bytes: u64, meant: impl Fn(DataTarget) -> bool) -> Vec<Job> {
        let mut charged = 0;
        let wanted = |(_, id): &(Time, ChunkId)| {
            let chunk = self.chunks.get(id).filter(|chunk| chunk.sending.is_none() && meant(chunk.target))?;
            Some((*id, chunk.filling.as_ref()?.charge))
        };
        let is_more = |(_, charge): &(ChunkId, u64)| {
            let before = charged;
            charged += charge;
            before < bytes
        };
        let oldest: Vec<_> = self.begun.iter().filter_map(wanted).take_while(is_more).collect();
        let start = |(id, _)| Self::start(&mut self.begun, id, self.chunks.get_mut(&id)?);
        oldest.into_iter().filter_map(start).collect()
    }

    /// Whether some write up to number `write` to a chunk of `[from, to)` of an object was not answered yet.
    pub(crate) fn has_range(&self, object: ObjectId, (from, to): (u64, u64), write: u64) -> bool {
        let chunks = self.chunks_of(object, from, to).into_iter();
        chunks.filter_map(|id| self.chunks.get(&id)).any(|chunk| chunk.is_pending(write))
    }

    /// Whether any of a chunk was not answered yet.
    pub(crate) fn has_chunk(&self, id: ChunkId) -> bool {
        self.chunks.contains_key(&id)
    }

    /// Whether a chunk is all of its object that was not answered yet, and all of it was handed out.
    pub(crate) fn is_all_sent(&self, id: ChunkId) -> bool {
        let mut chunks = self.chunks.range(ChunkId { number: 0, ..id }..=ChunkId { number: u64::MAX, ..id });
        chunks.all(|(of, chunk)| *of == id && chunk.filling.is_none())
    }

    fn chunks_of(&self, object: ObjectId, from: u64, to: u64) -> Vec<ChunkId> {
        if from >= to || self.chunks.is_empty() {
            return Vec::new();
        }
        let first = ChunkId { object, number: from / self.chunk_bytes };
        let last = ChunkId { object, number: (to - 1) / self.chunk_bytes };
        self.chunks.range(first..=last).map(|(id, _)| *id).collect()
    }

    /// Offset in an object behind the last byte that was not answered yet; 0 for none.
    pub(crate) fn object_end(&self, object: ObjectId) -> u64 {
        let first = ChunkId { object, number: 0 };
        let last = ChunkId { object, number: u64::MAX };
        self.chunks.range(first..=last).map(|(_, chunk)| chunk.end()).max().unwrap_or(0)
    }

    /// All of a job was answered or failed: returns what was sent, what goes back to the bounds of dirty data, and what to send
    /// next.
    pub(crate) fn answered(&mut self, id: ChunkId) -> Answered {
        let Some(chunk) = self.chunks.get_mut(&id) else { return Answered::default() };
        let sent = chunk.sending.take();
        let next = if chunk.ready { Self::start(&mut self.begun, id, chunk) } else { None };
        if chunk.sending.is_none() && chunk.filling.is_none() {
            self.chunks.remove(&id);
        }
        match sent {
            Some(Sending { slices, is_lean, charge, .. }) => Answered { slices, is_lean, charge, next },
            None => Answered { next, ..Answered::default() },
        }
    }

    /// Forgets what was not sent yet of the range that `range` gives for each object; returns what goes back to
    /// the bounds of dirty data.
    pub(crate) fn cut(&mut self, range: impl Fn(ObjectId) -> (u64, u64)) -> Refund {
        let mut refunds = Refund::new();
        for (id, chunk) in &mut self.chunks {
            let Some(version) = &mut chunk.filling else { continue };
            let start = id.number * self.chunk_bytes;
            let (from, to) = range(id.object);
            let (from, to) = (from.max(start), to.min(start + self.chunk_bytes));
            let mut refund = 0;
            if from < to {
                let removed = version.cut(&self.memory, from, to).min(version.charge);
                version.charge -= removed;
                refund += removed;
            }
            if version.bytes == 0 {
                refund += version.charge;
                self.begun.remove(&(version.since, *id));
                chunk.filling = None;
                chunk.ready = false;
            }
            match refunds.last_mut().filter(|(target, _)| *target == chunk.target) {
                Some((_, sum)) => *sum += refund,
                None => refunds.push((chunk.target, refund)),
            }
        }
        self.chunks.retain(|_, chunk| chunk.sending.is_some() || chunk.filling.is_some());
        refunds
    }

    /// What an object was locked under is lost: forgets what was not sent yet, and what is being sent is not to
    /// be sent again. Returns what goes back to the bounds of dirty data.
    pub(crate) fn lose(&mut self, object: ObjectId) -> Refund {
        let of_object = self.chunks.iter_mut().filter(|(id, _)| id.object == object);
        of_object.filter_map(|(_, chunk)| chunk.sending.as_mut()).for_each(|sending| sending.lost = true);
        self.cut(|of| if of == object { (0, u64::MAX) } else { (0, 0) })
    }

    /// Whether what is being sent of a chunk is not locked any more.
    pub(crate) fn is_lost(&self, id: ChunkId) -> bool {
        self.chunks.get(&id).and_then(|chunk| chunk.sending.as_ref()).is_some_and(|sending| sending.lost)
    }

    /// What the cache has of `[from, to)` of an object: disjoint slices in order, newest writes on top.
    pub(crate) fn overlay(&self, object: ObjectId, from: u64, to: u64) -> Vec<(u64, Bytes)> {
        let mut found = Vec::new();
        if from >= to || self.chunks.is_empty() {
            return found;
        }
        let first = ChunkId { object, number: from / self.chunk_bytes };
        let last = ChunkId { object, number: (to - 1) / self.chunk_bytes };
        for (_, chunk) in self.chunks.range(first..=last) {
            let new = chunk.filling.as_ref().map_or_else(Vec::new, |version| version.copy(from, to));
            let old = chunk.sending.as_ref().map_or(&[][..], |sending| &sending.slices);
            put_under(old, from, to, new, &mut found);
        }
        found
    }
}

/// Appends `top`, and what it leaves visible of `below` within `[from, to)`, to `out`; all in order.
fn put_under(
    below: &[(u64, Bytes)],
    from: u64,
    to: u64,
    top: Vec<(u64, Bytes)>,
    out: &mut Vec<(u64, Bytes)>,
) {
    let begin = out.len();
    for (start, bytes) in below {
        let end = (start + bytes.len() as u64).min(to);
        let mut at = (*start).max(from);
        for (top_start, top_bytes) in &top {
            if *top_start >= end {
                break;
            }
            if at < *top_start {
                out.push((at, bytes.slice((at - start) as usize..(top_start - start) as usize)));
            }
            at = at.max(top_start + top_bytes.len() as u64);
        }
        if at < end {
            out.push((at, bytes.slice((at - start) as usize..(end - start) as usize)));
        }
    }
    out.extend(top);
    out[begin..].sort_unstable_by_key(|(offset, _)| *offset);
}
