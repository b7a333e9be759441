//! The two keys of a file system: the servers' and the clients'.

/// What a peer may do; told by the key that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers targets, destroys objects, sets parameters.
    Server,
    /// Uses files.
    Client,
}

/// 256 random bits. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

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
