//! The roles: management server, metadata target, object storage target.
//!
//! [`start`] opens the target in a directory, whatever its kind, and serves it in a hub. It is called the same way
//! by the binary and by the simulator.
#![allow(unused_variables, clippy::unused_async)]

use proto::{Nid, TargetId};
use rpc::Hub;

/// How to serve a target.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the target.
    pub path: String,
    /// Where this process can be reached; told to the MGS.
    pub nids: Vec<Nid>,
    /// Name of the server (OSS) that the target belongs to.
    pub server: String,
}

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store does not open.
    #[error("{path}: {error}")]
    Store {
        /// Directory of the target.
        path: String,
        /// Why.
        error: store::StoreError,
    },
    /// The MGS refused the target.
    #[error("the MGS refused {target}: {code}")]
    Refused {
        /// The target.
        target: TargetId,
        /// Why.
        code: proto::Code,
    },
    /// The target is of another file system than the hub.
    #[error("{path} belongs to file system {found}, not to {wanted}")]
    OtherFilesystem {
        /// Directory of the target.
        path: String,
        /// Its file system.
        found: String,
        /// The hub's.
        wanted: String,
    },
}

/// A target that is being served.
pub struct Running {}

impl Running {
    /// Which target it is.
    pub fn target(&self) -> TargetId {
        unimplemented!()
    }

    /// Stops in order: what was acknowledged is durable afterwards.
    pub async fn stop(self) {
        unimplemented!()
    }
}

/// Opens the target in `config.path` and serves it in `hub`: the MGS at once, others after they have registered
/// with the MGS (which is waited for).
pub async fn start(hub: &Hub, config: Config) -> Result<Running, StartError> {
    unimplemented!()
}
