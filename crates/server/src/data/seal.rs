//! SealLayout: nobody uses the objects of a layout any more, because the data of its file is being moved.
//!
//! Who seals has copied the data while it held all of every object: so nobody else can have changed anything since. A seal
//! lasts until the MDT has the objects destroyed, or until somebody who made sure that the MDT will not take the new layout
//! ([`msg::SwapLayouts`]) takes it away. Rules: `docs/locks.md#layouts`.

use proto::limits::STRIPES_MAX;
use proto::lock::range::Range;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Code, ObjectId};
use service::{Ctx, Done, code_of};
use store::object::Sealing;

use super::{Data, check_id, holder, record};

impl Data {
    pub(super) async fn seal<S>(&self, ctx: &Ctx<S>, seal: &msg::SealLayout) -> Result<Done, Code> {
        if seal.stripes.len() > STRIPES_MAX {
            return Err(Code::TooBig);
        }
        let object = |stripe: &u32| ObjectId { layout: seal.layout, stripe: *stripe };
        check_id(object(&0))?;
        let extra = record(ctx, |_| Reply::SealLayout(msg::Done {}));
        let sealing = if seal.sealed {
            let all = Range { start: 0, end: u64::MAX };
            let held = |stripe: &u32| self.locks.holds(holder(ctx), object(stripe), all);
            let may = || !seal.stripes.is_empty() && seal.stripes.iter().all(held);
            self.objects.seal(seal.layout, seal.generation, may, extra)
        } else {
            self.objects.unseal(seal.layout, seal.generation, extra)
        };
        match sealing.map_err(|error| code_of(&error))? {
            Sealing::Done(transno) => {
                self.store.committed(transno).await.map_err(|error| code_of(&error))?;
                Ok(Done::changed(Reply::SealLayout(msg::Done {}), transno))
            }
            Sealing::Refused => Err(Code::Busy),
        }
    }

    /// Refuses what comes for a sealed object, or for a lost one. What is replayed was carried out before.
    pub(super) fn in_force<S>(&self, ctx: &Ctx<S>, object: ObjectId) -> Result<(), Code> {
        self.lost.check(object)?;
        let sealed = self.seals && ctx.replay.is_none() && self.objects.is_sealed_now(object.layout);
        if sealed { Err(Code::Sealed) } else { Ok(()) }
    }

    /// Refuses ranges of an object that is sealed or destroyed: who asks for them holds a layout that is not in force any more. To be asked
    /// before a range is granted, and afterwards. What was granted in between is not taken back: what the client held before is part of it
    /// by then, which it goes on using when the seal is broken. It answers callbacks for what it does not know that it holds.
    pub(super) fn may_be_granted(&self, object: ObjectId) -> Result<(), Code> {
        match self.objects.is_sealed(object.layout) {
            Ok(true) if self.seals => Err(Code::Sealed),
            Ok(_) => Ok(()),
            Err(error) => {
                let code = code_of(&error);
                if code == Code::Gone {
                    self.locks.forget(&[object]);
                }
                Err(code)
            }
        }
    }
}
