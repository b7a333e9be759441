//! Sessions begin, go on over a new connection or a restart of the target, and end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use proto::limits::SLOTS_MAX;
use proto::session::ReplyRecord;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{ClientId, Code, Transno};
use rpc::{Answer, Peer, Role};
use rt::Time;
use store::{Batch, Change, Store, StoreError};

use crate::clients::Doorman;
use crate::context::code_of;
use crate::session::{Begun, ClientRecord, SESSIONS_MAX, Session, Whereabouts};
use crate::target::answered;
use crate::{Done, Handler, Target, keys};

/// A session that was opened, and what its client is told.
type Opened<S> = (Arc<Session<S>>, msg::Connected);

impl<H: Handler> Target<H> {
    pub(crate) async fn connect(&self, peer: &Peer, connect: &msg::Connect) -> Answer {
        let (session, connected) = match self.try_connect(peer, connect) {
            Ok(connected) => connected,
            Err(code) => return Answer::refuse(code),
        };
        // A client that was told it has a session sends changes, and a restart that forgot it would leave nobody
        // knowing whether they happened. One of this process dies with the target and does not have to wait.
        if !peer.from.is_here()
            && let Err(error) = self.record_durable(&session).await
        {
            return Answer::refuse(code_of(&error));
        }
        // Another Connect of this client may have ended it meanwhile, and nobody would end it again.
        if session.is_over() {
            return Answer::refuse(Code::TryAgain);
        }
        answered::<H>(Done::unchanged(Reply::Connect(connected)))
    }

    fn try_connect(&self, peer: &Peer, connect: &msg::Connect) -> Result<Opened<H::Session>, Code> {
        if connect.fsname != self.store.label().fsname.as_str() {
            return Err(Code::WrongFilesystem);
        }
        if connect.features & msg::FEATURE_BASE == 0 {
            return Err(Code::Version);
        }
        self.check_age(peer, connect)?;
        // A session with what the target was before it was replaced by an older copy is over.
        let boot = if connect.boot <= self.began.accepted { 0 } else { connect.boot };
        let connect = &msg::Connect { boot, ..connect.clone() };
        let _door = self.exports.door.lock();
        if let Some(session) = self.exports.sessions.of_client(connect.client) {
            if session.role() != peer.role {
                return Err(Code::Forbidden);
            }
            // A Connect that an older connection delivers late, or twice, must not end what came after it.
            if connect.session_epoch <= session.epoch() {
                return Err(Code::NoSession);
            }
            if connect.boot != 0 {
                session.set_epoch(connect.session_epoch);
                session.set_from(&peer.from);
                self.recovery.is_back(connect.client);
                let resumed = connect.boot == self.store.boot() || session.resumed();
                let connected = self.connected(&session, resumed);
                return Ok((session, connected));
            }
            // The client knows nothing of this session, so nothing of it can be asked for any more.
            self.end(&session);
        }
        if self.recovery.is_active()
            && !(connect.boot != 0 && self.exports.sessions.is_absent(connect.client))
        {
            // A client that begins anew has nothing to replay, and its record would take a transno of those who have.
            self.recovery.is_done(connect.client);
            return Err(Code::TryAgain);
        }
        // Or what an earlier session of this client left would be taken away together with the new one's.
        self.clear_away();
        let session = self.begin(peer, connect).map_err(|error| code_of(&error))?;
        let Some(session) = session else { return Err(Code::TryAgain) };
        let resumed = session.resumed();
        let connected = self.connected(&session, resumed);
        Ok((session, connected))
    }

    /// Whether the target is as far as it once told the peer. What it tells is durable: if it is not, the target is an older copy, or its
    /// disk lost what it had synced. Who remembers a later state gets nothing; and if that is a server, nobody does.
    fn check_age(&self, peer: &Peer, connect: &msg::Connect) -> Result<(), Code> {
        let own = self.store.last_committed();
        if connect.committed > own && self.store.is_owner() {
            let is_news = !self.began.older.load(Ordering::Relaxed);
            if peer.role == Role::Server {
                self.began.older.store(true, Ordering::Relaxed);
            }
            if is_news {
                tracing::error!(
                    target = %self.store.label().target, client = %connect.client, known = connect.committed.0, own = own.0,
                    "the target told before that more was durable than it has: it is an older copy, or its disk lost what was \
                     synced (docs/operations.md#older)"
                );
            }
            return Err(Code::Older);
        }
        if self.began.older.load(Ordering::Relaxed) { Err(Code::Older) } else { Ok(()) }
    }

    /// A new session; `None` if there are too many.
    fn begin(
        &self,
        peer: &Peer,
        connect: &msg::Connect,
    ) -> Result<Option<Arc<Session<H::Session>>>, StoreError> {
        if self.exports.sessions.count() >= SESSIONS_MAX {
            return Ok(None);
        }
        let known = self.exports.sessions.is_absent(connect.client);
        let resumed = known && connect.boot != 0;
        let mut batch = Batch::default();
        if known && !resumed {
            batch.changes = slot_changes(&self.store, connect.client)?;
        }
        let recorded = if resumed {
            Transno(0)
        } else {
            let place = match peer.role {
                _ if peer.from.is_here() => Whereabouts::Local,
                Role::Server => Whereabouts::Server,
                Role::Client => Whereabouts::Remote,
            };
            let value = Some(ClientRecord::new(place, &peer.from).encode());
            batch.changes.push(Change { key: keys::client(connect.client), value });
            self.store.commit(batch)?
        };
        let session = Arc::new(Session::new(Begun {
            client: connect.client,
            handle: self.exports.sessions.new_handle(&self.rt),
            role: peer.role,
            epoch: connect.session_epoch,
            features: connect.features & msg::FEATURES_ALL,
            resumed,
            recorded,
            from: peer.from.clone(),
            now: self.rt.now(),
        }));
        if resumed {
            self.restore_slots(&session)?;
        }
        self.handler.began(&session);
        self.exports.sessions.insert(session.clone());
        if resumed {
            self.recovery.is_back(connect.client);
        }
        tracing::info!(target = %self.store.label().target, client = %connect.client, from = %peer.from, resumed, "a session begins");
        Ok(Some(session))
    }

    pub(crate) fn disconnect(&self, session: &Arc<Session<H::Session>>) {
        let _door = self.exports.door.lock();
        self.end(session);
    }

    /// Forgets a session and all that belongs to it. The caller holds the door.
    pub(crate) fn end(&self, session: &Arc<Session<H::Session>>) {
        if !self.exports.sessions.remove(session) {
            return;
        }
        self.recovery.is_done(session.client());
        // What is still under way must not come behind what others, or the same client, do from now on.
        session.author().end(&self.store);
        // While others replay, nothing else may draw a transno: theirs would be taken, and a commit mark beyond them
        // would tell their clients that what they have not replayed yet is durable.
        self.exports.departed.lock().push(session.clone());
        self.clear_away();
        self.clients.ended(session.handle());
        tracing::info!(target = %self.store.label().target, client = %session.client(), "a session ends");
    }

    /// Takes away what sessions that ended have left in the store, unless others still replay. The caller holds the
    /// door.
    fn clear_away(&self) {
        if self.recovery.is_active() {
            return;
        }
        for client in self.exports.sessions.take_given_up() {
            self.handler.forgotten(client);
            self.forget_records(client);
        }
        let departed = std::mem::take(&mut *self.exports.departed.lock());
        for session in departed {
            self.handler.ended(&session);
            self.forget_records(session.client());
        }
    }

    /// A request is done whose session may have ended meanwhile: what it has taken for the session since is given back.
    pub(crate) fn clear_away_after(&self, session: &Session<H::Session>) {
        if session.is_over() && !self.recovery.is_active() {
            self.handler.ended(session);
        }
    }

    /// Clears away what had to wait for the end of the replays.
    pub(crate) async fn clear_away_after_recovery(self: Arc<Self>) {
        if self.stop.unless(self.recovery.until_over()).await.is_some() {
            let _door = self.exports.door.lock();
            self.clear_away();
        }
    }

    pub(crate) fn forget_records(&self, client: ClientId) {
        let forgotten = slot_changes(&self.store, client).and_then(|mut changes| {
            changes.push(Change { key: keys::client(client), value: None });
            self.store.commit(Batch { changes, ..Batch::default() })
        });
        if let Err(error) = forgotten {
            tracing::error!(target = %self.store.label().target, %error, "a client's record stays");
        }
    }

    fn connected(&self, session: &Session<H::Session>, resumed: bool) -> msg::Connected {
        msg::Connected {
            session: session.handle(),
            features: session.features(),
            boot: self.store.boot(),
            slots: SLOTS_MAX,
            last_committed: self.store.last_committed(),
            resumed,
        }
    }

    fn restore_slots(&self, session: &Session<H::Session>) -> Result<(), StoreError> {
        if !self.began.safeguards.reply_slots {
            return Ok(());
        }
        let damaged = || StoreError::Corrupt { what: "a reply slot".into() };
        for (key, value) in slots_of(&self.store, session.client())? {
            let slot = keys::slot_of(&key).ok_or_else(damaged)?;
            let record = ReplyRecord::decode(value.bytes).map_err(|_| damaged())?;
            session.slots().restore(slot, ReplyRecord { transno: value.version, ..record });
        }
        Ok(())
    }
}

/// Changes that take the records of a client's slots away.
fn slot_changes(store: &Store, client: ClientId) -> Result<Vec<Change>, StoreError> {
    Ok(slots_of(store, client)?.into_iter().map(|(key, _)| Change { key, value: None }).collect())
}

fn slots_of(store: &Store, client: ClientId) -> Result<Vec<(Bytes, store::Value)>, StoreError> {
    let (from, until) = (keys::slot(client, 0), keys::slot(client, SLOTS_MAX));
    store.scan(&from, &until, SLOTS_MAX as usize)
}

impl<H: Handler> Doorman for Target<H> {
    fn evict(&self, handle: u64, why: &str) {
        let _door = self.exports.door.lock();
        let Some(session) = self.exports.sessions.of_handle(handle) else { return };
        self.evict_session(&session, why);
    }

    fn client(&self, handle: u64) -> Option<ClientId> {
        self.exports.sessions.of_handle(handle).map(|session| session.client())
    }

    fn is_sure(&self) -> bool {
        self.store.is_owner()
    }

    fn heard(&self, handle: u64) -> Option<Time> {
        let session = self.exports.sessions.of_handle(handle)?;
        Some(session.recent().last().unwrap_or(session.began()))
    }
}
