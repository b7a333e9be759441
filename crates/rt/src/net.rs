//! Messages between nodes.
//!
//! A connection carries frames. It may lose what was sent when it breaks, and in a simulation it drops, repeats,
//! reorders and delays frames as well: order and repetition are the business of the sessions above.

use std::fmt;
use std::io;

use bytes::Bytes;

use crate::{os, sim};

/// Where a node listens: `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub String);

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one send carries: a head, and bulk as shared slices that nobody changes any more.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// Header and body.
    pub head: Bytes,
    /// Data behind it.
    pub bulk: Vec<Bytes>,
}

/// Most bytes that a seal puts behind a head.
pub const SEAL_BYTES_MAX: usize = 40;

/// Protects what one side of a connection sends, so that the other side notices what was changed on the way.
pub trait Seal: Send {
    /// Protects `frame`, the next one that this side sends. Appends to `out` what travels behind the head, at most
    /// [`SEAL_BYTES_MAX`] bytes; may exchange head and bulk for others of the same lengths. An error ends the
    /// connection.
    fn seal(&mut self, frame: &mut Frame, out: &mut Vec<u8>) -> io::Result<()>;
}

/// The other side of a [`Seal`].
pub trait Unseal: Send + Sync {
    /// Checks a frame that came with what its seal put behind the head, and gives it back as it was sent. `None`: it came
    /// before, and is dropped. An error ends the connection.
    fn unseal(&mut self, frame: Frame) -> io::Result<Option<Frame>>;
}

/// Most bytes that a peer may put into one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimit {
    /// Of the head.
    pub head_bytes_max: usize,
    /// Of the bulk.
    pub bulk_bytes_max: usize,
}

/// A node's network.
#[derive(Clone)]
pub enum Net {
    /// Of this machine.
    Os(os::net::Net),
    /// Of a simulated machine.
    Sim(sim::net::Net),
}

/// Takes connections.
pub enum Listener {
    /// On this machine.
    Os(os::net::Listener),
    /// On a simulated machine.
    Sim(sim::net::Listener),
}

/// One connection, its two directions apart.
pub struct Conn {
    /// What this side says.
    pub sender: Sender,
    /// What the other side says.
    pub receiver: Receiver,
    /// Where the other side is.
    pub peer: Addr,
}

/// Sends frames. Cheap to clone; the connection ends when every clone and the receiver are gone.
#[derive(Clone)]
pub enum Sender {
    /// On this machine.
    Os(os::net::Sender),
    /// On a simulated machine.
    Sim(sim::net::Sender),
}

/// Receives frames.
pub enum Receiver {
    /// On this machine.
    Os(os::net::Receiver),
    /// On a simulated machine.
    Sim(sim::net::Receiver),
}

impl Net {
    /// Starts to listen at `addr`; port 0 takes a free one.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Listener> {
        match self {
            Net::Os(net) => net.listen(addr).await.map(Listener::Os),
            Net::Sim(net) => net.listen(addr).await.map(Listener::Sim),
        }
    }

    /// Connects to the node that listens at `addr`.
    pub async fn connect(&self, addr: &Addr) -> io::Result<Conn> {
        match self {
            Net::Os(net) => net.connect(addr).await,
            Net::Sim(net) => net.connect(addr).await,
        }
    }
}

impl Listener {
    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Conn> {
        match self {
            Listener::Os(listener) => listener.accept().await,
            Listener::Sim(listener) => listener.accept().await,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> Addr {
        match self {
            Listener::Os(listener) => listener.addr(),
            Listener::Sim(listener) => listener.addr(),
        }
    }
}

impl Sender {
    /// Queues `frame`; waits while the queue is full. `Ok` says nothing about arrival. An error means that the
    /// connection is gone.
    pub async fn send(&self, frame: Frame) -> io::Result<()> {
        match self {
            Sender::Os(sender) => sender.send(frame).await,
            Sender::Sim(sender) => sender.send(frame).await,
        }
    }

    /// Protects every frame that is queued from now on.
    pub fn seal_with(&self, seal: Box<dyn Seal>) {
        match self {
            Sender::Os(sender) => sender.seal_with(seal),
            Sender::Sim(sender) => sender.seal_with(seal),
        }
    }

    /// Ends the connection for both directions.
    pub fn close(&self) {
        match self {
            Sender::Os(sender) => sender.close(),
            Sender::Sim(sender) => sender.close(),
        }
    }
}

impl Receiver {
    /// The next frame; an error means that the connection is gone, or that the peer sent nonsense.
    pub async fn recv(&mut self) -> io::Result<Frame> {
        match self {
            Receiver::Os(receiver) => receiver.recv().await,
            Receiver::Sim(receiver) => receiver.recv().await,
        }
    }

    /// Sets what the peer may send from the next frame on.
    pub fn set_limit(&mut self, limit: FrameLimit) {
        match self {
            Receiver::Os(receiver) => receiver.set_limit(limit),
            Receiver::Sim(receiver) => receiver.set_limit(limit),
        }
    }

    /// Checks every frame from the next one on.
    pub fn unseal_with(&mut self, unseal: Box<dyn Unseal>) {
        match self {
            Receiver::Os(receiver) => receiver.unseal_with(unseal),
            Receiver::Sim(receiver) => receiver.unseal_with(unseal),
        }
    }

    /// Whether frames arrive in the order in which they were sent, each once, as long as nobody meddles.
    pub fn keeps_order(&self) -> bool {
        matches!(self, Receiver::Os(_))
    }
}
