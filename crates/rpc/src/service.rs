//! What a target offers to its peers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use proto::wire::header::Room;
use proto::wire::{Reply, Request};
use proto::{Code, JobId, Nid, TargetId, Transno, Xid};
use rt::BoxFuture;

use crate::keys::Role;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The key that the peer proved to hold.
    pub role: Role,
    /// Where it is.
    pub from: Origin,
}

/// Where a peer is. Printed as logs show it: `10.1.1.2:40112`, `0@lo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In this process: it ends when this process does.
    Here,
    /// At the other end of a connection, by its address and port.
    Remote(Arc<str>),
}

impl Origin {
    /// Whether it is in this process.
    pub fn is_here(&self) -> bool {
        *self == Origin::Here
    }

    /// Its NID: the address without the port, which is another one for each connection.
    pub fn nid(&self) -> String {
        match self {
            Origin::Here => Nid::lo().to_string(),
            Origin::Remote(from) => {
                let host = from.rsplit_once(':').map_or(&**from, |(host, _)| host);
                format!("{host}@tcp")
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Here => Nid::lo().fmt(f),
            Origin::Remote(from) => from.fmt(f),
        }
    }
}

/// One request, with what its header said.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who asks.
    pub peer: Peer,
    /// The target that is asked.
    pub target: TargetId,
    /// The session, as `Connected` named it; 0 before.
    pub session: u64,
    /// Epoch of the session; an older one than the session's is dropped.
    pub session_epoch: u64,
    /// Number of the request.
    pub xid: Xid,
    /// Reply slot; `None` for a request that changes nothing.
    pub slot: Option<u32>,
    /// Whether the request was sent before without an answer.
    pub resent: bool,
    /// Whether the answer's bulk is to have no checksum of its own.
    pub unchecked: bool,
    /// The transno that the request had before the target lost it in a restart.
    pub replay: Option<Transno>,
    /// The request.
    pub request: Request,
    /// The request's bulk.
    pub bulk: Vec<Bytes>,
    /// The job that it belongs to.
    pub job: JobId,
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The reply, or why there is none.
    pub result: Result<Reply, Code>,
    /// The reply's bulk.
    pub bulk: Vec<Bytes>,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// Every change up to here is durable.
    pub last_committed: Transno,
    /// How much the client may write before it sends it.
    pub room: Room,
}

impl Answer {
    /// A refusal.
    pub fn refuse(code: Code) -> Answer {
        Answer {
            result: Err(code),
            bulk: Vec::new(),
            transno: Transno(0),
            last_committed: Transno(0),
            room: Room::default(),
        }
    }
}

/// A target. Its future is polled once on the thread that brought the request; if it has to wait it becomes the
/// server's task: a caller that goes away does not stop it half way.
pub trait Service: Send + Sync + 'static {
    /// Answers `call`.
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nid_has_no_port() {
        let nid = |from: &str| Origin::Remote(from.into()).nid();
        assert_eq!(nid("10.1.1.2:40112"), "10.1.1.2@tcp");
        assert_eq!(nid("[fd00::2]:40112"), "[fd00::2]@tcp");
        assert_eq!(Origin::Here.nid(), "0@lo");
    }
}
