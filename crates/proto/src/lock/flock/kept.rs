//! What a client knows of its own locks, to state them again after a restart of the MDT.
//!
//! Answers come in another order than the MDT made the changes when threads of one process lock and unlock at the same
//! time. Each answer carries the number of its change, and a later change of a byte counts, whenever it is heard of.

use std::collections::BTreeMap;

use super::{Kind, Mode, Range};
use crate::ids::Fid;

/// An owner's locks of one kind on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub fid: Fid,
    /// Which kind.
    pub kind: Kind,
    /// The client's name for the owner.
    pub owner: u64,
}

/// A lock that the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptLock {
    /// Whose, and on which file.
    pub place: Place,
    /// Where.
    pub range: Range,
    /// What it permits.
    pub mode: Mode,
    /// The process.
    pub pid: u32,
}

#[derive(Clone, Copy)]
struct Mark {
    range: Range,
    lock: Option<(Mode, u32)>,
    change: u64,
}

#[derive(Default)]
struct Marks {
    /// Disjoint, in order. Unlocked ranges are remembered while requests are under way.
    marks: Vec<Mark>,
    /// Requests under way.
    busy: usize,
}

/// All locks of a client.
#[derive(Default)]
pub struct Kept {
    places: BTreeMap<Place, Marks>,
}

impl Kept {
    /// A request that may change the locks of `place` is about to be sent.
    pub fn begin(&mut self, place: Place) {
        self.places.entry(place).or_default().busy += 1;
    }

    /// A request that began is over, and what it did was told with [`Kept::change`].
    pub fn end(&mut self, place: Place) {
        let Some(marks) = self.places.get_mut(&place) else { return };
        marks.busy = marks.busy.saturating_sub(1);
        if marks.busy == 0 {
            marks.marks.retain(|mark| mark.lock.is_some());
            if marks.marks.is_empty() {
                self.places.remove(&place);
            }
        }
    }

    /// The MDT made this change.
    pub fn change(&mut self, place: Place, range: Range, lock: Option<(Mode, u32)>, change: u64) {
        let Some(marks) = self.places.get_mut(&place) else { return };
        let mut now = Vec::with_capacity(marks.marks.len() + 2);
        // What of the range is not covered by later changes begins here.
        let mut from = Some(range.start);
        let put = |now: &mut Vec<Mark>, start: u64, end: u64| {
            now.extend(Range::new(start, end).map(|range| Mark { range, lock, change }));
        };
        for mark in std::mem::take(&mut marks.marks) {
            let Some(common) = mark.range.common(range) else {
                if let Some(start) = from.filter(|_| mark.range.start > range.end) {
                    put(&mut now, start, range.end);
                    from = None;
                }
                now.push(mark);
                continue;
            };
            if mark.change > change {
                if let Some(start) = from.filter(|start| *start < common.start) {
                    put(&mut now, start, common.start - 1);
                }
                now.push(mark);
                from = common.end.checked_add(1).filter(|next| *next <= range.end);
                continue;
            }
            if mark.range.start < range.start {
                now.push(Mark { range: Range { end: range.start - 1, ..mark.range }, ..mark });
            }
            if mark.range.end > range.end {
                if let Some(start) = from.take() {
                    put(&mut now, start, range.end);
                }
                now.push(Mark { range: Range { start: range.end + 1, ..mark.range }, ..mark });
            }
        }
        if let Some(start) = from {
            put(&mut now, start, range.end);
        }
        marks.marks = now;
    }

    /// Whether the owner may have locks there.
    pub fn has(&self, place: Place) -> bool {
        self.places.contains_key(&place)
    }

    /// The locks that the client has.
    pub fn locks(&self) -> Vec<KeptLock> {
        let of = |(place, marks): (&Place, &Marks)| {
            let place = *place;
            let locks = marks.marks.iter().filter_map(move |mark| {
                let (mode, pid) = mark.lock?;
                Some(KeptLock { place, range: mark.range, mode, pid })
            });
            locks.collect::<Vec<_>>()
        };
        self.places.iter().flat_map(of).collect()
    }

    /// Every lock is lost.
    pub fn clear(&mut self) {
        for marks in self.places.values_mut() {
            marks.marks.clear();
        }
        self.places.retain(|_, marks| marks.busy > 0);
    }
}
