//! Files that are open: who has them, and whether their size can be known.
//!
//! While a file is open for writing the MDT does not know its size (`docs/wire.md#sizes`). When its last writer
//! closes, the size is known again if nobody wrote, or if everybody who wrote told it. The table is memory; who has
//! what open for writing is in the store too, so that a restart does not take a file that is being written for closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use proto::wire::messages::SizeUpdate;
use proto::{ClientId, Fid, Timestamp};
use smallvec::SmallVec;

use super::cuts::{Cuts, Cutter};

/// Parts of the table that are locked apart; a power of two.
const SHARDS: usize = 64;
/// Files of one part of which it is remembered which session was asked for the size.
const ASKED_MAX: usize = 4096;

/// Whose open file it is: session and handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// Handle of the session.
    pub session: u64,
    /// Handle of the open file, unique in the session.
    pub handle: u64,
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    opener: Opener,
    write: bool,
    /// Another session has cut the file since: a size that comes with the close may be one of before, and arrive late.
    outdated: bool,
}

/// Files that are open, and those that are cut.
#[derive(Debug, Default)]
struct Shard {
    open: HashMap<Fid, OpenFile>,
    cuts: Cuts,
    /// Who was asked for the size of a file, until somebody else opens it for writing or cuts it, or another one is asked.
    asked: HashMap<Fid, Question>,
}

/// The size of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question {
    session: u64,
    /// Not 0, and no other one's.
    number: u64,
}

/// What makes a session tell a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It has cut the file.
    Cut,
    /// It answers the question of this number.
    Asked(u64),
}

impl Shard {
    fn begin_cut(&mut self, fid: Fid, cutter: Cutter) {
        self.asked.remove(&fid);
        self.cuts.begin(fid, cutter);
    }

    /// Whether the size that `session` tells with a close counts, and whether it has cut the file. It has asked for it behind its own cuts.
    fn told_at_close(&mut self, fid: Fid, session: u64) -> (bool, bool) {
        let ended = self.cuts.end(fid, session);
        let counts = ended.unwrap_or(true) && !self.cuts.is_cut_by_another(fid, session);
        (counts, ended.is_some())
    }
}

/// One open file.
#[derive(Debug, Default)]
struct OpenFile {
    handles: SmallVec<[Handle; 2]>,
    size: SizeState,
    /// Several sessions had it open for writing at the same time: what each of them asked the objects may have been
    /// answered before another one's last write.
    shared: bool,
    /// When the time of access was set last: a close may bring an access of before.
    atime_set: Option<Timestamp>,
}

/// What is known of the size of a file since it was opened for writing.
#[derive(Debug, Default)]
enum SizeState {
    /// Nobody wrote: what the inode says is true.
    #[default]
    Unchanged,
    /// Everybody who closed told the size.
    Told(SizeUpdate),
    /// It cannot be known from the closes alone.
    Unknown,
}

/// What a close means.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed {
    /// It was open for writing.
    pub write: bool,
    /// Nobody has the file open any more.
    pub last: bool,
    /// The session has cut the file, and is done with that.
    pub cut: bool,
    /// What becomes of the size.
    pub size: ClosedSize,
}

/// What becomes of the size of a file when somebody closes it.
#[derive(Debug, PartialEq, Eq)]
pub enum ClosedSize {
    /// Nothing: others still write, or it was open for reading.
    Stays,
    /// Nobody wrote: the old size is true again.
    AsBefore,
    /// This is it.
    Told(SizeUpdate),
    /// Somebody wrote and did not tell.
    Unknown,
}

/// Every open file of an MDT. The caller holds the lock of the inode that it asks for.
pub struct Opens {
    shards: Box<[Mutex<Shard>]>,
    /// The number of the last question.
    questions: AtomicU64,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenMode {
    /// To be written, too.
    pub write: bool,
    /// The MDT knew its size before.
    pub size_known: bool,
}

impl Opens {
    /// Nothing is open. `start` is another number in each start of the target, so that no answer to a question of before counts.
    pub fn new(start: u64) -> Opens {
        Opens { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), questions: AtomicU64::new(start) }
    }

    fn shard(&self, fid: Fid) -> MutexGuard<'_, Shard> {
        self.shards[(fid.oid as usize ^ fid.seq as usize) & (SHARDS - 1)].lock()
    }

    /// `opener` has the file open.
    pub fn open(&self, fid: Fid, opener: Opener, how: OpenMode) {
        let OpenMode { write, size_known } = how;
        self.add(fid, Handle { opener, write, outdated: false }, size_known);
    }

    /// `opener` had the file open for writing before the target restarted. What happened to it since it was opened is not known any
    /// more.
    pub fn restore(&self, fid: Fid, opener: Opener) {
        self.add(fid, Handle { opener, write: true, outdated: true }, false);
    }

    fn add(&self, fid: Fid, handle: Handle, size_known: bool) {
        let Handle { opener, write, .. } = handle;
        let mut shard = self.shard(fid);
        if write && shard.asked.get(&fid).is_some_and(|asked| asked.session != opener.session) {
            shard.asked.remove(&fid);
        }
        let file = shard.open.entry(fid).or_default();
        if file.handles.iter().any(|handle| handle.opener == opener) {
            return;
        }
        if write && !file.is_written() {
            file.size = if size_known { SizeState::Unchanged } else { SizeState::Unknown };
        }
        let with_others = file.handles.iter().any(|h| h.write && h.opener.session != opener.session);
        file.shared |= write && with_others;
        file.handles.push(handle);
    }

    /// `opener` has the file open no more; `None` if it had not.
    pub fn close(&self, fid: Fid, opener: Opener, wrote: bool, size: Option<SizeUpdate>) -> Option<Closed> {
        let mut shard = self.shard(fid);
        let file = shard.open.get_mut(&fid)?;
        let at = file.handles.iter().position(|handle| handle.opener == opener)?;
        let Handle { write, outdated, .. } = file.handles.swap_remove(at);
        let mut cut = false;
        if write {
            shard.cuts.was_written(fid, opener.session);
            let mut told = size;
            // It is done with its own cuts, whether this counts or not.
            if told.is_some() {
                let (counts, has_cut) = shard.told_at_close(fid, opener.session);
                told = told.filter(|_| counts && !outdated);
                cut = has_cut;
            }
            shard.open.get_mut(&fid)?.add(wrote || outdated, told);
        }
        let file = shard.open.get_mut(&fid)?;
        let size = if !write || file.is_written() { ClosedSize::Stays } else { file.settled() };
        let last = file.handles.is_empty();
        if last {
            shard.open.remove(&fid);
        }
        Some(Closed { write, last, cut, size })
    }

    /// Whether `opener` has the file open, and for writing.
    pub fn is_writer(&self, fid: Fid, opener: Opener) -> bool {
        let shard = self.shard(fid);
        shard.open.get(&fid).is_some_and(|file| file.handles.iter().any(|h| h.write && h.opener == opener))
    }

    /// Whether `opener` has the file open for writing, and nobody else has.
    pub fn is_last_writer(&self, fid: Fid, opener: Opener) -> bool {
        let shard = self.shard(fid);
        let Some(file) = shard.open.get(&fid) else { return false };
        let mut writers = file.handles.iter().filter(|handle| handle.write);
        writers.next().is_some_and(|first| first.opener == opener) && writers.next().is_none()
    }

    /// Whether anybody has the file open for writing.
    pub fn is_written(&self, fid: Fid) -> bool {
        self.shard(fid).open.get(&fid).is_some_and(OpenFile::is_written)
    }

    /// Whether a session that lives cuts the file, and may not be done with its objects.
    pub fn is_cut(&self, fid: Fid) -> bool {
        self.shard(fid).cuts.is_cut(fid)
    }

    /// Whether `session` cuts the file, as far as the MDT knows.
    pub fn is_cut_by(&self, fid: Fid, session: u64) -> bool {
        self.shard(fid).cuts.is_cut_by(fid, session)
    }

    /// The clients that cut the file, as far as the MDT knows.
    pub fn cutters(&self, fid: Fid) -> SmallVec<[ClientId; 1]> {
        self.shard(fid).cuts.clients(fid)
    }

    /// Whether there is room to remember a cut of the file.
    pub fn takes_cut(&self, fid: Fid) -> bool {
        self.shard(fid).cuts.takes(fid)
    }

    /// The file is no more.
    pub fn gone(&self, fid: Fid) {
        let mut shard = self.shard(fid);
        shard.asked.remove(&fid);
        shard.cuts.gone(fid);
    }

    /// A session is over: it cuts nothing any more. Says what it has cut.
    pub fn ended(&self, session: u64) -> Vec<Fid> {
        let of_shard = |shard: &Mutex<Shard>| {
            let mut shard = shard.lock();
            shard.asked.retain(|_, asked| asked.session != session);
            shard.cuts.ended(session)
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    /// Whether one session has the file open for writing, and it is not `session`.
    pub fn is_written_by_another_alone(&self, fid: Fid, session: u64) -> bool {
        let shard = self.shard(fid);
        let Some(file) = shard.open.get(&fid) else { return false };
        let mut writers =
            file.handles.iter().filter(|handle| handle.write).map(|handle| handle.opener.session);
        let first = writers.next().filter(|first| *first != session);
        first.is_some_and(|first| writers.all(|other| other == first))
    }

    /// Whether anybody has the file open.
    pub fn is_open(&self, fid: Fid) -> bool {
        self.shard(fid).open.contains_key(&fid)
    }

    /// The time of access is set by a call of `time`. Nothing is kept of a file that nobody has open: no access of before is
    /// on its way then.
    pub fn set_atime(&self, fid: Fid, time: Timestamp) {
        if let Some(file) = self.shard(fid).open.get_mut(&fid) {
            file.atime_set = file.atime_set.max(Some(time));
        }
    }

    /// Whether the time of access was set after `time`, since the file was opened.
    pub fn atime_was_set_after(&self, fid: Fid, time: Timestamp) -> bool {
        self.shard(fid).open.get(&fid).is_some_and(|file| file.atime_set >= Some(time))
    }

    /// Has `session` ask the objects for the size, which the MDT does not know, and tell it: nobody has the file open to write or cuts it. What
    /// it has asked before does not count. `takes_over`: nor what another one was asked for. The number of the question; 0 if there is none.
    pub fn ask(&self, fid: Fid, session: u64, takes_over: bool) -> u64 {
        let mut shard = self.shard(fid);
        let is_written = shard.open.get(&fid).is_some_and(OpenFile::is_written);
        if is_written || shard.cuts.is_cut(fid) {
            return 0;
        }
        let is_asked = shard.asked.get(&fid).is_some_and(|asked| asked.session != session);
        if is_asked && !takes_over {
            return 0;
        }
        if shard.asked.len() >= ASKED_MAX {
            shard.asked.clear();
        }
        let number = loop {
            match self.questions.fetch_add(1, Ordering::Relaxed) {
                0 => {}
                number => break number,
            }
        };
        shard.asked.insert(fid, Question { session, number });
        number
    }

    /// `cutter` cuts the file: what closes told is not true any more, nor what others may be about to tell.
    pub fn truncated(&self, fid: Fid, cutter: Cutter) {
        let mut shard = self.shard(fid);
        shard.begin_cut(fid, cutter);
        if let Some(file) = shard.open.get_mut(&fid) {
            file.size = SizeState::Unknown;
            let session = cutter.session;
            file.handles.iter_mut().for_each(|handle| handle.outdated |= handle.opener.session != session);
        }
    }

    /// `cutter` cut the file when the target restarted; `false` if there is no room to remember it.
    pub fn restore_cut(&self, fid: Fid, cutter: Cutter) -> bool {
        let mut shard = self.shard(fid);
        shard.asked.remove(&fid);
        let is_remembered = shard.cuts.takes(fid);
        shard.cuts.restore(fid, cutter);
        is_remembered
    }

    /// `cutter` has cut the file, and is done with that, as it says: the MDT did not know.
    pub fn was_cut(&self, fid: Fid, cutter: Cutter) {
        self.truncated(fid, cutter);
        let _ = self.shard(fid).cuts.end(fid, cutter.session);
    }

    /// `session`, which has cut the file or was asked, says that the size is `update`. True if it can be known now: nobody has the file open
    /// for writing, and nobody else has changed it since. If only `session` itself has it open, the size counts when that is closed.
    pub fn set_size(&self, fid: Fid, session: u64, told: Told, update: &SizeUpdate) -> bool {
        let mut shard = self.shard(fid);
        let (ended, was_asked) = match told {
            Told::Cut => (shard.cuts.end(fid, session), false),
            Told::Asked(number) => (None, shard.asked.get(&fid) == Some(&Question { session, number })),
        };
        let counts = ended.unwrap_or(was_asked);
        let counts = counts && !shard.cuts.is_cut_by_another(fid, session);
        let Some(file) = shard.open.get_mut(&fid).filter(|file| file.is_written()) else {
            if counts {
                shard.asked.remove(&fid);
            }
            return counts;
        };
        let mut writers = file.handles.iter_mut().filter(|handle| handle.write);
        if writers.all(|handle| handle.opener.session == session) {
            if counts {
                file.size = SizeState::Told(update.clone());
            }
        } else if ended.is_some() {
            // They may have asked the objects before the cut.
            file.handles.iter_mut().for_each(|handle| handle.outdated |= handle.opener.session != session);
        }
        false
    }
}

impl OpenFile {
    fn is_written(&self) -> bool {
        self.handles.iter().any(|handle| handle.write)
    }

    /// One writer less.
    fn add(&mut self, wrote: bool, size: Option<SizeUpdate>) {
        let before = std::mem::take(&mut self.size);
        self.size = match (before, size) {
            (before, None) if !wrote => before,
            (_, None) => SizeState::Unknown,
            // A session tells sizes in the order in which it learnt them.
            (SizeState::Told(_) | SizeState::Unchanged, Some(size)) => SizeState::Told(size),
            // Who wrote before may have data on its way; the last one to write has seen all that came.
            (SizeState::Unknown, Some(size)) if !self.is_written() => SizeState::Told(size),
            (SizeState::Unknown, Some(_)) => SizeState::Unknown,
        };
    }

    /// The outcome, when nobody has the file open for writing any more.
    fn settled(&mut self) -> ClosedSize {
        match (std::mem::take(&mut self.size), std::mem::take(&mut self.shared)) {
            (SizeState::Told(_), true) => ClosedSize::Unknown,
            (SizeState::Unchanged, _) => ClosedSize::AsBefore,
            (SizeState::Told(size), false) => ClosedSize::Told(size),
            (SizeState::Unknown, _) => ClosedSize::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use proto::Timestamp;

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const A: Opener = Opener { session: 1, handle: 1 };
    const B: Opener = Opener { session: 2, handle: 1 };

    fn size(size: u64) -> SizeUpdate {
        SizeUpdate { size, blocks: 0, mtime: Timestamp::default(), ctime: Timestamp::default() }
    }

    fn cutter(who: Opener) -> Cutter {
        Cutter { session: who.session, client: ClientId(who.session.into()) }
    }

    thread_local! {
        static QUESTION: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether a session is asked; what it tells next answers that.
    fn asked(opens: &Opens, session: u64, takes_over: bool) -> bool {
        let question = opens.ask(FILE, session, takes_over);
        QUESTION.with(|last| last.set(if question != 0 { question } else { last.get() }));
        question != 0
    }

    fn tells(opens: &Opens, session: u64, cut: bool, told: u64) -> bool {
        let told_as = if cut { Told::Cut } else { Told::Asked(QUESTION.with(Cell::get)) };
        opens.set_size(FILE, session, told_as, &size(told))
    }

    /// A session is asked, another one comes in between, and it is asked again: what it had asked the objects first comes late.
    #[test]
    fn an_answer_to_an_earlier_question_does_not_count() {
        let opens = Opens::new(u64::MAX);
        let first = opens.ask(FILE, A.session, true);
        opens.open(FILE, B, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, B, true, None), (true, ClosedSize::Unknown));
        let second = opens.ask(FILE, A.session, true);
        assert!(first != 0 && second != 0 && first != second);
        let tells = |number| opens.set_size(FILE, A.session, Told::Asked(number), &size(9));
        assert!(!tells(first) && !tells(0) && tells(second) && !tells(second));
    }

    fn closed(opens: &Opens, who: Opener, wrote: bool, told: Option<u64>) -> (bool, ClosedSize) {
        let closed = opens.close(FILE, who, wrote, told.map(size)).expect("it is open");
        (closed.last, closed.size)
    }

    #[test]
    fn one_writer() {
        let opens = Opens::new(0);
        for (wrote, told, expected) in [
            (false, None, ClosedSize::AsBefore),
            (true, Some(5), ClosedSize::Told(size(5))),
            (true, None, ClosedSize::Unknown),
        ] {
            opens.open(FILE, A, OpenMode { write: true, size_known: true });
            assert_eq!(closed(&opens, A, wrote, told), (true, expected));
        }
        assert_eq!(opens.close(FILE, A, false, None), None);
        assert!(!opens.is_open(FILE));
    }

    #[test]
    fn a_session_that_writes_alone_is_known() {
        let opens = Opens::new(0);
        assert!(!opens.is_written_by_another_alone(FILE, 2));
        opens.open(FILE, B, OpenMode { write: false, size_known: true });
        assert!(!opens.is_written_by_another_alone(FILE, 1), "it only reads");
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.open(FILE, Opener { handle: 2, ..A }, OpenMode { write: true, size_known: false });
        assert!(opens.is_written_by_another_alone(FILE, 2));
        assert!(!opens.is_written_by_another_alone(FILE, 1));
        opens.open(FILE, Opener { handle: 2, ..B }, OpenMode { write: true, size_known: false });
        assert!(!opens.is_written_by_another_alone(FILE, 3), "two write");
    }

    #[test]
    fn several_writers() {
        let opens = Opens::new(0);
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.open(FILE, B, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, A, true, Some(100)), (false, ClosedSize::Stays));
        // Neither knows whether the other wrote after it had asked the objects.
        assert_eq!(closed(&opens, B, true, Some(50)), (true, ClosedSize::Unknown));
        let again = Opener { handle: 2, ..A };
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.open(FILE, again, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, A, true, Some(100)), (false, ClosedSize::Stays));
        assert_eq!(closed(&opens, again, true, Some(50)), (true, ClosedSize::Told(size(50))));
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.open(FILE, B, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, A, true, None), (false, ClosedSize::Stays));
        assert_eq!(closed(&opens, B, false, None), (true, ClosedSize::Unknown));
        opens.open(FILE, A, OpenMode { write: false, size_known: true });
        opens.open(FILE, B, OpenMode { write: true, size_known: true });
        assert_eq!(closed(&opens, B, false, None), (false, ClosedSize::AsBefore));
        assert_eq!(closed(&opens, A, false, None), (true, ClosedSize::Stays));
    }

    #[test]
    fn a_size_that_was_not_known_is_not_known_because_nobody_wrote() {
        let opens = Opens::new(0);
        opens.open(FILE, A, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, A, false, None), (true, ClosedSize::Unknown));
        opens.open(FILE, A, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, A, false, Some(9)), (true, ClosedSize::Told(size(9))));
    }

    #[test]
    fn who_cut_the_file_tells_its_size() {
        let opens = Opens::new(0);
        assert!(!tells(&opens, 1, true, 3), "it has not cut it");
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.truncated(FILE, cutter(A));
        assert!(!tells(&opens, 2, true, 3));
        assert!(!tells(&opens, 1, true, 4));
        assert_eq!(closed(&opens, A, false, None), (true, ClosedSize::Told(size(4))));
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.truncated(FILE, cutter(A));
        assert_eq!(closed(&opens, A, false, None), (true, ClosedSize::Unknown));
        opens.open(FILE, A, OpenMode { write: false, size_known: true });
        assert!(tells(&opens, 1, true, 3));
    }

    /// A asks the objects for the size, B cuts the file, and what A tells comes after that.
    #[test]
    fn a_size_of_before_a_cut_does_not_count() {
        let opens = Opens::new(0);
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.truncated(FILE, cutter(B));
        assert_eq!(closed(&opens, A, true, Some(634)), (true, ClosedSize::Unknown));
        opens.truncated(FILE, cutter(A));
        opens.truncated(FILE, cutter(B));
        assert!(!tells(&opens, A.session, true, 634), "B has cut it since");
        assert!(!tells(&opens, B.session, true, 231), "A may have cut it since");
        assert!(asked(&opens, B.session, true) && tells(&opens, B.session, false, 231));
        opens.truncated(FILE, cutter(A));
        opens.open(FILE, B, OpenMode { write: true, size_known: false });
        assert_eq!(closed(&opens, B, true, Some(700)), (true, ClosedSize::Unknown), "A may cut it yet");
        assert!(!tells(&opens, A.session, true, 634), "B has written since");
        opens.restore(FILE, A);
        assert_eq!(
            closed(&opens, A, true, Some(634)),
            (true, ClosedSize::Unknown),
            "cut before the restart, perhaps"
        );
    }

    #[test]
    fn the_same_open_counts_once() {
        let opens = Opens::new(0);
        opens.open(FILE, A, OpenMode { write: true, size_known: true });
        opens.open(FILE, A, OpenMode { write: true, size_known: false });
        assert!(opens.is_writer(FILE, A) && opens.is_open(FILE) && !opens.is_writer(FILE, B));
        assert_eq!(closed(&opens, A, false, None), (true, ClosedSize::AsBefore));
    }

    /// One session at a time is to tell a size that nobody knows, and what it has asked the objects before does not count.
    #[test]
    fn a_size_that_nobody_knows_is_asked_for() {
        let opens = Opens::new(0);
        opens.restore(FILE, A);
        assert!(!asked(&opens, A.session, true), "its writer will close it");
        assert_eq!(
            closed(&opens, A, true, Some(7)),
            (true, ClosedSize::Unknown),
            "told of before the restart"
        );
        assert!(!tells(&opens, A.session, false, 7), "nobody has asked for it");
        assert!(asked(&opens, A.session, true) && asked(&opens, A.session, true));
        assert!(!asked(&opens, B.session, false), "another one is about to tell");
        assert!(tells(&opens, A.session, false, 9));
        // Who opens it to write meanwhile knows better.
        opens.open(FILE, B, OpenMode { write: true, size_known: false });
        assert!(!tells(&opens, A.session, false, 9) && !asked(&opens, A.session, true));
        assert_eq!(closed(&opens, B, false, None), (true, ClosedSize::Unknown), "it had not been known");
        assert!(asked(&opens, B.session, true) && !asked(&opens, A.session, false));
        opens.ended(B.session);
        assert!(asked(&opens, A.session, false), "the one that was to tell is gone");
    }

    /// What others tell of a file does not count as long as somebody cuts it, nor what they asked the objects before he was done.
    #[test]
    fn a_cut_counts_alone() {
        let told = |opens: &Opens, who: Opener, cut| tells(opens, who.session, cut, 3);
        let writes = |opens: &Opens, who| opens.open(FILE, who, OpenMode { write: true, size_known: false });
        // Alone.
        let opens = Opens::new(0);
        opens.truncated(FILE, cutter(A));
        assert!(opens.is_cut(FILE) && !asked(&opens, B.session, true) && !told(&opens, B, false));
        assert!(told(&opens, A, true) && !opens.is_cut(FILE));
        assert!(!told(&opens, A, true), "it is done already");
        // Another one opens it, writes and closes meanwhile: neither counts, and the one that was cutting is asked.
        opens.truncated(FILE, cutter(A));
        writes(&opens, B);
        assert_eq!(closed(&opens, B, true, Some(7)), (true, ClosedSize::Unknown));
        assert!(!asked(&opens, B.session, true), "somebody cuts it");
        assert!(!told(&opens, A, true) && asked(&opens, A.session, true) && told(&opens, A, false));
        // The other one closes it behind the cut: it may have asked before.
        opens.truncated(FILE, cutter(A));
        writes(&opens, B);
        assert!(!told(&opens, A, true));
        assert_eq!(closed(&opens, B, true, Some(7)), (true, ClosedSize::Unknown));
        assert!(asked(&opens, B.session, true));
        // Two at a time.
        opens.truncated(FILE, cutter(A));
        opens.truncated(FILE, cutter(B));
        assert!(!told(&opens, A, true) && !asked(&opens, A.session, true), "the other one cuts it");
        assert!(!told(&opens, B, true) && asked(&opens, B.session, true));
        // Forgotten by a restart.
        opens.was_cut(FILE, cutter(A));
        assert!(!opens.is_cut(FILE) && !told(&opens, B, false), "asked before the cut");
        assert!(asked(&opens, A.session, true) && told(&opens, A, false));
        // Not forgotten, but what others did meanwhile is.
        opens.restore_cut(FILE, cutter(A));
        assert!(!told(&opens, B, false) && !asked(&opens, B.session, true));
        assert!(!told(&opens, A, true) && asked(&opens, A.session, true) && told(&opens, A, false));
        // Gone.
        opens.truncated(FILE, cutter(A));
        opens.ended(A.session);
        assert!(asked(&opens, B.session, true));
        // One that cuts what it has open tells with its close.
        writes(&opens, A);
        opens.truncated(FILE, cutter(A));
        assert_eq!(closed(&opens, A, true, Some(9)), (true, ClosedSize::Told(size(9))));
        assert!(!opens.is_cut(FILE));
    }
}
