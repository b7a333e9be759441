//! What an operator has switched for a target of a mount: whether it is asked (`osc.*.active`), and whether data has a checksum on its way
//! (`osc.*.checksums`). It holds for targets that were not used yet, too.

use std::collections::BTreeSet;

use proto::{Code, TargetId};

use crate::order::{LEAF, Mutex};

/// The switches of all targets; each is on at first.
#[derive(Default)]
pub(crate) struct Switches {
    inactive: Mutex<LEAF, BTreeSet<TargetId>>,
    unchecked: Mutex<LEAF, BTreeSet<TargetId>>,
}

impl Switches {
    /// Whether the target may be asked.
    pub(crate) fn is_active(&self, id: TargetId) -> bool {
        !self.inactive.lock().contains(&id)
    }

    /// Why nobody asks it.
    pub(super) fn bar_of(&self, id: TargetId) -> Option<Code> {
        (!self.is_active(id)).then_some(Code::Inactive)
    }

    pub(super) fn set_active(&self, id: TargetId, active: bool) {
        set(&mut self.inactive.lock(), id, !active);
    }

    /// Whether data has a checksum on its way to the target and back, where it is not authenticated.
    pub(crate) fn has_checksums(&self, id: TargetId) -> bool {
        !self.unchecked.lock().contains(&id)
    }

    pub(super) fn set_checksums(&self, id: TargetId, on: bool) {
        set(&mut self.unchecked.lock(), id, !on);
    }
}

fn set(among: &mut BTreeSet<TargetId>, id: TargetId, is_in: bool) {
    if is_in {
        among.insert(id);
    } else {
        among.remove(&id);
    }
}
