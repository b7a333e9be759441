//! The moments as of which clients search.
//!
//! A search takes a snapshot with its first page and gives it back with its last one. Nothing else is kept of it: where it is, each
//! request says. What changed since a snapshot takes room on the disk, so a search that is not asked on with loses it after a while,
//! and there are not many. Its client goes on at another moment then, or begins again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::Code;
use rt::{Rt, Time};
use service::code_of;
use store::{Snapshot, Store};

/// Searches under way at most.
const SEARCHES_MAX: usize = 32;
/// How long nobody asks for the next page before a search counts as given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long that is when there are too many.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// The searches under way, by the numbers that their clients know.
pub(super) struct Searches {
    rt: Rt,
    store: Arc<Store>,
    open: Mutex<BTreeMap<u64, Open>>,
}

struct Open {
    snapshot: Arc<Snapshot>,
    used: Time,
}

impl Searches {
    pub fn new(rt: &Rt, store: &Arc<Store>) -> Arc<Searches> {
        Arc::new(Searches { rt: rt.clone(), store: store.clone(), open: Mutex::default() })
    }

    /// The snapshot with this number, or a new one and its number for 0.
    ///
    /// # Errors
    /// `Gone` if the number means nothing any more, `Busy` if there are too many searches.
    pub async fn snapshot(self: &Arc<Self>, number: u64) -> Result<(u64, Arc<Snapshot>), Code> {
        if number != 0 {
            let mut open = self.open.lock();
            let found = open.get_mut(&number).ok_or(Code::Gone)?;
            found.used = self.rt.now();
            return Ok((number, found.snapshot.clone()));
        }
        self.make_room()?;
        let snapshot = Arc::new(self.store.snapshot().await.map_err(|error| code_of(&error))?);
        let number = self.rt.random_u64().max(1);
        let mut open = self.open.lock();
        // Others may have begun meanwhile.
        if open.len() >= SEARCHES_MAX {
            return Err(Code::Busy);
        }
        let is_first = open.is_empty();
        open.insert(number, Open { snapshot: snapshot.clone(), used: self.rt.now() });
        drop(open);
        if is_first {
            self.rt.spawn(forget_idle(Arc::downgrade(self), self.rt.clone()));
        }
        Ok((number, snapshot))
    }

    /// The search with this number has come to its end.
    pub fn end(&self, number: u64) {
        let ended = self.open.lock().remove(&number);
        drop(ended);
    }

    fn make_room(&self) -> Result<(), Code> {
        let now = self.rt.now();
        let mut open = self.open.lock();
        if open.len() < SEARCHES_MAX {
            return Ok(());
        }
        let (&number, oldest) = open.iter().min_by_key(|(_, search)| search.used).ok_or(Code::Busy)?;
        if now - oldest.used < IDLE_MIN {
            return Err(Code::Busy);
        }
        open.remove(&number);
        Ok(())
    }

    /// Forgets what was given up; whether there are others.
    fn forget(&self) -> bool {
        let now = self.rt.now();
        let mut open = self.open.lock();
        open.retain(|_, search| now - search.used < IDLE_MAX);
        !open.is_empty()
    }

    /// Searches under way.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// Runs as long as there are searches.
async fn forget_idle(searches: std::sync::Weak<Searches>, rt: Rt) {
    loop {
        rt.sleep(IDLE_MAX / 2).await;
        let Some(searches) = searches.upgrade() else { return };
        if !searches.forget() {
            return;
        }
    }
}
