//! Damage made with random numbers.

use rt::sim::Rng;

/// A random number generator that also has nothing to choose from.
pub struct Random(Rng);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Rng::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n.max(1) as u64) as usize
    }
}

/// Changes `bytes` in one to four places: bits, bytes, lengths that lie, pieces cut out or doubled.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => bytes.extend((0..random.below(20)).map(|n| n as u8)),
            4 if bytes.len() >= 4 => {
                let at = random.below(bytes.len() - 3);
                let lie = [0, 1, 0xffff, 65_537, u32::MAX, i32::MAX as u32][random.below(6)];
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            }
            5 => {
                let piece = bytes[at..].to_vec();
                bytes.extend_from_slice(&piece);
            }
            _ => {
                bytes.drain(at..bytes.len().min(at + 1 + random.below(8)));
            }
        }
    }
}
