//! The rules for one object.

use super::contention::Contention;
use super::holdings::{Grant, Holdings, narrowed};
use super::{Ask, Call, Holder, Mode, Numbers, Output, Purpose, Range, Settings};
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
    pub held: Holdings,
    /// Only where there is, or was lately, more than one client.
    busy: Option<Box<Busy>>,
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
        if ask.mode.writes() {
            merge(&mut self.writes, ask.range);
        }
    }

    fn blocks(&self, mode: Mode, range: Range) -> bool {
        let ahead = if mode.writes() { &self.all } else { &self.writes };
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
    /// Whether it has memory beside its own.
    #[cfg(test)]
    pub fn has_heap(&self) -> bool {
        self.busy.is_some() || self.held.has_heap()
    }

    pub fn waiting(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.waiting.len())
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

    /// Nothing is held, nobody waits, nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.is_quiet()
    }

    /// Nobody waits, nothing is under way.
    pub fn is_quiet(&self) -> bool {
        let quiet = |busy: &Busy| busy.uses.is_empty() && busy.waiting.is_empty() && busy.calls.is_empty();
        self.busy.as_deref().is_none_or(quiet)
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

    /// Whether an access under way is in the way. Accesses are atomic one by one: they need not wait for each other.
    fn in_use(&self, ask: &Ask) -> bool {
        let others = |used: &Ask| {
            used.holder != ask.holder
                && (used.mode.writes() || ask.mode.writes())
                && used.range.overlaps(ask.range)
        };
        ask.purpose == Purpose::Hold && self.busy.as_ref().is_some_and(|busy| busy.uses.iter().any(others))
    }

    /// Whether `ask` must not queue: who waits may wait for this very access, without which its holder cannot answer a
    /// callback.
    fn passes(&self, ask: &Ask) -> bool {
        let reads = || self.held.reads(ask.holder, ask.range);
        let called =
            || self.busy.as_ref().is_some_and(|busy| busy.calls.iter().any(|call| call.holder == ask.holder));
        ask.purpose == Purpose::Use
            && (called() || self.held.own_write_overlaps(ask) || (!ask.mode.writes() && reads()))
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
        self.held.give_up(holder, Range::ALL, u64::MAX);
        if let Some(busy) = &mut self.busy {
            busy.waiting.retain(|waiting| waiting.ask.holder != holder);
            busy.calls.retain(|call| call.holder != holder);
        }
    }

    /// Gives those who held something.
    pub fn drop_all(&mut self) -> Vec<Holder> {
        let holders = self.held.clear();
        if let Some(busy) = &mut self.busy {
            busy.calls.clear();
        }
        holders
    }

    pub fn answered(&mut self, call: &Call, answer: RangeRevoked) {
        // Less than what was asked for cannot be meant.
        let range = call.range.hull(Range { start: answer.start, end: answer.end });
        let number = call.number.max(answer.number);
        if call.keep_read && answer.kept_read {
            self.held.give_up_writing(call.holder, range, number);
        } else {
            self.held.give_up(call.holder, range, number);
        }
        self.held.is_all_used(call.holder, range);
        if let Some(busy) = &mut self.busy {
            busy.calls.retain(|known| known.id != call.id);
        }
    }

    /// Grants exactly what was held before a restart.
    pub fn restate(&mut self, ask: &Ask, numbers: &Numbers) -> Option<Token> {
        if self.held.conflicts(ask).next().is_some() {
            return None;
        }
        let number = numbers.draw();
        let write = self.held.put_grant(ask, Grant { range: ask.range, number, grown: false });
        Some(token(ask.range, write, number))
    }

    /// Lets those go on who can, in the order of their arrival, and calls back who stands in the way of the first ones.
    pub fn settle(&mut self, step: &mut Step) {
        let mut ahead = Ahead::default();
        let mut index = 0;
        while let Some(waiting) = self.busy.as_ref().and_then(|busy| busy.waiting.get(index)) {
            let (ask, from) = (waiting.ask, waiting.from);
            let changes = ask.purpose == Purpose::Hold && self.held.own_write_overlaps(&ask);
            let mode = if changes { Mode::Write } else { ask.mode };
            let done = if ask.purpose == Purpose::Hold && self.is_hot(step.now, &ask) {
                self.used_without(step.now, &ask);
                step.outputs.push(Output::Contended { id: ask.id, holder: ask.holder });
                true
            } else if ahead.blocks(mode, ask.range) && !self.passes(&ask) {
                false
            } else if self.held.conflicts(&ask).next().is_some() {
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
        let from = self.held.conflicts(&ask).find(|(_, write)| *write).map(|(span, _)| span.holder);
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
        for (span, _) in self.held.conflicts(ask) {
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
                    keep_read: !ask.mode.writes(),
                }),
            }
        }
        needed
    }

    fn grant(&mut self, now: u64, ask: &Ask, numbers: &Numbers) -> Token {
        // Who may change all of it already gets that again: it may read it too.
        let writes = ask.mode.writes() || self.held.holds_all(ask.holder, Mode::Write, ask.range);
        let ask = Ask { mode: Mode::of(writes), ..*ask };
        let contended = self.busy.as_ref().is_some_and(|busy| busy.contention.is_contended(now));
        if contended && self.held.is_beside_writers(&ask) {
            self.busy().contention.renew(now);
        }
        let (range, grown) = match contended {
            true => self.held.joined(&ask, self.room_beside_waiting(&ask)),
            false => {
                let room = self.held.room(&ask, self.room_beside_waiting(&ask));
                (room, room != ask.range)
            }
        };
        let number = numbers.draw();
        let write = self.held.put_grant(&ask, Grant { range, number, grown });
        token(range, write, number)
    }

    /// The largest range around what is asked for that conflicts with nobody who waits, or whose access is under way.
    fn room_beside_waiting(&self, ask: &Ask) -> Range {
        let Some(busy) = &self.busy else { return Range::ALL };
        let waiting = busy.waiting.iter().filter(|waiting| !waiting.done).map(|waiting| &waiting.ask);
        let others = waiting.chain(&busy.uses).filter(|other| other.holder != ask.holder);
        let conflicting = others.filter(|other| other.mode.writes() || ask.mode.writes());
        conflicting.fold(Range::ALL, |room, other| narrowed(room, ask.range, other.range))
    }
}

fn token(range: Range, write: bool, number: u64) -> Token {
    Token { number, write, start: range.start, end: range.end, contended: false }
}
