//! What protects the frames of a connection: a message authentication code, or encryption with one.
//!
//! Both are AEGIS-128X2 (RFC 10032), with keys for each direction that follow from the handshake. Each frame has a number
//! of its own, which is its nonce, so what came before, or over another connection, or from the receiver itself, is
//! noticed. Layout: `docs/wire.md#seal`; why this cipher: `docs/adr/0008-sealed-frames.md`. Bytes in, bytes out.

use aegis::aegis128x2::{Aegis128X2, Aegis128X2Mac};
use hkdf::Hkdf;
use sha2::{Digest, Sha256};

/// Bytes of a seal that authenticates: number and code.
pub const MAC_SEAL_BYTES: usize = NUMBER_BYTES + TAG_BYTES;
/// Bytes of a seal that encrypts: number, code of the head, code of the bulk.
pub const CIPHER_SEAL_BYTES: usize = NUMBER_BYTES + 2 * TAG_BYTES;
/// Frames of one direction of a connection. More are not sent: a number is never used twice.
pub const FRAMES_MAX: u64 = 1 << 60;

const NUMBER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
const SECRET_BYTES: usize = 16;
/// Numbers behind the newest that are still taken where order is not kept.
const WINDOW: u64 = 1024;
const WINDOW_WORDS: usize = WINDOW as usize / 64;

/// How the frames of a connection are protected; each includes what the ones before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// By checksums against accidents, and by nothing against people.
    Plain,
    /// Header and body are authenticated. Bulk has a checksum, which stands in the header.
    Heads,
    /// Everything is authenticated.
    Frames,
    /// Everything is authenticated and encrypted.
    Encrypted,
}

impl Protection {
    pub(crate) fn to_u8(self) -> u8 {
        match self {
            Protection::Plain => 1,
            Protection::Heads => 2,
            Protection::Frames => 3,
            Protection::Encrypted => 4,
        }
    }

    pub(crate) fn from_u8(n: u8) -> Option<Protection> {
        [Protection::Plain, Protection::Heads, Protection::Frames, Protection::Encrypted]
            .into_iter()
            .find(|protection| protection.to_u8() == n)
    }

    /// Bytes that a seal adds to a frame.
    pub fn seal_bytes(self) -> usize {
        match self {
            Protection::Plain => 0,
            Protection::Heads | Protection::Frames => MAC_SEAL_BYTES,
            Protection::Encrypted => CIPHER_SEAL_BYTES,
        }
    }
}

/// Why a frame is not taken, or not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not as the other side of this connection sent it.
    #[error("a frame was changed on its way, or is not of this connection")]
    Forged,
    /// It is not the next one.
    #[error("a frame came again, or out of its turn, or one before it was taken away")]
    OutOfTurn,
    /// All numbers are used.
    #[error("this connection has sent as many frames as one may")]
    Exhausted,
}

/// The secrets of one connection.
pub struct ConnectionKeys {
    initiator: [u8; SECRET_BYTES],
    acceptor: [u8; SECRET_BYTES],
    binding: [u8; 32],
}

impl ConnectionKeys {
    /// From the key that both sides hold, and all that they said before their proofs were complete.
    pub(crate) fn derive(key: &[u8], said: [&[u8]; 2], protection: Protection) -> ConnectionKeys {
        let mut transcript = Sha256::new();
        for part in said {
            transcript.update((part.len() as u32).to_le_bytes());
            transcript.update(part);
        }
        let secrets = Hkdf::<Sha256>::new(Some(&transcript.finalize()), key);
        let mut keys =
            ConnectionKeys { initiator: [0; SECRET_BYTES], acceptor: [0; SECRET_BYTES], binding: [0; 32] };
        let level = [protection.to_u8()];
        let expand = |label: &[u8], out: &mut [u8]| {
            secrets.expand_multi_info(&[label, &level], out).expect("HKDF gives that many bytes");
        };
        expand(b"weft frames of the initiator 1", &mut keys.initiator);
        expand(b"weft frames of the acceptor 1", &mut keys.acceptor);
        expand(b"weft binding 1", &mut keys.binding);
        keys
    }

    /// A number that both sides of this connection know, and no other connection has.
    pub fn binding(&self) -> [u8; 32] {
        self.binding
    }

    /// What seals and opens frames at the side that connected.
    pub fn for_initiator(&self, protection: Protection, order: Order) -> (Sealer, Opener) {
        (Sealer::new(self.initiator, protection), Opener::new(self.acceptor, protection, order))
    }

    /// The same at the side that was connected to.
    pub fn for_acceptor(&self, protection: Protection, order: Order) -> (Sealer, Opener) {
        (Sealer::new(self.acceptor, protection), Opener::new(self.initiator, protection, order))
    }
}

impl std::fmt::Debug for ConnectionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionKeys(..)")
    }
}

/// Key and way of one direction.
struct Direction {
    key: [u8; SECRET_BYTES],
    protection: Protection,
}

fn nonce(number: u64, part: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce[8..].copy_from_slice(&part.to_le_bytes());
    nonce
}

fn lengths(head: usize, bulk: usize) -> [u8; 16] {
    let mut lengths = [0; 16];
    lengths[..8].copy_from_slice(&(head as u64).to_le_bytes());
    lengths[8..].copy_from_slice(&(bulk as u64).to_le_bytes());
    lengths
}

impl Direction {
    /// The code over a frame.
    fn mac(&self, number: u64, head: &[u8], bulk: &[impl AsRef<[u8]>]) -> Aegis128X2Mac<TAG_BYTES> {
        let mut mac = Aegis128X2Mac::new_with_nonce(&self.key, &nonce(number, 0));
        let bulk_len: usize = bulk.iter().map(|slice| slice.as_ref().len()).sum();
        mac.update(&lengths(head.len(), bulk_len));
        mac.update(head);
        if self.protection != Protection::Heads {
            bulk.iter().for_each(|slice| mac.update(slice.as_ref()));
        }
        mac
    }

    fn cipher(&self, number: u64, part: u64) -> Aegis128X2<TAG_BYTES> {
        Aegis128X2::new(&self.key, &nonce(number, part))
    }
}

/// What the code of an encrypted head is also over: the lengths, and the code of the bulk.
fn beside(head: usize, bulk: usize, bulk_tag: &[u8; TAG_BYTES]) -> [u8; 32] {
    let mut beside = [0; 32];
    beside[..16].copy_from_slice(&lengths(head, bulk));
    beside[16..].copy_from_slice(bulk_tag);
    beside
}

/// Seals what one side sends.
pub struct Sealer {
    direction: Direction,
    next: u64,
}

impl Sealer {
    fn new(key: [u8; SECRET_BYTES], protection: Protection) -> Sealer {
        Sealer { direction: Direction { key, protection }, next: 0 }
    }

    /// How it protects.
    pub fn protection(&self) -> Protection {
        self.direction.protection
    }

    fn number(&mut self) -> Result<u64, SealError> {
        let number = self.next;
        if number >= FRAMES_MAX {
            return Err(SealError::Exhausted);
        }
        self.next += 1;
        Ok(number)
    }

    /// The seal of the next frame, which travels as it is.
    pub fn authenticate(
        &mut self,
        head: &[u8],
        bulk: &[impl AsRef<[u8]>],
    ) -> Result<[u8; MAC_SEAL_BYTES], SealError> {
        let number = self.number()?;
        let mut seal = [0; MAC_SEAL_BYTES];
        seal[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        seal[NUMBER_BYTES..].copy_from_slice(&self.direction.mac(number, head, bulk).finalize());
        Ok(seal)
    }

    /// Encrypts the next frame in place; gives its seal.
    pub fn encrypt(
        &mut self,
        head: &mut [u8],
        bulk: &mut [u8],
    ) -> Result<[u8; CIPHER_SEAL_BYTES], SealError> {
        let number = self.number()?;
        let bulk_tag = match bulk.is_empty() {
            true => [0; TAG_BYTES],
            false => self.direction.cipher(number, 1).encrypt_in_place(bulk, &[]),
        };
        let beside = beside(head.len(), bulk.len(), &bulk_tag);
        let head_tag = self.direction.cipher(number, 0).encrypt_in_place(head, &beside);
        let mut seal = [0; CIPHER_SEAL_BYTES];
        seal[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        seal[NUMBER_BYTES..][..TAG_BYTES].copy_from_slice(&head_tag);
        seal[NUMBER_BYTES + TAG_BYTES..].copy_from_slice(&bulk_tag);
        Ok(seal)
    }
}

/// Which numbers have come.
enum Seen {
    /// All below this one; it is next.
    InOrder(u64),
    /// Where frames are lost, repeated and overtake each other without anybody's doing.
    Window { newest: Option<u64>, bits: Box<[u64; WINDOW_WORDS]> },
}

impl Seen {
    /// Whether a frame with this number may be looked at.
    fn expects(&self, number: u64) -> bool {
        match self {
            Seen::InOrder(next) => number == *next,
            Seen::Window { .. } => true,
        }
    }

    /// Notes an authentic number: whether it is new.
    fn note(&mut self, number: u64) -> bool {
        let (newest, bits) = match self {
            Seen::InOrder(next) => {
                *next += 1;
                return true;
            }
            Seen::Window { newest, bits } => (newest, bits),
        };
        let place = |number: u64| ((number % WINDOW) as usize / 64, 1u64 << (number % 64));
        let from = match *newest {
            Some(newest) if number <= newest => {
                let (word, bit) = place(number);
                let new = newest - number < WINDOW && bits[word] & bit == 0;
                if new {
                    bits[word] |= bit;
                }
                return new;
            }
            Some(newest) => newest + 1,
            None => 0,
        };
        for skipped in from.max(number.saturating_sub(WINDOW - 1))..=number {
            let (word, bit) = place(skipped);
            bits[word] &= !bit;
        }
        let (word, bit) = place(number);
        bits[word] |= bit;
        *newest = Some(number);
        true
    }
}

/// In which order a transport brings frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the one in which they were sent: what comes in another one is damage.
    Kept,
    /// In any.
    Any,
}

/// Opens what the other side has sealed.
pub struct Opener {
    direction: Direction,
    seen: Seen,
}

impl Opener {
    fn new(key: [u8; SECRET_BYTES], protection: Protection, order: Order) -> Opener {
        let seen = match order {
            Order::Kept => Seen::InOrder(0),
            Order::Any => Seen::Window { newest: None, bits: Box::new([0; WINDOW_WORDS]) },
        };
        Opener { direction: Direction { key, protection }, seen }
    }

    /// How the frames are protected.
    pub fn protection(&self) -> Protection {
        self.direction.protection
    }

    fn number(&self, seal: &[u8]) -> Result<u64, SealError> {
        let number = u64::from_le_bytes(*seal.first_chunk().ok_or(SealError::Forged)?);
        if !self.seen.expects(number) {
            return Err(SealError::OutOfTurn);
        }
        Ok(number)
    }

    /// Checks a frame that travelled as it is: whether it is new. Nothing of it may be believed before.
    pub fn check(
        &mut self,
        head: &[u8],
        bulk: &[impl AsRef<[u8]>],
        seal: &[u8; MAC_SEAL_BYTES],
    ) -> Result<bool, SealError> {
        let number = self.number(seal)?;
        let tag = seal[NUMBER_BYTES..].first_chunk().ok_or(SealError::Forged)?;
        self.direction.mac(number, head, bulk).verify(tag).map_err(|_| SealError::Forged)?;
        Ok(self.seen.note(number))
    }

    /// Decrypts a frame in place: whether it is new. After an error nothing of it means anything.
    pub fn decrypt(
        &mut self,
        head: &mut [u8],
        bulk: &mut [u8],
        seal: &[u8; CIPHER_SEAL_BYTES],
    ) -> Result<bool, SealError> {
        let number = self.number(seal)?;
        let head_tag = seal[NUMBER_BYTES..].first_chunk().ok_or(SealError::Forged)?;
        let bulk_tag = seal[NUMBER_BYTES + TAG_BYTES..].first_chunk().ok_or(SealError::Forged)?;
        let beside = beside(head.len(), bulk.len(), bulk_tag);
        let forged = |_| SealError::Forged;
        self.direction.cipher(number, 0).decrypt_in_place(head, head_tag, &beside).map_err(forged)?;
        if !bulk.is_empty() {
            self.direction.cipher(number, 1).decrypt_in_place(bulk, bulk_tag, &[]).map_err(forged)?;
        }
        Ok(self.seen.note(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"a header and a body";
    const BULK: [&[u8]; 2] = [b"much", b"data"];

    fn keys(key: u8, nonce: u8, protection: Protection) -> ConnectionKeys {
        ConnectionKeys::derive(&[key; 32], [&[nonce; 80], b"the reply"], protection)
    }

    fn pair(protection: Protection, order: Order) -> (Sealer, Opener) {
        let keys = keys(1, 2, protection);
        (keys.for_initiator(protection, order).0, keys.for_acceptor(protection, order).1)
    }

    #[test]
    fn golden() {
        let (mut sealer, _) = pair(Protection::Frames, Order::Kept);
        let seal = sealer.authenticate(HEAD, &BULK).expect("there are numbers");
        let text: String = seal.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "0000000000000000ee7c58e5bcb381adaa5158eb6963f58a");
        let (mut sealer, _) = pair(Protection::Encrypted, Order::Kept);
        let (mut head, mut bulk) = (HEAD.to_vec(), BULK.concat());
        let seal = sealer.encrypt(&mut head, &mut bulk).expect("there are numbers");
        let all: String =
            [&head[..], &seal, &bulk].concat().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            all,
            "5d6c45b57df9bc5bb1ce09d39d1ebe8770ba590000000000000000c44f52ef1adcd792ab2d9f1b7d0bf1e3018006690148acbb9104987df83e05ba2a10743f24b09fd7"
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (mut sealer, _) = pair(Protection::Frames, Order::Kept);
        let seal = sealer.authenticate(HEAD, &BULK).expect("there are numbers");
        let whole = [HEAD, &BULK.concat(), &seal].concat();
        for bit in 0..=whole.len() * 8 {
            let mut bent = whole.clone();
            if bit < whole.len() * 8 {
                bent[bit / 8] ^= 1 << (bit % 8);
            }
            let (head, rest) = bent.split_at(HEAD.len());
            let (bulk, seal) = rest.split_at(8);
            for order in [Order::Kept, Order::Any] {
                let (_, mut opener) = pair(Protection::Frames, order);
                let taken = opener.check(head, &[bulk], seal.try_into().expect("a whole seal"));
                assert_eq!(taken.is_ok(), bit == whole.len() * 8, "bit {bit}");
            }
        }
        let (_, mut opener) = pair(Protection::Frames, Order::Kept);
        assert_eq!(opener.check(&HEAD[1..], &BULK, &seal), Err(SealError::Forged), "a byte of it is missing");
        let moved = [&HEAD[HEAD.len() - 1..], BULK[0], BULK[1]];
        assert_eq!(
            opener.check(&HEAD[..HEAD.len() - 1], &moved, &seal),
            Err(SealError::Forged),
            "the end of the head moved into the bulk"
        );
    }

    #[test]
    fn bulk_is_left_to_its_checksum_only_where_both_sides_said_so() {
        for (protection, noticed) in [(Protection::Heads, false), (Protection::Frames, true)] {
            let (mut sealer, mut opener) = pair(protection, Order::Kept);
            let seal = sealer.authenticate(HEAD, &BULK).expect("there are numbers");
            assert_eq!(opener.check(HEAD, &[b"bent", b"data"], &seal).is_err(), noticed);
        }
    }

    #[test]
    fn what_is_encrypted_comes_back_and_shows_nothing_and_bears_no_change() {
        for bulk_len in [0, 8] {
            let (mut sealer, mut opener) = pair(Protection::Encrypted, Order::Kept);
            let (mut head, mut bulk) = (HEAD.to_vec(), BULK.concat()[..bulk_len].to_vec());
            let seal = sealer.encrypt(&mut head, &mut bulk).expect("there are numbers");
            assert!(head != HEAD && (bulk_len == 0 || bulk != BULK.concat()));
            for bit in 0..(head.len() + bulk_len + seal.len()) * 8 {
                let mut bent = [&head[..], &bulk, &seal].concat();
                bent[bit / 8] ^= 1 << (bit % 8);
                let (head, rest) = bent.split_at_mut(HEAD.len());
                let (bulk, seal) = rest.split_at_mut(bulk_len);
                let seal = (&*seal).try_into().expect("a whole seal");
                let (_, mut opener) = pair(Protection::Encrypted, Order::Kept);
                assert!(opener.decrypt(head, bulk, seal).is_err(), "bit {bit}");
            }
            assert_eq!(opener.decrypt(&mut head, &mut bulk, &seal), Ok(true));
            assert_eq!((&head[..], &bulk[..]), (HEAD, &BULK.concat()[..bulk_len]));
        }
    }

    #[test]
    fn nothing_of_another_connection_or_direction_is_taken() {
        let other = |mine: ConnectionKeys, theirs: ConnectionKeys| {
            let (mut sealer, _) = mine.for_initiator(Protection::Frames, Order::Kept);
            let seal = sealer.authenticate(HEAD, &BULK).expect("there are numbers");
            let (_, mut opener) = theirs.for_acceptor(Protection::Frames, Order::Kept);
            opener.check(HEAD, &BULK, &seal)
        };
        let of = |key, nonce| keys(key, nonce, Protection::Frames);
        assert_eq!(other(of(1, 2), of(1, 2)), Ok(true));
        assert_eq!(other(of(1, 2), of(1, 3)), Err(SealError::Forged), "a replay over another connection");
        assert_eq!(other(of(1, 2), of(2, 2)), Err(SealError::Forged), "another key");
        assert_eq!(other(of(1, 2), keys(1, 2, Protection::Heads)), Err(SealError::Forged), "another way");
        assert_ne!(of(1, 2).binding(), of(1, 3).binding());
        let keys = of(1, 2);
        let (mut sealer, mut own) = keys.for_initiator(Protection::Frames, Order::Kept);
        let seal = sealer.authenticate(HEAD, &BULK).expect("there are numbers");
        assert_eq!(own.check(HEAD, &BULK, &seal), Err(SealError::Forged), "a reflection");
    }

    #[test]
    fn where_order_is_kept_each_frame_has_its_turn() {
        let (mut sealer, mut opener) = pair(Protection::Frames, Order::Kept);
        let seals: Vec<_> = (0..3).map(|_| sealer.authenticate(HEAD, &BULK).expect("numbers")).collect();
        assert_eq!(opener.check(HEAD, &BULK, &seals[0]), Ok(true));
        assert_eq!(opener.check(HEAD, &BULK, &seals[0]), Err(SealError::OutOfTurn), "it came before");
        assert_eq!(opener.check(HEAD, &BULK, &seals[2]), Err(SealError::OutOfTurn), "one is missing");
        assert_eq!(opener.check(HEAD, &BULK, &seals[1]), Ok(true));
    }

    #[test]
    fn where_it_is_not_kept_each_is_taken_once() {
        let (mut sealer, mut opener) = pair(Protection::Frames, Order::Any);
        let seals: Vec<_> =
            (0..WINDOW + 2).map(|_| sealer.authenticate(HEAD, &BULK).expect("numbers")).collect();
        let mut take = |n: usize| opener.check(HEAD, &BULK, &seals[n]).expect("it is authentic");
        assert!(take(1) && take(0) && take(5) && take(3));
        assert!(!take(0) && !take(1) && !take(3) && !take(5));
        let newest = seals.len() - 1;
        assert!(take(newest) && !take(newest));
        assert!(!take(1) && take(2) && take(4) && !take(5), "those that fell out of the window are too old");
    }

    #[test]
    fn numbers_are_never_used_twice() {
        let (mut sealer, _) = pair(Protection::Frames, Order::Kept);
        sealer.next = FRAMES_MAX - 1;
        assert!(sealer.authenticate(HEAD, &BULK).is_ok());
        assert_eq!(sealer.authenticate(HEAD, &BULK), Err(SealError::Exhausted));
        assert_eq!(sealer.encrypt(&mut [], &mut []), Err(SealError::Exhausted));
    }
}
