//! What those see who look on: what this client holds, and what it waits for. For diagnoses and for checkers.

use std::collections::BTreeMap;

use proto::{ClientId, DataTarget, Fid, ObjectId, TargetId};

use super::Admin;

/// Most characters of a line; what does not fit is cut off.
const LINE_CHARS_MAX: usize = 400;

/// What a client holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The session with each target that the client has had to do with; 0 before the first.
    pub sessions: BTreeMap<TargetId, u64>,
    /// Inode bits (`LOCK_*`) of files.
    pub bits: Vec<(Fid, u32)>,
    /// Ranges of objects.
    pub ranges: Vec<HeldRange>,
}

/// Bytes `start..end` of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRange {
    /// The target that has the object.
    pub target: DataTarget,
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// Whether they may be changed.
    pub write: bool,
}

impl Admin {
    /// As whom the client has its sessions.
    pub fn id(&self) -> ClientId {
        self.shared.targets.client()
    }

    /// What the client holds now.
    pub fn held(&self) -> Held {
        let (sessions, bits) = (self.shared.targets.sessions(), self.shared.names.meta.inodes.held());
        Held { sessions, bits, ranges: self.shared.names.data.locks.table.held() }
    }

    /// What the client waits for, a line for each: requests without a reply, callbacks without an answer, and what
    /// it knows of objects that somebody uses, asks for or gives back.
    pub fn waits(&self) -> Vec<String> {
        let mut lines = self.shared.targets.waits();
        lines.extend(self.shared.names.meta.recalls.waits());
        lines.extend(self.shared.names.data.locks.table.waits());
        for line in &mut lines {
            if let Some((cut, _)) = line.char_indices().nth(LINE_CHARS_MAX) {
                line.truncate(cut);
            }
        }
        lines
    }
}
