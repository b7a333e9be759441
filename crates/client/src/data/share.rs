//! What of a write lies in a pool of OSTs. Numbers only.

use std::collections::BTreeSet;

use proto::layout::Component;
use proto::pool::POOL_IGNORE;
use proto::{Layout, OstIndex, Pools};

use super::version::space_of;

/// Where data is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// File offset; `None` for the end of the file, wherever that is.
    pub(crate) offset: Option<u64>,
    /// Bytes.
    pub(crate) len: u64,
}

impl Span {
    pub(crate) fn new(offset: u64, len: u64) -> Span {
        Span { offset: Some(offset), len }
    }

    /// The space that it takes at most, in bytes.
    pub(crate) fn space(self) -> u64 {
        space_of(self.offset.unwrap_or(0), self.len)
    }

    /// The space that it takes at most on the OSTs of the pool `name`, in bytes. `None` if the end of the file has to be known for that.
    /// Of a pool of which nothing is known, nobody knows that it lies elsewhere.
    pub(super) fn space_in(self, layout: &Layout, pools: &Pools, name: &str) -> Option<u64> {
        let Some(members) = pools.get(name) else { return Some(self.space()) };
        if let Some(offset) = self.offset {
            let end = offset.saturating_add(self.len);
            let touched = layout.touched(offset, self.len);
            let parts =
                touched.map(|of| space_of_part(of, (offset.max(of.start), end.min(of.end)), members, pools));
            return Some(parts.sum());
        }
        let mut parts = layout.components.iter().flat_map(|component| is_in(component, members, pools));
        let first = parts.next().unwrap_or(false);
        parts.all(|part| part == first).then(|| if first { self.space() } else { 0 })
    }
}

/// What of `[from, to)`, which is within a component, lies on `members`.
fn space_of_part(of: &Component, (from, to): (u64, u64), members: &BTreeSet<OstIndex>, pools: &Pools) -> u64 {
    if !of.is_placed() {
        return if may_be_in(of, members, pools) { space_of(from, to - from) } else { 0 };
    }
    let stripes = (0..).zip(&of.targets).filter(|(_, target)| is_member(target.ost(), members));
    let space = |(stripe, _)| {
        let begin = of.reach(stripe, from);
        space_of(begin, of.reach(stripe, to) - begin)
    };
    stripes.map(space).sum()
}

/// Of each target of a component, or of it if it has none yet, whether it is one of `members`.
fn is_in(of: &Component, members: &BTreeSet<OstIndex>, pools: &Pools) -> Vec<bool> {
    if of.is_placed() {
        return of.targets.iter().map(|target| is_member(target.ost(), members)).collect();
    }
    vec![may_be_in(of, members, pools)]
}

fn is_member(ost: Option<OstIndex>, members: &BTreeSet<OstIndex>) -> bool {
    ost.is_some_and(|ost| members.contains(&ost))
}

/// Whether a component without objects may get some on `members`.
fn may_be_in(of: &Component, members: &BTreeSet<OstIndex>, pools: &Pools) -> bool {
    let wanted = of.wanted.as_deref().filter(|wanted| !wanted.pool.is_empty() && wanted.pool != POOL_IGNORE);
    match wanted.and_then(|wanted| pools.get(&wanted.pool)) {
        Some(others) => !others.is_disjoint(members),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Fid;
    use proto::layout::LayoutHint;
    use proto::wire::messages::PoolEntry;

    const ID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const UNIT: u64 = 1 << 16;

    fn pools() -> Pools {
        let mut pools = Pools::default();
        for (name, osts) in [("flash", vec![0, 1]), ("disk", vec![2, 3]), ("fast", vec![1])] {
            let osts = osts.into_iter().map(OstIndex).collect();
            pools.insert(PoolEntry { name: name.into(), osts });
        }
        pools
    }

    fn striped(osts: &[u32]) -> Component {
        Component::striped(ID, UNIT as u32, osts.iter().map(|ost| OstIndex(*ost)))
    }

    fn part(of: Component, start: u64, end: u64) -> Component {
        Component { start, end, ..of }
    }

    fn layout(components: impl IntoIterator<Item = Component>) -> Layout {
        Layout { generation: 0, components: components.into_iter().collect() }
    }

    #[test]
    fn a_write_counts_where_it_lies() {
        let (pools, layout) = (pools(), layout([striped(&[0, 2])]));
        let of = |pool: &str, offset, len| Span::new(offset, len).space_in(&layout, &pools, pool);
        assert_eq!(of("flash", 0, 10), Some(4096));
        assert_eq!((of("disk", 0, UNIT), of("fast", 0, 10 * UNIT)), (Some(0), Some(0)));
        assert_eq!((of("flash", 0, 4 * UNIT), of("disk", 0, 4 * UNIT)), (Some(2 * UNIT), Some(2 * UNIT)));
        assert_eq!(of("disk", UNIT - 1, 2), Some(4096));
        assert_eq!(of("flash", UNIT - 1, 2), Some(4096));
        assert_eq!(of("flash", 4095, 2), Some(8192));
        assert_eq!(of("unknown", 0, 1), Some(4096), "it may lie there");
        assert!(of("flash", 0, 1 << 62).is_some_and(|space| space == 1 << 61), "however long it is");
    }

    #[test]
    fn each_component_is_looked_at_alone() {
        let wanted = LayoutHint { pool: "disk".into(), ..LayoutHint::default() };
        let pending = Component::without_objects(ID, (2 * UNIT, u64::MAX), Some(wanted));
        let own = part(Component::on_mdt(ID, UNIT, proto::MdtIndex(0)), 0, UNIT);
        let (pools, layout) = (pools(), layout([own, part(striped(&[1]), UNIT, 2 * UNIT), pending]));
        let of = |pool: &str, offset, len| Span::new(offset, len).space_in(&layout, &pools, pool);
        assert_eq!((of("flash", 0, UNIT), of("disk", 0, UNIT)), (Some(0), Some(0)), "it lies on the MDT");
        assert_eq!((of("flash", 0, 9 * UNIT), of("fast", 0, 9 * UNIT)), (Some(UNIT), Some(UNIT)));
        assert_eq!(of("disk", 0, 9 * UNIT), Some(7 * UNIT), "it will be there");
    }

    #[test]
    fn the_end_is_asked_for_only_if_it_matters() {
        let end = Span { offset: None, len: 10 };
        let pools = pools();
        let of = |layout: Layout, pool: &str| end.space_in(&layout, &pools, pool);
        assert_eq!(of(layout([striped(&[0, 1])]), "flash"), Some(4096));
        assert_eq!(of(layout([striped(&[0, 1])]), "disk"), Some(0));
        let both = || layout([part(striped(&[0]), 0, UNIT), part(striped(&[2]), UNIT, u64::MAX)]);
        assert_eq!((of(both(), "flash"), of(both(), "fast")), (None, Some(0)));
        let pending = Component::without_objects(ID, (UNIT, u64::MAX), None);
        assert_eq!(of(layout([part(striped(&[0]), 0, UNIT), pending]), "flash"), Some(4096));
    }
}
