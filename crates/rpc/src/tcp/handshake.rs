//! [`proto::auth`] over a new connection.

use std::io;

use bytes::Bytes;
use proto::auth::{Acceptor, AcceptorConfig, Agreed, AuthError, Initiator, InitiatorConfig, Versions};
use proto::wire::header::VERSION;
use rt::net::Conn;
use rt::{Frame, Rt};

use crate::frame::{LIMIT, LIMIT_STRANGER};
use crate::hub::Hub;
use crate::keys::Role;

/// Versions of the protocol that this code speaks.
const VERSIONS: Versions = Versions { min: VERSION, max: VERSION };
/// Features of the transport that this code has: none yet.
const FEATURES: u64 = 0;

/// Why a new connection is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Auth(#[from] AuthError),
}

fn nonce(rt: &Rt) -> [u8; 32] {
    let mut nonce = [0; 32];
    rt.random_bytes(&mut nonce);
    nonce
}

async fn send(conn: &Conn, bytes: Vec<u8>) -> io::Result<()> {
    conn.sender.send(Frame { head: Bytes::from(bytes), bulk: Vec::new() }).await
}

/// Proves to the other side that this one holds the key of `role`, and the other way round.
pub(crate) async fn initiate(hub: &Hub, conn: &mut Conn, role: Role) -> Result<Agreed, HandshakeError> {
    let fsname = hub.fsname();
    let key =
        hub.keys().of(role).ok_or_else(|| AuthError::WrongKey { fsname: fsname.as_str().to_owned() })?;
    conn.receiver.set_limit(LIMIT_STRANGER);
    let (initiator, hello) = Initiator::start(InitiatorConfig {
        key: &key.0,
        kind: role.key_kind(),
        fsname,
        versions: VERSIONS,
        features: FEATURES,
        nonce: nonce(hub.rt()),
    });
    send(conn, hello).await?;
    let reply = conn.receiver.recv().await?;
    let (proved, proof) = match initiator.reply(&reply.head) {
        Ok(step) => step,
        Err(failed) => {
            if let Some(bytes) = failed.send {
                send(conn, bytes).await?;
            }
            return Err(failed.error.into());
        }
    };
    send(conn, proof).await?;
    let welcome = conn.receiver.recv().await?;
    let agreed = proved.finish(&welcome.head)?;
    conn.receiver.set_limit(LIMIT);
    Ok(agreed)
}

/// Lets a stranger prove that it holds one of the keys.
pub(crate) async fn accept(hub: &Hub, conn: &mut Conn) -> Result<Agreed, HandshakeError> {
    conn.receiver.set_limit(LIMIT_STRANGER);
    let hello = conn.receiver.recv().await?;
    let config = AcceptorConfig {
        server_key: hub.keys().server.as_ref().map(|key| &key.0),
        client_key: hub.keys().client.as_ref().map(|key| &key.0),
        fsname: hub.fsname(),
        versions: VERSIONS,
        features: FEATURES,
        nonce: nonce(hub.rt()),
    };
    let step = match Acceptor::start(config, &hello.head) {
        Ok((acceptor, reply)) => {
            send(conn, reply).await?;
            let proof = conn.receiver.recv().await?;
            acceptor.finish(&proof.head)
        }
        Err(failed) => Err(failed),
    };
    match step {
        Ok((agreed, welcome)) => {
            // Before the Welcome: what follows it may be larger than what a stranger may send.
            conn.receiver.set_limit(LIMIT);
            send(conn, welcome).await?;
            Ok(agreed)
        }
        Err(failed) => {
            if let Some(bytes) = failed.send {
                send(conn, bytes).await?;
            }
            Err(failed.error.into())
        }
    }
}
