//! The clients that live in a process: who they are, and how often they were before.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::ClientId;
use proto::identity::Identity;

/// The clients of one process.
#[derive(Default)]
pub(crate) struct Clients {
    /// The incarnations of clients that have several, on several machines even.
    incarnations: Mutex<BTreeMap<ClientId, u64>>,
    identities: Mutex<BTreeMap<ClientId, Arc<Identity>>>,
}

impl Clients {
    /// A client of this process: its name.
    pub(crate) fn add(&self, identity: Identity) -> ClientId {
        let client = identity.client();
        self.identities.lock().insert(client, Arc::new(identity));
        client
    }

    /// See [`crate::Hub::incarnate`].
    pub(crate) fn incarnate(&self, client: ClientId, incarnation: u64) {
        self.incarnations.lock().insert(client, incarnation);
    }

    pub(crate) fn incarnation(&self, client: ClientId) -> Option<u64> {
        self.incarnations.lock().get(&client).copied()
    }

    /// What shows on a connection with this binding that `client` is of this process; empty if it is not known to be.
    pub(crate) fn prove(&self, client: ClientId, binding: &[u8; 32]) -> Bytes {
        let identity = self.identities.lock().get(&client).cloned();
        identity.map_or_else(Bytes::new, |identity| Bytes::copy_from_slice(&identity.prove(binding)))
    }

    /// The client is no more.
    pub(crate) fn forget(&self, client: ClientId) {
        self.incarnations.lock().remove(&client);
        self.identities.lock().remove(&client);
    }
}
