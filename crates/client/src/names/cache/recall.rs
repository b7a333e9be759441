//! What was kept is called back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::Fid;
use proto::wire::messages::{LOCK_ALL, LOCK_LOOKUP, RevokeBits};
use rt::Rt;

use super::{Inodes, KernelCopies, Opens, Untold};
use crate::order::{LEAF, Mutex};

/// Callbacks that are being worked on, in the order in which they came, and what each waits for.
#[derive(Default)]
struct UnderWay {
    next: u64,
    callbacks: BTreeMap<u64, (RevokeBits, Stage)>,
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

impl UnderWay {
    /// A line for each.
    fn waits(&self) -> Vec<String> {
        self.callbacks.values().map(|(asked, stage)| format!("{asked:?} is at {stage:?}")).collect()
    }
}

/// A callback that is being worked on.
struct Recall<'a> {
    under_way: &'a Mutex<LEAF, UnderWay>,
    number: u64,
}

impl<'a> Recall<'a> {
    fn new(under_way: &'a Mutex<LEAF, UnderWay>, asked: &RevokeBits) -> Recall<'a> {
        let mut inner = under_way.lock();
        inner.next += 1;
        let number = inner.next;
        inner.callbacks.insert(number, (asked.clone(), Stage::Filling));
        Recall { under_way, number }
    }

    fn is_at(&self, stage: Stage) {
        if let Some((_, at)) = self.under_way.lock().callbacks.get_mut(&self.number) {
            *at = stage;
        }
    }
}

impl Drop for Recall<'_> {
    fn drop(&mut self) {
        self.under_way.lock().callbacks.remove(&self.number);
    }
}

/// Takes away what the MDT calls back.
pub(crate) struct Recalls {
    rt: Rt,
    inodes: Arc<Inodes>,
    kernel: Arc<KernelCopies>,
    opens: Arc<Opens>,
    under_way: Mutex<LEAF, UnderWay>,
    count: AtomicU64,
}

impl Recalls {
    /// Nothing was called back yet.
    pub(super) fn new(rt: Rt, inodes: Arc<Inodes>, kernel: Arc<KernelCopies>, opens: Arc<Opens>) -> Recalls {
        Recalls { rt, inodes, kernel, opens, under_way: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// How many callbacks came.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What callbacks that are being worked on wait for: a line for each.
    pub(crate) fn waits(&self) -> Vec<String> {
        self.under_way.lock().waits()
    }

    /// The MDT wants bits back: nothing of them is used any more when this is done.
    pub(crate) async fn revoke_bits(&self, asked: RevokeBits) {
        let recall = Recall::new(&self.under_way, &asked);
        let RevokeBits { fid, bits, number } = asked;
        self.count.fetch_add(1, Ordering::Relaxed);
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
        self.kernel.forget_kept(fid, gone | bits).await;
        // Whoever takes the last name away calls back whatever is left.
        if left == 0 {
            recall.is_at(Stage::Opening);
            self.opens.state_opens(Untold::Of(fid)).await;
        }
        if let Some(open) = unused {
            recall.is_at(Stage::Closing);
            self.opens.close_kept(fid, open).await;
        }
        self.inodes.remove_bare(fid);
    }

    /// The last name of a file is gone by a change of this client: the MDT has forgotten what it granted of the file, and
    /// calls nothing back any more. It is not kept open for nothing, either.
    pub(crate) fn forget_nameless(&self, fid: Fid) {
        let unused = {
            let mut part = self.inodes.part(fid);
            // What answers bring that are on their way, it has forgotten too.
            self.inodes.bury(&mut part, fid, LOCK_ALL, u64::MAX);
            part.change(fid, |inode| {
                inode.stamp = self.inodes.new_stamp();
                inode.revoke_all()
            })
        };
        self.inodes.remove_bare(fid);
        if let Some(open) = unused.flatten() {
            let opens = self.opens.clone();
            self.rt.run_in_place(async move { opens.close_kept(fid, open).await });
        }
    }
}
