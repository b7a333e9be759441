//! The fixed header in front of every message. Layout: `docs/wire.md#header`.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codec::DecodeError;
use crate::ids::{TargetId, TargetKind, Transno, Xid};
use crate::job::{JOB_BYTES, JobId};
use crate::limits::{BODY_BYTES_MAX, BULK_BYTES_MAX};

/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 144;
/// First four bytes of every message.
pub const MAGIC: [u8; 4] = *b"WEFT";
/// Version of the protocol that this code speaks.
pub const VERSION: u16 = 2;

/// The message is a reply.
pub const FLAG_REPLY: u16 = 1 << 0;
/// The request was sent before, and no reply came.
pub const FLAG_RESENT: u16 = 1 << 1;
/// The request had a reply and a transno; the target lost it in a restart.
pub const FLAG_REPLAY: u16 = 1 << 2;
/// The bulk carries a checksum.
pub const FLAG_BULK_CHECKSUM: u16 = 1 << 3;
/// The request comes from a target to a client (a callback), or the reply answers one.
pub const FLAG_CALLBACK: u16 = 1 << 4;
/// A reply that is no answer yet: the request came again while it is under way.
pub const FLAG_UNDER_WAY: u16 = 1 << 5;

/// With [`FLAG_RESENT`]: there is nothing but the header, which asks whether the request has arrived. With
/// [`FLAG_UNDER_WAY`]: it has not, or was answered: send it.
pub const FLAG_ARRIVED: u16 = 1 << 6;
/// The body is a [batch](super::batch) of messages.
pub const FLAG_BATCH: u16 = 1 << 7;
/// Neither the bulk of the request nor that of its answer gets a checksum: the client wants none (Lustre's `osc.*.checksums=0`).
pub const FLAG_UNCHECKED: u16 = 1 << 8;

/// What is known of a message before its body is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Operation; see [`crate::wire::messages`].
    pub opcode: u16,
    /// `FLAG_*` bits.
    pub flags: u16,
    /// In a reply: 0, or the number of the [`crate::Code`] that refuses.
    pub status: u32,
    /// Number of the request in its session; a reply repeats it.
    pub xid: Xid,
    /// The session, as the target named it at connect; 0 before.
    pub session: u64,
    /// Epoch of the session: grows with each reconnect, so that what an older connection still delivers is
    /// dropped before it is looked at.
    pub session_epoch: u64,
    /// In a reply: commit order number of the change; in a replay: the number it had.
    pub transno: Transno,
    /// In a reply: every change up to here is durable.
    pub last_committed: Transno,
    /// The target that is asked, or answers.
    pub target: TargetId,
    /// Reply slot of a changing request; [`SLOT_NONE`] otherwise.
    pub slot: u32,
    /// Bytes of the body behind the header.
    pub body_len: u32,
    /// Bytes of the bulk behind the body.
    pub bulk_len: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
    /// CRC-32C of the bulk, if `FLAG_BULK_CHECKSUM` is set.
    pub bulk_crc: u32,
    /// In a reply: how much the client may write before it sends it.
    pub room: Room,
    /// In a request: the job that it belongs to; no answer has one.
    pub job: JobId,
}

/// How much a client may have written and not sent yet, so that the target has space for it: MiB, plus 1; 0 for nothing said.
/// Nothing is kept free for it (Lustre's grants are): a target that fills up says less and less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room(pub u32);

impl Room {
    /// Room for so many bytes.
    pub fn of(bytes: u64) -> Room {
        Room(u32::try_from(bytes >> 20).map_or(u32::MAX, |mib| mib.saturating_add(1)))
    }

    /// How many bytes; `None` if nothing was said.
    pub fn bytes(self) -> Option<u64> {
        self.0.checked_sub(1).map(|mib| u64::from(mib) << 20)
    }
}

/// The slot of a request that changes nothing.
pub const SLOT_NONE: u32 = u32::MAX;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: U16,
    header_len: U16,
    opcode: U16,
    flags: U16,
    status: U32,
    xid: U64,
    session: U64,
    session_epoch: U64,
    transno: U64,
    last_committed: U64,
    target_kind: u8,
    reserved_a: [u8; 3],
    target_index: U32,
    slot: U32,
    reserved_b: [u8; 4],
    job: [u8; JOB_BYTES],
    body_len: U32,
    bulk_len: U32,
    body_crc: U32,
    bulk_crc: U32,
    reserved_c: [u8; 16],
    room: U32,
    header_crc: U32,
}

const _: () = assert!(size_of::<Raw>() == HEADER_BYTES);

/// CRC-32C (Castagnoli), the checksum of all of weft's formats.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C over several slices as if they were one.
pub fn crc32c_slices<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for slice in slices {
        digest.update(slice);
    }
    digest.finalize() as u32
}

impl Header {
    /// A header with nothing in it but what every message has.
    pub fn plain(opcode: u16, target: TargetId, xid: Xid) -> Header {
        Header {
            opcode,
            flags: 0,
            status: 0,
            xid,
            session: 0,
            session_epoch: 0,
            transno: Transno(0),
            last_committed: Transno(0),
            target,
            slot: SLOT_NONE,
            body_len: 0,
            bulk_len: 0,
            body_crc: 0,
            bulk_crc: 0,
            room: Room::default(),
            job: JobId::NONE,
        }
    }

    /// The encoded header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            header_len: (HEADER_BYTES as u16).into(),
            opcode: self.opcode.into(),
            flags: self.flags.into(),
            status: self.status.into(),
            xid: self.xid.0.into(),
            session: self.session.into(),
            session_epoch: self.session_epoch.into(),
            transno: self.transno.0.into(),
            last_committed: self.last_committed.0.into(),
            target_kind: self.target.kind.to_u8(),
            reserved_a: [0; 3],
            target_index: self.target.index.into(),
            slot: self.slot.into(),
            reserved_b: [0; 4],
            job: self.job.to_bytes(),
            body_len: self.body_len.into(),
            bulk_len: self.bulk_len.into(),
            body_crc: self.body_crc.into(),
            bulk_crc: self.bulk_crc.into(),
            reserved_c: [0; 16],
            room: self.room.0.into(),
            header_crc: 0.into(),
        };
        raw.header_crc = crc32c(&raw.as_bytes()[..HEADER_BYTES - 4]).into();
        let mut out = [0; HEADER_BYTES];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Decodes and checks a header: magic, version, length, checksum, reserved zeros, bounded lengths.
    pub fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| DecodeError::Truncated)?;
        if raw.magic != MAGIC {
            return Err(DecodeError::BadMagic);
        }
        if raw.header_crc.get() != crc32c(&raw.as_bytes()[..HEADER_BYTES - 4]) {
            return Err(DecodeError::BadChecksum);
        }
        let reserved_clear =
            raw.reserved_a == [0; 3] && raw.reserved_b == [0; 4] && raw.reserved_c == [0; 16];
        let shape = raw.version.get() == VERSION && usize::from(raw.header_len.get()) == HEADER_BYTES;
        if !reserved_clear || !shape {
            return Err(DecodeError::BadValue);
        }
        if raw.body_len.get() as usize > BODY_BYTES_MAX || raw.bulk_len.get() as usize > BULK_BYTES_MAX {
            return Err(DecodeError::TooLong);
        }
        let job = JobId::from_bytes(raw.job).ok_or(DecodeError::BadValue)?;
        // Only who asks for something has a job.
        if !job.is_none() && raw.flags.get() & (FLAG_REPLY | FLAG_CALLBACK) != 0 {
            return Err(DecodeError::BadValue);
        }
        Ok(Header {
            opcode: raw.opcode.get(),
            flags: raw.flags.get(),
            status: raw.status.get(),
            xid: Xid(raw.xid.get()),
            session: raw.session.get(),
            session_epoch: raw.session_epoch.get(),
            transno: Transno(raw.transno.get()),
            last_committed: Transno(raw.last_committed.get()),
            target: TargetId {
                kind: TargetKind::from_u8(raw.target_kind).ok_or(DecodeError::BadValue)?,
                index: raw.target_index.get(),
            },
            slot: raw.slot.get(),
            body_len: raw.body_len.get(),
            bulk_len: raw.bulk_len.get(),
            body_crc: raw.body_crc.get(),
            bulk_crc: raw.bulk_crc.get(),
            room: Room(raw.room.get()),
            job,
        })
    }
}
