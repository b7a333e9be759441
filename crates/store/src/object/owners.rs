//! Whose objects are: files change hands.

use proto::{FileOwner, ObjectId, Transno};

use super::plan::{Carried, Plan};
use super::{BLOCK_OWNERS, Objects, refuse_dead};
use crate::error::StoreError;

impl Objects {
    /// Gives an object to `owner`, unless it has one of a newer version; makes it if it is not there. Durable when the transno is; there
    /// is none if nothing changed.
    ///
    /// # Errors
    /// It was destroyed, or the target has no room.
    pub async fn set_owner(&self, id: ObjectId, owner: FileOwner) -> Result<Option<Transno>, StoreError> {
        self.room_to_free().await?;
        self.with(id.layout, |state| {
            refuse_dead(state)?;
            let object = state.object(&self.store, id)?;
            let mut record = object.record();
            if owner.version <= record.owner.version {
                object.shrink();
                return Ok(None);
            }
            record.owner = owner;
            let (_, transno) = self.commit(object, id, Plan::new(record), Carried::default())?;
            Ok(Some(transno))
        })
    }

    /// The space that the objects of an owner occupy, in bytes.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn usage(&self, kind: u8, id: u32) -> Result<u64, StoreError> {
        Ok(self.store.sum(&BLOCK_OWNERS.key(kind, id))?.saturating_mul(super::extent::BLOCK))
    }
}
