//! The sessions of a target, and how an operator names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{ClientId, Code};
use rpc::Role;

use crate::session::{Session, Sessions};

/// The sessions of a target.
pub(crate) struct Exports<S> {
    pub sessions: Sessions<S>,
    /// Sessions that ended and have something left in the store.
    pub departed: Mutex<Vec<Arc<Session<S>>>>,
    /// Held through each connect and disconnect: they follow one another.
    pub door: Mutex<()>,
}

impl<S> Exports<S> {
    /// The sessions of a client, or of all clients at an address: one of the two is named.
    pub fn named(&self, client: ClientId, nid: &str) -> Result<Vec<Arc<Session<S>>>, Code> {
        if (client == ClientId(0)) == nid.is_empty() {
            return Err(Code::Invalid);
        }
        // A server's session is not an operator's to end: its server would be taken for a stranger's.
        let may_end = |session: &Session<S>| session.role() == Role::Client;
        if nid.is_empty() {
            let session = self.sessions.of_client(client);
            return Ok(session.filter(|session| may_end(session)).into_iter().collect());
        }
        Ok(self.sessions.matching(|session| may_end(session) && is_at(&session.nid(), nid)))
    }

    /// All sessions, by the NIDs of their clients.
    pub fn by_nid(&self) -> BTreeMap<String, Vec<Arc<Session<S>>>> {
        let mut all: BTreeMap<String, Vec<Arc<Session<S>>>> = BTreeMap::new();
        for session in self.sessions.matching(|_| true) {
            all.entry(session.nid()).or_default().push(session);
        }
        all
    }
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
