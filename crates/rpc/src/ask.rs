//! Questions outside any session: one message, one answer, no repetition.
//!
//! For operators, who ask while no session can begin, and who see when nothing comes back.

use std::time::Duration;

use crate::address::dialled;
use proto::wire::messages::Operation;
use proto::wire::{Reply, Request};
use proto::{Code, JobId, Nid, TargetId, Xid};

use crate::hub::Hub;
use crate::keys::Role;
use crate::service::{Call, Origin, Peer};
use crate::session::LinkError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The target, or its process, refuses.
    #[error("refused: {0}")]
    Refused(Code),
    /// Nobody answers; what was ordered may have happened.
    #[error("no answer: {0}")]
    Unanswered(String),
}

impl AskError {
    /// Whether the target is not there just now: its server starts, or stops, or another one has it by now.
    pub fn is_away(&self) -> bool {
        matches!(
            self,
            AskError::Unanswered(_) | AskError::Refused(Code::TryAgain | Code::NotHere | Code::Gone)
        )
    }
}

impl Hub {
    /// Asks `target` something that needs no session ([`Request::needs_no_session`]): in this process if it is served
    /// here, else at the first of `nids` that answers, with the rights of `role`. `patience` is for each of them.
    pub async fn ask<O: Operation>(
        &self,
        target: TargetId,
        role: Role,
        nids: &[Nid],
        operation: O,
        patience: Duration,
    ) -> Result<O::Reply, AskError> {
        let request: Request = operation.into();
        assert!(request.needs_no_session(), "{} needs a session", request.name());
        let mut problem = AskError::Unanswered("nobody says where it is served".into());
        let answer = match self.service(target) {
            Some(service) => {
                let call = call_of(target, role, request);
                let answer = self.rt().timeout(patience, service.call(call)).await;
                let answer = answer.ok_or_else(|| late(patience))?;
                Some(answer.result.map_err(AskError::Refused)?)
            }
            None => {
                let mut found = None;
                for nid in nids {
                    match self.rt().timeout(patience, self.ask_at(nid, target, role, &request)).await {
                        Some(Ok(reply)) => {
                            found = Some(reply);
                            break;
                        }
                        Some(Err(error)) => problem = error,
                        None => problem = late(patience),
                    }
                }
                found
            }
        };
        match answer.map(O::reply_of) {
            Some(Some(reply)) => Ok(reply),
            Some(None) => Err(AskError::Refused(Code::Malformed)),
            None => Err(problem),
        }
    }

    async fn ask_at(
        &self,
        nid: &Nid,
        target: TargetId,
        role: Role,
        request: &Request,
    ) -> Result<Reply, AskError> {
        let addr = dialled(nid).map_err(|error| AskError::Unanswered(error.to_string()))?;
        let link = self.carried().link(self, &addr, role).await.map_err(|error| match error {
            LinkError::Refused(code, _) => AskError::Refused(code),
            LinkError::Unreachable(problem) => AskError::Unanswered(format!("{nid}: {problem}")),
        })?;
        let mut request = request.clone();
        if let Request::Connect(connect) = &mut request {
            connect.proof = self.clients().prove(connect.client, link.binding());
        }
        match link.ask(target, &request).await {
            Some(answer) => answer.map_err(AskError::Refused),
            None => Err(AskError::Unanswered(format!("{nid}: the connection broke"))),
        }
    }
}

fn late(patience: Duration) -> AskError {
    AskError::Unanswered(format!("nothing within {} seconds", patience.as_secs()))
}

fn call_of(target: TargetId, role: Role, request: Request) -> Call {
    Call {
        peer: Peer { role, from: Origin::Here },
        target,
        session: 0,
        session_epoch: 0,
        xid: Xid(0),
        slot: None,
        resent: false,
        unchecked: false,
        replay: None,
        request,
        bulk: Vec::new(),
        job: JobId::NONE,
    }
}
