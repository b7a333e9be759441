//! CancelBits: a client gives up what nobody has asked back.

use proto::wire::Reply;
use proto::wire::messages::{self as msg, CancelBits};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome};

impl Mdt {
    pub(in crate::mdt) fn cancel_bits(&self, ctx: &Ctx, request: &CancelBits) -> Outcome {
        let session = ctx.session().handle();
        request.locks.iter().for_each(|lock| self.bits.cancelled(session, lock));
        Ok(Done::unchanged(Reply::CancelBits(msg::Done {})))
    }
}
