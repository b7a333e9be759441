//! Access: whether a caller may do something.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, Access};
use service::Done;

use crate::mdt::{Ctx, Mdt, Outcome, access};

pub(in crate::mdt) fn access(mdt: &Mdt, ctx: &Ctx, request: &Access) -> Outcome {
    if request.mask & !(ACCESS_EXECUTE | ACCESS_READ | ACCESS_WRITE) != 0 {
        return Err(Code::Invalid.into());
    }
    access::may(&request.cred, &mdt.names.inode(ctx, request.fid)?, request.mask)?;
    Ok(Done::unchanged(Reply::Access(msg::Done {})))
}
