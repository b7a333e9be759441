//! Which connection each session of this process's targets lives on.
//!
//! A request is looked at only if it came over the connection on which its session was last opened: what an older
//! connection still delivers is dropped, and nobody speaks for another's session. A request that comes a second time
//! while it is carried out is dropped too: its answer goes to the session's newest connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{TargetId, Xid};

use super::accept::Connection;

/// Sessions by target and number.
#[derive(Default)]
pub(crate) struct Sessions {
    entries: Mutex<BTreeMap<(TargetId, u64), Entry>>,
}

struct Entry {
    session_epoch: u64,
    /// `None` after the connection ended.
    connection: Option<Arc<Connection>>,
    under_way: BTreeSet<Xid>,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// It is under way from now on.
    Pass,
    /// It is of an older connection, or under way already.
    Drop,
    /// Its session does not live on this connection.
    Unknown,
}

impl Sessions {
    /// A session was opened over `connection`.
    pub(super) fn opened(
        &self,
        target: TargetId,
        session: u64,
        session_epoch: u64,
        connection: &Arc<Connection>,
    ) {
        let mut entries = self.entries.lock();
        let new = || Entry { session_epoch: 0, connection: None, under_way: BTreeSet::new() };
        let entry = entries.entry((target, session)).or_insert_with(new);
        // A Connect that was late must not take the session back to an older connection.
        if session_epoch >= entry.session_epoch {
            entry.session_epoch = session_epoch;
            entry.connection = Some(connection.clone());
        }
    }

    /// A request came over `connection`.
    pub(super) fn enter(
        &self,
        target: TargetId,
        session: u64,
        session_epoch: u64,
        xid: Xid,
        connection: &Arc<Connection>,
    ) -> Gate {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&(target, session)) else { return Gate::Unknown };
        if session_epoch < entry.session_epoch {
            return Gate::Drop;
        }
        let lives_here = entry.connection.as_ref().is_some_and(|here| Arc::ptr_eq(here, connection));
        if !lives_here || session_epoch != entry.session_epoch {
            return Gate::Unknown;
        }
        if entry.under_way.insert(xid) { Gate::Pass } else { Gate::Drop }
    }

    /// The session's epoch, if it is known.
    pub(super) fn epoch(&self, target: TargetId, session: u64) -> Option<u64> {
        self.entries.lock().get(&(target, session)).map(|entry| entry.session_epoch)
    }

    /// A request was carried out: where its answer goes now, with the session's epoch.
    pub(super) fn leave(&self, target: TargetId, session: u64, xid: Xid) -> Option<(Arc<Connection>, u64)> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&(target, session))?;
        entry.under_way.remove(&xid);
        let way = entry.connection.clone().map(|connection| (connection, entry.session_epoch));
        if way.is_none() && entry.under_way.is_empty() {
            entries.remove(&(target, session));
        }
        way
    }

    /// A session ended.
    pub(super) fn closed(&self, target: TargetId, session: u64) {
        self.entries.lock().remove(&(target, session));
    }

    /// A connection ended. Sessions with requests under way stay known until these are done: the client may be back
    /// before.
    pub(super) fn connection_lost(&self, connection: &Arc<Connection>) {
        self.entries.lock().retain(|_, entry| {
            if entry.connection.as_ref().is_some_and(|here| Arc::ptr_eq(here, connection)) {
                entry.connection = None;
            }
            entry.connection.is_some() || !entry.under_way.is_empty()
        });
    }

    /// A target is not served any more.
    pub(crate) fn withdrawn(&self, target: TargetId) {
        self.entries.lock().retain(|(of, _), _| *of != target);
    }
}
