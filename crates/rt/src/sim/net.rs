//! The network of a simulated machine. Frames are shared, never copied.
//!
//! Frames of one direction of a connection arrive in order, unless a reordering strikes; they are lost and repeated
//! as the options say. A node may listen under any host name that nobody else uses, its own name among them.

pub(super) mod state;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;

use self::state::{ACCEPTOR, CONNECTOR};
use super::node::Node;
use super::slab::Key;
use crate::net::{Addr, Conn, Frame, FrameLimit, SEAL_BYTES_MAX, Seal, Unseal};

/// What a peer may send before [`Receiver::set_limit`].
const LIMIT_AT_START: FrameLimit = FrameLimit { head_bytes_max: 1 << 20, bulk_bytes_max: 64 << 20 };

/// A node's network.
#[derive(Clone)]
pub struct Net {
    node: Node,
}

/// Takes connections.
pub struct Listener {
    node: Node,
    addr: Addr,
    /// Tells this listener from a later one at the same address.
    number: u64,
}

/// Sends frames.
#[derive(Clone)]
pub struct Sender {
    half: Arc<Half>,
    /// From the same end.
    node: Node,
    seal: Arc<Mutex<Option<Box<dyn Seal>>>>,
}

/// Receives frames.
pub struct Receiver {
    node: Node,
    half: Half,
    limit: FrameLimit,
    unseal: Option<Box<dyn Unseal>>,
}

/// One of the two handles of one end; the end is gone when both are.
struct Half {
    node: Node,
    connection: Key,
    end: usize,
}

impl Drop for Half {
    fn drop(&mut self) {
        self.node.shared.with(|world| world.net.release_half(&mut world.machines, self.connection, self.end));
    }
}

impl Net {
    pub(super) fn new(node: Node) -> Net {
        Net { node }
    }

    /// Starts to listen. Without a host, or for any host (`0.0.0.0`, `[::]`), under the node's name; port 0 takes a
    /// free one.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Listener> {
        let node = self.node.clone();
        let (addr, number) = node
            .shared
            .with(|world| world.net.listen(&mut world.machines, node.id, node.incarnation, addr))?;
        Ok(Listener { node, addr, number })
    }

    /// Connects to the node that listens at `addr`.
    pub async fn connect(&self, addr: &Addr) -> io::Result<Conn> {
        let node = &self.node;
        let connection = node
            .shared
            .with(|world| world.net.connect(&mut world.machines, node.id, node.incarnation, addr))?;
        // From here on the handles give the connection up if the caller does.
        let conn = conn(node, connection, CONNECTOR, addr.clone());
        poll_fn(|cx| node.shared.with(|world| world.net.poll_connected(connection, cx.waker()))).await?;
        Ok(conn)
    }
}

fn conn(node: &Node, connection: Key, end: usize, peer: Addr) -> Conn {
    let half = || Half { node: node.clone(), connection, end };
    let sender = Sender { half: Arc::new(half()), node: node.clone(), seal: Arc::default() };
    let receiver = Receiver { node: node.clone(), half: half(), limit: LIMIT_AT_START, unseal: None };
    Conn { sender: crate::net::Sender::Sim(sender), receiver: crate::net::Receiver::Sim(receiver), peer }
}

impl Listener {
    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Conn> {
        let node = &self.node;
        let (connection, peer) = poll_fn(|cx| {
            node.shared
                .with(|world| world.net.poll_accept(&mut world.machines, &self.addr, self.number, cx.waker()))
        })
        .await?;
        Ok(conn(node, connection, ACCEPTOR, peer))
    }

    /// Where it listens.
    pub fn addr(&self) -> Addr {
        self.addr.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.node.shared.with(|world| world.net.stop_listening(&mut world.machines, &self.addr, self.number));
    }
}

impl Sender {
    /// Queues `frame`; waits while too much lies untaken at the other side.
    pub async fn send(&self, mut frame: Frame) -> io::Result<()> {
        if let Some(seal) = self.seal.lock().as_mut() {
            let mut behind = Vec::new();
            seal.seal(&mut frame, &mut behind)?;
            frame.head = Bytes::from([&frame.head[..], &behind].concat());
        }
        Sending { sender: self, frame: Some(frame), ticket: None }.await
    }

    /// Protects every frame that is sent from now on.
    pub fn seal_with(&self, seal: Box<dyn Seal>) {
        *self.seal.lock() = Some(seal);
    }

    /// Ends the connection for both directions. What was sent before may still arrive.
    pub fn close(&self) {
        self.node
            .shared
            .with(|world| world.net.close(&mut world.machines, self.half.connection, self.half.end));
    }
}

/// A send that may wait for its turn.
struct Sending<'a> {
    sender: &'a Sender,
    frame: Option<Frame>,
    ticket: Option<u64>,
}

impl Future for Sending<'_> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sending = self.get_mut();
        let half = &sending.sender.half;
        half.node.shared.with(|world| {
            world.poll_send(half.connection, half.end, &mut sending.frame, &mut sending.ticket, cx.waker())
        })
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let half = &self.sender.half;
            half.node.shared.with(|world| {
                world.net.leave_send_queue(&mut world.machines, half.connection, half.end, ticket)
            });
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.node
            .shared
            .with(|world| world.net.deafen(&mut world.machines, self.half.connection, self.half.end));
    }
}

impl Receiver {
    /// The next frame.
    pub async fn recv(&mut self) -> io::Result<Frame> {
        let Half { connection, end, .. } = self.half;
        loop {
            let frame = poll_fn(|cx| {
                self.node
                    .shared
                    .with(|world| world.net.poll_recv(&mut world.machines, connection, end, cx.waker()))
            })
            .await?;
            match self.checked(frame) {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => {
                    self.node.shared.with(|world| world.net.close(&mut world.machines, connection, end));
                    return Err(error);
                }
            }
        }
    }

    /// A frame as its sender meant it; `None` if it is to be dropped.
    fn checked(&mut self, frame: Frame) -> io::Result<Option<Frame>> {
        let behind = if self.unseal.is_some() { SEAL_BYTES_MAX } else { 0 };
        if frame.head.len() > self.limit.head_bytes_max + behind
            || bulk_bytes(&frame) > self.limit.bulk_bytes_max
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent a frame above the limit"));
        }
        match &mut self.unseal {
            Some(unseal) => unseal.unseal(frame),
            None => Ok(Some(frame)),
        }
    }

    /// Checks every frame from the next one on.
    pub fn unseal_with(&mut self, unseal: Box<dyn Unseal>) {
        self.unseal = Some(unseal);
    }

    /// Sets what the peer may send from the next frame on.
    pub fn set_limit(&mut self, limit: FrameLimit) {
        self.limit = limit;
    }
}

fn bulk_bytes(frame: &Frame) -> usize {
    frame.bulk.iter().map(bytes::Bytes::len).sum()
}
