//! Data on its way to and from whole blocks: checksums and padding. Pure.

use bytes::Bytes;
use proto::wire::header::{crc32c, crc32c_slices};
use rt::buf::AlignedBuf;

use super::extent::BLOCK;

const BLOCK_BYTES: usize = BLOCK as usize;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// The bytes of some slices, one behind the other.
#[derive(Debug, Clone, Default)]
pub struct Slices(pub Vec<Bytes>);

impl Slices {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|slice| slice.len() as u64).sum()
    }

    /// Takes the first `len` bytes away and returns them.
    pub fn split_to(&mut self, len: u64) -> Slices {
        let mut left = len;
        let mut front = Vec::new();
        let mut whole = 0;
        for slice in &mut self.0 {
            if (slice.len() as u64) > left {
                if left > 0 {
                    front.push(slice.split_to(left as usize));
                }
                break;
            }
            left -= slice.len() as u64;
            whole += 1;
            front.push(slice.clone());
        }
        self.0.drain(..whole);
        Slices(front)
    }

    /// All of it in one piece.
    pub fn joined(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([slice]) => slice,
            Err(slices) => slices.concat().into(),
        }
    }

    /// CRC-32C of each block, the last one filled up with zeros; little endian, one behind the other.
    pub fn checksums(&self) -> Bytes {
        let mut sums = Vec::with_capacity((self.len().div_ceil(BLOCK) * 4) as usize);
        // Parts of a block that lies in more than one slice.
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut have = 0;
        for slice in &self.0 {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let (part, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - have));
                rest = behind;
                if part.len() == BLOCK_BYTES {
                    sums.extend_from_slice(&crc32c(part).to_le_bytes());
                    continue;
                }
                parts.push(part);
                have += part.len();
                if have == BLOCK_BYTES {
                    sums.extend_from_slice(&crc32c_slices(parts.drain(..)).to_le_bytes());
                    have = 0;
                }
            }
        }
        if have > 0 {
            parts.push(&ZEROS[have..]);
            sums.extend_from_slice(&crc32c_slices(parts).to_le_bytes());
        }
        sums.into()
    }

    /// Fills the last block up with zeros. Whole blocks stay where they are in memory: only what is behind the
    /// last whole block of the last slice is copied, so that the disk can take all of it without a copy.
    pub fn pad(mut self) -> Vec<Bytes> {
        let behind = (self.len() % BLOCK) as usize;
        let Some(last) = self.0.last_mut().filter(|_| behind > 0) else {
            return self.0;
        };
        if last.len() < behind {
            self.0.push(Bytes::from_static(&ZEROS[behind..]));
            return self.0;
        }
        let tail = last.split_off(last.len() - behind);
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        block.as_mut()[..behind].copy_from_slice(&tail);
        if last.is_empty() {
            self.0.pop();
        }
        self.0.push(block.freeze());
        self.0
    }
}

/// The first of `blocks` (whole blocks, read from a disk) that does not have its checksum of `sum`.
pub fn first_damaged(blocks: &[u8], sum: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    blocks.chunks(BLOCK_BYTES).enumerate().position(|(n, block)| sum(n) != Some(crc32c(block)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: usize) -> Bytes {
        (0..len).map(|i| (i * 7 % 251) as u8).collect::<Vec<u8>>().into()
    }

    /// Cuts `len` bytes at `cuts` and compares checksums and padded blocks with those of one slice.
    fn check(len: usize, cuts: &[usize]) {
        let whole = data(len);
        let mut rest = Slices(vec![whole.clone()]);
        let mut slices = Vec::new();
        let mut at = 0;
        for cut in cuts {
            slices.extend(rest.split_to((cut - at) as u64).0);
            at = *cut;
        }
        slices.extend(rest.0);
        let slices = Slices(slices);
        assert_eq!(slices.0.concat(), whole);
        let mut padded = whole.to_vec();
        padded.resize(len.next_multiple_of(BLOCK_BYTES), 0);
        let sums: Vec<u8> =
            padded.chunks(BLOCK_BYTES).flat_map(|block| crc32c(block).to_le_bytes()).collect();
        assert_eq!(slices.checksums(), sums);
        assert_eq!(slices.pad().concat(), padded);
    }

    #[test]
    fn slices_make_the_same_blocks_as_one() {
        check(1, &[]);
        check(4096, &[]);
        check(4096, &[1, 2, 4095]);
        check(10_000, &[]);
        check(10_000, &[4096]);
        check(10_000, &[4096, 8192]);
        check(10_000, &[5, 5000, 9999]);
        check(12_288, &[6000, 6001]);
    }

    #[test]
    fn whole_blocks_are_not_copied() {
        let buf = AlignedBuf::copy_of(&data(9000)).freeze();
        let padded = Slices(vec![buf.clone()]).pad();
        assert_eq!(padded[0].as_ptr(), buf.as_ptr());
        assert_eq!(padded[0].len(), 8192);
        assert!(rt::buf::is_aligned(&padded[1], 0));
    }

    #[test]
    fn damage_is_found() {
        let blocks = data(3 * BLOCK_BYTES);
        let sums = Slices(vec![blocks.clone()]).checksums();
        let sum = |n: usize| Some(u32::from_le_bytes(sums.get(n * 4..n * 4 + 4)?.try_into().ok()?));
        assert_eq!(first_damaged(&blocks, sum), None);
        let mut bad = blocks.to_vec();
        bad[BLOCK_BYTES + 17] ^= 1;
        assert_eq!(first_damaged(&bad, sum), Some(1));
        assert_eq!(first_damaged(&data(4 * BLOCK_BYTES), sum), Some(3), "a block without a checksum");
    }
}
