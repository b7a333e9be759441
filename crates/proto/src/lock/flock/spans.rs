//! The locks of one owner on one file: disjoint spans in order, neighbours of one mode merged.

use smallvec::{SmallVec, smallvec};

/// Bytes of a file, both ends included; `u64::MAX` as the end means all that may ever come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte, not before the first.
    pub end: u64,
}

impl Range {
    /// A whole file.
    pub const ALL: Range = Range { start: 0, end: u64::MAX };

    /// The bytes from `start` to `end`, both included; `None` if that is nothing.
    pub fn new(start: u64, end: u64) -> Option<Range> {
        (start <= end).then_some(Range { start, end })
    }

    /// Whether a byte is in both.
    pub fn overlaps(self, other: Range) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The bytes that are in both.
    pub fn common(self, other: Range) -> Option<Range> {
        Range::new(self.start.max(other.start), self.end.min(other.end))
    }

    fn touches(self, behind: Range) -> bool {
        self.end.checked_add(1) == Some(behind.start)
    }
}

/// What a lock permits its owner, and nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Alone.
    Write,
}

impl Mode {
    /// Whether two owners cannot have these at the same time.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Write || other == Mode::Write
    }
}

/// One lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub range: Range,
    /// What it permits.
    pub mode: Mode,
    /// Who set it, for F_GETLK.
    pub pid: u32,
}

/// The locks of one owner on one file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spans {
    spans: Vec<Span>,
}

/// A change that has not been made yet.
#[derive(Debug)]
pub struct Plan {
    from: usize,
    until: usize,
    with: SmallVec<[Span; 3]>,
    /// Whether others may have waited for what goes.
    pub weakens: bool,
    /// Whether nothing is different afterwards.
    pub idle: bool,
}

impl Plan {
    /// How many more locks there are afterwards.
    pub fn growth(&self) -> isize {
        self.with.len() as isize - (self.until - self.from) as isize
    }
}

impl Spans {
    /// Whether there are no locks.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }

    /// Those in `range`, cut to it.
    pub fn within(&self, range: Range) -> impl Iterator<Item = Span> + '_ {
        let from = self.spans.partition_point(|span| span.range.end < range.start);
        let behind = self.spans.iter().skip(from).take_while(move |span| span.range.start <= range.end);
        behind.filter_map(move |span| Some(Span { range: span.range.common(range)?, ..*span }))
    }

    /// The first lock that keeps another owner from having `mode` in `range`.
    pub fn first_conflict(&self, range: Range, mode: Mode) -> Option<&Span> {
        let from = self.spans.partition_point(|span| span.range.end < range.start);
        let mut behind = self.spans.iter().skip(from).take_while(|span| span.range.start <= range.end);
        behind.find(|span| span.mode.conflicts(mode))
    }

    /// What it takes for `range` to be locked as `new` says; `None` unlocks it. What the owner had there goes, split
    /// where it reaches beyond; neighbours of the same mode become one.
    pub fn plan(&self, range: Range, new: Option<(Mode, u32)>) -> Plan {
        let mut from = self.spans.partition_point(|span| span.range.end < range.start);
        let mut until = self.spans.partition_point(|span| span.range.start <= range.end);
        let inside = self.spans.get(from..until).unwrap_or(&[]);
        let keeps = |span: &Span| new.is_some_and(|(mode, _)| mode >= span.mode);
        let weakens = !inside.iter().all(keeps);
        let (first, last) = (inside.first().copied(), inside.last().copied());
        let left = first.filter(|span| span.range.start < range.start);
        let right = last.filter(|span| span.range.end > range.end);
        let Some((mode, pid)) = new else {
            let left = left.map(|span| Span { range: Range { end: range.start - 1, ..span.range }, ..span });
            let right =
                right.map(|span| Span { range: Range { start: range.end + 1, ..span.range }, ..span });
            let with = left.into_iter().chain(right).collect();
            return Plan { from, until, with, weakens, idle: inside.is_empty() };
        };
        let mut new = Span { range, mode, pid };
        let mut with: SmallVec<[Span; 3]> = smallvec![];
        match left {
            Some(left) if left.mode == mode => new.range.start = left.range.start,
            Some(left) => with.push(Span { range: Range { end: range.start - 1, ..left.range }, ..left }),
            None => {
                let before = from.checked_sub(1).and_then(|at| self.spans.get(at));
                if let Some(before) = before.filter(|b| b.mode == mode && b.range.touches(range)) {
                    new.range.start = before.range.start;
                    from -= 1;
                }
            }
        }
        let mut tail = None;
        match right {
            Some(right) if right.mode == mode => new.range.end = right.range.end,
            Some(right) => {
                tail = Some(Span { range: Range { start: range.end + 1, ..right.range }, ..right });
            }
            None => {
                let behind = self.spans.get(until);
                if let Some(behind) = behind.filter(|b| b.mode == mode && range.touches(b.range)) {
                    new.range.end = behind.range.end;
                    until += 1;
                }
            }
        }
        with.push(new);
        with.extend(tail);
        let idle = self.spans.get(from..until) == Some(with.as_slice());
        Plan { from, until, with, weakens, idle }
    }

    /// Makes the change of a plan that was made of these spans as they are.
    pub fn apply(&mut self, plan: Plan) {
        self.spans.splice(plan.from..plan.until, plan.with);
    }
}
