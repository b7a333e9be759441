//! SealLayout: nobody uses the objects of a layout any more, because the data of its file is being moved.
//!
//! Who seals has copied the data while it held all of every object: so nobody else can have changed anything since. A seal
//! lasts until the MDT has the objects destroyed, or until somebody who made sure that the MDT will not take the new layout
//! ([`msg::SwapLayouts`]) takes it away. Rules: `docs/locks.md#layouts`.

use proto::limits::STRIPES_MAX;
use proto::lock::range::{Holder, Range};
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

    /// Takes a range back that was granted of an object that is sealed or destroyed: who waited for it holds a layout that is
    /// not in force any more.
    pub(super) fn granted_in_force(
        &self,
        holder: Holder,
        object: ObjectId,
        token: &msg::Token,
    ) -> Result<(), Code> {
        let refused = match self.objects.is_sealed(object.layout) {
            Ok(false) => return Ok(()),
            Ok(true) if !self.seals => return Ok(()),
            Ok(true) => Code::Sealed,
            Err(error) => code_of(&error),
        };
        self.locks.take_back(holder, object, token);
        Err(refused)
    }
}
