//! What is held of one object.

use smallvec::SmallVec;

use super::spans::{Span, Spans};
use super::{Ask, Holder, Mode, Range};

/// The held ranges of one object, by session. No two of different sessions overlap of which one is to change bytes.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Of all sessions.
    writes: Spans,
    /// Who holds something, by session.
    holders: SmallVec<[Of; 1]>,
}

/// What one session holds.
#[derive(Debug)]
struct Of {
    holder: Holder,
    /// Number of its spans in [`Holdings::writes`].
    writes: usize,
    /// Do not overlap with those.
    reads: Spans,
}

/// What a session gets.
pub(super) struct Grant {
    pub range: Range,
    pub number: u64,
    /// It is more than was asked for.
    pub grown: bool,
}

impl Holdings {
    /// How many ranges are held.
    pub fn len(&self) -> usize {
        self.writes.len() + self.holders.iter().map(|of| of.reads.len()).sum::<usize>()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Whether it has memory beside its own.
    #[cfg(test)]
    pub fn has_heap(&self) -> bool {
        self.writes.has_heap() || self.holders.spilled()
    }

    /// Every span, and whether its bytes may be changed.
    pub fn spans(&self) -> impl Iterator<Item = (&Span, bool)> {
        let reads = self.holders.iter().flat_map(|of| of.reads.overlapping(Range::ALL));
        self.writes.overlapping(Range::ALL).map(|span| (span, true)).chain(reads.map(|span| (span, false)))
    }

    /// How many ranges `holder` holds.
    pub fn ranges_of(&self, holder: Holder) -> usize {
        self.of(holder).map_or(0, |of| of.writes + of.reads.len())
    }

    /// Whether `holder` holds every byte of `range`.
    pub fn holds_all(&self, holder: Holder, mode: Mode, range: Range) -> bool {
        let writes = self.writes.overlapping(range).filter(|span| span.holder == holder);
        let reads = self.of(holder).into_iter().flat_map(|of| of.reads.overlapping(range));
        let reads = reads.filter(|_| !mode.writes());
        let covered: u64 =
            writes.chain(reads).filter_map(|span| span.range.intersection(range)).map(Range::len).sum();
        covered == range.len()
    }

    /// Who may change some of it, besides `except`.
    pub fn writers(&self, except: Holder) -> Vec<Holder> {
        let writes = self.holders.iter().filter(|of| of.writes > 0 && of.holder != except);
        writes.map(|of| of.holder).collect()
    }

    /// Whether somebody besides `holder` holds anything.
    pub fn has_others(&self, holder: Holder) -> bool {
        self.holders.iter().any(|of| of.holder != holder)
    }

    /// Whether who asks may change some of what it asks for.
    pub fn own_write_overlaps(&self, ask: &Ask) -> bool {
        self.writes.overlapping(ask.range).any(|span| span.holder == ask.holder)
    }

    /// Whether `holder` may read some of `range`, and not change it.
    pub fn reads(&self, holder: Holder, range: Range) -> bool {
        self.of(holder).is_some_and(|of| of.reads.overlapping(range).next().is_some())
    }

    /// Others' spans that `ask` cannot share.
    pub fn conflicts(&self, ask: &Ask) -> impl Iterator<Item = (&Span, bool)> {
        let (holder, range, write) = (ask.holder, ask.range, ask.mode.writes());
        let writes = self.writes.overlapping(range).filter(move |span| span.holder != holder);
        let readers = self.holders.iter().filter(move |of| write && of.holder != holder);
        let reads = readers.flat_map(move |of| of.reads.overlapping(range));
        writes.map(|span| (span, true)).chain(reads.map(|span| (span, false)))
    }

    /// Whether others may change what lies right beside what is asked for: more of it would soon be called back.
    pub fn is_beside_writers(&self, ask: &Ask) -> bool {
        self.writes.overlapping(around(ask.range)).any(|span| span.holder != ask.holder)
    }

    /// What of `room`, which is around what is asked for, conflicts with nobody who holds.
    pub fn room(&self, ask: &Ask, mut room: Range) -> Range {
        let (asked, holder, write) = (ask.range, ask.holder, ask.mode.writes());
        let mut narrow = |span: &Span| room = narrowed(room, asked, span.range);
        // A grant to read does not reach into what the same session may change.
        let other = |span: &&Span| span.holder != holder || !write;
        self.writes.until(asked.start).find(other).into_iter().for_each(&mut narrow);
        self.writes.from(asked.end).find(other).into_iter().for_each(&mut narrow);
        self.writes.overlapping(asked).filter(other).for_each(&mut narrow);
        for of in self.holders.iter().filter(|of| write && of.holder != holder) {
            of.reads.last_before(asked.start).into_iter().for_each(&mut narrow);
            of.reads.from(asked.end).next().into_iter().for_each(&mut narrow);
        }
        room
    }

    /// What is asked for with what the session holds beside it within `room`, and whether that was grown.
    pub fn joined(&self, ask: &Ask, room: Range) -> (Range, bool) {
        let asked = ask.range;
        let around = around(asked);
        let (mut joined, mut grown) = (asked, false);
        let mut join = |span: &Span| {
            let Some(range) = span.range.intersection(room) else { return };
            joined = joined.hull(range);
            grown |= span.grown;
        };
        match ask.mode.writes() {
            true => self.writes.overlapping(around).filter(|s| s.holder == ask.holder).for_each(&mut join),
            false => {
                self.of(ask.holder)
                    .into_iter()
                    .for_each(|of| of.reads.overlapping(around).for_each(&mut join));
            }
        }
        (joined, grown)
    }

    /// Enters a grant; gives whether it may be changed.
    pub fn put_grant(&mut self, ask: &Ask, grant: Grant) -> bool {
        let (holder, Grant { range, number, grown }) = (ask.holder, grant);
        self.cut_reads(holder, range, u64::MAX);
        let written = self.cut_writes(holder, range, u64::MAX);
        if ask.mode.writes() {
            self.put(Mode::Write, Span { range, number, holder, grown });
            return true;
        }
        // What it may change it keeps, under the new number: the client cannot tell which of its grants a byte has.
        let mut from = range.start;
        for span in written {
            if from < span.range.start {
                let gap = Range { start: from, end: span.range.start };
                self.put(Mode::Read, Span { range: gap, number, holder, grown });
            }
            from = span.range.end;
            self.put(Mode::Write, Span { number, ..span });
        }
        if from < range.end {
            self.put(
                Mode::Read,
                Span { range: Range { start: from, end: range.end }, number, holder, grown },
            );
        }
        false
    }

    /// `holder` gives up what it was granted of `range` up to `number`.
    pub fn give_up(&mut self, holder: Holder, range: Range, number: u64) {
        self.cut_writes(holder, range, number);
        self.cut_reads(holder, range, number);
    }

    /// `holder` may only read what it was granted to change of `range` up to `number`.
    pub fn give_up_writing(&mut self, holder: Holder, range: Range, number: u64) {
        for span in self.cut_writes(holder, range, number) {
            self.put(Mode::Read, Span { grown: false, ..span });
        }
    }

    /// Nothing is held any more. Gives those who held something.
    pub fn clear(&mut self) -> Vec<Holder> {
        let holders = self.holders.iter().map(|of| of.holder).collect();
        *self = Holdings::default();
        holders
    }

    /// What `holder` did not give up beside `range` it needs.
    pub fn is_all_used(&mut self, holder: Holder, range: Range) {
        let around = Range { start: range.start.saturating_sub(1), end: range.end.saturating_add(1) };
        let trimmed = |span: &Span| span.grown && span.holder == holder;
        let writes: SmallVec<[Range; 2]> =
            self.writes.overlapping(around).filter(|s| trimmed(s)).map(|s| s.range).collect();
        for part in writes {
            for span in self.writes.cut(part, trimmed) {
                self.writes.put(Span { grown: false, ..span });
            }
        }
        let Ok(at) = self.holders.binary_search_by_key(&holder, |of| of.holder) else { return };
        let reads = &mut self.holders[at].reads;
        let parts: SmallVec<[Range; 2]> =
            reads.overlapping(around).filter(|s| s.grown).map(|s| s.range).collect();
        for part in parts {
            for span in reads.cut(part, |span| span.grown) {
                reads.put(Span { grown: false, ..span });
            }
        }
    }

    fn of(&self, holder: Holder) -> Option<&Of> {
        self.holders.binary_search_by_key(&holder, |of| of.holder).ok().and_then(|at| self.holders.get(at))
    }

    fn of_mut(&mut self, holder: Holder) -> &mut Of {
        let at = match self.holders.binary_search_by_key(&holder, |of| of.holder) {
            Ok(at) => at,
            Err(at) => {
                self.holders.insert(at, Of { holder, writes: 0, reads: Spans::default() });
                at
            }
        };
        &mut self.holders[at]
    }

    fn cut_writes(&mut self, holder: Holder, range: Range, number: u64) -> Vec<Span> {
        let before = self.writes.len();
        let taken = self.writes.cut(range, |span| span.holder == holder && span.number <= number);
        let after = self.writes.len();
        if !taken.is_empty() {
            let of = self.of_mut(holder);
            of.writes = of.writes + after - before;
            self.forget_empty(holder);
        }
        taken
    }

    fn cut_reads(&mut self, holder: Holder, range: Range, number: u64) -> Vec<Span> {
        let Ok(at) = self.holders.binary_search_by_key(&holder, |of| of.holder) else { return Vec::new() };
        let taken = self.holders[at].reads.cut(range, |span| span.number <= number);
        self.forget_empty(holder);
        taken
    }

    fn put(&mut self, mode: Mode, span: Span) {
        let of = self.of_mut(span.holder);
        match mode {
            Mode::Write => {
                of.writes += 1;
                self.writes.put(span);
            }
            Mode::Read => of.reads.put(span),
        }
    }

    fn forget_empty(&mut self, holder: Holder) {
        self.holders.retain(|of| of.holder != holder || of.writes > 0 || !of.reads.is_empty());
    }
}

/// `range`, and a byte on each side.
fn around(range: Range) -> Range {
    Range { start: range.start.saturating_sub(1), end: range.end.saturating_add(1) }
}

/// What of `room`, which has `asked` in it, is left beside `other`.
pub(super) fn narrowed(mut room: Range, asked: Range, other: Range) -> Range {
    if other.start < asked.start {
        room.start = room.start.max(other.end.min(asked.start));
    }
    if other.end > asked.end {
        room.end = room.end.min(other.start.max(asked.end));
    }
    room
}
