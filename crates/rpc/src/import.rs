//! A client's end of a session with one target. Stub: signatures only.
#![allow(unused_variables, clippy::unused_async, missing_docs)]

use bytes::Bytes;
use proto::wire::messages::Operation;
use proto::{Code, Nid, TargetId, Transno};

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The target refused; nothing was changed.
    #[error("refused: {0}")]
    Refused(Code),
    /// The session is over: the process is stopping, or the target threw the client out.
    #[error("the session with the target is over")]
    Closed,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Answered<R> {
    pub reply: R,
    pub bulk: Vec<Bytes>,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
}

pub struct Import {}

impl Import {
    pub fn target(&self) -> TargetId {
        unimplemented!()
    }
    /// Where the target may be reached from now on, best first.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        unimplemented!()
    }
    /// Sends `operation` and waits for its reply, over as many reconnects as it takes.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<Answered<O::Reply>, RpcError> {
        unimplemented!()
    }
    /// The same with bulk.
    pub async fn call_bulk<O: Operation>(
        &self,
        operation: O,
        bulk: Vec<Bytes>,
    ) -> Result<Answered<O::Reply>, RpcError> {
        unimplemented!()
    }
    /// Every change up to here is durable, as far as replies have told.
    pub fn last_committed(&self) -> Transno {
        unimplemented!()
    }
    /// Waits until every change up to `transno` is durable; asks the target to make it so.
    pub async fn committed(&self, transno: Transno) -> Result<(), RpcError> {
        unimplemented!()
    }
    /// Ends the session in order.
    pub async fn disconnect(&self) {
        unimplemented!()
    }
}
