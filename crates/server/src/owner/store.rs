//! What a store of owners has to do. The rules are `proto::owner`'s; a store makes them hold for all servers.

use std::time::Duration;

use proto::wire::messages::{FormerOwner, Taken, Tenure, Wanted};
use proto::{Nid, TargetId};
use rt::BoxFuture;

/// The process that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Name of the server.
    pub server: String,
    /// Another number after each of its starts; never 0.
    pub instance: u64,
    /// Where it serves.
    pub nids: Vec<Nid>,
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// For how long it holds, from the moment at which it was asked for.
    pub ttl: Duration,
    /// What belongs to somebody else by now, or to nobody.
    pub lost: Vec<TargetId>,
}

/// A target that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Which one, and how.
    pub taken: Taken,
    /// Who may still use it, although it does not own it any more.
    pub former: Option<FormerOwner>,
}

/// The store does not answer, or nothing that can be used: nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Where it is written down who owns what. Nothing is promised by an answer that does not come: the same may be asked
/// again at any time.
pub trait OwnerStore: Send + Sync + 'static {
    /// Which store it is: two with one name are the same one. It becomes part of a file's name.
    fn identity(&self) -> BoxFuture<'_, Result<String, Unavailable>>;

    /// Goes on with what `me` holds.
    fn renew<'a>(&'a self, me: &'a Me, holds: Vec<Tenure>) -> BoxFuture<'a, Result<Renewed, Unavailable>>;

    /// Waits at most for `wait` until `me` gets something of what it wants. What it gets it has to renew before it is used.
    fn take<'a>(
        &'a self,
        me: &'a Me,
        wanted: Vec<Wanted>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Vec<Grant>, Unavailable>>;

    /// `me` begins to use the target's directory: a former owner does not any more. Done when it is durable.
    fn settle<'a>(&'a self, me: &'a Me, tenure: Tenure) -> BoxFuture<'a, Result<(), Unavailable>>;

    /// `me` has closed a target and leaves it `to` the server with this name or NID, or with an empty text to anybody.
    fn release<'a>(
        &'a self,
        me: &'a Me,
        tenure: Tenure,
        to: &'a str,
    ) -> BoxFuture<'a, Result<(), Unavailable>>;
}
