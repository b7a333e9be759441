//! Directories that this client removed: somebody may still work in one, and ask what it is.
//!
//! The MDT has forgotten them, unless they are open.

use std::collections::{BTreeMap, VecDeque};

use proto::{Attr, Fid};

use crate::order::{LEAF, Mutex};

/// Directories that are remembered; the oldest goes for the next one.
const DIRS_MAX: usize = 1024;

/// The last attributes of each.
#[derive(Default)]
pub(crate) struct Removed(Mutex<LEAF, Table>);

#[derive(Default)]
struct Table {
    attrs: BTreeMap<Fid, Attr>,
    order: VecDeque<Fid>,
}

impl Removed {
    /// Remembers a directory that had `attr` and has no name any more.
    pub(crate) fn put(&self, attr: Attr) {
        let mut table = self.0.lock();
        if table.order.len() >= DIRS_MAX
            && let Some(oldest) = table.order.pop_front()
        {
            table.attrs.remove(&oldest);
        }
        table.order.push_back(attr.fid);
        table.attrs.insert(attr.fid, Attr { nlink: 0, size: 0, ..attr });
    }

    /// What is known of a directory that was removed.
    pub(crate) fn get(&self, fid: Fid) -> Option<Attr> {
        self.0.lock().attrs.get(&fid).cloned()
    }
}
