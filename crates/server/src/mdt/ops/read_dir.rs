//! ReadDir: a page of a directory.
//!
//! Entries come in the order of their hashes, and of their names within a hash. The hash is the position, and with it
//! a name, if a page ends within equal hashes: both stay true whatever comes and goes meanwhile. Anybody can make names
//! of one hash in any number, so no page may depend on their end.

use proto::wire::messages::{DirEntry, DirPage, Granted, LOCK_LOOKUP, LOCK_UPDATE, ReadDir};
use proto::wire::{Reply, Wire};
use proto::{Code, Fid};
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
/// Largest page for a client that takes no end within equal hashes.
const UNSPLIT_BYTES_MAX: usize = 1 << 20;

pub(in crate::mdt) fn read_dir(mdt: &Mdt, ctx: &Ctx, request: &ReadDir) -> Outcome {
    let found = mdt.grants.read_and_keep(ctx, request.fid, LOCK_UPDATE, || {
        let Some(dir) = mdt.names.find_inode(ctx, request.fid)? else { return Ok(None) };
        if !dir.is_dir() {
            return Err(Code::NotDirectory.into());
        }
        let mut page = DirPage {
            parent: dir.parent,
            entries: Vec::new(),
            end: false,
            lock: Granted::default(),
            splits: false,
        };
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
    let mut from = first_key(dir.fid, request);
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
            let within = page.entries.last().map(|last| last.cookie == cookie);
            if bytes > UNSPLIT_BYTES_MAX && within == Some(true) && request.behind.is_none() {
                return Err(Code::TooBig.into());
            }
            if bytes > bytes_max && within.is_some_and(|within| !within || request.behind.is_some()) {
                page.splits = within == Some(true);
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

/// The first key that an entry behind the request's position can have.
fn first_key(dir: Fid, request: &ReadDir) -> Vec<u8> {
    match request.behind.as_deref() {
        None | Some([]) => keys::entries_from(dir, request.cookie.saturating_add(1)),
        Some(name) => {
            let mut key = keys::entries_from(dir, request.cookie);
            key.extend_from_slice(name);
            key.push(0);
            key
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
    use bytes::Bytes;
    use proto::Name;
    use proto::wire::messages::Create;

    use crate::mdt::testing::World;

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
            let page = client.call(ReadDir {
                fid: dir,
                cookie,
                bytes_max: 2000,
                plus: round % 2 == 0,
                behind: None,
            });
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
    fn names_of_one_hash_come_in_pages_too() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        // XXH3 multiplies the first half of these 16 bytes, which is its secret there and so becomes 0, with the second.
        let name = |n: u32| {
            [b"\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe".as_slice(), format!("{n:08}0123456789abcdef").as_bytes()]
                .concat()
        };
        let all: Vec<_> = (0..300).map(|n| Name::new(name(n)).expect("a name")).collect();
        assert!(all.iter().all(|name| name.hash() == all[0].hash()));
        for name in &all {
            client
                .call(Create { name: name.clone(), ..client.create_request(dir, "x", 0o100_644) })
                .expect("it is new");
        }
        let (mut seen, mut cookie, mut behind) = (Vec::new(), 0, Some(Bytes::new()));
        for _ in 0..300 {
            let page = client
                .call(ReadDir { fid: dir, cookie, bytes_max: 2000, plus: true, behind })
                .expect("a directory");
            assert!(page.entries.len() < 40 && page.splits != page.end);
            seen.extend(page.entries.iter().map(|entry| entry.name.clone()));
            if page.end {
                break;
            }
            let last = page.entries.last().expect("a page has an entry");
            (cookie, behind) = (last.cookie, Some(last.name.to_bytes()));
        }
        assert_eq!(seen, all);
        // For a client that does not know of it they come in one page.
        let page = client.call(ReadDir { fid: dir, cookie: 0, bytes_max: 2000, plus: false, behind: None });
        assert_eq!(page.map(|page| (page.entries.len(), page.splits, page.end)), Ok((300, false, true)));
        let behind_all =
            ReadDir { fid: dir, cookie, bytes_max: 2000, plus: false, behind: Some(Bytes::new()) };
        assert_eq!(client.call(behind_all).map(|page| (page.entries.len(), page.end)), Ok((0, true)));
    }

    #[test]
    fn a_page_keeps_its_size() {
        let world = World::new();
        let client = world.client(1);
        for n in 0..100 {
            client.file(Fid::ROOT, &format!("file{n}"));
        }
        let page =
            client.call(ReadDir { fid: Fid::ROOT, cookie: 0, bytes_max: 3000, plus: true, behind: None });
        let page = page.expect("a directory");
        let mut encoded = Vec::new();
        page.put(&mut encoded);
        assert!((1500..3100).contains(&encoded.len()), "{} bytes", encoded.len());
        let all = client.call(ReadDir {
            fid: Fid::ROOT,
            cookie: 0,
            bytes_max: u32::MAX,
            plus: false,
            behind: None,
        });
        assert_eq!(all.map(|page| (page.entries.len(), page.end)), Ok((100, true)));
        let file = client.lookup(Fid::ROOT, "file1").expect("it was made").fid;
        let refused = client.call(ReadDir { fid: file, cookie: 0, bytes_max: 1, plus: false, behind: None });
        assert_eq!(refused, Err(Code::NotDirectory));
    }
}
