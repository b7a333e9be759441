//! What many clients did to one thing, and whether any order of these operations explains what they saw.
//!
//! Moments are numbers that grow with each start and each end of an operation: one operation is before another if
//! it ended before the other one started.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use proto::Fid;

/// Operations of one name that are searched at most; clients leave a name alone afterwards.
pub const NAME_OPS_MAX: usize = 100;
/// States that a search may visit; what is not decided then counts as explained.
const STATES_MAX: usize = 500_000;

/// When an operation was under way.
pub type Span = RangeInclusive<u64>;

fn before(one: &Span, other: &Span) -> bool {
    one.end() < other.start()
}

/// A value that is written as a whole, each time another one.
#[derive(Debug, Default)]
pub struct Register {
    /// By value; 0 was there at the beginning.
    pub writes: BTreeMap<u64, Span>,
    /// What was seen.
    pub reads: Vec<(u64, Span)>,
}

impl Register {
    /// Says what cannot be, if something was seen that no order of the operations explains.
    pub fn check(&self) -> Result<(), String> {
        let initial = 0..=0;
        let written = |value: &u64| if *value == 0 { Some(&initial) } else { self.writes.get(value) };
        for (value, read) in &self.reads {
            let Some(write) = written(value).filter(|write| !before(read, write)) else {
                return Err(format!("{value:#x} was read in {read:?} before anybody wrote it"));
            };
            let newer = self.writes.iter().find(|(_, other)| before(write, other) && before(other, read));
            if let Some((newer, span)) = newer {
                return Err(format!(
                    "{value:#x} of {write:?} was read in {read:?}, after {newer:#x} of {span:?}"
                ));
            }
        }
        for (old, first) in &self.reads {
            for (new, second) in self.reads.iter().filter(|(new, second)| new != old && before(first, second))
            {
                let (Some(was), Some(is)) = (written(old), written(new)) else { continue };
                if before(is, was) {
                    return Err(format!(
                        "{old:#x} of {was:?} was read in {first:?}, and {new:#x} of {is:?} later in {second:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What an operation showed of one name, or did to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was seen to mean this, or nothing.
    Seen(Option<Fid>),
    /// It was seen to mean something.
    Present,
    /// It meant nothing and means this now.
    Made(Fid),
    /// It meant this, or nothing and means this now.
    Opened(Fid),
    /// It meant something and means nothing now.
    Removed,
    /// It meant something, which was moved to another name.
    MovedAway,
    /// Something was moved here.
    MovedHere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Meaning {
    Nothing,
    File(Fid),
    /// What was moved here from another name.
    Something,
}

impl Meaning {
    /// What the name means after an operation, if that could happen now; and whether it may also have stayed.
    fn after(self, effect: Effect) -> Option<Meaning> {
        match (effect, self) {
            (Effect::Seen(None), Meaning::Nothing) => Some(self),
            (Effect::Seen(Some(fid)), Meaning::File(is)) if fid == is => Some(self),
            (Effect::Seen(Some(fid)), Meaning::Something) => Some(Meaning::File(fid)),
            (Effect::Present, Meaning::File(_) | Meaning::Something) => Some(self),
            (Effect::Made(fid) | Effect::Opened(fid), Meaning::Nothing) => Some(Meaning::File(fid)),
            (Effect::Opened(fid), Meaning::File(is)) if fid == is => Some(self),
            (Effect::Opened(fid), Meaning::Something) => Some(Meaning::File(fid)),
            (Effect::Removed | Effect::MovedAway, Meaning::File(_) | Meaning::Something) => {
                Some(Meaning::Nothing)
            }
            (Effect::MovedHere, _) => Some(Meaning::Something),
            _ => None,
        }
    }
}

/// One name, which means nothing at first.
#[derive(Debug, Default)]
pub struct NameHistory {
    /// What was seen and done.
    pub ops: Vec<(Effect, Span)>,
    /// Whether files had several names: a rename between two names of one file changes nothing.
    pub links: bool,
}

impl NameHistory {
    /// Says what was done if no order explains what was seen.
    pub fn check(&self) -> Result<(), String> {
        let mut ops = self.ops.clone();
        ops.sort_by_key(|(_, span)| *span.start());
        assert!(ops.len() <= 128, "a set of operations fits into 128 bits");
        let all = if ops.len() == 128 { u128::MAX } else { (1 << ops.len()) - 1 };
        let mut visited = HashSet::new();
        let mut stack = vec![(0_u128, Meaning::Nothing)];
        let mut furthest = 0;
        while let Some((done, meaning)) = stack.pop() {
            if done == all || visited.len() > STATES_MAX {
                return Ok(());
            }
            if !visited.insert((done, meaning)) {
                continue;
            }
            if done.count_ones() > u128::count_ones(furthest) {
                furthest = done;
            }
            self.steps(&ops, done, meaning, &mut stack);
        }
        let rest = ops.iter().enumerate().filter(|(at, _)| furthest & (1 << at) == 0).map(|(_, op)| op);
        let rest: Vec<_> = rest.take(6).collect();
        Err(format!(
            "no order explains {} operations; after the first {}: {rest:?}",
            ops.len(),
            furthest.count_ones()
        ))
    }

    /// Puts every state that may come next onto the stack.
    fn steps(&self, ops: &[(Effect, Span)], done: u128, meaning: Meaning, stack: &mut Vec<(u128, Meaning)>) {
        let open = || ops.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        let first_end = open().map(|(_, (_, span))| *span.end()).min().unwrap_or(0);
        let possible = || open().filter(|(_, (_, span))| *span.start() <= first_end);
        // Looking changes nothing: what can be explained now need not be tried later.
        let look = possible().find(|(_, (effect, _))| {
            matches!(effect, Effect::Seen(_) | Effect::Present) && meaning.after(*effect) == Some(meaning)
        });
        if let Some((at, _)) = look {
            stack.push((done | (1 << at), meaning));
            return;
        }
        for (at, (effect, _)) in possible() {
            let Some(next) = meaning.after(*effect) else { continue };
            if self.links && *effect == Effect::MovedAway {
                stack.push((done | (1 << at), meaning));
            }
            stack.push((done | (1 << at), next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { oid, ..Fid::ROOT }
    }

    fn register(writes: &[(u64, Span)], reads: &[(u64, Span)]) -> bool {
        Register { writes: writes.iter().cloned().collect(), reads: reads.to_vec() }.check().is_ok()
    }

    #[test]
    fn registers_know_old_values_and_wrong_orders() {
        let writes = [(1, 1..=4), (2, 5..=9)];
        assert!(register(&writes, &[(1, 6..=7), (2, 8..=10), (2, 11..=12)]));
        assert!(!register(&writes, &[(1, 10..=11)]), "an old value");
        assert!(!register(&writes, &[(2, 2..=3)]), "a value of the future");
        assert!(!register(&writes, &[(3, 2..=3)]), "a value of nobody");
        assert!(!register(&writes, &[(2, 6..=7), (1, 8..=8)]), "an old value after a new one");
    }

    fn name(ops: &[(Effect, Span)], links: bool) -> bool {
        NameHistory { ops: ops.to_vec(), links }.check().is_ok()
    }

    #[test]
    fn names_know_what_cannot_be() {
        let made = (Effect::Made(fid(1)), 1..=4);
        let removed = (Effect::Removed, 5..=9);
        let seen = |oid, span| (Effect::Seen(Some(fid(oid))), span);
        assert!(name(&[made.clone(), removed.clone(), seen(1, 6..=7), (Effect::Seen(None), 10..=11)], false));
        assert!(!name(&[made.clone(), removed.clone(), seen(1, 10..=11)], false), "removed");
        assert!(!name(&[made.clone(), (Effect::Seen(None), 5..=6)], false), "made");
        let opened = |oid, span| (Effect::Opened(fid(oid)), span);
        assert!(name(&[opened(1, 1..=2), opened(1, 3..=4), removed.clone(), opened(2, 10..=11)], false));
        assert!(!name(&[made.clone(), opened(2, 5..=6)], false), "it meant another one");
        let moved = (Effect::MovedHere, 5..=6);
        assert!(name(&[made.clone(), moved.clone(), seen(2, 7..=8), seen(2, 9..=10)], false));
        assert!(!name(&[made.clone(), moved, seen(2, 7..=8), seen(1, 9..=10)], false), "two meanings");
        let away = [made, (Effect::MovedAway, 5..=6), seen(1, 7..=8)];
        assert!(!name(&away, false) && name(&away, true), "between two names of one file nothing moves");
    }
}
