//! Objects for the parts of a file that are written to (FEATURES L14), and parts that extend themselves (L15).
//!
//! A part that extends itself gets objects for `extension` bytes at a time, as in Lustre (`lfs setstripe -z`). Where the OSTs of its objects
//! keep to be avoided, because they are full for example, the rest goes elsewhere: to the component behind it, or to new objects of the
//! same kind. If there is no better place, it goes on where it is.

use proto::layout::{Component, LayoutHint, Pattern};
use proto::limits::COMPONENTS_MAX;
use proto::{Code, Fid, Layout, OstIndex};
use smallvec::SmallVec;

use super::allocate::{Order, allocate};

type Components = SmallVec<[Component; 1]>;

/// `layout` with objects for all of `[offset, offset + len)`, and another generation; `None` if it has them.
pub fn place(
    layout: &Layout,
    (offset, len): (u64, u64),
    order: &Order,
    mut fresh: impl FnMut() -> Result<Fid, Code>,
) -> Result<Option<Layout>, Code> {
    if layout.touched(offset, len).any(|component| component.pattern == Pattern::Nothing) {
        return Err(Code::NoComponent);
    }
    if layout.is_released() {
        return Err(Code::Released);
    }
    if layout.is_placed(offset, len) {
        return Ok(None);
    }
    let end = offset.saturating_add(len);
    let mut grown = layout.clone();
    let lacks = |of: &Component| of.start < end && offset < of.end && !of.is_placed();
    while let Some(at) = grown.components.iter().position(lacks) {
        Growth { components: &mut grown.components, order }.step(at, end, &mut fresh)?;
    }
    grown.generation = layout.generation.checked_add(1).ok_or(Code::TooLarge)?;
    Ok(Some(grown))
}

/// A piece of a part that extends itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The OSTs that it goes on with; none if it begins.
    pub osts: Vec<OstIndex>,
    /// What it takes of all of them, in bytes.
    pub bytes: u64,
    /// Stripes that were asked for, as in a hint.
    pub stripe_count: i32,
    /// The pool that was asked for, if any.
    pub pool: String,
}

impl Piece {
    /// What it takes of each of its OSTs if there are so many to choose from, in bytes.
    pub fn share(&self, known: usize) -> u64 {
        let known = known.max(1);
        let osts = match (self.osts.len(), self.stripe_count) {
            (0, 0) => 1,
            (0, count) if count < 0 => known,
            (0, count) => known.min(count as usize),
            (osts, _) => osts,
        };
        self.bytes.div_ceil(osts as u64)
    }
}

/// The first piece that a write of `[offset, offset + len)` asks for; `None` if that extends nothing.
pub fn piece(layout: &Layout, (offset, len): (u64, u64)) -> Option<Piece> {
    let end = offset.saturating_add(len);
    let lacks = |of: &Component| {
        of.start < end && offset < of.end && of.pattern == Pattern::Pending && of.extension > 0
    };
    let at = layout.components.iter().position(lacks).filter(|_| len > 0 && !layout.is_released())?;
    let pending = layout.components.get(at)?;
    let before = at.checked_sub(1).and_then(|at| layout.components.get(at)).filter(|of| of.extends());
    let mut osts: Vec<OstIndex> = before.map_or_else(Vec::new, |before| before.osts().collect());
    osts.sort_unstable();
    osts.dedup();
    let wanted = pending.wanted.as_deref();
    let named = wanted.map_or(0, |wanted| wanted.osts.len() as i32);
    let stripe_count = if named > 0 { named } else { wanted.map_or(1, |wanted| wanted.stripe_count) };
    let pool = wanted.map_or_else(String::new, |wanted| wanted.pool.clone());
    // What lies in front of a write that leaves a hole takes no room.
    let bytes = (reach(pending, end) - pending.start).min(pending.extension.max(len));
    Some(Piece { osts, bytes, stripe_count, pool })
}

/// The components that `pending`, which begins a file, becomes: the first has objects that `id` names.
pub fn begun(pending: &Component, id: Fid, order: &Order) -> Result<Components, Code> {
    let mut components: Components = SmallVec::from_buf([pending.clone()]);
    Growth { components: &mut components, order }.begin(0, reach(pending, 1), placed(pending, id, order)?);
    Ok(components)
}

/// `component` with objects that `id` names.
fn placed(component: &Component, id: Fid, order: &Order) -> Result<Component, Code> {
    let wanted = component.wanted.as_deref().ok_or(Code::NoComponent)?;
    let made = allocate(id, wanted, order)?.components.into_iter().next().ok_or(Code::Invalid)?;
    let Component { start, end, extension, .. } = *component;
    Ok(Component { start, end, extension, ..made })
}

/// `pending`, without the OSTs that were named for it: those that it had are to be avoided.
fn anywhere(pending: &Component) -> Component {
    let anywhere = |wanted: &LayoutHint| {
        let count = if wanted.osts.is_empty() { wanted.stripe_count } else { wanted.osts.len() as i32 };
        LayoutHint { stripe_count: count, start_index: -1, osts: Vec::new(), ..wanted.clone() }
    };
    let wanted = pending.wanted.as_deref().map(|wanted| Box::new(anywhere(wanted)));
    Component { wanted, ..pending.clone() }
}

/// How far of `pending` gets objects when somebody writes up to `end`.
fn reach(pending: &Component, end: u64) -> u64 {
    if pending.extension == 0 {
        return pending.end;
    }
    let wanted = end.min(pending.end).saturating_sub(pending.start);
    let whole = wanted.checked_next_multiple_of(pending.extension).unwrap_or(u64::MAX);
    pending.start.saturating_add(whole).min(pending.end)
}

/// Components some of which get objects.
struct Growth<'a> {
    components: &'a mut Components,
    order: &'a Order,
}

impl Growth<'_> {
    /// Gives a part of the component `at`, which has none, objects up to `end` at least; or has another one take it over.
    fn step(
        &mut self,
        at: usize,
        end: u64,
        fresh: &mut impl FnMut() -> Result<Fid, Code>,
    ) -> Result<(), Code> {
        let pending = self.components[at].clone();
        let until = reach(&pending, end);
        let before = at.checked_sub(1).filter(|before| self.components[*before].extends());
        let Some(before) = before else {
            // Where there is no room for one component more, it has all of the extent.
            let until = if self.components.len() < COMPONENTS_MAX { until } else { pending.end };
            self.begin(at, until, placed(&pending, fresh()?, self.order)?);
            return Ok(());
        };
        if self.has_room(&self.components[before]) {
            self.extend(before, until);
            return Ok(());
        }
        let next = self.components.get_mut(at + 1).filter(|next| next.pattern == Pattern::Pending);
        if let Some(next) = next {
            next.start = pending.start;
            self.components[before].extension = 0;
            self.components.remove(at);
            return Ok(());
        }
        let is_full = self.components.len() >= COMPONENTS_MAX;
        let made =
            if is_full { Err(Code::NoSpace) } else { placed(&anywhere(&pending), fresh()?, self.order) };
        match made {
            Ok(made) if self.has_room(&made) => {
                self.components[before].extension = 0;
                self.begin(at, until, made);
            }
            Ok(_) | Err(Code::NoSpace) => self.extend(before, until),
            Err(code) => return Err(code),
        }
        Ok(())
    }

    /// Whether none of the OSTs of a component is to be avoided.
    fn has_room(&self, of: &Component) -> bool {
        !of.osts().any(|ost| self.order.avoided().binary_search(&ost).is_ok())
    }

    /// The component `at`, which has no objects, becomes `made` up to `until`.
    fn begin(&mut self, at: usize, until: u64, made: Component) {
        let pending = &mut self.components[at];
        if until == pending.end {
            self.components[at] = Component { extension: 0, ..made };
            return;
        }
        pending.start = until;
        self.components.insert(at, Component { end: until, ..made });
    }

    /// The component `of` takes over the one behind it up to `until`.
    fn extend(&mut self, of: usize, until: u64) {
        let is_all = self.components[of + 1].end == until;
        self.components[of].end = until;
        if is_all {
            self.components[of].extension = 0;
            self.components.remove(of + 1);
        } else {
            self.components[of + 1].start = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Pools;
    use proto::layout::{HintPart, LayoutHint};
    use proto::limits::STRIPE_SIZE_UNIT;

    use super::*;

    const UNIT: u64 = STRIPE_SIZE_UNIT as u64;
    const ID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    fn order(avoided: &[u32]) -> Order {
        let osts = [0, 1].map(OstIndex).to_vec();
        Order::from_osts(osts).avoiding(avoided.iter().copied().map(OstIndex).collect())
    }

    /// Up to 16 units, 4 at a time; then 8 at a time, as in the example of Lustre's manual.
    fn two_parts() -> LayoutHint {
        let hint = LayoutHint { stripe_count: 1, stripe_size: STRIPE_SIZE_UNIT, ..LayoutHint::default() };
        let part = |end, extension| HintPart { extension, ..HintPart::new(end, hint.clone()) };
        let parts = vec![part(16 * UNIT, 4 * UNIT), part(u64::MAX, 8 * UNIT)];
        LayoutHint { parts, ..LayoutHint::default() }
    }

    struct File {
        layout: Layout,
        oid: u32,
    }

    impl File {
        fn new(hint: &LayoutHint) -> File {
            let layout = allocate(ID, hint, &order(&[1])).expect("a layout");
            File { layout, oid: 1 }
        }

        /// A write of one byte there, and where the components are afterwards, in units, with their OSTs.
        fn write(&mut self, unit: u64, avoided: &[u32]) -> Vec<(u64, u64, Option<u32>)> {
            let oid = &mut self.oid;
            let fresh = || {
                *oid += 1;
                Ok(Fid { oid: *oid, ..ID })
            };
            let before = self.layout.generation;
            if let Some(grown) = place(&self.layout, (unit * UNIT, 1), &order(avoided), fresh).expect("room")
            {
                assert_eq!(grown.generation, before + 1);
                self.layout = grown;
            }
            assert!(self.layout.is_sane() && self.layout.is_placed(unit * UNIT, 1), "{:?}", self.layout);
            self.shown()
        }

        fn shown(&self) -> Vec<(u64, u64, Option<u32>)> {
            let of = |component: &Component| {
                let end = if component.end == u64::MAX { u64::MAX } else { component.end / UNIT };
                (component.start / UNIT, end, component.osts().next().map(|ost| ost.0))
            };
            self.layout.components.iter().map(of).collect()
        }
    }

    const END: u64 = u64::MAX;

    #[test]
    fn who_names_an_ost_goes_on_elsewhere_when_it_is_full() {
        let mut hint = two_parts();
        hint.parts.remove(0);
        hint.parts[0].start_index = 0;
        let mut file = File::new(&hint);
        assert_eq!(file.shown(), [(0, 8, Some(0)), (8, END, None)]);
        assert_eq!(file.write(8, &[0]), [(0, 8, Some(0)), (8, 16, Some(1)), (16, END, None)]);
        hint.parts[0].osts = vec![OstIndex(0)];
        let mut file = File::new(&hint);
        assert_eq!(file.write(8, &[0]), [(0, 8, Some(0)), (8, 16, Some(1)), (16, END, None)]);
    }

    /// The steps are those of Lustre's manual: extended twice, spilled to the next component, repeated, and extended by force.
    #[test]
    fn a_file_extends_spills_repeats_and_stays() {
        let mut file = File::new(&two_parts());
        assert_eq!(file.shown(), [(0, 4, Some(0)), (4, 16, None), (16, END, None)]);
        assert_eq!(file.write(3, &[1]), [(0, 4, Some(0)), (4, 16, None), (16, END, None)]);
        assert_eq!(file.write(4, &[1]), [(0, 8, Some(0)), (8, 16, None), (16, END, None)]);
        assert_eq!(file.write(8, &[1]), [(0, 12, Some(0)), (12, 16, None), (16, END, None)]);
        assert_eq!(file.write(12, &[0]), [(0, 12, Some(0)), (12, 20, Some(1)), (20, END, None)]);
        let repeated = [(0, 12, Some(0)), (12, 20, Some(1)), (20, 28, Some(0)), (28, END, None)];
        assert_eq!(file.write(20, &[1]), repeated);
        let forced = [(0, 12, Some(0)), (12, 20, Some(1)), (20, 36, Some(0)), (36, END, None)];
        assert_eq!(file.write(28, &[0, 1]), forced);
        let ids: Vec<u32> = file.layout.ids().map(|id| id.oid).collect();
        assert_eq!(ids, [1, 2, 3], "what extends keeps its objects");
    }

    #[test]
    fn what_a_piece_takes_of_each_ost() {
        let mut file = File::new(&two_parts());
        let piece = |layout: &Layout, unit: u64| super::piece(layout, (unit * UNIT, 1));
        let of = |osts: &[u32], units: u64| {
            let osts = osts.iter().copied().map(OstIndex).collect();
            Some(Piece { osts, bytes: units * UNIT, stripe_count: 1, pool: String::new() })
        };
        assert_eq!(piece(&file.layout, 3), None, "it has its objects");
        assert_eq!(piece(&file.layout, 5), of(&[0], 4));
        assert_eq!(piece(&file.layout, 9), of(&[0], 4), "a hole takes no room");
        assert_eq!(piece(&file.layout, 16), of(&[], 8), "the second part begins");
        assert_eq!(piece(&file.layout, 1 << 30), of(&[], 8), "not even a long one");
        assert_eq!(super::piece(&file.layout, (16 * UNIT, 0)), None, "nothing is written");
        let share = |osts: usize, stripe_count, known| {
            let osts = (0..osts as u32).map(OstIndex).collect();
            Piece { osts, bytes: 24, stripe_count, pool: String::new() }.share(known)
        };
        assert_eq!([share(2, 9, 4), share(0, 0, 4), share(0, 3, 4), share(0, 100, 4)], [12, 24, 8, 6]);
        assert_eq!([share(0, -1, 4), share(0, -2, 3), share(0, 5, 0)], [6, 8, 24]);
        file.write(20, &[0]);
        assert_eq!(piece(&file.layout, 24), of(&[1], 8));
        let hint = LayoutHint { stripe_count: 2, ..LayoutHint::default() };
        let plain = LayoutHint { parts: vec![HintPart::new(u64::MAX, hint)], ..LayoutHint::default() };
        assert_eq!(piece(&File::new(&plain).layout, 5), None, "it does not extend itself");
    }

    /// An OST that has no room for the piece is passed over, if it is not the last one.
    #[test]
    fn a_piece_goes_where_there_is_room_for_it() {
        let mut file = File::new(&two_parts());
        let order = order(&[]).without_room(&[OstIndex(0)]);
        let grown = place(&file.layout, (5 * UNIT, 1), &order, || Ok(Fid { oid: 9, ..ID }));
        file.layout = grown.expect("there is room").expect("it lacked objects");
        assert_eq!(file.shown(), [(0, 4, Some(0)), (4, 12, Some(1)), (12, END, None)]);
    }

    #[test]
    fn a_part_that_is_whole_extends_no_more_and_the_next_one_begins_anew() {
        let mut file = File::new(&two_parts());
        // Far behind the first part, and up to its end from the beginning of the second one.
        let far = [(0, 4, Some(0)), (4, 16, None), (16, 40, Some(0)), (40, END, None)];
        assert_eq!(file.write(39, &[1]), far);
        let whole = [(0, 16, Some(0)), (16, 40, Some(0)), (40, END, None)];
        assert_eq!(file.write(15, &[1]), whole);
        assert!(!file.layout.components[0].extends());
        // What has begun cannot be spilled to: there are new objects instead.
        let mut file = File::new(&two_parts());
        file.write(39, &[1]);
        let repeated = [(0, 4, Some(0)), (4, 8, Some(1)), (8, 16, None), (16, 40, Some(0)), (40, END, None)];
        assert_eq!(file.write(5, &[0]), repeated);
    }

    #[test]
    fn there_are_never_too_many_components() {
        let mut file = File::new(&two_parts());
        for step in 0..400 {
            file.write(step * 8, &[(step % 2) as u32]);
        }
        let components = file.layout.components.len();
        assert!((COMPONENTS_MAX - 1..=COMPONENTS_MAX).contains(&components), "{components}");
    }

    #[test]
    fn what_extends_is_asked_for_as_it_was() {
        let mut file = File::new(&two_parts());
        assert_eq!(file.layout.wish(), two_parts());
        file.write(5, &[1]);
        assert_eq!(file.layout.wish(), two_parts());
        let one = LayoutHint { parts: two_parts().parts.split_off(1), ..LayoutHint::default() };
        assert_eq!(File::new(&one).layout.wish(), one);
        let released = file.layout.released(ID).expect("a generation");
        assert!(released.is_sane() && released.is_released());
    }

    #[test]
    fn only_what_lies_on_osts_extends_in_units() {
        let check = |part: HintPart| {
            let hint = LayoutHint { parts: vec![part], ..LayoutHint::default() };
            crate::mdt::allocate::check(&hint, &order(&[]).with_pools(&Pools::default()))
        };
        let hint = LayoutHint::default();
        let extending = |extension| HintPart { extension, ..HintPart::new(u64::MAX, hint.clone()) };
        assert_eq!(check(extending(UNIT)), Ok(()));
        assert_eq!(check(extending(UNIT + 1)), Err(Code::Invalid));
        assert_eq!(check(HintPart { extension: UNIT, ..HintPart::mdt(UNIT) }), Err(Code::Invalid));
    }
}
