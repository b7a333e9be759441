//! FidToPath: the paths of a file.

use bytes::Bytes;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, FidToPath, Paths};
use proto::{Code, Cred, Fid, Name};
use service::keys::behind;
use service::{Done, code_of};

use crate::mdt::plan::{Halt, Step};
use crate::mdt::{Ctx, Mdt, Outcome, access, keys};

/// Most paths of one answer.
const PATHS_MAX: usize = 1000;
/// Longest path and all paths together, in bytes.
const PATH_BYTES_MAX: usize = 64 << 10;
const PATHS_BYTES_MAX: usize = 512 << 10;
/// Most directories that are gone through for all paths together.
const STEPS_MAX: usize = 100_000;

pub(in crate::mdt) fn fid_to_path(mdt: &Mdt, ctx: &Ctx, request: &FidToPath) -> Outcome {
    let inode = mdt.names.inode(ctx, request.fid)?;
    let mut paths = Vec::new();
    let mut bytes = 0;
    let mut hidden = false;
    let mut steps = STEPS_MAX;
    if inode.fid == Fid::ROOT {
        paths.push(Bytes::new());
    } else {
        for (parent, name) in links(mdt, inode.fid, PATHS_MAX)? {
            let path = match path(mdt, ctx, &request.cred, (parent, &name), &mut steps) {
                Ok(path) => path,
                Err(Halt::Refused(Code::NameTooLong)) if !paths.is_empty() => break,
                Err(Halt::Refused(Code::AccessDenied)) => {
                    hidden = true;
                    continue;
                }
                Err(halt) => return Err(halt),
            };
            bytes += path.len() + 4;
            if bytes > PATHS_BYTES_MAX {
                break;
            }
            paths.push(path);
        }
    }
    if paths.is_empty() && hidden {
        return Err(Code::AccessDenied.into());
    }
    Ok(Done::unchanged(Reply::FidToPath(Paths { paths })))
}

fn links(mdt: &Mdt, fid: Fid, count_max: usize) -> Result<Vec<(Fid, Name)>, Code> {
    let from = keys::of(keys::LINK, fid);
    let found = mdt.store.scan(&from, &behind(&from), count_max).map_err(|error| code_of(&error))?;
    found.iter().map(|(key, _)| keys::link_parts(key).ok_or(Code::Corrupt)).collect()
}

/// One path, if `cred` could walk along it: somebody who may not search a directory learns no name in it.
fn path(mdt: &Mdt, ctx: &Ctx, cred: &Cred, (parent, name): (Fid, &Name), steps: &mut usize) -> Step<Bytes> {
    access::may(cred, &mdt.names.dir(ctx, parent)?, ACCESS_EXECUTE)?;
    let mut names = vec![name.clone()];
    let mut bytes = name.as_bytes().len();
    let mut at = parent;
    while at != Fid::ROOT {
        let (above, name) = links(mdt, at, 1)?.pop().ok_or(Code::TryAgain)?;
        access::may(cred, &mdt.names.dir(ctx, above)?, ACCESS_EXECUTE)?;
        bytes += name.as_bytes().len() + 1;
        *steps = steps.saturating_sub(1);
        if bytes > PATH_BYTES_MAX || *steps == 0 {
            return Err(Code::NameTooLong.into());
        }
        names.push(name);
        at = above;
    }
    let mut path = Vec::with_capacity(bytes);
    for name in names.iter().rev() {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::World;

    #[test]
    fn names_in_directories_that_the_caller_may_not_search_are_not_told() {
        let world = World::new();
        let client = world.client(1);
        let closed = client.make(Fid::ROOT, "closed", 0o040_700, &Cred::root()).expect("root may");
        let inner = client.make(closed.fid, "inner", 0o040_755, &Cred::root()).expect("root may");
        let file = client.make(inner.fid, "secret", 0o100_644, &Cred::root()).expect("root may");
        let paths = |cred: Cred| client.call(FidToPath { fid: file.fid, cred }).map(|answer| answer.paths);
        let user = |uid| Cred { uid, gid: uid, groups: Some(Vec::new()) };
        assert_eq!(paths(Cred::root()), Ok(vec![Bytes::from_static(b"closed/inner/secret")]));
        assert_eq!(paths(user(5)), Err(Code::AccessDenied), "the directory above its directory is closed");
        let link = proto::wire::messages::Link {
            fid: file.fid,
            parent: Fid::ROOT,
            name: Name::new("open".as_bytes().to_vec()).expect("a plain name"),
            cred: Cred::root(),
            time: client.time(),
        };
        client.call(link).expect("root may");
        assert_eq!(paths(user(5)), Ok(vec![Bytes::from_static(b"open")]), "one name is for everybody");
        assert_eq!(paths(Cred::root()).map(|paths| paths.len()), Ok(2));
    }
}
