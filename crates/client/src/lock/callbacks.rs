//! What targets call this client for.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use proto::wire::messages::{Enqueue, Glimpse, Glimpsed};
use proto::wire::{Reply, Request};
use proto::{Code, DataTarget, OstIndex, TargetId, TargetKind};
use rpc::{Callbacks, Restate};
use rt::BoxFuture;

use super::tokens::ObjectLocks;
use crate::{Error, Shared};

/// The end of a client that targets call.
pub(crate) struct CalledBack {
    shared: Weak<Shared>,
}

impl CalledBack {
    pub(crate) fn new(shared: &Arc<Shared>) -> Arc<CalledBack> {
        Arc::new(CalledBack { shared: Arc::downgrade(shared) })
    }
}

impl Callbacks for CalledBack {
    fn called(
        self: Arc<Self>,
        target: TargetId,
        request: Request,
    ) -> BoxFuture<'static, Result<Reply, Code>> {
        Box::pin(async move {
            let shared = self.shared.upgrade().ok_or(Code::NoSession)?;
            match (target.kind, request) {
                (TargetKind::Ost, Request::RevokeRange(asked)) => {
                    Ok(Reply::RevokeRange(shared.revoke_range(asked).await))
                }
                (TargetKind::Ost, Request::Glimpse(asked)) => Ok(Reply::Glimpse(shared.glimpse(&asked))),
                (TargetKind::Mdt, Request::RevokeBits(asked)) if asked.bits == 0 => {
                    shared.settle_closes(asked.fid).await;
                    Ok(Reply::RevokeBits(proto::wire::messages::Done {}))
                }
                (TargetKind::Mdt, Request::RevokeBits(asked)) => {
                    shared.revoke_bits(asked).await;
                    Ok(Reply::RevokeBits(proto::wire::messages::Done {}))
                }
                (_, Request::Drain(_)) => match shared.drain().await {
                    Ok(done) => Ok(Reply::Drain(done)),
                    Err(Error::Refused(code)) => Err(code),
                    Err(_) => Err(Code::Io),
                },
                _ => Err(Code::NotSupported),
            }
        })
    }

    fn session_lost(&self, target: TargetId) {
        let Some(shared) = self.shared.upgrade() else { return };
        match target.kind {
            TargetKind::Ost => shared.ranges_lost(OstIndex(target.index).into()),
            TargetKind::Mdt => {
                shared.bits_lost();
                shared.flocks_lost();
            }
            TargetKind::Mgs => {}
        }
    }

    fn restarted(self: Arc<Self>, target: TargetId, restate: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(shared) = self.shared.upgrade() else { return };
            // Its goodbye may have been heard before the restart: others may have been granted what it held.
            if shared.closed.load(Ordering::Acquire) {
                return;
            }
            match target.kind {
                TargetKind::Ost => shared.restate_ranges(OstIndex(target.index).into(), &restate).await,
                TargetKind::Mdt => {
                    shared.restate_opens(&restate).await;
                    shared.restate_flocks(&restate).await;
                    shared.bits_lost_now().await;
                }
                TargetKind::Mgs => {}
            }
        })
    }

    fn disconnected(&self, _target: TargetId) {}

    fn reconnected(&self, _target: TargetId) {}
}

impl Shared {
    /// What this client has written to an object and not sent yet.
    fn glimpse(self: &Arc<Self>, asked: &Glimpse) -> Glimpsed {
        let nothing = Glimpsed { size: 0, time: proto::Timestamp::default() };
        let Some(object) = self.locks.find(asked.object) else { return nothing };
        let Some(file) = self.files.find(object.fid) else { return nothing };
        let inner = file.inner.lock();
        let size = inner.cache.object_end(asked.object);
        let time = inner.cache.newest_time().filter(|_| size > 0).unwrap_or_default();
        Glimpsed { size, time }
    }

    /// An OST has forgotten this client: others may have what it held. What was not sent under the old locks must
    /// not be written over what others wrote since: it is lost, and the files say so.
    fn ranges_lost(self: &Arc<Self>, target: DataTarget) {
        for object in self.drop_ranges(target) {
            let shared = self.clone();
            self.rt.spawn(async move { shared.drop_lost_pages(&object).await });
        }
    }

    /// The same, but for the kernel's pages: gives the objects whose pages have to be dropped
    /// ([`Shared::drop_lost_pages`]).
    pub(crate) fn drop_ranges(self: &Arc<Self>, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        self.locks.forgotten();
        let objects = self.locks.of(target);
        for object in &objects {
            let dirty = {
                let mut held = object.held.lock();
                let dirty = held.all().iter().any(|(_, _, write)| *write);
                held.lost();
                dirty
            };
            Shared::lose(object);
            self.clean.drop_range(object.id, 0, u64::MAX);
            if dirty {
                self.discard(object);
            }
            object.changed.notify_waiters();
        }
        objects
    }

    /// Drops what a file has for an object and did not send.
    fn discard(self: &Arc<Self>, object: &ObjectLocks) {
        let Some(file) = self.files.find(object.fid) else { return };
        let refund = {
            let mut inner = file.inner.lock();
            if inner.cache.object_end(object.id) == 0 {
                return;
            }
            let refund = inner.cache.lose(object.id);
            inner.fail(Error::Refused(Code::Evicted));
            if inner.cache.is_empty() && inner.listed {
                inner.listed = false;
                self.keeper.clean(file.fid);
            }
            refund
        };
        let bytes: u64 = refund.iter().map(|(_, bytes)| bytes).sum();
        tracing::error!(
            fid = %object.fid, stripe = object.id.stripe, bytes,
            "an OST has given this client up: data that was not written yet is lost, and fsync or close of the file \
             says so"
        );
        self.refund(refund);
    }

    /// States what is held again to an OST that restarted.
    async fn restate_ranges(self: &Arc<Self>, target: DataTarget, restate: &Restate) {
        for object in self.locks.of(target) {
            let ranges = object.held.lock().all();
            let mut tokens = Vec::with_capacity(ranges.len());
            for (start, end, write) in ranges {
                let asked = Enqueue { object: object.id, write, start, end, restate: true };
                match restate.call(asked).await {
                    Ok(token) => tokens.push(token),
                    Err(error) => {
                        tracing::warn!(%target, %error, "a lock that was held before a restart is not taken again");
                    }
                }
            }
            // What the OST had not made durable may be gone, and some of what was held may be held no more.
            self.locks.forgotten();
            self.clean.drop_range(object.id, 0, u64::MAX);
            object.held.lock().restated(&tokens);
            object.changed.notify_waiters();
        }
    }
}
