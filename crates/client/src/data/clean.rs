//! Data of objects that was read and that locks of this client protect: who reads it again asks nobody.
//!
//! Pieces are exact to the byte, because locks are: a page that two clients share is not kept by one of them. Whoever
//! gives a range up, or changes it, drops it here first. A read that was under way meanwhile keeps nothing
//! ([`Reading`]): what it brings may be older.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use proto::{ObjectId, Shards};
use rt::memory::User;

use super::room::Rooms;
use crate::order::{CLEAN, Mutex};

/// Parts of the cache that are locked apart.
const SHARDS: usize = 16;
/// Names of dropped pieces that a part may have besides as many as it has pieces.
const STALE_MAX: usize = 64;
/// Bytes that a piece costs besides its data.
const PIECE_COST: u64 = 256;
/// Largest read that is kept, in bytes: larger ones are streams, which read nothing twice.
pub(super) const KEPT_READ_BYTES_MAX: u64 = 128 << 10;

/// What was read and is still true.
pub(crate) struct Clean {
    shards: Shards<Mutex<CLEAN, Shard>, SHARDS>,
    /// What is written has its room first; this has what is left.
    rooms: Arc<Rooms>,
    cost: AtomicU64,
    /// Accounts for it.
    user: User,
    /// The part that is looked at next for what can go.
    hand: AtomicUsize,
    hits: AtomicU64,
    /// How often something had to go.
    reclaims: AtomicU64,
    /// Pieces that were ahead of readers and are gone unread.
    lost: [AtomicU64; 2],
}

/// Pieces that were ahead of readers and are gone unread, since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Losses {
    /// They were given up or changed.
    pub(super) taken: u64,
    /// There was no room for them.
    pub(super) evicted: u64,
}

/// What is done with what is kept, and with what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Somebody reads so little that it may be read again: it stays, and so does what comes.
    Small,
    /// A stream, which reads nothing twice, or the kernel, which keeps it: what was ahead goes, and what comes is not kept.
    Stream,
    /// What comes is kept for somebody who will read it.
    Ahead,
}

#[derive(Default)]
struct Shard {
    objects: BTreeMap<ObjectId, Object>,
    /// Pieces in the order in which they are looked at for being dropped.
    order: VecDeque<(ObjectId, u64, u64)>,
    /// Pieces, and what they cost.
    count: usize,
    cost: u64,
    next: u64,
    /// Pieces that were ahead and are gone unread, not counted yet.
    lost: u64,
}

/// Pieces of one object by their first byte; they do not overlap.
#[derive(Default)]
struct Object {
    pieces: BTreeMap<u64, Piece>,
    /// Reads under way, and how often something was dropped since the first of them began.
    reading: u32,
    drops: u64,
}

struct Piece {
    bytes: Bytes,
    number: u64,
    /// Used since somebody last looked for one that can go.
    recent: bool,
    /// Fetched for a reader that has not come yet.
    ahead: bool,
}

impl Piece {
    fn cost(&self) -> u64 {
        PIECE_COST + self.bytes.len() as u64
    }

    fn end(&self, start: u64) -> u64 {
        start + self.bytes.len() as u64
    }

    /// The bytes `[low, high)` of the object, of a piece that begins at `start`.
    fn slice(&self, start: u64, low: u64, high: u64) -> Bytes {
        self.bytes.slice((low - start) as usize..(high - start) as usize)
    }

    /// What is left of a piece that begins at `start` without `[from, to)`.
    fn left(&self, start: u64, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let end = self.end(start);
        [(start, from.min(end)), (to.max(start), end)].into_iter().filter(|(low, high)| low < high)
    }
}

/// How pieces go.
#[derive(Clone, Copy)]
enum Way {
    /// Given up or changed.
    Taken,
    /// For want of room.
    Evicted,
}

/// A read that is under way; [`Reading::keep`] keeps what it brought.
pub(super) struct Reading<'a> {
    clean: &'a Clean,
    object: ObjectId,
    drops: u64,
    reader: Reader,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut shard = self.clean.shard(self.object).lock();
        let Some(object) = shard.objects.get_mut(&self.object) else { return };
        object.reading -= 1;
        shard.forget_if_empty(self.object);
    }
}

impl Reading<'_> {
    /// Nobody waits for it yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.reader == Reader::Ahead
    }

    /// Keeps what the OST gave for `start` on, unless something of the object was dropped since the read began.
    pub(super) fn keep(&self, start: u64, slices: &[Bytes]) {
        let len: usize = slices.iter().map(Bytes::len).sum();
        if len == 0 {
            return;
        }
        match self.reader {
            Reader::Stream => {}
            // A copy: what came may be a small part of a large buffer.
            Reader::Small => self.put(start, [Bytes::from(slices.concat())], false),
            // Its buffers are about as large as it is, and it is read soon.
            Reader::Ahead => self.put(start, slices.iter().cloned(), true),
        }
    }

    /// The same with bytes whose buffer is not much larger than they are.
    pub(super) fn share(&self, start: u64, bytes: Bytes) {
        self.put(start, [bytes], false);
    }

    fn put(&self, start: u64, slices: impl IntoIterator<Item = Bytes>, ahead: bool) {
        let mut shard = self.clean.shard(self.object).lock();
        let current = shard.objects.get(&self.object).is_some_and(|object| object.drops == self.drops);
        if !current {
            return;
        }
        let before = shard.cost;
        let mut at = start;
        for bytes in slices.into_iter().filter(|bytes| !bytes.is_empty()) {
            let end = at + bytes.len() as u64;
            shard.put(self.object, at, (bytes, ahead));
            at = end;
        }
        shard.tidy();
        self.clean.count(before, &mut shard, Way::Taken);
        drop(shard);
        self.clean.fit();
    }
}

impl Clean {
    /// Nothing is kept yet.
    pub(crate) fn new(rooms: Arc<Rooms>) -> Clean {
        Clean {
            shards: Shards::default(),
            user: rooms.memory().user("read"),
            rooms,
            cost: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            reclaims: AtomicU64::new(0),
            lost: Default::default(),
        }
    }

    /// A part has changed: it cost `before`, and what it lost went this way.
    fn count(&self, before: u64, shard: &mut Shard, way: Way) {
        self.user.changed(before, shard.cost);
        match shard.cost.checked_sub(before) {
            Some(more) => self.cost.fetch_add(more, Ordering::Relaxed),
            None => self.cost.fetch_sub(before - shard.cost, Ordering::Relaxed),
        };
        let lost = std::mem::take(&mut shard.lost);
        if lost > 0 {
            self.lost[way as usize].fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// What was ahead of readers and is gone unread.
    pub(super) fn losses(&self) -> Losses {
        let [taken, evicted] = self.lost.each_ref().map(|lost| lost.load(Ordering::Relaxed));
        Losses { taken, evicted }
    }

    /// Drops what was not used lately until the rest fits in what is left for it, and the process holds no more than it should.
    pub(crate) fn fit(&self) {
        if self.cost.load(Ordering::Relaxed) == 0 {
            return;
        }
        let excess = self.rooms.memory().excess();
        let room = self.rooms.left().min(self.cost.load(Ordering::Relaxed).saturating_sub(excess));
        let over = || self.cost.load(Ordering::Relaxed).saturating_sub(room);
        if over() == 0 {
            return;
        }
        self.reclaims.fetch_add(1, Ordering::Relaxed);
        // The parts take turns; one that has less than its share is left alone. One has at least that. Twice, for a first
        // look only notes what was used since the last; and twice more, for what is ahead of readers goes after all else.
        for turn in 0..4 * SHARDS {
            let over = over();
            if over == 0 {
                return;
            }
            let share = self.cost.load(Ordering::Relaxed) / SHARDS as u64;
            let mut shard = self.shards.at(self.hand.fetch_add(1, Ordering::Relaxed)).lock();
            let before = shard.cost;
            if before >= share {
                shard.shrink(before.saturating_sub(over), turn >= 2 * SHARDS);
                self.count(before, &mut shard, Way::Evicted);
            }
        }
    }

    fn shard(&self, id: ObjectId) -> &Mutex<CLEAN, Shard> {
        self.shards.of(&id)
    }

    /// A read of an object begins. The caller holds what it reads until the result is dropped.
    pub(super) fn reading(&self, id: ObjectId, reader: Reader) -> Reading<'_> {
        let mut shard = self.shard(id).lock();
        let object = shard.objects.entry(id).or_default();
        object.reading += 1;
        Reading { clean: self, object: id, drops: object.drops, reader }
    }

    /// What is kept of `[from, to)`: disjoint slices in order. The caller holds the range.
    pub(super) fn get(&self, id: ObjectId, (from, to): (u64, u64), reader: Reader) -> Vec<(u64, Bytes)> {
        let mut found = Vec::new();
        let mut shard = self.shard(id).lock();
        let Some(object) = shard.objects.get_mut(&id) else { return found };
        let first = object.first(from);
        let mut taken = Vec::new();
        for (start, piece) in object.pieces.range_mut(first..to.max(first)) {
            let (low, high) = ((*start).max(from), piece.end(*start).min(to));
            if low < high {
                found.push((low, piece.slice(*start, low, high)));
                if piece.ahead && reader == Reader::Stream {
                    taken.push((low, high));
                }
                piece.recent = true;
                piece.ahead = false;
            }
        }
        let before = shard.cost;
        for (low, high) in taken {
            shard.take(id, low, high);
        }
        self.count(before, &mut shard, Way::Taken);
        drop(shard);
        self.hits.fetch_add(found.len() as u64, Ordering::Relaxed);
        found
    }

    /// Whether all of `[from, to)` is there.
    pub(super) fn has(&self, id: ObjectId, from: u64, to: u64) -> bool {
        let shard = self.shard(id).lock();
        let Some(object) = shard.objects.get(&id) else { return from >= to };
        let first = object.first(from);
        let mut at = from;
        for (start, piece) in object.pieces.range(first..to.max(first)) {
            if *start > at {
                break;
            }
            at = at.max(piece.end(*start));
        }
        at >= to
    }

    /// Nobody will read what is ahead in `[from, to)`.
    pub(super) fn drop_ahead(&self, id: ObjectId, from: u64, to: u64) {
        let mut shard = self.shard(id).lock();
        let before = shard.cost;
        shard.take_ahead(id, from, to);
        shard.forget_if_empty(id);
        self.count(before, &mut shard, Way::Taken);
    }

    /// `[from, to)` is given up, or changed.
    pub(crate) fn drop_range(&self, id: ObjectId, from: u64, to: u64) {
        let mut shard = self.shard(id).lock();
        let Some(object) = shard.objects.get_mut(&id) else { return };
        object.drops += 1;
        let before = shard.cost;
        shard.cut(id, from, to);
        shard.forget_if_empty(id);
        self.count(before, &mut shard, Way::Taken);
    }

    /// Pieces that were used, bytes that are kept now, and how often some had to go.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.hits, &self.cost, &self.reclaims].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl Object {
    /// Where the first piece begins that may reach behind `from`.
    fn first(&self, from: u64) -> u64 {
        self.pieces.range(..=from).next_back().map_or(from, |(start, _)| *start)
    }
}

impl Shard {
    /// Puts a piece in the place of whatever is there.
    fn put(&mut self, id: ObjectId, start: u64, (bytes, ahead): (Bytes, bool)) {
        self.cut(id, start, start + bytes.len() as u64);
        self.insert(id, start, Piece { bytes, number: 0, recent: ahead, ahead });
    }

    fn insert(&mut self, id: ObjectId, start: u64, piece: Piece) {
        self.next += 1;
        let piece = Piece { number: self.next, ..piece };
        self.cost += piece.cost();
        self.count += 1;
        self.order.push_back((id, start, piece.number));
        self.objects.entry(id).or_default().pieces.insert(start, piece);
    }

    /// Takes `[from, to)` out. What is left of a piece is copied, or its whole buffer would stay.
    fn cut(&mut self, id: ObjectId, from: u64, to: u64) {
        let touched = self.touched(id, from, to);
        for start in touched {
            let Some(piece) = self.remove(id, start) else { continue };
            self.lost += u64::from(piece.ahead);
            for (low, high) in piece.left(start, from, to) {
                let bytes = Bytes::copy_from_slice(&piece.slice(start, low, high));
                self.insert(id, low, Piece { bytes, ..piece });
            }
        }
    }

    /// Takes what was read ahead of `[from, to)` out, for it was read. What is left shares the buffer: it is read soon, too.
    fn take(&mut self, id: ObjectId, from: u64, to: u64) {
        for start in self.touched(id, from, to) {
            let Some(piece) = self.remove(id, start) else { continue };
            for (low, high) in piece.left(start, from, to) {
                let bytes = piece.slice(start, low, high);
                self.insert(id, low, Piece { bytes, ahead: true, ..piece });
            }
        }
    }

    /// Takes what is ahead in `[from, to)` out, for nobody will read it.
    fn take_ahead(&mut self, id: ObjectId, from: u64, to: u64) {
        for start in self.touched(id, from, to) {
            let Some(piece) = self.objects.get(&id).and_then(|object| object.pieces.get(&start)) else {
                continue;
            };
            if piece.ahead {
                let end = piece.end(start).min(to);
                self.take(id, start.max(from), end);
            }
        }
    }

    /// Where the pieces begin that reach into `[from, to)`.
    fn touched(&self, id: ObjectId, from: u64, to: u64) -> Vec<u64> {
        let Some(object) = self.objects.get(&id) else { return Vec::new() };
        let first = object.first(from);
        let touching = object.pieces.range(first..to.max(first));
        touching
            .filter(|(start, piece)| **start < to && piece.end(**start) > from)
            .map(|(start, _)| *start)
            .collect()
    }

    fn remove(&mut self, id: ObjectId, start: u64) -> Option<Piece> {
        let piece = self.objects.get_mut(&id)?.pieces.remove(&start)?;
        self.cost -= piece.cost();
        self.count -= 1;
        Some(piece)
    }

    /// Names of pieces that are gone must not fill the memory either.
    fn tidy(&mut self) {
        self.shrink(u64::MAX, false);
    }

    /// Drops those pieces that were not used lately until the rest fits; those that are ahead of readers only if nothing else helps.
    fn shrink(&mut self, cost_max: u64, ahead_too: bool) {
        for _ in 0..2 * self.order.len() {
            if self.cost <= cost_max && self.order.len() <= 2 * self.count + STALE_MAX {
                return;
            }
            let Some((id, start, number)) = self.order.pop_front() else { return };
            let Some(object) = self.objects.get_mut(&id) else { continue };
            let Some(piece) = object.pieces.get_mut(&start).filter(|piece| piece.number == number) else {
                continue;
            };
            let stays = if piece.ahead { !ahead_too } else { std::mem::take(&mut piece.recent) };
            if stays || self.cost <= cost_max {
                self.order.push_back((id, start, number));
                continue;
            }
            self.lost += u64::from(piece.ahead);
            self.remove(id, start);
            self.forget_if_empty(id);
        }
    }

    fn forget_if_empty(&mut self, id: ObjectId) {
        if self.objects.get(&id).is_some_and(|object| object.pieces.is_empty() && object.reading == 0) {
            self.objects.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::{Fid, OstIndex};
    use rt::sim::Rng;

    use super::*;

    fn clean(bytes: u64) -> Clean {
        let memory = rt::memory::Share::of(1 << 40).memory().clone();
        Clean::new(Arc::new(Rooms::new([bytes; 3], memory.user("written"))))
    }

    fn object(stripe: u32) -> ObjectId {
        ObjectId { layout: Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 }, stripe }
    }

    fn kept(clean: &Clean, id: ObjectId, from: u64, to: u64) -> u64 {
        clean.get(id, (from, to), Reader::Small).iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    #[test]
    fn what_is_kept_is_what_the_object_has() {
        const BYTES: u64 = 4096;
        let clean = clean(1 << 20);
        let id = object(0);
        let mut truth = vec![0u8; BYTES as usize];
        let mut rng = Rng::new(11);
        let mut random = |below: u64| rng.below(below);
        let mut hits = 0;
        for round in 0..20_000 {
            let from = random(BYTES - 1);
            let to = (from + 1 + random(300)).min(BYTES);
            let part = from as usize..to as usize;
            if random(3) == 0 {
                clean.drop_range(id, from, to);
                truth[part].fill(round as u8);
                continue;
            }
            let reading = clean.reading(id, Reader::Small);
            for (start, bytes) in clean.get(id, (from, to), Reader::Small) {
                assert_eq!(bytes, truth[start as usize..start as usize + bytes.len()]);
                hits += 1;
            }
            let came = Bytes::copy_from_slice(&truth[part.clone()]);
            if random(4) == 0 {
                // Somebody writes while the answer is on its way.
                clean.drop_range(id, from, from + 1);
                truth[part.start] = round as u8 ^ 0x55;
            }
            reading.keep(from, &[came.slice(..1), came.slice(1..)]);
        }
        assert!(hits > 1000);
        clean.drop_range(id, 0, u64::MAX);
        assert_eq!(clean.counts()[1], 0);
        let shard = clean.shard(id).lock();
        assert!(shard.objects.is_empty() && shard.cost == 0 && shard.count == 0);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let clean = clean(64 << 10);
        let id = object(0);
        for n in 0..10_000u64 {
            clean.reading(id, Reader::Small).keep(n * 1000, &[Bytes::from(vec![1; 1000])]);
            assert_eq!(kept(&clean, id, 0, 1000), 1000, "it was used just now");
        }
        assert!(kept(&clean, id, 1000, 2000) == 0 && clean.counts()[1] <= 64 << 10);
        for n in 0..10_000u64 {
            clean.drop_range(id, n, n + 1);
            clean.reading(id, Reader::Small).keep(n, &[Bytes::from_static(b"x")]);
        }
        let shard = clean.shard(id).lock();
        assert!(shard.order.len() <= 2 * shard.count + STALE_MAX + 2, "{}", shard.order.len());
    }

    #[test]
    fn what_is_written_has_its_room_first() {
        let clean = clean(1 << 20);
        let fill = |clean: &Clean| {
            for n in 0..2000u64 {
                clean
                    .reading(object(n as u32 % 3), Reader::Small)
                    .keep(n / 3 * 1000, &[Bytes::from(vec![1; 1000])]);
            }
        };
        fill(&clean);
        assert!(
            (900 << 10..=1 << 20).contains(&clean.counts()[1]),
            "one object may have it all: {:?}",
            clean.counts()
        );
        let ost = clean.rooms.of(OstIndex(0).into());
        assert!(clean.rooms.try_take(&ost, 1_000_000));
        clean.fit();
        assert!(clean.counts()[1] <= (1 << 20) - 1_000_000 && clean.counts()[2] > 0);
        clean.rooms.give(OstIndex(0).into(), 1_000_000);
        fill(&clean);
        assert!(clean.counts()[1] > 900 << 10);
        clean.rooms.set_kept_max(64 << 10);
        clean.fit();
        assert!(clean.counts()[1] <= 64 << 10);
        let shards: u64 = clean.shards.iter().map(|shard| shard.lock().cost).sum();
        assert_eq!(clean.counts()[1], shards);
    }

    #[test]
    fn what_was_read_goes_first_when_the_process_holds_too_much() {
        let clean = clean(64 << 20);
        let keep = |n: u64, bytes: usize| {
            clean.reading(object(0), Reader::Small).keep(n << 20, &[Bytes::from(vec![1; bytes])]);
        };
        clean.rooms.memory().set_limit(32 << 20);
        let others = clean.rooms.memory().user("others");
        others.add(20 << 20);
        (0..7).for_each(|n| keep(n, 1 << 20));
        assert_eq!(clean.counts()[1] >> 20, 7);
        others.add(5 << 20);
        keep(7, 1000);
        let held = clean.counts()[1];
        assert!((2 << 20..=3 << 20).contains(&held), "28 MiB in all, and not less than need be: {held}");
        assert_eq!(clean.rooms.memory().users()[1], ("read", held));
        others.add(30 << 20);
        keep(8, 1000);
        assert_eq!(clean.counts()[1], 0);
    }

    #[test]
    fn objects_are_apart() {
        let clean = clean(1 << 20);
        clean.reading(object(0), Reader::Small).keep(0, &[Bytes::from_static(b"abc")]);
        clean.drop_range(object(1), 0, u64::MAX);
        assert_eq!(clean.get(object(0), (1, 9), Reader::Small), [(1, Bytes::from_static(b"bc"))]);
        assert!(clean.get(object(1), (0, 9), Reader::Small).is_empty());
    }
}
