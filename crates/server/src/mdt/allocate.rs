//! Which OSTs a new file gets (FEATURES L2, L4, L6, L7, L8, L10).
//!
//! Stripes follow an order of all OSTs in which neighbours belong to different servers. Where a file begins follows
//! from its FID: files that a client makes one after the other begin one behind the other. No counter is kept,
//! because a create that is replayed after a crash has to give the layout that the client has used already. When some OSTs have much more
//! room than others, the order is a round in which they have more turns ([`turns`](super::turns)).
//!
//! A pool takes OSTs out of that order. What asks for a pool that has been destroyed gets OSTs of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::layout::{Component, HintPart, LayoutHint, Spread, start};
use proto::limits::{COMPONENTS_MAX, MDT_DATA_BYTES_MAX, STRIPE_SIZE_DEFAULT, STRIPE_SIZE_UNIT, STRIPES_MAX};
use proto::pool::POOL_IGNORE;
use proto::{ClientId, Code, Fid, Layout, OstIndex, Pools, mdt_of};
use smallvec::SmallVec;

use super::place;
use super::turns::{self, Round};

/// Most stripes that `-C -N` gives each OST.
const STRIPES_PER_OST_MAX: i32 = 32;

/// OSTs in the order in which stripes take them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Order {
    osts: Vec<OstIndex>,
    /// Those that are left out unless they are named, or there is no other; sorted.
    avoided: Vec<OstIndex>,
    /// The turns of those that are not avoided, if some have more than others.
    round: Round,
    /// What each pool has of all that.
    pools: BTreeMap<String, Arc<Order>>,
    /// Those that took the place of a lost one.
    replaced: BTreeMap<OstIndex, Replaced>,
    /// Most bytes of a new file that lie on the MDT; `None` for as many as can.
    on_mdt_max: Option<u64>,
    /// Pools that are full, and those whose OSTs new objects get instead.
    spills: BTreeMap<String, String>,
}

/// An OST that took the place of a lost one: what older sequences name is lost, so nothing that is new may be named by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Its own name.
    pub uuid: ClientId,
    /// The first sequence that names what is new.
    pub first: u64,
}

impl Order {
    /// Orders `osts` (index, server) so that the OSTs of each server are spread evenly: of two servers with two
    /// OSTs each the order is 0, 2, 1, 3.
    pub fn new(mut osts: Vec<(OstIndex, String)>) -> Order {
        osts.sort();
        let once = osts.iter().map(|(index, server)| (*index, server.as_str(), 1));
        Order::from_osts(turns::interleaved(once))
    }

    /// An order as it was stored.
    pub fn from_osts(osts: Vec<OstIndex>) -> Order {
        Order { osts, ..Order::default() }
    }

    /// The same order with `pools`.
    pub fn with_pools(self, pools: &Pools) -> Order {
        let of = |(name, members): (&str, &BTreeSet<OstIndex>)| {
            let in_pool =
                |osts: &[OstIndex]| osts.iter().filter(|ost| members.contains(ost)).copied().collect();
            let (osts, avoided) = (in_pool(&self.osts), in_pool(&self.avoided));
            let order = Order { osts, avoided, ..Order::default() };
            (name.to_owned(), Arc::new(order))
        };
        Order { pools: pools.iter().map(of).collect(), ..self }
    }

    /// The same order, in which OSTs have turns: `round_of` tells those of all OSTs, and of those of each pool, that are not avoided.
    pub fn with_rounds(mut self, round_of: impl Fn(Option<&str>, &[OstIndex]) -> Round) -> Order {
        self.round = round_of(None, &self.usable(None));
        for (name, pool) in &mut self.pools {
            let round = round_of(Some(name), &pool.usable(None));
            *pool = Arc::new(Order { round, ..Order::clone(pool) });
        }
        self
    }

    /// The turns of all OSTs, or of those of a pool.
    pub fn round(&self, pool: Option<&str>) -> Option<&Round> {
        let order = pool.map_or(Some(self), |name| self.pools.get(name).map(Arc::as_ref))?;
        Some(&order.round).filter(|round| !round.turns().is_empty())
    }

    /// The rounds as they were in `before`, of what has the same OSTs.
    pub fn with_rounds_of(self, before: &Order) -> Order {
        self.with_rounds(|pool, osts| {
            let known = before.round(pool).filter(|_| {
                let order = pool.map_or(Some(before), |name| before.pools.get(name).map(Arc::as_ref));
                order.is_some_and(|order| order.usable(None) == osts)
            });
            known.cloned().unwrap_or_default()
        })
    }

    /// The same order, in which `replaced` took the place of lost ones.
    pub fn replacing(self, replaced: BTreeMap<OstIndex, Replaced>) -> Order {
        Order { replaced, ..self }
    }

    /// The same order, with no more than so many bytes of a new file on the MDT.
    pub fn with_on_mdt_max(self, on_mdt_max: Option<u64>) -> Order {
        Order { on_mdt_max, ..self }
    }

    /// The same order, in which pools spill from here to there.
    pub fn spilling(self, spills: BTreeMap<String, String>) -> Order {
        Order { spills, ..self }
    }

    /// Pools that are full, and those whose OSTs new objects get instead.
    pub fn spills(&self) -> &BTreeMap<String, String> {
        &self.spills
    }

    /// The pools that new objects of `hint` go past, from the one that it asks for on. Who names OSTs gets them, whatever is full.
    pub fn spilled<'a>(&'a self, hint: &'a LayoutHint) -> impl Iterator<Item = &'a str> {
        let names_osts = !hint.osts.is_empty() || first_of(hint).is_some();
        let next = |pool: &&'a str| self.next_pool(pool);
        let first = Some(hint.pool.as_str()).filter(|pool| !names_osts && self.pools.contains_key(*pool));
        let all = std::iter::successors(first, next).take(self.spills.len());
        all.filter(|pool| self.next_pool(pool).is_some())
    }

    /// Where a pool spills to.
    fn next_pool(&self, pool: &str) -> Option<&str> {
        self.spills.get(pool).map(String::as_str).filter(|next| self.pools.contains_key(*next))
    }

    /// Most bytes of a new file that lie on the MDT; `None` for as many as can.
    pub fn on_mdt_max(&self) -> Option<u64> {
        self.on_mdt_max
    }

    /// Those that took the place of a lost one.
    pub fn replaced(&self) -> &BTreeMap<OstIndex, Replaced> {
        &self.replaced
    }

    /// OldSequence if `id` cannot name what is new on one of `osts`.
    fn check_sequence(&self, id: Fid, osts: &[OstIndex]) -> Result<(), Code> {
        let is_old = |ost| self.replaced.get(ost).is_some_and(|replaced| id.seq < replaced.first);
        if !self.replaced.is_empty() && osts.iter().any(is_old) { Err(Code::OldSequence) } else { Ok(()) }
    }

    /// Each pool, with its OSTs in their order.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &[OstIndex])> {
        self.pools.iter().map(|(name, order)| (name.as_str(), order.osts()))
    }

    /// Whether a layout may ask for the pool `name`.
    fn allows(&self, name: &str) -> bool {
        name.is_empty() || name == POOL_IGNORE || self.pools.contains_key(name)
    }

    /// The OSTs from which `hint` chooses, and the pool that they are of.
    fn chosen<'a>(&'a self, hint: &'a LayoutHint) -> (&'a Order, &'a str) {
        let last = self.spilled(hint).last().and_then(|pool| self.next_pool(pool));
        let pool = last.unwrap_or(&hint.pool);
        match self.pools.get(pool) {
            Some(order) => (order, pool),
            None => (self, ""),
        }
    }

    /// A pool that `hint` asks for, and that is no more.
    pub fn lost_pool<'a>(&self, hint: &'a LayoutHint) -> Option<&'a str> {
        named_pools(hint).find(|name| !self.allows(name))
    }

    /// Whether every pool that `hint` asks for is there, and has an OST.
    pub fn has_pools(&self, hint: &LayoutHint) -> bool {
        self.lost_pool(hint).is_none() && self.empty_pool(hint).is_none()
    }

    /// A pool that `hint` asks for, and that has no OST.
    pub fn empty_pool<'a>(&self, hint: &'a LayoutHint) -> Option<&'a str> {
        named_pools(hint).find(|name| self.pools.get(*name).is_some_and(|order| order.is_empty()))
    }

    /// The same order, in which stripes keep away from `avoided`.
    pub fn avoiding(self, mut avoided: Vec<OstIndex>) -> Order {
        avoided.retain(|ost| self.osts.contains(ost));
        avoided.sort_unstable();
        avoided.dedup();
        Order { avoided, ..self }
    }

    /// The same order, in which stripes keep away from `lacking` too: they have no room for what is asked for just now.
    pub fn without_room(&self, lacking: &[OstIndex]) -> Order {
        let avoiding = |order: &Order| {
            let avoided = order.avoided.iter().chain(lacking).copied().collect();
            // The turns may be those of an OST that has no room.
            Order { round: Round::default(), ..order.clone().avoiding(avoided) }
        };
        let pools = self.pools.iter().map(|(name, pool)| (name.clone(), Arc::new(avoiding(pool)))).collect();
        Order { pools, ..avoiding(self) }
    }

    /// Those that stripes keep away from, sorted.
    pub fn avoided(&self) -> &[OstIndex] {
        &self.avoided
    }

    /// Those that stripes take when nobody names any, and `first`, in order; all if that leaves none.
    fn usable(&self, first: Option<OstIndex>) -> Vec<OstIndex> {
        let is_usable = |ost: &OstIndex| first == Some(*ost) || self.avoided.binary_search(ost).is_err();
        let usable: Vec<OstIndex> = self.osts.iter().copied().filter(is_usable).collect();
        if usable.is_empty() { self.osts.clone() } else { usable }
    }

    /// The OSTs in their order.
    pub fn osts(&self) -> &[OstIndex] {
        &self.osts
    }

    /// Whether there is no OST.
    pub fn is_empty(&self) -> bool {
        self.osts.is_empty()
    }

    fn has(&self, ost: OstIndex) -> bool {
        self.osts.contains(&ost)
    }
}

/// The pools that a hint names, of all its parts.
fn named_pools(hint: &LayoutHint) -> impl Iterator<Item = &str> {
    let parts = hint.parts.iter().map(|part| part.pool.as_str());
    std::iter::once(hint.pool.as_str()).chain(parts)
}

/// Checks what can be checked of `hint` without choosing OSTs.
pub fn check(hint: &LayoutHint, order: &Order) -> Result<(), Code> {
    check_pool(hint, order)?;
    check_values(hint, order)
}

/// Whoever asks for a pool names one that there is.
pub fn check_pool(hint: &LayoutHint, order: &Order) -> Result<(), Code> {
    if order.lost_pool(hint).is_some() { Err(Code::NotFound) } else { Ok(()) }
}

fn check_values(hint: &LayoutHint, order: &Order) -> Result<(), Code> {
    if !hint.parts.is_empty() {
        return check_parts(&hint.parts, order);
    }
    let multiples = hint.overstripe && (-STRIPES_PER_OST_MAX..-1).contains(&hint.stripe_count);
    let count = hint.stripe_count >= -1 || multiples;
    let sane = count
        && hint.stripe_count <= STRIPES_MAX as i32
        && hint.stripe_size.is_multiple_of(STRIPE_SIZE_UNIT)
        && hint.start_index >= -1;
    if !sane {
        return Err(Code::Invalid);
    }
    let (order, pool) = order.chosen(hint);
    if !hint.osts.is_empty() {
        return check_list(hint, order);
    }
    // Before there is an OST, nobody knows which there will be.
    let is_known = !order.is_empty() || !pool.is_empty();
    match first_of(hint) {
        Some(index) if is_known && !order.has(index) => Err(Code::Invalid),
        _ => Ok(()),
    }
}

/// Parts follow each other; all but the last one end at a multiple of 64 KiB.
fn check_parts(parts: &[HintPart], order: &Order) -> Result<(), Code> {
    let mut end = 0;
    // One that extends itself is two components, and may become more.
    let most = if parts.iter().any(|part| part.extension > 0) { COMPONENTS_MAX / 2 } else { COMPONENTS_MAX };
    for (number, part) in parts.iter().enumerate() {
        let ends = part.end == u64::MAX || part.end.is_multiple_of(u64::from(STRIPE_SIZE_UNIT));
        let fits = !part.on_mdt || number == 0 && part.end <= MDT_DATA_BYTES_MAX && asks_nothing(part);
        let extends = part.extension.is_multiple_of(u64::from(STRIPE_SIZE_UNIT));
        let sane = part.end > end && ends && fits && extends && !(part.on_mdt && part.extension > 0);
        if !sane || number + 1 >= most {
            return Err(Code::Invalid);
        }
        end = part.end;
        check_values(&part.hint(), order)?;
    }
    Ok(())
}

/// Whether a part leaves everything open that is about OSTs.
fn asks_nothing(part: &HintPart) -> bool {
    is_open(&part.hint())
}

fn check_list(hint: &LayoutHint, order: &Order) -> Result<(), Code> {
    let list = &hint.osts;
    let agrees = hint.stripe_count <= 0 || hint.stripe_count as usize == list.len();
    let starts = first_of(hint).is_none_or(|index| list.contains(&index));
    let allowed = hint.overstripe || !has_twice(list);
    let sane =
        agrees && starts && allowed && list.len() <= STRIPES_MAX && list.iter().all(|&ost| order.has(ost));
    if sane { Ok(()) } else { Err(Code::Invalid) }
}

/// The first OST that a hint asks for.
fn first_of(hint: &LayoutHint) -> Option<OstIndex> {
    u32::try_from(hint.start_index).ok().map(OstIndex)
}

fn has_twice(list: &[OstIndex]) -> bool {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// Fills what `hint` leaves open from `above`, the default of what is above it.
pub fn inherit(hint: &LayoutHint, above: &LayoutHint) -> LayoutHint {
    let mut filled = hint.clone();
    if !hint.parts.is_empty() {
        for part in filled.parts.iter_mut().filter(|part| !part.on_mdt) {
            let (end, extension) = (part.end, part.extension);
            *part = HintPart { extension, ..HintPart::new(end, inherit(&part.hint(), &plain(above))) };
        }
        return filled;
    }
    if is_open(hint) && !above.parts.is_empty() {
        return above.clone();
    }
    let above = &plain(above);
    if filled.stripe_count == 0 && filled.osts.is_empty() {
        filled.stripe_count = above.stripe_count;
        filled.overstripe |= above.overstripe;
    }
    if filled.stripe_size == 0 {
        filled.stripe_size = above.stripe_size;
    }
    // Who names OSTs takes them from wherever they are.
    if filled.pool.is_empty() && filled.osts.is_empty() && first_of(&filled).is_none() {
        filled.pool.clone_from(&above.pool);
    }
    filled
}

/// `hint` with no more on the MDT than may be: the first part is shorter or left out, and the one behind it begins there. If there is none
/// behind it, what may not lie on the MDT lies on an OST.
pub fn shortened(mut hint: LayoutHint, order: &Order) -> LayoutHint {
    let Some(max) = order.on_mdt_max else { return hint };
    let Some(first) = hint.parts.first_mut().filter(|first| first.on_mdt && first.end > max) else {
        return hint;
    };
    let end = std::mem::replace(&mut first.end, max);
    if hint.parts.len() == 1 {
        hint.parts.push(HintPart::new(end, LayoutHint::default()));
    }
    if max == 0 {
        hint.parts.remove(0);
    }
    hint
}

/// Whether nothing is asked for.
fn is_open(hint: &LayoutHint) -> bool {
    *hint == LayoutHint::default()
}

/// A default without parts: what a part leaves open is the file system's.
fn plain(hint: &LayoutHint) -> LayoutHint {
    if hint.parts.is_empty() { hint.clone() } else { file_system_default() }
}

/// What a file gets when nobody says anything.
pub fn file_system_default() -> LayoutHint {
    LayoutHint { stripe_count: 1, stripe_size: STRIPE_SIZE_DEFAULT, ..LayoutHint::default() }
}

/// A layout with the name `id` after `hint`, in which everything is filled in. The same arguments give the same
/// layout. OldSequence if `id` may name objects that were lost on one of its OSTs.
pub fn allocate(id: Fid, hint: &LayoutHint, order: &Order) -> Result<Layout, Code> {
    check_values(hint, order)?;
    if !hint.parts.is_empty() {
        return allocate_parts(id, &hint.parts, order);
    }
    let all = order;
    let (order, pool) = order.chosen(hint);
    if order.is_empty() {
        return Err(Code::NoSpace);
    }
    let stripe_size = if hint.stripe_size == 0 { STRIPE_SIZE_DEFAULT } else { hint.stripe_size };
    let layout = |osts: Vec<OstIndex>, overstriped| {
        all.check_sequence(id, &osts)?;
        let pool = pool.to_owned();
        let component = Component { overstriped, pool, ..Component::striped(id, stripe_size, osts) };
        Ok(Layout::from(component))
    };
    if !hint.osts.is_empty() {
        return layout(hint.osts.clone(), has_twice(&hint.osts));
    }
    let first = first_of(hint);
    let usable = order.usable(first);
    let known = usable.len();
    let count = match hint.stripe_count {
        0 => 1,
        wanted if wanted > 0 && hint.overstripe => wanted as usize,
        wanted if wanted > 0 => (wanted as usize).min(known),
        times => known * times.unsigned_abs() as usize,
    };
    let count = count.min(STRIPES_MAX);
    let turns = order.round.turns().len();
    if turns > 0 && first.is_none() && count <= known {
        let osts = order.round.take(start(id, count, turns), count, &usable);
        return layout(osts, false);
    }
    let start = match first {
        Some(index) => usable.iter().position(|&ost| ost == index).ok_or(Code::Invalid)?,
        None => start(id, count, known),
    };
    let osts = usable.iter().cycle().skip(start).take(count).copied().collect();
    layout(osts, count > known)
}

/// How files lie that ask for nothing but `hint`. Empty where that says more than how many stripes of which size, or there are too many
/// OSTs to tell of.
pub fn spread(hint: &LayoutHint, order: &Order) -> Spread {
    let plain = LayoutHint {
        stripe_count: hint.stripe_count,
        stripe_size: hint.stripe_size,
        ..LayoutHint::default()
    };
    let usable = order.usable(None);
    let known = usable.len() as u32;
    let stripe_count = match hint.stripe_count {
        0 => 1,
        -1 => known,
        wanted => u32::try_from(wanted).unwrap_or(0).min(known),
    };
    // Who takes all OSTs has no choice, whatever room they have.
    let by_turns = !order.round.turns().is_empty() && stripe_count < known;
    let osts = if by_turns { order.round.turns().to_vec() } else { usable };
    let keeps_apart = !by_turns || order.round.keeps_apart(stripe_count as usize);
    let is_plain = *hint == plain && check_values(hint, order).is_ok();
    let can = is_plain && keeps_apart && osts.len() <= Spread::OSTS_MAX;
    let first_sequence = order.replaced.values().map(|replaced| replaced.first).max().unwrap_or(0);
    Spread {
        stripe_size: if hint.stripe_size == 0 { STRIPE_SIZE_DEFAULT } else { hint.stripe_size },
        stripe_count,
        osts: if can { osts } else { Vec::new() },
        first_sequence,
    }
}

/// Whether a client may have foretold `layout` for the file `id`: it lies on OSTs that there are.
pub fn accept(layout: &Layout, id: Fid, order: &Order) -> Result<(), Code> {
    let [component] = &layout.components[..] else { return Err(Code::Invalid) };
    let osts: Vec<OstIndex> = layout.osts().collect();
    let is_plain = *layout == Layout::from(Component::striped(id, component.stripe_size, osts.clone()));
    let sane = is_plain
        && layout.is_sane()
        && component.stripe_size.is_multiple_of(STRIPE_SIZE_UNIT)
        && (1..=STRIPES_MAX).contains(&osts.len())
        && !has_twice(&osts)
        && osts.iter().all(|&ost| order.has(ost));
    if !sane {
        return Err(Code::Invalid);
    }
    order.check_sequence(id, &osts)
}

/// The first component has objects at once; the others get them with the first write to them ([`place::place`]).
fn allocate_parts(id: Fid, parts: &[HintPart], order: &Order) -> Result<Layout, Code> {
    let mut components = SmallVec::new();
    let mut start = 0;
    for part in parts {
        if part.on_mdt {
            components.push(Component::on_mdt(id, part.end, mdt_of(id)));
            start = part.end;
            continue;
        }
        let mut wanted = part.hint();
        if wanted.stripe_size == 0 {
            wanted.stripe_size = STRIPE_SIZE_DEFAULT;
        }
        let pool = if order.pools.contains_key(&wanted.pool) { wanted.pool.clone() } else { String::new() };
        let pending = Component {
            pool,
            extension: part.extension,
            ..Component::without_objects(id, (start, part.end), Some(wanted))
        };
        match start {
            0 => components.extend(place::begun(&pending, id, order)?),
            _ => components.push(pending),
        }
        start = part.end;
    }
    if start < u64::MAX {
        components.push(Component::without_objects(id, (start, u64::MAX), None));
    }
    Ok(Layout { generation: 0, components })
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::PoolEntry;

    use super::*;
    use crate::mdt::turns::{Offer, Rule};

    const ID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    fn order(servers: &[(&str, &[u32])]) -> Order {
        let osts = servers
            .iter()
            .flat_map(|(name, osts)| osts.iter().map(|&ost| (OstIndex(ost), (*name).to_owned())));
        Order::new(osts.collect())
    }

    fn two_by_two() -> Order {
        order(&[("oss1", &[0, 1]), ("oss2", &[2, 3])])
    }

    fn indexes(osts: &[u32]) -> Vec<OstIndex> {
        osts.iter().copied().map(OstIndex).collect()
    }

    fn pools(of: &[(&str, &[u32])]) -> Pools {
        let mut pools = Pools::default();
        for (name, osts) in of {
            pools.insert(PoolEntry { name: (*name).into(), osts: indexes(osts) });
        }
        pools
    }

    fn numbers(order: Order) -> Vec<u32> {
        order.osts.into_iter().map(|ost| ost.0).collect()
    }

    fn hint(count: i32) -> LayoutHint {
        LayoutHint { stripe_count: count, ..LayoutHint::default() }
    }

    fn osts_of(oid: u32, hint: &LayoutHint, order: &Order) -> Result<Vec<u32>, Code> {
        allocate(Fid { oid, ..ID }, hint, order).map(|layout| layout.osts().map(|ost| ost.0).collect())
    }

    fn osts(hint: &LayoutHint, order: &Order) -> Result<Vec<u32>, Code> {
        osts_of(1, hint, order)
    }

    #[test]
    fn servers_interleave() {
        assert_eq!(numbers(two_by_two()), [0, 2, 1, 3]);
        assert_eq!(numbers(order(&[("a", &[0, 1, 2]), ("b", &[3])])), [0, 1, 3, 2]);
        assert_eq!(numbers(order(&[("a", &[0, 1]), ("b", &[2, 3]), ("c", &[4, 5])])), [0, 2, 4, 1, 3, 5]);
        assert_eq!(numbers(order(&[("b", &[4096]), ("a", &[65500, 7])])), [7, 4096, 65500]);
    }

    #[test]
    fn all_osts_are_a_rotation() {
        let order = two_by_two();
        let mut starts = Vec::new();
        for oid in 1..=4 {
            let mut osts = osts_of(oid, &hint(-1), &order).expect("a layout");
            starts.push(osts[0]);
            let turn = osts.iter().position(|&ost| ost == 0).expect("every OST has a stripe");
            osts.rotate_left(turn);
            assert_eq!(osts, [0, 2, 1, 3]);
        }
        starts.sort_unstable();
        assert_eq!(starts, [0, 1, 2, 3], "each of four files begins elsewhere");
    }

    fn counts(oids: impl Iterator<Item = u32>, stripes: i32, order: &Order) -> Vec<u32> {
        let mut counts = vec![0; 4];
        for oid in oids {
            for ost in osts_of(oid, &hint(stripes), order).expect("a layout") {
                counts[ost as usize] += 1;
            }
        }
        counts
    }

    #[test]
    fn files_are_balanced() {
        let order = two_by_two();
        assert_eq!(counts(1..=1000, 1, &order), [250; 4]);
        assert_eq!(counts(1..=1000, 2, &order), [500; 4]);
        assert_eq!(counts(1..=1000, 3, &order), [750; 4]);
        for every_second in
            [counts((1..=2000).step_by(2), 1, &order), counts((1..=4000).step_by(4), 1, &order)]
        {
            assert!(every_second.iter().all(|&count| (200..=300).contains(&count)), "{every_second:?}");
        }
    }

    #[test]
    fn counts_differ_by_no_more_than_one() {
        for osts in 1..=9 {
            let osts: Vec<u32> = (0..osts).collect();
            let order = order(&[("a", &osts[..osts.len() / 2]), ("b", &osts[osts.len() / 2..])]);
            let mut counts = vec![0; osts.len()];
            for oid in 1..=1000 {
                let got = osts_of(oid, &hint(1), &order).expect("a layout");
                got.iter().for_each(|ost| counts[*ost as usize] += 1);
            }
            let (min, max) = (counts.iter().min().expect("OSTs"), counts.iter().max().expect("OSTs"));
            assert!(max - min <= 1, "{counts:?}");
        }
    }

    /// Four OSTs of two servers that have so much room.
    fn with_room(free: [u64; 4], prio_free_pct: u64) -> (Order, Vec<u128>) {
        let rule = Rule { prio_free_pct, ..Rule::DEFAULT };
        let weights = rule.weights(&free).expect("they differ");
        (two_by_two().with_rounds(|_, osts| round_of(rule, free, osts)), weights)
    }

    fn round_of(rule: Rule, free: [u64; 4], osts: &[OstIndex]) -> Round {
        let servers = ["oss1", "oss1", "oss2", "oss2"];
        let offer = |ost: &OstIndex| {
            let n = ost.0 as usize;
            Offer { ost: *ost, server: servers[n], free: Some(free[n]) }
        };
        rule.round(&osts.iter().map(offer).collect::<Vec<_>>())
    }

    /// How far counts are from what weights say.
    fn chi_square(counts: &[u32], weights: &[u128]) -> f64 {
        let (all, sum) = (counts.iter().sum::<u32>() as f64, weights.iter().sum::<u128>() as f64);
        let of = |(count, weight): (&u32, &u128)| {
            let expected = all * *weight as f64 / sum;
            (f64::from(*count) - expected).powi(2) / expected
        };
        counts.iter().zip(weights).map(of).sum()
    }

    #[test]
    fn counts_match_the_weights() {
        // Of three degrees of freedom one in a thousand is beyond that.
        const BOUND: f64 = 16.27;
        let gib = |n: [u64; 4]| n.map(|n| n << 30);
        for free in [gib([700, 1000, 1000, 1000]), gib([100, 400, 900, 1600]), gib([30, 30, 30, 900])] {
            for prio in [0, 50, 90, 100] {
                let (order, weights) = with_room(free, prio);
                let one_behind_the_other = counts(1..=1000, 1, &order);
                let anywhere = (1..=1000u32).map(|n| n.wrapping_mul(2_654_435_761) >> 8 | 1);
                for counts in [one_behind_the_other, counts(anywhere, 1, &order)] {
                    let chi_square = chi_square(&counts, &weights);
                    assert!(chi_square < BOUND, "{free:?}, {prio} %: {counts:?}, chi-square {chi_square}");
                }
            }
        }
        let even = counts(1..=1000, 1, &two_by_two());
        let (_, weights) = with_room(gib([700, 1000, 1000, 1000]), 90);
        assert!(chi_square(&even, &weights) > BOUND, "the test sees that nobody looks at the room");
    }

    #[test]
    fn stripes_of_a_file_are_spread_whatever_room_there_is() {
        let (order, _) = with_room([100, 200, 300, 900], 100);
        for oid in 1..=1000 {
            for stripes in [2, 3, 4, -1] {
                let mut osts = osts_of(oid, &hint(stripes), &order).expect("a layout");
                osts.sort_unstable();
                osts.dedup();
                assert_eq!(osts.len(), if stripes < 0 { 4 } else { stripes as usize });
            }
        }
        let [a, b, c, d] = counts(1..=1000, 2, &order)[..] else { panic!("four OSTs") };
        assert!(a < b && b < c && c < d, "{:?}", [a, b, c, d]);
        let over = LayoutHint { overstripe: true, ..hint(-2) };
        let each = counts_of(&osts(&over, &order).expect("a layout"));
        assert_eq!(each, [2; 4], "who asks for all gets all");
        let named = LayoutHint { start_index: 0, ..hint(2) };
        assert_eq!(osts(&named, &order), Ok(vec![0, 2]), "from the one that is named on");
        let list = LayoutHint { osts: indexes(&[0, 1]), ..LayoutHint::default() };
        assert_eq!(osts(&list, &order), Ok(vec![0, 1]));
    }

    fn counts_of(osts: &[u32]) -> [u32; 4] {
        [0, 1, 2, 3].map(|ost| osts.iter().filter(|other| **other == ost).count() as u32)
    }

    #[test]
    fn what_is_full_is_passed_over_in_every_pool() {
        let pools = pools(&[("small", &[0, 1]), ("large", &[2, 3])]);
        let free = [0, 100, 700, 1000];
        let order = two_by_two().avoiding(indexes(&[0])).with_pools(&pools);
        let order = order.with_rounds(|_, osts| round_of(Rule::DEFAULT, free, osts));
        for oid in 1..=1000 {
            for pool in ["", "small"] {
                for stripes in [1, 2, -1] {
                    let hint = LayoutHint { pool: pool.into(), ..hint(stripes) };
                    let osts = osts_of(oid, &hint, &order).expect("a layout");
                    assert!(!osts.contains(&0), "{pool}: {osts:?}");
                }
            }
        }
        let of = |pool: &str| {
            let hint = LayoutHint { pool: pool.into(), ..hint(1) };
            let osts = (1..=1000).flat_map(|oid| osts_of(oid, &hint, &order).expect("a layout"));
            counts_of(&osts.collect::<Vec<_>>())
        };
        let [_, _, less, more] = of("large");
        assert!(less + more == 1000 && (390..450).contains(&less), "{less}: only the pool's own room counts");
        assert_eq!(of("small"), [0, 1000, 0, 0], "there is one left");
        assert!(of("")[1] < 80);
    }

    #[test]
    fn a_client_foretells_what_turns_say() {
        let (order, _) = with_room([100, 200, 300, 400], 90);
        let told = spread(&hint(1), &order);
        for oid in 1..=1000 {
            let id = Fid { oid, ..ID };
            assert_eq!(told.layout_of(id), Some(allocate(id, &hint(1), &order).expect("a layout")));
        }
        for stripes in [2, 3, -1] {
            let told = spread(&hint(stripes), &order);
            let layouts = (1..=1000).filter_map(|oid| told.layout_of(Fid { oid, ..ID }));
            for layout in layouts {
                accept(&layout, layout.components[0].id, &order).expect("no OST twice");
            }
        }
        assert_eq!(spread(&hint(3), &order).osts, [], "some have two turns too close to each other");
    }

    #[test]
    fn turns_stay_until_another_set_of_osts() {
        let (before, _) = with_room([100, 200, 300, 400], 90);
        assert_eq!(two_by_two().with_rounds_of(&before), before);
        let fewer = two_by_two().avoiding(indexes(&[1]));
        assert_eq!(fewer.clone().with_rounds_of(&before), fewer);
    }

    #[test]
    fn overstriping_cycles() {
        let (order, over) = (two_by_two(), |n| LayoutHint { overstripe: true, ..hint(n) });
        let get = |hint: &LayoutHint| {
            let hint = LayoutHint { start_index: 0, ..hint.clone() };
            let layout = allocate(ID, &hint, &order).expect("a layout");
            (layout.osts().map(|ost| ost.0).collect::<Vec<_>>(), layout.is_overstriped())
        };
        assert_eq!(get(&over(8)), (vec![0, 2, 1, 3, 0, 2, 1, 3], true));
        assert_eq!(get(&over(-2)), (vec![0, 2, 1, 3, 0, 2, 1, 3], true));
        assert_eq!(get(&over(4)), (vec![0, 2, 1, 3], false));
        assert_eq!(get(&over(-1)), (vec![0, 2, 1, 3], false));
        assert_eq!(get(&over(-32)).0.len(), 128);
        assert_eq!(get(&hint(8)), (vec![0, 2, 1, 3], false));
        assert_eq!(osts(&over(-33), &order), Err(Code::Invalid));
        assert_eq!(osts(&hint(-2), &order), Err(Code::Invalid));
        assert_eq!(osts(&over(2001), &order), Err(Code::Invalid));
    }

    #[test]
    fn explicit_lists_and_starts() {
        let order = order(&[("a", &[0, 4096]), ("b", &[7, 65500])]);
        let list = |osts: &[u32]| LayoutHint { osts: indexes(osts), ..LayoutHint::default() };
        let get = |hint: &LayoutHint| osts(hint, &order);
        assert_eq!(get(&list(&[65500, 0, 7])), Ok(vec![65500, 0, 7]));
        assert_eq!(get(&list(&[0, 1])), Err(Code::Invalid));
        assert_eq!(get(&list(&[0, 0])), Err(Code::Invalid));
        assert_eq!(get(&LayoutHint { overstripe: true, ..list(&[0, 0]) }), Ok(vec![0, 0]));
        assert_eq!(get(&LayoutHint { stripe_count: 2, ..list(&[0]) }), Err(Code::Invalid));
        assert_eq!(get(&LayoutHint { start_index: 7, ..list(&[0]) }), Err(Code::Invalid));
        assert_eq!(get(&LayoutHint { start_index: 4096, ..hint(2) }), Ok(vec![4096, 65500]));
        assert_eq!(get(&LayoutHint { start_index: 1, ..hint(2) }), Err(Code::Invalid));
        assert_eq!(osts(&hint(1), &Order::default()), Err(Code::NoSpace));
    }

    #[test]
    fn what_is_degraded_is_avoided() {
        let order = two_by_two().avoiding(indexes(&[2, 9]));
        assert_eq!(counts(1..=1000, 1, &order)[2], 0);
        let mut all = osts(&hint(-1), &order).expect("a layout");
        all.sort_unstable();
        assert_eq!(all, [0, 1, 3], "all others");
        let from = |index, count| osts(&LayoutHint { start_index: index, ..hint(count) }, &order);
        assert_eq!((from(2, 2), from(0, 2)), (Ok(vec![2, 1]), Ok(vec![0, 1])), "but for one that is named");
        let named = LayoutHint { osts: indexes(&[2, 3]), ..LayoutHint::default() };
        assert_eq!(osts(&named, &order), Ok(vec![2, 3]));
        let none = two_by_two().avoiding(indexes(&[0, 1, 2, 3]));
        assert_eq!(osts(&hint(-1), &none).map(|osts| osts.len()), Ok(4), "there is no other");
    }

    #[test]
    fn what_an_old_sequence_names_is_not_put_on_what_replaced_a_lost_one() {
        let replaced = Replaced { uuid: ClientId(7), first: ID.seq + 1 };
        let order = two_by_two().replacing(BTreeMap::from([(OstIndex(2), replaced)]));
        let new = Fid { seq: ID.seq + 1, ..ID };
        let pooled = order.with_pools(&pools(&[("two", &[2]), ("one", &[1])]));
        let of = |id: Fid, pool: &str, osts: &[u32]| {
            let hint = LayoutHint { pool: pool.into(), osts: indexes(osts), ..hint(-1) };
            allocate(id, &hint, &pooled).map(|layout| layout.osts().count())
        };
        assert_eq!((of(ID, "", &[]), of(new, "", &[])), (Err(Code::OldSequence), Ok(4)));
        assert_eq!(
            (of(ID, "two", &[]), of(ID, "one", &[]), of(new, "two", &[])),
            (Err(Code::OldSequence), Ok(1), Ok(1))
        );
        assert_eq!((of(ID, "", &[2]), of(ID, "", &[1, 3])), (Err(Code::OldSequence), Ok(2)));
    }

    #[test]
    fn a_pool_is_all_that_there_is() {
        let order = two_by_two().avoiding(indexes(&[3])).with_pools(&pools(&[
            ("one", &[2]),
            ("three", &[1, 2, 3]),
            ("slow", &[3]),
            ("empty", &[]),
        ]));
        let of = |pool: &str, hint: LayoutHint| {
            let layout = allocate(ID, &LayoutHint { pool: pool.into(), ..hint }, &order)?;
            let mut osts: Vec<u32> = layout.osts().map(|ost| ost.0).collect();
            osts.sort_unstable();
            Ok((osts, layout.components[0].pool.clone()))
        };
        let is = |osts: &[u32], pool: &str| Ok((osts.to_vec(), pool.to_owned()));
        assert_eq!(of("one", hint(1)), is(&[2], "one"));
        assert_eq!(of("one", hint(3)), is(&[2], "one"));
        assert_eq!(of("three", hint(-1)), is(&[1, 2], "three"), "all but what is degraded");
        assert_eq!(of("slow", hint(1)), is(&[3], "slow"), "there is no other in the pool");
        assert_eq!(of("empty", hint(1)), Err(Code::NoSpace));
        assert_eq!(of("ignore", hint(-1)), is(&[0, 1, 2], ""));
        assert_eq!(of("gone", hint(-1)), is(&[0, 1, 2], ""), "it was destroyed");
        let from = |start_index| LayoutHint { start_index, ..hint(1) };
        assert_eq!((of("three", from(3)), of("three", from(0))), (is(&[3], "three"), Err(Code::Invalid)));
        assert_eq!(of("empty", from(0)), Err(Code::Invalid));
        let list = |osts: &[u32]| LayoutHint { osts: indexes(osts), ..LayoutHint::default() };
        assert_eq!(
            (of("three", list(&[1, 3])), of("three", list(&[0, 1]))),
            (is(&[1, 3], "three"), Err(Code::Invalid))
        );
        let over = LayoutHint { overstripe: true, ..hint(-2) };
        assert_eq!(of("one", over), is(&[2, 2], "one"));
        for oid in 1..100 {
            let hint = LayoutHint { pool: "three".into(), ..hint(1) };
            assert!([1, 2].contains(&osts_of(oid, &hint, &order).expect("a layout")[0]));
        }
    }

    #[test]
    fn a_full_pool_spills_to_another_one() {
        let order = two_by_two().with_pools(&pools(&[("flash", &[0]), ("disk", &[1, 2]), ("slow", &[3])]));
        let of = |order: &Order, hint: LayoutHint| {
            let layout = allocate(ID, &LayoutHint { pool: "flash".into(), ..hint }, order)?;
            let mut osts: Vec<u32> = layout.osts().map(|ost| ost.0).collect();
            osts.sort_unstable();
            Ok::<_, Code>((osts, layout.components[0].pool.clone()))
        };
        let is = |osts: &[u32], pool: &str| Ok((osts.to_vec(), pool.to_owned()));
        let spilling = |pairs: &[(&str, &str)]| {
            let spills = pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
            order.clone().spilling(spills.collect())
        };
        assert_eq!(of(&order, hint(-1)), is(&[0], "flash"));
        let one = spilling(&[("flash", "disk")]);
        assert_eq!(of(&one, hint(-1)), is(&[1, 2], "disk"));
        assert_eq!(
            of(&one, LayoutHint { osts: indexes(&[0]), ..hint(0) }),
            is(&[0], "flash"),
            "they are named"
        );
        let two = spilling(&[("flash", "disk"), ("disk", "slow")]);
        assert_eq!(of(&two, hint(-1)), is(&[3], "slow"));
        let asked = LayoutHint { pool: "flash".into(), ..hint(1) };
        assert_eq!(two.spilled(&asked).collect::<Vec<_>>(), ["flash", "disk"]);
        assert_eq!(of(&spilling(&[("flash", "none")]), hint(-1)), is(&[0], "flash"), "there is none");
        let round = spilling(&[("flash", "disk"), ("disk", "flash")]);
        assert!(of(&round, hint(-1)).is_ok(), "it ends");
        let parts = vec![HintPart::new(1 << 20, asked.clone()), HintPart::new(u64::MAX, asked)];
        let layout =
            allocate(ID, &LayoutHint { parts, ..LayoutHint::default() }, &one).expect("there are OSTs");
        let pools: Vec<&str> = layout.components.iter().map(|of| of.pool.as_str()).collect();
        assert_eq!(pools, ["disk", "flash"], "what has no objects yet has a wish");
    }

    #[test]
    fn a_pool_is_asked_for_by_its_name_and_inherited() {
        let order = two_by_two().with_pools(&pools(&[("flash", &[0]), ("disk", &[1, 2, 3])]));
        let of = |pool: &str| LayoutHint { pool: pool.into(), ..hint(1) };
        assert_eq!((check(&of("flash"), &order), check(&of("ignore"), &order)), (Ok(()), Ok(())));
        assert_eq!(check(&of("gone"), &order), Err(Code::NotFound));
        let parts = |pools: [&str; 2]| LayoutHint {
            parts: vec![HintPart::new(1 << 20, of(pools[0])), HintPart::new(u64::MAX, of(pools[1]))],
            ..LayoutHint::default()
        };
        assert_eq!(check(&parts(["flash", "gone"]), &order), Err(Code::NotFound));
        let layout = allocate(ID, &inherit(&parts(["flash", ""]), &of("disk")), &order).expect("a layout");
        let pools: Vec<&str> = layout.components.iter().map(|component| component.pool.as_str()).collect();
        assert_eq!(
            (layout.osts().map(|ost| ost.0).collect::<Vec<_>>(), pools),
            (vec![0], vec!["flash", "disk"])
        );
        let range = (1 << 20, 1);
        let grown = place::place(&layout, range, &order, || Ok(Fid { oid: 9, ..ID }))
            .expect("an OST")
            .expect("objects");
        let second = &grown.components[1];
        assert_eq!((second.pool.as_str(), second.osts().all(|ost| ost.0 > 0)), ("disk", true));
        let pool = |hint: &LayoutHint| inherit(hint, &of("disk")).pool;
        assert_eq!(
            (pool(&hint(2)), pool(&of("flash")), pool(&of("ignore"))),
            ("disk".into(), "flash".into(), "ignore".into())
        );
        let first = LayoutHint { start_index: 0, ..hint(1) };
        let list = LayoutHint { osts: indexes(&[0]), ..LayoutHint::default() };
        assert_eq!((pool(&first), pool(&list)), (String::new(), String::new()));
    }

    #[test]
    fn what_lies_on_the_mdt_is_bounded() {
        let wide = |end| HintPart::new(end, hint(2));
        let of = |parts: &[HintPart]| LayoutHint { parts: parts.to_vec(), ..LayoutHint::default() };
        let short = |parts: &[HintPart], max| shortened(of(parts), &two_by_two().with_on_mdt_max(max));
        let (head, rest) = (HintPart::mdt(1 << 20), wide(u64::MAX));
        let whole = [head.clone(), rest.clone()];
        for max in [None, Some(1 << 20), Some(2 << 20)] {
            assert_eq!(short(&whole, max), of(&whole));
        }
        assert_eq!(short(&whole, Some(65_536)), of(&[HintPart::mdt(65_536), rest.clone()]));
        assert_eq!(short(&whole, Some(0)), of(std::slice::from_ref(&rest)));
        // Nobody loses what he asked for.
        let alone = HintPart::new(1 << 20, LayoutHint::default());
        let head = std::slice::from_ref(&head);
        assert_eq!(short(head, Some(65_536)), of(&[HintPart::mdt(65_536), alone.clone()]));
        assert_eq!(short(head, Some(0)), of(&[alone]));
        let none = [wide(1 << 20), rest];
        assert_eq!(
            (short(&none, Some(0)), shortened(hint(3), &two_by_two().with_on_mdt_max(Some(0)))),
            (of(&none), hint(3))
        );
    }

    #[test]
    fn stripe_sizes() {
        let sized = |stripe_size| {
            let hint = LayoutHint { stripe_size, ..hint(1) };
            allocate(ID, &hint, &two_by_two()).map(|layout| layout.components[0].stripe_size)
        };
        assert_eq!(sized(0), Ok(1 << 20));
        assert_eq!(sized(65_536), Ok(65_536));
        assert_eq!(sized(65_537), Err(Code::Invalid));
        assert_eq!(sized(u32::MAX - 65_535), Ok(u32::MAX - 65_535));
    }

    #[test]
    fn what_is_left_open_comes_from_above() {
        let above =
            LayoutHint { stripe_count: 8, stripe_size: 65_536, overstripe: true, ..LayoutHint::default() };
        assert_eq!(inherit(&LayoutHint::default(), &above), above);
        let narrow = inherit(&hint(2), &above);
        assert_eq!((narrow.stripe_count, narrow.stripe_size, narrow.overstripe), (2, 65_536, false));
    }
}
