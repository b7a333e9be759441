//! What a client knows of its own locks, to state them again after a restart of the MDT.
//!
//! Answers come in another order than the MDT made the changes when threads of one process lock and unlock at the same
//! time. Each answer carries the number of its change, and a later change of a byte counts, whenever it is heard of.
//!
//! Of a request whose answer has not come nobody knows whether the MDT carried it out before it restarted, and let others
//! have what it freed. Such a request is sent again, so what it gives up is not stated: [`Kept::give_up_doubtful`].

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
    asked: BTreeMap<u64, Asked>,
}

/// What a request under way asks for.
#[derive(Clone, Copy)]
struct Asked {
    range: Range,
    /// `None` unlocks.
    mode: Option<Mode>,
}

/// All locks of a client.
#[derive(Default)]
pub struct Kept {
    places: BTreeMap<Place, Marks>,
    /// Number of the last request.
    begun: u64,
}

impl Kept {
    /// A request that sets `mode`, or unlocks, is about to be sent; its number, for [`Kept::end`].
    pub fn begin(&mut self, place: Place, range: Range, mode: Option<Mode>) -> u64 {
        self.begun += 1;
        self.places.entry(place).or_default().asked.insert(self.begun, Asked { range, mode });
        self.begun
    }

    /// A request that began is over, and what it did was told with [`Kept::change`].
    pub fn end(&mut self, place: Place, number: u64) {
        let Some(marks) = self.places.get_mut(&place) else { return };
        marks.asked.remove(&number);
        if marks.asked.is_empty() {
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

    /// The MDT has restarted, and is about to be told of the locks: what a request under way may have taken away before is
    /// the client's no more. Another client may have it, and know. The MDT is told of no more than what is left, so that
    /// stays so even if the request is refused then.
    pub fn give_up_doubtful(&mut self) {
        for (place, marks) in &mut self.places {
            marks.give_up_doubtful(place.kind);
        }
    }

    /// The locks of these places are lost. Gives them.
    pub fn clear(&mut self, is_lost: impl Fn(&Place) -> bool) -> Vec<KeptLock> {
        let lost = self.locks().into_iter().filter(|lock| is_lost(&lock.place)).collect();
        self.places.iter_mut().filter(|(place, _)| is_lost(place)).for_each(|(_, marks)| marks.marks.clear());
        self.places.retain(|_, marks| !marks.asked.is_empty() || !marks.marks.is_empty());
        lost
    }
}

impl Marks {
    fn give_up_doubtful(&mut self, kind: Kind) {
        for asked in self.asked.values() {
            // Afterwards each mark is within the range of the request, or beside it.
            self.marks = self.marks.iter().flat_map(|mark| mark.split(asked.range)).collect();
        }
        for mark in &mut self.marks {
            let Some((held, pid)) = mark.lock else { continue };
            let asked = self.asked.values().filter(|asked| asked.range.common(mark.range).is_some());
            mark.lock = certain(kind, held, asked.map(|asked| asked.mode)).map(|mode| (mode, pid));
        }
    }
}

impl Mark {
    /// The parts in front of a range, in it, and behind it.
    fn split(self, at: Range) -> impl Iterator<Item = Mark> {
        let Range { start, end } = self.range;
        let before = at.start.checked_sub(1).and_then(|last| Range::new(start, end.min(last)));
        let behind = at.end.checked_add(1).and_then(|first| Range::new(start.max(first), end));
        let parts = [before, self.range.common(at), behind];
        parts.into_iter().flatten().map(move |range| Mark { range, ..self })
    }
}

/// What is left of a lock, whichever of the requests under way were carried out, and in whatever order.
fn certain(kind: Kind, held: Mode, asked: impl Iterator<Item = Option<Mode>>) -> Option<Mode> {
    let (mut least, mut writes) = (held, false);
    for mode in asked {
        match mode? {
            Mode::Read => least = Mode::Read,
            Mode::Write => writes = true,
        }
    }
    // A flock goes before it is known whether the other mode can be had.
    let may_be_gone = kind == Kind::Flock && writes && least == Mode::Read;
    (!may_be_gone).then_some(least)
}
