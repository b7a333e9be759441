//! CancelBits: a client gives up what nobody has asked back.

use proto::wire::Reply;
use proto::wire::messages::{self as msg, CancelBits};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome};

pub(in crate::mdt) fn cancel_bits(mdt: &Mdt, ctx: &Ctx, request: &CancelBits) -> Outcome {
    let session = ctx.session().handle();
    request.locks.iter().for_each(|lock| mdt.grants.bits.cancelled(session, lock));
    Ok(Done::unchanged(Reply::CancelBits(msg::Done {})))
}
