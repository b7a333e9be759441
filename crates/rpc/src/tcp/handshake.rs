//! [`proto::auth`] over a new connection.

use std::io;

use bytes::Bytes;
use proto::auth::{
    Acceptor, AcceptorConfig, Agreed, AuthError, Failed, Initiator, InitiatorConfig, Versions,
};
use proto::seal::ConnectionKeys;
use proto::wire::header::VERSION;
use rt::net::Conn;
use rt::{Frame, Rt};

use super::sealed::{self, End};
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

/// A connection whose other side has proved to hold a key; all that follows is sealed.
pub(crate) struct Opened {
    pub(crate) agreed: Agreed,
    /// See [`ConnectionKeys::binding`].
    pub(crate) binding: [u8; 32],
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
pub(crate) async fn initiate(hub: &Hub, conn: &mut Conn, role: Role) -> Result<Opened, HandshakeError> {
    let fsname = hub.fsname();
    let key = hub
        .guard()
        .keys
        .of(role)
        .ok_or_else(|| AuthError::WrongKey { fsname: fsname.as_str().to_owned() })?;
    conn.receiver.set_limit(LIMIT_STRANGER);
    let (initiator, hello) = Initiator::start(InitiatorConfig {
        key: &key.0,
        kind: role.key_kind(),
        fsname,
        versions: VERSIONS,
        features: FEATURES,
        protection: hub.guard().protect().of(&conn.peer),
        nonce: nonce(hub.rt()),
    });
    send(conn, hello).await?;
    let reply = conn.receiver.recv().await?;
    let (proved, proof) = match initiator.reply(&reply.head) {
        Ok(step) => step,
        Err(failed) => return refuse(conn, failed).await,
    };
    send(conn, proof).await?;
    let welcome = conn.receiver.recv().await?;
    let (agreed, keys) = proved.finish(&welcome.head)?;
    conn.receiver.set_limit(LIMIT);
    sealed::unseal(conn, &agreed, &keys, End::Initiator);
    sealed::seal(conn, &agreed, &keys, End::Initiator);
    Ok(Opened { agreed, binding: keys.binding() })
}

/// Hears the first word of a stranger, which proves that it, or somebody before it, held one of the keys.
pub(crate) async fn hear(hub: &Hub, conn: &mut Conn) -> Result<Acceptor, HandshakeError> {
    conn.receiver.set_limit(LIMIT_STRANGER);
    let hello = conn.receiver.recv().await?;
    let config = AcceptorConfig {
        server_key: hub.guard().keys.server.as_ref().map(|key| &key.0),
        client_key: hub.guard().keys.client.as_ref().map(|key| &key.0),
        fsname: hub.fsname(),
        versions: VERSIONS,
        features: FEATURES,
        protection: hub.guard().protect().of(&conn.peer),
        nonce: nonce(hub.rt()),
    };
    match Acceptor::start(config, &hello.head) {
        Ok((acceptor, reply)) => {
            send(conn, reply).await?;
            Ok(acceptor)
        }
        Err(failed) => refuse(conn, failed).await,
    }
}

/// Lets who was heard prove that it holds the key itself, and now.
pub(crate) async fn accept(conn: &mut Conn, acceptor: Acceptor) -> Result<Opened, HandshakeError> {
    let proof = conn.receiver.recv().await?;
    let (agreed, keys, welcome): (Agreed, ConnectionKeys, _) = match acceptor.finish(&proof.head) {
        Ok(step) => step,
        Err(failed) => return refuse(conn, failed).await,
    };
    // Before the Welcome: what follows it may be larger than what a stranger may send, and is sealed.
    conn.receiver.set_limit(LIMIT);
    sealed::unseal(conn, &agreed, &keys, End::Acceptor);
    send(conn, welcome).await?;
    sealed::seal(conn, &agreed, &keys, End::Acceptor);
    Ok(Opened { agreed, binding: keys.binding() })
}

async fn refuse<T>(conn: &Conn, failed: Failed) -> Result<T, HandshakeError> {
    if let Some(bytes) = failed.send {
        send(conn, bytes).await?;
    }
    Err(failed.error.into())
}
