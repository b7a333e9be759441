//! Which MDT has a file, and questions to it on behalf of somebody.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::wire::messages::{Open, Operation};
use proto::{Code, Cred, Fid, MdtIndex, TargetId, TargetKind, mdt_of};
use rpc::Answered;

use super::{Target, Targets};
use crate::{Caller, Error, Result};

impl Targets {
    /// The session with the MDT that has a file, or the names in a directory.
    pub(crate) fn mdt_of(&self, fid: Fid) -> Result<Arc<Target>> {
        self.get(TargetId::mdt(mdt_of(fid)))
    }

    /// The same for a question about the file: what was told of it ahead is answered before.
    pub(crate) async fn settled_mdt_of(&self, fid: Fid) -> Result<Arc<Target>> {
        self.pending.settled(fid).await;
        self.mdt_of(fid)
    }

    /// The session with the MDT that has the root.
    pub(crate) fn first_mdt(&self) -> Result<Arc<Target>> {
        self.mdt_of(Fid::ROOT)
    }

    /// Every session with an MDT that there has been.
    pub(crate) fn mdts(&self) -> Vec<Arc<Target>> {
        self.of_kind(TargetKind::Mdt)
    }

    /// `items`, together where the files are that they are about. Those of an MDT that is not known are left out.
    pub(crate) fn by_mdt<T>(&self, items: Vec<T>, fid: impl Fn(&T) -> Fid) -> Vec<(Arc<Target>, Vec<T>)> {
        let mut parts: BTreeMap<MdtIndex, Vec<T>> = BTreeMap::new();
        for item in items {
            parts.entry(mdt_of(fid(&item))).or_default().push(item);
        }
        let with_session = |(index, items)| Some((self.get(TargetId::mdt(index)).ok()?, items));
        parts.into_iter().filter_map(with_session).collect()
    }

    /// Asks the MDT that has `fid` on behalf of `caller`, and again if that has to give way and the caller does not;
    /// its supplementary groups are looked up only if the answer depends on them.
    pub(crate) async fn ask<O: Operation>(
        &self,
        fid: Fid,
        caller: &Caller,
        operation: impl Fn(Cred) -> O,
    ) -> Result<Answered<O::Reply>> {
        let era = if O::CHANGES && O::OPCODE != Open::OPCODE { self.in_order(fid).await? } else { None };
        let mdt = self.settled_mdt_of(fid).await?;
        let groups = if caller.uid == 0 { Some(Vec::new()) } else { None };
        let mut cred = Cred { uid: caller.uid, gid: caller.gid, groups };
        loop {
            let answered = match era {
                Some(era) => mdt.call_locked(era, operation(cred.clone()), Vec::new()).await,
                None => mdt.call(operation(cred.clone())).await,
            };
            match answered {
                Err(Error::Refused(Code::NeedGroups)) if cred.groups.is_none() => {
                    cred.groups = Some((caller.groups)());
                }
                Err(Error::Refused(Code::GiveWay)) if !caller.gives_way => {}
                other => return other,
            }
        }
    }
    /// What is left of all that a client does is what it did first (an open leaves nothing): waits for what was told before. If something was,
    /// this is the era of the session in which the change is to be made: what is lost with a session is not to be left out.
    async fn in_order(&self, fid: Fid) -> Result<Option<u64>> {
        let era = self.mdt_of(fid)?.era();
        Ok(self.pending.in_order().await.then_some(era))
    }
}
