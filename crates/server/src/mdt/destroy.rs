//! The destroy list: objects of files that are gone.
//!
//! An entry comes with the batch that takes the file away. Once that is durable one task for each OST concerned
//! sends the entries, and takes them off the list after the OST has committed: whatever crashes, nothing is
//! destroyed that a file still has, and nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::STRIPES_MAX;
use proto::wire::messages::Destroy;
use proto::{Fid, ObjectId};
use rpc::RpcError;
use rt::Rt;
use store::{Batch, Change, Store, StoreError};

use super::keys;
use super::osts::Osts;
use crate::target::keys::behind;
use crate::target::{Env, Stop};

/// Version of the format of an entry's value.
const FORMAT: u8 = 1;
/// Entries that are sent in one request.
const ENTRIES_PER_REQUEST: usize = 512;
/// Objects that are sent in one request.
const OBJECTS_PER_REQUEST: usize = 8192;
/// How long entries gather before they are sent: the group commit makes them durable meanwhile.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after an OST refused.
const PAUSE_REFUSED: Duration = Duration::from_secs(5);

/// Sends what is on the destroy list.
pub struct Destroyer {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    osts: Arc<Osts>,
    /// OSTs that have a task.
    served: Mutex<BTreeSet<u32>>,
    /// Whether a task looks for OSTs without one; and whether it has to look again.
    looking: Mutex<Looking>,
}

#[derive(Default, PartialEq, Eq)]
enum Looking {
    #[default]
    No,
    Yes,
    Again,
}

/// What one look at the list of an OST found.
struct Found {
    keys: Vec<Bytes>,
    objects: Vec<ObjectId>,
    /// Entries that are not durable yet, or did not fit.
    more: bool,
}

impl Destroyer {
    /// Sleeps until it is woken.
    pub fn new(env: &Env, osts: Arc<Osts>) -> Destroyer {
        Destroyer {
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            osts,
            served: Mutex::default(),
            looking: Mutex::default(),
        }
    }

    /// There may be something to do.
    pub fn wake(self: &Arc<Self>) {
        let mut looking = self.looking.lock();
        if *looking == Looking::No {
            *looking = Looking::Yes;
            self.rt.spawn(self.clone().look());
        } else {
            *looking = Looking::Again;
        }
    }

    /// Starts a task for each OST that has entries.
    async fn look(self: Arc<Self>) {
        loop {
            if self.stop.unless(self.rt.sleep(PAUSE)).await.is_none() {
                return;
            }
            for ost in self.osts_with_entries().unwrap_or_default() {
                if self.osts.import(ost).is_some() && self.served.lock().insert(ost) {
                    self.rt.spawn(self.clone().serve(ost));
                }
            }
            let mut looking = self.looking.lock();
            if *looking == Looking::Again {
                *looking = Looking::Yes;
            } else {
                *looking = Looking::No;
                return;
            }
        }
    }

    fn osts_with_entries(&self) -> Result<Vec<u32>, StoreError> {
        let mut from = vec![keys::DESTROY];
        let until = behind(&from);
        let mut osts = Vec::new();
        while let Some((key, _)) = self.store.scan(&from, &until, 1)?.into_iter().next() {
            let Some((ost, _)) = keys::destroy_parts(&key) else {
                return Err(StoreError::Corrupt { what: "the destroy list".into() });
            };
            osts.push(ost);
            from = behind(&keys::destroys_of(ost));
        }
        Ok(osts)
    }

    /// Works off the list of one OST.
    async fn serve(self: Arc<Self>, ost: u32) {
        while !self.stop.is_stopped() {
            let pause = match self.send(ost).await {
                Ok(true) => PAUSE,
                Ok(false) => break,
                Err(pause) => pause,
            };
            if self.stop.unless(self.rt.sleep(pause)).await.is_none() {
                break;
            }
        }
        self.served.lock().remove(&ost);
        // An entry may have come between the last look and the line above.
        if !self.stop.is_stopped() && self.found(ost).is_ok_and(|found| found.more || !found.keys.is_empty())
        {
            self.wake();
        }
    }

    /// Sends what is durable; says whether there is more. The error is how long to wait before the next try.
    async fn send(&self, ost: u32) -> Result<bool, Duration> {
        let found = self.found(ost).map_err(|error| {
            tracing::error!(%error, "the destroy list");
            PAUSE_REFUSED
        })?;
        if found.keys.is_empty() {
            return Ok(found.more);
        }
        let Some(import) = self.osts.import(ost) else { return Ok(false) };
        let sent = async {
            let answered = import.call(Destroy { objects: found.objects }).await?;
            import.committed(answered.transno).await
        };
        match self.stop.unless(sent).await {
            None | Some(Err(RpcError::Closed)) => return Ok(false),
            Some(Err(RpcError::Refused(code))) => {
                tracing::warn!(ost, %code, "the OST does not destroy objects");
                return Err(PAUSE_REFUSED);
            }
            Some(Ok(())) => {}
        }
        let changes = found.keys.into_iter().map(|key| Change { key, value: None }).collect();
        self.store.room().await.map_err(|_| PAUSE_REFUSED)?;
        self.store.commit(Batch { changes, ..Batch::default() }).map_err(|_| PAUSE_REFUSED)?;
        Ok(true)
    }

    fn found(&self, ost: u32) -> Result<Found, StoreError> {
        let from = keys::destroys_of(ost);
        let entries = self.store.scan(&from, &behind(&from), ENTRIES_PER_REQUEST)?;
        let durable = self.store.last_committed();
        let mut found =
            Found { keys: Vec::new(), objects: Vec::new(), more: entries.len() == ENTRIES_PER_REQUEST };
        for (key, value) in entries {
            let damaged = || StoreError::Corrupt { what: "the destroy list".into() };
            let (_, layout) = keys::destroy_parts(&key).ok_or_else(damaged)?;
            let stripes = decode(&value.bytes).ok_or_else(damaged)?;
            if value.version > durable || found.objects.len() >= OBJECTS_PER_REQUEST {
                found.more = true;
                continue;
            }
            found.objects.extend(stripes.into_iter().map(|stripe| ObjectId { layout, stripe }));
            found.keys.push(key);
        }
        Ok(found)
    }
}

/// The stripes of a layout by the OST that holds them.
pub fn stripes_by_ost(osts: &[u32]) -> BTreeMap<u32, Vec<u32>> {
    let mut stripes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (stripe, ost) in (0..).zip(osts) {
        stripes.entry(*ost).or_default().push(stripe);
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

/// Names of objects that [`stripes_by_ost`] and [`keys::destroy`] keep apart; for checks of the whole list.
#[cfg(test)]
pub(super) fn listed(store: &Store) -> Vec<(u32, Fid, Vec<u32>)> {
    let from = vec![keys::DESTROY];
    let entries = store.scan(&from, &behind(&from), usize::MAX).expect("the store can be read");
    let parts = |(key, value): (Bytes, store::Value)| {
        let (ost, layout) = keys::destroy_parts(&key)?;
        Some((ost, layout, decode(&value.bytes)?))
    };
    entries.into_iter().map(|entry| parts(entry).expect("entries are sane")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let stripes = stripes_by_ost(&[3, 1, 3]);
        assert_eq!(stripes, BTreeMap::from([(3, vec![0, 2]), (1, vec![1])]));
        assert_eq!(decode(&encode(&[0, 2])), Some(vec![0, 2]));
        assert_eq!(decode(&[1, 2]), None);
        assert_eq!(decode(&[]), None);
    }
}
