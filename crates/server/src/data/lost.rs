//! Objects of an OST that is lost, and that this one has replaced (`docs/operations.md#replace`): whoever asks for one hears of it,
//! instead of reading zeros.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::wire::Reply;
use proto::wire::messages::{Done as Nothing, LoseBefore};
use proto::{Code, Fid, ObjectId};
use service::{Ctx, Done, code_of, replaced};
use store::{Batch, Store, StoreError};

use super::Data;

/// Which objects were the lost OST's.
pub(super) struct Lost {
    store: Arc<Store>,
    /// Sequences before it name lost objects; 0 if there are none, [`replaced::UNKNOWN`] until the MDT has told.
    first: AtomicU64,
}

impl Lost {
    pub fn open(store: &Arc<Store>) -> Result<Lost, StoreError> {
        let first = replaced::first_sequence(store)?.unwrap_or_default();
        Ok(Lost { store: store.clone(), first: AtomicU64::new(first) })
    }

    /// Lost if the object was the lost OST's; TryAgain if that is not known yet.
    pub fn check(&self, object: ObjectId) -> Result<(), Code> {
        match self.first.load(Ordering::Acquire) {
            replaced::UNKNOWN => Err(Code::TryAgain),
            first if object.layout.seq < first => Err(Code::Lost),
            _ => Ok(()),
        }
    }

    /// The first sequence is `sequence`; durable when this returns.
    async fn set(&self, sequence: u64) -> Result<(), Code> {
        match self.first.load(Ordering::Acquire) {
            known if known == sequence => return Ok(()),
            replaced::UNKNOWN => {}
            known => {
                tracing::error!(known, sequence, "the MDT speaks of another lost OST");
                return Err(Code::Invalid);
            }
        }
        let batch = Batch { changes: vec![replaced::change(sequence)], ..Batch::default() };
        let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        self.first.store(sequence, Ordering::Release);
        tracing::info!(sequence, "it replaces a lost OST: objects of sequences before are lost");
        Ok(())
    }
}

impl Data {
    pub(super) async fn lose_before<S>(&self, ctx: &Ctx<S>, lose: &LoseBefore) -> Result<Done, Code> {
        ctx.only_servers()?;
        if !(Fid { seq: lose.sequence, oid: 1, ver: 0 }).is_sane() {
            return Err(Code::Invalid);
        }
        self.lost.set(lose.sequence).await?;
        Ok(Done::unchanged(Reply::LoseBefore(Nothing {})))
    }
}
