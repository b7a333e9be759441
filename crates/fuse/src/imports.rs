//! What a mount finds of its sessions with targets, as the control attribute `weft.imports` and the tools say it.

use client::{Client, SlowOst};
use serde::{Deserialize, Serialize};

/// The attribute: [`Imports`] on any file of a mount.
pub const IMPORTS: &str = "weft.imports";

/// What a mount finds of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imports {
    /// Name of the file system.
    pub fsname: String,
    /// OSTs that are slower than the others, by what this mount wrote in the last minute.
    #[serde(default)]
    pub slow: Vec<Slow>,
}

/// An OST that is slower than the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// Its index.
    pub index: u32,
    /// What a MiB takes, in microseconds.
    pub takes_us: u64,
    /// The same of all OSTs.
    pub others_take_us: u64,
}

impl Slow {
    fn of(slow: &SlowOst) -> Slow {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Slow { index: slow.ost.0, takes_us: micros(slow.takes), others_take_us: micros(slow.others_take) }
    }
}

/// What `client` finds of its sessions.
pub fn told(client: &Client) -> Imports {
    let slow = client.admin().slow_osts().iter().map(Slow::of).collect();
    Imports { fsname: client.admin().fsname(), slow }
}
