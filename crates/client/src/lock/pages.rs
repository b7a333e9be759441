//! The kernel's pages of what is locked: what it may have, and what it has to forget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt::wait::join_all;

use super::filling::Filling;
use super::held::Leaving;
use super::needs::Need;
use super::table::{ObjectLocks, Table};

/// The kernel's pages of objects.
pub(crate) struct KernelPages {
    table: Arc<Table>,
    filling: Arc<Filling>,
}

impl KernelPages {
    /// The kernel has none yet.
    pub(super) fn new(table: Arc<Table>, filling: Arc<Filling>) -> KernelPages {
        KernelPages { table, filling }
    }

    /// Has the kernel forget its pages of a range of an object. Ranges of other objects of the file are left alone:
    /// their pages may be locked for a read that waits for another client.
    pub(super) async fn forget_pages(&self, object: &ObjectLocks, leaving: &Leaving) {
        let end = leaving.end.min(object.kernel_end.load(Ordering::Relaxed));
        if leaving.start >= end {
            return;
        }
        let forget: Vec<_> = object.layout.file_ranges(object.id, leaving.start..end).collect();
        self.filling.forget_data(object.fid, forget).await;
    }

    /// Has the kernel forget every page of an object.
    pub(crate) async fn forget_all_pages(&self, object: &ObjectLocks) {
        let everything = Leaving { start: 0, end: u64::MAX, keep_read: false };
        self.forget_pages(object, &everything).await;
    }

    /// Has the kernel forget every page of every object.
    pub(crate) async fn forget_pages_of_all(&self) {
        let objects = self.table.all();
        join_all(objects.iter().map(|object| self.forget_all_pages(object))).await;
    }

    /// What this client held of an object is lost, and no page that was filled or changed under it may be written any more
    /// ([`KernelPages::is_lost`]).
    pub(super) fn lose(object: &ObjectLocks) {
        object.lost.fetch_add(1, Ordering::AcqRel);
    }

    /// Has the kernel drop the pages of an object that is lost.
    pub(crate) async fn drop_lost_pages(&self, object: &Arc<ObjectLocks>) {
        self.forget_all_pages(object).await;
        object.lost.fetch_sub(1, Ordering::AcqRel);
        object.changed.notify_waiters();
        self.table.forget_if_empty(object);
    }

    /// Waits until the kernel has dropped the pages of lost objects.
    pub(super) async fn until_dropped(&self, needs: &[Need]) {
        for need in needs {
            let Some(object) = self.table.find(need.place.object) else { continue };
            loop {
                let changed = object.changed.notified();
                if object.lost.load(Ordering::Acquire) == 0 {
                    break;
                }
                changed.await;
            }
        }
    }

    /// Whether pages of these ranges, which the kernel writes back, were changed under locks that are lost: others may have
    /// written since.
    pub(crate) fn is_lost(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.table.find(need.place.object);
            object.is_some_and(|object| object.lost.load(Ordering::Acquire) > 0)
        })
    }

    /// The kernel is about to have pages of a file. Not said before their fill goes on: who has all pages forgotten while
    /// it waits leaves them out, and would take them for forgotten.
    pub(super) fn kernel_gets(&self, needs: &[Need]) {
        for need in needs {
            if let Some(object) = self.table.find(need.place.object) {
                object.kernel_end.fetch_max(need.end, Ordering::Relaxed);
            }
        }
    }

    /// Whether the kernel may have pages of a range of a file, which a direct write has to take from it.
    pub(crate) fn kernel_has(&self, needs: &[Need]) -> bool {
        needs.iter().any(|need| {
            let object = self.table.find(need.place.object);
            object.is_some_and(|object| object.kernel_end.load(Ordering::Relaxed) > need.start)
        })
    }
}
