//! A request as a session keeps it.

use bytes::Bytes;

use crate::code::Code;
use crate::job::JobId;
use crate::limits::{BODY_BYTES_MAX, BULK_BYTES_MAX};
use crate::wire::Request;
use crate::wire::header::HEADER_BYTES;

/// What is needed to send a request, as often as it takes.
#[derive(Debug)]
pub struct Message {
    /// The operation.
    pub opcode: u16,
    /// It changes something, and has a reply slot.
    pub changes: bool,
    /// It may wait at the target for as long as others like.
    pub waits: bool,
    /// It tells of life: it is sent again at a steady pace, however long other answers take.
    pub pulses: bool,
    /// It may have to wait until other clients have done something.
    pub contends: bool,
    /// The encoded request.
    pub body: Bytes,
    /// Its bulk.
    pub bulk: Vec<Bytes>,
    /// The job that it belongs to.
    pub job: JobId,
}

impl Message {
    /// The message of `request`, which belongs to no job; [`Code::TooBig`] if no message carries it.
    pub fn new(request: &Request, bulk: &[Bytes]) -> Result<Message, Code> {
        let mut body = Vec::with_capacity(256);
        request.put_body(&mut body);
        let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
        if body.len() > BODY_BYTES_MAX || bulk_bytes > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        Ok(Message {
            opcode: request.opcode(),
            changes: request.changes(),
            waits: request.waits(),
            pulses: request.pulses(),
            contends: request.contends(),
            body: Bytes::from(body),
            bulk: bulk.to_vec(),
            job: JobId::NONE,
        })
    }

    /// What keeping it costs, in bytes.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.bulk.iter().map(Bytes::len).sum::<usize>()
    }
}
