//! Whose a session is: a client's name is public, and a secret behind it shows whose name it is.
//!
//! A client draws the secret at its start and keeps it in memory only. Its id is a hash of the public half (Ed25519), so that a
//! server needs nothing but the id to check a proof, after a restart too. A proof is a signature over a number that only
//! one connection has ([`crate::seal::ConnectionKeys::binding`]): it is of no use on another one, for whoever heard it as for the server that
//! got it. Layout: `docs/wire.md#identity`.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use crate::ids::ClientId;

/// Bytes of a proof: public half and signature.
pub const IDENTITY_PROOF_BYTES: usize = PUBLIC_BYTES + SIGNATURE_BYTES;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

const PUBLIC_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
const LABEL_ID: &[u8] = b"weft client 1";
const LABEL_PROOF: &[u8] = b"weft client proves itself 1";

/// A client's secret. Never printed, sent or stored.
pub struct Identity {
    pair: Ed25519KeyPair,
    client: ClientId,
}

impl Identity {
    /// From 256 random bits.
    pub fn from_secret(secret: &[u8; SECRET_BYTES]) -> Identity {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).expect("a seed has 32 bytes");
        let client = id_of(pair.public_key().as_ref());
        Identity { pair, client }
    }

    /// The name that others know the client by.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Shows on one connection that the name is its own.
    pub fn prove(&self, binding: &[u8; 32]) -> [u8; IDENTITY_PROOF_BYTES] {
        let mut proof = [0; IDENTITY_PROOF_BYTES];
        proof[..PUBLIC_BYTES].copy_from_slice(self.pair.public_key().as_ref());
        proof[PUBLIC_BYTES..].copy_from_slice(self.pair.sign(&said(binding, self.client)).as_ref());
        proof
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({}, ..)", self.client)
    }
}

/// Whether `proof`, which came over the connection with this binding, shows that its sender is `client`.
pub fn is_proof(proof: &[u8], client: ClientId, binding: &[u8; 32]) -> bool {
    let Some((public, signature)) = proof.split_at_checked(PUBLIC_BYTES) else { return false };
    id_of(public) == client
        && UnparsedPublicKey::new(&ED25519, public).verify(&said(binding, client), signature).is_ok()
}

/// The first half of a hash, but never 0, which names nobody.
fn id_of(public: &[u8]) -> ClientId {
    let hash = Sha256::new().chain_update(LABEL_ID).chain_update(public).finalize();
    let id = hash.first_chunk().map_or(0, |half| u128::from_le_bytes(*half));
    ClientId(id.max(1))
}

fn said(binding: &[u8; 32], client: ClientId) -> Vec<u8> {
    [LABEL_PROOF, binding, &client.0.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let identity = Identity::from_secret(&[7; 32]);
        assert_eq!(identity.client().0, 219_299_746_108_670_885_915_740_141_754_540_315_580);
        let hash: [u8; 32] = Sha256::digest(identity.prove(&[9; 32])).into();
        assert_eq!(hash[..4], [83, 36, 198, 46]);
    }

    #[test]
    fn only_who_has_the_secret_is_believed_and_only_on_its_connection() {
        let (one, other) = (Identity::from_secret(&[1; 32]), Identity::from_secret(&[2; 32]));
        assert_ne!(one.client(), other.client());
        let (here, there) = ([3; 32], [4; 32]);
        let proof = one.prove(&here);
        assert!(is_proof(&proof, one.client(), &here));
        assert!(!is_proof(&proof, one.client(), &there), "heard on another connection");
        assert!(!is_proof(&proof, other.client(), &here), "another's name");
        assert!(!is_proof(&other.prove(&here), one.client(), &here), "a thief's own proof");
        let mixed = [&proof[..PUBLIC_BYTES], &other.prove(&here)[PUBLIC_BYTES..]].concat();
        assert!(!is_proof(&mixed, one.client(), &here), "the victim's public half, the thief's signature");
        for bad in [&b""[..], &proof[..40], &proof[..IDENTITY_PROOF_BYTES - 1], &[&proof[..], b"x"].concat()]
        {
            assert!(!is_proof(bad, one.client(), &here));
        }
        assert_eq!(format!("{one:?}"), format!("Identity({}, ..)", one.client()));
    }
}
