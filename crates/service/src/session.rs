//! Sessions of clients with one target (exports), and those that were known before a restart.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use proto::{ClientId, Transno};
use rpc::{Origin, Role};
use rt::{Rt, Time};
use store::{Author, Store, StoreError};

use crate::keys;
use crate::recent::Recent;
use crate::recovery::Expected;
use crate::slot::Slots;
use crate::tally::OfSession;

/// Most sessions of one target.
pub(crate) const SESSIONS_MAX: usize = 262_144;
/// Keys that one scan of the store brings.
const SCAN_COUNT: usize = 4096;

/// One client's session.
pub struct Session<S> {
    client: ClientId,
    handle: u64,
    role: Role,
    epoch: AtomicU64,
    features: u64,
    resumed: bool,
    /// Transno of the client's record; the record is durable when the flag is set.
    recorded: Transno,
    durable: AtomicBool,
    slots: Slots,
    /// Where the client is, as its newest connection says.
    from: Mutex<Origin>,
    began: Time,
    recent: Recent,
    counted: OfSession,
    /// Nothing is changed for the session any more when it is over.
    author: Arc<Author>,
    data: S,
}

/// What a session begins with.
pub(crate) struct Begun {
    pub client: ClientId,
    pub handle: u64,
    pub role: Role,
    pub epoch: u64,
    pub features: u64,
    pub resumed: bool,
    pub recorded: Transno,
    pub from: Origin,
    pub now: Time,
}

impl<S: Default> Session<S> {
    pub(crate) fn new(begun: Begun) -> Session<S> {
        Session {
            client: begun.client,
            handle: begun.handle,
            role: begun.role,
            epoch: AtomicU64::new(begun.epoch),
            features: begun.features,
            resumed: begun.resumed,
            recorded: begun.recorded,
            durable: AtomicBool::new(begun.resumed),
            slots: Slots::default(),
            from: Mutex::new(begun.from),
            began: begun.now,
            recent: Recent::default(),
            counted: OfSession::default(),
            author: Arc::default(),
            data: S::default(),
        }
    }
}

impl<S> Session<S> {
    /// The client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Names the session in requests.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// The key that the peer holds.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Features that both sides have.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Whether the client was known before the target restarted.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// What it asked for, in sums.
    pub(crate) fn counted(&self) -> &OfSession {
        &self.counted
    }

    /// Whom its changes are made for.
    pub(crate) fn author(&self) -> &Arc<Author> {
        &self.author
    }

    /// The session has ended: nothing is changed for it any more, and nothing must be kept.
    pub fn is_over(&self) -> bool {
        self.author.is_over()
    }

    /// What the role keeps for the session.
    pub fn data(&self) -> &S {
        &self.data
    }

    /// The client's address, `10.1.1.2@tcp`.
    pub fn nid(&self) -> String {
        self.from.lock().nid()
    }

    pub(crate) fn set_from(&self, from: &Origin) {
        *self.from.lock() = from.clone();
    }

    pub(crate) fn began(&self) -> Time {
        self.began
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(crate) fn recorded(&self) -> Transno {
        self.recorded
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn set_durable(&self) {
        self.durable.store(true, Ordering::Release);
    }
}

/// Longest address in a client's record, in bytes.
const NID_BYTES_MAX: usize = 255;

/// A client's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientRecord {
    pub place: Whereabouts,
    /// Where it was when the session began; empty in records of before this was kept.
    pub nid: Arc<str>,
}

impl ClientRecord {
    /// The record of a client at `place`, whose connection comes from `from`.
    pub fn new(place: Whereabouts, from: &Origin) -> ClientRecord {
        ClientRecord { place, nid: from.nid().into() }
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let nid = self.nid.as_bytes();
        let nid = nid.get(..NID_BYTES_MAX).unwrap_or(nid);
        [&[self.place.encode()], nid].concat().into()
    }

    fn decode(value: &[u8]) -> Result<ClientRecord, StoreError> {
        let damaged = || StoreError::Corrupt { what: "a client's record".into() };
        let (place, nid) = value.split_first().ok_or_else(damaged)?;
        let place = Whereabouts::decode(*place).ok_or_else(damaged)?;
        Ok(ClientRecord { place, nid: String::from_utf8_lossy(nid).into() })
    }
}

/// Where a client lives, as its record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In another process: it has kept what the target may have lost.
    Remote,
    /// In the target's process: it died with it, or the target was stopped in order.
    Local,
    /// A server in another process. It has no lease.
    Server,
}

impl Whereabouts {
    fn encode(self) -> u8 {
        match self {
            Whereabouts::Remote => 1,
            Whereabouts::Local => 2,
            Whereabouts::Server => 3,
        }
    }

    fn decode(value: u8) -> Option<Whereabouts> {
        match value {
            1 => Some(Whereabouts::Remote),
            2 => Some(Whereabouts::Local),
            3 => Some(Whereabouts::Server),
            _ => None,
        }
    }
}

/// Every session of a target.
pub(crate) struct Sessions<S> {
    by_handle: RwLock<HashMap<u64, Arc<Session<S>>>>,
    by_client: Mutex<BTreeMap<ClientId, Arc<Session<S>>>>,
    /// Clients with a record from before the restart that have not come back.
    absent: Mutex<BTreeMap<ClientId, ClientRecord>>,
    /// Those of them that are not waited for any more, until their records go.
    given_up: Mutex<Vec<ClientId>>,
}

impl<S> Sessions<S> {
    /// Reads the clients' records.
    pub fn load(store: &Store) -> Result<Sessions<S>, StoreError> {
        let mut absent = BTreeMap::new();
        let mut from = vec![keys::CLIENT];
        let until = keys::behind(&[keys::CLIENT]);
        loop {
            let page = store.scan(&from, &until, SCAN_COUNT)?;
            let Some((last, _)) = page.last() else { break };
            from = last.to_vec();
            from.push(0);
            for (key, value) in &page {
                let damaged = || StoreError::Corrupt { what: "a client's record".into() };
                let client = keys::client_of(key).ok_or_else(damaged)?;
                absent.insert(client, ClientRecord::decode(&value.bytes)?);
            }
        }
        Ok(Sessions {
            by_handle: RwLock::new(HashMap::new()),
            by_client: Mutex::new(BTreeMap::new()),
            absent: Mutex::new(absent),
            given_up: Mutex::default(),
        })
    }

    /// The session that a request names; `None` too if the request is of an older connection.
    pub fn find(&self, handle: u64, epoch: u64) -> Option<Arc<Session<S>>> {
        let sessions = self.by_handle.read();
        sessions.get(&handle).filter(|session| session.epoch() == epoch).cloned()
    }

    /// The session with this handle, over whatever connection.
    pub fn of_handle(&self, handle: u64) -> Option<Arc<Session<S>>> {
        self.by_handle.read().get(&handle).cloned()
    }

    pub fn of_client(&self, client: ClientId) -> Option<Arc<Session<S>>> {
        self.by_client.lock().get(&client).cloned()
    }

    /// Handle and client of each.
    pub fn all(&self) -> Vec<(u64, ClientId)> {
        self.by_client.lock().values().map(|session| (session.handle, session.client)).collect()
    }

    /// Those for which `wanted` holds.
    pub fn matching(&self, wanted: impl Fn(&Session<S>) -> bool) -> Vec<Arc<Session<S>>> {
        self.by_client.lock().values().filter(|session| wanted(session)).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.by_client.lock().len()
    }

    /// A name for a session that nobody can guess; never 0, which means "no session".
    pub fn new_handle(&self, rt: &Rt) -> u64 {
        loop {
            let handle = rt.random_u64();
            if handle != 0 && self.of_handle(handle).is_none() {
                return handle;
            }
        }
    }

    pub fn insert(&self, session: Arc<Session<S>>) {
        self.absent.lock().remove(&session.client);
        self.by_client.lock().insert(session.client, session.clone());
        self.by_handle.write().insert(session.handle, session);
    }

    /// Takes `session` away; false if it was gone already.
    pub fn remove(&self, session: &Session<S>) -> bool {
        let mut by_client = self.by_client.lock();
        if by_client.get(&session.client).is_some_and(|known| known.handle == session.handle) {
            by_client.remove(&session.client);
        }
        self.by_handle.write().remove(&session.handle).is_some()
    }

    pub fn is_absent(&self, client: ClientId) -> bool {
        self.absent.lock().contains_key(&client)
    }

    pub fn has_absent(&self) -> bool {
        !self.absent.lock().is_empty()
    }

    /// The clients that may come back with something to replay.
    pub fn expected(&self) -> Vec<Expected> {
        let absent = self.absent.lock();
        let others = absent.iter().filter(|(_, record)| record.place != Whereabouts::Local);
        let expected = others.map(|(client, record)| Expected {
            client: *client,
            leases: record.place == Whereabouts::Remote,
            nid: record.nid.clone(),
        });
        expected.collect()
    }

    /// Where a client was that has not come back; `None` if it has, or that is not known.
    pub fn nid_of_absent(&self, client: ClientId) -> Option<Arc<str>> {
        let absent = self.absent.lock();
        absent.get(&client).map(|record| record.nid.clone()).filter(|nid| !nid.is_empty())
    }

    /// The client does not come back as who it was. False if it has not been absent.
    pub fn give_up(&self, client: ClientId) -> bool {
        let was_absent = self.absent.lock().remove(&client).is_some();
        if was_absent {
            self.given_up.lock().push(client);
        }
        was_absent
    }

    /// Those of whom the store still has something.
    pub fn take_given_up(&self) -> Vec<ClientId> {
        std::mem::take(&mut *self.given_up.lock())
    }

    /// Nobody waits for those who have not come back any more.
    pub fn take_absent(&self) -> Vec<ClientId> {
        std::mem::take(&mut *self.absent.lock()).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_where_a_client_was() {
        for place in [Whereabouts::Remote, Whereabouts::Local, Whereabouts::Server] {
            let record = ClientRecord::new(place, &Origin::Remote("10.1.1.2:40112".into()));
            assert_eq!(record.nid.as_ref(), "10.1.1.2@tcp");
            assert_eq!(ClientRecord::decode(&record.encode()).expect("its own"), record);
        }
        let old = ClientRecord::decode(&[1]).expect("of before addresses were kept");
        assert_eq!(old, ClientRecord { place: Whereabouts::Remote, nid: "".into() });
        assert!(ClientRecord::decode(&[]).is_err() && ClientRecord::decode(&[4]).is_err());
    }
}
