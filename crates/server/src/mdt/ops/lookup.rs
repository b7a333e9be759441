//! Lookup: what a name means.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_EXECUTE, Lookup};

use crate::mdt::{Mdt, Outcome, access};
use crate::target::Done;

/// How often a name is looked up again because its file went between entry and inode.
const RETRIES_MAX: usize = 100;

impl Mdt {
    pub(in crate::mdt) fn lookup(&self, request: &Lookup) -> Outcome {
        let parent = self.dir(request.parent)?;
        access::may(&request.cred, &parent, ACCESS_EXECUTE)?;
        let Some(name) = &request.name else {
            return Ok(Done::unchanged(Reply::Lookup(self.inode(parent.parent)?.entry())));
        };
        for _ in 0..RETRIES_MAX {
            let (fid, _) = self.find_entry(parent.fid, name)?.ok_or(Code::NotFound)?;
            if let Some(inode) = self.find_inode(fid)? {
                return Ok(Done::unchanged(Reply::Lookup(inode.entry())));
            }
        }
        Err(Code::TryAgain)
    }
}
