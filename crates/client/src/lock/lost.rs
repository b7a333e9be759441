//! What an OST has forgotten, and what an OST that restarted is told again.

use std::sync::Arc;

use proto::wire::messages::Enqueue;
use proto::{DataTarget, Fid, ObjectId};
use rpc::Restate;

use super::table::ObjectLocks;
use super::{KernelPages, RangeLocks};

/// Objects whose ranges are stated again at the same time.
const RESTATED_AT_ONCE: usize = 1024;

impl RangeLocks {
    /// An OST has forgotten this client: others may have what it held. What was not sent under the old locks must
    /// not be written over what others wrote since: it is lost, and the files say so.
    pub(crate) fn ranges_lost(self: &Arc<Self>, target: DataTarget) {
        for object in self.drop_ranges(target) {
            let pages = self.pages.clone();
            self.rt.spawn(async move { pages.drop_lost_pages(&object).await });
        }
    }

    /// The same, but for the kernel's pages: gives the objects whose pages have to be dropped
    /// ([`KernelPages::drop_lost_pages`]).
    pub(crate) fn drop_ranges(&self, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        self.table.forgotten();
        let mut objects = self.table.of(target);
        // What nothing was granted of, nobody has forgotten.
        objects.retain(|object| !object.knowledge.is_lacking());
        objects.iter().for_each(|object| self.drop_held(object));
        objects
    }

    fn drop_held(&self, object: &ObjectLocks) {
        let dirty = {
            let mut held = object.held.lock();
            let dirty = held.all().iter().any(|(_, _, write)| *write);
            held.lost();
            dirty
        };
        KernelPages::lose(object);
        self.users.forget_read(object.id, 0..u64::MAX);
        if dirty && let Some(user) = self.users.get() {
            user.discard(object.fid, object.id);
        }
        object.changed.notify_waiters();
    }

    /// What is held of an object is lost, and pages that the kernel has of it go.
    fn lose_object(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        self.drop_held(object);
        let (pages, object) = (self.pages.clone(), object.clone());
        self.rt.spawn(async move { pages.drop_lost_pages(&object).await });
    }

    /// States what is held again to a target that restarted: of many objects at the same time, because whatever else is stated,
    /// and the recovery of the target, waits for it.
    pub(crate) async fn restate_ranges(self: &Arc<Self>, target: DataTarget, restate: &Restate) {
        // What is being asked for may have been granted before the restart.
        self.table.forgotten();
        let objects = self.table.of(target);
        for some in objects.chunks(RESTATED_AT_ONCE) {
            let stating = some.iter().map(|object| self.restate_object(target, object, restate));
            self.targets.hub().together(stating.collect()).await;
        }
    }

    async fn restate_object(
        self: &Arc<Self>,
        target: DataTarget,
        object: &Arc<ObjectLocks>,
        restate: &Restate,
    ) {
        if object.knowledge.is_lacking() {
            return;
        }
        let ranges = object.held.lock().all();
        let mut tokens = Vec::with_capacity(ranges.len());
        let mut is_refused = false;
        for (start, end, write) in ranges {
            let asked = Enqueue { object: object.id, write, start, end, restate: true };
            match restate.call(asked).await {
                Ok(token) => tokens.push(token),
                Err(error) => {
                    tracing::warn!(%target, %error, "a lock that was held before a restart is not taken again");
                    is_refused = true;
                }
            }
        }
        if is_refused {
            // Others may have it, and what was not sent must not be written over what they write.
            self.table.forgotten();
            return self.lose_object(object);
        }
        // What the target had not made durable may be gone, and some of what was held may be held no more.
        self.table.forgotten();
        self.users.forget_read(object.id, 0..u64::MAX);
        object.held.lock().restated(&tokens);
        // What came in between under a range that is held no more.
        self.users.forget_read(object.id, 0..u64::MAX);
        object.changed.notify_waiters();
    }

    /// The file is gone, and nobody here has it open: what is held of its objects goes, and no OST is told. They forget what they
    /// granted together with the objects; until then they may call it back, which is answered like every callback for what is not
    /// held any more. So no file that comes and goes costs a message. Only the first layout of a file is looked for; what is held of
    /// others goes when there is no room for it.
    pub(crate) fn forget_dead(&self, fid: Fid) {
        // A file has written its first stripe before others, but for those that are written in the middle only.
        let Some(first) = self.table.find(ObjectId { layout: fid, stripe: 0 }) else { return };
        for place in first.layout.places() {
            let Some(object) = self.table.find(place.object) else { continue };
            {
                let mut held = object.held.lock();
                if !held.is_idle() {
                    continue;
                }
                held.lost();
            }
            self.users.forget_read(object.id, 0..u64::MAX);
            if object.id != first.id {
                self.table.forget_if_empty(&object);
            }
        }
        self.table.forget_if_empty(&first);
    }
}
