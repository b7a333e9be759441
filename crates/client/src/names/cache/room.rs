//! Room for what comes: what is not used is given up.

use std::sync::Arc;

use proto::Fid;
use proto::wire::messages::{BitLock, CancelBits, LOCK_ALL};
use rt::Rt;
use rt::wait::join_all;

use super::answer::MakesRoom;
use super::{Inodes, KernelCopies, Opens, Untold};
use crate::targets::Targets;

/// Files whose bits one request gives back.
const CANCELLED_MAX: usize = 1024;

/// Gives up what is kept of files.
pub(crate) struct Room {
    rt: Rt,
    targets: Arc<Targets>,
    inodes: Arc<Inodes>,
    kernel: Arc<KernelCopies>,
    opens: Arc<Opens>,
}

impl MakesRoom for Room {
    fn leave(self: Arc<Self>, fids: Vec<Fid>) {
        let room = self.clone();
        self.rt.spawn(async move {
            let leaving = fids.into_iter().map(|fid| {
                let room = room.clone();
                async move {
                    let lock = room.give_up_inode(fid).await;
                    room.inodes.has_left(fid);
                    lock
                }
            });
            let locks = join_all(leaving).await;
            room.cancel_bits(locks.into_iter().flatten().collect()).await;
        });
    }
}

impl Room {
    /// Nothing is given up yet.
    pub(super) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        inodes: Arc<Inodes>,
        kernel: Arc<KernelCopies>,
        opens: Arc<Opens>,
    ) -> Room {
        Room { rt, targets, inodes, kernel, opens }
    }

    /// Gives up everything of every file.
    pub(crate) async fn give_up_inodes(self: &Arc<Self>) {
        let fids = self.inodes.held().into_iter().map(|(fid, _)| fid).collect();
        self.give_up_these(fids).await;
    }

    /// Gives up everything of those files that are too many.
    pub(crate) async fn give_up_excess(self: &Arc<Self>) {
        let fids = self.inodes.all_excess();
        self.give_up_these(fids).await;
    }

    /// The same, in the background, if there are too many: some were in use when more came.
    pub(crate) fn give_up_if_too_many(self: &Arc<Self>) {
        let max = self.inodes.keep().count_max;
        if max > 0 && self.inodes.count() > max {
            let room = self.clone();
            self.rt.spawn(async move { room.give_up_excess().await });
        }
    }

    async fn give_up_these(self: &Arc<Self>, fids: Vec<Fid>) {
        let mut locks = Vec::new();
        for fid in fids {
            locks.extend(self.give_up_inode(fid).await);
            self.inodes.part(fid).forget_evicted(fid);
            if locks.len() == CANCELLED_MAX {
                self.cancel_bits(std::mem::take(&mut locks)).await;
            }
        }
        self.cancel_bits(locks).await;
    }

    /// Drops everything of a file; what the MDT is to be told.
    async fn give_up_inode(self: &Arc<Self>, fid: Fid) -> Option<BitLock> {
        let (held, unused, filled) = self.inodes.give_up(fid)?;
        let _ = filled.await;
        self.kernel.forget_kept(fid, held.bits).await;
        self.opens.state_opens(Untold::Of(fid)).await;
        if let Some(open) = unused {
            self.opens.close_kept(fid, open).await;
        }
        // Nothing is left of the file: what the MDT may have granted besides, and not told, goes too.
        (held.bits != 0).then_some(BitLock { fid, bits: LOCK_ALL, number: held.number })
    }

    async fn cancel_bits(&self, locks: Vec<BitLock>) {
        for (mdt, locks) in self.targets.by_mdt(locks, |lock| lock.fid) {
            if let Err(error) = mdt.call(CancelBits { locks }).await {
                tracing::debug!(%error, "the MDT did not take a lock back");
            }
        }
    }
}
