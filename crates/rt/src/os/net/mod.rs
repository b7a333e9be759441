//! Connections over TCP.
//!
//! A frame is a prefix of 64 bytes, the head, and the bulk. Sending is done by whoever sends, as long as the socket
//! takes it; a task per connection does the rest. Receiving reads the bulk straight into aligned memory, so that
//! it can go to a disk without a copy.

mod patience;
mod prefix;
mod receiver;
pub(super) mod room;
mod sender;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::runtime::Handle;

use super::within;
use crate::net::{Addr, Conn};

pub use receiver::Receiver;
use room::Room;
pub use sender::Sender;

/// Connections that the kernel keeps for a listener that is busy.
const BACKLOG: u32 = 65_535;
/// Silence after which the kernel asks whether the peer's machine is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// Time between such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without answer after which the connection is gone.
const KEEPALIVE_RETRIES: u32 = 3;
/// Rest of a listener when this machine has no descriptors or memory for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The machine's network. Cheap to clone.
#[derive(Clone)]
pub struct Net {
    handle: Handle,
    room: Arc<Room>,
}

/// Takes connections.
pub struct Listener {
    handle: Handle,
    room: Arc<Room>,
    socket: TcpListener,
    addr: Addr,
}

impl Net {
    pub(super) fn new(handle: Handle, room: Arc<Room>) -> Net {
        Net { handle, room }
    }

    /// Starts to listen at `addr`; port 0 takes a free one.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Listener> {
        let socket = within(
            &self.handle,
            first_of(addr, async |at| {
                let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                socket.set_reuseaddr(true)?;
                socket.bind(at)?;
                socket.listen(BACKLOG)
            }),
        )
        .await?;
        let addr = Addr(socket.local_addr()?.to_string());
        Ok(Listener { handle: self.handle.clone(), room: self.room.clone(), socket, addr })
    }

    /// Connects to the node that listens at `addr`.
    pub async fn connect(&self, addr: &Addr) -> io::Result<Conn> {
        let stream = within(&self.handle, first_of(addr, TcpStream::connect)).await?;
        open(&self.handle, &self.room, stream)
    }
}

impl Listener {
    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Conn> {
        loop {
            match within(&self.handle, self.socket.accept()).await {
                Ok((stream, _)) => match open(&self.handle, &self.room, stream) {
                    Ok(conn) => return Ok(conn),
                    Err(error) => tracing::debug!(%error, "a connection was gone before it was taken"),
                },
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if is_shortage(&error) => {
                    tracing::warn!(%error, "cannot take connections for now");
                    within(&self.handle, async { tokio::time::sleep(ACCEPT_PAUSE).await }).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> Addr {
        self.addr.clone()
    }
}

/// Tries `each` with all addresses behind `addr` until one is good.
async fn first_of<T>(addr: &Addr, each: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{addr} has no address"));
    for at in lookup_host(&addr.0).await? {
        match each(at).await {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}

fn open(handle: &Handle, room: &Arc<Room>, stream: TcpStream) -> io::Result<Conn> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    patience::limit(&stream);
    let peer = Addr(stream.peer_addr()?.to_string());
    let link = Arc::new(sender::Link::new(stream));
    handle.spawn(sender::serve(link.clone()));
    let ends = Arc::new(sender::Ends::new(link));
    Ok(Conn {
        sender: crate::net::Sender::Os(Sender::new(ends.clone())),
        receiver: crate::net::Receiver::Os(Receiver::new(handle, ends, room.clone())),
        peer,
    })
}

#[cfg(test)]
mod tests;
