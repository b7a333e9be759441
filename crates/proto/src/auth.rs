//! Mutual authentication with a shared key, at the start of every connection.
//!
//! Four messages, specified byte by byte in `docs/wire.md#handshake`: Hello, HelloReply (with the acceptor's proof),
//! Proof, Welcome; or a Refusal in the place of any that comes after the Hello. A proof is an HMAC-SHA256 over all
//! that was said so far, so that neither names nor versions nor features can be changed on the way; each side has a
//! label of its own, so that a proof cannot be sent back. The Hello has one too, so that an acceptor keeps nothing for
//! strangers; it may be a repeated one, which the Proof shows. Both sides end with the same keys for the frames that
//! follow ([`crate::seal`]). Bytes in, bytes out: nothing here sends or waits.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::name::FsName;
use crate::seal::{ConnectionKeys, Protection};

/// Bytes of a key, a nonce and a proof.
pub const KEY_BYTES: usize = 32;
/// First four bytes of every message of the handshake.
pub const AUTH_MAGIC: [u8; 4] = *b"WFHS";
/// Bytes of a Hello. What a newer initiator puts behind them is covered by the proofs and otherwise ignored.
pub const HELLO_BYTES: usize = HELLO_PROVED_BYTES + KEY_BYTES;
/// Most bytes of one message of the handshake.
pub const MESSAGE_BYTES_MAX: usize = 1024;

const HELLO_PROVED_BYTES: usize = 80;
const HELLO_REPLY_BYTES: usize = 96;
const HELLO_REPLY_PROVED_BYTES: usize = 64;
const PROOF_BYTES: usize = 40;
const WELCOME_BYTES: usize = 8;
const REFUSAL_BYTES: usize = 16;
const FSNAME_FIELD_BYTES: usize = 16;

const KIND_HELLO: u8 = 1;
const KIND_HELLO_REPLY: u8 = 2;
const KIND_PROOF: u8 = 3;
const KIND_WELCOME: u8 = 4;
const KIND_REFUSAL: u8 = 5;

const LABEL_HELLO: &[u8] = b"weft handshake hello 1";
const LABEL_ACCEPTOR: &[u8] = b"weft handshake acceptor 1";
const LABEL_INITIATOR: &[u8] = b"weft handshake initiator 1";

/// Which of a file system's two keys a peer proves to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The servers'.
    Server,
    /// The clients'.
    Client,
}

impl KeyKind {
    fn to_u8(self) -> u8 {
        match self {
            KeyKind::Server => 1,
            KeyKind::Client => 2,
        }
    }

    fn from_u8(n: u8) -> Option<KeyKind> {
        match n {
            1 => Some(KeyKind::Server),
            2 => Some(KeyKind::Client),
            _ => None,
        }
    }
}

/// Versions of the protocol, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

/// Why a handshake failed, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The two sides hold different keys, or the acceptor has none of this kind.
    #[error("the server of file system {fsname} does not accept this key")]
    WrongKey {
        /// File system that was meant.
        fsname: String,
    },
    /// The acceptor belongs to another file system.
    #[error("the server at this address does not belong to file system {fsname}")]
    WrongFilesystem {
        /// File system that was meant.
        fsname: String,
    },
    /// No version is common.
    #[error(
        "this program speaks versions {} to {} of the protocol, the other side {} to {}",
        ours.min, ours.max, theirs.min, theirs.max
    )]
    Version {
        /// What this side speaks.
        ours: Versions,
        /// What the other side speaks.
        theirs: Versions,
    },
    /// Not a message of the handshake.
    #[error("the other side does not speak weft's protocol")]
    Nonsense,
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// The key that the initiator proved to hold.
    pub key: KeyKind,
    /// Version of the protocol on this connection.
    pub version: u16,
    /// Features of the transport that both sides have.
    pub features: u64,
    /// How the frames that follow are protected: as the side with the higher demands wants it.
    pub protection: Protection,
}

/// A failed handshake: what is still to be sent to the other side, and what to tell on this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// A last message for the other side, if it can understand one.
    pub send: Option<Vec<u8>>,
    /// Why.
    pub error: AuthError,
}

impl Failed {
    fn silent(error: AuthError) -> Failed {
        Failed { send: None, error }
    }
}

fn proof(key: &[u8; KEY_BYTES], label: &[u8], said: [&[u8]; 2]) -> [u8; KEY_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(label);
    for part in said {
        mac.update(&(part.len() as u32).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The proof in a Hello, over all else of it.
fn hello_proof(key: &[u8; KEY_BYTES], hello: &[u8]) -> [u8; KEY_BYTES] {
    proof(key, LABEL_HELLO, [&hello[..HELLO_PROVED_BYTES], &hello[HELLO_BYTES..]])
}

fn message(kind: u8, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    out[..4].copy_from_slice(&AUTH_MAGIC);
    out[4] = kind;
    out
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], AuthError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or(AuthError::Nonsense)
}

/// Kind of a message of the handshake.
fn kind_of(bytes: &[u8]) -> Result<u8, AuthError> {
    let magic: [u8; 4] = array(bytes, 0)?;
    if magic != AUTH_MAGIC || bytes.len() > MESSAGE_BYTES_MAX {
        return Err(AuthError::Nonsense);
    }
    array::<1>(bytes, 4).map(|[kind]| kind)
}

fn expect_message(bytes: &[u8], kind: u8, len: usize) -> Result<(), AuthError> {
    if kind_of(bytes)? == kind && bytes.len() >= len { Ok(()) } else { Err(AuthError::Nonsense) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    WrongFilesystem,
    Version,
    WrongKey,
    Nonsense,
}

fn refusal(reason: Reason, ours: Versions) -> Vec<u8> {
    let mut out = message(KIND_REFUSAL, REFUSAL_BYTES);
    out[5] = match reason {
        Reason::WrongFilesystem => 1,
        Reason::Version => 2,
        Reason::WrongKey => 3,
        Reason::Nonsense => 4,
    };
    out[6..8].copy_from_slice(&ours.min.to_le_bytes());
    out[8..10].copy_from_slice(&ours.max.to_le_bytes());
    out
}

fn take_refusal(bytes: &[u8], fsname: &str, ours: Versions) -> Result<AuthError, AuthError> {
    expect_message(bytes, KIND_REFUSAL, REFUSAL_BYTES)?;
    let theirs =
        Versions { min: u16::from_le_bytes(array(bytes, 6)?), max: u16::from_le_bytes(array(bytes, 8)?) };
    Ok(match bytes.get(5) {
        Some(1) => AuthError::WrongFilesystem { fsname: fsname.to_owned() },
        Some(2) => AuthError::Version { ours, theirs },
        Some(3) => AuthError::WrongKey { fsname: fsname.to_owned() },
        _ => AuthError::Nonsense,
    })
}

/// The side that connects.
pub struct Initiator {
    key: [u8; KEY_BYTES],
    kind: KeyKind,
    fsname: String,
    versions: Versions,
    protection: Protection,
    hello: Vec<u8>,
}

/// What an initiator says of itself.
#[derive(Clone, Copy)]
pub struct InitiatorConfig<'a> {
    /// The key.
    pub key: &'a [u8; KEY_BYTES],
    /// Which of the two it is.
    pub kind: KeyKind,
    /// File system that is meant.
    pub fsname: &'a FsName,
    /// Versions that this side speaks.
    pub versions: Versions,
    /// Features of the transport that this side has.
    pub features: u64,
    /// How frames are to be protected at least.
    pub protection: Protection,
    /// 256 random bits, never used before.
    pub nonce: [u8; KEY_BYTES],
}

/// An initiator that sent its proof.
pub struct InitiatorProved {
    fsname: String,
    versions: Versions,
    agreed: Agreed,
    keys: ConnectionKeys,
}

impl Initiator {
    /// Starts a handshake; gives the Hello to send.
    pub fn start(config: InitiatorConfig<'_>) -> (Initiator, Vec<u8>) {
        let mut hello = message(KIND_HELLO, HELLO_BYTES);
        hello[5] = config.kind.to_u8();
        hello[6..8].copy_from_slice(&config.versions.min.to_le_bytes());
        hello[8..10].copy_from_slice(&config.versions.max.to_le_bytes());
        let name = config.fsname.as_str().as_bytes();
        hello[16..16 + name.len()].copy_from_slice(name);
        hello[32..64].copy_from_slice(&config.nonce);
        hello[64..72].copy_from_slice(&config.features.to_le_bytes());
        hello[10] = config.protection.to_u8();
        let proved = hello_proof(config.key, &hello);
        hello[HELLO_PROVED_BYTES..].copy_from_slice(&proved);
        let initiator = Initiator {
            key: *config.key,
            kind: config.kind,
            fsname: config.fsname.as_str().to_owned(),
            versions: config.versions,
            protection: config.protection,
            hello: hello.clone(),
        };
        (initiator, hello)
    }

    /// The answer to the Hello came; gives the Proof to send.
    pub fn reply(self, bytes: &[u8]) -> Result<(InitiatorProved, Vec<u8>), Failed> {
        let kind = kind_of(bytes).map_err(Failed::silent)?;
        if kind == KIND_REFUSAL {
            let error = take_refusal(bytes, &self.fsname, self.versions).unwrap_or_else(|error| error);
            return Err(Failed::silent(error));
        }
        let agreed = self.check_reply(bytes).map_err(Failed::silent)?;
        let expected = proof(&self.key, LABEL_ACCEPTOR, [&self.hello, &bytes[..HELLO_REPLY_PROVED_BYTES]]);
        let given: [u8; KEY_BYTES] = array(bytes, HELLO_REPLY_PROVED_BYTES).map_err(Failed::silent)?;
        if !bool::from(expected.ct_eq(&given)) {
            let error = AuthError::WrongKey { fsname: self.fsname };
            return Err(Failed { send: Some(refusal(Reason::WrongKey, self.versions)), error });
        }
        let mut out = message(KIND_PROOF, PROOF_BYTES);
        out[8..].copy_from_slice(&proof(&self.key, LABEL_INITIATOR, [&self.hello, bytes]));
        let keys = ConnectionKeys::derive(&self.key, [&self.hello, bytes], agreed.protection);
        Ok((InitiatorProved { fsname: self.fsname, versions: self.versions, agreed, keys }, out))
    }

    fn check_reply(&self, bytes: &[u8]) -> Result<Agreed, AuthError> {
        expect_message(bytes, KIND_HELLO_REPLY, HELLO_REPLY_BYTES)?;
        let version = u16::from_le_bytes(array(bytes, 6)?);
        let features = u64::from_le_bytes(array(bytes, 8)?);
        let offered = u64::from_le_bytes(array(&self.hello, 64)?);
        let possible = (self.versions.min..=self.versions.max).contains(&version) && features & !offered == 0;
        let protection = Protection::from_u8(bytes[5]).filter(|protection| *protection >= self.protection);
        match protection {
            Some(protection) if possible => Ok(Agreed { key: self.kind, version, features, protection }),
            _ => Err(AuthError::Nonsense),
        }
    }
}

impl InitiatorProved {
    /// The answer to the Proof came: the connection is open, or refused.
    pub fn finish(self, bytes: &[u8]) -> Result<(Agreed, ConnectionKeys), AuthError> {
        if kind_of(bytes)? == KIND_REFUSAL {
            return Err(take_refusal(bytes, &self.fsname, self.versions)?);
        }
        expect_message(bytes, KIND_WELCOME, WELCOME_BYTES)?;
        Ok((self.agreed, self.keys))
    }
}

/// What an acceptor says of itself.
#[derive(Clone, Copy)]
pub struct AcceptorConfig<'a> {
    /// The servers' key, if this side has it.
    pub server_key: Option<&'a [u8; KEY_BYTES]>,
    /// The clients' key, if this side has it.
    pub client_key: Option<&'a [u8; KEY_BYTES]>,
    /// The file system.
    pub fsname: &'a FsName,
    /// Versions that this side speaks.
    pub versions: Versions,
    /// Features of the transport that this side has.
    pub features: u64,
    /// How frames are to be protected at least.
    pub protection: Protection,
    /// 256 random bits, never used before.
    pub nonce: [u8; KEY_BYTES],
}

/// The side that was connected to, after its HelloReply.
pub struct Acceptor {
    key: [u8; KEY_BYTES],
    fsname: String,
    versions: Versions,
    hello: Vec<u8>,
    reply: Vec<u8>,
    agreed: Agreed,
}

impl Acceptor {
    /// A Hello came; gives the HelloReply to send.
    pub fn start(config: AcceptorConfig<'_>, hello: &[u8]) -> Result<(Acceptor, Vec<u8>), Failed> {
        let fsname = config.fsname.as_str();
        let refuse = |reason, error| Err(Failed { send: Some(refusal(reason, config.versions)), error });
        // A stranger that does not speak the protocol gets no answer.
        expect_message(hello, KIND_HELLO, HELLO_BYTES).map_err(Failed::silent)?;
        let theirs = Versions {
            min: u16::from_le_bytes(array(hello, 6).map_err(Failed::silent)?),
            max: u16::from_le_bytes(array(hello, 8).map_err(Failed::silent)?),
        };
        let version = theirs.max.min(config.versions.max);
        if version < theirs.min.max(config.versions.min) {
            return refuse(Reason::Version, AuthError::Version { ours: config.versions, theirs });
        }
        let mut name = [0; FSNAME_FIELD_BYTES];
        name[..fsname.len()].copy_from_slice(fsname.as_bytes());
        if array::<FSNAME_FIELD_BYTES>(hello, 16).map_err(Failed::silent)? != name {
            return refuse(Reason::WrongFilesystem, AuthError::WrongFilesystem { fsname: fsname.to_owned() });
        }
        let Some(kind) = KeyKind::from_u8(hello[5]) else {
            return refuse(Reason::Nonsense, AuthError::Nonsense);
        };
        let key = match kind {
            KeyKind::Server => config.server_key,
            KeyKind::Client => config.client_key,
        };
        let Some(key) = key else {
            return refuse(Reason::WrongKey, AuthError::WrongKey { fsname: fsname.to_owned() });
        };
        let given: [u8; KEY_BYTES] = array(hello, HELLO_PROVED_BYTES).map_err(Failed::silent)?;
        if !bool::from(hello_proof(key, hello).ct_eq(&given)) {
            return refuse(Reason::WrongKey, AuthError::WrongKey { fsname: fsname.to_owned() });
        }
        let Some(protection) = Protection::from_u8(hello[10]) else {
            return refuse(Reason::Nonsense, AuthError::Nonsense);
        };
        let offered = u64::from_le_bytes(array(hello, 64).map_err(Failed::silent)?);
        let protection = protection.max(config.protection);
        let agreed = Agreed { key: kind, version, features: offered & config.features, protection };
        let mut reply = message(KIND_HELLO_REPLY, HELLO_REPLY_BYTES);
        reply[5] = protection.to_u8();
        reply[6..8].copy_from_slice(&version.to_le_bytes());
        reply[8..16].copy_from_slice(&agreed.features.to_le_bytes());
        reply[32..64].copy_from_slice(&config.nonce);
        let proved = proof(key, LABEL_ACCEPTOR, [hello, &reply[..HELLO_REPLY_PROVED_BYTES]]);
        reply[HELLO_REPLY_PROVED_BYTES..].copy_from_slice(&proved);
        let acceptor = Acceptor {
            key: *key,
            fsname: fsname.to_owned(),
            versions: config.versions,
            hello: hello.to_vec(),
            reply: reply.clone(),
            agreed,
        };
        Ok((acceptor, reply))
    }

    /// The Proof came; gives the Welcome to send.
    pub fn finish(self, bytes: &[u8]) -> Result<(Agreed, ConnectionKeys, Vec<u8>), Failed> {
        if kind_of(bytes).map_err(Failed::silent)? == KIND_REFUSAL {
            let error = take_refusal(bytes, &self.fsname, self.versions).unwrap_or_else(|error| error);
            return Err(Failed::silent(error));
        }
        expect_message(bytes, KIND_PROOF, PROOF_BYTES).map_err(Failed::silent)?;
        let expected = proof(&self.key, LABEL_INITIATOR, [&self.hello, &self.reply]);
        let given: [u8; KEY_BYTES] = array(bytes, 8).map_err(Failed::silent)?;
        if !bool::from(expected.ct_eq(&given)) {
            let error = AuthError::WrongKey { fsname: self.fsname };
            return Err(Failed { send: Some(refusal(Reason::WrongKey, self.versions)), error });
        }
        let keys = ConnectionKeys::derive(&self.key, [&self.hello, &self.reply], self.agreed.protection);
        Ok((self.agreed, keys, message(KIND_WELCOME, WELCOME_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: [u8; 32] = [1; 32];
    const CLIENT: [u8; 32] = [2; 32];
    const V1: Versions = Versions { min: 1, max: 1 };

    fn name(text: &str) -> FsName {
        text.parse().expect("a file system name")
    }

    struct Case {
        key: [u8; 32],
        kind: KeyKind,
        fsname: &'static str,
        versions: Versions,
        acceptor_client_key: Option<[u8; 32]>,
        protection: Protection,
    }

    const GOOD: Case = Case {
        key: CLIENT,
        kind: KeyKind::Client,
        fsname: "weft",
        versions: V1,
        acceptor_client_key: Some(CLIENT),
        protection: Protection::Frames,
    };

    /// Runs a handshake; `bend` may change each message on its way.
    fn run(
        case: &Case,
        mut bend: impl FnMut(usize, &mut Vec<u8>),
    ) -> (Result<Agreed, AuthError>, Result<Agreed, AuthError>) {
        let server_name = name("weft");
        let config = InitiatorConfig {
            key: &case.key,
            kind: case.kind,
            fsname: &name(case.fsname),
            versions: case.versions,
            features: 0b11,
            protection: case.protection,
            nonce: [7; 32],
        };
        let (initiator, mut hello) = Initiator::start(config);
        bend(0, &mut hello);
        let config = AcceptorConfig {
            server_key: Some(&SERVER),
            client_key: case.acceptor_client_key.as_ref(),
            fsname: &server_name,
            versions: Versions { min: 1, max: 3 },
            features: 0b10,
            protection: Protection::Heads,
            nonce: [8; 32],
        };
        let (acceptor, mut reply) = match Acceptor::start(config, &hello) {
            Ok(step) => step,
            Err(failed) => {
                let there = match failed.send {
                    Some(bytes) => initiator.reply(&bytes).err().map(|f| f.error),
                    None => None,
                };
                return (Err(there.unwrap_or(AuthError::Nonsense)), Err(failed.error));
            }
        };
        bend(1, &mut reply);
        let (proved, mut proof) = match initiator.reply(&reply) {
            Ok(step) => step,
            Err(failed) => {
                let here = failed.send.map_or(AuthError::Nonsense, |bytes| {
                    acceptor.finish(&bytes).expect_err("a refusal ends the handshake").error
                });
                return (Err(failed.error), Err(here));
            }
        };
        bend(2, &mut proof);
        match acceptor.finish(&proof) {
            Ok((agreed, keys, mut welcome)) => {
                bend(3, &mut welcome);
                let there = proved.finish(&welcome).map(|(agreed, theirs)| {
                    assert_eq!(theirs.binding(), keys.binding(), "both have the same keys");
                    agreed
                });
                (there, Ok(agreed))
            }
            Err(failed) => {
                let there = failed.send.map_or(Err(AuthError::Nonsense), |bytes| {
                    proved.finish(&bytes).map(|(agreed, _)| agreed)
                });
                (there, Err(failed.error))
            }
        }
    }

    #[test]
    fn the_right_key_opens_and_tells_the_role() {
        let protection = Protection::Frames;
        let agreed = Agreed { key: KeyKind::Client, version: 1, features: 0b10, protection };
        assert_eq!(run(&GOOD, |_, _| {}), (Ok(agreed), Ok(agreed)));
        let server = Case { key: SERVER, kind: KeyKind::Server, ..GOOD };
        let agreed = Agreed { key: KeyKind::Server, ..agreed };
        assert_eq!(run(&server, |_, _| {}), (Ok(agreed), Ok(agreed)));
    }

    #[test]
    fn every_failure_is_one_clear_sentence() {
        let weft = || "weft".to_owned();
        let wrong_key = AuthError::WrongKey { fsname: weft() };
        assert_eq!(wrong_key.to_string(), "the server of file system weft does not accept this key");
        let both = |error: AuthError| (Err(error.clone()), Err(error));
        assert_eq!(run(&Case { key: [9; 32], ..GOOD }, |_, _| {}), both(wrong_key.clone()));
        // A client's key does not make a server.
        assert_eq!(run(&Case { kind: KeyKind::Server, ..GOOD }, |_, _| {}), both(wrong_key.clone()));
        assert_eq!(run(&Case { acceptor_client_key: None, ..GOOD }, |_, _| {}), both(wrong_key));
        let (there, _) = run(&Case { fsname: "other", ..GOOD }, |_, _| {});
        assert_eq!(there, Err(AuthError::WrongFilesystem { fsname: "other".into() }));
        let (there, here) = run(&Case { versions: Versions { min: 4, max: 9 }, ..GOOD }, |_, _| {});
        let (old, new) = (Versions { min: 1, max: 3 }, Versions { min: 4, max: 9 });
        assert_eq!(there, Err(AuthError::Version { ours: new, theirs: old }));
        assert_eq!(here, Err(AuthError::Version { ours: old, theirs: new }));
    }

    #[test]
    fn nothing_that_changes_on_the_way_is_accepted() {
        // Every bit that the proofs cover; the Welcome carries none.
        for step in 0..3 {
            let mut len = 0;
            let (there, here) = run(&GOOD, |n, message| {
                if n == step {
                    len = message.len();
                }
            });
            assert!(there.is_ok() && here.is_ok());
            for bit in 0..len * 8 {
                // Padding of the Proof means nothing.
                if step == 2 && (40..64).contains(&bit) {
                    continue;
                }
                let (there, here) = run(&GOOD, |n, message| {
                    if n == step {
                        message[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                assert!(there.is_err() || here.is_err(), "message {step}, bit {bit}");
                assert!(here.is_err(), "the acceptor let in: message {step}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_longer_hello_of_a_newer_peer_is_read() {
        let config = AcceptorConfig {
            server_key: None,
            client_key: Some(&CLIENT),
            fsname: &name("weft"),
            versions: V1,
            features: 0,
            protection: Protection::Plain,
            nonce: [8; 32],
        };
        let start = InitiatorConfig {
            key: &CLIENT,
            kind: KeyKind::Client,
            fsname: &name("weft"),
            versions: V1,
            features: 0,
            protection: Protection::Plain,
            nonce: [7; 32],
        };
        let (_, mut hello) = Initiator::start(start);
        assert!(Acceptor::start(config, &hello).is_ok());
        assert!(Acceptor::start(config, &hello[..HELLO_BYTES - 1]).is_err());
        hello.extend_from_slice(&[1; 100]);
        assert!(Acceptor::start(config, &hello).is_err(), "nobody adds anything on the way");
        let proved = hello_proof(&CLIENT, &hello);
        hello[HELLO_PROVED_BYTES..HELLO_BYTES].copy_from_slice(&proved);
        assert!(Acceptor::start(config, &hello).is_ok());
    }

    #[test]
    fn proofs_do_not_reflect() {
        let said: [&[u8]; 2] = [b"hello", b"reply"];
        assert_ne!(proof(&CLIENT, LABEL_ACCEPTOR, said), proof(&CLIENT, LABEL_INITIATOR, said));
        assert_ne!(
            proof(&CLIENT, LABEL_ACCEPTOR, [b"ab", b"c"]),
            proof(&CLIENT, LABEL_ACCEPTOR, [b"a", b"bc"])
        );
    }

    #[test]
    fn a_hello_proves_the_key_before_anything_is_kept() {
        let wrong = Case { key: [9; 32], ..GOOD };
        let mut messages = 0;
        let (there, here) = run(&wrong, |_, _| messages += 1);
        assert_eq!(messages, 1, "the acceptor made nothing but a refusal");
        assert!(matches!((there, here), (Err(AuthError::WrongKey { .. }), Err(AuthError::WrongKey { .. }))));
    }

    #[test]
    fn the_higher_demand_counts_and_nobody_on_the_way_lowers_it() {
        let with = |protection| Case { protection, ..GOOD };
        let cases = [
            (Protection::Plain, Protection::Heads),
            (Protection::Heads, Protection::Heads),
            (Protection::Frames, Protection::Frames),
            (Protection::Encrypted, Protection::Encrypted),
        ];
        for (wanted, agreed) in cases {
            let (there, here) = run(&with(wanted), |_, _| {});
            assert_eq!(there.map(|agreed| agreed.protection), Ok(agreed));
            assert_eq!(here.map(|agreed| agreed.protection), Ok(agreed));
        }
        let lower = |step, at| {
            run(&with(Protection::Frames), |n, message| {
                if n == step {
                    message[at] = Protection::Plain.to_u8();
                }
            })
        };
        for (step, at) in [(0, 10), (1, 5)] {
            let (there, here) = lower(step, at);
            assert!(there.is_err() && here.is_err());
        }
    }
}
