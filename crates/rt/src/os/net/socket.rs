//! A connected or listening socket that does not block.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use socket2::{Domain, Protocol, SockRef, Type};

use super::super::driver::{Driver, Readiness};

/// Connections that the kernel keeps for a listener that is busy.
const BACKLOG: i32 = 65_535;

/// A TCP socket.
pub(super) struct Socket {
    fd: Arc<OwnedFd>,
    readiness: Readiness,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    fn new(driver: &Driver, fd: OwnedFd) -> io::Result<Socket> {
        let fd = Arc::new(fd);
        Ok(Socket { readiness: driver.watch(fd.clone())?, fd })
    }

    fn tcp(at: SocketAddr) -> io::Result<socket2::Socket> {
        let kind = Type::STREAM.nonblocking().cloexec();
        socket2::Socket::new(Domain::for_address(at), kind, Some(Protocol::TCP))
    }

    /// Listens at `at`.
    pub(super) fn listen(driver: &Driver, at: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::tcp(at)?;
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(BACKLOG)?;
        let fd = Arc::new(OwnedFd::from(socket));
        Ok(Socket { readiness: driver.watch_apart(fd.clone())?, fd })
    }

    /// Connects to `at`.
    pub(super) async fn connect(driver: &Driver, at: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::tcp(at)?;
        match socket.connect(&at.into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                let socket = Socket::new(driver, socket.into())?;
                loop {
                    socket.writable().await?;
                    let options = SockRef::from(&socket.fd);
                    if let Some(error) = options.take_error()? {
                        return Err(error);
                    }
                    if options.peer_addr().is_ok() {
                        return Ok(socket);
                    }
                }
            }
            result => result.and_then(|()| Socket::new(driver, socket.into())),
        }
    }

    /// The next connection of a listener.
    pub(super) async fn accept(&self, driver: &Driver) -> io::Result<Socket> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => return Socket::new(driver, fd),
                Err(Errno::AGAIN) => self.readable().await?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads what is there, `WouldBlock` if nothing is.
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.fd, &mut *buf, RecvFlags::DONTWAIT) {
                Ok((0, _)) if !buf.is_empty() => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the peer closed the connection",
                    ));
                }
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there may be something to read. Call after an attempt that would have blocked.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.readiness.readable().await
    }

    /// Waits until there may be room to write. Call after an attempt that would have blocked.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.readiness.writable().await
    }

    /// Where it is.
    pub(super) fn local_addr(&self) -> io::Result<String> {
        address(SockRef::from(&self.fd).local_addr()?)
    }

    /// Where the other side is.
    pub(super) fn peer_addr(&self) -> io::Result<String> {
        address(SockRef::from(&self.fd).peer_addr()?)
    }
}

fn address(addr: socket2::SockAddr) -> io::Result<String> {
    let addr =
        addr.as_socket().ok_or_else(|| io::Error::other("the socket has no address of the internet"))?;
    Ok(addr.to_string())
}
