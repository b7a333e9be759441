//! Who a target is: written once by `format`.

use proto::{ClientId, FsName, Nid, TargetId};

/// The label in a target's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// File system that the target belongs to.
    pub fsname: FsName,
    /// Kind and index.
    pub target: TargetId,
    /// The target's own name.
    pub uuid: ClientId,
    /// Where the MGS is; empty for the MGS itself.
    pub mgs: Vec<Nid>,
}
