//! Objects of files that nobody else can know of (`docs/locks.md#alone`): they are written to before their OST is asked.
//!
//! The range counts as held without a grant. The OST is asked for it before anything is sent to it, and before others may know of the file. So
//! whatever is sent is sent under a lock of the OST, as ever. When the client may have been given up in between, the data is lost: others may
//! have been there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use proto::wire::messages::{Enqueue, Token};
use proto::{Code, Fid, ObjectId, TargetId, mdt_of};

use super::held::{Pages, Want};
use super::table::ObjectLocks;
use super::{KernelPages, RangeLocks};
use crate::{Error, Result};

/// The number of what is held without a grant: targets grant with greater ones.
pub(super) const NOT_GRANTED: u64 = 0;
/// All of an object, to be changed.
const WHOLE: Want = Want { start: 0, end: u64::MAX, write: true, pages: Pages::No };

/// The OST knows what is held.
const KNOWN: u8 = 0;
/// It was not asked.
const UNASKED: u8 = 1;
/// It is being asked.
const ASKING: u8 = 2;

/// Whether the target of an object knows of what is held of it.
#[derive(Default)]
pub(super) struct Knowledge(AtomicU8);

impl Knowledge {
    /// Whether the target does not know yet.
    pub(super) fn is_lacking(&self) -> bool {
        self.0.load(Ordering::Acquire) != KNOWN
    }

    /// The target was asked by somebody who wanted a range.
    pub(super) fn was_asked(&self) {
        self.change(UNASKED, KNOWN);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Asks; if it does not come to an end somebody else does.
struct Asking<'a>(&'a ObjectLocks);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.0.knowledge.change(ASKING, UNASKED) {
            self.0.changed.notify_waiters();
        }
    }
}

impl RangeLocks {
    /// Holds all of an object without a question, if nobody else can know of its file.
    pub(super) fn hold_unknown(&self, object: &ObjectLocks) -> bool {
        let Some(user) = self.users.get() else { return false };
        let mut is_held = false;
        // Under the lock of whoever says that others may know of it: they look at the object afterwards.
        user.while_unknown(object.fid, &mut || {
            let mut held = object.held.lock();
            let is_only_one = object.layout.object_count() == 1;
            if is_only_one && held.is_empty() && object.knowledge.change(KNOWN, UNASKED) {
                held.brought((WHOLE.start, WHOLE.end), (true, NOT_GRANTED), None, 0);
                is_held = true;
            }
        });
        if is_held {
            object.changed.notify_waiters();
        }
        is_held
    }

    /// Has the OST know of what is held of an object: before something is sent to it.
    ///
    /// # Errors
    /// It does not grant it, or others may have been given the object meanwhile: what was written is lost.
    pub(crate) async fn make_known(self: &Arc<Self>, object: ObjectId) -> Result<()> {
        match self.table.find(object) {
            Some(object) if object.knowledge.is_lacking() => self.make_object_known(&object).await,
            _ => Ok(()),
        }
    }

    async fn make_object_known(self: &Arc<Self>, object: &Arc<ObjectLocks>) -> Result<()> {
        loop {
            let changed = object.changed.notified();
            if object.knowledge.change(UNASKED, ASKING) {
                break;
            }
            if !object.knowledge.is_lacking() {
                return Ok(());
            }
            changed.await;
        }
        let _asking = Asking(object);
        let granted = loop {
            let generation = self.table.generation();
            let granted = self.ask_for_all(object).await;
            // Without a lease the client may have been given up, by the MDT that keeps others from the file too, and learns of it before
            // it may use what it has of both.
            self.lease.until_may_use(object.target).await;
            self.lease.until_may_use(TargetId::mdt(mdt_of(object.fid))).await;
            if granted.is_err() || !object.knowledge.change(ASKING, KNOWN) {
                break granted.and(Err(Error::Refused(Code::Evicted)));
            }
            // Looked at when it would be stated again: an OST may have forgotten the grant before, and then does not know of it.
            if generation == self.table.generation() {
                object.changed.notify_waiters();
                return Ok(());
            }
            if !object.knowledge.change(KNOWN, ASKING) {
                break Err(Error::Refused(Code::Evicted));
            }
        };
        object.changed.notify_waiters();
        self.lose_unknown(object);
        granted
    }

    async fn ask_for_all(&self, object: &ObjectLocks) -> Result<()> {
        loop {
            let generation = self.table.generation();
            let ask = object.held.lock().ask(WHOLE);
            let asked = async {
                let target = self.targets.data(object.target).await?;
                let Want { start, end, write, .. } = WHOLE;
                target.call(Enqueue { object: object.id, write, start, end, restate: false }).await
            };
            let answered = asked.await.map(|answered| answered.reply);
            let mut held = object.held.lock();
            match answered {
                // An OST has forgotten what it granted, perhaps this.
                _ if generation != self.table.generation() => held.refused(ask, None),
                Ok(Token { start: 0, end: u64::MAX, write: true, number, contended: false }) => {
                    held.granted(ask, (WHOLE.start, WHOLE.end), true, number);
                    return Ok(());
                }
                answered => {
                    held.refused(ask, None);
                    return Err(answered.err().unwrap_or(Error::Refused(Code::Evicted)));
                }
            }
        }
    }

    /// Others may know of a file from now on; its user has said so before. What is held of its objects the OSTs know then.
    pub(crate) async fn open_up(self: &Arc<Self>, fid: Fid) {
        let Some(object) = self.unknown_of(fid) else { return };
        if object.held.lock().drop_unused() && object.knowledge.change(UNASKED, KNOWN) {
            return;
        }
        if let Err(error) = self.make_object_known(&object).await {
            tracing::warn!(%fid, %error, "an OST does not take what was written to a new file");
        }
    }

    /// Others may have been let in: what was written under no grant is lost. `is_known` hears of each file before.
    pub(crate) fn lose_all_unknown(self: &Arc<Self>, is_known: impl Fn(Fid)) {
        for object in self.table.all().iter().filter(|object| object.knowledge.is_lacking()) {
            is_known(object.fid);
            self.lose_unknown(object);
        }
    }

    fn lose_unknown(self: &Arc<Self>, object: &Arc<ObjectLocks>) {
        let was_lacking = object.knowledge.0.swap(KNOWN, Ordering::AcqRel) != KNOWN;
        if !was_lacking {
            return;
        }
        self.table.forgotten();
        object.held.lock().lost();
        KernelPages::lose(object);
        self.users.forget_read(object.id, 0..u64::MAX);
        if let Some(user) = self.users.get() {
            user.discard(object.fid, object.id);
        }
        object.changed.notify_waiters();
        let (pages, object) = (self.pages.clone(), object.clone());
        self.rt.spawn(async move { pages.drop_lost_pages(&object).await });
    }

    /// The object of a file, if its target knows nothing of what is held.
    fn unknown_of(&self, fid: Fid) -> Option<Arc<ObjectLocks>> {
        self.table.find(ObjectId { layout: fid, stripe: 0 }).filter(|object| object.knowledge.is_lacking())
    }
}
