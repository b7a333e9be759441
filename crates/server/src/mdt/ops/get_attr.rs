//! GetAttr: the attributes of a file, by its FID.

use proto::wire::Reply;
use proto::wire::messages::GetAttr;

use crate::mdt::{Mdt, Outcome};
use crate::target::Done;

impl Mdt {
    pub(in crate::mdt) fn get_attr(&self, request: &GetAttr) -> Outcome {
        Ok(Done::unchanged(Reply::GetAttr(self.inode(request.fid)?.entry())))
    }
}
