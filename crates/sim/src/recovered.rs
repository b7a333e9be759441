//! After a crash of everything: what was promised has to be there.
//!
//! The names have to be those of some moment at or after the last one that was made durable; a file that was
//! synced and not changed since has exactly its bytes; any other file holds nothing but its own bytes and zeros.

use std::collections::BTreeMap;

use client::Client;
use proto::{Fid, FileKind};

use crate::content;
use crate::model::{Id, Names, Node, ROOT};
use crate::workload::{READ, Record, read_whole_dir, root};

/// What was found of one client's directory.
struct Found {
    kinds: BTreeMap<Fid, Seen>,
}

enum Seen {
    Dir(BTreeMap<String, Fid>),
    File { nlink: u32, data: Vec<u8> },
    Symlink(String),
}

/// Checks the directory `name` against what is known of it from outside.
pub async fn check(client: &Client, name: &str, record: &Record) {
    let base = client.names().lookup(&root(), Fid::ROOT, name.as_bytes()).await;
    let base = base.unwrap_or_else(|error| panic!("{name}: the synced directory is gone: {error}")).fid;
    let found = walk(client, base).await;
    let mut matching = None;
    for (number, names) in record.snapshots.iter().rev() {
        if let Some(ids) = same(&found, base, names, &record.fids) {
            matching = Some((*number, ids));
            break;
        }
    }
    let Some((_, ids)) = matching else {
        panic!(
            "{name}: the names are those of no moment since operation {}: {}",
            record.floor,
            describe(&found, base, 0)
        );
    };
    for (id, fid) in ids {
        let Some(Seen::File { data, .. }) = found.kinds.get(&fid) else { continue };
        let model = &record.tree.contents[&id];
        if model.durable {
            let at = data.iter().zip(&model.data).position(|(a, b)| a != b);
            assert!(
                *data == model.data,
                "{name}: synced file {id} {fid} has {} bytes, not {}; first difference {at:?}",
                data.len(),
                model.data.len()
            );
        } else if let Some(at) = content::first_foreign(&record.tags(id), data) {
            panic!("{name}: file {id} {fid} holds a foreign byte at {at}");
        }
    }
}

async fn walk(client: &Client, base: Fid) -> Found {
    let mut kinds = BTreeMap::new();
    let mut open = vec![base];
    while let Some(fid) = open.pop() {
        if kinds.contains_key(&fid) {
            continue;
        }
        let told = client.names().getattr(fid).await.map(|told| (told.kind(), told.size, told.nlink));
        let (kind, size, nlink) =
            told.unwrap_or_else(|error| panic!("{fid} has a name and no inode: {error}"));
        let seen = match kind {
            FileKind::Dir => {
                let entries = read_whole_dir(client, fid).await;
                open.extend(entries.values().copied());
                Seen::Dir(entries)
            }
            FileKind::Symlink => {
                let target = client.names().readlink(fid).await.expect("a symbolic link has a target");
                Seen::Symlink(String::from_utf8_lossy(&target).into_owned())
            }
            _ => {
                let handle = client.files().open(&root(), fid, READ).await.expect("root may open a file");
                let data =
                    client.files().read(handle, 0, 1 << 20).await.expect("a file can be read").concat();
                client.files().flush(handle).await.expect("nothing was written");
                client.files().release(handle).await;
                assert_eq!(size, data.len() as u64, "{fid}: stat and read disagree");
                Seen::File { nlink, data }
            }
        };
        kinds.insert(fid, seen);
    }
    Found { kinds }
}

/// Whether the found directory is the one of `names`; then which FID is which inode of the model.
fn same(found: &Found, base: Fid, names: &Names, fids: &BTreeMap<Id, Fid>) -> Option<BTreeMap<Id, Fid>> {
    let mut ids = BTreeMap::from([(ROOT, base)]);
    let mut open = vec![ROOT];
    while let Some(id) = open.pop() {
        match (found.kinds.get(ids.get(&id)?)?, names.nodes.get(&id)?) {
            (Seen::Dir(entries), Node::Dir(expected)) => {
                if !entries.keys().eq(expected.keys()) {
                    return None;
                }
                for (fid, id) in entries.values().zip(expected.values()) {
                    match ids.insert(*id, *fid) {
                        None => open.push(*id),
                        Some(before) if before == *fid => {}
                        Some(_) => return None,
                    }
                }
            }
            (Seen::File { nlink, .. }, Node::File { nlink: expected }) if nlink == expected => {}
            (Seen::Symlink(target), Node::Symlink(expected)) if target == expected => {}
            _ => return None,
        }
    }
    // A file whose making was never answered has no FID that is known, but not that of another one either: a name may
    // still be that of the file which it was to replace.
    let owners: BTreeMap<Fid, Id> = fids.iter().map(|(id, fid)| (*fid, *id)).collect();
    let is_other = |(id, fid): (&Id, &Fid)| {
        fids.get(id).is_some_and(|known| known != fid) || owners.get(fid).is_some_and(|owner| owner != id)
    };
    if ids.iter().any(is_other) {
        return None;
    }
    let mut distinct: Vec<Fid> = ids.values().copied().collect();
    distinct.sort_unstable();
    distinct.dedup();
    (distinct.len() == ids.len()).then_some(ids)
}

fn describe(found: &Found, fid: Fid, depth: usize) -> String {
    match found.kinds.get(&fid) {
        Some(Seen::Dir(entries)) if depth < 8 => {
            let inner: Vec<String> = entries
                .iter()
                .map(|(name, fid)| format!("{name}: {}", describe(found, *fid, depth + 1)))
                .collect();
            format!("{{{}}}", inner.join(", "))
        }
        Some(Seen::Dir(_)) => "{..}".into(),
        Some(Seen::File { nlink, data }) => format!("{fid} {nlink} links {} bytes", data.len()),
        Some(Seen::Symlink(target)) => format!("-> {target}"),
        None => "nothing".into(),
    }
}
