//! Names that the kernel keeps, and until when. Pure state.
//!
//! The kernel keeps a name for [`KEPT_MAX`] at most, and then asks again; nothing has to be known of the others. When the lock of a
//! file goes, its names are expired one by one. The kernel takes the lock of the directory for that, which a change of this very mount may
//! hold that waits, by way of a server, for the answer to the callback that is to expire the name. Such a change gives way
//! ([`crate::ways`]). Where it cannot, nobody waits for the expiry for longer than until the name's time is over anyhow
//! ([`Names::is_kept`]). A directory where either happened is *busy*: for a while the kernel keeps none of its names
//! (`docs/locks.md#kernel-names`).

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use proto::Fid;
use rt::Time;
use smallvec::SmallVec;

/// How long the kernel may keep a name, as it is told, if the client may for so long. Changes of two mounts that wait for each other in a circle,
/// and cannot give way, wait for so long; who uses a name again and again asks so often, and is answered from the client's cache.
pub const KEPT_MAX: Duration = Duration::from_secs(10);
/// How long it may take, at most, until a thread has used the answer that woke it. From then on the kernel counts.
pub const TO_USE_MAX: Duration = Duration::from_secs(1);
/// The kernel counts in ticks, of 10 ms at most, and rounds up.
const TICKS: Duration = Duration::from_millis(50);
/// Names that the kernel may keep at a time; it keeps no more.
const NAMES_MAX: usize = 1 << 18;
/// They take a part of the memory at most,
const MEMORY_PART: u64 = 32;
/// and a name counts for so much (bytes).
const NAME_BYTES: u64 = 512;
/// Names whose time is over that each new one takes along, at most: nobody waits for a table to be cleaned.
const PAST_MAX: usize = 4;
/// Threads that were told the same name of late, at most; another one may not keep it.
const THREADS_MAX: usize = 16;
/// Names of one file that the kernel may keep at a time.
const LINKS_MAX: usize = 64;
/// For how long a directory is busy in which a name could not be expired.
const BUSY: Duration = Duration::from_secs(10);
/// The same if it has happened there again and again.
const BUSY_MAX: Duration = Duration::from_secs(640);
/// Directories that are known to be busy, or of which it is counted how often their names are called back.
const BUSY_DIRS_MAX: usize = 4096;
/// Names of one directory that are called back within [`CALLED_BACK_IN`] before the directory is busy: to expire a name costs
/// more than to be asked for it again.
const CALLED_BACK_MAX: u32 = 16;
/// The time for [`CALLED_BACK_MAX`].
const CALLED_BACK_IN: Duration = Duration::from_secs(1);

/// A name: the node of its directory, and the name in it.
pub type Place = (u64, Bytes);

/// A name that the kernel keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The name.
    pub place: Place,
    /// Which answer told it last.
    pub number: u64,
    /// How long the kernel keeps it from when it uses the answer.
    pub time: Duration,
    /// When its time is over for certain.
    pub until: Time,
    /// Threads that were told of it of late, and when.
    pub threads: SmallVec<[(u32, Time); 1]>,
}

#[derive(Debug)]
struct Told {
    fid: Fid,
    kept: Kept,
    is_expiring: bool,
}

/// A directory in which a name could not be expired in time, or in which others change many names.
#[derive(Debug)]
struct Busy {
    until: Time,
    last: Duration,
}

/// All names that the kernel keeps.
#[derive(Debug)]
pub struct Names {
    /// Names at a time, at most.
    max: usize,
    names: HashMap<Place, Told>,
    of_file: HashMap<Fid, SmallVec<[Place; 1]>>,
    /// The first that ends comes first. Ends come in any order: a lease that is about to end bounds names that are told later.
    ends: BinaryHeap<Reverse<(Time, u64, Place)>>,
    busy: HashMap<u64, Busy>,
    /// How many names of a directory were called back since when.
    called_back: HashMap<u64, (Time, u32)>,
    next: u64,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            max: NAMES_MAX,
            names: HashMap::new(),
            of_file: HashMap::new(),
            ends: BinaryHeap::new(),
            busy: HashMap::new(),
            called_back: HashMap::new(),
            next: 0,
        }
    }
}

impl Names {
    /// None yet, in a process that may use `memory` bytes.
    pub fn within(memory: u64) -> Names {
        let max = usize::try_from(memory / MEMORY_PART / NAME_BYTES).unwrap_or(NAMES_MAX);
        Names { max: max.min(NAMES_MAX), ..Names::default() }
    }

    /// `thread` is about to be told that `place` means `fid`, which the client may keep for `left`: how long the kernel may.
    pub fn keep(&mut self, fid: Fid, place: Place, left: Duration, thread: u32, now: Time) -> Duration {
        self.forget_past(now);
        let time = left.min(KEPT_MAX);
        // A thread that cannot be seen cannot be waited for.
        let has_room = self.ends.len() < self.max && self.has_room_for(fid, &place);
        if time.is_zero() || thread == 0 || !has_room || self.is_busy(place.0, now) {
            return Duration::ZERO;
        }
        let mut threads = match self.names.get(&place) {
            Some(told) if told.fid == fid => told.kept.threads.clone(),
            _ => SmallVec::new(),
        };
        threads.retain(|(other, at)| *other != thread && now - *at < TO_USE_MAX);
        if threads.len() >= THREADS_MAX {
            return Duration::ZERO;
        }
        threads.push((thread, now));
        let until = now + time + TO_USE_MAX;
        self.insert(fid, Kept { place, number: 0, time, until, threads });
        time
    }

    /// Whether the kernel may keep one more name of the file.
    fn has_room_for(&self, fid: Fid, place: &Place) -> bool {
        self.of_file.get(&fid).is_none_or(|places| places.len() < LINKS_MAX || places.contains(place))
    }

    fn insert(&mut self, fid: Fid, kept: Kept) {
        self.next += 1;
        let (number, until) = (self.next, kept.until);
        let place = kept.place.clone();
        self.remove(&place);
        self.of_file.entry(fid).or_default().push(place.clone());
        self.ends.push(Reverse((until, number, place.clone())));
        self.names.insert(place, Told { fid, kept: Kept { number, ..kept }, is_expiring: false });
    }

    fn remove(&mut self, place: &Place) -> Option<Told> {
        let told = self.names.remove(place)?;
        if let Some(places) = self.of_file.get_mut(&told.fid) {
            places.retain(|other| other != place);
            if places.is_empty() {
                self.of_file.remove(&told.fid);
            }
        }
        Some(told)
    }

    fn forget_past(&mut self, now: Time) {
        for _ in 0..PAST_MAX {
            let Some(first) = self.ends.peek_mut().filter(|first| first.0.0 <= now) else { return };
            let Reverse((_, number, place)) = PeekMut::pop(first);
            // A change that holds the directory's lock may be using what is being expired.
            if !self.names.get(&place).is_some_and(|told| told.is_expiring) {
                self.expired(&place, number);
            }
        }
    }

    /// The kernel moves a name, and what it knows of the old one goes along; with `exchange`, both ways.
    pub fn moved(&mut self, from: &Place, to: &Place, exchange: bool) {
        if from == to {
            return;
        }
        let there = self.names.get(to).map(|told| (told.fid, told.kept.clone()));
        if let Some((fid, kept)) = self.names.get(from).map(|told| (told.fid, told.kept.clone())) {
            self.insert(fid, Kept { place: to.clone(), ..kept });
        }
        if let Some((fid, kept)) = there.filter(|_| exchange) {
            self.insert(fid, Kept { place: from.clone(), ..kept });
        }
    }

    /// The kernel does not keep `place` any more, if it was told of it last by answer `number`.
    pub fn expired(&mut self, place: &Place, number: u64) {
        if self.names.get(place).is_some_and(|told| told.kept.number == number) {
            self.remove(place);
        }
    }

    /// Whoever was told of `place` until answer `number` has used what it was told by `now`: the kernel has counted since then.
    pub fn used(&mut self, place: &Place, number: u64, now: Time) {
        if let Some(told) = self.names.get_mut(place).filter(|told| told.kept.number == number) {
            told.kept.until = told.kept.until.min(now + told.kept.time + TICKS);
        }
    }

    /// Until when the kernel may keep a name of `fid`.
    pub fn is_kept(&self, fid: Fid, now: Time) -> Option<Time> {
        self.live(fid).map(|told| told.kept.until).filter(|until| *until > now).max()
    }

    fn live(&self, fid: Fid) -> impl Iterator<Item = &Told> {
        self.of_file.get(&fid).into_iter().flatten().filter_map(|place| self.names.get(place))
    }

    /// The names of `fid` that nobody is expiring yet; from now on the caller is.
    pub fn expire(&mut self, fid: Fid, now: Time) -> Vec<Kept> {
        let mut kept = Vec::new();
        for place in self.of_file.get(&fid).cloned().unwrap_or_default() {
            let Some(told) = self.names.get_mut(&place) else { continue };
            if !std::mem::replace(&mut told.is_expiring, true) {
                kept.push(told.kept.clone());
            }
        }
        for name in &kept {
            self.is_called_back(name.place.0, now);
        }
        kept
    }

    /// Somebody else changes a name in `dir`. If that happens again and again, the kernel keeps none of them for a while.
    fn is_called_back(&mut self, dir: u64, now: Time) {
        if self.called_back.len() >= BUSY_DIRS_MAX {
            self.called_back.retain(|_, (since, _)| *since + CALLED_BACK_IN > now);
            if self.called_back.len() >= BUSY_DIRS_MAX {
                return;
            }
        }
        let (since, count) = self.called_back.entry(dir).or_insert((now, 0));
        if *since + CALLED_BACK_IN <= now {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count >= CALLED_BACK_MAX {
            self.called_back.remove(&dir);
            if let Some(busy) = self.make_busy(dir, now) {
                busy.until = busy.until.max(now + BUSY);
            }
        }
    }

    fn make_busy(&mut self, dir: u64, now: Time) -> Option<&mut Busy> {
        self.busy.retain(|_, busy| busy.until + BUSY_MAX > now);
        if self.busy.len() >= BUSY_DIRS_MAX && !self.busy.contains_key(&dir) {
            return None;
        }
        Some(self.busy.entry(dir).or_insert(Busy { until: now, last: Duration::ZERO }))
    }

    /// Names of `fid` other than `place` that are being expired, and perhaps used until that is done.
    pub fn expiring_but(&self, fid: Fid, place: &Place) -> Vec<Place> {
        let expiring = self.live(fid).filter(|told| told.is_expiring && told.kept.place != *place);
        expiring.map(|told| told.kept.place.clone()).collect()
    }

    /// All files of which the kernel keeps a name.
    pub fn files(&self) -> Vec<Fid> {
        self.of_file.keys().copied().collect()
    }

    /// A name in `dir` was not expired before its time was over: the kernel keeps none of that directory for a while.
    pub fn is_late(&mut self, dir: u64, now: Time) {
        let Some(busy) = self.make_busy(dir, now) else { return };
        if busy.until <= now {
            busy.last = (busy.last * 2).clamp(BUSY, BUSY_MAX);
            busy.until = now + busy.last;
        }
    }

    fn is_busy(&self, dir: u64, now: Time) -> bool {
        self.busy.get(&dir).is_some_and(|busy| busy.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1;
    const KEPT: Duration = Duration::from_millis(250);
    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const OTHER: Fid = Fid { seq: 0x2_0000_0400, oid: 8, ver: 0 };

    impl Names {
        fn keeps(&mut self, fid: Fid, place: Place, thread: u32, now: Time) -> bool {
            !self.keep(fid, place, KEPT, thread, now).is_zero()
        }
    }

    fn place(name: &'static str) -> Place {
        (DIR, Bytes::from_static(name.as_bytes()))
    }

    fn kept(names: &Names) -> Vec<(Fid, &'static str)> {
        let all = ["a", "b"].into_iter();
        all.filter_map(|name| names.names.get(&place(name)).map(|told| (told.fid, name))).collect()
    }

    #[test]
    fn a_name_is_kept_until_it_is_expired_or_its_time_is_over() {
        let (mut names, now) = (Names::default(), Time::default());
        assert!(names.keeps(FILE, place("a"), 5, now));
        let until = now + KEPT + TO_USE_MAX;
        assert_eq!(names.is_kept(FILE, now), Some(until));
        assert_eq!(names.is_kept(FILE, until), None, "its time is over");
        let first = names.expire(FILE, now);
        assert_eq!(first.len(), 1);
        assert!(names.expiring_but(FILE, &place("a")).is_empty());
        names.forget_past(until);
        assert_eq!(names.expiring_but(FILE, &place("b")), [place("a")], "its directory is locked");
        assert!(names.expire(FILE, now).is_empty(), "somebody does it already");
        assert!(names.keeps(FILE, place("a"), 6, now));
        names.expired(&first[0].place, first[0].number);
        assert!(names.is_kept(FILE, now).is_some(), "it was told again meanwhile");
        let again = names.expire(FILE, now);
        assert_eq!(again[0].threads.len(), 2);
        names.expired(&again[0].place, again[0].number);
        assert_eq!(names.is_kept(FILE, now), None);
        assert!(names.of_file.is_empty());
    }

    #[test]
    fn the_time_of_a_name_begins_when_the_answer_is_used() {
        let (mut names, now) = (Names::default(), Time::default());
        assert!(names.keeps(FILE, place("a"), 5, now));
        let told = names.expire(FILE, now)[0].clone();
        names.used(&told.place, told.number + 1, now);
        assert_eq!(names.is_kept(FILE, now), Some(now + KEPT + TO_USE_MAX), "another answer was not used");
        names.used(&told.place, told.number, now);
        assert_eq!(names.is_kept(FILE, now), Some(now + KEPT + TICKS));
        names.used(&told.place, told.number, now + TO_USE_MAX);
        assert_eq!(names.is_kept(FILE, now), Some(now + KEPT + TICKS), "it does not begin again");
    }

    #[test]
    fn a_moved_name_keeps_its_end() {
        let (mut names, now) = (Names::default(), Time::default());
        assert!(names.keeps(FILE, place("a"), 5, now));
        let later = now + Duration::from_millis(300);
        assert!(names.keeps(OTHER, place("b"), 5, later));
        names.moved(&place("a"), &place("b"), true);
        assert_eq!(kept(&names), [(OTHER, "a"), (FILE, "b")]);
        assert_eq!(names.is_kept(FILE, later), Some(now + KEPT + TO_USE_MAX));
        assert_eq!(names.is_kept(OTHER, later), Some(later + KEPT + TO_USE_MAX));
        names.moved(&place("b"), &place("a"), false);
        assert_eq!(names.is_kept(OTHER, later), None, "it was replaced");
        names.forget_past(now + KEPT + TO_USE_MAX);
        assert!(names.names.is_empty() && names.of_file.is_empty());
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let (mut names, now) = (Names::default(), Time::default());
        for n in 0..NAMES_MAX as u64 {
            let fid = Fid { oid: n as u32 / 8, ..FILE };
            assert!(names.keeps(fid, (n, Bytes::from_static(b"a")), 5, now));
        }
        assert!(!names.keeps(FILE, place("b"), 5, now));
        assert!(names.keeps(FILE, place("b"), 5, now + KEPT + TO_USE_MAX), "there is room again");
        assert_eq!(
            (names.names.len(), names.ends.len()),
            (NAMES_MAX - PAST_MAX + 1, NAMES_MAX - PAST_MAX + 1)
        );
        for n in 0..LINKS_MAX {
            assert!(names.keeps(OTHER, (n as u64, Bytes::from_static(b"b")), 5, now + KEPT + TO_USE_MAX));
        }
        assert!(!names.keeps(OTHER, place("c"), 5, now + KEPT + TO_USE_MAX), "a file has too many");
    }

    #[test]
    fn names_take_a_part_of_the_memory() {
        let (mut names, now) = (Names::within(2 * MEMORY_PART * NAME_BYTES), Time::default());
        assert!(names.keeps(FILE, place("a"), 5, now) && names.keeps(OTHER, place("b"), 5, now));
        assert!(!names.keeps(FILE, place("c"), 5, now));
        assert_eq!(Names::within(u64::MAX).max, NAMES_MAX);
    }

    #[test]
    fn nobody_keeps_names_of_a_directory_that_is_busy() {
        let (mut names, now) = (Names::default(), Time::default());
        assert!(names.keeps(FILE, place("a"), 5, now));
        names.is_late(DIR, now);
        names.is_late(DIR, now);
        assert!(!names.keeps(OTHER, place("b"), 5, now));
        assert!(names.keeps(OTHER, (2, Bytes::from_static(b"b")), 5, now), "another directory");
        assert!(names.keeps(OTHER, place("b"), 5, now + BUSY));
        names.is_late(DIR, now + BUSY);
        assert!(!names.keeps(FILE, place("a"), 5, now + 2 * BUSY), "for twice as long");
        assert!(names.keeps(FILE, place("a"), 5, now + 3 * BUSY));
    }

    #[test]
    fn a_directory_whose_names_others_change_again_and_again_is_busy() {
        let (mut names, now) = (Names::default(), Time::default());
        let mut change = |times: u32, now: Time| {
            (0..times).all(|_| {
                let is_kept = names.keeps(FILE, place("a"), 5, now);
                for kept in names.expire(FILE, now) {
                    names.expired(&kept.place, kept.number);
                }
                is_kept
            })
        };
        assert!(change(CALLED_BACK_MAX - 1, now));
        let later = now + CALLED_BACK_IN;
        assert!(change(CALLED_BACK_MAX, later), "they were not within the time");
        assert!(!change(1, later));
        assert!(change(1, later + BUSY));
    }

    #[test]
    fn a_name_that_many_are_told_at_once_is_not_kept() {
        let (mut names, now) = (Names::default(), Time::default());
        for thread in 1..=THREADS_MAX as u32 {
            assert!(names.keeps(FILE, place("a"), thread, now));
        }
        assert!(!names.keeps(FILE, place("a"), 99, now));
        assert!(names.keeps(FILE, place("a"), 99, now + TO_USE_MAX));
    }
}
