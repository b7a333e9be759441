//! The client's side: what a target asks is run as a task, and answered over the newest connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto::limits::BODY_BYTES_MAX;
use proto::wire::header::{FLAG_CALLBACK, FLAG_REPLY, FLAG_UNDER_WAY};
use proto::wire::{Header, Reply, Request};
use proto::{Code, TargetId, Xid};

use super::Callbacks;
use crate::frame;
use crate::hub::Hub;
use crate::limits;
use crate::session::Link;
use crate::session::{verify_message, verify_reply};

/// The callbacks of one target to one client.
pub(crate) struct Called {
    me: Weak<Called>,
    hub: Hub,
    target: TargetId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    callbacks: Option<Weak<dyn Callbacks>>,
    way: Option<Way>,
    /// By the handle of the session that each came in.
    under_way: BTreeMap<(u64, Xid), Request>,
}

/// The newest way to the target.
#[derive(Clone)]
struct Way {
    session: u64,
    session_epoch: u64,
    /// `None` within one process.
    link: Option<Arc<Link>>,
}

impl Called {
    pub(crate) fn new(hub: Hub, target: TargetId) -> Arc<Called> {
        Arc::new_cyclic(|me| Called { me: me.clone(), hub, target, state: Mutex::default() })
    }

    /// See [`crate::Import::set_callbacks`].
    pub(crate) fn set_callbacks(&self, callbacks: &Arc<dyn Callbacks>) {
        self.state.lock().callbacks = Some(Arc::downgrade(callbacks));
    }

    /// Callbacks that are being worked on.
    pub(crate) fn under_way(&self) -> Vec<Request> {
        self.state.lock().under_way.values().cloned().collect()
    }

    pub(crate) fn callbacks(&self) -> Option<Arc<dyn Callbacks>> {
        self.state.lock().callbacks.as_ref().and_then(Weak::upgrade)
    }

    /// Session `session` lives on `link` now, or in this process.
    pub(crate) fn over(&self, link: Option<&Arc<Link>>, session: u64, session_epoch: u64) {
        let mut state = self.state.lock();
        // The answer to a Connect that was given up may come after that to a later one.
        if state.way.as_ref().is_none_or(|way| way.session_epoch <= session_epoch) {
            state.way = Some(Way { session, session_epoch, link: link.cloned() });
        }
    }

    /// The session has no way to the target for now.
    pub(crate) fn no_more(&self) {
        self.state.lock().way = None;
    }

    /// A callback came over a connection.
    pub(crate) fn came(&self, link: &Arc<Link>, header: Header, request: Request, resent: bool) {
        let known = {
            let mut state = self.state.lock();
            let newest = state.way.as_ref().is_some_and(|way| {
                (way.session, way.session_epoch) == (header.session, header.session_epoch)
            });
            // The target sends again over the newest connection what came over an older one.
            if !newest {
                return;
            }
            let known = state.under_way.insert((header.session, header.xid), request.clone()).is_some();
            if state.under_way.len() > limits::CALLBACKS_MAX {
                // Callbacks that the target has given up are still worked on; this one will come again.
                state.under_way.remove(&(header.session, header.xid));
                return;
            }
            known
        };
        match known {
            false => self.carry_out(header.session, header.xid, request),
            true if resent => link.put(under_way(header)),
            true => {}
        }
    }

    /// A callback came from a target of this process.
    pub(crate) fn came_here(&self, session: u64, xid: Xid, request: Request) {
        if self.hub.rt().verify() {
            let header =
                Header { flags: FLAG_CALLBACK, session, ..frame::header(request.opcode(), self.target, xid) };
            verify_message(header, &request, Vec::new());
        }
        if self.state.lock().under_way.insert((session, xid), request.clone()).is_none() {
            self.carry_out(session, xid, request);
        }
    }

    fn carry_out(&self, session: u64, xid: Xid, request: Request) {
        let Some(called) = self.me.upgrade() else { return };
        let callbacks = self.callbacks();
        self.hub.rt().spawn(async move {
            let opcode = request.opcode();
            let result = match callbacks {
                Some(callbacks) => callbacks.called(called.target, request).await,
                None => Err(Code::NotSupported),
            };
            called.carried_out(session, xid, opcode, result);
        });
    }

    fn carried_out(&self, session: u64, xid: Xid, opcode: u16, result: Result<Reply, Code>) {
        let way = {
            let mut state = self.state.lock();
            state.under_way.remove(&(session, xid));
            // Without a connection nothing is said: the target will ask again, or does not want to know any more.
            state.way.clone().filter(|way| way.session == session)
        };
        let Some(way) = way else { return };
        let result = match result {
            Ok(reply) if reply.opcode() != opcode => Err(Code::Malformed),
            Err(Code::NoSession) => Err(Code::Io),
            result => result,
        };
        match &way.link {
            None => {
                if self.hub.rt().verify() {
                    verify_reply(opcode, &result, &[]);
                }
                self.hub.sessions().answered((self.target, session), xid, result);
            }
            Some(link) => {
                let header = Header {
                    session,
                    session_epoch: way.session_epoch,
                    ..frame::header(opcode, self.target, xid)
                };
                link.put(answer(header, result));
            }
        }
    }
}

/// The answer to the callback with `header`.
pub(crate) fn answer(mut header: Header, result: Result<Reply, Code>) -> rt::Frame {
    header.flags = FLAG_CALLBACK | FLAG_REPLY;
    let mut body = Vec::new();
    let refusal = match &result {
        Ok(reply) => {
            reply.put_body(&mut body);
            (body.len() > BODY_BYTES_MAX).then_some(Code::TooBig)
        }
        Err(code) => Some(*code),
    };
    if let Some(code) = refusal {
        header.status = code.to_u32();
        body.clear();
    }
    frame::encode(header, &body)
}

/// Says that the callback with `header` is being worked on.
fn under_way(mut header: Header) -> rt::Frame {
    header.flags = FLAG_CALLBACK | FLAG_REPLY | FLAG_UNDER_WAY;
    frame::encode(header, &[])
}
