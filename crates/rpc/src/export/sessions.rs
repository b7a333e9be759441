//! Where each session of this process's targets lives: on a connection, or in this process.
//!
//! A request is looked at only if it came over the connection on which its session was last opened: what an older
//! connection still delivers is dropped, and nobody speaks for another's session. A request that comes a second time
//! while it is carried out is dropped too: its answer goes to the session's newest connection.
//!
//! A session stays known after its connection was lost, for its client will be back and may be called back then. It
//! is forgotten when it ends, which its target tells ([`crate::Hub::session_ended`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::Reply;
use proto::{Code, TargetId, Xid};
use rt::sync::{Notify, Semaphore, oneshot};
use rt::{Rt, Time};

use super::Connection;
use crate::hub::Hub;
use crate::limits;
use crate::session::Driver;

/// A session: its target, and the handle that this gave it.
pub(crate) type Key = (TargetId, u64);

/// Sessions by target and handle.
pub(crate) struct Sessions {
    rt: Rt,
    entries: Mutex<BTreeMap<Key, Entry>>,
    /// Of callbacks, over all sessions: a number is never used again while its client may still work on it.
    last_xid: AtomicU64,
}

struct Entry {
    session_epoch: u64,
    /// `None` after the connection ended.
    connection: Option<Arc<Connection>>,
    under_way: BTreeSet<Xid>,
    /// How the client is called back; `None` while it cannot be.
    way: Option<Way>,
    /// Since when the client has not been there, or has said that it is not.
    absent: Option<Absence>,
    /// Made with the first callback.
    callee: Option<Arc<Callee>>,
    /// Who waits for the answers to callbacks.
    waiting: BTreeMap<Xid, oneshot::Sender<Result<Reply, Code>>>,
}

/// How a client is called back.
#[derive(Clone)]
pub(crate) enum Way {
    /// In this process.
    Here(Weak<Driver>),
    /// Over a connection, with the session's epoch there.
    There(Arc<Connection>, u64),
}

/// What the callbacks of one session share.
pub(crate) struct Callee {
    /// A place for each callback under way; closed when the session ends.
    pub(crate) room: Semaphore,
    /// The way to the client is another one.
    pub(crate) moved: Notify,
    /// The client is there now, or is not there any more.
    pub(crate) presence: Notify,
}

/// A client that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) since: Time,
    /// Nobody closed its connection: it went silent.
    pub(crate) silent: bool,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It is under way from now on.
    Pass,
    /// It is under way already.
    UnderWay,
    /// It is of an older connection.
    Drop,
    /// Its session does not live on this connection.
    Unknown,
}

impl Callee {
    fn moved(&self) {
        self.moved.notify_waiters();
        self.presence.notify_waiters();
    }
}

impl Entry {
    fn new(now: Time) -> Entry {
        Entry {
            session_epoch: 0,
            connection: None,
            under_way: BTreeSet::new(),
            way: None,
            absent: Some(Absence { since: now, silent: false }),
            callee: None,
            waiting: BTreeMap::new(),
        }
    }

    fn gate(&self, session_epoch: u64, xid: Xid, connection: &Arc<Connection>) -> Gate {
        if session_epoch < self.session_epoch {
            Gate::Drop
        } else if !self.lives_on(connection) || session_epoch != self.session_epoch {
            Gate::Unknown
        } else if self.under_way.contains(&xid) {
            Gate::UnderWay
        } else {
            Gate::Pass
        }
    }

    fn lives_on(&self, connection: &Arc<Connection>) -> bool {
        self.connection.as_ref().is_some_and(|here| Arc::ptr_eq(here, connection))
    }

    fn lost(&mut self, since: Time, silent: bool) -> Option<Arc<Callee>> {
        self.connection = None;
        self.way = None;
        self.absent = Some(Absence { since, silent });
        self.callee.clone()
    }

    /// The session lives on `connection` now, or on none.
    fn moves(&mut self, key: Key, connection: Option<&Arc<Connection>>) {
        if let Some(before) = std::mem::replace(&mut self.connection, connection.cloned()) {
            before.unsettle(key);
        }
        if let Some(connection) = connection {
            connection.settle(key);
        }
    }

    /// Tells everybody who waits for an answer that none will come.
    fn end(mut self, key: Key) {
        self.moves(key, None);
        drop(self.waiting);
        if let Some(callee) = self.callee {
            callee.room.close();
            callee.moved();
        }
    }
}

impl Sessions {
    pub(crate) fn new(rt: Rt) -> Sessions {
        Sessions { rt, entries: Mutex::new(BTreeMap::new()), last_xid: AtomicU64::new(0) }
    }

    /// A session was opened over `connection`. Its client is called back only after it was told.
    pub(crate) fn opened(&self, key: Key, session_epoch: u64, connection: &Arc<Connection>) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key).or_insert_with(|| Entry::new(self.rt.now()));
        // A Connect that was late must not take the session back to an older connection.
        if session_epoch < entry.session_epoch {
            return;
        }
        entry.session_epoch = session_epoch;
        entry.moves(key, Some(connection));
        if matches!(entry.way, Some(Way::Here(_))) {
            entry.way = None;
        }
    }

    /// The client was told that its session lives on `connection` now.
    pub(crate) fn told(&self, key: Key, session_epoch: u64, connection: &Arc<Connection>) {
        let callee = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&key) else { return };
            if !entry.lives_on(connection) || entry.session_epoch != session_epoch {
                return;
            }
            entry.way = Some(Way::There(connection.clone(), session_epoch));
            entry.absent = None;
            entry.callee.clone()
        };
        if let Some(callee) = callee {
            callee.moved();
        }
    }

    /// A session was opened by a client of this process.
    pub(crate) fn opened_here(&self, key: Key, session_epoch: u64, driver: &Weak<Driver>) {
        let callee = {
            let mut entries = self.entries.lock();
            let entry = entries.entry(key).or_insert_with(|| Entry::new(self.rt.now()));
            if session_epoch < entry.session_epoch {
                return;
            }
            entry.session_epoch = session_epoch;
            entry.moves(key, None);
            entry.way = Some(Way::Here(driver.clone()));
            entry.absent = None;
            entry.callee.clone()
        };
        if let Some(callee) = callee {
            callee.moved();
        }
    }

    /// The client of this process has given its session up, or lost it.
    pub(crate) fn lost_here(&self, key: Key) {
        let callee = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&key) else { return };
            match entry.way {
                Some(Way::Here(_)) => entry.lost(self.rt.now(), false),
                _ => None,
            }
        };
        if let Some(callee) = callee {
            callee.moved();
        }
    }

    /// A request came over `connection`.
    pub(crate) fn enter(&self, key: Key, session_epoch: u64, xid: Xid, connection: &Arc<Connection>) -> Gate {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&key) else { return Gate::Unknown };
        let gate = entry.gate(session_epoch, xid, connection);
        if gate == Gate::Pass {
            entry.under_way.insert(xid);
        }
        gate
    }

    /// The same for a question whether a request is under way: [`Gate::Pass`] if it is not.
    pub(crate) fn ask(&self, key: Key, session_epoch: u64, xid: Xid, connection: &Arc<Connection>) -> Gate {
        let entries = self.entries.lock();
        entries.get(&key).map_or(Gate::Unknown, |entry| entry.gate(session_epoch, xid, connection))
    }

    /// The session's epoch, if it is known.
    pub(crate) fn epoch(&self, key: Key) -> Option<u64> {
        self.entries.lock().get(&key).map(|entry| entry.session_epoch)
    }

    /// A request was carried out: where its answer goes now, with the session's epoch.
    pub(crate) fn leave(&self, key: Key, xid: Xid) -> Option<(Arc<Connection>, u64)> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        entry.under_way.remove(&xid);
        entry.connection.clone().map(|connection| (connection, entry.session_epoch))
    }

    /// A session ended.
    pub(crate) fn ended(&self, key: Key) {
        let entry = self.entries.lock().remove(&key);
        if let Some(entry) = entry {
            entry.end(key);
        }
    }

    /// A session was ended against its client's will: a client that is there is made to connect again, and learns of it.
    pub(crate) fn evicted(&self, key: Key) {
        let Some(mut entry) = self.entries.lock().remove(&key) else { return };
        let (connection, way) = (entry.connection.clone(), entry.way.take());
        entry.end(key);
        // As a task: the caller holds guards of its own.
        self.rt.spawn(async move {
            if let Some(connection) = connection {
                connection.give_up();
            }
            if let Some(Way::Here(driver)) = way
                && let Some(driver) = driver.upgrade()
            {
                driver.lo_lost(None);
            }
        });
    }

    /// A connection ended. Its sessions stay known: the client may be back.
    pub(crate) fn connection_lost(&self, connection: &Arc<Connection>) {
        let callees: Vec<_> = {
            let mut entries = self.entries.lock();
            let mut lost = |key| {
                let entry = entries.get_mut(&key).filter(|entry| entry.lives_on(connection))?;
                entry.lost(self.rt.now(), connection.was_silent())
            };
            // Not all sessions are gone through: a switch may take thousands of connections at once.
            connection.take_settled().into_iter().filter_map(&mut lost).collect()
        };
        for callee in callees {
            callee.moved();
        }
    }

    /// A target is not served any more.
    pub(crate) fn withdrawn(&self, target: TargetId) {
        let ended: Vec<_> = {
            let mut entries = self.entries.lock();
            let keys: Vec<_> = entries.range((target, 0)..=(target, u64::MAX)).map(|(key, _)| *key).collect();
            keys.iter().filter_map(|key| Some((*key, entries.remove(key)?))).collect()
        };
        for (key, entry) in ended {
            entry.end(key);
        }
    }

    /// What the callbacks of a session share; `None` if there is no such session (any more).
    pub(crate) fn callee(&self, key: Key) -> Option<Arc<Callee>> {
        let mut entries = self.entries.lock();
        let new = || {
            let room = Semaphore::new(limits::CALLBACKS_MAX);
            Arc::new(Callee { room, moved: Notify::new(), presence: Notify::new() })
        };
        entries.get_mut(&key).map(|entry| entry.callee.get_or_insert_with(new).clone())
    }

    /// A callback is under way from now on: its number.
    pub(crate) fn begin(&self, key: Key, waiter: oneshot::Sender<Result<Reply, Code>>) -> Option<Xid> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        let xid = Xid(self.last_xid.fetch_add(1, Ordering::Relaxed) + 1);
        entry.waiting.insert(xid, waiter);
        Some(xid)
    }

    /// A callback is over, or given up.
    pub(crate) fn forget(&self, key: Key, xid: Xid) {
        if let Some(entry) = self.entries.lock().get_mut(&key) {
            entry.waiting.remove(&xid);
        }
    }

    /// How the client is called back now, if it can be; an error if the session ended.
    pub(crate) fn way(&self, key: Key) -> Result<Option<Way>, Ended> {
        self.entries.lock().get(&key).map(|entry| entry.way.clone()).ok_or(Ended)
    }

    /// Since when the client has not been there, and how it went; an error if the session ended.
    pub(crate) fn absence(&self, key: Key) -> Result<Option<Absence>, Ended> {
        self.entries.lock().get(&key).map(|entry| entry.absent).ok_or(Ended)
    }

    /// What is waited for in the sessions of `target`, a session and a line for each with something: requests that are carried out,
    /// callbacks without an answer.
    pub(crate) fn waits(&self, target: TargetId) -> Vec<(u64, String)> {
        let entries = self.entries.lock();
        let busy = entries.range((target, 0)..=(target, u64::MAX)).filter(|(_, entry)| {
            !entry.under_way.is_empty() || !entry.waiting.is_empty() || entry.absent.is_some()
        });
        let line = |((_, session), entry): (&Key, &Entry)| {
            let absent = entry.absent.map(|absence| self.rt.now() - absence.since);
            let numbers = |xids: &mut dyn Iterator<Item = &Xid>| xids.map(|xid| xid.0).collect::<Vec<_>>();
            let text = format!(
                "session {session:#x}: requests {:?} are carried out, callbacks {:?} not answered, absent for {absent:?}",
                numbers(&mut entry.under_way.iter()),
                numbers(&mut entry.waiting.keys()),
            );
            (*session, text)
        };
        busy.map(line).collect()
    }

    /// The client has answered a callback.
    pub(crate) fn answered(&self, key: Key, xid: Xid, result: Result<Reply, Code>) {
        let waiter = self.entries.lock().get_mut(&key).and_then(|entry| entry.waiting.remove(&xid));
        if let Some(waiter) = waiter {
            // Who asked may have given up meanwhile.
            let _ = waiter.send(result);
        }
    }

    /// The client has said something about a callback over `connection`: that it is at work (`there`), or that it
    /// knows nothing of the session. The latter may be true for a moment only, while frames overtake each other. False
    /// if the client has come back over another connection since.
    pub(crate) fn heard(
        &self,
        key: Key,
        session_epoch: u64,
        connection: &Arc<Connection>,
        there: bool,
    ) -> bool {
        let callee = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&key) else { return false };
            if !entry.lives_on(connection) || entry.session_epoch != session_epoch {
                return false;
            }
            match (there, entry.absent) {
                (true, Some(_)) => entry.absent = None,
                (false, None) => entry.absent = Some(Absence { since: self.rt.now(), silent: false }),
                _ => return true,
            }
            entry.callee.clone()
        };
        if let Some(callee) = callee {
            callee.presence.notify_waiters();
        }
        true
    }
}

/// The session is not known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

/// What a target does with its sessions.
impl Hub {
    /// How long the client of a session has not been there, and whether it only went silent: nobody closed its
    /// connection. `None` if it is there, or the session is over.
    pub fn absent_for(&self, target: TargetId, session: u64) -> Option<(Duration, bool)> {
        let absence = self.sessions().absence((target, session)).ok()??;
        Some((self.rt().now() - absence.since, absence.silent))
    }

    /// What is waited for in the sessions of a target of this process, for diagnoses: the session and a line for each.
    pub fn waits(&self, target: TargetId) -> Vec<(u64, String)> {
        self.sessions().waits(target)
    }

    /// A session is over, as its target says: callbacks to it end, and are not begun any more. Every session that a
    /// target ends has to be told, or it stays known here.
    pub fn session_ended(&self, target: TargetId, session: u64) {
        self.sessions().ended((target, session));
    }

    /// A session was ended against its client's will. As [`Hub::session_ended`]; a client that is connected learns of it at
    /// once: its connection is closed, and it finds out when it connects again.
    pub fn session_evicted(&self, target: TargetId, session: u64) {
        self.sessions().evicted((target, session));
    }
}
