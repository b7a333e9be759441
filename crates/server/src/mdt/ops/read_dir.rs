//! ReadDir: a page of a directory.
//!
//! Entries come in the order of their hashes, and the hash is the position: it stays true whatever comes and goes
//! meanwhile. A page ends only between different hashes.

use proto::Code;
use proto::wire::messages::{DirEntry, DirPage, Granted, LOCK_LOOKUP, LOCK_UPDATE, ReadDir};
use proto::wire::{Reply, Wire};
use service::{Done, code_of};

use crate::mdt::bits::Grant;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_NAME;
use crate::mdt::plan::Step;
use crate::mdt::sharing::Key;
use crate::mdt::{Ctx, Mdt, Outcome, keys};

/// Entries that one scan of the store brings.
const SCAN_COUNT: usize = 512;
/// Largest page in bytes, whatever the caller asks.
const BYTES_MAX: usize = 512 << 10;
/// Bytes that the encoding of one entry takes at most besides name and attributes.
const ENTRY_BYTES: usize = 4 + 8 + 1 + 16 + 4 + 1;
/// Bytes of the attributes and the lock of an entry, without a layout.
const ATTR_BYTES: usize = 156;

pub(in crate::mdt) fn read_dir(mdt: &Mdt, ctx: &Ctx, request: &ReadDir) -> Outcome {
    let found = mdt.grants.read_and_keep(ctx, request.fid, LOCK_UPDATE, || {
        let Some(dir) = mdt.names.find_inode(ctx, request.fid)? else { return Ok(None) };
        if !dir.is_dir() {
            return Err(Code::NotDirectory.into());
        }
        let mut page =
            DirPage { parent: dir.parent, entries: Vec::new(), end: false, lock: Granted::default() };
        fill(mdt, ctx, &dir, request, &mut page)?;
        check_names(mdt, ctx, &dir, &mut page)?;
        Ok(Some((dir, page)))
    })?;
    let (_, page, Grant { lock, .. }) = found.ok_or(Code::Stale)?;
    Ok(Done::unchanged(Reply::ReadDir(DirPage { lock, ..page })))
}

/// The entries were read before what they name was granted: names that have changed since cannot be kept.
fn check_names(mdt: &Mdt, ctx: &Ctx, dir: &Inode, page: &mut DirPage) -> Step<()> {
    // Every change of an entry changes the directory, and last.
    if mdt.names.find_inode(ctx, dir.fid)?.is_some_and(|now| now.version == dir.version) {
        return Ok(());
    }
    for entry in &mut page.entries {
        let Some(named) = entry.entry.as_mut().filter(|named| named.lock.bits != 0) else { continue };
        if mdt.names.find_entry(ctx, dir.fid, &entry.name)?.is_none_or(|(now, _)| now != entry.fid) {
            named.lock.bits &= !LOCK_LOOKUP;
        }
    }
    Ok(())
}

fn fill(mdt: &Mdt, ctx: &Ctx, dir: &Inode, request: &ReadDir, page: &mut DirPage) -> Step<()> {
    let bytes_max = (request.bytes_max as usize).min(BYTES_MAX);
    let mut from = keys::entries_from(dir.fid, request.cookie.saturating_add(1));
    let until = keys::entries_end(dir.fid);
    let mut bytes = 0;
    loop {
        let found = mdt.store.scan(&from, &until, SCAN_COUNT).map_err(|error| code_of(&error))?;
        ctx.saw(Key::entries(dir.fid));
        let Some((last, _)) = found.last() else {
            page.end = true;
            return Ok(());
        };
        from = last.to_vec();
        from.push(0);
        for (key, value) in &found {
            let parts = keys::entry_parts(key).zip(keys::entry_of(&value.bytes));
            let ((cookie, name), (fid, kind)) = parts.ok_or(Code::Corrupt)?;
            // A listing takes no directory away from who has it to itself: it is asked for if that is wanted.
            let shows = request.plus && ctx.settled(fid).is_ok();
            let kept = if shows { mdt.find_and_keep(ctx, fid, KEEP_NAME)? } else { None };
            let inode = kept.as_ref().map_or(0, |(inode, _)| inode_bytes(inode));
            bytes += ENTRY_BYTES + name.as_bytes().len() + inode;
            let breaks = page.entries.last().is_some_and(|last| last.cookie != cookie);
            if breaks && bytes > bytes_max {
                if let Some((_, grant)) = kept {
                    mdt.grants.bits.untold(ctx.session().handle(), fid, grant, grant.lock.bits);
                }
                return Ok(());
            }
            let entry = kept.map(|(inode, grant)| inode.entry_kept(grant.lock));
            page.entries.push(DirEntry { cookie, name, fid, mode: kind.mode_bits(), entry });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::World;
    use proto::Fid;

    #[test]
    fn every_entry_comes_once_while_the_directory_changes() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        for n in 0..200 {
            client.file(dir, &format!("stays{n}"));
            client.file(dir, &format!("goes{n}"));
        }
        let mut seen = Vec::new();
        let mut cookie = 0;
        for round in 0.. {
            let page = client.call(ReadDir { fid: dir, cookie, bytes_max: 2000, plus: round % 2 == 0 });
            let page = page.expect("a directory");
            assert_eq!(page.parent, Fid::ROOT);
            assert!(page.entries.is_sorted_by_key(|entry| entry.cookie));
            assert!(page.entries.iter().all(|entry| entry.entry.is_some() == (round % 2 == 0)));
            seen.extend(page.entries.iter().map(|e| String::from_utf8_lossy(e.name.as_bytes()).into_owned()));
            client.file(dir, &format!("new{round}"));
            client.unlink(dir, &format!("goes{round}")).expect("it was there");
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => break,
            }
        }
        let mut stays: Vec<_> = seen.iter().filter(|name| name.starts_with("stays")).collect();
        stays.sort();
        stays.dedup();
        assert_eq!(stays.len(), 200);
        let unique: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len());
    }

    #[test]
    fn a_page_keeps_its_size() {
        let world = World::new();
        let client = world.client(1);
        for n in 0..100 {
            client.file(Fid::ROOT, &format!("file{n}"));
        }
        let page = client.call(ReadDir { fid: Fid::ROOT, cookie: 0, bytes_max: 3000, plus: true });
        let page = page.expect("a directory");
        let mut encoded = Vec::new();
        page.put(&mut encoded);
        assert!((1500..3100).contains(&encoded.len()), "{} bytes", encoded.len());
        let all = client.call(ReadDir { fid: Fid::ROOT, cookie: 0, bytes_max: u32::MAX, plus: false });
        assert_eq!(all.map(|page| (page.entries.len(), page.end)), Ok((100, true)));
        let file = client.lookup(Fid::ROOT, "file1").expect("it was made").fid;
        let refused = client.call(ReadDir { fid: file, cookie: 0, bytes_max: 1, plus: false });
        assert_eq!(refused, Err(Code::NotDirectory));
    }
}
