//! Changes that were told before the MDT has made them. Whoever asks it about a file, or about names in a directory, waits until it
//! has answered those that concern them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use proto::Fid;
use rt::sync::{Notify, oneshot};
use rt::wait::join_all;

use crate::order::{LEAF, Mutex};

/// Files and directories with changes that are not answered.
#[derive(Default)]
pub(crate) struct Pending {
    /// So many of them.
    count: AtomicUsize,
    table: Mutex<LEAF, Table>,
    /// Told when somebody waits.
    hurry: Notify,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<Fid, Changed>,
    /// Changes that were told, of all files, and those of them that are answered: in the same order.
    told: u64,
    answered: u64,
    /// Who waits for the first so many.
    in_order: VecDeque<(u64, oneshot::Sender<()>)>,
    /// Who waits, of all of them.
    waiting: usize,
}

/// What concerns one file.
#[derive(Default)]
struct Changed {
    changes: usize,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Pending {
    /// A change of `fids` is told; false if somebody waits for one of them: those who wait must not see it grow for ever.
    pub(crate) fn begin(&self, fids: &[Fid]) -> bool {
        let mut table = self.table.lock();
        let is_waited_for =
            |fid: &Fid| table.files.get(fid).is_some_and(|changed| !changed.waiters.is_empty());
        if fids.iter().any(is_waited_for) {
            return false;
        }
        self.count_in(&mut table, fids);
        true
    }

    /// The same, whoever waits.
    pub(crate) fn add(&self, fids: &[Fid]) {
        self.count_in(&mut self.table.lock(), fids);
    }

    fn count_in(&self, table: &mut Table, fids: &[Fid]) {
        for fid in fids {
            table.files.entry(*fid).or_default().changes += 1;
        }
        self.count.store(table.files.len(), Ordering::Release);
    }

    /// It is answered.
    pub(crate) fn end(&self, fids: &[Fid]) {
        let mut table = self.table.lock();
        for fid in fids {
            let Some(changed) = table.files.get_mut(fid) else { continue };
            changed.changes -= 1;
            if changed.changes == 0 {
                let waiters = table.files.remove(fid).map(|changed| changed.waiters).unwrap_or_default();
                table.waiting -= waiters.len();
                for waiter in waiters {
                    let _ = waiter.send(());
                }
            }
        }
        self.count.store(table.files.len(), Ordering::Release);
    }

    /// Changes of `fid` that are not answered.
    pub(crate) fn changes_of(&self, fid: Fid) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.table.lock().files.get(&fid).map_or(0, |changed| changed.changes)
    }

    /// One more change was told.
    pub(crate) fn told(&self) {
        self.table.lock().told += 1;
    }

    /// The oldest change that was told and not answered is answered.
    pub(crate) fn answered(&self) {
        let mut table = self.table.lock();
        table.answered += 1;
        while table.in_order.front().is_some_and(|(number, _)| *number <= table.answered) {
            let Some((_, waiter)) = table.in_order.pop_front() else { return };
            table.waiting -= 1;
            let _ = waiter.send(());
        }
    }

    /// Waits until every change is answered that was told by now, whatever is told later: who makes a change now makes it behind them.
    /// Whether there were any.
    pub(crate) async fn in_order(&self) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let answered = {
            let mut table = self.table.lock();
            if table.answered == table.told {
                return false;
            }
            let (waiter, answered) = oneshot::channel();
            let told = table.told;
            table.in_order.push_back((told, waiter));
            table.waiting += 1;
            answered
        };
        self.hurry.notify_one();
        let _ = answered.await;
        true
    }

    /// Waits until every change of `fid` is answered that has been told by now.
    pub(crate) async fn settled(&self, fid: Fid) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let answered = {
            let mut table = self.table.lock();
            let Some(changed) = table.files.get_mut(&fid) else { return };
            let (waiter, answered) = oneshot::channel();
            changed.waiters.push(waiter);
            table.waiting += 1;
            answered
        };
        self.hurry.notify_one();
        let _ = answered.await;
    }

    /// The same of every file.
    pub(crate) async fn all_settled(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        join_all(self.all().into_iter().map(|fid| self.settled(fid))).await;
    }

    /// Files with changes that are not answered.
    pub(crate) fn all(&self) -> Vec<Fid> {
        self.table.lock().files.keys().copied().collect()
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.table.lock().waiting > 0
    }

    /// Waits until somebody may wait.
    pub(crate) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// How many files have such changes.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { seq: 0x2_0000_0400, oid, ver: 0 }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(result) => Some(result),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn who_asks_waits_for_what_concerns_the_file() {
        let pending = Pending::default();
        assert!(pending.begin(&[fid(1), fid(2)]) && pending.begin(&[fid(1), fid(3)]));
        assert_eq!(now(pending.settled(fid(4))), Some(()));
        {
            let mut waits = pin!(pending.settled(fid(1)));
            assert_eq!(now(waits.as_mut()), None);
            pending.end(&[fid(1), fid(2)]);
            assert_eq!(now(waits.as_mut()), None);
            assert!(pending.is_waited_for());
            assert!(!pending.begin(&[fid(1), fid(4)]), "who waits must not wait for ever");
            assert!(pending.begin(&[fid(5)]));
            pending.end(&[fid(1), fid(3)]);
            assert_eq!(now(waits.as_mut()), Some(()));
        }
        assert!(!pending.is_waited_for() && pending.begin(&[fid(1)]));
        assert_eq!(pending.count(), 2);
        pending.end(&[fid(5)]);
        pending.end(&[fid(1)]);
        assert_eq!((now(pending.all_settled()), pending.count()), (Some(()), 0));
    }

    #[test]
    fn who_changes_something_comes_behind_what_was_told() {
        let pending = Pending::default();
        assert_eq!(now(pending.in_order()), Some(false));
        for oid in 1..=2 {
            assert!(pending.begin(&[fid(oid)]));
            pending.told();
        }
        let mut waits = pin!(pending.in_order());
        assert_eq!(now(waits.as_mut()), None);
        assert!(pending.is_waited_for() && pending.begin(&[fid(1)]), "what comes later does not wait for it");
        pending.told();
        pending.answered();
        assert_eq!(now(waits.as_mut()), None);
        pending.answered();
        assert_eq!(now(waits.as_mut()), Some(true));
        assert!(!pending.is_waited_for());
        assert_eq!(now(pending.in_order()), None);
    }
}
