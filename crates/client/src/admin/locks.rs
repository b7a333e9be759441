//! What a client holds of each target, and the bounds of that (`ldlm.namespaces.*`).

use std::sync::Arc;
use std::time::Duration;

use proto::parameters::{ClientTree, Parameter, Unit};
use proto::{Code, DataTarget, TargetId, TargetKind};

use super::parameters::Setting;
use crate::lock::Keep;
use crate::{Error, Result, Shared};

/// What a number of locks takes.
const LOCKS: &str = "write how many locks are kept, 0 for as many as there is room for, or clear";
/// What an age takes.
const AGE: &str = "write a number of milliseconds, or of seconds as in 600s";

/// What a client holds of a target. All that it holds of one file, or of one object, is one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockUse {
    /// The target.
    pub target: TargetId,
    /// Locks.
    pub count: usize,
    /// Those that nobody uses now.
    pub unused: usize,
    /// Most that are kept; 0 for as many as there is room for.
    pub max: usize,
    /// How long they are kept when nothing is asked of an OST, or, those of an MDT, of anybody.
    pub age_max: Duration,
}

/// What an administrator sees and sets of the locks of a client.
pub struct LockBounds {
    shared: Arc<Shared>,
}

impl LockBounds {
    pub(super) fn of(shared: &Arc<Shared>) -> LockBounds {
        LockBounds { shared: shared.clone() }
    }

    /// What is held of each target with which there has been a session, in order.
    pub fn uses(&self) -> Vec<LockUse> {
        self.shared.targets.sessions().into_keys().map(|target| self.use_of(target)).collect()
    }

    fn use_of(&self, target: TargetId) -> LockUse {
        let Keep { count_max, age_max } = self.keep(target);
        let (count, unused) = (self.count(target), self.unused_count(target));
        LockUse { target, count, unused, max: count_max, age_max }
    }

    fn count(&self, target: TargetId) -> usize {
        let ranges = DataTarget::try_from(target).map_or(0, |of| self.shared.locks().table.spaces.count(of));
        ranges + if target.kind == TargetKind::Mdt { self.shared.names.meta.inodes.count() } else { 0 }
    }

    /// Looks at each lock of the target.
    fn unused_count(&self, target: TargetId) -> usize {
        let ranges = DataTarget::try_from(target).map_or(0, |of| self.shared.locks().table.unused_count(of));
        let inodes = &self.shared.names.meta.inodes;
        ranges + if target.kind == TargetKind::Mdt { inodes.unused_count() } else { 0 }
    }

    fn keep(&self, target: TargetId) -> Keep {
        match target.ost_index() {
            Some(ost) => self.shared.locks().table.spaces.keep(ost.into()),
            None => self.shared.names.meta.inodes.keep(),
        }
    }

    /// No more than `count` locks of a target are kept from now on, but for those that are in use; 0 for as many as there is
    /// room for. Those that are too many are given back before this returns. Of an MDT that holds for its inodes, and for the ranges
    /// of what data it has.
    pub async fn set_max(&self, target: TargetId, count: usize) -> Result<()> {
        self.set_keep(target, |keep| keep.count_max = count)?;
        let locks = self.shared.locks();
        if let Ok(of) = DataTarget::try_from(target) {
            locks.leaver.leave_these(locks.table.excess(of)).await;
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.room.give_up_excess().await;
        }
        Ok(())
    }

    /// Locks of a target are given back when nothing was asked of it (of anybody, for an MDT's inodes) for `age`. It is looked
    /// every few seconds.
    pub fn set_age_max(&self, target: TargetId, age: Duration) -> Result<()> {
        self.set_keep(target, |keep| keep.age_max = age)?;
        if let Ok(of) = DataTarget::try_from(target) {
            self.shared.resting.look_soon(of);
        }
        Ok(())
    }

    /// Gives back every lock of a target that nobody uses.
    pub async fn clear(&self, target: TargetId) -> Result<()> {
        self.set_keep(target, |_| {})?;
        let locks = self.shared.locks();
        if let Ok(of) = DataTarget::try_from(target) {
            locks.leaver.leave_these(locks.table.of(of)).await;
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.room.give_up_inodes().await;
        }
        Ok(())
    }

    fn set_keep(&self, target: TargetId, set: impl Fn(&mut Keep)) -> Result<()> {
        if self.shared.targets.made(target).is_none() {
            return Err(Error::Refused(Code::NotFound));
        }
        if let Ok(of) = DataTarget::try_from(target) {
            self.shared.locks().table.spaces.set_keep(of, &set);
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.inodes.set_keep(&set);
        }
        Ok(())
    }

    /// Registers what is held of a target.
    pub(super) fn parameters<'a>(&'a self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let size = move || match self.keep(target).count_max {
            // Lustre's, too, tells how many are unused where it sizes the list itself.
            0 => self.unused_count(target),
            most => most,
        };
        let set_size = move |text: &str| -> Setting<'a> {
            let is_clear = text == "clear";
            let count = text.parse::<u32>().map_err(|_| Code::Invalid);
            Box::pin(async move {
                if is_clear {
                    return self.clear(target).await;
                }
                self.set_max(target, usize::try_from(count?).map_err(|_| Code::Invalid)?).await
            })
        };
        let set_age = move |text: &str| -> Setting<'a> {
            let age = age(text);
            Box::pin(async move { self.set_age_max(target, age?) })
        };
        tree.of_locks(target, || {
            let age = Parameter::gauge("lru_max_age", Unit::Milliseconds, move || {
                millis(self.keep(target).age_max)
            });
            [
                Parameter::gauge("lock_count", Unit::None, move || self.count(target)),
                Parameter::gauge("lock_unused_count", Unit::None, move || self.unused_count(target)),
                age.settable(AGE, set_age),
                Parameter::gauge("lru_size", Unit::None, size).settable(LOCKS, set_size),
            ]
        });
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds, unless a unit says seconds.
fn age(text: &str) -> std::result::Result<Duration, Code> {
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| Code::Invalid);
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => Ok(Duration::from_millis(number(ms)?)),
        (None, Some(seconds)) => {
            let ms = number(seconds)?.checked_mul(1000).ok_or(Code::Invalid)?;
            Ok(Duration::from_millis(ms))
        }
        (None, None) => Ok(Duration::from_millis(number(text)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (text, wanted) in
            [("600s", Ok(600_000)), ("600", Ok(600)), ("7ms", Ok(7)), ("s", Err(())), ("1h", Err(()))]
        {
            let wanted = wanted.map(Duration::from_millis).map_err(|()| Code::Invalid);
            assert_eq!(age(text), wanted, "{text}");
        }
    }
}
