//! Extended attributes of a file.

use bytes::Bytes;

use super::lock::Granted;
use crate::ids::Fid;
use crate::time::Timestamp;
use crate::types::Cred;
use crate::wire_struct;

wire_struct! {
    /// Asks for an extended attribute.
    pub struct GetXattr {
        /// The file.
        pub fid: Fid,
        /// Full name, for example `user.mime`.
        pub name: Bytes,
        /// Who asks.
        pub cred: Cred,
    }
}

wire_struct! {
    /// Value of an extended attribute.
    pub struct XattrValue {
        /// Bytes of any value.
        pub value: Bytes,
        /// What of this the client may keep.
        pub lock: Granted,
    }
}

/// The attribute must not exist (XATTR_CREATE).
pub const XATTR_CREATE: u32 = 1 << 0;
/// The attribute must exist (XATTR_REPLACE).
pub const XATTR_REPLACE: u32 = 1 << 1;

wire_struct! {
    /// Sets an extended attribute.
    pub struct SetXattr {
        /// The file.
        pub fid: Fid,
        /// Full name.
        pub name: Bytes,
        /// Value.
        pub value: Bytes,
        /// `XATTR_*` bits.
        pub flags: u32,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// Asks for the names of all extended attributes.
    pub struct ListXattr {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Names of extended attributes.
    pub struct XattrNames {
        /// Full names, sorted.
        pub names: Vec<Bytes>,
        /// What of this the client may keep.
        pub lock: Granted,
    }
}

wire_struct! {
    /// Takes an extended attribute away.
    pub struct RemoveXattr {
        /// The file.
        pub fid: Fid,
        /// Full name.
        pub name: Bytes,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}
