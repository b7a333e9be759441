//! What a machine is told to do, and what it says: lines over the standard input and output of `weft burst on-node`. The machine says
//! [`HELLO`] first. Nothing is sent to one that comes when nobody waits for it any more.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a machine says first; what comes before it is a shell's.
pub const HELLO: &str = "weft burst on-node 1";

/// A step on one machine. It holds keys, so it is not printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Order {
    /// Name of the file system.
    pub fsname: String,
    /// Where a directory for it is made, and removed.
    pub data: PathBuf,
    /// The number of the start that it is about; any if there is none.
    pub start: Option<u64>,
    /// Its own number, which the report repeats.
    pub number: u64,
    /// So many seconds the machine may take.
    pub wait_s: u64,
    /// What is to be done.
    pub step: Step,
}

/// The steps, in their order.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Make the targets and serve them.
    Serve(Serve),
    /// Mount the file system.
    Mount(Mount),
    /// Take the mount away, if nobody uses it.
    Unmount,
    /// Take the mount away in any case, end what serves, and remove its data.
    Remove,
}

/// Targets of a machine.
#[derive(Clone, Serialize, Deserialize)]
pub struct Serve {
    /// The machine's name.
    pub server: String,
    /// Its address.
    pub nid: String,
    /// Where the MGS is; nowhere else if this machine has it, and the MDT.
    pub mgs: Option<String>,
    /// Indexes of its OSTs.
    pub osts: Vec<u32>,
    /// The servers' key, 64 hexadecimal digits.
    pub server_key: String,
    /// The clients' key.
    pub client_key: String,
    /// Most memory that the server may hold.
    pub mem_limit_mb: Option<u32>,
}

/// A mount.
#[derive(Clone, Serialize, Deserialize)]
pub struct Mount {
    /// Where the MGS is.
    pub mgs: String,
    /// Where it is mounted; made if missing.
    pub mountpoint: PathBuf,
    /// Mount options.
    pub options: String,
    /// Whose the root directory is to be; the user's who mounts it if nobody is named.
    pub owner: Option<(u32, u32)>,
    /// This machine gives the root directory to them.
    pub gives_root: bool,
}

/// What a machine says at the end.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Of the order.
    pub number: u64,
    /// Why the step is not done.
    pub error: Option<String>,
}
