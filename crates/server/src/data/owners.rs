//! Whose objects are, and how much of the target an owner has (`docs/operations.md#quotas`).
//!
//! The first write says whose a file is. When a file changes hands, its MDT says so ([`crate::mdt`]), and the newer owner counts: a
//! client that knows an older one takes nothing back.

use proto::wire::Reply;
use proto::wire::messages::{
    Done as Nothing, QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER, ReadUsage, SetOwners, Usage,
};
use proto::{Code, FileOwner, ObjectId, Transno};
use service::{Ctx, Done, code_of};
use store::StoreError;

use super::{Data, check_id};

/// Most objects that one request gives away.
const OWNED_COUNT_MAX: usize = 16_384;

impl Data {
    /// Gives objects to other owners, in the target itself; durable when the transno is.
    ///
    /// # Errors
    /// As [`store::Objects::set_owner`] has them; what was destroyed is left out.
    pub async fn set_owners_here(&self, owned: &[(ObjectId, FileOwner)]) -> Result<Transno, StoreError> {
        let mut last = Transno(0);
        for (object, owner) in owned {
            match self.objects.set_owner(*object, *owner).await {
                Ok(transno) => last = last.max(transno.unwrap_or_default()),
                Err(StoreError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }

    /// The same for a session of the MDT.
    pub(super) async fn set_owners<S>(&self, ctx: &Ctx<S>, set: &SetOwners) -> Result<Done, Code> {
        ctx.only_servers()?;
        if set.objects.len() > OWNED_COUNT_MAX {
            return Err(Code::TooBig);
        }
        set.objects.iter().try_for_each(|owned| check_id(owned.object))?;
        let mut owned = Vec::with_capacity(set.objects.len());
        for of in &set.objects {
            match self.lost.check(of.object) {
                Ok(()) => owned.push((of.object, of.owner)),
                Err(Code::Lost) => {}
                Err(code) => return Err(code),
            }
        }
        let given = self.set_owners_here(&owned).await;
        // Some may have changed before it failed.
        self.store.committed(self.store.last_transno()).await.map_err(|error| code_of(&error))?;
        given.map_err(|error| code_of(&error))?;
        Ok(Done::unchanged(Reply::SetOwners(Nothing {})))
    }

    /// How much of the target an owner has.
    pub(super) fn usage(&self, read: &ReadUsage) -> Result<Done, Code> {
        if !matches!(read.kind, QUOTA_USER | QUOTA_GROUP | QUOTA_PROJECT) {
            return Err(Code::NotSupported);
        }
        let bytes = self.used_by(read.kind, read.id)?;
        Ok(Done::unchanged(Reply::ReadUsage(Usage { bytes })))
    }

    /// The space that the objects of an owner occupy in this target, in bytes.
    pub fn used_by(&self, kind: u8, id: u32) -> Result<u64, Code> {
        self.objects.usage(kind, id).map_err(|error| code_of(&error))
    }
}
