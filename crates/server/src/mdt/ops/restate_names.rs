//! RestateNames: a kernel may use names that it was told before the MDT restarted, or uses none any more.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, RestateNames};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome};

/// That there are some is taken before anybody else is served; that there are none any more, at any time.
pub(in crate::mdt) fn restate_names(mdt: &Mdt, ctx: &Ctx, request: &RestateNames) -> Outcome {
    if request.kept && !mdt.takes_restatements(ctx) {
        return Err(Code::Invalid.into());
    }
    mdt.grants.bits.old_names(ctx.session().handle(), request);
    Ok(Done::unchanged(Reply::RestateNames(msg::Done {})))
}
