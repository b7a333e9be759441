//! What a target answers outside any session: how it is, and what an operator orders.

use std::sync::atomic::Ordering;

use proto::Code;
use proto::wire::messages as msg;
use proto::wire::messages::TargetRequest;
use proto::wire::{Reply, Request};
use rpc::{Answer, Peer, Role};

use crate::target::answered;
use crate::{Done, Handler, Supervision, Target};

impl<H: Handler> Target<H> {
    /// Answers what needs no session; `None` if `request` does.
    pub(crate) async fn administer(&self, peer: &Peer, request: &Request) -> Option<Answer> {
        let ordered = |outcome: Result<Reply, Code>| match outcome {
            Ok(reply) => answered::<H>(Done::unchanged(reply)),
            Err(code) => Answer::refuse(code),
        };
        let request = match TargetRequest::try_from(request.clone()) {
            Ok(request) => request,
            Err(request) => {
                let request = H::Outside::try_from(request).ok()?;
                return Some(ordered(self.handler.outside(peer, request).await));
            }
        };
        Some(match request {
            TargetRequest::GetState(msg::GetState {}) => {
                self.disk_queues.look().await;
                ordered(Ok(Reply::GetState(self.state())))
            }
            TargetRequest::AbortRecovery(msg::AbortRecovery {}) => ordered(self.abort_recovery(peer).await),
            TargetRequest::DrainClient(drain) => ordered(self.drain_clients(peer, &drain).await),
            TargetRequest::HandOver(order) => ordered(self.hand_over(peer, &order)),
            TargetRequest::SetParameters(set) => ordered(self.set_parameters(peer, &set)),
            TargetRequest::ReadParameters(read) => ordered(self.read_parameters(peer, &read).await),
            TargetRequest::Connect(_) | TargetRequest::Disconnect(_) => return None,
            TargetRequest::Sync(_) | TargetRequest::Statfs(_) => return None,
        })
    }

    pub(crate) fn state(&self) -> msg::TargetState {
        let mut problems = self.handler.problems();
        if self.store.has_failed() {
            problems.push("reading or writing its directory failed; restart its server".to_owned());
        }
        if self.stop.is_stopped() {
            problems.push("it is being stopped".to_owned());
        }
        let sessions = u32::try_from(self.exports.sessions.count()).unwrap_or(u32::MAX);
        let (missing, missing_count) = self.recovery.waits_for();
        let told = if self.began.told.load(Ordering::Relaxed) { msg::STATE_TOLD } else { 0 };
        let scheduler = if self.disk_queues.are_suitable() { 0 } else { msg::STATE_SCHEDULER };
        let flags = told | scheduler;
        let recovery = self.recovery.report();
        msg::TargetState { recovery, sessions, problems, missing, missing_count, flags }
    }

    async fn abort_recovery(&self, peer: &Peer) -> Result<Reply, Code> {
        only_servers(peer)?;
        tracing::warn!(target = %self.store.label().target, from = %peer.from, "an operator ends the recovery");
        self.recovery.hurry();
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        Ok(Reply::AbortRecovery(msg::Done {}))
    }

    fn hand_over(&self, peer: &Peer, order: &msg::HandOver) -> Result<Reply, Code> {
        only_servers(peer)?;
        let Supervision::Shared(orders) = &self.began.supervision else { return Err(Code::NotSupported) };
        tracing::info!(target = %self.store.label().target, from = %peer.from, to = order.to, "an operator hands the target over");
        orders.hand_over(&order.to);
        Ok(Reply::HandOver(msg::Done {}))
    }

    /// Has clients give back what they keep, and says what they have left.
    async fn drain_clients(&self, peer: &Peer, drain: &msg::DrainClient) -> Result<Reply, Code> {
        only_servers(peer)?;
        let hit = self.exports.named(drain.client, &drain.nid)?;
        if hit.is_empty() {
            return Err(Code::NotFound);
        }
        if hit.len() > msg::DRAINED_MAX {
            return Err(Code::TooBig);
        }
        let mut clients = Vec::with_capacity(hit.len());
        for session in &hit {
            let (client, nid) = (session.client(), session.nid());
            tracing::info!(target = %self.store.label().target, from = %peer.from, %client, nid, "an operator has a client drained");
            let left = self.clients.drain(session.handle()).await;
            let locks = u32::try_from(self.handler.held_by(session.handle()).len()).unwrap_or(u32::MAX);
            let nothing = msg::DrainDone { unsent_bytes: 0, locks: 0, open_count: 0, open_files: Vec::new() };
            let (answered, left) = (left.is_some(), left.unwrap_or(nothing));
            clients.push(msg::DrainedClient { client, nid, answered, locks, left });
        }
        Ok(Reply::DrainClient(msg::Drained { clients }))
    }
}

pub(crate) fn only_servers(peer: &Peer) -> Result<(), Code> {
    if peer.role == Role::Server { Ok(()) } else { Err(Code::Forbidden) }
}
