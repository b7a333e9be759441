//! Files whose objects could not be asked for the size: it is told later.

use std::collections::BTreeSet;

use proto::Fid;

use crate::order::{LEAF, Mutex};

/// Files that may wait. One more is told with its next close, or never, and its objects are asked meanwhile.
const FILES_MAX: usize = 4096;

/// Those files, while a task tells of them.
#[derive(Default)]
pub(super) struct Later(Mutex<LEAF, Option<BTreeSet<Fid>>>);

impl Later {
    /// Has a file told of; true if there is no task that does.
    pub(super) fn add(&self, fid: Fid) -> bool {
        let mut waiting = self.0.lock();
        let is_first = waiting.is_none();
        let files = waiting.get_or_insert_default();
        if files.len() < FILES_MAX {
            files.insert(fid);
        }
        is_first
    }

    /// For the task: what is due; `None` if there is nothing, and no task any more.
    pub(super) fn take(&self) -> Option<BTreeSet<Fid>> {
        let mut waiting = self.0.lock();
        let due = waiting.take().filter(|due| !due.is_empty())?;
        *waiting = Some(BTreeSet::new());
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_task_as_long_as_files_wait() {
        let (later, file) = (Later::default(), |oid| Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 });
        assert!(later.add(file(1)) && !later.add(file(2)) && !later.add(file(1)));
        assert_eq!(later.take().map(|due| due.len()), Some(2));
        assert!(!later.add(file(3)), "the task looks again");
        assert_eq!(later.take().map(|due| due.len()), Some(1));
        assert!(later.take().is_none() && later.add(file(1)), "it has ended");
        (0..2 * FILES_MAX as u32).for_each(|oid| _ = later.add(file(oid)));
        assert_eq!(later.take().map(|due| due.len()), Some(FILES_MAX));
    }
}
