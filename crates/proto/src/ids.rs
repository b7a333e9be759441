//! Identifiers. Each is a type of its own so that no two can be confused.

use std::fmt;
use std::str::FromStr;

use crate::limits::{OID_BITS, SEQ_BITS};

/// File identifier, never used twice in the life of a file system.
///
/// Printed as Lustre prints it: `[0x200000400:0x1:0x0]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fid {
    /// Sequence: granted by an MDT to one session of one client.
    pub seq: u64,
    /// Object within the sequence, from 1.
    pub oid: u32,
    /// Version; 0 today.
    pub ver: u32,
}

impl Fid {
    /// No file at all.
    pub const ZERO: Fid = Fid { seq: 0, oid: 0, ver: 0 };
    /// The root directory (the number that Lustre uses too).
    pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
    /// First sequence that an MDT grants to clients.
    pub const SEQ_NORMAL_START: u64 = 0x2_0000_0400;
    /// Largest object id within a sequence.
    pub const OID_MAX: u32 = (1 << OID_BITS) - 1;

    /// The FID's inode number: the packed FID.
    pub fn ino(self) -> Ino {
        Ino((self.seq << OID_BITS) | u64::from(self.oid))
    }

    /// Whether the FID can name a file: its fields are within their bits and not zero.
    pub fn is_sane(self) -> bool {
        self.seq != 0
            && self.seq >> SEQ_BITS == 0
            && self.oid != 0
            && self.oid <= Self::OID_MAX
            && self.ver == 0
    }

    /// 16 bytes that sort as (seq, oid, ver).
    pub fn to_key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.seq.to_be_bytes());
        key[8..12].copy_from_slice(&self.oid.to_be_bytes());
        key[12..].copy_from_slice(&self.ver.to_be_bytes());
        key
    }

    /// The inverse of [`Fid::to_key`]; `None` if `key` is shorter than 16 bytes.
    pub fn from_key(key: &[u8]) -> Option<Fid> {
        let (seq, rest) = key.split_first_chunk::<8>()?;
        let (oid, rest) = rest.split_first_chunk::<4>()?;
        let (ver, _) = rest.split_first_chunk::<4>()?;
        Some(Fid {
            seq: u64::from_be_bytes(*seq),
            oid: u32::from_be_bytes(*oid),
            ver: u32::from_be_bytes(*ver),
        })
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a FID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a FID looks like [0x200000400:0x1:0x0]")]
pub struct FidParseError;

impl FromStr for Fid {
    type Err = FidParseError;

    /// Parses `[0x200000400:0x1:0x0]`, with or without the brackets.
    fn from_str(text: &str) -> Result<Fid, FidParseError> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let mut parts = inner.split(':').map(|part| {
            let digits = part.strip_prefix("0x").ok_or(FidParseError)?;
            u64::from_str_radix(digits, 16).map_err(|_| FidParseError)
        });
        let mut next = || parts.next().ok_or(FidParseError)?;
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(FidParseError);
        }
        Ok(Fid {
            seq,
            oid: u32::try_from(oid).map_err(|_| FidParseError)?,
            ver: u32::try_from(ver).map_err(|_| FidParseError)?,
        })
    }
}

/// Inode number as the kernel sees it: a packed [`Fid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The FID that was packed.
    pub fn fid(self) -> Fid {
        Fid { seq: self.0 >> OID_BITS, oid: (self.0 & u64::from(Fid::OID_MAX)) as u32, ver: 0 }
    }
}

/// The data of one stripe of one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Layout id: a FID that never names two layouts.
    pub layout: Fid,
    /// Stripe within the layout, from 0.
    pub stripe: u32,
}

/// Number of a request within a session; grows by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Xid(pub u64);

/// Commit order number that a target gives to each change; 0 is "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Transno(pub u64);

/// Name of one run of a client or of a target; random, 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u128);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// Configuration and membership.
    Mgs,
    /// A shard of the name space.
    Mdt,
    /// A store of objects.
    Ost,
}

impl TargetKind {
    /// The number that travels and lies on disk.
    pub fn to_u8(self) -> u8 {
        match self {
            TargetKind::Mgs => 1,
            TargetKind::Mdt => 2,
            TargetKind::Ost => 3,
        }
    }

    /// The inverse of [`TargetKind::to_u8`].
    pub fn from_u8(n: u8) -> Option<TargetKind> {
        match n {
            1 => Some(TargetKind::Mgs),
            2 => Some(TargetKind::Mdt),
            3 => Some(TargetKind::Ost),
            _ => None,
        }
    }
}

/// Index of an OST. Indexes may be sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OstIndex(pub u32);

/// Index of an MDT. Indexes may be sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MdtIndex(pub u32);

macro_rules! index {
    ($name:ident) => {
        impl From<u32> for $name {
            fn from(index: u32) -> $name {
                $name(index)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

index!(OstIndex);
index!(MdtIndex);

/// The MDT that has a file, or the names in a directory: the first one, until there are several.
pub fn mdt_of(_fid: Fid) -> MdtIndex {
    MdtIndex(0)
}

/// A target that holds data of files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataTarget {
    /// An OST: what files are striped over.
    Ost(OstIndex),
    /// An MDT: small files, beside their inodes.
    Mdt(MdtIndex),
}

impl DataTarget {
    /// The OST, if it is one.
    pub fn ost(self) -> Option<OstIndex> {
        match self {
            DataTarget::Ost(index) => Some(index),
            DataTarget::Mdt(_) => None,
        }
    }
}

impl From<MdtIndex> for DataTarget {
    fn from(index: MdtIndex) -> DataTarget {
        DataTarget::Mdt(index)
    }
}

impl From<OstIndex> for DataTarget {
    fn from(index: OstIndex) -> DataTarget {
        DataTarget::Ost(index)
    }
}

impl fmt::Display for DataTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&TargetId::from(*self), f)
    }
}

impl fmt::Debug for DataTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<DataTarget> for TargetId {
    fn from(target: DataTarget) -> TargetId {
        match target {
            DataTarget::Ost(index) => TargetId::ost(index),
            DataTarget::Mdt(index) => TargetId::mdt(index),
        }
    }
}

impl TryFrom<TargetId> for DataTarget {
    type Error = TargetId;

    /// The target, given back if it never holds data.
    fn try_from(target: TargetId) -> Result<DataTarget, TargetId> {
        match target.kind {
            TargetKind::Ost => Ok(DataTarget::Ost(OstIndex(target.index))),
            TargetKind::Mdt => Ok(DataTarget::Mdt(MdtIndex(target.index))),
            TargetKind::Mgs => Err(target),
        }
    }
}

/// One target of a file system: its kind and its index. Indexes may be sparse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    /// Kind of target.
    pub kind: TargetKind,
    /// Index among the targets of its kind; 0 for the MGS.
    pub index: u32,
}

impl TargetId {
    /// The management server.
    pub const MGS: TargetId = TargetId { kind: TargetKind::Mgs, index: 0 };

    /// The MDT with this index.
    pub fn mdt(index: impl Into<MdtIndex>) -> TargetId {
        TargetId { kind: TargetKind::Mdt, index: index.into().0 }
    }

    /// The OST with this index.
    pub fn ost(index: impl Into<OstIndex>) -> TargetId {
        TargetId { kind: TargetKind::Ost, index: index.into().0 }
    }

    /// The index of an OST; `None` for other targets.
    pub fn ost_index(self) -> Option<OstIndex> {
        (self.kind == TargetKind::Ost).then_some(OstIndex(self.index))
    }
}

impl fmt::Display for TargetId {
    /// `MDT0000`, `OST001f`: hexadecimal, four digits or more, as in Lustre.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TargetKind::Mgs => write!(f, "MGS"),
            TargetKind::Mdt => write!(f, "MDT{:04x}", self.index),
            TargetKind::Ost => write!(f, "OST{:04x}", self.index),
        }
    }
}

/// A text that names no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a target looks like OST001f")]
pub struct TargetIdParseError;

impl FromStr for TargetId {
    type Err = TargetIdParseError;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<TargetId, TargetIdParseError> {
        let (kind, index) = text.split_at_checked(3).ok_or(TargetIdParseError)?;
        let index = || u32::from_str_radix(index, 16).map_err(|_| TargetIdParseError);
        match kind {
            "MGS" if text.len() == 3 => Ok(TargetId::MGS),
            "MDT" => Ok(TargetId::mdt(index()?)),
            "OST" => Ok(TargetId::ost(index()?)),
            _ => Err(TargetIdParseError),
        }
    }
}

impl fmt::Debug for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fid_text_and_ino_round_trip() {
        let fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        assert_eq!(fid.to_string(), "[0x200000400:0x1:0x0]");
        assert_eq!("[0x200000400:0x1:0x0]".parse(), Ok(fid));
        assert_eq!("0x200000400:0x1:0x0".parse(), Ok(fid));
        assert_eq!(fid.ino().fid(), fid);
        assert_eq!(Fid::from_key(&fid.to_key()), Some(fid));
        for bad in ["", "[]", "[0x1:0x2]", "[0x1:0x2:0x3:0x4]", "[1:2:3]", "[0x1:0x1ffffffff:0x0]"] {
            assert_eq!(bad.parse::<Fid>(), Err(FidParseError), "{bad}");
        }
    }

    #[test]
    fn target_names() {
        assert_eq!(TargetId::ost(31).to_string(), "OST001f");
        assert_eq!(TargetId::mdt(0).to_string(), "MDT0000");
    }
}
