//! A connection to a server process, shared by all imports of one role whose targets are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::auth::AuthError;
use proto::seal::Protection;
use proto::session::machine::{Incoming, Outgoing};
use proto::session::{Event, Message};
use proto::wire::batch::{self, Filling, Member};
use proto::wire::header::{FLAG_ARRIVED, FLAG_BATCH, FLAG_CALLBACK, FLAG_REPLY, FLAG_RESENT, FLAG_UNDER_WAY};
use proto::wire::messages::Connect;
use proto::wire::{DecodeError, Header, Reply, Request};
use proto::{Code, TargetId, Xid};
use rt::net::{Receiver, Sender};
use rt::sync::{Semaphore, oneshot};
use rt::{Addr, Frame, Rt, Time};

use super::Driver;
use crate::callback;
use crate::event::{Either, Ended, race};
use crate::frame::{self, BulkChecksum, FrameError};
use crate::hub::Hub;
use crate::keys::Role;
use crate::limits;
use crate::tcp::handshake::{self, HandshakeError};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// It may be better later.
    #[error("{0}")]
    Unreachable(String),
    /// The other side does not want this process.
    #[error("{1}")]
    Refused(Code, String),
}

/// Connections by (address, role). Each place is made on first use and has one connection at most.
#[derive(Default)]
pub(crate) struct Links {
    places: Mutex<BTreeMap<(Addr, Role), Arc<Place>>>,
    /// Keys of this process that some server has accepted.
    accepted: Mutex<BTreeSet<Role>>,
}

struct Place {
    /// Held while connecting: the others wait for the outcome.
    door: Semaphore,
    link: Mutex<Option<Arc<Link>>>,
}

impl Links {
    /// The connection to `addr`, made if there is none.
    pub(crate) async fn get(&self, hub: &Hub, addr: &Addr, role: Role) -> Result<Arc<Link>, LinkError> {
        let place = {
            let mut places = self.places.lock();
            let new = || Arc::new(Place { door: Semaphore::new(1), link: Mutex::new(None) });
            places.entry((addr.clone(), role)).or_insert_with(new).clone()
        };
        let _door = place.door.acquire().await.expect("the door is never closed");
        let known = place.link.lock().clone();
        if let Some(link) = known.filter(|link| !link.ended.is_ended()) {
            return Ok(link);
        }
        let dialing = hub.rt().timeout(limits::HANDSHAKE_TIME_MAX, dial(hub, addr, role)).await;
        let dialed = dialing.unwrap_or_else(|| Err(LinkError::Unreachable("no answer".into())));
        let link = dialed.map_err(|error| self.judge(role, error))?;
        self.accepted.lock().insert(role);
        *place.link.lock() = Some(link.clone());
        Ok(link)
    }

    /// A refusal is not authenticated: a damaged bit brings one about, and so does anybody on the path. It counts as long as
    /// no server has ever accepted the key; from then on it is tried again (`docs/wire.md#handshake`).
    fn judge(&self, role: Role, error: LinkError) -> LinkError {
        match error {
            LinkError::Refused(_, text) if self.accepted.lock().contains(&role) => {
                LinkError::Unreachable(text)
            }
            error => error,
        }
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        for place in std::mem::take(&mut *self.places.lock()).into_values() {
            if let Some(link) = place.link.lock().take() {
                link.end("this process is stopping");
            }
        }
    }
}

async fn dial(hub: &Hub, addr: &Addr, role: Role) -> Result<Arc<Link>, LinkError> {
    let unreachable = |error: std::io::Error| LinkError::Unreachable(error.to_string());
    let mut conn = hub.rt().net().connect(addr).await.map_err(unreachable)?;
    let opened = handshake::initiate(hub, &mut conn, role).await.map_err(|error| {
        conn.sender.close();
        let text = error.to_string();
        match error {
            HandshakeError::Auth(AuthError::WrongKey { .. }) => LinkError::Refused(Code::Forbidden, text),
            HandshakeError::Auth(AuthError::WrongFilesystem { .. }) => {
                LinkError::Refused(Code::WrongFilesystem, text)
            }
            HandshakeError::Auth(AuthError::Version { .. }) => LinkError::Refused(Code::Version, text),
            HandshakeError::Auth(AuthError::Nonsense) | HandshakeError::Io(_) => LinkError::Unreachable(text),
        }
    })?;
    let link = Arc::new(Link {
        rt: hub.rt().clone(),
        addr: addr.clone(),
        sender: conn.sender,
        protection: opened.agreed.protection,
        checksum: hub.guard().checksums(opened.agreed.protection),
        binding: opened.binding,
        ended: Ended::new(),
        heard: AtomicU64::new(hub.rt().now().0),
        last_connect: AtomicU64::new(0),
        connects: Mutex::new(BTreeMap::new()),
        routes: Mutex::new(BTreeMap::new()),
    });
    hub.rt().spawn_apart(link.clone().read(conn.receiver, hub.ended().clone()));
    Ok(link)
}

/// A Connect, or something else outside a session, without an answer, and whose it is.
struct Connecting {
    waiter: oneshot::Sender<Result<Reply, Code>>,
    target: TargetId,
    session_epoch: u64,
    driver: Weak<Driver>,
}

/// One connection.
pub(crate) struct Link {
    rt: Rt,
    addr: Addr,
    sender: Sender,
    protection: Protection,
    checksum: BulkChecksum,
    binding: [u8; 32],
    ended: Ended,
    /// When the other side was heard last.
    heard: AtomicU64,
    last_connect: AtomicU64,
    /// What has no session is told apart by numbers of its own.
    connects: Mutex<BTreeMap<Xid, Connecting>>,
    /// Who gets the replies of a session.
    routes: Mutex<BTreeMap<(TargetId, u64), Weak<Driver>>>,
}

impl Link {
    pub(crate) fn addr(&self) -> &Addr {
        &self.addr
    }

    /// How its frames are protected.
    pub(crate) fn protection(&self) -> Protection {
        self.protection
    }

    /// A number that only this connection has, known to both sides.
    pub(crate) fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    pub(crate) fn ended(&self) -> &Ended {
        &self.ended
    }

    /// When the other side was heard last.
    pub(crate) fn heard_at(&self) -> Time {
        Time(self.heard.load(Ordering::Relaxed))
    }

    /// Gives the connection up. Its sessions are told by the task that reads.
    pub(crate) fn end(&self, reason: &str) {
        if !self.ended.is_ended() {
            tracing::info!(addr = %self.addr, reason, "a connection ends");
        }
        self.ended.end();
        self.sender.close();
    }

    /// What comes for session `session` goes to the import from now on. The reader does this itself, with the answer to
    /// the Connect: a callback may be the next frame.
    fn join(self: &Arc<Self>, connecting: &Connecting, session: u64) {
        let Some(driver) = connecting.driver.upgrade() else { return };
        self.routes.lock().insert((connecting.target, session), connecting.driver.clone());
        driver.joined(self, session, connecting.session_epoch);
    }

    /// The session goes on elsewhere, or not at all.
    pub(crate) fn leave(&self, target: TargetId, session: u64) {
        self.routes.lock().remove(&(target, session));
    }

    /// Ends the connection if no session uses it.
    pub(crate) fn close_if_idle(&self) {
        if self.routes.lock().is_empty() && self.connects.lock().is_empty() {
            self.end("nobody uses it");
        }
    }

    /// Asks for a session; `None` if the connection breaks before the answer.
    pub(crate) async fn connect(
        &self,
        target: TargetId,
        connect: Connect,
        driver: &Weak<Driver>,
    ) -> Option<Result<Reply, Code>> {
        let session_epoch = connect.session_epoch;
        self.without_session(target, session_epoch, &Request::Connect(connect), driver).await
    }

    /// Asks what needs no session; `None` if the connection breaks before the answer.
    pub(crate) async fn ask(&self, target: TargetId, request: &Request) -> Option<Result<Reply, Code>> {
        self.without_session(target, 0, request, &Weak::new()).await
    }

    async fn without_session(
        &self,
        target: TargetId,
        session_epoch: u64,
        request: &Request,
        driver: &Weak<Driver>,
    ) -> Option<Result<Reply, Code>> {
        let xid = Xid(self.last_connect.fetch_add(1, Ordering::Relaxed) + 1);
        let mut body = Vec::new();
        request.put_body(&mut body);
        let header = Header { session_epoch, ..frame::header(request.opcode(), target, xid) };
        let (waiter, answer) = oneshot::channel();
        let connecting = Connecting { waiter, target, session_epoch, driver: driver.clone() };
        self.connects.lock().insert(xid, connecting);
        let _forget = ForgetConnect { link: self, xid };
        self.put(frame::encode(header, &body));
        match race(self.ended.wait(), answer).await {
            Either::First(()) => None,
            Either::Second(answer) => answer.ok(),
        }
    }

    /// Sends a request. If the connection breaks, connecting again sends it again.
    pub(crate) fn send(&self, header: Header, message: &Arc<Message>) {
        self.put(frame::encode_with_bulk(header, &message.body, message.bulk.clone(), self.checksum));
    }

    /// Sends requests that the other side takes in one frame: in as few as they fit into.
    pub(crate) fn send_all(&self, mut outgoing: Vec<Outgoing>) {
        while let Some((first, _)) = outgoing.first().cloned() {
            let mut filling = Filling::default();
            let together = outgoing.extract_if(.., |(header, message)| {
                travels_with(&first, header) && message.bulk.is_empty() && filling.add(message.body.len())
            });
            let mut together: Vec<Outgoing> = together.collect();
            match together.len() {
                // The first has to travel alone.
                0 => together.push(outgoing.remove(0)),
                1 => {}
                _ => {
                    self.put(batch_of(first, &together));
                    continue;
                }
            }
            together.into_iter().for_each(|(header, message)| self.send(header, &message));
        }
    }

    /// Sends a request again that has no reply: if there is much to send, the other side is asked first whether it has it.
    pub(crate) fn ask_or_send(&self, mut header: Header, message: &Arc<Message>) {
        let bulk: usize = message.bulk.iter().map(Bytes::len).sum();
        if bulk <= limits::RESENT_UNASKED_MAX {
            header.flags |= FLAG_RESENT;
            return self.send(header, message);
        }
        header.flags |= FLAG_RESENT | FLAG_ARRIVED;
        self.put(frame::encode(header, &[]));
    }

    /// Queues a frame.
    pub(crate) fn put(&self, frame: Frame) {
        let (sender, ended) = (self.sender.clone(), self.ended.clone());
        // Not by the caller: one that goes away half way must not take the frame with it.
        self.rt.run_in_place(async move {
            if sender.send(frame).await.is_err() {
                ended.end();
            }
        });
    }

    async fn read(self: Arc<Self>, mut receiver: Receiver, hub_ended: Ended) {
        let reason = loop {
            let stop = race(hub_ended.wait(), self.ended.wait());
            let frame = match race(stop, receiver.recv()).await {
                Either::First(_) => break "it was given up".to_owned(),
                Either::Second(Err(error)) => break error.to_string(),
                Either::Second(Ok(frame)) => frame,
            };
            self.heard.store(self.rt.now().0, Ordering::Relaxed);
            if let Err(error) = self.take_in(frame) {
                break format!("the server sent nonsense: {error}");
            }
        };
        self.end(&reason);
        self.connects.lock().clear();
        let routes = std::mem::take(&mut *self.routes.lock());
        for driver in routes.into_values().filter_map(|driver| driver.upgrade()) {
            driver.on_link(&self, Event::Broken);
        }
    }

    fn take_in(self: &Arc<Self>, frame: Frame) -> Result<(), FrameError> {
        let (header, body, bulk) = frame::decode(frame)?;
        if header.flags & FLAG_BATCH != 0 {
            return self.replies(&header, body);
        }
        match (header.flags & FLAG_CALLBACK != 0, header.flags & FLAG_REPLY != 0) {
            (true, false) => self.callback(header, body),
            (false, true) => self.reply(header, body, bulk),
            (true, true) => Err(FrameError::Direction("reply to a callback")),
            (false, false) => Err(FrameError::Direction("request")),
        }
    }

    /// Whose session it is.
    fn route(&self, header: &Header) -> Option<Arc<Driver>> {
        self.routes.lock().get(&(header.target, header.session)).and_then(Weak::upgrade)
    }

    fn callback(self: &Arc<Self>, header: Header, body: Bytes) -> Result<(), FrameError> {
        let request = match Request::take_body(header.opcode, body) {
            Ok(request) => request,
            Err(DecodeError::UnknownOperation(_)) => {
                // A newer server may know more operations; that is no nonsense.
                self.put(callback::answer(header, Err(Code::NotSupported)));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let resent = header.flags & FLAG_RESENT != 0;
        match self.route(&header) {
            Some(driver) => driver.called_back(self, header, request, resent),
            None => self.put(callback::answer(header, Err(Code::NoSession))),
        }
        Ok(())
    }

    fn reply(self: &Arc<Self>, header: Header, body: Bytes, bulk: Vec<Bytes>) -> Result<(), FrameError> {
        if header.flags & FLAG_UNDER_WAY != 0 {
            // That the other side lives is all that it says, unless it wants the request.
            if let Some(driver) = self.route(&header) {
                let Header { xid, session_epoch, .. } = header;
                match header.flags & FLAG_ARRIVED != 0 {
                    true => driver.wanted(self, xid, session_epoch),
                    false => driver.on(Event::UnderWay { xid, session_epoch }),
                }
            }
            return Ok(());
        }
        let result = match Code::from_u32(header.status) {
            Some(code) => Err(code),
            None => Ok(Reply::take_body(header.opcode, body)?),
        };
        if header.session == 0 {
            let connecting = self.connects.lock().remove(&header.xid);
            if let Some(connecting) = connecting {
                if let Ok(Reply::Connect(connected)) = &result {
                    self.join(&connecting, connected.session);
                }
                let _ = connecting.waiter.send(result);
            }
            return Ok(());
        }
        if let Some(driver) = self.route(&header) {
            let Header { xid, session_epoch, transno, last_committed, room, .. } = header;
            let reply = Incoming { xid, session_epoch, transno, last_committed, room, result, bulk };
            driver.on(Event::Replies(vec![reply]));
        }
        Ok(())
    }

    /// Several replies in one frame.
    fn replies(&self, header: &Header, body: Bytes) -> Result<(), FrameError> {
        if header.flags & FLAG_REPLY == 0 {
            return Err(FrameError::Direction("request"));
        }
        let Header { session_epoch, last_committed, room, .. } = *header;
        let incoming = |member: Member| {
            let Member { xid, transno, .. } = member;
            let result = match Code::from_u32(member.status) {
                Some(code) => Err(code),
                None => Ok(Reply::take_body(member.opcode, member.body)?),
            };
            Ok(Incoming { xid, session_epoch, transno, last_committed, room, result, bulk: Vec::new() })
        };
        let members = batch::decode(header, body)?;
        let replies = members.into_iter().map(incoming).collect::<Result<Vec<_>, FrameError>>()?;
        if let Some(driver) = self.route(header) {
            driver.on(Event::Replies(replies));
        }
        Ok(())
    }
}

/// Whether two requests differ in nothing that a batch says once for all.
fn travels_with(one: &Header, other: &Header) -> bool {
    let common = |header: &Header| (header.target, header.session, header.session_epoch, header.job);
    common(one) == common(other)
}

/// The frame of several requests; what is common to them is in `header`.
fn batch_of(mut header: Header, requests: &[Outgoing]) -> Frame {
    let member = |(header, message): &Outgoing| Member {
        opcode: header.opcode,
        // Nothing else is said of one that travels with others.
        flags: header.flags & FLAG_RESENT,
        status: 0,
        xid: header.xid,
        transno: header.transno,
        slot: header.slot,
        body: message.body.clone(),
    };
    batch::mark(&mut header);
    let members: Vec<Member> = requests.iter().map(member).collect();
    frame::encode(header, &batch::encode(&members))
}

struct ForgetConnect<'a> {
    link: &'a Link,
    xid: Xid,
}

impl Drop for ForgetConnect<'_> {
    fn drop(&mut self) {
        self.link.connects.lock().remove(&self.xid);
    }
}
