//! Names: of directory entries and of file systems.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::limits::NAME_BYTES_MAX;

/// Name of a directory entry: 1 to 255 bytes of any value but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

/// Bytes that cannot name a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than 255 bytes.
    #[error("a name is longer than 255 bytes")]
    TooLong,
    /// Empty, `.`, `..`, or with `/` or NUL inside.
    #[error("a name is empty, \".\", \"..\" or holds a slash or a NUL")]
    Illegal,
}

impl Name {
    /// Checks `bytes` and makes them a name.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Name, NameError> {
        let bytes: Bytes = bytes.into();
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let illegal = bytes.is_empty()
            || bytes.as_ref() == b"."
            || bytes.as_ref() == b".."
            || bytes.iter().any(|&b| b == b'/' || b == 0);
        if illegal { Err(NameError::Illegal) } else { Ok(Name(bytes)) }
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name's bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Position of the name in its directory: a hash of 63 bits, above the two cookies that `.` and `..` use.
    ///
    /// This is a format: directory entries are sorted by it on disk (`docs/disk.md#entries`).
    pub fn hash(&self) -> u64 {
        let hash = xxhash_rust::xxh3::xxh3_64(&self.0) >> 1;
        hash.max(Self::HASH_MIN)
    }

    /// Smallest value of [`Name::hash`].
    pub const HASH_MIN: u64 = 16;
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Name of a file system: 1 to 8 letters, digits, `-` or `_`, as in Lustre.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsName(String);

/// A text that cannot name a file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" cannot name a file system; use 1 to 8 letters, digits, - or _")]
pub struct FsNameError(pub String);

impl FsName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FsName {
    type Err = FsNameError;

    fn from_str(text: &str) -> Result<FsName, FsNameError> {
        let sane = (1..=8).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if sane { Ok(FsName(text.to_owned())) } else { Err(FsNameError(text.to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(Name::new(&b"a\xff\n"[..]).is_ok());
        assert_eq!(Name::new(vec![b'x'; 256]), Err(NameError::TooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(NameError::Illegal));
        }
        assert!("weft".parse::<FsName>().is_ok());
        assert!("ninechars".parse::<FsName>().is_err());
    }

    #[test]
    fn hash_is_a_format() {
        let name = Name::new(&b"hello"[..]).expect("a plain name");
        assert_eq!(name.hash(), 5_380_381_168_995_757_694);
        assert!(name.hash() >> 63 == 0);
    }
}
