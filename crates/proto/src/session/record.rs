//! The reply of a changing request, as the target stores it together with the change.

use bytes::Bytes;

use crate::code::Code;
use crate::ids::{Transno, Xid};
use crate::wire::codec::{DecodeError, Reader, Wire};
use crate::wire::messages::Reply;

/// Version of the encoding; the first byte of every record.
const RECORD_VERSION: u8 = 1;

/// What was answered to the newest request of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyRecord {
    /// The request.
    pub xid: Xid,
    /// Operation of the request.
    pub opcode: u16,
    /// 0, or the number of the [`Code`] that refused.
    pub status: u32,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// Encoded body of the reply; empty for a refusal.
    pub body: Bytes,
}

impl ReplyRecord {
    /// The record of `result`, the answer to request `xid` of operation `opcode`.
    pub fn new(xid: Xid, opcode: u16, result: &Result<Reply, Code>, transno: Transno) -> ReplyRecord {
        let (status, body) = match result {
            Ok(reply) => {
                let mut body = Vec::with_capacity(64);
                reply.put_body(&mut body);
                (0, Bytes::from(body))
            }
            Err(code) => (code.to_u32(), Bytes::new()),
        };
        ReplyRecord { xid, opcode, status, transno, body }
    }

    /// What was answered; an error if the stored body is not a reply of the operation.
    pub fn result(&self) -> Result<Result<Reply, Code>, DecodeError> {
        match Code::from_u32(self.status) {
            Some(code) => Ok(Err(code)),
            None => Reply::take_body(self.opcode, self.body.clone()).map(Ok),
        }
    }

    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(32 + self.body.len());
        RECORD_VERSION.put(&mut out);
        self.opcode.put(&mut out);
        self.status.put(&mut out);
        self.xid.put(&mut out);
        self.transno.put(&mut out);
        self.body.put(&mut out);
        Bytes::from(out)
    }

    /// The inverse of [`ReplyRecord::encode`].
    pub fn decode(bytes: Bytes) -> Result<ReplyRecord, DecodeError> {
        let mut from = Reader::new(bytes);
        if from.take::<u8>()? != RECORD_VERSION {
            return Err(DecodeError::BadValue);
        }
        let (opcode, status, xid, transno) = (from.take()?, from.take()?, from.take()?, from.take()?);
        let record = ReplyRecord { opcode, status, xid, transno, body: from.take()? };
        if from.remaining() == 0 { Ok(record) } else { Err(DecodeError::BadValue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::{Sequence, Settled};

    #[test]
    fn records_round_trip() {
        let granted = Ok(Reply::GetSequence(Sequence { seq: 7 }));
        for result in [granted, Ok(Reply::Close(Settled::default())), Err(Code::Exists)] {
            let opcode = result.as_ref().map_or(24, Reply::opcode);
            let record = ReplyRecord::new(Xid(3), opcode, &result, Transno(9));
            let decoded = ReplyRecord::decode(record.encode()).expect("an encoded record decodes");
            assert_eq!(decoded, record);
            assert_eq!(decoded.result(), Ok(result));
        }
    }

    #[test]
    fn damaged_records_are_refused() {
        let record = ReplyRecord::new(Xid(3), 24, &Err(Code::Exists), Transno(0));
        let bytes = record.encode();
        for len in 0..bytes.len() {
            assert!(ReplyRecord::decode(bytes.slice(..len)).is_err(), "{len} bytes");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(ReplyRecord::decode(longer.into()), Err(DecodeError::BadValue));
    }
}
