//! A role, as the framework sees it, and what it is started with.

use std::sync::Arc;

use bytes::Bytes;
use proto::parameters::TargetTree;
use proto::wire::header::Room;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Transno};
use rpc::{Hub, Import, Peer};
use rt::Rt;
use store::{Store, StoreError};

use crate::claimant::Claimant;
use crate::clients::{Backchannel, Clients};
use crate::context::{Ctx, Done};
use crate::recovery::Recovery;
use crate::session::Session;
use crate::stop::Stop;
use crate::timing::{Counted, Stats};
use crate::watch::{Held, Wait};
#[cfg(doc)]
use crate::{Recorder, VERSION_OF_THIS};

/// What a role is started with.
#[derive(Clone)]
pub struct Env {
    /// The door to the outside.
    pub rt: Rt,
    /// For imports to other targets.
    pub hub: Hub,
    /// The target's store.
    pub store: Arc<Store>,
    /// The MGS; `None` in the MGS itself.
    pub mgs: Option<Arc<Import>>,
    /// Ends the role's tasks.
    pub stop: Stop,
    /// Tells when clients have replayed what a restart lost; until then the role's tasks change nothing.
    pub recovery: Arc<Recovery>,
    /// Calls the clients of the target's sessions back.
    pub clients: Arc<Clients>,
    /// Has the MGS remember how far the target is; `None` if there is none.
    pub claimant: Option<Arc<Claimant>>,
}

/// What a target is started with.
pub struct Start {
    /// The door to the outside.
    pub rt: Rt,
    /// For imports to other targets.
    pub hub: Hub,
    /// The target's store.
    pub store: Arc<Store>,
    /// The MGS; `None` in the MGS itself.
    pub mgs: Option<Arc<Import>>,
    /// The way to the clients.
    pub backchannel: Arc<dyn Backchannel>,
    /// Whether it is started again when it fails.
    pub supervision: Supervision,
    /// Has the MGS remember how far the target is; `None` if there is none.
    pub claimant: Option<Arc<Claimant>>,
}

/// Whether a target is started again when it fails, and where.
#[derive(Clone)]
pub enum Supervision {
    /// It is not.
    None,
    /// By this server.
    Alone,
    /// By this server, or by another one that may have it.
    Shared(Arc<dyn HandOver>),
}

/// Carries out the order to leave a target to another server.
pub trait HandOver: Send + Sync {
    /// The target is to be stopped and left to the server with this name or NID.
    fn hand_over(&self, to: &str);
}

/// A role: what a target does with the requests of its sessions.
pub trait Handler: Shown + Send + Sync + Sized + 'static {
    /// What the role keeps for each session.
    type Session: Default + Send + Sync + 'static;
    /// What it answers in sessions.
    type Request: TryFrom<Request, Error = Request> + Send;
    /// What it answers outside any session, besides what every target does.
    type Outside: TryFrom<Request, Error = Request> + Send;

    /// Whether changes of different clients rest on each other, so that after a restart all have to be replayed
    /// before anybody is served.
    const ORDERED: bool = true;

    /// What Lustre counts of the role; times of all operations are counted in any case.
    const STATS: Option<&'static Stats> = None;

    /// Makes the role out of what lies in the store.
    fn open(env: Env) -> impl Future<Output = Result<Self, StoreError>> + Send;

    /// The target is being served and registered: the place to spawn tasks, which end with [`Env::stop`].
    fn started(self: &Arc<Self>) {
        let _ = self;
    }

    /// Answers `request`. What needs no waiting happens in the first poll. For a changing request the store has
    /// room already. No effect may be visible before everything that waits is over.
    fn handle<'a>(
        &'a self,
        ctx: &'a Ctx<Self::Session>,
        request: Self::Request,
        bulk: Vec<Bytes>,
    ) -> impl Future<Output = Result<Done, Code>> + Send + 'a;

    /// Space of the target, as [`msg::Statfs`] asks for it.
    fn space(&self) -> impl Future<Output = Result<msg::Space, Code>> + Send + '_;

    /// Which variant of its operation a request is, as [`Handler::STATS`] counts them; less than [`VARIANTS`](crate::VARIANTS).
    fn variant(request: &Request) -> usize {
        let _ = request;
        0
    }

    /// The operations that a request is made of, if it is made of others.
    fn parts(request: &Request) -> Vec<Counted> {
        let _ = request;
        Vec::new()
    }

    /// Puts the version that a change made where its reply says [`VERSION_OF_THIS`].
    fn stamp(reply: &mut Reply, transno: Transno) {
        let _ = (reply, transno);
    }

    /// Answers what the role offers outside any session.
    fn outside<'a>(
        &'a self,
        peer: &'a Peer,
        request: Self::Outside,
    ) -> impl Future<Output = Result<Reply, Code>> + Send + 'a;

    /// A session began: a new one, or one whose client was known before the restart.
    fn began(&self, session: &Session<Self::Session>) {
        let _ = session;
    }

    /// A session ended: its client holds nothing any more.
    fn ended(&self, session: &Session<Self::Session>) {
        let _ = session;
    }

    /// A client of before the restart did not come back: what the store has of it can go.
    fn forgotten(&self, client: ClientId) {
        let _ = client;
    }

    /// How much each client may write before it sends it; `sessions` counts them.
    fn room(&self, sessions: impl FnOnce() -> usize) -> Room {
        let _ = sessions;
        Room::default()
    }

    /// The last step before the store is closed; no request is under way.
    fn finish(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// What operators see of a role, and set. A role shows nothing of which it says nothing.
pub trait Shown {
    /// What sessions hold.
    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    /// How much sessions hold: as many as [`Shown::held`] lists, which takes memory for each of them.
    fn held_count(&self) -> usize {
        self.held().len()
    }

    /// What this session holds.
    fn held_by(&self, session: u64) -> Vec<Held> {
        self.held().into_iter().filter(|held| held.session == session).collect()
    }

    /// Who waits for what.
    fn waits(&self) -> Vec<Wait> {
        Vec::new()
    }

    /// Registers what can be read of it and set, in the order in which it is shown.
    fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let _ = tree;
    }

    /// What is wrong with it, a sentence for each.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
