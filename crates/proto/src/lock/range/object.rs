//! The rules for one object.

use smallvec::SmallVec;

use super::contention::Contention;
use super::spans::{Span, Spans};
use super::{Ask, Call, Holder, Numbers, Output, Purpose, Range, Settings};
use crate::ids::ObjectId;
use crate::wire::messages::{RangeRevoked, Token};

/// What a step of an object needs of its table.
pub(super) struct Step<'a> {
    pub now: u64,
    pub object: ObjectId,
    pub numbers: &'a Numbers,
    pub settings: Settings,
    pub next_call: &'a mut u64,
    pub outputs: &'a mut Vec<Output>,
}

/// What is held of one object, who waits for it, and who was called back.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// Of all sessions.
    writes: Spans,
    /// Who holds something, by session.
    holders: SmallVec<[Of; 1]>,
    /// Only where there is, or was lately, more than one client.
    busy: Option<Box<Busy>>,
}

/// What one session holds.
#[derive(Debug)]
struct Of {
    holder: Holder,
    /// Number of its spans in [`Object::writes`].
    writes: usize,
    /// Do not overlap with those.
    reads: Spans,
}

#[derive(Debug, Default)]
struct Busy {
    /// Accesses under way.
    uses: Vec<Ask>,
    /// In the order of their arrival.
    waiting: Vec<Waiting>,
    /// Not answered yet.
    calls: Vec<Call>,
    contention: Contention,
    /// The table will look whether the contention has ended.
    fading: bool,
}

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    /// It is known as a conflict.
    counted: bool,
    /// Who held some of it to change it.
    from: Option<Holder>,
    /// It was answered.
    done: bool,
}

/// Ranges of those who came earlier and still wait.
#[derive(Default)]
struct Ahead {
    writes: Vec<Range>,
    all: Vec<Range>,
}

impl Ahead {
    fn add(&mut self, ask: &Ask) {
        merge(&mut self.all, ask.range);
        if ask.write {
            merge(&mut self.writes, ask.range);
        }
    }

    fn blocks(&self, write: bool, range: Range) -> bool {
        let ahead = if write { &self.all } else { &self.writes };
        ahead.iter().any(|earlier| earlier.overlaps(range))
    }
}

fn merge(ranges: &mut Vec<Range>, mut range: Range) {
    ranges.retain(|known| {
        let apart = known.end < range.start || range.end < known.start;
        if !apart {
            range = range.hull(*known);
        }
        apart
    });
    ranges.push(range);
}

impl Object {
    /// Held ranges.
    pub fn ranges(&self) -> usize {
        self.writes.len() + self.holders.iter().map(|of| of.reads.len()).sum::<usize>()
    }

    /// Whether it has memory beside its own.
    #[cfg(test)]
    pub fn has_heap(&self) -> bool {
        self.busy.is_some() || self.writes.has_heap() || self.holders.spilled()
    }

    pub fn waiting(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.waiting.len())
    }

    /// Every span, and whether its bytes may be changed.
    pub fn held(&self) -> impl Iterator<Item = (&Span, bool)> {
        let reads = self.holders.iter().flat_map(|of| of.reads.overlapping(Range::ALL));
        self.writes.overlapping(Range::ALL).map(|span| (span, true)).chain(reads.map(|span| (span, false)))
    }

    /// Who waits, and accesses under way.
    pub fn asks(&self) -> impl Iterator<Item = Ask> {
        self.busy
            .iter()
            .flat_map(|busy| busy.waiting.iter().map(|waiting| waiting.ask).chain(busy.uses.iter().copied()))
    }

    /// Callbacks that were not answered yet.
    pub fn calls(&self) -> impl Iterator<Item = Call> {
        self.busy.iter().flat_map(|busy| busy.calls.iter().copied())
    }

    pub fn is_hot(&self, now: u64, ask: &Ask) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.contention.is_hot(now, ask.range))
    }

    /// Ranges that `holder` holds.
    pub fn ranges_of(&self, holder: Holder) -> usize {
        self.of(holder).map_or(0, |of| of.writes + of.reads.len())
    }

    /// Whether `holder` holds every byte of `range`.
    pub fn holds_all(&self, holder: Holder, write: bool, range: Range) -> bool {
        let writes = self.writes.overlapping(range).filter(|span| span.holder == holder);
        let reads = self.of(holder).into_iter().flat_map(|of| of.reads.overlapping(range));
        let reads = reads.filter(|_| !write);
        let covered: u64 =
            writes.chain(reads).filter_map(|span| span.range.intersection(range)).map(Range::len).sum();
        covered == range.len()
    }

    pub fn writers(&self, except: Holder) -> Vec<Holder> {
        let writes = self.holders.iter().filter(|of| of.writes > 0 && of.holder != except);
        writes.map(|of| of.holder).collect()
    }

    /// Nothing is held, nobody waits, nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.is_quiet()
    }

    /// Nobody waits, nothing is under way.
    pub fn is_quiet(&self) -> bool {
        let quiet = |busy: &Busy| busy.uses.is_empty() && busy.waiting.is_empty() && busy.calls.is_empty();
        self.busy.as_deref().is_none_or(quiet)
    }

    /// Whether somebody besides `holder` holds anything.
    pub fn has_others(&self, holder: Holder) -> bool {
        self.holders.iter().any(|of| of.holder != holder)
    }

    /// When its contention is to be forgotten, if there is any.
    pub fn fades_at(&self) -> Option<u64> {
        self.busy.as_ref().map(|busy| busy.contention.ends_at())
    }

    /// False if that was known.
    pub fn begin_fading(&mut self) -> bool {
        self.busy.as_mut().is_some_and(|busy| !std::mem::replace(&mut busy.fading, true))
    }

    pub fn end_fading(&mut self) {
        if let Some(busy) = &mut self.busy {
            busy.fading = false;
        }
    }

    /// Frees the memory that only several clients need.
    pub fn calm_down(&mut self, now: u64) {
        let over = |busy: &Busy| {
            busy.uses.is_empty()
                && busy.waiting.is_empty()
                && busy.calls.is_empty()
                && !busy.fading
                && busy.contention.ends_at() <= now
        };
        if self.busy.as_deref().is_some_and(over) {
            self.busy = None;
        }
    }

    fn busy(&mut self) -> &mut Busy {
        self.busy.get_or_insert_default()
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

    // The changes of what is held: nothing else touches `writes` and `holders`.

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

    fn put(&mut self, write: bool, span: Span) {
        let of = self.of_mut(span.holder);
        match write {
            true => {
                of.writes += 1;
                self.writes.put(span);
            }
            false => of.reads.put(span),
        }
    }

    fn forget_empty(&mut self, holder: Holder) {
        self.holders.retain(|of| of.holder != holder || of.writes > 0 || !of.reads.is_empty());
    }

    /// Others' spans that `ask` cannot share.
    fn conflicts(&self, ask: &Ask) -> impl Iterator<Item = (&Span, bool)> {
        let (holder, range, write) = (ask.holder, ask.range, ask.write);
        let writes = self.writes.overlapping(range).filter(move |span| span.holder != holder);
        let readers = self.holders.iter().filter(move |of| write && of.holder != holder);
        let reads = readers.flat_map(move |of| of.reads.overlapping(range));
        writes.map(|span| (span, true)).chain(reads.map(|span| (span, false)))
    }

    /// Whether an access under way is in the way. Accesses are atomic one by one: they need not wait for each other.
    fn in_use(&self, ask: &Ask) -> bool {
        let others = |used: &Ask| {
            used.holder != ask.holder && (used.write || ask.write) && used.range.overlaps(ask.range)
        };
        ask.purpose == Purpose::Hold && self.busy.as_ref().is_some_and(|busy| busy.uses.iter().any(others))
    }

    fn own_write_overlaps(&self, ask: &Ask) -> bool {
        self.writes.overlapping(ask.range).any(|span| span.holder == ask.holder)
    }

    /// Whether `ask` must not queue: who waits may wait for this very access, without which its holder cannot answer a
    /// callback.
    fn passes(&self, ask: &Ask) -> bool {
        let reads = || self.of(ask.holder).is_some_and(|of| of.reads.overlapping(ask.range).next().is_some());
        let called =
            || self.busy.as_ref().is_some_and(|busy| busy.calls.iter().any(|call| call.holder == ask.holder));
        ask.purpose == Purpose::Use && (called() || self.own_write_overlaps(ask) || (!ask.write && reads()))
    }

    /// `ask` arrives; [`Object::settle`] looks at it.
    pub fn arrive(&mut self, ask: Ask) {
        self.busy().waiting.push(Waiting { ask, counted: false, from: None, done: false });
    }

    /// `ask` is told to use its range without holding it.
    pub fn used_without(&mut self, now: u64, ask: &Ask) {
        if let Some(busy) = &mut self.busy {
            busy.contention.used(now, ask.holder, ask.range);
        }
    }

    pub fn abandon(&mut self, id: u64) {
        if let Some(busy) = &mut self.busy {
            busy.waiting.retain(|waiting| waiting.ask.id != id);
        }
    }

    pub fn end_use(&mut self, id: u64) {
        if let Some(busy) = &mut self.busy {
            busy.uses.retain(|ask| ask.id != id);
        }
    }

    pub fn drop_holder(&mut self, holder: Holder) {
        self.cut_writes(holder, Range::ALL, u64::MAX);
        self.cut_reads(holder, Range::ALL, u64::MAX);
        if let Some(busy) = &mut self.busy {
            busy.waiting.retain(|waiting| waiting.ask.holder != holder);
            busy.calls.retain(|call| call.holder != holder);
        }
    }

    /// Gives those who held something.
    pub fn drop_all(&mut self) -> Vec<Holder> {
        let holders = self.holders.iter().map(|of| of.holder).collect();
        self.holders.clear();
        self.writes = Spans::default();
        if let Some(busy) = &mut self.busy {
            busy.calls.clear();
        }
        holders
    }

    /// `holder` gives up what it was granted of `range` up to `number`.
    pub fn give_up(&mut self, holder: Holder, range: Range, number: u64) {
        self.cut_writes(holder, range, number);
        self.cut_reads(holder, range, number);
    }

    pub fn answered(&mut self, call: &Call, answer: RangeRevoked) {
        // Less than what was asked for cannot be meant.
        let range = call.range.hull(Range { start: answer.start, end: answer.end });
        let number = call.number.max(answer.number);
        let written = self.cut_writes(call.holder, range, number);
        if call.keep_read && answer.kept_read {
            for span in written {
                self.put(false, Span { grown: false, ..span });
            }
        } else {
            self.cut_reads(call.holder, range, number);
        }
        self.is_all_used(call.holder, range);
        if let Some(busy) = &mut self.busy {
            busy.calls.retain(|known| known.id != call.id);
        }
    }

    /// What `holder` did not give up beside `range` it needs.
    fn is_all_used(&mut self, holder: Holder, range: Range) {
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

    /// Grants exactly what was held before a restart.
    pub fn restate(&mut self, ask: &Ask, numbers: &Numbers) -> Option<Token> {
        if self.conflicts(ask).next().is_some() {
            return None;
        }
        let number = numbers.draw();
        let write = self.put_grant(ask, ask.range, number, false);
        Some(token(ask.range, write, number))
    }

    /// Lets those go on who can, in the order of their arrival, and calls back who stands in the way of the first ones.
    pub fn settle(&mut self, step: &mut Step) {
        let mut ahead = Ahead::default();
        let mut index = 0;
        while let Some(waiting) = self.busy.as_ref().and_then(|busy| busy.waiting.get(index)) {
            let (ask, from) = (waiting.ask, waiting.from);
            let write = ask.write || (ask.purpose == Purpose::Hold && self.own_write_overlaps(&ask));
            let done = if ask.purpose == Purpose::Hold && self.is_hot(step.now, &ask) {
                self.used_without(step.now, &ask);
                step.outputs.push(Output::Contended { id: ask.id, holder: ask.holder });
                true
            } else if ahead.blocks(write, ask.range) && !self.passes(&ask) {
                false
            } else if self.conflicts(&ask).next().is_some() {
                self.stand_in_the_way(step, index)
            } else if self.in_use(&ask) {
                false
            } else {
                self.mark_done(index);
                let output = self.go(step.now, ask, from, step.numbers);
                step.outputs.push(output);
                true
            };
            match done {
                true => self.mark_done(index),
                false => ahead.add(&ask),
            }
            index += 1;
        }
        if let Some(busy) = &mut self.busy {
            busy.waiting.retain(|waiting| !waiting.done);
        }
    }

    fn mark_done(&mut self, index: usize) {
        if let Some(waiting) = self.busy().waiting.get_mut(index) {
            waiting.done = true;
        }
    }

    fn go(&mut self, now: u64, ask: Ask, from: Option<Holder>, numbers: &Numbers) -> Output {
        let (id, holder) = (ask.id, ask.holder);
        match ask.purpose {
            Purpose::Hold => Output::Granted { id, holder, token: self.grant(now, &ask, numbers), from },
            Purpose::Use => {
                self.used_without(now, &ask);
                self.busy().uses.push(ask);
                Output::Go { id, holder }
            }
        }
    }

    /// Others hold what the request at `index` asks for: they are called back, or it is told to go without. True if
    /// that was its answer.
    fn stand_in_the_way(&mut self, step: &mut Step, index: usize) -> bool {
        let Some(waiting) = self.busy().waiting.get_mut(index) else { return false };
        let ask = waiting.ask;
        if !std::mem::replace(&mut waiting.counted, true) {
            let contention = &mut self.busy().contention;
            contention.conflict(step.now, ask.holder, ask.range, step.settings.contended_answers);
            if ask.purpose == Purpose::Hold && contention.is_hot(step.now, ask.range) {
                step.outputs.push(Output::Contended { id: ask.id, holder: ask.holder });
                return true;
            }
        }
        let from = self.conflicts(&ask).find(|(_, write)| *write).map(|(span, _)| span.holder);
        for call in self.calls_for(step.object, &ask) {
            *step.next_call += 1;
            let call = Call { id: *step.next_call, ..call };
            self.busy().calls.push(call);
            step.outputs.push(Output::Call(call));
        }
        if let Some(waiting) = self.busy().waiting.get_mut(index) {
            waiting.from = from.or(waiting.from);
        }
        false
    }

    /// The callbacks that `ask` needs and that are not under way; without their names.
    fn calls_for(&self, object: ObjectId, ask: &Ask) -> Vec<Call> {
        let calls = self.busy.as_ref().map_or(&[][..], |busy| &busy.calls);
        let mut needed: Vec<Call> = Vec::new();
        for (span, _) in self.conflicts(ask) {
            let Some(range) = span.range.intersection(ask.range) else { continue };
            // One callback at a time for a byte: its holder need not tell which of two was answered by what. The answer
            // to one for some of a grown range will say what else of it is not used.
            let comes = |call: &Call| {
                call.holder == span.holder
                    && (call.range.overlaps(ask.range) || span.grown && call.range.overlaps(span.range))
            };
            if calls.iter().any(comes) {
                continue;
            }
            // Spans come in order by holder and place, but for writes, which come first.
            match needed.iter_mut().rev().find(|call| call.holder == span.holder) {
                Some(call) => {
                    call.range = call.range.hull(range);
                    call.number = call.number.max(span.number);
                }
                None => needed.push(Call {
                    id: 0,
                    object,
                    holder: span.holder,
                    range,
                    number: span.number,
                    keep_read: !ask.write,
                }),
            }
        }
        needed
    }

    fn grant(&mut self, now: u64, ask: &Ask, numbers: &Numbers) -> Token {
        // Who may change all of it already gets that again: it may read it too.
        let write = ask.write || self.holds_all(ask.holder, true, ask.range);
        let ask = Ask { write, ..*ask };
        let contended = self.busy.as_ref().is_some_and(|busy| busy.contention.is_contended(now));
        if contended && self.is_beside_writers(&ask) {
            self.busy().contention.renew(now);
        }
        let (range, grown) = match contended {
            true => self.joined(&ask),
            false => {
                let room = self.room(&ask);
                (room, room != ask.range)
            }
        };
        let number = numbers.draw();
        let write = self.put_grant(&ask, range, number, grown);
        token(range, write, number)
    }

    /// Whether others may change what lies right beside what is asked for: more of it would soon be called back.
    fn is_beside_writers(&self, ask: &Ask) -> bool {
        self.writes.overlapping(around(ask.range)).any(|span| span.holder != ask.holder)
    }

    /// Enters a grant; gives whether it may be changed.
    fn put_grant(&mut self, ask: &Ask, range: Range, number: u64, grown: bool) -> bool {
        let holder = ask.holder;
        self.cut_reads(holder, range, u64::MAX);
        let written = self.cut_writes(holder, range, u64::MAX);
        if ask.write {
            self.put(true, Span { range, number, holder, grown });
            return true;
        }
        // What it may change it keeps, under the new number: the client cannot tell which of its grants a byte has.
        let mut from = range.start;
        for span in written {
            if from < span.range.start {
                let gap = Range { start: from, end: span.range.start };
                self.put(false, Span { range: gap, number, holder, grown });
            }
            from = span.range.end;
            self.put(true, Span { number, ..span });
        }
        if from < range.end {
            self.put(false, Span { range: Range { start: from, end: range.end }, number, holder, grown });
        }
        false
    }

    /// The largest range around what is asked for that conflicts with nobody who holds or waits.
    fn room(&self, ask: &Ask) -> Range {
        let (asked, holder, write) = (ask.range, ask.holder, ask.write);
        let mut room = self.room_beside_waiting(ask);
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

    /// The largest range around what is asked for that conflicts with nobody who waits, or whose access is under way.
    fn room_beside_waiting(&self, ask: &Ask) -> Range {
        let Some(busy) = &self.busy else { return Range::ALL };
        let waiting = busy.waiting.iter().filter(|waiting| !waiting.done).map(|waiting| &waiting.ask);
        let others = waiting.chain(&busy.uses).filter(|other| other.holder != ask.holder);
        let conflicting = others.filter(|other| other.write || ask.write);
        conflicting.fold(Range::ALL, |room, other| narrowed(room, ask.range, other.range))
    }

    /// What is asked for with what the session holds beside it, and whether that was grown.
    fn joined(&self, ask: &Ask) -> (Range, bool) {
        let (asked, room) = (ask.range, self.room_beside_waiting(ask));
        let around = around(asked);
        let (mut joined, mut grown) = (asked, false);
        let mut join = |span: &Span| {
            let Some(range) = span.range.intersection(room) else { return };
            joined = joined.hull(range);
            grown |= span.grown;
        };
        match ask.write {
            true => self.writes.overlapping(around).filter(|s| s.holder == ask.holder).for_each(&mut join),
            false => {
                self.of(ask.holder)
                    .into_iter()
                    .for_each(|of| of.reads.overlapping(around).for_each(&mut join));
            }
        }
        (joined, grown)
    }
}

/// `range`, and a byte on each side.
fn around(range: Range) -> Range {
    Range { start: range.start.saturating_sub(1), end: range.end.saturating_add(1) }
}

/// What of `room`, which has `asked` in it, is left beside `other`.
fn narrowed(mut room: Range, asked: Range, other: Range) -> Range {
    if other.start < asked.start {
        room.start = room.start.max(other.end.min(asked.start));
    }
    if other.end > asked.end {
        room.end = room.end.min(other.start.max(asked.end));
    }
    room
}

fn token(range: Range, write: bool, number: u64) -> Token {
    Token { number, write, start: range.start, end: range.end, contended: false }
}
