//! Who may serve a target that several servers reach: the decisions, without a clock and without a store.
//!
//! A server owns a target for a while, and again for a while with each renewal. While it does, nobody else gets it; when
//! it has not renewed in time, or says that it stopped, the next one does, with a larger epoch. The store's side is
//! [`Owners`]. The owner's side is one number: it may act until [`valid_until`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::TargetId;
use crate::nid::Nid;
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

/// Instance of a server that another store has chosen.
const ELSEWHERE: u64 = 0;

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

    /// Whether only one of the two can be running: they have the same name and the same addresses.
    fn is_place_of(&self, other: &Server) -> bool {
        self.name == other.name && self.nids == other.nids
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
    /// The last owner that used the target's directory and of which nobody has said that it stopped: as long as it is named
    /// here, the newest owner has not begun to use it.
    pub former: Option<Server>,
}

impl Record {
    /// From when on `server` may have the target, and whether it is known that the newest owner does not use its directory.
    /// `at`: until when nobody else gets it (not released), or since when it is free (released). `grace`: how long it is kept for whom
    /// it is left to, longer where it may have been free for long, and all servers may be starting.
    pub fn free_for(&self, at: u64, grace: Duration, server: &Server, preferred: bool) -> (u64, bool) {
        if !self.released {
            // A process that was started again in the place of another one, which therefore is gone.
            let follows = self.server.is_place_of(server);
            return (if follows { 0 } else { at }, follows);
        }
        let may_go_first = match self.reserved.as_str() {
            "" => preferred,
            _ => server.is_meant(&self.reserved),
        };
        // Whoever was to have it may not be there.
        (if may_go_first { 0 } else { at + nanos(grace) }, true)
    }

    /// The record of the next owner; `in_place` as [`Record::free_for`] says of the record `before`.
    pub fn next(before: Option<&Record>, server: &Server, seen: u64, in_place: bool) -> Record {
        let former = before.and_then(|before| match &before.former {
            // The newest owner never used the directory.
            Some(former) => Some(former.clone()),
            None => (!in_place).then(|| before.server.clone()),
        });
        Record {
            epoch: before.map_or(0, |before| before.epoch).max(seen) + 1,
            server: server.clone(),
            released: false,
            reserved: String::new(),
            former: former.filter(|former| !former.is_place_of(server)),
        }
    }

    /// What the owner is told of the target that it has got.
    pub fn taken(&self, target: TargetId, before: u64, in_place: bool) -> Taken {
        Taken { target, epoch: self.epoch, before, in_place }
    }

    /// Whether this is a time of `server`'s with that epoch, which is not over.
    pub fn is_of(&self, server: &str, instance: u64, epoch: u64) -> bool {
        !self.released && self.epoch == epoch && self.server.is(server, instance)
    }
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
                Some(owned) if owned.record.is_of(server, instance, hold.epoch) => {
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
        let grace = if owned.at <= self.started { COLD_GRACE } else { RESTART_GRACE };
        let (free_at, in_place) = owned.record.free_for(owned.at, grace, server, wanted.preferred);
        if free_at > now { Verdict::Wait(free_at) } else { self.grant(now, server, wanted, in_place) }
    }

    fn grant(&mut self, now: u64, server: &Server, wanted: &Wanted, in_place: bool) -> Verdict {
        let before = self.targets.get(&wanted.target).map(|owned| &owned.record);
        let record = Record::next(before, server, wanted.seen, in_place);
        let taken = record.taken(wanted.target, before.map_or(0, |before| before.epoch), in_place);
        self.targets.insert(wanted.target, Owned { record: record.clone(), at: now + nanos(TTL) });
        self.wanted_since.remove(&wanted.target);
        Verdict::Granted(taken, record)
    }

    /// `server` begins to use a target's directory: no former owner does any more, as far as it cares. Gives what is to be
    /// remembered; `None` if the target was not its any more.
    pub fn settle(&mut self, server: &str, instance: u64, tenure: &Tenure) -> Option<Record> {
        let owned = self.targets.get_mut(&tenure.target)?;
        if !owned.record.is_of(server, instance, tenure.epoch) {
            return None;
        }
        owned.record.former = None;
        Some(owned.record.clone())
    }

    /// Takes note of an owner that another store has chosen. Gives what is to be remembered; `None` if the target has an
    /// owner here, or had a later one.
    pub fn adopt(&mut self, now: u64, target: TargetId, epoch: u64, server: Server) -> Option<Record> {
        if let Some(owned) = self.targets.get(&target) {
            let owned_here =
                !owned.record.released && owned.record.server.instance != ELSEWHERE && owned.at > now;
            if owned_here || owned.record.epoch >= epoch {
                return None;
            }
        }
        let server = Server { instance: ELSEWHERE, ..server };
        let record = Record { epoch, server, released: false, reserved: String::new(), former: None };
        self.targets.insert(target, Owned { record: record.clone(), at: now + nanos(TTL) });
        Some(record)
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
        if !owned.record.is_of(server, instance, tenure.epoch) {
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

    /// Who owns a target, or owned it last.
    pub fn record(&self, target: TargetId) -> Option<&Record> {
        self.targets.get(&target).map(|owned| &owned.record)
    }

    /// Every target that somebody owns, or owned last.
    pub fn records(&self) -> impl Iterator<Item = (TargetId, &Record)> {
        self.targets.iter().map(|(target, owned)| (*target, &owned.record))
    }
}

#[cfg(test)]
mod tests;
