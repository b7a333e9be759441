//! What stands before each frame: magic, length of the head, length of the bulk, its way through routers, and a checksum
//! of these. Layout: `docs/wire.md#frame`.

use std::io;

use crate::net::FrameLimit;

/// Bytes of the prefix.
pub(super) const PREFIX_BYTES: usize = 64;
/// Where the way of a frame stands: hops, conversation, source and destination. All zeros where nobody is in between.
const WAY: std::ops::Range<usize> = 12..60;
/// "weft", read as little endian.
const MAGIC: u32 = u32::from_le_bytes(*b"weft");

/// Lengths of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) head_bytes: u32,
    pub(super) bulk_bytes: u32,
}

impl Prefix {
    /// The prefix of a frame with these lengths, if they can be told.
    pub(super) fn new(head_bytes: usize, bulk_bytes: usize) -> io::Result<Prefix> {
        match (u32::try_from(head_bytes), u32::try_from(bulk_bytes)) {
            (Ok(head_bytes), Ok(bulk_bytes)) => Ok(Prefix { head_bytes, bulk_bytes }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the frame is longer than its prefix can say",
            )),
        }
    }

    pub(super) fn encode(self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bulk_bytes.to_le_bytes());
        let sum = checksum(&bytes[..WAY.end]);
        bytes[WAY.end..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Refuses what cannot become a prefix by its first bytes: a stranger may never send as many as a prefix has.
    pub(super) fn check_beginning(bytes: &[u8]) -> io::Result<()> {
        let magic = MAGIC.to_le_bytes();
        match bytes.iter().zip(&magic).all(|(byte, expected)| byte == expected) {
            true => Ok(()),
            false => Err(nonsense(format!(
                "this is not the protocol of weft: a frame begins with {:02x?}",
                &bytes[..bytes.len().min(magic.len())]
            ))),
        }
    }

    /// Reads a prefix, and refuses nonsense, what `limit` forbids, and frames that are for another node.
    pub(super) fn decode(bytes: &[u8; PREFIX_BYTES], limit: FrameLimit) -> io::Result<Prefix> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Prefix::check_beginning(bytes)?;
        if word(WAY.end) != checksum(&bytes[..WAY.end]) {
            return Err(nonsense("the prefix of a frame has a wrong checksum".to_owned()));
        }
        if bytes[WAY].iter().any(|byte| *byte != 0) {
            return Err(nonsense("a frame has a way through routers, and this process is none".to_owned()));
        }
        let prefix = Prefix { head_bytes: word(4), bulk_bytes: word(8) };
        if prefix.head_bytes as usize > limit.head_bytes_max
            || prefix.bulk_bytes as usize > limit.bulk_bytes_max
        {
            return Err(nonsense(format!("{prefix:?} is above {limit:?}")));
        }
        Ok(prefix)
    }
}

fn nonsense(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn checksum(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("the algorithm gives 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FrameLimit = FrameLimit { head_bytes_max: 1000, bulk_bytes_max: 70_000 };

    #[test]
    fn golden() {
        let prefix = Prefix { head_bytes: 0x102, bulk_bytes: 0x1_0000 };
        let bytes = prefix.encode();
        assert_eq!(bytes[..12], *b"weft\x02\x01\0\0\0\0\x01\0");
        assert_eq!(bytes[WAY], [0; 48]);
        assert_eq!(bytes[WAY.end..], *b"e\xccz\\");
        assert_eq!(checksum(b"123456789"), 0xe306_9283, "CRC-32C's check value");
        assert_eq!(Prefix::decode(&bytes, LIMIT).expect("it is good"), prefix);
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = Prefix { head_bytes: 200, bulk_bytes: 0 }.encode();
        for bit in 0..8 * PREFIX_BYTES {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Prefix::decode(&bad, LIMIT).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_for_another_node_is_refused() {
        for at in WAY {
            let mut bytes = Prefix { head_bytes: 200, bulk_bytes: 0 }.encode();
            bytes[at] = 1;
            let sum = checksum(&bytes[..WAY.end]);
            bytes[WAY.end..].copy_from_slice(&sum.to_le_bytes());
            let error = Prefix::decode(&bytes, LIMIT).expect_err("this process is no router");
            assert!(error.to_string().contains("routers"), "byte {at}: {error}");
        }
    }

    #[test]
    fn limits() {
        let check = |head_bytes, bulk_bytes| {
            Prefix::decode(&Prefix { head_bytes, bulk_bytes }.encode(), LIMIT).is_ok()
        };
        assert!(check(1000, 70_000) && check(0, 0));
        assert!(!check(1001, 0) && !check(0, 70_001) && !check(u32::MAX, u32::MAX));
        assert!(Prefix::new(1 << 32, 0).is_err());
    }
}
