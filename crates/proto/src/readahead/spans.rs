//! What is ahead in one file: bytes that were asked for and that nobody has read yet.

use std::ops::Range;

use crate::intervals::Intervals;

/// Most spans of a file. While there are so many, nothing more is asked for.
pub(super) const SPANS_MAX: usize = 8192;

/// The stream of a handle that had bytes fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) handle: u64,
    pub(super) stream: u64,
}

/// What is known of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    owner: Owner,
    arrived: bool,
}

/// Bytes that were taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) range: Range<u64>,
    pub(super) owner: Owner,
    pub(super) arrived: bool,
}

impl Cut {
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// What is known of which bytes.
#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: Intervals<Span>,
    bytes: u64,
}

impl Spans {
    /// Bytes of all spans.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.spans.len() >= SPANS_MAX
    }

    /// From the first byte of the first span that reaches into `range` to the last one of the last.
    pub(super) fn touched(&self, range: Range<u64>) -> Range<u64> {
        let mut touching = self.spans.touching(range);
        let Some((first, _)) = touching.next() else { return 0..0 };
        first.start..touching.last().map_or(first.end, |(last, _)| last.end)
    }

    /// What of `range` is in no span, in order.
    pub(super) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.spans.missing(range)
    }

    /// Bytes that are in no span are asked for.
    pub(super) fn ask(&mut self, range: Range<u64>, owner: Owner) {
        self.bytes += range.end - range.start;
        self.spans.insert(range, Span { owner, arrived: false });
    }

    /// Bytes came. Returns those of them that are still wanted, in order.
    pub(super) fn arrive(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let wanted = self.spans.cut(range, |_| true);
        for (range, span) in &wanted {
            self.spans.insert(range.clone(), Span { arrived: true, ..*span });
        }
        wanted.into_iter().map(|(range, _)| range).collect()
    }

    /// What has come, in order.
    pub(super) fn arrived(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.spans.iter().filter(|(_, span)| span.arrived).map(|(range, _)| range)
    }

    /// Takes what is in `range` out, if `which` picks its owner.
    pub(super) fn cut(&mut self, range: Range<u64>, which: impl Fn(Owner) -> bool) -> Vec<Cut> {
        let cut = self.spans.cut(range, |span| which(span.owner)).into_iter();
        let cut: Vec<Cut> =
            cut.map(|(range, Span { owner, arrived })| Cut { range, owner, arrived }).collect();
        self.bytes -= cut.iter().map(Cut::len).sum::<u64>();
        cut
    }

    /// What one stream had fetched now belongs to another one.
    pub(super) fn hand_over(&mut self, from: Owner, to: Owner) {
        self.spans.values_mut().filter(|span| span.owner == from).for_each(|span| span.owner = to);
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::Rng;

    use super::*;

    fn owner(stream: u64) -> Owner {
        Owner { handle: 1, stream }
    }

    #[test]
    fn random_spans_agree_with_bytes() {
        let mut rng = Rng::new(3);
        let mut random = |below: u64| rng.below(below);
        let mut spans = Spans::default();
        let mut bytes = [0u64; 64];
        for _ in 0..20_000 {
            let (a, b) = (random(65), random(65));
            let range = a.min(b)..a.max(b);
            let part = range.start as usize..range.end as usize;
            let stream = 1 + random(3);
            match random(4) {
                0 | 1 => {
                    for missing in spans.missing(range.clone()) {
                        let part = missing.start as usize..missing.end as usize;
                        assert!(bytes[part.clone()].iter().all(|byte| *byte == 0));
                        bytes[part].fill(stream);
                        spans.ask(missing, owner(stream));
                    }
                    assert!(bytes[part].iter().all(|byte| *byte > 0));
                }
                2 => {
                    let cut: u64 = spans.cut(range, |of| of == owner(stream)).iter().map(Cut::len).sum();
                    let expected = bytes[part.clone()].iter().filter(|byte| **byte == stream).count();
                    assert_eq!(cut, expected as u64);
                    bytes[part].iter_mut().filter(|byte| **byte == stream).for_each(|byte| *byte = 0);
                }
                _ => {
                    let wanted: u64 = spans.arrive(range).iter().map(|range| range.end - range.start).sum();
                    assert_eq!(wanted, bytes[part].iter().filter(|byte| **byte > 0).count() as u64);
                }
            }
            assert_eq!(spans.bytes(), bytes.iter().filter(|byte| **byte > 0).count() as u64);
        }
        spans.hand_over(owner(1), owner(2));
        spans.cut(0..64, |of| of == owner(2));
        spans.cut(0..64, |of| of == owner(3));
        assert!(spans.is_empty() && spans.bytes() == 0);
    }
}
