//! What was kept is called back, or lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::Fid;
use proto::wire::messages::{
    BitLock, CancelBits, Close, LOCK_ALL, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR,
    RestateNames, RevokeBits,
};
use rpc::Restate;
use rt::sync::oneshot;
use rt::wait::{join_all, poll_once};

use super::inode::Inode;
use super::{MetadataCache, OpenKept};
use crate::Forget;
use crate::order::{LEAF, Mutex};

/// Files whose bits one request gives back.
const CANCELLED_MAX: usize = 1024;

/// Callbacks that are being worked on, in the order in which they came, and what each waits for.
#[derive(Default)]
pub(crate) struct Recalls {
    next: u64,
    under_way: BTreeMap<u64, (RevokeBits, Stage)>,
}

/// What a callback waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Answers of before have to reach the kernel.
    Filling,
    /// The kernel has to forget.
    Forgetting,
    /// The MDT has to know of what is open here.
    Opening,
    /// The MDT has to close what was kept open.
    Closing,
}

impl Recalls {
    /// A line for each.
    pub(crate) fn waits(&self) -> Vec<String> {
        self.under_way.values().map(|(asked, stage)| format!("{asked:?} is at {stage:?}")).collect()
    }
}

/// A callback that is being worked on.
struct Recall<'a> {
    recalls: &'a Mutex<LEAF, Recalls>,
    number: u64,
}

impl<'a> Recall<'a> {
    fn new(recalls: &'a Mutex<LEAF, Recalls>, asked: &RevokeBits) -> Recall<'a> {
        let mut inner = recalls.lock();
        inner.next += 1;
        let number = inner.next;
        inner.under_way.insert(number, (asked.clone(), Stage::Filling));
        Recall { recalls, number }
    }

    fn is_at(&self, stage: Stage) {
        if let Some((_, at)) = self.recalls.lock().under_way.get_mut(&self.number) {
            *at = stage;
        }
    }
}

impl Drop for Recall<'_> {
    fn drop(&mut self) {
        self.recalls.lock().under_way.remove(&self.number);
    }
}

/// A file with what was kept of it, and what it has to wait for.
pub(crate) type Lost = (Fid, u32, Option<oneshot::Receiver<()>>);

impl MetadataCache {
    /// The MDT wants bits back: nothing of them is used any more when this is done.
    pub(crate) async fn revoke_bits(self: &Arc<Self>, asked: RevokeBits) {
        let recall = Recall::new(&self.recalls, &asked);
        let RevokeBits { fid, bits, number } = asked;
        self.bits_called_back.fetch_add(1, Ordering::Relaxed);
        let (gone, left, name, unused, filled) = {
            let mut part = self.inodes.part(fid);
            let taken = part.change(fid, |inode| {
                let gone = inode.revoke(bits, number);
                let names_too = gone & LOCK_LOOKUP != 0;
                let name = names_too.then(|| inode.take_names(self.inodes.new_stamp())).flatten();
                (gone, inode.held().bits, name, inode.unused_open())
            });
            let (gone, left, name, unused) = taken.unwrap_or_default();
            self.inodes.bury(&mut part, fid, bits, number);
            (gone, left, name, unused, part.close_gate())
        };
        self.inodes.drop_name(fid, name);
        // It ends when the last answer has arrived that was made before.
        let _ = filled.await;
        recall.is_at(Stage::Forgetting);
        // What the client has not by now it may have had: another callback may just be having the kernel forget it, or a change of this
        // client's own, an exchange of names perhaps, may have had it drop the bit and not the kernel the name.
        self.forget_kept(fid, gone | bits).await;
        // Whoever takes the last name away calls back whatever is left.
        if left == 0 {
            recall.is_at(Stage::Opening);
            self.state_opens(Some(fid)).await;
        }
        if let Some(open) = unused {
            recall.is_at(Stage::Closing);
            self.close_kept(fid, open).await;
        }
        self.forget_bare(fid);
    }

    /// Has the kernel forget what was kept under `bits`.
    async fn forget_kept(&self, fid: Fid, bits: u32) {
        let mut forget = Vec::new();
        // Nobody is ever let keep that a name is not there. The kernel asks for a name anew that it has forgotten, and not for an owner: chmod(2),
        // utimensat(2) and sticky directories go by the one that came with the name.
        if bits & (LOCK_LOOKUP | LOCK_PERM) != 0 {
            forget.push(Forget::NamesOf(fid));
        }
        if bits & (LOCK_PERM | LOCK_UPDATE | LOCK_LAYOUT | LOCK_XATTR) != 0 {
            forget.push(Forget::Attributes(fid));
        }
        if !forget.is_empty() {
            self.copies.forget(forget).await;
        }
    }

    async fn close_kept(self: &Arc<Self>, fid: Fid, open: OpenKept) {
        self.send_close(Close { fid, handle: open.handle, atime: None, size: None, wrote: false }).await;
    }

    fn forget_bare(&self, fid: Fid) {
        let bare = self
            .inodes
            .part(fid)
            .inodes
            .get(&fid)
            .is_some_and(|inode| inode.is_bare() && !inode.has_names() && inode.target.is_none());
        if bare {
            self.inodes.remove(fid);
        }
    }

    /// The last name of a file is gone by a change of this client: the MDT has forgotten what it granted of the file, and
    /// calls nothing back any more. It is not kept open for nothing, either.
    pub(crate) fn forget_nameless(self: &Arc<Self>, fid: Fid) {
        let unused = {
            let mut part = self.inodes.part(fid);
            // What answers bring that are on their way, it has forgotten too.
            self.inodes.bury(&mut part, fid, LOCK_ALL, u64::MAX);
            part.change(fid, |inode| {
                inode.stamp = self.inodes.new_stamp();
                inode.revoke_all()
            })
        };
        self.forget_bare(fid);
        if let Some(open) = unused.flatten() {
            let meta = self.clone();
            self.rt.run_in_place(async move { meta.close_kept(fid, open).await });
        }
    }

    /// Gives up what was not used lately, if there is too much.
    pub(super) fn make_room(self: &Arc<Self>) {
        let fids = self.inodes.take_leavers();
        if fids.is_empty() {
            return;
        }
        let meta = self.clone();
        self.rt.spawn(async move {
            let leaving = fids.into_iter().map(|fid| {
                let meta = meta.clone();
                async move {
                    let lock = meta.give_up_inode(fid).await;
                    meta.inodes.has_left(fid);
                    lock
                }
            });
            let locks = join_all(leaving).await;
            meta.cancel_bits(locks.into_iter().flatten().collect()).await;
        });
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
            let meta = self.clone();
            self.rt.spawn(async move { meta.give_up_excess().await });
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
        self.forget_kept(fid, held.bits).await;
        self.state_opens(Some(fid)).await;
        if let Some(open) = unused {
            self.close_kept(fid, open).await;
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

    /// The MDT knows nothing of what it granted: nothing may be kept any more.
    pub(crate) fn bits_lost(self: &Arc<Self>) {
        self.drop_bits();
        let meta = self.clone();
        self.rt.spawn(async move { meta.forget_lost().await });
    }

    /// The same, but for what the kernel keeps: [`MetadataCache::forget_lost`].
    pub(crate) fn drop_bits(&self) {
        self.drop_all_bits(true);
        self.own_opens.lost();
    }

    /// Files of which the kernel may keep something, and what has to arrive before it can forget.
    pub(crate) fn kept_by_kernel(&self) -> Vec<(Fid, Option<oneshot::Receiver<()>>)> {
        let mut kept = Vec::new();
        for part in self.inodes.parts() {
            let mut part = part.lock();
            kept.push((Fid::ZERO, Some(part.close_gate())));
            let held = part.inodes.iter().filter(|(_, inode)| inode.held().bits != 0);
            kept.extend(held.map(|(fid, _)| (*fid, None)));
        }
        kept
    }

    /// After a restart of the MDT nothing that it granted may be used any more here, nor a file that is open and not used. Those that are
    /// used go on: [`MetadataCache::opens_in_use`] says which the MDT has to know.
    pub(crate) fn drop_bits_but_opens(&self) {
        self.drop_all_bits(false);
        self.own_opens.all_told();
    }

    /// Files that are kept open and that handles of here use, with the MDT's names for the opens. A handle that was given out just now
    /// may not be in the list of handles yet.
    pub(crate) fn opens_in_use(&self) -> Vec<(Fid, u64)> {
        let mut opens = self.own_opens.all();
        for part in self.inodes.parts() {
            let part = part.lock();
            let used = |inode: &Inode| inode.open.filter(|open| open.users > 0).map(|open| open.handle);
            opens.extend(part.inodes.iter().filter_map(|(fid, inode)| Some((*fid, used(inode)?))));
        }
        opens
    }

    /// What the kernel keeps goes, after [`MetadataCache::drop_bits_but_opens`]. Done when it keeps nothing any more, or the MDT knows that
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
        let meta = self.clone();
        self.rt.spawn(async move {
            names.await;
            for mdt in meta.targets.mdts() {
                if let Err(error) = mdt.call(RestateNames { restart: number, kept: false }).await {
                    tracing::debug!(%error, "the MDT does not know yet that the kernel has forgotten");
                }
            }
        });
    }

    fn drop_all_bits(&self, opens_too: bool) {
        let mut lost = self.lost_bits.lock();
        for part in self.inodes.parts() {
            let mut part = part.lock();
            let mut filled = Some(part.close_gate());
            let fids: Vec<Fid> = part.inodes.keys().copied().collect();
            for fid in fids {
                // Answers of before, which are still on their way to whoever asked, are not kept either.
                self.inodes.bury(&mut part, fid, u32::MAX, u64::MAX);
                let bits = part.change(fid, |inode| {
                    let bits = inode.held().bits;
                    inode.revoke(u32::MAX, u64::MAX);
                    inode.forget_names();
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

    pub(crate) async fn forget_lost(self: &Arc<Self>) {
        self.forget_lost_but_names().await;
        self.forget_names().await;
    }

    /// Has the kernel forget all names.
    fn forget_names(&self) -> impl Future<Output = ()> + Send + use<> {
        let copies = self.copies.clone();
        async move { copies.forget(vec![Forget::Names]).await }
    }

    /// Has the kernel forget the attributes of what was lost. Whoever waits may be given up: it is done all the same, and who comes next
    /// waits for it.
    async fn forget_lost_but_names(self: &Arc<Self>) {
        let (done, wait) = oneshot::channel::<()>();
        let meta = self.clone();
        self.rt.spawn(async move {
            let _turn = meta.forgetting.acquire().await;
            let lost = std::mem::take(&mut *meta.lost_bits.lock());
            let mut forget = Vec::new();
            for (fid, bits, filled) in lost {
                if let Some(filled) = filled {
                    let _ = filled.await;
                }
                if bits != 0 {
                    forget.push(Forget::Attributes(fid));
                }
            }
            meta.copies.forget(forget).await;
            drop(done);
        });
        let _ = wait.await;
    }
}
