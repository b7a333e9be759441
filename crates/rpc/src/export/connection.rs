//! One connection of a peer, as its server sees it: lets requests in, sends answers back.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::identity;
use proto::wire::batch::{self, Member};
use proto::wire::header::{
    FLAG_ARRIVED, FLAG_BATCH, FLAG_CALLBACK, FLAG_REPLAY, FLAG_REPLY, FLAG_RESENT, FLAG_UNCHECKED,
    FLAG_UNDER_WAY,
};
use proto::wire::messages::Connect;
use proto::wire::{DecodeError, Header, Reply, Request};
use proto::{Code, TargetId, TargetKind};
use rt::net::{Conn, Sender};
use rt::sync::Notify;
use rt::{Frame, Time};

use super::admission::Class;
use super::batch::Answers;
use super::parked::{Offered, Queue};
use super::reply::{put_answer, refusal, reply_header, under_way};
use super::sessions::{Gate, Key};
use crate::event::{Either, Ended, race};
use crate::frame::{self, BulkChecksum, FrameError};
use crate::hub::Hub;
use crate::keys::Role;
use crate::limits;
use crate::service::{Answer, Call, Origin, Peer};
use crate::tcp::handshake::Opened;

/// One connection of a peer.
pub(crate) struct Connection {
    hub: Hub,
    sender: Sender,
    /// Whether bulk that goes out gets a checksum.
    checksum: BulkChecksum,
    /// A number that only this connection has, known to both sides.
    binding: [u8; 32],
    peer: Peer,
    ended: Ended,
    /// When the other side was heard last.
    heard: AtomicU64,
    /// It ended because the other side said nothing any more.
    silent: AtomicBool,
    queue: Mutex<Queue>,
    /// Callbacks to sessions on this connection.
    calling: AtomicUsize,
    /// Something was done: there may be room to read on.
    room: Notify,
    /// The sessions that live on it.
    living: Mutex<BTreeSet<Key>>,
}

/// What a frame brought.
struct Taken {
    calls: Vec<Call>,
    /// What can be said at once. The reader sends it, and reads no more until it has: a peer that asks and does not listen has only so
    /// much answered.
    said: Vec<Frame>,
    /// Where the answers of a batch gather.
    answers: Option<Arc<Answers>>,
}

/// Whether a connection that ended with such an error was not closed by anybody.
fn is_silence(kind: ErrorKind) -> bool {
    use ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(kind, HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

/// A callback over a connection; while there is one, reading does not stop.
pub(crate) struct Calling(Arc<Connection>);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection {
    /// Serves a peer that has shown which key it holds, until the connection ends.
    pub(super) async fn serve(hub: &Hub, conn: Conn, opened: Opened) {
        let Opened { agreed, binding } = opened;
        let connection = Arc::new(Connection {
            hub: hub.clone(),
            sender: conn.sender.clone(),
            checksum: hub.guard().checksums(agreed.protection),
            binding,
            peer: Peer { role: Role::of(agreed.key), from: Origin::Remote(conn.peer.to_string().into()) },
            ended: Ended::new(),
            heard: AtomicU64::new(hub.rt().now().0),
            silent: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            calling: AtomicUsize::new(0),
            room: Notify::new(),
            living: Mutex::default(),
        });
        let reason = connection.read(conn).await;
        connection.ended.end();
        connection.sender.close();
        let parked = connection.queue.lock().take_parked();
        for call in parked {
            hub.sessions().leave((call.target, call.session), call.xid);
        }
        hub.sessions().connection_lost(&connection);
        tracing::info!(peer = %connection.peer.from, reason, "a connection ends");
    }

    /// A session lives here from now on.
    pub(crate) fn settle(&self, key: Key) {
        self.living.lock().insert(key);
    }

    /// A session ended, or lives elsewhere.
    pub(crate) fn unsettle(&self, key: Key) {
        self.living.lock().remove(&key);
    }

    /// The sessions that live here, and do no more.
    pub(crate) fn take_settled(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.living.lock())
    }

    /// When the other side was heard last.
    pub(crate) fn heard_at(&self) -> Time {
        Time(self.heard.load(Ordering::Relaxed))
    }

    /// A callback is under way over this connection as long as the result lives: its answer has to be read.
    pub(crate) fn calling(self: &Arc<Self>) -> Calling {
        self.calling.fetch_add(1, Ordering::SeqCst);
        self.room.notify_waiters();
        Calling(self.clone())
    }

    /// Ends the connection: the other side says nothing any more. The task that reads clears up.
    pub(crate) fn give_up(&self) {
        self.silent.store(true, Ordering::Relaxed);
        self.ended.end();
    }

    /// Whether it ended without a word from the other side's machine: the peer may be there, and not reach us.
    pub(crate) fn was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Sends a frame; comes back without if the connection ends.
    pub(crate) async fn send(&self, frame: Frame) {
        let _ = race(self.ended.wait(), self.sender.send(frame)).await;
    }

    /// Reads requests until the connection ends; says why it did.
    async fn read(self: &Arc<Self>, mut conn: Conn) -> String {
        loop {
            // There may always be a frame.
            poll_fn(|cx| self.hub.rt().poll_step(cx)).await;
            let stop = race(self.hub.ended().wait(), self.ended.wait());
            let frame = match race(stop, conn.receiver.recv()).await {
                Either::First(_) => return "it was given up".into(),
                Either::Second(Err(error)) => {
                    self.silent.fetch_or(is_silence(error.kind()), Ordering::Relaxed);
                    if error.kind() == ErrorKind::InvalidData {
                        tracing::warn!(peer = %self.peer.from, %error, "a frame was refused");
                    }
                    return error.to_string();
                }
                Either::Second(Ok(frame)) => frame,
            };
            self.heard.store(self.hub.rt().now().0, Ordering::Relaxed);
            let taken = match self.take_in(frame) {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::warn!(peer = %self.peer.from, %error, "a peer sent nonsense");
                    return format!("the peer sent nonsense: {error}");
                }
            };
            let Taken { calls, said, answers } = taken;
            let mut calls = calls.into_iter();
            while let Some(call) = calls.next() {
                // Nor are all calls of a batch carried out while others wait.
                poll_fn(|cx| self.hub.rt().poll_step(cx)).await;
                let stop = race(self.hub.ended().wait(), self.ended.wait());
                let (target, session, xid) = (call.target, call.session, call.xid);
                if let Either::First(_) = race(stop, self.admitted(call, answers.as_ref())).await {
                    for xid in std::iter::once(xid).chain(calls.map(|call| call.xid)) {
                        self.hub.sessions().leave((target, session), xid);
                    }
                    return "it was given up".into();
                }
            }
            if let Some(answers) = answers {
                self.answer_gathered(&answers);
            }
            for frame in said {
                let stop = race(self.hub.ended().wait(), self.ended.wait());
                if let Either::First(_) = race(stop, self.sender.send(frame)).await {
                    return "it was given up".into();
                }
            }
        }
    }

    /// Decodes a frame: what is to be carried out.
    fn take_in(self: &Arc<Self>, frame: Frame) -> Result<Taken, FrameError> {
        let (header, body, bulk) = frame::decode(frame)?;
        if header.flags & FLAG_BATCH != 0 {
            return self.take_in_batch(header, body);
        }
        let mut said = Vec::new();
        let call = self.take_in_one(header, body, bulk, &mut said)?;
        Ok(Taken { calls: call.into_iter().collect(), said, answers: None })
    }

    fn take_in_batch(self: &Arc<Self>, header: Header, body: Bytes) -> Result<Taken, FrameError> {
        if header.flags & FLAG_REPLY != 0 {
            return Err(FrameError::Direction("reply"));
        }
        let members = batch::decode(&header, body)?;
        let (mut calls, mut said) = (Vec::with_capacity(members.len()), Vec::new());
        for member in members {
            let Member { opcode, flags, xid, slot, body, .. } = member;
            let header = Header { opcode, flags, xid, slot, ..header.clone() };
            match self.take_in_one(header, body, Vec::new(), &mut said) {
                Ok(call) => calls.extend(call),
                Err(error) => {
                    for Call { target, session, xid, .. } in calls {
                        self.hub.sessions().leave((target, session), xid);
                    }
                    return Err(error);
                }
            }
        }
        let answers = Some(Arc::new(Answers::new(&header)));
        Ok(Taken { calls, said, answers })
    }

    /// Looks at one message; `None` if it needs nothing more than what is `said`.
    fn take_in_one(
        self: &Arc<Self>,
        header: Header,
        body: Bytes,
        bulk: Vec<Bytes>,
        said: &mut Vec<Frame>,
    ) -> Result<Option<Call>, FrameError> {
        if header.flags & FLAG_CALLBACK != 0 {
            return self.called_back(&header, body).map(|()| None);
        }
        if header.flags & FLAG_REPLY != 0 {
            return Err(FrameError::Direction("reply"));
        }
        if header.flags & FLAG_ARRIVED != 0 {
            said.extend(self.asked(header));
            return Ok(None);
        }
        let request = match Request::take_body(header.opcode, body) {
            Ok(request) => request,
            Err(DecodeError::UnknownOperation(_)) => {
                // A newer peer may know more operations; that is no nonsense.
                said.push(refusal(header, Code::NotSupported));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if header.session != 0 {
            // It would name another client, and nobody asks for its proof here.
            if matches!(request, Request::Connect(_)) {
                return Err(FrameError::Direction("connect"));
            }
            let (key, epoch) = ((header.target, header.session), header.session_epoch);
            match self.hub.sessions().enter(key, epoch, header.xid, self) {
                Gate::Pass => {}
                Gate::UnderWay => {
                    if header.flags & FLAG_RESENT != 0 {
                        said.push(under_way(header, 0));
                    }
                    return Ok(None);
                }
                Gate::Drop => return Ok(None),
                Gate::Unknown => {
                    said.push(refusal(header, Code::NoSession));
                    return Ok(None);
                }
            }
        } else if let Request::Connect(connect) = &request
            && !self.may_be(connect)
        {
            tracing::warn!(peer = %self.peer.from, client = %connect.client, "a peer asks for another's session");
            said.push(refusal(header, Code::Forbidden));
            return Ok(None);
        } else if !request.needs_no_session() {
            said.push(refusal(header, Code::NoSession));
            return Ok(None);
        }
        Ok(Some(self.call_of(&header, request, bulk)))
    }

    /// Whether the peer is the client that it says. Servers are believed: their key ends any session.
    fn may_be(&self, connect: &Connect) -> bool {
        self.peer.role == Role::Server
            || (connect.session_epoch <= limits::CLIENT_EPOCH_MAX
                && identity::is_proof(&connect.proof, connect.client, &self.binding))
    }

    /// Takes the answer to a callback.
    fn called_back(self: &Arc<Self>, header: &Header, body: Bytes) -> Result<(), FrameError> {
        if header.flags & FLAG_REPLY == 0 {
            return Err(FrameError::Direction("callback"));
        }
        let under_way = header.flags & FLAG_UNDER_WAY != 0;
        let result = match Code::from_u32(header.status) {
            Some(code) => Err(code),
            None if under_way => Err(Code::TryAgain),
            None => Ok(Reply::take_body(header.opcode, body)?),
        };
        let (sessions, key) = (self.hub.sessions(), (header.target, header.session));
        let there = result != Err(Code::NoSession);
        if sessions.heard(key, header.session_epoch, self, there) && there && !under_way {
            sessions.answered(key, header.xid, result);
        }
        Ok(())
    }

    fn call_of(&self, header: &Header, request: Request, bulk: Vec<Bytes>) -> Call {
        Call {
            peer: self.peer.clone(),
            target: header.target,
            session: header.session,
            session_epoch: header.session_epoch,
            xid: header.xid,
            slot: frame::slot_of(header),
            resent: header.flags & FLAG_RESENT != 0,
            unchecked: header.flags & FLAG_UNCHECKED != 0,
            replay: (header.flags & FLAG_REPLAY != 0).then_some(header.transno),
            request,
            bulk,
            job: header.job,
        }
    }

    /// Lets `call` run or wait for its turn; while neither is possible, so does the reader.
    async fn admitted(self: &Arc<Self>, mut call: Call, answers: Option<&Arc<Answers>>) {
        let bytes = call.bulk.iter().map(Bytes::len).sum();
        let class = Class::of(&call.request, bytes);
        let header = reply_header(&call);
        loop {
            let room = self.room.notified();
            let calling = self.calling.load(Ordering::SeqCst) > 0;
            let offered = self.queue.lock().offer(call, class, calling);
            match offered {
                Offered::Run(call) => return self.run(*call, class, answers.cloned()),
                Offered::Parked => return,
                Offered::Refused => {
                    self.hub.sessions().leave((header.target, header.session), header.xid);
                    return self.send(refusal(header, Code::TryAgain)).await;
                }
                Offered::Full(back) => call = *back,
            }
            if let Some(answers) = answers {
                // They hold the room that is missing.
                self.answer_gathered(answers);
            }
            let mut room = std::pin::pin!(room);
            while self.hub.rt().timeout(limits::EARLY_REPLY_EVERY, room.as_mut()).await.is_none() {
                // The client's questions are not read either.
                self.send(under_way(header.clone(), 0)).await;
            }
        }
    }

    /// Carries `call` out: polled once here, and if it has to wait it becomes a task.
    fn run(self: &Arc<Self>, call: Call, class: Class, answers: Option<Arc<Answers>>) {
        let here = self.clone();
        let header = reply_header(&call);
        let connect_epoch = match &call.request {
            Request::Connect(connect) => Some(connect.session_epoch),
            _ => None,
        };
        let answer = match (self.hub.process_answer(&call), self.hub.service(call.target)) {
            (Some(answer), _) => Box::pin(std::future::ready(answer)),
            (None, Some(service)) => service.call(call),
            (None, None) => Box::pin(std::future::ready(Answer::refuse(Code::NotHere))),
        };
        let workers =
            self.hub.workers().filter(|_| self.needs_worker(header.target, class, connect_epoch.is_some()));
        let workers = workers.cloned();
        self.hub.rt().run_in_place(async move {
            let _worker = match &workers {
                Some(workers) => workers.acquire().await.ok(),
                None => None,
            };
            let answer = answer.await;
            if !here.finish(header, connect_epoch, answer, answers.map(|answers| (answers, class))).await {
                here.done(&[class]);
            }
        });
    }

    /// Sends the answers to a batch that are there.
    fn answer_gathered(self: &Arc<Self>, answers: &Answers) {
        let Some((frame, classes)) = answers.close() else { return };
        let here = self.clone();
        self.hub.rt().run_in_place(async move {
            here.send(frame).await;
            here.done(&classes);
        });
    }

    /// Whether a request needs a worker, where there are some ([`crate::habits::Workers`]).
    fn needs_worker(&self, target: TargetId, class: Class, connects: bool) -> bool {
        let reserved = self.hub.habits().workers.is_none_or(|workers| workers.reserve_connects);
        match class {
            _ if target.kind == TargetKind::Mgs => false,
            Class::Plain(_) | Class::Contending(_) => true,
            Class::Reserved | Class::Waiting => connects && !reserved,
        }
    }

    /// Sends an answer, or adds it to those of its batch: whether it did that.
    async fn finish(
        self: &Arc<Self>,
        mut header: Header,
        connect_epoch: Option<u64>,
        answer: Answer,
        batch: Option<(Arc<Answers>, Class)>,
    ) -> bool {
        let sessions = self.hub.sessions();
        let mut way = self.clone();
        let mut opened = None;
        match (&answer.result, connect_epoch) {
            (Ok(Reply::Connect(connected)), Some(epoch)) => {
                let key = (header.target, connected.session);
                sessions.opened(key, epoch, self);
                opened = Some((key, epoch));
            }
            _ if header.session != 0 => {
                match sessions.leave((header.target, header.session), header.xid) {
                    Some((connection, epoch)) => {
                        header.session_epoch = epoch;
                        way = connection;
                    }
                    // The target has ended the session, as it was asked to: whoever said goodbye waits to hear that.
                    None if matches!(answer.result, Ok(Reply::Disconnect(_))) => {}
                    None => return false,
                }
                if let Ok(Reply::Disconnect(_)) = &answer.result {
                    sessions.ended((header.target, header.session));
                }
            }
            _ => {}
        }
        let (header, body, bulk) = put_answer(header, answer);
        if let Some((answers, class)) = batch
            && Arc::ptr_eq(&way, self)
            && bulk.is_empty()
            && answers.add(&header, &body, class)
        {
            return true;
        }
        // A connection that is gone needs no answer.
        let checksum = way.checksum;
        way.send(frame::encode_with_bulk(header, &body, bulk, checksum)).await;
        if let Some((key, epoch)) = opened {
            sessions.told(key, epoch, self);
            if self.ended.is_ended() {
                sessions.connection_lost(self);
            }
        }
        false
    }

    /// Something was done: what is parked may run.
    fn done(self: &Arc<Self>, classes: &[Class]) {
        {
            let mut queue = self.queue.lock();
            classes.iter().for_each(|class| queue.leave(*class));
        }
        loop {
            let Some((mut call, class)) = self.queue.lock().unpark() else { break };
            // The client may have come back over another connection meanwhile, and sent this again: that one was
            // taken for this one.
            if let Some(epoch) = self.hub.sessions().epoch((call.target, call.session)) {
                call.session_epoch = epoch;
            }
            // As a task: running it here could go on into ever deeper calls.
            let here = self.clone();
            self.hub.rt().spawn(async move { here.run(call, class, None) });
        }
        self.room.notify_waiters();
    }

    /// A client asks whether a request has arrived: nothing came with the question.
    fn asked(self: &Arc<Self>, header: Header) -> Option<Frame> {
        let key = (header.target, header.session);
        match self.hub.sessions().ask(key, header.session_epoch, header.xid, self) {
            Gate::Pass => Some(under_way(header, FLAG_ARRIVED)),
            Gate::UnderWay => Some(under_way(header, 0)),
            Gate::Drop => None,
            Gate::Unknown => Some(refusal(header, Code::NoSession)),
        }
    }
}
