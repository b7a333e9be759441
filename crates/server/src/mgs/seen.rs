//! How far each target was when it was seen last: one that goes backwards is an older copy of itself. Keys: `docs/disk.md#mgs`.
//!
//! A copy that was made before the target was opened last has an older boot, and one that was made before the target had something
//! remembered has a smaller commit mark. A copy that is served while the first lives is refused, and the first goes on: neither the
//! table nor anybody's session is touched before that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::{NIDS_MAX, TARGETS_MAX};
use proto::wire::messages as msg;
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, Code, Nid, TargetId, TargetKind, Transno};
use rpc::{Hub, Role};
use rt::Time;
use service::{code_of, keys};
use store::{Batch, Change, Store, StoreError};

use super::table;

/// `[MGS + 5][kind: 1][index: 4 BE]`: how far the target was.
const SEEN: u8 = keys::MGS + 5;
/// Time that a target has to show that it lives where it was.
const LIVES_WITHIN: Duration = Duration::from_secs(1);
/// Time for which a target must not have answered before another one takes its place: longer than a restart, or a take-over by a peer, takes.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// Whoever wants to take its place has to ask so often meanwhile.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// How far a target was.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    uuid: ClientId,
    instance: u64,
    boot: u64,
    committed: Transno,
    /// How many targets had its index before.
    replaced: u32,
}

/// One that wants to take the place of another one.
struct Candidate {
    uuid: ClientId,
    /// Since when the other one has not answered.
    since: Time,
    /// When that was looked at last.
    at: Time,
}

/// What was seen of all targets.
pub struct Seen {
    hub: Hub,
    store: Arc<Store>,
    marks: Mutex<BTreeMap<TargetId, Mark>>,
    candidates: Mutex<BTreeMap<TargetId, Candidate>>,
}

impl Mark {
    fn of(claim: &msg::Claim) -> Mark {
        let msg::Claim { uuid, instance, boot, committed, .. } = claim;
        Mark { uuid: *uuid, instance: *instance, boot: *boot, committed: *committed, replaced: 0 }
    }

    fn value(&self) -> Bytes {
        let mut value = Vec::new();
        self.uuid.put(&mut value);
        self.instance.put(&mut value);
        self.boot.put(&mut value);
        self.committed.put(&mut value);
        self.replaced.put(&mut value);
        value.into()
    }

    fn decode(value: Bytes) -> Result<Mark, DecodeError> {
        let mut from = Reader::new(value);
        let (uuid, instance) = (from.take()?, from.take()?);
        let (boot, committed) = (from.take()?, from.take()?);
        Ok(Mark { uuid, instance, boot, committed, replaced: from.take_or_default()? })
    }

    /// Whether a target that was here may be at `next` now.
    fn may_become(&self, next: &Mark) -> bool {
        let is_same = next.instance == self.instance && next.boot == self.boot;
        is_same || next.boot > self.boot && next.committed >= self.committed
    }
}

impl Seen {
    /// Reads what was seen.
    pub fn load(hub: &Hub, store: &Arc<Store>) -> Result<Seen, StoreError> {
        let mut marks = BTreeMap::new();
        table::scan(store, SEEN, |key, value| {
            let damaged = || StoreError::Corrupt { what: "how far a target was".into() };
            let target = table::target_of(key).ok_or_else(damaged)?;
            marks.insert(target, Mark::decode(value).map_err(|_| damaged())?);
            Ok(())
        })?;
        let candidates = Mutex::default();
        Ok(Seen { hub: hub.clone(), store: store.clone(), marks: Mutex::new(marks), candidates })
    }

    /// Remembers how far a target is; `before` is where it was served. Durable when this returns.
    ///
    /// # Errors
    /// `Older` if it was further, `Busy` if another copy of it is being served.
    pub async fn claim(&self, claim: &msg::Claim, before: Option<Vec<Nid>>) -> Result<msg::Claimed, Code> {
        if claim.target.kind == TargetKind::Mgs || claim.nids.len() > NIDS_MAX {
            return Err(Code::Invalid);
        }
        let mut mark = Mark::of(claim);
        let is_going_on = self.check(claim.target, &mark)?;
        let has_moved = before.filter(|nids| !nids.iter().any(|nid| claim.nids.contains(nid)));
        if let Some(nids) = has_moved.filter(|_| !is_going_on && !claim.shared)
            && self.lives(claim.target, &nids).await
        {
            tracing::error!(target = %claim.target, "another copy of the target wants to be served, and the first one lives");
            return Err(Code::Busy);
        }
        let (transno, replaced) = {
            let mut marks = self.marks.lock();
            if marks.len() >= TARGETS_MAX && !marks.contains_key(&claim.target) {
                return Err(Code::TooBig);
            }
            let last = marks.get(&claim.target);
            let known = last.filter(|known| known.uuid == mark.uuid);
            mark.replaced = match (known, last) {
                (Some(known), _) => known.replaced,
                (None, Some(last)) => last.replaced.saturating_add(1),
                (None, None) => u32::from(claim.replaces),
            };
            if known.is_some_and(|known| !known.may_become(&mark)) {
                return Err(Code::Older);
            }
            let change = Change { key: table::key(SEEN, claim.target), value: Some(mark.value()) };
            let batch = Batch { changes: vec![change], ..Batch::default() };
            let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
            let replaced = mark.replaced;
            marks.insert(claim.target, mark);
            (transno, replaced)
        };
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        Ok(msg::Claimed { replaced })
    }

    /// Whether `uuid` may take the place of the target that was served at `nids`: that must not have answered for a while, or a restart,
    /// or a take-over by another server, would cost it its place.
    ///
    /// # Errors
    /// `IndexUsed` if it answers, `TryAgain` while it is not sure that it does not.
    pub async fn may_replace(&self, target: TargetId, uuid: ClientId, nids: &[Nid]) -> Result<(), Code> {
        let lives = self.lives(target, nids).await;
        let now = self.hub.rt().now();
        let mut candidates = self.candidates.lock();
        if lives {
            candidates.remove(&target);
            return Err(Code::IndexUsed);
        }
        let known =
            candidates.get(&target).filter(|known| known.uuid == uuid && now - known.at < ASKED_WITHIN);
        let since = known.map_or(now, |known| known.since);
        candidates.insert(target, Candidate { uuid, since, at: now });
        if now - since < SILENT_FOR {
            return Err(Code::TryAgain);
        }
        candidates.remove(&target);
        Ok(())
    }

    /// Whether it is the start of the target that is known already.
    fn check(&self, target: TargetId, mark: &Mark) -> Result<bool, Code> {
        let marks = self.marks.lock();
        let Some(known) = marks.get(&target).filter(|known| known.uuid == mark.uuid) else {
            return Ok(false);
        };
        if !known.may_become(mark) {
            tracing::error!(
                %target, boot = mark.boot, known_boot = known.boot, committed = mark.committed.0,
                known_committed = known.committed.0, "an older copy of the target wants to be served"
            );
            return Err(Code::Older);
        }
        Ok(known.instance == mark.instance)
    }

    /// Whether the target is being served where it was.
    async fn lives(&self, target: TargetId, nids: &[Nid]) -> bool {
        self.hub.ask(target, Role::Server, nids, msg::GetState {}, LIVES_WITHIN).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(instance: u64, boot: u64, committed: u64) -> Mark {
        Mark { uuid: ClientId(1), instance, boot, committed: Transno(committed), replaced: 3 }
    }

    #[test]
    fn a_target_never_goes_back() {
        let known = mark(7, 3, 100);
        assert!(known.may_become(&mark(7, 3, 101)), "the same start, further");
        assert!(known.may_become(&mark(7, 3, 90)), "the same start: answers overtake each other");
        assert!(known.may_become(&mark(8, 4, 100)), "the next start");
        assert!(!known.may_become(&mark(8, 3, 100)), "a copy from before that start");
        assert!(!known.may_become(&mark(8, 2, 200)));
        assert!(!known.may_become(&mark(8, 4, 99)), "a copy that was made while it was served");
    }

    #[test]
    fn a_mark_reads_as_it_was_written() {
        let value = mark(7, 3, 100).value();
        assert_eq!(Mark::decode(value.clone()), Ok(mark(7, 3, 100)));
        let before = value.len() - 4;
        for at in (0..value.len()).filter(|at| *at != before) {
            assert!(Mark::decode(value.slice(..at)).is_err(), "cut at {at}");
        }
        assert_eq!(Mark::decode(value.slice(..before)), Ok(Mark { replaced: 0, ..mark(7, 3, 100) }));
    }
}
