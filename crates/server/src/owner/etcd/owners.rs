//! The recipes: what is asked of etcd to renew, take, settle and release.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::owner::{COLD_GRACE, RESTART_GRACE, Record, Server, TTL};
use proto::wire::messages::{FormerOwner, Tenure, Wanted};
use proto::{FsName, TargetId};
use rt::{BoxFuture, Rt, Time};

use super::client::{Client, Credentials, Transport};
use super::kv::{Compare, Found, Step, Txn, decode_record, encode_record};
use super::quiet::{Quiet, Sight, Since};
use crate::owner::store::{Grant, Me, OwnerStore, Renewed, Unavailable};

/// Most targets of one transaction: etcd takes 128 steps.
const TARGETS_AT_A_TIME: usize = 32;
/// How often it is looked whether what is wanted is free.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A revision that no key has.
const UNKNOWN: u64 = i64::MAX as u64;
/// How often something is tried that can only fail because somebody else was faster.
const TRIES: usize = 3;

/// What was swapped, or may have been: the answer may be lost.
struct Attempt {
    record: Record,
    before: u64,
    in_place: bool,
}

/// A time of ownership, and the revision of the key that says so.
struct Held {
    instance: u64,
    epoch: u64,
    revision: u64,
}

/// What a look shows of one target.
struct Seen {
    record: Result<Option<Record>, Unavailable>,
    sight: Sight,
}

/// The owners in an etcd cluster.
pub struct EtcdOwners {
    rt: Rt,
    client: Client,
    prefix: String,
    /// At which revision the key of each target says that it is held.
    held: Mutex<BTreeMap<TargetId, Held>>,
    quiet: Mutex<Quiet>,
    attempts: Mutex<BTreeMap<TargetId, Attempt>>,
}

impl EtcdOwners {
    /// Of the file system `fsname`, in the cluster that `transport` reaches.
    pub fn new(
        rt: &Rt,
        fsname: &FsName,
        transport: Arc<dyn Transport>,
        credentials: Option<Credentials>,
    ) -> EtcdOwners {
        EtcdOwners {
            rt: rt.clone(),
            client: Client::new(rt, transport, credentials),
            prefix: format!("/weft/{fsname}"),
            held: Mutex::default(),
            quiet: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    fn owner_key(&self, target: TargetId) -> String {
        format!("{}/owners/{target}", self.prefix)
    }

    fn beat_key(&self, target: TargetId) -> String {
        format!("{}/beats/{target}", self.prefix)
    }

    fn hold(&self, target: TargetId, record: &Record, revision: u64) {
        let held = Held { instance: record.server.instance, epoch: record.epoch, revision };
        self.held.lock().insert(target, held);
    }

    fn record(&self, target: TargetId, found: Option<&Found>) -> Result<Option<Record>, Unavailable> {
        let Some(found) = found else { return Ok(None) };
        decode_record(&found.value).map(Some).map_err(|why| {
            let key = self.owner_key(target);
            Unavailable(format!(
                "the key {key} in etcd names no owner ({why}); remove it if nobody serves the target"
            ))
        })
    }

    /// Renews targets with one transaction; gives those that are lost.
    async fn renew_some(&self, me: &Me, mut holds: Vec<Tenure>) -> Result<Vec<TargetId>, Unavailable> {
        let mut lost = Vec::new();
        for _ in 0..TRIES {
            if holds.is_empty() {
                return Ok(lost);
            }
            let mut txn = Txn::default();
            {
                let held = self.held.lock();
                for Tenure { target, epoch } in &holds {
                    let known = held.get(target);
                    let known = known.filter(|held| held.instance == me.instance && held.epoch == *epoch);
                    let revision = known.map_or(UNKNOWN, |held| held.revision);
                    txn.conditions.push(Compare { key: self.owner_key(*target), revision });
                    txn.then.push(Step::Put(self.beat_key(*target), epoch.to_string()));
                    txn.otherwise.push(Step::Get(self.owner_key(*target)));
                }
            }
            let outcome = self.client.txn(&txn).await?;
            if outcome.held {
                return Ok(lost);
            }
            // A revision that is not known, or one of several targets that is lost.
            let mut still = Vec::new();
            for (hold, found) in holds.into_iter().zip(&outcome.found) {
                // What names no owner any more does not name this one.
                let record = self.record(hold.target, found.as_ref());
                match (record, found) {
                    (Ok(Some(record)), Some(found)) if record.is_of(&me.server, me.instance, hold.epoch) => {
                        self.hold(hold.target, &record, found.revision);
                        still.push(hold);
                    }
                    _ => lost.push(hold.target),
                }
            }
            holds = still;
        }
        Err(Unavailable("etcd: owners change too fast".into()))
    }

    /// What there is of each of some targets, and when that was known.
    async fn look(&self, wanted: &[Wanted]) -> Result<(Vec<Seen>, Time), Unavailable> {
        let keys = |wanted: &Wanted| [self.owner_key(wanted.target), self.beat_key(wanted.target)];
        let then = wanted.iter().flat_map(keys).map(Step::Get).collect();
        let outcome = self.client.txn(&Txn { then, ..Txn::default() }).await?;
        let now = self.rt.now();
        let mut seen = Vec::new();
        for (wanted, pair) in wanted.iter().zip(outcome.found.chunks(2)) {
            let [owner, beat] = pair else {
                return Err(Unavailable("an answer of etcd's is too short".into()));
            };
            let revision = |found: &Option<Found>| found.as_ref().map_or(0, |found| found.revision);
            let sight = Sight { owner: revision(owner), beat: revision(beat) };
            seen.push(Seen { record: self.record(wanted.target, owner.as_ref()), sight });
        }
        Ok((seen, now))
    }

    /// Takes what is free of some targets; gives also when to look again.
    async fn take_some(&self, server: &Server, wanted: &[Wanted]) -> Result<(Vec<Grant>, u64), Unavailable> {
        let (seen, now) = self.look(wanted).await?;
        let (mut grants, mut next, mut failed) = (Vec::new(), u64::MAX, None);
        for (wanted, Seen { record, sight }) in wanted.iter().zip(seen) {
            let record = match record {
                Ok(record) => record,
                // The others have nothing to do with it.
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            if let Some(grant) = self.recognised(wanted.target, record.as_ref(), sight) {
                grants.push(grant);
                continue;
            }
            let since = self.quiet.lock().see(now.0, wanted.target, sight);
            let (free_at, in_place) = free_for(record.as_ref(), since, server, wanted);
            if free_at > now.0 {
                next = next.min(free_at);
                continue;
            }
            match self.swap(server, wanted, record.as_ref(), sight, in_place).await {
                Ok(grant) => grants.extend(grant),
                // etcd is away: it would be for each of the others, too.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        match failed {
            // What is given is told.
            Some(error) if grants.is_empty() => Err(error),
            _ => Ok((grants, next)),
        }
    }

    /// A swap of before whose answer was lost, or came too late.
    fn recognised(&self, target: TargetId, record: Option<&Record>, sight: Sight) -> Option<Grant> {
        let mut attempts = self.attempts.lock();
        let attempt = attempts.get(&target)?;
        if record != Some(&attempt.record) {
            return None;
        }
        let attempt = attempts.remove(&target)?;
        drop(attempts);
        Some(self.granted(target, attempt, sight.owner))
    }

    fn granted(&self, target: TargetId, attempt: Attempt, revision: u64) -> Grant {
        self.hold(target, &attempt.record, revision);
        // When it is free again, that is news.
        self.quiet.lock().see(self.rt.now().0, target, Sight { owner: revision, beat: 0 });
        let Attempt { record, before, in_place } = attempt;
        let former = record.former.clone().map(|former| FormerOwner {
            target,
            server: former.name,
            nids: former.nids,
        });
        Grant { taken: record.taken(target, before, in_place), former }
    }

    async fn swap(
        &self,
        server: &Server,
        wanted: &Wanted,
        before: Option<&Record>,
        sight: Sight,
        in_place: bool,
    ) -> Result<Option<Grant>, Unavailable> {
        let target = wanted.target;
        let record = Record::next(before, server, wanted.seen, in_place);
        let before = before.map_or(0, |before| before.epoch);
        let key = self.owner_key(target);
        let txn = Txn {
            conditions: vec![
                Compare { key: key.clone(), revision: sight.owner },
                Compare { key: self.beat_key(target), revision: sight.beat },
            ],
            then: vec![Step::Put(key.clone(), encode_record(&record))],
            otherwise: vec![Step::Get(key)],
        };
        // Remembered before it is sent: it may be carried out even if nobody waits for the answer any more.
        self.attempts.lock().insert(target, Attempt { record, before, in_place });
        let outcome = self.client.txn(&txn).await?;
        let Some(attempt) = self.attempts.lock().remove(&target) else { return Ok(None) };
        if outcome.held {
            return Ok(Some(self.granted(target, attempt, outcome.revision)));
        }
        // The first of two attempts may have been the one that was carried out.
        match outcome.found.first() {
            Some(Some(found)) if self.record(target, Some(found))?.as_ref() == Some(&attempt.record) => {
                Ok(Some(self.granted(target, attempt, found.revision)))
            }
            _ => Ok(None),
        }
    }

    /// Changes the record of a target that is still `me`'s; false if it is not.
    async fn change(
        &self,
        me: &Me,
        tenure: &Tenure,
        change: impl Fn(&mut Record),
    ) -> Result<bool, Unavailable> {
        let key = self.owner_key(tenure.target);
        for _ in 0..TRIES {
            let look = Txn { then: vec![Step::Get(key.clone())], ..Txn::default() };
            let outcome = self.client.txn(&look).await?;
            let Some(Some(found)) = outcome.found.first() else { return Ok(false) };
            let Some(mut record) = self.record(tenure.target, Some(found))? else { return Ok(false) };
            if !record.is_of(&me.server, me.instance, tenure.epoch) {
                return Ok(false);
            }
            let before = record.clone();
            change(&mut record);
            if record == before {
                return Ok(true);
            }
            let swap = Txn {
                conditions: vec![Compare { key: key.clone(), revision: found.revision }],
                then: vec![Step::Put(key.clone(), encode_record(&record))],
                otherwise: Vec::new(),
            };
            let outcome = self.client.txn(&swap).await?;
            if outcome.held {
                if !record.released {
                    self.hold(tenure.target, &record, outcome.revision);
                }
                return Ok(true);
            }
            // Somebody was faster, or the first of two attempts was carried out: it is looked at once more.
        }
        Err(Unavailable("etcd: owners change too fast".into()))
    }
}

/// From when on a server may have a target, and whether its directory may be used as it is.
fn free_for(record: Option<&Record>, since: Since, server: &Server, wanted: &Wanted) -> (u64, bool) {
    let later = |time: Duration| since.at + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    match record {
        // It was served before, and etcd does not know by whom: another store did, or it has lost its data.
        None if wanted.seen > 0 => {
            let wait = if wanted.preferred { TTL } else { COLD_GRACE };
            (later(wait), false)
        }
        None => (if wanted.preferred { 0 } else { later(COLD_GRACE) }, true),
        Some(record) => {
            let at = if record.released { since.at } else { later(TTL) };
            record.free_for(at, if since.cold { COLD_GRACE } else { RESTART_GRACE }, server, wanted.preferred)
        }
    }
}

impl OwnerStore for EtcdOwners {
    fn identity(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        Box::pin(async move {
            let any = Txn { then: vec![Step::Get(self.prefix.clone())], ..Txn::default() };
            Ok(format!("etcd-{:016x}", self.client.txn(&any).await?.cluster))
        })
    }

    fn renew<'a>(&'a self, me: &'a Me, holds: Vec<Tenure>) -> BoxFuture<'a, Result<Renewed, Unavailable>> {
        Box::pin(async move {
            let mut lost = Vec::new();
            for some in holds.chunks(TARGETS_AT_A_TIME) {
                lost.extend(self.renew_some(me, some.to_vec()).await?);
            }
            self.held.lock().retain(|target, _| holds.iter().any(|hold| hold.target == *target));
            Ok(Renewed { ttl: TTL, lost })
        })
    }

    fn take<'a>(
        &'a self,
        me: &'a Me,
        wanted: Vec<Wanted>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Vec<Grant>, Unavailable>> {
        let server = Server { name: me.server.clone(), instance: me.instance, nids: me.nids.clone() };
        Box::pin(async move {
            let until = self.rt.now() + wait;
            let is_wanted = |target| wanted.iter().any(|wanted| wanted.target == target);
            self.attempts.lock().retain(|target, _| is_wanted(*target));
            loop {
                let (mut grants, mut next) = (Vec::new(), u64::MAX);
                for some in wanted.chunks(TARGETS_AT_A_TIME) {
                    match self.take_some(&server, some).await {
                        Ok((given, at)) => {
                            grants.extend(given);
                            next = next.min(at);
                        }
                        // What is given is told.
                        Err(_) if !grants.is_empty() => break,
                        Err(error) => return Err(error),
                    }
                }
                let now = self.rt.now();
                if !grants.is_empty() || now >= until {
                    return Ok(grants);
                }
                self.rt.sleep_until((now + LOOK_EVERY).min(Time(next)).min(until)).await;
            }
        })
    }

    fn settle<'a>(&'a self, me: &'a Me, tenure: Tenure) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            match self.change(me, &tenure, |record| record.former = None).await? {
                true => Ok(()),
                false => Err(Unavailable(format!("{} has another owner by now", tenure.target))),
            }
        })
    }

    fn release<'a>(
        &'a self,
        me: &'a Me,
        tenure: Tenure,
        to: &'a str,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            let released = |record: &mut Record| {
                record.released = true;
                record.reserved = to.to_owned();
            };
            // It is nobody's wish to release what is somebody else's by now.
            self.change(me, &tenure, released).await.map(|_| ())
        })
    }
}
