//! Messages as frames: header and body in the head, bulk behind it.

use bytes::Bytes;
use proto::limits::{BODY_BYTES_MAX, BULK_BYTES_MAX};
use proto::wire::header::{
    FLAG_BULK_CHECKSUM, FLAG_UNCHECKED, HEADER_BYTES, SLOT_NONE, crc32c, crc32c_slices,
};
use proto::wire::{DecodeError, Header};
use proto::{TargetId, Xid};
use rt::Frame;
use rt::net::FrameLimit;

/// What a peer that has proved to hold a key may put into one frame.
pub(crate) const LIMIT: FrameLimit =
    FrameLimit { head_bytes_max: HEADER_BYTES + BODY_BYTES_MAX, bulk_bytes_max: BULK_BYTES_MAX };

/// What a stranger may put into one frame.
pub(crate) const LIMIT_STRANGER: FrameLimit =
    FrameLimit { head_bytes_max: proto::limits::BODY_BYTES_MAX_STRANGER, bulk_bytes_max: 0 };

/// Why a frame is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("{0}")]
    Decode(#[from] DecodeError),
    #[error("the lengths in the header are not those of the frame")]
    Length,
    #[error("the checksum of the body does not match")]
    BodyChecksum,
    #[error("the checksum of the bulk does not match")]
    BulkChecksum,
    #[error("a {0} where none can be")]
    Direction(&'static str),
}

/// A header with nothing in it but what every message has.
pub(crate) fn header(opcode: u16, target: TargetId, xid: Xid) -> Header {
    Header::plain(opcode, target, xid)
}

/// The reply slot that a header names.
pub(crate) fn slot_of(header: &Header) -> Option<u32> {
    (header.slot != SLOT_NONE).then_some(header.slot)
}

/// Puts a message without bulk together; fills in lengths and checksums.
pub(crate) fn encode(header: Header, body: &[u8]) -> Frame {
    encode_with_bulk(header, body, Vec::new(), BulkChecksum::Left)
}

/// Whether bulk gets a checksum, unless it is wanted without: what is authenticated needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkChecksum {
    Added,
    Left,
}

/// The same with bulk.
pub(crate) fn encode_with_bulk(
    mut header: Header,
    body: &[u8],
    bulk: Vec<Bytes>,
    checksum: BulkChecksum,
) -> Frame {
    let bulk_len: usize = bulk.iter().map(Bytes::len).sum();
    assert!(body.len() <= BODY_BYTES_MAX && bulk_len <= BULK_BYTES_MAX, "callers keep to the limits");
    header.body_len = body.len() as u32;
    header.bulk_len = bulk_len as u32;
    header.body_crc = crc32c(body);
    header.bulk_crc = 0;
    if checksum == BulkChecksum::Added && bulk_len > 0 && header.flags & FLAG_UNCHECKED == 0 {
        header.flags |= FLAG_BULK_CHECKSUM;
        header.bulk_crc = crc32c_slices(bulk.iter().map(Bytes::as_ref));
    }
    let mut head = Vec::with_capacity(HEADER_BYTES + body.len());
    head.extend_from_slice(&header.encode());
    head.extend_from_slice(body);
    Frame { head: Bytes::from(head), bulk }
}

/// Takes a message apart and checks lengths and checksums.
pub(crate) fn decode(frame: Frame) -> Result<(Header, Bytes, Vec<Bytes>), FrameError> {
    let header = Header::decode(&frame.head)?;
    let body = frame.head.slice(HEADER_BYTES..);
    let bulk_len: usize = frame.bulk.iter().map(Bytes::len).sum();
    if body.len() != header.body_len as usize || bulk_len != header.bulk_len as usize {
        return Err(FrameError::Length);
    }
    if crc32c(&body) != header.body_crc {
        return Err(FrameError::BodyChecksum);
    }
    let checked = header.flags & FLAG_BULK_CHECKSUM != 0;
    if checked && crc32c_slices(frame.bulk.iter().map(Bytes::as_ref)) != header.bulk_crc {
        return Err(FrameError::BulkChecksum);
    }
    Ok((header, body, frame.bulk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Frame {
        let header = header(24, TargetId::mdt(1), Xid(9));
        encode_with_bulk(
            header,
            b"body",
            vec![Bytes::from_static(b"bu"), Bytes::from_static(b"lk")],
            BulkChecksum::Added,
        )
    }

    #[test]
    fn frames_round_trip() {
        let (header, body, bulk) = decode(sample()).expect("an encoded frame decodes");
        assert_eq!((header.xid, header.body_len, header.bulk_len), (Xid(9), 4, 4));
        assert_eq!((body.as_ref(), bulk.concat().as_slice()), (&b"body"[..], &b"bulk"[..]));
    }

    #[test]
    fn bulk_that_is_wanted_without_a_checksum_has_none() {
        let header = Header { flags: FLAG_UNCHECKED, ..header(24, TargetId::mdt(1), Xid(9)) };
        let sent = encode_with_bulk(header, b"body", vec![Bytes::from_static(b"bulk")], BulkChecksum::Added);
        let bulk = vec![Bytes::from_static(b"bulq")];
        let (header, _, bulk) = decode(Frame { bulk, ..sent }).expect("nothing says what it was");
        assert_eq!((header.flags, header.bulk_crc, &bulk[0][..]), (FLAG_UNCHECKED, 0, &b"bulq"[..]));
    }

    #[test]
    fn every_damaged_bit_is_noticed() {
        let good = sample();
        for bit in 0..good.head.len() * 8 {
            let mut head = good.head.to_vec();
            head[bit / 8] ^= 1 << (bit % 8);
            let frame = Frame { head: head.into(), bulk: good.bulk.clone() };
            assert!(decode(frame).is_err(), "bit {bit}");
        }
        let bulk = vec![Bytes::from_static(b"bulq")];
        assert_eq!(decode(Frame { head: good.head.clone(), bulk }).err(), Some(FrameError::BulkChecksum));
        assert_eq!(decode(Frame { head: good.head, bulk: Vec::new() }).err(), Some(FrameError::Length));
    }
}
