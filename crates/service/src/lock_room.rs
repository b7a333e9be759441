//! How many locks a target grants, as operators see and set it. Lustre's `lock_limit_mb` and `lock_reclaim_threshold_mb` are of
//! a whole server, and its `lru_size` of a client; here each target has all three. Rules: `docs/locks.md#too-many`.

use parking_lot::Mutex;
use proto::Code;
use proto::lock::ages::{Bound, Bounds};
use proto::parameters::{Parameter, TargetTree, Unit};

/// Memory that a lock takes, about, in bytes.
const LOCK_BYTES: u64 = 256;
/// The part of the process's memory that is for those of a target.
const MEMORY_PART: u64 = 16;
/// The part that an operator may give them at most.
const MEMORY_PART_MAX: u64 = 2;
/// The same of one session.
const LOCKS_PER_SESSION_MAX: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Values {
    /// From so much memory on nothing is granted (MiB).
    limit_mb: u64,
    /// Above so much memory locks are called back (MiB).
    threshold_mb: u64,
    /// Above so many locks of one session some of them are called back; 0 for as many as there is room for.
    lru_size: u64,
}

impl Values {
    /// Two thirds of the limit are kept, as by Lustre's defaults.
    fn with_limit(limit_mb: u64) -> Values {
        Values { limit_mb, threshold_mb: (limit_mb * 2 / 3).max(1), lru_size: 0 }
    }
}

/// How many locks a target grants.
pub struct LockRoom {
    default: Values,
    limit_mb_max: u64,
    values: Mutex<Values>,
}

impl LockRoom {
    /// As it is in a process that may use `memory` bytes: at most `locks_max`, unless an operator wants more.
    pub fn new(memory: u64, locks_max: u64) -> LockRoom {
        let mb = |bytes: u64| (bytes >> 20).max(1);
        let default = Values::with_limit(mb((memory / MEMORY_PART).min(locks_max * LOCK_BYTES)));
        LockRoom { default, limit_mb_max: mb(memory / MEMORY_PART_MAX), values: Mutex::new(default) }
    }

    /// What each of `parts` parts of a table may hold, in locks; there is room for one in each at least.
    pub fn bounds(&self, parts: usize) -> Bounds {
        let Values { limit_mb, threshold_mb, lru_size } = *self.values.lock();
        let count = |locks: u64| usize::try_from(locks).unwrap_or(usize::MAX).div_ceil(parts);
        let total = bound(count((threshold_mb << 20) / LOCK_BYTES), count((limit_mb << 20) / LOCK_BYTES));
        let wanted = if lru_size == 0 { LOCKS_PER_SESSION_MAX } else { lru_size };
        let reclaim = count(wanted).min(total.reclaim);
        // Half as much again may be granted until the first ones are given back.
        let session = Bound { reclaim, max: (reclaim + reclaim / 2 + 1).min(total.max) };
        Bounds { session, total }
    }

    /// Registers the parameters; `changed` is called when one was set.
    pub fn register<'a>(&'a self, tree: &mut TargetTree<'a>, changed: impl Fn() + Clone + 'a) {
        let memory = format!(
            "write a number of MiB up to {}, 0 for the default; locks are called back before none is granted any more",
            self.limit_mb_max
        );
        let locks =
            "write how many locks of a session are kept, 0 for as many as there is room for, or clear";
        type Value = fn(&mut Values) -> &mut u64;
        let all: [(_, _, _, Value); 3] = [
            ("lock_limit_mb", Unit::Mebibytes, memory.as_str(), |values| &mut values.limit_mb),
            ("lock_reclaim_threshold_mb", Unit::Mebibytes, &memory, |values| &mut values.threshold_mb),
            ("lru_size", Unit::None, locks, |values| &mut values.lru_size),
        ];
        for (name, unit, takes, value) in all {
            let changed = changed.clone();
            let read = move || *value(&mut self.values.lock());
            let set = move |text: &str| {
                // It is for the clients' namespaces, which a pattern names together with this one.
                if unit == Unit::None && text.trim() == "clear" {
                    return Ok(());
                }
                self.set(value, text)?;
                changed();
                Ok(())
            };
            tree.of_locks(Parameter::gauge(name, unit, read).settable(takes, set));
        }
    }

    /// # Errors
    /// `Invalid` for a value that is no number, is beyond half of the process's memory, or has locks called back only
    /// above the limit.
    fn set(&self, value: fn(&mut Values) -> &mut u64, text: &str) -> Result<(), Code> {
        let wanted: u64 = text.trim().parse().map_err(|_| Code::Invalid)?;
        let mut values = self.values.lock();
        let (mut new, mut default) = (*values, self.default);
        *value(&mut new) = if wanted == 0 { *value(&mut default) } else { wanted };
        if new.limit_mb > self.limit_mb_max || new.threshold_mb > new.limit_mb {
            return Err(Code::Invalid);
        }
        *values = new;
        Ok(())
    }
}

/// What is called back has to leave room for what is granted meanwhile.
fn bound(reclaim: usize, max: usize) -> Bound {
    Bound { reclaim: reclaim.min(max.saturating_sub(max / 8 + 1)), max }
}

#[cfg(test)]
mod tests {
    use proto::TargetId;
    use proto::parameters::Tree;

    use super::*;

    const LOCKS_MAX: u64 = 10_000_000;

    const LIMIT: &str = "lock_limit_mb";
    const THRESHOLD: &str = "lock_reclaim_threshold_mb";
    const LRU_SIZE: &str = "lru_size";

    fn set(room: &LockRoom, name: &str, value: &str) -> Result<(), Code> {
        let mut tree = TargetTree::new("w", TargetId::mdt(0), Tree::to_set(&format!("*.{name}"))?);
        room.register(&mut tree, || {});
        tree.into_tree().found()?.into_iter().next().ok_or(Code::NotFound)?.set(value)?
    }

    fn of_all(room: &LockRoom) -> (usize, usize) {
        let Bounds { total, .. } = room.bounds(1);
        (total.reclaim, total.max)
    }

    #[test]
    fn with_little_memory_fewer_locks_are_granted() {
        let small = LockRoom::new(512 << 20, LOCKS_MAX);
        assert_eq!(of_all(&small), (21 * 4096, 131_072));
        let plenty = LockRoom::new(1 << 40, LOCKS_MAX).bounds(1);
        assert_eq!((plenty.session.reclaim, plenty.session.max), (1_000_000, 1_500_001));
        assert!((9_990_000..10_000_000).contains(&plenty.total.max));
        let parts = small.bounds(64);
        assert_eq!((parts.total.reclaim, parts.total.max), (21 * 64, 2048));
    }

    #[test]
    fn what_is_set_holds_and_can_be_taken_back() {
        let room = LockRoom::new(512 << 20, LOCKS_MAX);
        assert_eq!(set(&room, LIMIT, "20"), Err(Code::Invalid), "locks are called back above 21 MiB");
        assert_eq!(set(&room, THRESHOLD, "10"), Ok(()));
        assert_eq!(set(&room, LIMIT, "20"), Ok(()));
        assert_eq!(of_all(&room), (10 * 4096, 20 * 4096));
        assert_eq!(set(&room, LIMIT, "257"), Err(Code::Invalid), "half of the memory at most");
        assert_eq!(set(&room, LIMIT, "many"), Err(Code::Invalid));
        assert_eq!(set(&room, "lru_max_age", "old"), Err(Code::NotFound));
        assert_eq!(set(&room, LRU_SIZE, "100"), Ok(()));
        assert_eq!(set(&room, LRU_SIZE, "clear"), Ok(()));
        assert_eq!(room.bounds(1).session, Bound { reclaim: 100, max: 151 });
        assert_eq!(room.bounds(64).session, Bound { reclaim: 2, max: 4 });
        assert_eq!((set(&room, LIMIT, "0"), set(&room, THRESHOLD, "0")), (Ok(()), Ok(())));
        assert_eq!(of_all(&room), (21 * 4096, 131_072));
    }

    #[test]
    fn there_is_always_room_between_the_two_marks() {
        let room = LockRoom::new(1 << 20, LOCKS_MAX);
        for parts in [1, 64, 4096] {
            let Bounds { session, total } = room.bounds(parts);
            assert!(session.reclaim < session.max && total.reclaim < total.max, "{parts} parts");
        }
    }
}
