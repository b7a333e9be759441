//! RestateAlone: a client has directories to itself in which there are changes that the MDT has not answered.

use proto::Code;
use proto::limits::ALONE_STATED_MAX;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, RestateAlone};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome};

/// Taken before anybody else is served: nobody can have looked at them since the restart.
pub(in crate::mdt) fn restate_alone(mdt: &Mdt, ctx: &Ctx, request: &RestateAlone) -> Outcome {
    if !mdt.takes_restatements(ctx) || request.dirs.len() > ALONE_STATED_MAX {
        return Err(Code::Invalid.into());
    }
    let session = ctx.session().handle();
    if request.dirs.iter().all(|dir| mdt.grants.bits.restate_alone(session, *dir)) {
        Ok(Done::unchanged(Reply::RestateAlone(msg::Done {})))
    } else {
        Err(Code::Invalid.into())
    }
}
