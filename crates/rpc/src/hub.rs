//! Where services and imports of one process meet. Stub: signatures only.
#![allow(unused_variables, clippy::unused_async, missing_docs)]

use std::io;
use std::sync::Arc;

use proto::{ClientId, FsName, Nid, TargetId};
use rt::{Addr, Rt};

use crate::import::Import;
use crate::keys::{Keys, Role};
use crate::service::Service;

/// Cheap to clone.
#[derive(Clone)]
pub struct Hub {}

impl Hub {
    /// `verify`: encode, decode and compare each message even on `lo` (on in sim).
    pub fn new(rt: Rt, fsname: FsName, keys: Keys) -> Hub {
        unimplemented!()
    }
    pub fn rt(&self) -> &Rt {
        unimplemented!()
    }
    pub fn fsname(&self) -> &FsName {
        unimplemented!()
    }
    /// Offers `service` as `target` to this process and, through `listen`, to others.
    pub fn serve(&self, target: TargetId, service: Arc<dyn Service>) {
        unimplemented!()
    }
    pub fn withdraw(&self, target: TargetId) {
        unimplemented!()
    }
    /// Accepts connections of peers that hold a key; returns where it listens.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Addr> {
        unimplemented!()
    }
    /// This process's session with `target`, as `client` with the rights of `role`; made on first use, one per
    /// (target, client). Connects lazily, reconnects and resends for ever.
    pub fn import(&self, target: TargetId, client: ClientId, role: Role, nids: Vec<Nid>) -> Arc<Import> {
        unimplemented!()
    }
    /// Tells all peers goodbye and ends every task of the hub.
    pub async fn close(&self) {
        unimplemented!()
    }
}
