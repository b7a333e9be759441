//! Frames that answer requests.

use bytes::Bytes;
use proto::limits::{BODY_BYTES_MAX, BULK_BYTES_MAX};
use proto::wire::Header;
use proto::wire::header::{FLAG_REPLY, FLAG_UNCHECKED, FLAG_UNDER_WAY};
use proto::{Code, JobId, Transno};
use rt::Frame;

use crate::frame;
use crate::service::{Answer, Call};

/// Tells a client that asks again that its request is being carried out.
pub(super) fn under_way(mut header: Header, more: u16) -> Frame {
    header.flags = FLAG_REPLY | FLAG_UNDER_WAY | more;
    header.transno = Transno(0);
    header.job = JobId::NONE;
    frame::encode(header, &[])
}

/// An answer that the target was not asked for.
pub(super) fn refusal(mut header: Header, code: Code) -> Frame {
    header.flags = FLAG_REPLY;
    header.transno = Transno(0);
    header.job = JobId::NONE;
    let (header, body, _) = put_answer(header, Answer::refuse(code));
    frame::encode(header, &body)
}

/// The header of the reply to `call`, still without what the answer says.
pub(super) fn reply_header(call: &Call) -> Header {
    Header {
        flags: FLAG_REPLY | if call.unchecked { FLAG_UNCHECKED } else { 0 },
        session: call.session,
        session_epoch: call.session_epoch,
        ..frame::header(call.request.opcode(), call.target, call.xid)
    }
}

pub(super) fn put_answer(mut header: Header, answer: Answer) -> (Header, Vec<u8>, Vec<Bytes>) {
    let Answer { result, mut bulk, transno, last_committed, room } = answer;
    header.transno = transno;
    header.last_committed = last_committed;
    header.room = room;
    let mut body = Vec::with_capacity(256);
    let mut refusal = result.as_ref().err().copied();
    if let Ok(reply) = &result {
        reply.put_body(&mut body);
        let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
        if reply.opcode() != header.opcode || body.len() > BODY_BYTES_MAX || bulk_bytes > BULK_BYTES_MAX {
            tracing::error!(target = %header.target, opcode = header.opcode, "an answer that cannot be sent");
            refusal = Some(Code::TooBig);
        }
    }
    if let Some(code) = refusal {
        header.status = code.to_u32();
        body.clear();
        bulk.clear();
    }
    (header, body, bulk)
}
