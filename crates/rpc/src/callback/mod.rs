//! Targets call clients back, over the connection on which the client's session lives.
//!
//! A callback is a request with a number that the target's process draws. It is sent again until its answer comes,
//! over as many reconnects as it takes, so a client may see it twice: one that it is still working on it drops,
//! one that it has answered it carries out again. Handlers therefore do nothing the second time. Nothing of it runs
//! inside the target's own call: what goes to a connection is queued, and what goes to a client of the same process
//! is a task there.

mod called;
mod calling;

use std::sync::Arc;

use proto::wire::{Reply, Request};
use proto::{Code, TargetId};
use rt::BoxFuture;

use crate::session::Restate;

pub(crate) use called::{Called, answer};
pub(crate) use calling::call_back;

/// What a client does when a target calls it back, and what it has to know of its sessions.
///
/// The events of one session come one at a time and in their order. After [`Callbacks::disconnected`] comes one
/// of [`Callbacks::reconnected`], [`Callbacks::restarted`] and [`Callbacks::session_lost`], or nothing more.
pub trait Callbacks: Send + Sync + 'static {
    /// A target calls. The future may take long and is a task of its own. It may run twice for one callback. The
    /// answer [`Code::NoSession`] is kept for the session itself.
    fn called(self: Arc<Self>, target: TargetId, request: Request)
    -> BoxFuture<'static, Result<Reply, Code>>;

    /// The session with `target` began anew: whatever the client held there is gone. Called before any caller goes on;
    /// must not wait. [`crate::Import::session`] is the new one already: what [`crate::Answered`] says of an older one
    /// is gone too, even if its caller has not seen it yet. The first session of an import is not told.
    fn session_lost(&self, target: TargetId);

    /// Changes that `target` had answered are lost. Called before any caller goes on; must not wait.
    fn changes_lost(&self, target: TargetId);

    /// The target restarted and knows the client: called after the replays, before the client says that it has no more
    /// of them, and awaited. The client states again what it holds, through `restate`. If the connection breaks
    /// meanwhile the future is dropped, and this is called again later.
    fn restarted(self: Arc<Self>, target: TargetId, restate: Restate) -> BoxFuture<'static, ()>;

    /// The connection is lost. Must not wait.
    fn disconnected(&self, target: TargetId);

    /// The connection is there again, in the same session: nothing is lost. Called before any caller goes on; must not
    /// wait.
    fn reconnected(&self, target: TargetId);
}

/// Why a client was not called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The client was away for longer than the caller had patience; its session is not over.
    #[error("the client is not reached")]
    Unreachable,
    /// The session is over, or its target is not served any more.
    #[error("the session with the client is over")]
    Ended,
}
