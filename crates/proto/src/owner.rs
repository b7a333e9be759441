//! Who may serve a target that several servers reach: the decisions, without a clock and without a store.
//!
//! A server owns a target for a while, and again for a while with each renewal. While it does, nobody else gets it; when
//! it has not renewed in time, or says that it stopped, the next one does, with a larger epoch. The store's side is
//! [`Owners`]. The owner's side is one number: it may act until [`valid_until`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{Nid, TargetId};
use crate::wire::messages::{Taken, Tenure, Wanted};

/// Time for which a renewal holds.
pub const TTL: Duration = Duration::from_secs(3);
/// Part of it that an owner leaves unused, because its clock may go wrong by so much meanwhile, and for what it decides just
/// before the end.
pub const MARGIN: Duration = Duration::from_millis(500);
/// Time between two renewals.
pub const RENEW_AFTER: Duration = Duration::from_secs(1);
/// A server that is not the first of a target's service nodes leaves the first one so much time to start again after it
/// has stopped in order.
pub const RESTART_GRACE: Duration = Duration::from_secs(2);
/// The same when nobody has owned the target since the store of owners was started.
pub const COLD_GRACE: Duration = Duration::from_secs(10);

/// Until when an owner may act, in nanoseconds of its clock, if it asked for the renewal at `asked`. The store counts
/// from a later moment and for longer.
pub fn valid_until(asked: u64, ttl: Duration) -> u64 {
    asked + nanos(ttl.saturating_sub(MARGIN))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A process that serves targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Another number after each of its starts.
    pub instance: u64,
    /// Where it serves.
    pub nids: Vec<Nid>,
}

impl Server {
    fn is(&self, name: &str, instance: u64) -> bool {
        self.name == name && self.instance == instance
    }

    /// Whether `who`, the name or a NID, means this server. Nobody means anybody.
    fn is_meant(&self, who: &str) -> bool {
        who.is_empty() || self.name == who || self.nids.iter().any(|nid| nid.to_string() == who)
    }
}

/// What is remembered of a target, and has to survive the store's own restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Epoch of the newest owner.
    pub epoch: u64,
    /// The newest owner.
    pub server: Server,
    /// Whether the owner said that it stopped.
    pub released: bool,
    /// Whom it left the target to; empty for anybody.
    pub reserved: String,
}

struct Owned {
    record: Record,
    /// Until when nobody else gets it (not released), or since when it is free (released).
    at: u64,
}

/// The answer to a server that wants a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has it from now on, once this is durable.
    Granted(Taken, Record),
    /// Not now; at that time the answer may be another one, or when something changes before.
    Wait(u64),
}

/// Who owns what.
pub struct Owners {
    started: u64,
    targets: BTreeMap<TargetId, Owned>,
    /// First time that somebody wanted a target that nobody ever owned.
    wanted_since: BTreeMap<TargetId, u64>,
}

impl Owners {
    /// What was remembered, as of `now`. Whoever owned a target then may have renewed just before the store stopped.
    pub fn new(now: u64, records: impl IntoIterator<Item = (TargetId, Record)>) -> Owners {
        let owned = |record: Record| {
            let at = if record.released { now } else { now + nanos(TTL) };
            Owned { record, at }
        };
        let targets = records.into_iter().map(|(target, record)| (target, owned(record))).collect();
        Owners { started: now, targets, wanted_since: BTreeMap::new() }
    }

    /// Goes on with what `server` holds. Gives what it does not.
    pub fn renew(&mut self, now: u64, server: &str, instance: u64, holds: &[Tenure]) -> Vec<TargetId> {
        let mut lost = Vec::new();
        for hold in holds {
            match self.targets.get_mut(&hold.target) {
                // It may be late: as long as nobody else has the target, nothing has happened.
                Some(owned) if owned.is(server, instance, hold.epoch) => {
                    owned.at = owned.at.max(now + nanos(TTL));
                }
                _ => lost.push(hold.target),
            }
        }
        lost
    }

    /// Whether `server` gets what it wants.
    pub fn take(&mut self, now: u64, server: &Server, wanted: &Wanted) -> Verdict {
        let Some(owned) = self.targets.get(&wanted.target) else {
            let since = *self.wanted_since.entry(wanted.target).or_insert(now);
            let free_at = if wanted.preferred { now } else { since.max(self.started) + nanos(COLD_GRACE) };
            return if free_at <= now {
                self.grant(now, server, wanted, true)
            } else {
                Verdict::Wait(free_at)
            };
        };
        let (free_at, in_place) = owned.free_for(now, self.started, server, wanted.preferred);
        if free_at > now { Verdict::Wait(free_at) } else { self.grant(now, server, wanted, in_place) }
    }

    fn grant(&mut self, now: u64, server: &Server, wanted: &Wanted, in_place: bool) -> Verdict {
        let before = self.targets.get(&wanted.target).map_or(0, |owned| owned.record.epoch);
        let epoch = before.max(wanted.seen) + 1;
        let record = Record { epoch, server: server.clone(), released: false, reserved: String::new() };
        self.targets.insert(wanted.target, Owned { record: record.clone(), at: now + nanos(TTL) });
        self.wanted_since.remove(&wanted.target);
        Verdict::Granted(Taken { target: wanted.target, epoch, before, in_place }, record)
    }

    /// `server` has stopped a target and leaves it `to` somebody. Gives what is to be remembered; `None` if it was not its
    /// any more.
    pub fn release(
        &mut self,
        now: u64,
        server: &str,
        instance: u64,
        tenure: &Tenure,
        to: &str,
    ) -> Option<Record> {
        let owned = self.targets.get_mut(&tenure.target)?;
        if !owned.is(server, instance, tenure.epoch) {
            return None;
        }
        owned.record.released = true;
        owned.record.reserved = to.to_owned();
        owned.at = now;
        Some(owned.record.clone())
    }

    /// The owner of `target` now, if it has one and `epoch` is its.
    pub fn is_owner(&self, target: TargetId, epoch: u64) -> bool {
        self.targets.get(&target).is_some_and(|owned| !owned.record.released && owned.record.epoch == epoch)
    }

    /// Every target that somebody owns, or owned last.
    pub fn records(&self) -> impl Iterator<Item = (TargetId, &Record)> {
        self.targets.iter().map(|(target, owned)| (*target, &owned.record))
    }
}

impl Owned {
    fn is(&self, server: &str, instance: u64, epoch: u64) -> bool {
        !self.record.released && self.record.epoch == epoch && self.record.server.is(server, instance)
    }

    /// From when on `server` may have the target, and whether it is known that nobody uses its directory.
    fn free_for(&self, now: u64, started: u64, server: &Server, preferred: bool) -> (u64, bool) {
        let record = &self.record;
        // A process that was started again in the place of another one, which therefore is gone.
        let follows = record.server.name == server.name && record.server.nids == server.nids;
        if !record.released {
            return (if follows { now } else { self.at }, follows);
        }
        let grace = if self.at <= started { COLD_GRACE } else { RESTART_GRACE };
        let may_go_first = match record.reserved.as_str() {
            "" => preferred,
            _ => server.is_meant(&record.reserved),
        };
        // Whoever was to have it may not be there.
        (if may_go_first { now } else { self.at + nanos(grace) }, true)
    }
}

#[cfg(test)]
mod tests;
