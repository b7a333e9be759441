//! ReadDir: a page of a directory.
//!
//! Entries come in the order of their hashes, and the hash is the position: it stays true whatever comes and goes
//! meanwhile. A page ends only between different hashes.

use proto::Code;
use proto::wire::messages::{DirEntry, DirPage, ReadDir};
use proto::wire::{Reply, Wire};

use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, Outcome, keys};
use crate::target::{Done, code_of};

/// Entries that one scan of the store brings.
const SCAN_COUNT: usize = 512;
/// Largest page in bytes, whatever the caller asks.
const BYTES_MAX: usize = 512 << 10;
/// Bytes that the encoding of one entry takes at most besides name and attributes.
const ENTRY_BYTES: usize = 8 + 1 + 16 + 4 + 1;
/// Bytes of the attributes of an entry, without a layout.
const ATTR_BYTES: usize = 128;

impl Mdt {
    pub(in crate::mdt) fn read_dir(&self, request: &ReadDir) -> Outcome {
        let dir = self.dir(request.fid)?;
        let mut page = DirPage { parent: dir.parent, entries: Vec::new(), end: false };
        self.fill(&dir, request, &mut page)?;
        Ok(Done::unchanged(Reply::ReadDir(page)))
    }

    fn fill(&self, dir: &Inode, request: &ReadDir, page: &mut DirPage) -> Result<(), Code> {
        let bytes_max = (request.bytes_max as usize).min(BYTES_MAX);
        let mut from = keys::entries_from(dir.fid, request.cookie.saturating_add(1));
        let until = keys::entries_end(dir.fid);
        let mut bytes = 0;
        loop {
            let found = self.store.scan(&from, &until, SCAN_COUNT).map_err(|error| code_of(&error))?;
            let Some((last, _)) = found.last() else {
                page.end = true;
                return Ok(());
            };
            from = last.to_vec();
            from.push(0);
            for (key, value) in &found {
                let parts = keys::entry_parts(key).zip(keys::entry_of(&value.bytes));
                let ((cookie, name), (fid, kind)) = parts.ok_or(Code::Corrupt)?;
                let inode = if request.plus { self.find_inode(fid)? } else { None };
                bytes += ENTRY_BYTES + name.as_bytes().len() + inode.as_ref().map_or(0, inode_bytes);
                let breaks = page.entries.last().is_some_and(|last| last.cookie != cookie);
                if breaks && bytes > bytes_max {
                    return Ok(());
                }
                let entry = inode.map(|inode| inode.entry());
                page.entries.push(DirEntry { cookie, name, fid, mode: kind.mode_bits(), entry });
            }
        }
    }
}

fn inode_bytes(inode: &Inode) -> usize {
    let layout = inode.layout.as_ref().map_or(0, |layout| {
        let mut encoded = Vec::with_capacity(64);
        layout.put(&mut encoded);
        encoded.len()
    });
    ATTR_BYTES + layout
}
