//! Whether clients get into each other's way in an object, and how badly.

use super::{Holder, Range};

/// An object is contended for this long after the last conflict, or the last grant right beside what another client writes, in nanoseconds.
pub const CONTENDED_NANOS: u64 = 2_000_000_000;
/// Requests for less than this many bytes can make a range hot.
pub const SMALL_BYTES: u64 = 1 << 20;
/// Conflicts for overlapping small ranges within [`HOT_WINDOW_NANOS`] after which the range is hot.
pub const HOT_CONFLICTS: usize = 5;
/// See [`HOT_CONFLICTS`]; in nanoseconds.
pub const HOT_WINDOW_NANOS: u64 = 1_000_000_000;
/// A range stays hot for this long after two clients followed one another in it, in nanoseconds.
pub const HOT_NANOS: u64 = 2_000_000_000;
/// Conflicts that are remembered of one object.
const RECENT_MAX: usize = 16;

/// What is remembered of an object's conflicts.
#[derive(Debug, Default)]
pub(super) struct Contention {
    last: Option<u64>,
    recent: Vec<Conflict>,
    hot: Option<Hot>,
}

#[derive(Debug, Clone, Copy)]
struct Conflict {
    at: u64,
    asker: Holder,
    range: Range,
}

/// A range for which nothing is granted, for it would be called back at once.
#[derive(Debug)]
struct Hot {
    range: Range,
    /// When two clients followed one another in it the last time.
    at: u64,
    /// Who was the last.
    by: Holder,
}

impl Contention {
    /// Whether a second client was there not long ago.
    pub fn is_contended(&self, now: u64) -> bool {
        self.last.is_some_and(|last| now < last.saturating_add(CONTENDED_NANOS))
    }

    /// Whether `range` is to be used without being held.
    pub fn is_hot(&self, now: u64, range: Range) -> bool {
        let live = |hot: &Hot| now < hot.at.saturating_add(HOT_NANOS) && hot.range.overlaps(range);
        range.len() < SMALL_BYTES && self.hot.as_ref().is_some_and(live)
    }

    /// When all of it is forgotten, if nothing happens any more.
    pub fn ends_at(&self) -> u64 {
        let contended = self.last.map_or(0, |last| last.saturating_add(CONTENDED_NANOS));
        self.hot.as_ref().map_or(0, |hot| hot.at.saturating_add(HOT_NANOS)).max(contended)
    }

    /// Clients still write side by side in a contended object.
    pub fn renew(&mut self, now: u64) {
        self.last = Some(now);
    }

    /// `asker` found what it wants held by others.
    pub fn conflict(&mut self, now: u64, asker: Holder, range: Range, detect: bool) {
        self.last = Some(now);
        if range.len() >= SMALL_BYTES || !detect {
            return;
        }
        self.recent.retain(|old| now < old.at.saturating_add(HOT_WINDOW_NANOS));
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(Conflict { at: now, asker, range });
        let here = self.recent.iter().filter(|conflict| conflict.range.overlaps(range));
        let (mut count, mut several, mut hull) = (0, false, range);
        for conflict in here {
            count += 1;
            several |= conflict.asker != asker;
            hull = hull.hull(conflict.range);
        }
        if count >= HOT_CONFLICTS && several {
            self.hot = Some(Hot { range: hull, at: now, by: asker });
        }
    }

    /// `holder` uses `range` without holding it, or is told to: the range stays hot while clients alternate.
    pub fn used(&mut self, now: u64, holder: Holder, range: Range) {
        let Some(hot) = &mut self.hot else { return };
        if now >= hot.at.saturating_add(HOT_NANOS) {
            self.hot = None;
        } else if hot.by != holder && hot.range.overlaps(range) {
            hot.at = now;
            hot.by = holder;
        }
    }
}
