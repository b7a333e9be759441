//! For how long nothing has been heard of the owners of targets, as somebody counts who wants them.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::TargetId;

/// Longest time between two looks in between which nothing is missed. After a longer one, because the store or this process
/// was away, owners may not have been able to renew either: counting begins anew.
const GAP_MAX: Duration = Duration::from_millis(1200);

/// The revisions of the two keys of a target; 0 if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    /// Of the owner.
    pub owner: u64,
    /// Of the newest renewal.
    pub beat: u64,
}

/// Since when it is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since {
    /// Nanoseconds of the own clock.
    pub at: u64,
    /// Nothing has changed since the first look: it may have been so for long.
    pub cold: bool,
}

#[derive(Debug)]
struct Watched {
    sight: Sight,
    since: Since,
    last: u64,
}

/// What was seen of each target that this process has wanted: it has a directory of each.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    targets: BTreeMap<TargetId, Watched>,
}

impl Quiet {
    /// A look: `now` is when its answer has come, not when it was asked for, because an owner counts from before that.
    pub fn see(&mut self, now: u64, target: TargetId, sight: Sight) -> Since {
        let gap = u64::try_from(GAP_MAX.as_nanos()).unwrap_or(u64::MAX);
        let since = match self.targets.get(&target) {
            None => Since { at: now, cold: true },
            Some(watched) if watched.sight != sight => Since { at: now, cold: false },
            Some(watched) if now.saturating_sub(watched.last) > gap => Since { at: now, ..watched.since },
            Some(watched) => watched.since,
        };
        self.targets.insert(target, Watched { sight, since, last: now });
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;
    const OST: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 1 };

    fn see(quiet: &mut Quiet, now_ms: u64, owner: u64, beat: u64) -> (u64, bool) {
        let since = quiet.see(now_ms * MILLI, OST, Sight { owner, beat });
        (since.at / MILLI, since.cold)
    }

    #[test]
    fn counts_from_the_last_change() {
        let mut quiet = Quiet::default();
        assert_eq!(see(&mut quiet, 100, 5, 7), (100, true));
        assert_eq!(see(&mut quiet, 1100, 5, 7), (100, true));
        assert_eq!(see(&mut quiet, 1200, 5, 8), (1200, false), "it was renewed");
        assert_eq!(see(&mut quiet, 2000, 5, 8), (1200, false));
        assert_eq!(see(&mut quiet, 2500, 9, 8), (2500, false), "it was taken");
    }

    #[test]
    fn what_nobody_looked_at_counts_for_nothing() {
        let mut quiet = Quiet::default();
        see(&mut quiet, 0, 5, 7);
        see(&mut quiet, 1000, 5, 8);
        assert_eq!(see(&mut quiet, 9000, 5, 8), (9000, false));
    }
}
