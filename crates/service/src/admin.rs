//! What a target answers outside any session: how it is, and what an operator orders.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::wire::messages as msg;
use proto::wire::messages::TargetRequest;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Whom};
use rpc::{Answer, Peer, Role};

use crate::eviction::{PastSession, Trace};
use crate::session::Session;
use crate::target::answered;
use crate::{Done, Handler, Supervision, Target, Watch};

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
        tracing::warn!(target = %self.id, from = %peer.from, "an operator ends the recovery");
        self.recovery.hurry();
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        Ok(Reply::AbortRecovery(msg::Done {}))
    }

    fn hand_over(&self, peer: &Peer, order: &msg::HandOver) -> Result<Reply, Code> {
        only_servers(peer)?;
        let Supervision::Shared(orders) = &self.began.supervision else { return Err(Code::NotSupported) };
        tracing::info!(target = %self.id, from = %peer.from, to = order.to, "an operator hands the target over");
        orders.hand_over(&order.to);
        Ok(Reply::HandOver(msg::Done {}))
    }

    /// Ends the sessions of a client, or of all clients at an address; `NotFound` if there is none.
    pub(crate) fn evict_clients(&self, from: &dyn Display, whom: &Whom) -> Result<(), Code> {
        let _door = self.exports.door.lock();
        let hit = self.named(whom.client, &whom.nid)?;
        let why = format!("an operator at {from} ordered it");
        for session in &hit {
            self.evict_session(session, &why);
        }
        if hit.is_empty() { Err(Code::NotFound) } else { Ok(()) }
    }

    /// The sessions of a client, or of all clients at an address: one of the two is named.
    fn named(&self, client: ClientId, nid: &str) -> Result<Vec<Arc<Session<H::Session>>>, Code> {
        if (client == ClientId(0)) == nid.is_empty() {
            return Err(Code::Invalid);
        }
        // A server's session is not an operator's to end: its server would be taken for a stranger's.
        let may_end = |session: &Session<H::Session>| session.role() == Role::Client;
        if nid.is_empty() {
            let session = self.exports.sessions.of_client(client);
            return Ok(session.filter(|session| may_end(session)).into_iter().collect());
        }
        Ok(self.exports.sessions.matching(|session| may_end(session) && is_at(&session.nid(), nid)))
    }

    /// Has clients give back what they keep, and says what they have left.
    async fn drain_clients(&self, peer: &Peer, drain: &msg::DrainClient) -> Result<Reply, Code> {
        only_servers(peer)?;
        let hit = self.named(drain.client, &drain.nid)?;
        if hit.is_empty() {
            return Err(Code::NotFound);
        }
        if hit.len() > msg::DRAINED_MAX {
            return Err(Code::TooBig);
        }
        let mut clients = Vec::with_capacity(hit.len());
        for session in &hit {
            let (client, nid) = (session.client(), session.nid());
            tracing::info!(target = %self.id, from = %peer.from, %client, nid, "an operator has a client drained");
            let left = self.clients.drain(session.handle()).await;
            let locks = u32::try_from(self.handler.held_by(session.handle()).len()).unwrap_or(u32::MAX);
            let nothing = msg::DrainDone { unsent_bytes: 0, locks: 0, open_count: 0, open_files: Vec::new() };
            let (answered, left) = (left.is_some(), left.unwrap_or(nothing));
            clients.push(msg::DrainedClient { client, nid, answered, locks, left });
        }
        Ok(Reply::DrainClient(msg::Drained { clients }))
    }

    /// Ends a session against its client's will. The caller holds the door.
    pub(crate) fn evict_session(&self, session: &Arc<Session<H::Session>>, why: &str) {
        let nid = session.nid();
        let past = PastSession {
            handle: session.handle(),
            server: session.role() == Role::Server,
            began: session.began(),
            requests: session.recent().count(),
            recent: session.recent().list(),
            held: self.handler.held_by(session.handle()),
        };
        self.trace(session.client(), &nid, why, Some(past));
        self.recovery.give_up(session.client());
        self.clients.evicted(session.handle());
        self.end(session);
    }

    /// Writes down that a client is evicted. The log says where.
    pub(crate) fn trace(&self, client: ClientId, nid: &str, why: &str, session: Option<PastSession>) {
        let trace = Trace {
            target: format!("{}-{}", self.store.label().fsname, self.id),
            client,
            nid: nid.to_owned(),
            why: why.to_owned(),
            session,
            waits: Watch::waits(self),
        };
        let trace = self.tracer.write(&trace);
        tracing::warn!(target = %self.id, %client, nid, why, trace, "a client is evicted");
    }
}

pub(crate) fn only_servers(peer: &Peer) -> Result<(), Code> {
    if peer.role == Role::Server { Ok(()) } else { Err(Code::Forbidden) }
}

/// Whether a session's NID is `wanted`, whose net may be left out.
fn is_at(nid: &str, wanted: &str) -> bool {
    nid == wanted || nid.split('@').next() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::is_at;

    #[test]
    fn addresses_are_nids() {
        assert!(is_at("10.1.1.2@tcp", "10.1.1.2@tcp") && is_at("10.1.1.2@tcp", "10.1.1.2"));
        assert!(!is_at("10.1.1.2@tcp", "10.1.1.2@lo") && !is_at("10.1.1.21@tcp", "10.1.1.2"));
    }
}
