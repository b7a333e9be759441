//! The target's side: a callback is sent, and sent again, until it is answered or nobody is there to answer.

use std::sync::Arc;
use std::time::Duration;

use proto::limits::BODY_BYTES_MAX;
use proto::wire::header::{FLAG_CALLBACK, FLAG_RESENT};
use proto::wire::{Header, Reply, Request};
use proto::{Code, Xid};
use rt::Time;
use rt::sync::oneshot;

use super::CallbackError;
use crate::event::{Either, race};
use crate::export::{Absence, Callee, Key, Way};
use crate::export::{Calling, Connection};
use crate::frame;
use crate::hub::Hub;
use crate::limits;

type Answer = Result<Result<Reply, Code>, CallbackError>;

/// Calls the client of session `key` back.
pub(crate) async fn call_back(hub: &Hub, key: Key, request: Request, patience: Duration) -> Answer {
    let Some(callee) = hub.sessions().callee(key) else { return Err(CallbackError::Ended) };
    let end = race(hub.ended().wait(), gone(hub, key, &callee, patience));
    match race(answered(hub, key, &callee, request), end).await {
        Either::First(answer) => answer,
        Either::Second(Either::First(())) => Err(CallbackError::Ended),
        Either::Second(Either::Second(error)) => Err(error),
    }
}

/// Waits until the client is given up: it has been away for `patience`, and for a while since the call, so that a server
/// that was stopped itself does not take all its clients for dead. Not for all of `patience` since the call: who needs
/// something of several targets asks one after the other, and would wait as often.
async fn gone(hub: &Hub, key: Key, callee: &Callee, patience: Duration) -> CallbackError {
    let (rt, start) = (hub.rt(), hub.rt().now());
    loop {
        let changed = callee.presence.notified();
        let since = match hub.sessions().absence(key) {
            Err(_) => return CallbackError::Ended,
            Ok(None) => {
                changed.await;
                continue;
            }
            Ok(Some(Absence { since, .. })) => since,
        };
        let end = (since + patience).max(start + patience.min(limits::RETURN_TIME));
        if rt.now() >= end {
            return CallbackError::Unreachable;
        }
        race(changed, rt.sleep_until(end)).await;
    }
}

async fn answered(hub: &Hub, key: Key, callee: &Callee, request: Request) -> Answer {
    let Ok(_room) = callee.room.acquire().await else { return Err(CallbackError::Ended) };
    let (waiter, mut answer) = oneshot::channel();
    let xid = hub.sessions().begin(key, waiter).ok_or(CallbackError::Ended)?;
    let mut callback = Callback::new(hub, key, xid, request);
    let mut patience = limits::RESEND_MIN;
    loop {
        let moved = callee.moved.notified();
        let way = hub.sessions().way(key).map_err(|_| CallbackError::Ended)?;
        let round = race(moved, callback.send(way, patience));
        match race(&mut answer, round).await {
            Either::First(Ok(result)) => return Ok(result),
            Either::First(Err(_)) => return Err(CallbackError::Ended),
            Either::Second(Either::First(())) => patience = limits::RESEND_MIN,
            Either::Second(Either::Second(())) => patience = (patience * 2).min(limits::RESEND_MAX),
        }
    }
}

/// One callback under way; forgotten when dropped.
struct Callback<'a> {
    hub: &'a Hub,
    key: Key,
    xid: Xid,
    request: Request,
    /// Encoded for the first connection.
    body: Option<Vec<u8>>,
    /// The connection over which it was sent last, and when it was sent again there: then it deserves at least "under
    /// way".
    sent: Option<(Arc<Connection>, Option<Time>)>,
    /// Keeps that connection reading.
    calling: Option<Calling>,
}

impl Drop for Callback<'_> {
    fn drop(&mut self) {
        self.hub.sessions().forget(self.key, self.xid);
    }
}

impl<'a> Callback<'a> {
    fn new(hub: &'a Hub, key: Key, xid: Xid, request: Request) -> Callback<'a> {
        Callback { hub, key, xid, request, body: None, sent: None, calling: None }
    }

    /// Sends it by `way` and comes back when it is time to do so again.
    async fn send(&mut self, way: Option<Way>, patience: Duration) {
        match way {
            None => std::future::pending().await,
            Some(Way::Here(driver)) => {
                match driver.upgrade() {
                    Some(driver) => driver.called().came_here(self.key.1, self.xid, self.request.clone()),
                    None => self.hub.sessions().lost_here(self.key),
                }
                // Nothing is lost within a process.
                std::future::pending().await
            }
            Some(Way::There(..)) if self.sent.is_some() && !self.hub.habits().resend_callbacks => {
                std::future::pending().await
            }
            Some(Way::There(connection, session_epoch)) => {
                self.send_over(connection, session_epoch).await;
                self.hub.rt().sleep(patience).await;
            }
        }
    }

    async fn send_over(&mut self, connection: Arc<Connection>, session_epoch: u64) {
        let now = self.hub.rt().now();
        let heard = connection.heard_at();
        if !self.sent.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, &connection)) {
            self.calling = Some(connection.calling());
        }
        let again = self.sent.is_some();
        let before = self.sent.replace((connection.clone(), again.then_some(now)));
        if let Some((before, Some(at))) = &before
            && Arc::ptr_eq(before, &connection)
            && heard < *at
            && now - heard > limits::SILENCE_MAX
        {
            connection.give_up();
            return;
        }
        let request = &self.request;
        let body = self.body.get_or_insert_with(|| {
            let mut body = Vec::new();
            request.put_body(&mut body);
            body
        });
        assert!(body.len() <= BODY_BYTES_MAX, "a callback is small");
        let mut flags = FLAG_CALLBACK;
        if again {
            flags |= FLAG_RESENT;
        }
        let (target, session) = self.key;
        let header = Header {
            flags,
            session,
            session_epoch,
            ..frame::header(self.request.opcode(), target, self.xid)
        };
        connection.send(frame::encode(header, body)).await;
    }
}
