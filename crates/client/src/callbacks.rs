//! What targets call this client for.

use std::sync::{Arc, Weak};

use proto::wire::messages::{Done, LOCK_ALONE};
use proto::wire::{Reply, Request};
use proto::{Code, DataTarget, TargetId, TargetKind};
use rpc::{Callbacks, Restate};
use rt::BoxFuture;

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
                (TargetKind::Ost | TargetKind::Mdt, Request::RevokeRange(asked)) => {
                    Ok(Reply::RevokeRange(shared.locks().leaver.revoke_range(target, asked).await))
                }
                (TargetKind::Ost | TargetKind::Mdt, Request::Glimpse(asked)) => {
                    Ok(Reply::Glimpse(shared.names.data.glimpse(&asked)))
                }
                (TargetKind::Mdt, Request::RevokeBits(asked)) if asked.bits == 0 => {
                    shared.files.flocks.settle_closes(asked.fid).await;
                    Ok(Reply::RevokeBits(Done {}))
                }
                (TargetKind::Mdt, Request::RevokeBits(mut asked)) => {
                    if asked.bits & LOCK_ALONE != 0 {
                        shared.names.ahead.give_up(asked.fid).await;
                        asked.bits &= !LOCK_ALONE;
                    }
                    if asked.bits != 0 {
                        shared.names.meta.recalls.revoke_bits(asked).await;
                    }
                    Ok(Reply::RevokeBits(Done {}))
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
        if let Ok(target) = DataTarget::try_from(target) {
            shared.locks().ranges_lost(target);
        }
        if target.kind == TargetKind::Mdt {
            shared.names.ahead.lost();
            shared.names.meta.lost.bits_lost();
            if target == TargetId::mdt(0) {
                shared.names.data.budgets.lost();
            }
            let locked = shared.files.flocks.flocks_lost(target);
            shared.files.reopening.opens_lost(target, &locked);
        }
    }

    fn changes_lost(&self, target: TargetId) {
        let Some(shared) = self.shared.upgrade() else { return };
        match target.kind {
            TargetKind::Mdt => shared.names.ahead.losses.add(),
            TargetKind::Ost => shared.names.data.back.losses.add(),
            TargetKind::Mgs => {}
        }
    }

    fn restarted(self: Arc<Self>, target: TargetId, restate: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(shared) = self.shared.upgrade() else { return };
            // Its goodbye may have been heard before the restart: others may have been granted what it held.
            if shared.lease.is_closed() {
                return;
            }
            if let Ok(target) = DataTarget::try_from(target) {
                shared.locks().restate_ranges(target, &restate).await;
            }
            if target.kind == TargetKind::Mdt {
                shared.names.ahead.restate(&restate).await;
                // Before the opens are listed: from here on the MDT is asked for each open and told of each close, once it
                // answers again. Not before the directories above have been taken out: what is told ahead comes with bits.
                shared.names.meta.lost.drop_bits_but_opens();
                shared.files.reopening.restate_opens(&restate).await;
                let lost = shared.files.flocks.restate_flocks(&restate).await;
                shared.files.reopening.fence(&lost);
                shared.names.data.budgets.restate(&restate).await;
                shared.names.meta.lost.forget_lost_now(&restate).await;
                shared.names.sizes.tell_again();
            }
        })
    }

    fn disconnected(&self, _target: TargetId) {}

    fn reconnected(&self, _target: TargetId) {}
}
