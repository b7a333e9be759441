//! Several messages of one session in one frame. Layout: `docs/wire.md#batches`.
//!
//! A batch is a way to travel and nothing more: each message in it keeps its own number and slot, and is answered, sent
//! again and replayed by itself. Messages with bulk travel alone.

use bytes::Bytes;

use super::codec::{DecodeError, Reader, Wire};
use super::header::{FLAG_BATCH, FLAG_REPLY, FLAG_RESENT, Header, SLOT_NONE};
use crate::ids::{Transno, Xid};
use crate::limits::{BATCH_BYTES_MAX, BATCH_MAX};

/// Bytes in front of the body of each message.
const MEMBER_BYTES: usize = 32;
/// Bytes of the count in front of all.
const COUNT_BYTES: usize = 4;

/// One message of a batch: what the header of the frame does not say of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Operation.
    pub opcode: u16,
    /// In a request [`FLAG_RESENT`] or nothing; nothing in a reply.
    pub flags: u16,
    /// In a reply: 0, or the number of the [`crate::Code`] that refuses.
    pub status: u32,
    /// Number of the request.
    pub xid: Xid,
    /// In a reply: commit order number of the change.
    pub transno: Transno,
    /// Reply slot of a changing request; [`SLOT_NONE`] otherwise.
    pub slot: u32,
    /// Encoded body.
    pub body: Bytes,
}

impl Member {
    fn put(&self, out: &mut Vec<u8>) {
        self.opcode.put(out);
        self.flags.put(out);
        self.status.put(out);
        self.xid.0.put(out);
        self.transno.0.put(out);
        self.slot.put(out);
        self.body.put(out);
    }

    fn take(from: &mut Reader, is_reply: bool) -> Result<Member, DecodeError> {
        let member = Member {
            opcode: from.take()?,
            flags: from.take()?,
            status: from.take()?,
            xid: Xid(from.take()?),
            transno: Transno(from.take()?),
            slot: from.take()?,
            body: from.take()?,
        };
        let sane = match is_reply {
            true => member.flags == 0 && member.slot == SLOT_NONE,
            false => member.flags & !FLAG_RESENT == 0 && member.status == 0 && member.transno == Transno(0),
        };
        if sane { Ok(member) } else { Err(DecodeError::BadValue) }
    }
}

/// How far a batch is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    count: usize,
    bytes: usize,
}

impl Default for Filling {
    fn default() -> Filling {
        Filling { count: 0, bytes: COUNT_BYTES }
    }
}

impl Filling {
    /// Takes a message with a body of so many bytes in; false if it has no room, and then nothing changes.
    pub fn add(&mut self, body_bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(MEMBER_BYTES).saturating_add(body_bytes);
        let fits = self.count < BATCH_MAX && bytes <= BATCH_BYTES_MAX;
        if fits {
            (self.count, self.bytes) = (self.count + 1, bytes);
        }
        fits
    }
}

/// Makes `header` the one of a batch, of requests or, with [`FLAG_REPLY`], of replies. What each message says for itself is left out.
pub fn mark(header: &mut Header) {
    header.flags = FLAG_BATCH | (header.flags & FLAG_REPLY);
    header.opcode = 0;
    header.status = 0;
    header.xid = Xid(0);
    header.transno = Transno(0);
    header.slot = SLOT_NONE;
}

/// The body of a batch. Whoever calls this keeps to the limits ([`Filling`]).
pub fn encode(members: &[Member]) -> Vec<u8> {
    assert!((1..=BATCH_MAX).contains(&members.len()), "a batch is neither empty nor too long");
    let bodies: usize = members.iter().map(|member| member.body.len()).sum();
    let mut out = Vec::with_capacity(COUNT_BYTES + members.len() * MEMBER_BYTES + bodies);
    (members.len() as u32).put(&mut out);
    members.iter().for_each(|member| member.put(&mut out));
    assert!(out.len() <= BATCH_BYTES_MAX, "a batch keeps to its bytes");
    out
}

/// The messages of a batch. Every count and length has to fit exactly.
pub fn decode(header: &Header, body: Bytes) -> Result<Vec<Member>, DecodeError> {
    let mut expected = header.clone();
    mark(&mut expected);
    if *header != expected || header.session == 0 || header.bulk_len != 0 {
        return Err(DecodeError::BadValue);
    }
    if body.len() > BATCH_BYTES_MAX {
        return Err(DecodeError::TooLong);
    }
    let mut from = Reader::new(body);
    let count = from.take::<u32>()? as usize;
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(DecodeError::TooLong);
    }
    let is_reply = header.flags & FLAG_REPLY != 0;
    let members = (0..count).map(|_| Member::take(&mut from, is_reply)).collect::<Result<Vec<_>, _>>()?;
    if from.remaining() != 0 {
        return Err(DecodeError::BadValue);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TargetId;
    use crate::job::JobId;
    use crate::wire::header::{FLAG_CALLBACK, FLAG_REPLAY, Room};

    fn header(flags: u16) -> Header {
        let mut header = Header {
            opcode: 24,
            flags,
            status: 0,
            xid: Xid(7),
            session: 9,
            session_epoch: 3,
            transno: Transno(5),
            last_committed: Transno(4),
            target: TargetId::mdt(0),
            slot: 2,
            body_len: 0,
            bulk_len: 0,
            body_crc: 0,
            bulk_crc: 0,
            room: Room(0),
            job: JobId::NONE,
        };
        mark(&mut header);
        header
    }

    fn member(xid: u64, body: usize) -> Member {
        let (status, transno) = (0, Transno(0));
        Member { opcode: 24, flags: 0, status, xid: Xid(xid), transno, slot: 1, body: vec![7; body].into() }
    }

    #[test]
    fn a_full_batch_is_read_and_one_more_is_not_taken() {
        let mut filling = Filling::default();
        let members: Vec<_> = (0..BATCH_MAX as u64).map(|xid| member(xid, 100)).collect();
        assert!(members.iter().all(|member| filling.add(member.body.len())));
        assert!(!filling.add(0));
        assert_eq!(decode(&header(0), encode(&members).into()), Ok(members));
        let mut filling = Filling::default();
        let most = BATCH_BYTES_MAX - COUNT_BYTES - MEMBER_BYTES;
        assert!(!filling.add(most + 1) && !filling.add(usize::MAX) && filling.add(most) && !filling.add(0));
        assert_eq!(encode(&[member(1, most)]).len(), BATCH_BYTES_MAX);
    }

    #[test]
    fn counts_and_lengths_that_do_not_fit_are_damage() {
        let good = encode(&[member(1, 3), member(2, 0)]);
        for (at, value, error) in [
            (0, 0, DecodeError::TooLong),
            (0, 1, DecodeError::BadValue),
            (0, 3, DecodeError::Truncated),
            (0, BATCH_MAX as u32 + 1, DecodeError::TooLong),
            (0, u32::MAX, DecodeError::TooLong),
            (32, u32::MAX, DecodeError::Truncated),
        ] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(decode(&header(0), bad.into()), Err(error), "{value} at {at}");
        }
        for len in 0..good.len() {
            assert!(decode(&header(0), Bytes::copy_from_slice(&good[..len])).is_err(), "{len} bytes");
        }
        let long = vec![0; BATCH_BYTES_MAX + 1];
        assert_eq!(decode(&header(0), long.into()), Err(DecodeError::TooLong));
    }

    #[test]
    fn what_a_batch_cannot_carry_is_damage() {
        let body = Bytes::from(encode(&[member(1, 3)]));
        let changes: [fn(&mut Header); 7] = [
            |header| header.session = 0,
            |header| header.bulk_len = 1,
            |header| header.xid = Xid(1),
            |header| header.slot = 0,
            |header| header.opcode = 24,
            |header| header.flags |= FLAG_CALLBACK,
            |header| header.flags |= FLAG_REPLAY,
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut header = header(0);
            change(&mut header);
            assert_eq!(decode(&header, body.clone()), Err(DecodeError::BadValue), "change {n}");
        }
        let changes: [fn(&mut Member); 3] = [
            |member| member.flags = FLAG_REPLAY,
            |member| member.status = 1,
            |member| member.transno = Transno(1),
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut member = member(1, 3);
            change(&mut member);
            assert!(decode(&header(0), encode(&[member]).into()).is_err(), "change {n}");
        }
        assert_eq!(decode(&header(FLAG_REPLY), body), Err(DecodeError::BadValue), "a reply has no slot");
        let resent = Member { flags: FLAG_RESENT, ..member(1, 3) };
        assert_eq!(decode(&header(0), encode(std::slice::from_ref(&resent)).into()), Ok(vec![resent]));
    }
}
