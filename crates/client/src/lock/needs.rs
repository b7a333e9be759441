//! Which ranges of which objects an operation on a file needs.

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

/// `[offset, offset + len)` of the file: in each object it is one range.
pub(crate) fn needs_of(layout: &Layout, offset: u64, len: u64) -> Needs {
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
        assert!(whole(&layout).iter().all(|need| need.start == 0 && need.end == u64::MAX));
    }
}
