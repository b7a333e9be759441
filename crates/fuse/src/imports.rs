//! A mount's sessions with targets, as the control attribute `weft.imports` and `lctl` say them.

use client::{Client, SlowOst};
use proto::TargetId;
use proto::session::Estimated;
use serde::{Deserialize, Serialize};

use crate::control::Kind;

/// The attribute: [`Imports`] on any file of a mount.
pub const IMPORTS: &str = "weft.imports";

/// Every session that there has been, MDTs first, then OSTs, by index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imports {
    /// Name of the file system.
    pub fsname: String,
    /// The sessions.
    pub imports: Vec<Import>,
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

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Kind of the target.
    pub kind: Kind,
    /// Its index.
    pub index: u32,
    /// The longest answer of the last ten minutes, in milliseconds.
    pub current_ms: u64,
    /// The longest of all, in milliseconds.
    pub worst_ms: u64,
    /// How long ago that was, in seconds; 0 if there was none.
    pub worst_ago_s: u64,
    /// The longest of each 150 s, the newest first, in milliseconds.
    pub parts_ms: Vec<u64>,
}

impl Import {
    /// The target.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }

    fn of(id: TargetId, answers: &Estimated) -> Import {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Import {
            kind: id.kind.into(),
            index: id.index,
            current_ms: millis(answers.current),
            worst_ms: millis(answers.worst),
            worst_ago_s: answers.worst_ago.as_secs(),
            parts_ms: answers.parts.iter().copied().map(millis).collect(),
        }
    }
}

/// The sessions of `client`.
pub fn told(client: &Client) -> Imports {
    let answers = client.admin().answers();
    let imports = answers.iter().map(|(id, answers)| Import::of(*id, answers)).collect();
    let slow = client.admin().slow_osts().iter().map(Slow::of).collect();
    Imports { fsname: client.admin().fsname(), imports, slow }
}
