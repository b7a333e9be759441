//! Data files that are kept open.

use std::collections::BTreeMap;

use rt::File;

use super::extent::FileId;

/// Data files that are kept open.
const HANDLES_MAX: usize = 128;

/// Open files, the least recently used closed first.
#[derive(Default)]
pub(super) struct Handles {
    open: BTreeMap<FileId, (File, u64)>,
    clock: u64,
}

impl Handles {
    /// The file, if it is open.
    pub fn get(&mut self, id: FileId) -> Option<File> {
        self.clock += 1;
        let (file, used) = self.open.get_mut(&id)?;
        *used = self.clock;
        Some(file.clone())
    }

    /// Keeps a file that was opened.
    pub fn put(&mut self, id: FileId, file: File) {
        if self.open.len() >= HANDLES_MAX {
            let oldest = self.open.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.open.remove(&oldest);
            }
        }
        self.clock += 1;
        self.open.insert(id, (file, self.clock));
    }

    /// The file is removed.
    pub fn forget(&mut self, id: FileId) {
        self.open.remove(&id);
    }
}
