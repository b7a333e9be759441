//! What a store of owners has to do. The rules are `proto::owner`'s; a store makes them hold for all servers.

use std::time::Duration;

use proto::wire::messages::{Taken, Tenure, Wanted};
use proto::{Nid, TargetId};
use rt::BoxFuture;

/// The process that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Name of the server.
    pub server: String,
    /// Another number after each of its starts.
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

/// The store does not answer: nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Where it is written down who owns what. Nothing is promised by an answer that does not come: the same may be asked
/// again at any time.
pub trait OwnerStore: Send + Sync + 'static {
    /// Goes on with what `me` holds.
    fn renew<'a>(&'a self, me: &'a Me, holds: Vec<Tenure>) -> BoxFuture<'a, Result<Renewed, Unavailable>>;

    /// Waits at most for `wait` until `me` gets something of what it wants. What it gets it has to renew before it is used.
    fn take<'a>(
        &'a self,
        me: &'a Me,
        wanted: Vec<Wanted>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Vec<Taken>, Unavailable>>;

    /// `me` has closed a target and leaves it `to` the server with this name or NID, or with an empty text to anybody.
    fn release<'a>(
        &'a self,
        me: &'a Me,
        tenure: Tenure,
        to: &'a str,
    ) -> BoxFuture<'a, Result<(), Unavailable>>;
}
