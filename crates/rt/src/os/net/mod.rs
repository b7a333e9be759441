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
mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::lookup_host;

use super::driver::Driver;
use super::within;
use crate::net::{Addr, Conn};

pub use receiver::Receiver;
use room::Room;
pub use sender::Sender;
use socket::Socket;

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
    driver: Driver,
    room: Arc<Room>,
}

/// Takes connections.
pub struct Listener {
    driver: Driver,
    room: Arc<Room>,
    socket: Socket,
    addr: Addr,
}

impl Net {
    pub(super) fn new(driver: Driver, room: Arc<Room>) -> Net {
        Net { driver, room }
    }

    /// Starts to listen at `addr`; port 0 takes a free one.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Listener> {
        let mut listening = Err(io::ErrorKind::NotFound.into());
        for at in self.addresses(addr).await? {
            listening = Socket::listen(&self.driver, at);
            if listening.is_ok() {
                break;
            }
        }
        let socket = listening?;
        let addr = Addr(socket.local_addr()?);
        Ok(Listener { driver: self.driver.clone(), room: self.room.clone(), socket, addr })
    }

    /// Connects to the node that listens at `addr`.
    pub async fn connect(&self, addr: &Addr) -> io::Result<Conn> {
        let mut connecting = Err(io::ErrorKind::NotFound.into());
        for at in self.addresses(addr).await? {
            connecting = Socket::connect(&self.driver, at).await;
            if connecting.is_ok() {
                break;
            }
        }
        let socket = connecting?;
        open(&self.driver, &self.room, socket)
    }

    /// All addresses behind `addr`, at least one.
    async fn addresses(&self, addr: &Addr) -> io::Result<Vec<SocketAddr>> {
        // An address needs no look-up, and so no other thread.
        if let Ok(at) = addr.0.parse() {
            return Ok(vec![at]);
        }
        let found = within(&self.driver.handle, lookup_host(&addr.0)).await?;
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{addr} has no address")));
        }
        Ok(found)
    }
}

impl Listener {
    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Conn> {
        loop {
            match self.socket.accept(&self.driver).await {
                Ok(socket) => match open(&self.driver, &self.room, socket) {
                    Ok(conn) => return Ok(conn),
                    Err(error) => tracing::debug!(%error, "a connection was gone before it was taken"),
                },
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if is_shortage(&error) => {
                    tracing::warn!(%error, "cannot take connections for now");
                    self.driver.sleep_until(Instant::now() + ACCEPT_PAUSE).await;
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

fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}

fn open(driver: &Driver, room: &Arc<Room>, socket: Socket) -> io::Result<Conn> {
    let options = SockRef::from(&socket);
    options.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    options.set_tcp_keepalive(&keepalive)?;
    patience::limit(&socket);
    let peer = Addr(socket.peer_addr()?);
    let link = Arc::new(sender::Link::new(driver.clone(), socket));
    let ends = Arc::new(sender::Ends::new(link));
    Ok(Conn {
        sender: crate::net::Sender::Os(Sender::new(ends.clone())),
        receiver: crate::net::Receiver::Os(Receiver::new(ends, room.clone())),
        peer,
    })
}

impl Drop for Listener {
    fn drop(&mut self) {
        // At once: the ring that watches the socket keeps it open a little longer.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
