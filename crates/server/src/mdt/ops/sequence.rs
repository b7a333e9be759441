//! GetSequence: names for the files that a session will make.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::Sequence;
use service::code_of;

use crate::mdt::export::SEQUENCES_MAX;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, keys};

/// The reply comes when the grant is durable: a replay would get another sequence than the one whose names the
/// client's other replays use.
pub(in crate::mdt) async fn get_sequence(mdt: &Mdt, ctx: &Ctx<'_>) -> Outcome {
    if ctx.data().sequence_count() >= SEQUENCES_MAX {
        return Err(Code::NoSpace.into());
    }
    let sequence = mdt.sequences.take(&mdt.store).await?;
    let mut changes = Changes::default();
    changes.put_raw(keys::grant(ctx.session().client(), sequence), bytes::Bytes::new());
    ctx.data().grant(sequence);
    let done = mdt.commit(ctx, changes, Reply::GetSequence(Sequence { seq: sequence }))?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}
