//! Commit on share: what one client changed becomes durable before another one sees it or writes over it.
//!
//! A change that is answered and not durable yet survives a restart of the OST because its client repeats it. If the client is
//! lost with the OST, the change is lost, and whatever somebody else has built on it must not be: so who is about to get a
//! range waits for the commit of what others did there (`docs/recovery.md#sharing`; Lustre's `sync_lock_cancel`). Who works
//! alone, or beside others, waits for nothing.
//!
//! The parameter `sync_lock_cancel` says when: `blocking`, as above; `always`, which has each session wait that gives up what it has
//! changed, whether somebody wants it or not; `never`, which has nobody wait, and is there to compare.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use proto::lock::range::{Holder, Range};
use proto::parameters::{Parameter, TargetTree};
use proto::{Code, ObjectId, Shards, Transno};
use rt::BoxFuture;
use service::{GivenUp, code_of};
use store::Store;

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;
/// Objects of a part that are remembered; beyond, everybody waits for what they had.
const OBJECTS_MAX: usize = 4096;
/// Objects of a part from which on those go whose changes are durable.
const SWEPT_MIN: usize = 128;
/// Changes that are remembered of an object; beyond, they count as one, by nobody.
const CHANGES_MAX: usize = 64;

/// When the commit of what a session has changed is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Never: what another session has seen may be lost.
    Never = 0,
    /// Before another session gets it.
    Blocking = 1,
    /// Before it is given up, and before another session gets it.
    Always = 2,
}

impl When {
    const ALL: [(When, &str); 3] =
        [(When::Never, "never"), (When::Blocking, "blocking"), (When::Always, "always")];

    fn name(self) -> &'static str {
        When::ALL.iter().find(|(when, _)| *when == self).map_or("", |(_, name)| name)
    }
}

/// Changes of a range by one session, the newest of them with `transno`.
#[derive(Debug, Clone, Copy)]
struct Change {
    range: Range,
    /// `None`: of several sessions.
    by: Option<Holder>,
    transno: Transno,
}

type Changes = BTreeMap<ObjectId, Vec<Change>>;

/// The changes that are not durable yet.
pub(super) struct Sharing {
    store: Arc<Store>,
    shards: Shards<Mutex<Changes>, SHARDS>,
    /// Everything up to this transno counts as changed by others.
    floor: AtomicU64,
    /// A [`When`].
    when: AtomicU8,
    waits: AtomicU64,
}

impl GivenUp for Sharing {
    fn give_up(&self, object: ObjectId, range: Range, by: Holder) -> BoxFuture<'_, Result<(), Code>> {
        Box::pin(self.wait_to_give_up(object, range, by))
    }
}

impl Sharing {
    pub fn new(store: Arc<Store>) -> Sharing {
        Sharing {
            store,
            shards: Shards::default(),
            floor: AtomicU64::new(0),
            when: AtomicU8::new(When::Blocking as u8),
            waits: AtomicU64::new(0),
        }
    }

    fn when(&self) -> When {
        match self.when.load(Ordering::Relaxed) {
            0 => When::Never,
            1 => When::Blocking,
            _ => When::Always,
        }
    }

    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let when = Parameter::text("sync_lock_cancel", || self.when().name());
        tree.of_device(when.settable("write never, blocking or always", |text: &str| {
            let (when, _) = When::ALL.iter().find(|(_, name)| *name == text).ok_or(Code::Invalid)?;
            self.when.store(*when as u8, Ordering::Relaxed);
            Ok(())
        }));
    }

    /// How often somebody waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// A session has changed a range.
    pub fn changed(&self, object: ObjectId, range: Range, by: Holder, transno: Transno) {
        let committed = self.store.last_committed();
        if transno <= committed || range.start >= range.end {
            return;
        }
        let mut shard = self.shards.of(&object).lock();
        // Each time that there are twice as many: what is durable need not be remembered.
        let is_due = shard.len() >= SWEPT_MIN && shard.len().is_power_of_two() || shard.len() >= OBJECTS_MAX;
        if is_due && !shard.contains_key(&object) {
            self.make_room(&mut shard, committed);
        }
        let changes = shard.entry(object).or_default();
        changes.retain(|change| change.transno > committed);
        note(changes, Change { range, by: Some(by), transno });
    }

    /// Everything so far counts as changed by others.
    pub fn all_changed(&self) {
        self.floor.fetch_max(self.store.last_transno().0, Ordering::AcqRel);
    }

    /// Drops what is durable; if that is not enough, everybody waits for the rest.
    fn make_room(&self, shard: &mut Changes, committed: Transno) {
        shard.retain(|_, changes| {
            changes.retain(|change| change.transno > committed);
            !changes.is_empty()
        });
        if shard.len() >= OBJECTS_MAX {
            let newest = shard.values().flatten().map(|change| change.transno.0).max().unwrap_or(0);
            self.floor.fetch_max(newest, Ordering::AcqRel);
            shard.clear();
        }
    }

    /// Waits until what others did in a range is durable: `who` is about to use it.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn settle(&self, object: ObjectId, range: Range, who: Holder) -> Result<(), Code> {
        if self.when() == When::Never {
            return Ok(());
        }
        let floor = Transno(self.floor.load(Ordering::Acquire));
        self.wait(self.newest(object, range, |by| by != Some(who)).max(floor)).await
    }

    /// Waits until what `who` did in a range is durable, if that is wanted: it gives it up.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn wait_to_give_up(&self, object: ObjectId, range: Range, who: Holder) -> Result<(), Code> {
        if self.when() != When::Always {
            return Ok(());
        }
        // Changes by several sessions that count as one may be its own.
        let floor = Transno(self.floor.load(Ordering::Acquire));
        self.wait(self.newest(object, range, |by| by.is_none_or(|by| by == who)).max(floor)).await
    }

    /// The newest change of a range by those whom `counts` names; 0 if there is none.
    fn newest(&self, object: ObjectId, range: Range, counts: impl Fn(Option<Holder>) -> bool) -> Transno {
        let shard = self.shards.of(&object).lock();
        let changes = shard.get(&object).into_iter().flatten();
        let counted = changes.filter(|change| change.range.overlaps(range) && counts(change.by));
        counted.map(|change| change.transno).max().unwrap_or_default()
    }

    async fn wait(&self, newest: Transno) -> Result<(), Code> {
        if newest <= self.store.last_committed() {
            return Ok(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.store.committed(newest).await.map_err(|error| code_of(&error))
    }
}

/// Adds a change, to the last one of the same session if they touch.
fn note(changes: &mut Vec<Change>, new: Change) {
    let touches = |old: &&mut Change| {
        old.by == new.by && old.range.start <= new.range.end && new.range.start <= old.range.end
    };
    if let Some(old) = changes.iter_mut().rev().find(touches) {
        old.range = old.range.hull(new.range);
        old.transno = old.transno.max(new.transno);
        return;
    }
    changes.push(new);
    if changes.len() > CHANGES_MAX {
        let all = changes.drain(..).reduce(|all, change| Change {
            range: all.range.hull(change.range),
            by: all.by.filter(|by| Some(*by) == change.by),
            transno: all.transno.max(change.transno),
        });
        changes.extend(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(start: u64, end: u64, by: u64, transno: u64) -> Change {
        Change { range: Range { start, end }, by: Some(Holder(by)), transno: Transno(transno) }
    }

    #[test]
    fn what_touches_is_one_change() {
        let mut changes = Vec::new();
        for new in [change(0, 10, 1, 5), change(10, 20, 2, 6), change(10, 30, 1, 7), change(40, 50, 1, 8)] {
            note(&mut changes, new);
        }
        let shown: Vec<_> = changes
            .iter()
            .map(|of| (of.range.start, of.range.end, of.by.map(|by| by.0), of.transno.0))
            .collect();
        assert_eq!(shown, [(0, 30, Some(1), 7), (10, 20, Some(2), 6), (40, 50, Some(1), 8)]);
    }

    #[test]
    fn many_changes_count_as_one() {
        let mut changes = Vec::new();
        for n in 0..=CHANGES_MAX as u64 {
            note(&mut changes, change(n * 10, n * 10 + 5, n % 2, n));
        }
        let [all] = changes[..] else { panic!("one is left, not {changes:?}") };
        assert_eq!((all.range.start, all.by, all.transno.0), (0, None, CHANGES_MAX as u64));
    }
}
