//! The destroy list: objects of files that are gone. What got another owner goes the same way ([`super::owners`]).
//!
//! An entry comes with the batch that takes the file away. Once that is durable one task for each OST concerned
//! sends the entries, and takes them off the list after the OST has committed: whatever crashes, nothing is
//! destroyed that a file still has, and nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::layout::Component;
use proto::limits::STRIPES_MAX;
use proto::wire::messages::{DeadRange, Destroy, Operation, OwnedObject, SetOwners};
use proto::{DataTarget, Fid, ObjectId, OstIndex, Transno};
use rpc::RpcError;
use rt::Rt;
use service::keys::behind;
use service::{Env, Recovery, Stop};
use store::{Batch, Change, Store, StoreError};

use super::dead::{self, Dead};
use super::keys;
use super::osts::Osts;
use super::owners::{self, Found};
use crate::data::Data;

/// Version of the format of an entry's value.
const FORMAT: u8 = 1;
/// Entries that are sent in one request.
const ENTRIES_PER_REQUEST: usize = 512;
/// Objects that are sent in one request.
const OBJECTS_PER_REQUEST: usize = 8192;
/// Ranges of dead layout ids that are sent in one request.
const DEAD_PER_REQUEST: usize = 512;
/// Entries that are looked at to find those within a range that wait for a later request.
const WAITING_SCANNED: usize = 4096;
/// How long entries gather before they are sent: the group commit makes them durable meanwhile.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after an OST refused.
const PAUSE_REFUSED: Duration = Duration::from_secs(5);

/// Sends what is on the destroy list.
pub struct Destroyer {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    osts: Arc<Osts>,
    data: Arc<Data>,
    /// Entries up to here are left alone: none, but in an experiment.
    forgotten: Transno,
    /// What OSTs are told besides, so that their tombstones merge.
    dead: Dead,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// OSTs that have entries and no task.
    waiting: BTreeSet<DataTarget>,
    /// OSTs that have a task; true if entries came since it looked last.
    served: BTreeMap<DataTarget, bool>,
    /// A task is about to look at `waiting`.
    looking: bool,
}

/// What one look at the list of an OST found.
struct Page {
    keys: Vec<Bytes>,
    objects: Vec<ObjectId>,
    /// Layout ids around those that are dead as well.
    dead: Vec<DeadRange>,
    /// Where the next look goes on; `None` behind the last entry.
    next: Option<Vec<u8>>,
    /// Entries that are not durable yet.
    early: bool,
}

/// Where the task of an OST is in its list.
#[derive(Default)]
struct Round {
    /// Entries before this were seen in this round.
    from: Option<Vec<u8>>,
    /// Something was left behind.
    left: bool,
}

impl Destroyer {
    /// Finds the OSTs that have entries from before the restart.
    pub fn open(env: &Env, osts: Arc<Osts>, data: Arc<Data>) -> Result<Destroyer, StoreError> {
        let is_remembered = env.hub.habits().safeguards.destroy_list;
        let forgotten = if is_remembered { Transno(0) } else { env.store.last_transno() };
        let state = State { waiting: targets_with_entries(&env.store)?, ..State::default() };
        Ok(Destroyer {
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            osts,
            data,
            forgotten,
            dead: Dead::default(),
            state: Mutex::new(state),
        })
    }

    /// The change `transno` left nothing that `layouts` name.
    pub fn note_dead(&self, layouts: &[Fid], transno: Transno) {
        layouts.iter().for_each(|layout| self.dead.note(*layout, transno));
    }

    /// There are new entries for `targets`, or OSTs that there were not before.
    pub fn wake(self: &Arc<Self>, targets: &[DataTarget]) {
        let mut state = self.state.lock();
        for target in targets {
            match state.served.get_mut(target) {
                Some(again) => *again = true,
                None => drop(state.waiting.insert(*target)),
            }
        }
        if !state.looking && !state.waiting.is_empty() {
            state.looking = true;
            self.rt.spawn(self.clone().look());
        }
    }

    /// Whether a target that answers is told what to destroy, or is about to be.
    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.looking || !state.served.is_empty()
    }

    /// Starts a task for each OST that has entries and is known.
    async fn look(self: Arc<Self>) {
        let pause = async {
            self.recovery.until_over().await;
            self.rt.sleep(PAUSE).await;
        };
        if self.stop.unless(pause).await.is_none() {
            return;
        }
        let waiting = {
            let mut state = self.state.lock();
            state.looking = false;
            state.waiting.clone()
        };
        for target in waiting.into_iter().filter(|target| self.is_known(*target)) {
            let mut state = self.state.lock();
            if state.waiting.remove(&target) {
                state.served.insert(target, false);
                self.rt.spawn(self.clone().serve(target));
            }
        }
    }

    /// Works off the list of one OST, in rounds.
    async fn serve(self: Arc<Self>, target: DataTarget) {
        let mut round = Round::default();
        loop {
            let pause = match self.send(target, &mut round).await {
                Ok(()) if round.from.is_some() => continue,
                Ok(()) if self.is_finished(target, round.left) => return,
                Ok(()) => PAUSE,
                Err(_) if self.waits_for(target) => return,
                Err(pause) => pause,
            };
            round = Round::default();
            if self.stop.unless(self.rt.sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Whether the target was taken out: its list waits until it is back, or another one has its index.
    fn waits_for(&self, target: DataTarget) -> bool {
        let is_gone = self.is_removed(target);
        if is_gone {
            let mut state = self.state.lock();
            state.served.remove(&target);
            state.waiting.insert(target);
        }
        is_gone
    }

    /// Whether a round that ended was the last one.
    fn is_finished(&self, target: DataTarget, left: bool) -> bool {
        let mut state = self.state.lock();
        let again = state.served.insert(target, false).unwrap_or(false);
        if !again && !left {
            state.served.remove(&target);
        }
        !again && !left || self.stop.is_stopped()
    }

    /// Sends what is durable of the next part of the list, and behind its last part what got another owner: what frees space waits for
    /// nothing else. The error is how long to wait before the next try.
    async fn send(&self, target: DataTarget, round: &mut Round) -> Result<(), Duration> {
        self.destroy_next(target, round).await?;
        if round.from.is_none() {
            round.left |= self.hand_over(target).await?;
        }
        Ok(())
    }

    /// Has the objects of the next part of the list destroyed.
    async fn destroy_next(&self, target: DataTarget, round: &mut Round) -> Result<(), Duration> {
        let from = round.from.take();
        let found = self.found(target, from).map_err(|error| {
            tracing::error!(%error, "the destroy list");
            PAUSE_REFUSED
        })?;
        round.from = found.next;
        round.left |= found.early;
        if found.keys.is_empty() {
            return Ok(());
        }
        match target {
            DataTarget::Ost(ost) => self.destroy_on(ost, found.objects, found.dead).await?,
            DataTarget::Mdt(_) => self.destroy_here(&found.objects, &found.dead).await?,
        }
        let changes = found.keys.into_iter().map(|key| Change { key, value: None }).collect();
        self.store.commit(Batch { changes, ..Batch::default() }).map_err(|_| PAUSE_REFUSED)?;
        Ok(())
    }

    /// Whether the target can be asked.
    fn is_known(&self, target: DataTarget) -> bool {
        target.ost().is_none_or(|ost| self.osts.import(ost).is_some())
    }

    /// Whether the target was taken out of the file system.
    fn is_removed(&self, target: DataTarget) -> bool {
        target.ost().is_some_and(|ost| self.osts.is_removed(ost))
    }

    /// Has an OST destroy objects; durable when this returns.
    async fn destroy_on(
        &self,
        ost: OstIndex,
        objects: Vec<ObjectId>,
        dead: Vec<DeadRange>,
    ) -> Result<(), Duration> {
        self.order(ost, Destroy { objects, dead }).await
    }

    /// Has an OST carry `order` out; durable when this returns.
    async fn order<O: Operation>(&self, ost: OstIndex, order: O) -> Result<(), Duration> {
        let import = self.osts.import(ost).ok_or(PAUSE_REFUSED)?;
        let sent = async {
            let answered = import.call(order).await?;
            import.committed(answered.transno).await
        };
        match self.stop.unless(sent).await {
            Some(Ok(())) => Ok(()),
            None | Some(Err(RpcError::Closed)) => Err(PAUSE_REFUSED),
            Some(Err(RpcError::Refused(code))) => {
                tracing::warn!(%ost, %code, operation = O::NAME, "the OST refuses");
                Err(PAUSE_REFUSED)
            }
        }
    }

    /// Tells a target whose objects got another owner, as far as that is durable. Says whether something is left.
    async fn hand_over(&self, target: DataTarget) -> Result<bool, Duration> {
        let pause = |error: StoreError| {
            tracing::error!(%error, "the list of objects that got another owner");
            PAUSE_REFUSED
        };
        loop {
            let Found { keys, owned, is_all, is_early } =
                owners::found(&self.store, target).map_err(pause)?;
            if keys.is_empty() {
                return Ok(is_early);
            }
            match target {
                DataTarget::Ost(ost) => {
                    let objects =
                        owned.into_iter().map(|(object, owner)| OwnedObject { object, owner }).collect();
                    self.order(ost, SetOwners { objects }).await?;
                }
                DataTarget::Mdt(_) => {
                    let given = async {
                        let transno = self.data.set_owners_here(&owned).await?;
                        self.store.committed(transno).await
                    };
                    given.await.map_err(pause)?;
                }
            }
            let changes = keys.into_iter().map(|key| Change { key, value: None }).collect();
            self.store.commit(Batch { changes, ..Batch::default() }).map_err(pause)?;
            if is_all {
                return Ok(is_early);
            }
        }
    }

    /// The same of objects that this target has itself.
    async fn destroy_here(&self, objects: &[ObjectId], dead: &[DeadRange]) -> Result<(), Duration> {
        let destroyed = async {
            let transno = self.data.destroy_here(objects, dead).await?;
            self.store.committed(transno).await
        };
        destroyed.await.map_err(|error| {
            tracing::warn!(%error, "objects of files that are gone are not destroyed");
            PAUSE_REFUSED
        })
    }

    fn found(&self, target: DataTarget, from: Option<Vec<u8>>) -> Result<Page, StoreError> {
        let first = keys::of_target(keys::DESTROY, target);
        let until = behind(&first);
        let entries = self.store.scan(&from.unwrap_or(first), &until, ENTRIES_PER_REQUEST)?;
        let durable = self.store.last_committed();
        let full = entries.len() == ENTRIES_PER_REQUEST;
        let next = entries.last().filter(|_| full).map(|(key, _)| [&key[..], &[0]].concat());
        let mut found = Page { keys: Vec::new(), objects: Vec::new(), dead: Vec::new(), next, early: false };
        self.dead.settle(durable);
        let mut layouts = Vec::new();
        for (key, value) in entries {
            let (_, layout) = keys::target_parts(&key).ok_or_else(damaged)?;
            let stripes = decode(&value.bytes).ok_or_else(damaged)?;
            if value.version <= self.forgotten {
                continue;
            }
            if value.version > durable || found.objects.len() >= OBJECTS_PER_REQUEST {
                found.early = true;
                continue;
            }
            found.objects.extend(stripes.into_iter().map(|stripe| ObjectId { layout, stripe }));
            found.keys.push(key);
            layouts.push(layout);
        }
        found.dead = self.dead_around(target, &layouts)?;
        Ok(found)
    }

    /// The dead layout ids around `layouts`, which are in order: up to the last of them, and without those that `target` is still to
    /// destroy. Of these the list has an entry, which came before they were known to be dead.
    fn dead_around(&self, target: DataTarget, layouts: &[Fid]) -> Result<Vec<DeadRange>, StoreError> {
        let Some(newest) = layouts.last() else { return Ok(Vec::new()) };
        let mut ranges: Vec<DeadRange> = Vec::new();
        for layout in layouts {
            let is_in = ranges.last().is_some_and(|of| of.seq == layout.seq && layout.oid <= of.last);
            if !is_in && let Some(mut range) = self.dead.around(*layout) {
                if range.seq == newest.seq {
                    range.last = range.last.min(newest.oid);
                }
                ranges.push(range);
            }
        }
        let mut dead = Vec::new();
        for range in ranges.iter_mut().take(DEAD_PER_REQUEST) {
            let at = |oid, ver| keys::destroy(target, Fid { seq: range.seq, oid, ver });
            let waiting = self.store.scan(&at(range.first, 0), &at(range.last, u32::MAX), WAITING_SCANNED)?;
            let fids: Vec<Fid> =
                waiting.iter().filter_map(|(key, _)| Some(keys::target_parts(key)?.1)).collect();
            if fids.len() == WAITING_SCANNED {
                range.last = fids.last().map_or(range.first, |fid| fid.oid);
            }
            let others = fids.iter().filter(|fid| layouts.binary_search(fid).is_err());
            let alive: Vec<u32> = others.map(|fid| fid.oid).collect();
            dead.extend(dead::without(range, &alive));
        }
        dead.truncate(DEAD_PER_REQUEST);
        Ok(dead)
    }
}

fn damaged() -> StoreError {
    StoreError::Corrupt { what: "the destroy list".into() }
}

fn targets_with_entries(store: &Store) -> Result<BTreeSet<DataTarget>, StoreError> {
    let mut targets = BTreeSet::new();
    for list in [keys::DESTROY, keys::OWNERS] {
        let mut from = vec![list];
        let until = behind(&from);
        while let Some((key, _)) = store.scan(&from, &until, 1)?.into_iter().next() {
            let (target, _) = keys::target_parts(&key).ok_or_else(damaged)?;
            targets.insert(target);
            from = behind(&keys::of_target(list, target));
        }
    }
    Ok(targets)
}

/// The stripes of a component by the target that holds them.
pub fn stripes_by_target(component: &Component) -> BTreeMap<DataTarget, Vec<u32>> {
    let mut stripes: BTreeMap<DataTarget, Vec<u32>> = BTreeMap::new();
    for place in component.places() {
        stripes.entry(place.target).or_default().push(place.object.stripe);
    }
    stripes
}

/// Value of an entry: format, then each stripe.
pub fn encode(stripes: &[u32]) -> Bytes {
    let mut value = Vec::with_capacity(1 + 4 * stripes.len());
    value.push(FORMAT);
    stripes.iter().for_each(|stripe| value.extend_from_slice(&stripe.to_le_bytes()));
    value.into()
}

/// The inverse of [`encode`].
fn decode(value: &[u8]) -> Option<Vec<u32>> {
    let (&format, stripes) = value.split_first()?;
    let (stripes, rest) = stripes.as_chunks::<4>();
    let sane = format == FORMAT && rest.is_empty() && stripes.len() <= STRIPES_MAX;
    sane.then(|| stripes.iter().map(|stripe| u32::from_le_bytes(*stripe)).collect())
}

/// The whole list: OST, layout id, stripes.
#[cfg(test)]
pub(super) fn listed(store: &Store) -> Vec<(DataTarget, proto::Fid, Vec<u32>)> {
    let from = vec![keys::DESTROY];
    let entries = store.scan(&from, &behind(&from), usize::MAX).expect("the store can be read");
    let parts = |(key, value): (Bytes, store::Value)| {
        let (target, layout) = keys::target_parts(&key)?;
        Some((target, layout, decode(&value.bytes)?))
    };
    entries.into_iter().map(|entry| parts(entry).expect("entries are sane")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let component = Component::striped(Fid::ROOT, 65_536, [3, 1, 3].map(OstIndex));
        let stripes = stripes_by_target(&component);
        assert_eq!(
            stripes,
            BTreeMap::from([(OstIndex(3).into(), vec![0, 2]), (OstIndex(1).into(), vec![1])])
        );
        assert_eq!(decode(&encode(&[0, 2])), Some(vec![0, 2]));
        assert_eq!(decode(&[1, 2]), None);
        assert_eq!(decode(&[]), None);
    }
}
