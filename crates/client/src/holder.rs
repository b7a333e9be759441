//! What the lease of a client is for: all that it holds ([`Holder`]).

use std::time::Duration;

use proto::{MdtIndex, OstIndex, TargetId, TargetKind};
use rt::BoxFuture;
use rt::wait::join_all;

use crate::lease::Holder;
use crate::{Forget, Shared};

impl Holder for Shared {
    fn holds_something(&self) -> bool {
        !self.files.handles.is_empty()
            || self.names.data.back.dirty.has_dirty()
            || self.locks().table.holds_any()
            || self.names.meta.inodes.holds_any()
            || self.resting.has_busy_session()
    }

    fn age_max(&self) -> Duration {
        self.names.meta.inodes.keep().age_max
    }

    fn give_back_unused(&self) -> BoxFuture<'static, ()> {
        let names = self.names.clone();
        Box::pin(async move {
            names.data.locks.leaver.leave_all();
            names.meta.room.give_up_inodes().await;
        })
    }

    fn rest_unused(&self) {
        self.resting.rest_unused();
        self.names.meta.room.give_up_if_too_many();
    }

    fn rest_all(&self) {
        self.resting.rest_all();
    }

    fn forget_everything(&self) -> BoxFuture<'static, ()> {
        let (names, copies) = (self.names.clone(), self.copies.clone());
        Box::pin(async move {
            let mut forget = vec![Forget::Names];
            for (fid, filled) in names.meta.kernel.kept_by_kernel() {
                match filled {
                    // It ends when the answers have arrived that were made before.
                    Some(filled) => drop(filled.await),
                    None => forget.push(Forget::Attributes(fid)),
                }
            }
            copies.forget(forget).await;
            names.data.locks.pages.forget_pages_of_all().await;
        })
    }

    fn drop_held(&self, target: TargetId) -> BoxFuture<'static, ()> {
        match target.kind {
            TargetKind::Ost => {
                let locks = self.locks().clone();
                let objects = locks.drop_ranges(OstIndex(target.index).into());
                Box::pin(async move {
                    join_all(objects.iter().map(|object| locks.pages.drop_lost_pages(object))).await;
                })
            }
            TargetKind::Mdt => {
                let locks = self.locks().clone();
                let objects = locks.drop_ranges(MdtIndex(target.index).into());
                self.files.reopening.fence(&self.files.flocks.flocks_lost(target));
                self.names.ahead.lost();
                let meta = self.names.meta.clone();
                meta.lost.drop_bits();
                Box::pin(async move {
                    join_all(objects.iter().map(|object| locks.pages.drop_lost_pages(object))).await;
                    meta.lost.forget_lost().await;
                })
            }
            TargetKind::Mgs => Box::pin(std::future::ready(())),
        }
    }
}
