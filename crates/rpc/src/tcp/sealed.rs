//! [`proto::seal`] on the frames of a connection.

use std::io;

use bytes::{Bytes, BytesMut};
use proto::auth::Agreed;
use proto::seal::{
    CIPHER_SEAL_BYTES, ConnectionKeys, MAC_SEAL_BYTES, Opener, Order, Protection, SealError, Sealer,
};
use rt::Frame;
use rt::buf::AlignedBuf;
use rt::net::{Conn, SEAL_BYTES_MAX, Seal, Unseal};

const _: () = assert!(CIPHER_SEAL_BYTES <= SEAL_BYTES_MAX && MAC_SEAL_BYTES <= SEAL_BYTES_MAX);

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Initiator,
    Acceptor,
}

/// From here on this side believes only what the other side has sealed.
pub(super) fn unseal(conn: &mut Conn, agreed: &Agreed, keys: &ConnectionKeys, end: End) {
    if agreed.protection == Protection::Plain {
        return;
    }
    let order = if conn.receiver.keeps_order() { Order::Kept } else { Order::Any };
    let (_, opener) = both(agreed.protection, keys, end, order);
    conn.receiver.unseal_with(Box::new(Opening(opener)));
}

/// What this side sends from here on is sealed.
pub(super) fn seal(conn: &Conn, agreed: &Agreed, keys: &ConnectionKeys, end: End) {
    if agreed.protection == Protection::Plain {
        return;
    }
    let (sealer, _) = both(agreed.protection, keys, end, Order::Kept);
    conn.sender.seal_with(Box::new(Sealing(sealer)));
}

fn both(protection: Protection, keys: &ConnectionKeys, end: End, order: Order) -> (Sealer, Opener) {
    match end {
        End::Initiator => keys.for_initiator(protection, order),
        End::Acceptor => keys.for_acceptor(protection, order),
    }
}

struct Sealing(Sealer);

impl Seal for Sealing {
    fn seal(&mut self, frame: &mut Frame, out: &mut Vec<u8>) -> io::Result<()> {
        if self.0.protection() != Protection::Encrypted {
            let seal = self.0.authenticate(&frame.head, &frame.bulk).map_err(refused)?;
            out.extend_from_slice(&seal);
            return Ok(());
        }
        // What is sent may be sent again, and others may read it meanwhile, so it is not changed in its place.
        let (mut head, mut bulk) = (BytesMut::from(&frame.head[..]), aligned(&frame.bulk));
        let seal = self.0.encrypt(&mut head, bulk.as_mut()).map_err(refused)?;
        out.extend_from_slice(&seal);
        *frame = Frame { head: head.freeze(), bulk: slices(bulk) };
        Ok(())
    }
}

struct Opening(Opener);

impl Unseal for Opening {
    fn unseal(&mut self, mut frame: Frame) -> io::Result<Option<Frame>> {
        let len = frame.head.len().checked_sub(self.0.protection().seal_bytes());
        let Some(len) = len else { return Err(refused(SealError::Forged)) };
        let behind = frame.head.split_off(len);
        let new = match self.0.protection() {
            Protection::Encrypted => {
                let seal = behind[..].try_into().map_err(|_| refused(SealError::Forged))?;
                let (mut head, mut bulk) = (BytesMut::from(&frame.head[..]), aligned(&frame.bulk));
                let new = self.0.decrypt(&mut head, bulk.as_mut(), seal).map_err(refused)?;
                frame = Frame { head: head.freeze(), bulk: slices(bulk) };
                new
            }
            _ => {
                let seal = behind[..].try_into().map_err(|_| refused(SealError::Forged))?;
                self.0.check(&frame.head, &frame.bulk, seal).map_err(refused)?
            }
        };
        Ok(new.then_some(frame))
    }
}

/// The same bytes in memory of their own, from which they can go to a disk.
fn aligned(slices: &[Bytes]) -> AlignedBuf {
    let mut whole = AlignedBuf::for_overwrite(slices.iter().map(Bytes::len).sum());
    let mut rest = whole.as_mut();
    for slice in slices {
        let (here, behind) = rest.split_at_mut(slice.len());
        here.copy_from_slice(slice);
        rest = behind;
    }
    whole
}

fn slices(bulk: AlignedBuf) -> Vec<Bytes> {
    let bulk = bulk.freeze();
    if bulk.is_empty() { Vec::new() } else { vec![bulk] }
}

fn refused(error: SealError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
