//! Questions to the MDT on behalf of somebody.

use proto::wire::messages::Operation;
use proto::{Code, Cred};
use rpc::Answered;

use super::Targets;
use crate::{Caller, Error, Result};

impl Targets {
    /// Asks the MDT on behalf of `caller`; its supplementary groups are looked up only if the answer depends on
    /// them.
    pub(crate) async fn ask<O: Operation>(
        &self,
        caller: &Caller,
        operation: impl Fn(Cred) -> O,
    ) -> Result<Answered<O::Reply>> {
        let mdt = self.mdt()?;
        let groups = if caller.uid == 0 { Some(Vec::new()) } else { None };
        match mdt.call(operation(Cred { uid: caller.uid, gid: caller.gid, groups })).await {
            Err(Error::Refused(Code::NeedGroups)) => {
                let groups = Some((caller.groups)());
                mdt.call(operation(Cred { uid: caller.uid, gid: caller.gid, groups })).await
            }
            other => other,
        }
    }
}
