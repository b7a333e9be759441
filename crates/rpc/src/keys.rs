//! The two keys of a file system: the servers' and the clients'.

use proto::auth::{KEY_BYTES, KeyKind};
use rt::Rt;

/// What a peer may do; told by the key that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Registers targets, destroys objects, sets parameters.
    Server,
    /// Uses files.
    Client,
}

impl Role {
    pub(crate) fn key_kind(self) -> KeyKind {
        match self {
            Role::Server => KeyKind::Server,
            Role::Client => KeyKind::Client,
        }
    }

    pub(crate) fn of(kind: KeyKind) -> Role {
        match kind {
            KeyKind::Server => Role::Server,
            KeyKind::Client => Role::Client,
        }
    }
}

/// 256 random bits. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_BYTES]);

/// A text that is not a key. It does not repeat the text: that may be most of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 64 hexadecimal digits")]
pub struct KeyParseError;

impl Key {
    /// A new key.
    pub fn generate(rt: &Rt) -> Key {
        let mut bytes = [0; KEY_BYTES];
        rt.random_bytes(&mut bytes);
        Key(bytes)
    }

    /// The key as 64 hexadecimal digits, for a key file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The inverse of [`Key::to_text`]; white space around the digits is allowed.
    pub fn from_text(text: &str) -> Result<Key, KeyParseError> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return Err(KeyParseError);
        }
        let digit = |c: u8| char::from(c).to_digit(16).ok_or(KeyParseError);
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Key(key))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys that a process has: a server both, a client only its own.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// The servers' key.
    pub server: Option<Key>,
    /// The clients' key.
    pub client: Option<Key>,
}

impl Keys {
    pub(crate) fn of(&self, role: Role) -> Option<&Key> {
        match role {
            Role::Server => self.server.as_ref(),
            Role::Client => self.client.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nothing_is_printed() {
        let mut bytes = [0; 32];
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = n as u8 * 7;
        }
        let key = Key(bytes);
        let text = key.to_text();
        assert_eq!(text.len(), 64);
        assert_eq!(Key::from_text(&format!(" {text}\n")), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "Key(..)");
        for bad in ["", "00", &text[1..], &format!("{}zz", &text[2..])] {
            assert_eq!(Key::from_text(bad), Err(KeyParseError));
        }
    }
}
