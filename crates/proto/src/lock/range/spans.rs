//! Ranges that do not overlap, in order: what is held of an object in one mode.

use smallvec::SmallVec;

use super::{Holder, Range};

/// A held range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub range: Range,
    /// Of the newest grant that covers it.
    pub number: u64,
    pub holder: Holder,
    /// It is more than its holder asked for, as far as is known here.
    pub grown: bool,
}

/// Spans that do not overlap, by their starts.
///
/// A sorted vector: most objects have one span, which then needs no memory of its own, and sequential clients append.
#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: SmallVec<[Span; 1]>,
}

impl Spans {
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[cfg(test)]
    pub fn has_heap(&self) -> bool {
        self.spans.spilled()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Index of the first span that ends behind `at`.
    fn first_behind(&self, at: u64) -> usize {
        self.spans.partition_point(|span| span.range.end <= at)
    }

    pub fn overlapping(&self, range: Range) -> impl Iterator<Item = &Span> {
        self.spans.iter().skip(self.first_behind(range.start)).take_while(move |s| s.range.start < range.end)
    }

    /// The last span that ends at `at` or before.
    pub fn last_before(&self, at: u64) -> Option<&Span> {
        self.first_behind(at).checked_sub(1).and_then(|index| self.spans.get(index))
    }

    /// The spans that begin at `at` or behind, in order.
    pub fn from(&self, at: u64) -> impl Iterator<Item = &Span> {
        self.spans.iter().skip(self.spans.partition_point(|span| span.range.start < at))
    }

    /// The spans that end at `at` or before, the last one first.
    pub fn until(&self, at: u64) -> impl Iterator<Item = &Span> {
        let count = self.first_behind(at);
        self.spans.iter().take(count).rev()
    }

    /// Takes those parts of `range` away that are in spans that `which` picks, and gives them back.
    pub fn cut(&mut self, range: Range, which: impl Fn(&Span) -> bool) -> Vec<Span> {
        let from = self.first_behind(range.start);
        let count = self.spans.iter().skip(from).take_while(|span| span.range.start < range.end).count();
        let touched: SmallVec<[Span; 4]> = self.spans.iter().skip(from).take(count).copied().collect();
        let mut taken = Vec::new();
        let mut left: SmallVec<[Span; 4]> = SmallVec::new();
        for span in touched {
            if !which(&span) {
                left.push(span);
                continue;
            }
            let Some(part) = span.range.intersection(range) else { continue };
            taken.push(Span { range: part, ..span });
            for rest in span.range.without(part) {
                left.push(Span { range: rest, ..span });
            }
        }
        if !taken.is_empty() {
            self.spans.drain(from..from + count);
            self.spans.insert_many(from, left);
        }
        taken
    }

    /// Adds a span where there is none.
    pub fn put(&mut self, span: Span) {
        let index = self.first_behind(span.range.start);
        let free = self.spans.get(index).is_none_or(|next| next.range.start >= span.range.end);
        assert!(free && span.range.start < span.range.end, "spans do not overlap");
        self.spans.insert(index, span);
    }
}
