//! GetSequence: names for the files that a session will make.

use proto::wire::Reply;
use proto::wire::messages::Sequence;
use service::code_of;

use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

/// The reply comes when the grant is durable: a replay would get another sequence than the one whose names the
/// client's other replays use.
pub(in crate::mdt) async fn get_sequence(mdt: &Mdt, ctx: &Ctx<'_>) -> Outcome {
    let sequence = mdt.sequences.take(&mdt.store).await?;
    let mut changes = Changes::default();
    changes.put_raw(keys::grant(ctx.session().client(), sequence), bytes::Bytes::new());
    if let Some(oldest) = ctx.data().grant(sequence) {
        changes.remove(keys::grant(ctx.session().client(), oldest));
    }
    let done = mdt.commit(ctx, changes, Reply::GetSequence(Sequence { seq: sequence }))?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}
