//! Which ranges of which objects an operation on a file needs.

use std::ops::Range;

use proto::Layout;
use proto::layout::Place;
use smallvec::SmallVec;

/// Ranges smaller than this may be refused a lock (`docs/locks.md`).
const SMALL_BYTES: u64 = 1 << 20;

/// A range of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) place: Place,
    /// First byte, in the object.
    pub(crate) start: u64,
    /// First byte behind it.
    pub(crate) end: u64,
}

/// Needs in the order of their objects: everybody locks them in this order.
pub(crate) type Needs = SmallVec<[Need; 4]>;

/// Longer ranges are looked at object by object, and not stripe by stripe: a hole may be as long as a file can be.
const LONG_BYTES: u64 = 64 << 20;

/// `[offset, offset + len)` of the file: in each object it is one range.
pub(crate) fn needs_of(layout: &Layout, offset: u64, len: u64) -> Needs {
    if len > LONG_BYTES {
        return by_object(layout, offset, len);
    }
    by_stripe(layout, offset, len)
}

fn by_object(layout: &Layout, offset: u64, len: u64) -> Needs {
    let need = |(place, Range { start, end })| Need { place, start, end };
    in_order(parts(layout, offset..offset.saturating_add(len)).map(need).collect())
}

fn by_stripe(layout: &Layout, offset: u64, len: u64) -> Needs {
    let mut needs = Needs::new();
    for run in layout.runs(offset, len) {
        let end = run.object_offset + run.len;
        match needs.iter_mut().find(|need| need.place == run.place) {
            Some(need) => need.end = need.end.max(end),
            None => needs.push(Need { place: run.place, start: run.object_offset, end }),
        }
    }
    in_order(needs)
}

/// The part of each object that lies in `range` of the file, for those that have one.
pub(crate) fn parts(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = (Place, Range<u64>)> + '_ {
    let touched = layout.touched(range.start, range.end - range.start);
    let parts = touched.flat_map(move |component| {
        let (start, end) = (range.start.max(component.start), range.end);
        let part = move |stripe| component.reach(stripe, start)..component.reach(stripe, end);
        component.places().map(move |place| (place, part(place.object.stripe)))
    });
    parts.filter(|(_, part)| !part.is_empty())
}

fn in_order(mut needs: Needs) -> Needs {
    needs.sort_unstable_by_key(|need| need.place);
    needs
}

/// For what cannot be done without a lock: an OST leaves clients without one only for small ranges.
pub(crate) fn surely(mut needs: Needs) -> Needs {
    for need in &mut needs {
        need.end = need.end.max(need.start.saturating_add(SMALL_BYTES));
    }
    needs
}

/// Everything from `size` on.
pub(crate) fn beyond(layout: &Layout, size: u64) -> Needs {
    let need = |place: Place| {
        let start = layout.object_size(place.object, size);
        Need { place, start, end: u64::MAX }
    };
    in_order(layout.places().map(need).collect())
}

/// The whole file.
pub(crate) fn whole(layout: &Layout) -> Needs {
    beyond(layout, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::layout::Component;
    use proto::{Fid, OstIndex};

    #[test]
    fn a_range_of_a_file_is_one_range_in_each_object() {
        let layout = Layout::from(Component::striped(Fid::ROOT, 65_536, (0..3).map(OstIndex)));
        let unit = 65_536;
        let place = |stripe| layout.places().nth(stripe).expect("there are three");
        let need = |stripe, start, end| Need { place: place(stripe), start, end };
        assert_eq!(needs_of(&layout, 10, 20)[..], [need(0, 10, 30)]);
        let all = needs_of(&layout, 2 * unit + 5, 3 * unit);
        assert_eq!(
            all[..],
            [need(0, unit, 2 * unit), need(1, unit, 2 * unit), need(2, 5, unit + 5)][..].to_vec()[..]
        );
        assert_eq!(
            beyond(&layout, unit + 7)[..],
            [need(0, unit, u64::MAX), need(1, 7, u64::MAX), need(2, 0, u64::MAX)]
        );
        assert_eq!(needs_of(&layout, 5, u64::MAX).len(), 3, "at once");
        for (start, len) in [
            (0, 1),
            (5, unit),
            (unit - 1, 2),
            (7 * unit + 3, 4 * unit),
            (1, 17 * unit - 1),
            (3 * unit, 3 * unit),
        ] {
            assert_eq!(by_object(&layout, start, len), by_stripe(&layout, start, len), "{start}, {len}");
        }
        let first =
            Component { end: 5 * unit, ..Component::striped(Fid::ROOT, 65_536, (0..2).map(OstIndex)) };
        let id = Fid { oid: 7, ..Fid::ROOT };
        let second = Component { start: 5 * unit, ..Component::striped(id, 65_536, (0..3).map(OstIndex)) };
        let parts = Layout { components: [first, second].into_iter().collect(), ..layout.clone() };
        for (start, len) in [(1, 3 * unit), (unit, 9 * unit), (5 * unit + 9, 70), (6 * unit + 9, 5 * unit)] {
            assert_eq!(by_object(&parts, start, len), by_stripe(&parts, start, len), "{start}, {len}");
        }
        assert!(whole(&layout).iter().all(|need| need.start == 0 && need.end == u64::MAX));
    }
}
