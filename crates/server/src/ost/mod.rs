//! An object storage target: objects ([`crate::data`]), and what an operator says of the target.

mod degraded;
mod stats;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use proto::Code;
use proto::limits::FILE_BYTES_MAX;
use proto::parameters::TargetTree;
use proto::wire::Reply;
use proto::wire::header::Room;
use proto::wire::messages as msg;
use proto::wire::messages::{DataRequest, NoRequest};
use rpc::Peer;
use service::{Ctx, Done, Env, Handler, Session, Shown, Wait, space_state};
use std::sync::Arc;
use store::{Objects, Store, StoreError};

use crate::data::{Data, TokenCounts};
use crate::{Counts, Held, accounts};
use degraded::Degraded;

/// An object storage target.
pub struct Ost {
    data: Data,
    store: Arc<Store>,
    degraded: Degraded,
}

impl Handler for Ost {
    type Session = ();
    type Request = DataRequest;
    type Outside = NoRequest;
    const STATS: Option<&'static service::Stats> = Some(&stats::STATS);

    async fn open(env: Env) -> Result<Ost, StoreError> {
        let objects = Objects::open(&env.rt, env.store.clone()).await?;
        Ok(Ost {
            data: Data::new(&env, objects, FILE_BYTES_MAX)?,
            degraded: Degraded::new(&env),
            store: env.store,
        })
    }

    async fn handle(&self, ctx: &Ctx<()>, request: DataRequest, bulk: Vec<Bytes>) -> Result<Done, Code> {
        self.data.handle(ctx, request, bulk).await
    }

    async fn outside(&self, _peer: &Peer, request: NoRequest) -> Result<Reply, Code> {
        match request {}
    }

    async fn space(&self) -> Result<msg::Space, Code> {
        let mut space = self.data.space().await?;
        space.state = self.degraded.state() | space_state(&self.store);
        Ok(space)
    }

    fn ended(&self, session: &Session<()>) {
        self.data.locks().ended(session.handle());
    }

    fn room(&self, sessions: impl FnOnce() -> usize) -> Room {
        self.data.room(sessions)
    }

    async fn finish(&self) {
        self.data.finish().await;
    }
}

impl Shown for Ost {
    fn held(&self) -> Vec<Held> {
        self.data.locks().held()
    }

    fn held_count(&self) -> usize {
        self.data.locks().held_count()
    }

    fn held_by(&self, session: u64) -> Vec<Held> {
        self.data.locks().held_by(session)
    }

    fn waits(&self) -> Vec<Wait> {
        self.data.locks().waits()
    }

    fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.data.locks().parameters(tree);
        self.data.statistics(tree);
        self.degraded.parameters(tree);
        self.data.durability_parameters(tree);
        self.data.cache_parameters(tree);
        accounts::parameters(&*self.store, tree);
    }

    fn problems(&self) -> Vec<String> {
        self.data.problems()
    }
}

impl Counts for Ost {
    fn token_counts(&self) -> TokenCounts {
        self.data.locks().counts()
    }
}
