//! Whether a file lies already where a rule wants it. A rule whose expression says nothing of that would move its files for ever.

use std::collections::{BTreeMap, BTreeSet};

use fuse::control::{Hint, Kind, Spaces, TargetSpace};
use fuse::session::MountEntry;
use proto::Layout;
use proto::layout::{Component, LayoutHint, Pattern};
use proto::pool::POOL_IGNORE;
use proto::wire::messages::Space;

use super::space;

/// Where files are to lie, and what there is to lie on.
#[derive(Debug)]
pub struct Wanted<'a> {
    hint: &'a Hint,
    /// Each OST, and whether new files can be made on it.
    osts: BTreeMap<u32, bool>,
    /// The OSTs of the pools that the hint names.
    pools: BTreeMap<String, BTreeSet<u32>>,
}

impl Wanted<'_> {
    /// What `hint` means in a file system.
    pub fn of<'a>(hint: &'a Hint, mount: &MountEntry) -> Result<Wanted<'a>, String> {
        let all = hint.parts.iter().map(|part| &part.hint).chain([hint]);
        let named = all.map(|hint| &hint.pool).filter(|pool| !pool.is_empty() && *pool != POOL_IGNORE);
        let pools = named.map(|pool| Ok((pool.clone(), space::members(mount, pool)?)));
        Ok(Wanted { hint, osts: osts(&space::spaces(mount)?), pools: pools.collect::<Result<_, String>>()? })
    }

    /// In a file system with these OSTs and pools.
    #[cfg(test)]
    pub fn for_test<'a>(
        hint: &'a Hint,
        osts: BTreeMap<u32, bool>,
        pools: BTreeMap<String, BTreeSet<u32>>,
    ) -> Wanted<'a> {
        Wanted { hint, osts, pools }
    }

    /// Whether a file with this layout is where it is to be.
    pub fn has(&self, layout: &Layout) -> bool {
        // Where nothing can ever lie, nothing was asked for.
        let parts: Vec<&Component> =
            layout.components.iter().filter(|part| part.pattern != Pattern::Nothing).collect();
        if self.hint.parts.is_empty() {
            return matches!(parts[..], [component] if component.end == u64::MAX && self.fits(self.hint, component));
        }
        parts.len() == self.hint.parts.len()
            && parts.iter().zip(&self.hint.parts).all(|(component, part)| {
                component.end == part.end
                    && match component.pattern {
                        Pattern::Mdt => part.on_mdt,
                        _ => !part.on_mdt && self.fits(&part.hint, component),
                    }
            })
    }

    fn fits(&self, hint: &Hint, component: &Component) -> bool {
        if hint.stripe_size != 0 && hint.stripe_size != component.stripe_size {
            return false;
        }
        if let Some(wanted) = &component.wanted {
            return promises(wanted, hint);
        }
        let lies: Vec<u32> = component.osts().map(|ost| ost.0).collect();
        let in_pool = match hint.pool.as_str() {
            "" => true,
            POOL_IGNORE => component.pool.is_empty(),
            pool => component.pool == pool && lies.iter().all(|ost| self.is_in(pool, *ost)),
        };
        let begins = u32::try_from(hint.start_index).map_or(true, |first| lies.first() == Some(&first));
        let listed = hint.osts.is_empty() || lies == hint.osts;
        component.pattern == Pattern::Raid0 && in_pool && begins && listed && self.has_count(hint, lies.len())
    }

    fn is_in(&self, pool: &str, ost: u32) -> bool {
        self.pools.get(pool).is_some_and(|members| members.contains(&ost))
    }

    /// Whether a file with as many stripes has what it can have. OSTs that take no new files lower that, and nobody moves a file again
    /// as long as it is so.
    fn has_count(&self, hint: &Hint, count: usize) -> bool {
        if hint.stripe_count == 0 || !hint.osts.is_empty() {
            return true;
        }
        let members = self
            .osts
            .iter()
            .filter(|(ost, _)| !self.pools.contains_key(&hint.pool) || self.is_in(&hint.pool, **ost));
        let (all, usable) =
            members.fold((0, 0), |(all, usable), (_, can)| (all + 1, usable + usize::from(*can)));
        let of = |osts: usize| match usize::try_from(hint.stripe_count) {
            Ok(wanted) if hint.overstripe => wanted,
            Ok(wanted) => wanted.min(osts),
            Err(_) => osts * hint.stripe_count.unsigned_abs() as usize,
        };
        count == of(all) || (of(usable)..of(all)).contains(&count)
    }
}

/// Whether a component without objects will get what is wanted.
fn promises(wanted: &LayoutHint, hint: &Hint) -> bool {
    let same_pool = match hint.pool.as_str() {
        "" => true,
        POOL_IGNORE => wanted.pool.is_empty() || wanted.pool == POOL_IGNORE,
        pool => wanted.pool == pool,
    };
    let osts: Vec<u32> = wanted.osts.iter().map(|ost| ost.0).collect();
    same_pool
        && (hint.stripe_count == 0 || hint.stripe_count == wanted.stripe_count)
        && (hint.start_index < 0 || hint.start_index == wanted.start_index)
        && (hint.osts.is_empty() || hint.osts == osts)
}

fn osts(spaces: &Spaces) -> BTreeMap<u32, bool> {
    let away = Space::DEGRADED | Space::NO_CREATE | Space::FULL;
    let can = |of: &TargetSpace| of.space.is_some_and(|space| space.state & away == 0);
    spaces.targets.iter().filter(|of| of.kind == Kind::Ost).map(|of| (of.index, can(of))).collect()
}

#[cfg(test)]
mod tests {
    use fuse::control::HintPart;
    use proto::layout::Component;
    use proto::{Fid, OstIndex};

    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    fn in_pool(pool: &str, osts: &[u32]) -> Component {
        let pool = pool.to_owned();
        Component { pool, ..Component::striped(FID, 1 << 20, osts.iter().copied().map(OstIndex)) }
    }

    /// OSTs 0 to 5, of which 5 takes no files; 2 to 5 are the pool disk.
    fn check(hint: &Hint, layout: impl Into<Layout>, expected: bool) {
        let layout = layout.into();
        let pools = BTreeMap::from([("disk".to_owned(), (2..6).collect())]);
        let osts = (0..6).map(|ost| (ost, ost != 5)).collect();
        assert_eq!(Wanted { hint, osts, pools }.has(&layout), expected, "{hint:?} {layout:?}");
    }

    fn disk(stripe_count: i32) -> Hint {
        Hint { pool: "disk".to_owned(), stripe_count, ..Hint::default() }
    }

    #[test]
    fn pools_and_counts() {
        check(&disk(0), in_pool("disk", &[2]), true);
        check(&disk(0), in_pool("flash", &[2]), false);
        // It was in the pool.
        check(&disk(0), in_pool("disk", &[1]), false);
        check(&disk(1), in_pool("disk", &[3]), true);
        check(&disk(1), in_pool("disk", &[3, 4]), false);
        // There are 4, of which 3 can be used now.
        check(&disk(-1), in_pool("disk", &[2, 3, 4, 5]), true);
        check(&disk(-1), in_pool("disk", &[2, 3, 4]), true);
        check(&disk(-1), in_pool("disk", &[2, 3]), false);
        check(&disk(100), in_pool("disk", &[2, 3, 4]), true);
        let over = Hint { overstripe: true, ..disk(6) };
        check(&over, in_pool("disk", &[2, 3, 4, 2, 3, 4]), true);
        check(&over, in_pool("disk", &[2, 3, 4]), false);
        let ignore = Hint { pool: POOL_IGNORE.to_owned(), stripe_count: 1, ..Hint::default() };
        check(&ignore, in_pool("", &[0]), true);
        check(&ignore, in_pool("disk", &[2]), false);
    }

    #[test]
    fn places_and_sizes() {
        let listed = Hint { osts: vec![1, 0], stripe_count: 2, ..Hint::default() };
        check(&listed, in_pool("", &[1, 0]), true);
        check(&listed, in_pool("", &[0, 1]), false);
        let first = Hint { start_index: 1, stripe_count: 1, ..Hint::default() };
        check(&first, in_pool("", &[1]), true);
        check(&first, in_pool("", &[0]), false);
        let size = Hint { stripe_size: 1 << 16, ..Hint::default() };
        check(&size, in_pool("", &[1]), false);
        check(&Hint { stripe_size: 1 << 20, ..size }, in_pool("", &[1]), true);
    }

    #[test]
    fn components() {
        let part = |end, hint, on_mdt| HintPart { end, hint, on_mdt, extension: 0 };
        let hint = Hint {
            parts: vec![
                part(1 << 16, Hint::default(), true),
                part(1 << 20, disk(1), false),
                part(u64::MAX, disk(-1), false),
            ],
            ..Hint::default()
        };
        let mdt = Component::on_mdt(FID, 1 << 16, proto::MdtIndex(0));
        let small = Component { start: 1 << 16, end: 1 << 20, ..in_pool("disk", &[2]) };
        let wanted = LayoutHint { pool: "disk".to_owned(), stripe_count: -1, ..LayoutHint::default() };
        let rest = Component::without_objects(FID, (1 << 20, u64::MAX), Some(wanted.clone()));
        let layout = |components: &[Component]| Layout {
            generation: 0,
            components: components.iter().cloned().collect(),
        };
        check(&hint, layout(&[mdt.clone(), small.clone(), rest.clone()]), true);
        check(&hint, layout(&[small.clone(), rest.clone()]), false);
        check(&disk(1), layout(&[small.clone(), rest.clone()]), false);
        let other = LayoutHint { stripe_count: 1, ..wanted };
        let rest = Component::without_objects(FID, (1 << 20, u64::MAX), Some(other));
        check(&hint, layout(&[mdt, small, rest]), false);
        // Without an end that was asked for, nothing can lie behind it.
        let short = Hint { parts: vec![part(1 << 20, disk(1), false)], ..Hint::default() };
        let first = Component { end: 1 << 20, ..in_pool("disk", &[2]) };
        let nothing = Component::without_objects(FID, (1 << 20, u64::MAX), None);
        check(&short, layout(&[first, nothing]), true);
    }
}
