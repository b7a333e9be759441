//! FidToPath: the paths of a file.

use bytes::Bytes;
use proto::wire::Reply;
use proto::wire::messages::{FidToPath, Paths};
use proto::{Code, Fid, Name};

use crate::mdt::{Ctx, Mdt, Outcome, keys};
use crate::target::keys::behind;
use crate::target::{Done, code_of};

/// Most paths of one answer.
const PATHS_MAX: usize = 1000;
/// Longest path and all paths together, in bytes.
const PATH_BYTES_MAX: usize = 64 << 10;
const PATHS_BYTES_MAX: usize = 512 << 10;

impl Mdt {
    pub(in crate::mdt) fn fid_to_path(&self, ctx: &Ctx, request: &FidToPath) -> Outcome {
        let inode = self.inode(ctx, request.fid)?;
        let mut paths = Vec::new();
        let mut bytes = 0;
        if inode.fid == Fid::ROOT {
            paths.push(Bytes::new());
        } else {
            for (parent, name) in self.links(inode.fid, PATHS_MAX)? {
                let path = self.path(parent, &name)?;
                bytes += path.len() + 4;
                if bytes > PATHS_BYTES_MAX {
                    break;
                }
                paths.push(path);
            }
        }
        Ok(Done::unchanged(Reply::FidToPath(Paths { paths })))
    }

    fn links(&self, fid: Fid, count_max: usize) -> Result<Vec<(Fid, Name)>, Code> {
        let from = keys::of(keys::LINK, fid);
        let found = self.store.scan(&from, &behind(&from), count_max).map_err(|error| code_of(&error))?;
        found.iter().map(|(key, _)| keys::link_parts(key).ok_or(Code::Corrupt)).collect()
    }

    fn path(&self, parent: Fid, name: &Name) -> Result<Bytes, Code> {
        let mut names = vec![name.clone()];
        let mut bytes = name.as_bytes().len();
        let mut at = parent;
        while at != Fid::ROOT {
            let (above, name) = self.links(at, 1)?.pop().ok_or(Code::TryAgain)?;
            bytes += name.as_bytes().len() + 1;
            if bytes > PATH_BYTES_MAX {
                return Err(Code::NameTooLong);
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
}
