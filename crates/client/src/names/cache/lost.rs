//! What was kept is lost with a session, or by a restart of the MDT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::Fid;
use proto::wire::messages::RestateNames;
use rpc::Restate;
use rt::Rt;
use rt::sync::{Semaphore, oneshot};
use rt::wait::poll_once;

use super::{Inodes, KernelCopies, Opens, Untold};
use crate::Forget;
use crate::order::{LOST_BITS, Mutex};
use crate::targets::Targets;

/// A file with what was kept of it, and what it has to wait for.
type Lost = (Fid, u32, Option<oneshot::Receiver<()>>);

/// Forgets what the MDT does not know any more.
pub(crate) struct LostBits {
    rt: Rt,
    targets: Arc<Targets>,
    inodes: Arc<Inodes>,
    kernel: Arc<KernelCopies>,
    opens: Arc<Opens>,
    /// What the kernel has to forget still.
    lost: Mutex<LOST_BITS, Vec<Lost>>,
    /// Held by whoever has that forgotten.
    forgetting: Semaphore,
    /// Restarts of the MDT over which the kernel kept names.
    restarts: AtomicU64,
}

impl LostBits {
    /// Nothing was lost yet.
    pub(super) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        inodes: Arc<Inodes>,
        kernel: Arc<KernelCopies>,
        opens: Arc<Opens>,
    ) -> LostBits {
        let (lost, forgetting) = (Mutex::default(), Semaphore::new(1));
        LostBits { rt, targets, inodes, kernel, opens, lost, forgetting, restarts: AtomicU64::new(0) }
    }

    /// The MDT knows nothing of what it granted: nothing may be kept any more.
    pub(crate) fn bits_lost(self: &Arc<Self>) {
        self.drop_bits();
        let this = self.clone();
        self.rt.spawn(async move { this.forget_lost().await });
    }

    /// The same, but for what the kernel keeps: [`LostBits::forget_lost`].
    pub(crate) fn drop_bits(&self) {
        self.drop_all_bits(true);
        self.opens.own.lost();
    }

    /// After a restart of the MDT nothing that it granted may be used any more here, nor a file that is open and not used. Those that are
    /// used go on: [`Opens::in_use`] says which the MDT has to know.
    pub(crate) fn drop_bits_but_opens(&self) {
        self.drop_all_bits(false);
        let untold = self.opens.own.untold(Untold::All).into_iter().map(|held| held.fid);
        // Those are known that change only; they wait with the others.
        let pending = untold.filter(|fid| self.targets.pending.changes_of(*fid) > 0).collect();
        self.opens.own.restarted(&pending);
    }

    /// What the kernel keeps goes, after [`LostBits::drop_bits_but_opens`]. Done when it keeps nothing any more, or the MDT knows that
    /// names may be used still: to forget one may take a lock that a change holds which the MDT has to answer first.
    pub(crate) async fn forget_lost_now(self: &Arc<Self>, restate: &Restate) {
        self.forget_lost_but_names().await;
        let mut names = Box::pin(self.forget_names());
        if poll_once(names.as_mut()).await.is_some() {
            return;
        }
        let number = self.restarts.fetch_add(1, Ordering::Relaxed) + 1;
        match restate.call(RestateNames { restart: number, kept: true }).await {
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the MDT does not take what the kernel keeps: that is forgotten first");
                return names.await;
            }
        }
        let this = self.clone();
        self.rt.spawn(async move {
            names.await;
            for mdt in this.targets.mdts() {
                if let Err(error) = mdt.call(RestateNames { restart: number, kept: false }).await {
                    tracing::debug!(%error, "the MDT does not know yet that the kernel has forgotten");
                }
            }
        });
    }

    fn drop_all_bits(&self, opens_too: bool) {
        let mut lost = self.lost.lock();
        for part in self.inodes.parts() {
            let mut part = part.lock();
            let mut filled = Some(part.close_gate());
            // Answers of before, which are still on their way to whoever asked, are not kept either.
            self.inodes.bury_all(&mut part);
            let fids: Vec<Fid> = part.inodes.keys().copied().collect();
            for fid in fids {
                let bits = part.change(fid, |inode| {
                    let bits = inode.held().bits;
                    inode.revoke(u32::MAX, u64::MAX);
                    inode.names.forget_all();
                    inode.stamp = self.inodes.new_stamp();
                    if opens_too || inode.open.is_some_and(|open| open.users == 0) {
                        inode.open = None;
                    }
                    bits
                });
                lost.push((fid, bits.unwrap_or_default(), filled.take()));
            }
        }
    }

    /// What the kernel keeps goes, after [`LostBits::drop_bits`]. Done when it keeps nothing any more.
    pub(crate) async fn forget_lost(self: &Arc<Self>) {
        self.forget_lost_but_names().await;
        self.forget_names().await;
    }

    /// Has the kernel forget all names.
    fn forget_names(&self) -> impl Future<Output = ()> + Send + use<> {
        let copies = self.kernel.copies.clone();
        async move { copies.forget(vec![Forget::Names]).await }
    }

    /// Has the kernel forget the attributes of what was lost. Whoever waits may be given up: it is done all the same, and who comes next
    /// waits for it.
    async fn forget_lost_but_names(self: &Arc<Self>) {
        let (done, wait) = oneshot::channel::<()>();
        let this = self.clone();
        self.rt.spawn(async move {
            let _turn = this.forgetting.acquire().await;
            let lost = std::mem::take(&mut *this.lost.lock());
            let mut forget = Vec::new();
            for (fid, bits, filled) in lost {
                if let Some(filled) = filled {
                    let _ = filled.await;
                }
                if bits != 0 {
                    forget.push(Forget::Attributes(fid));
                }
            }
            this.kernel.copies.forget(forget).await;
            drop(done);
        });
        let _ = wait.await;
    }
}
