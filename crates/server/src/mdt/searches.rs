//! The moments as of which clients search.
//!
//! A search takes a snapshot with its first page and gives it back with its last one. Where it is, each request says; what was found ahead of
//! it is kept as long as there is memory for it. What changed since a snapshot takes room on the disk, so a search that is not asked on with loses it after a while,
//! and there are not many. Its client goes on at another moment then, or begins again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::Code;
use rt::sync::Semaphore;
use rt::{Rt, Time};
use service::code_of;
use store::{Snapshot, Store};

use super::ops::find::Progress;

/// Searches under way at most.
const SEARCHES_MAX: usize = 32;
/// How long nobody asks for the next page before a search counts as given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long that is when there are too many.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// Pages that are made at the same time.
const PAGES_MAX: usize = 4;
/// Bytes of what one search finds ahead, at most, and which part of the process's memory that may be.
const BYTES_MAX: u64 = 32 << 20;
const MEMORY_PART: u64 = 64;
/// As many times that may be kept of all searches together.
const KEPT_MAX: u64 = 4;

/// The searches under way, by the numbers that their clients know.
pub(super) struct Searches {
    rt: Rt,
    store: Arc<Store>,
    open: Mutex<BTreeMap<u64, Open>>,
    pages: Semaphore,
}

struct Open {
    snapshot: Arc<Snapshot>,
    used: Time,
    /// Pages that are being made, or wait for their turn.
    asked: usize,
    /// What comes with its next page, and the bytes of that.
    progress: Option<(Progress, u64)>,
}

/// A page of a search is waited for as long as this lives: nobody takes the search for one that was given up.
pub(super) struct Asked {
    searches: Arc<Searches>,
    number: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(search) = self.searches.open.lock().get_mut(&self.number) {
            search.asked -= 1;
            search.used = self.searches.rt.now();
        }
    }
}

impl Open {
    /// Whether nobody has asked for a page for so long.
    fn is_idle(&self, now: Time, time: Duration) -> bool {
        self.asked == 0 && now - self.used >= time
    }
}

impl Searches {
    pub fn new(rt: &Rt, store: &Arc<Store>) -> Arc<Searches> {
        let pages = Semaphore::new(PAGES_MAX);
        Arc::new(Searches { rt: rt.clone(), store: store.clone(), open: Mutex::default(), pages })
    }

    /// The snapshot with this number, or a new one and its number for 0; a page of it is asked for.
    ///
    /// # Errors
    /// `Gone` if the number means nothing any more, `Busy` if there are too many searches.
    pub async fn snapshot(self: &Arc<Self>, number: u64) -> Result<(u64, Arc<Snapshot>, Asked), Code> {
        let asked = |number| Asked { searches: self.clone(), number };
        if number != 0 {
            let mut open = self.open.lock();
            let found = open.get_mut(&number).ok_or(Code::Gone)?;
            found.asked += 1;
            return Ok((number, found.snapshot.clone(), asked(number)));
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
        let used = self.rt.now();
        open.insert(number, Open { snapshot: snapshot.clone(), used, asked: 1, progress: None });
        drop(open);
        if is_first {
            self.rt.spawn(forget_idle(Arc::downgrade(self), self.rt.clone()));
        }
        Ok((number, snapshot, asked(number)))
    }

    /// A page is made as long as the result lives: others wait if there are too many.
    pub async fn turn(&self) -> Option<impl Sized + '_> {
        self.pages.acquire().await.ok()
    }

    /// Bytes of what a search may find ahead, part of what others leave. A search without any looks at little at a time, and gets on.
    pub fn bytes_max(&self) -> u64 {
        let most = self.most();
        let kept = kept(&self.open.lock());
        most.min((KEPT_MAX * most).saturating_sub(kept) / 2).max(1)
    }

    fn most(&self) -> u64 {
        (self.rt.memory_bytes() / MEMORY_PART).min(BYTES_MAX)
    }

    /// What was kept of the search, if it is what is `wanted`.
    pub fn take(&self, number: u64, wanted: impl FnOnce(&Progress) -> bool) -> Option<Progress> {
        let mut open = self.open.lock();
        let search = open.get_mut(&number)?;
        let (progress, _) = search.progress.take_if(|(progress, _)| wanted(progress))?;
        Some(progress)
    }

    /// Keeps it for the next page, if there is room.
    pub fn keep(&self, number: u64, progress: Progress) {
        let bytes = progress.memory();
        let mut open = self.open.lock();
        let has_room = kept(&open) + bytes <= KEPT_MAX * self.most();
        let Some(search) = open.get_mut(&number) else { return };
        if has_room {
            let before = search.progress.replace((progress, bytes));
            // That may be large.
            drop(open);
            drop(before);
        }
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
        let idle = open.iter().filter(|(_, search)| search.is_idle(now, IDLE_MIN));
        let (&number, _) = idle.min_by_key(|(_, search)| search.used).ok_or(Code::Busy)?;
        let ended = open.remove(&number);
        drop(open);
        drop(ended);
        Ok(())
    }

    /// Forgets what was given up; whether there are others.
    fn forget(&self) -> bool {
        let now = self.rt.now();
        let mut open = self.open.lock();
        let idle = |(number, search): (&u64, &Open)| search.is_idle(now, IDLE_MAX).then_some(*number);
        let idle: Vec<u64> = open.iter().filter_map(idle).collect();
        let ended: Vec<Open> = idle.iter().filter_map(|number| open.remove(number)).collect();
        let some_are_left = !open.is_empty();
        drop(open);
        drop(ended);
        some_are_left
    }

    /// Searches under way.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// Bytes of what is kept of all searches.
fn kept(open: &BTreeMap<u64, Open>) -> u64 {
    open.values().filter_map(|search| search.progress.as_ref()).map(|(_, bytes)| bytes).sum()
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
