//! Connections, what travels on them, and who is cut off from whom.

mod arrive;
mod connect;
mod ending;
mod steps;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::task::{Poll, Waker};

use super::super::clock::Event;
use super::super::cut::Step;
use super::super::machines::{Machines, Power};
use super::super::options::{NetOptions, Span};
use super::super::rng::Rng;
use super::super::slab::{Key, Slab};
use super::super::trace::{Kind, digest};
use super::super::world::World;
use super::bulk_bytes;
use crate::net::{Addr, Frame};

/// The end that asked for the connection.
pub(super) const CONNECTOR: usize = 0;
/// The end that was asked.
pub(super) const ACCEPTOR: usize = 1;

/// Connections that nobody has accepted yet; more are refused.
const BACKLOG_MAX: usize = 4_096;

/// How long a frame takes from a node to itself.
const LOOPBACK_NS: u64 = 1_000;

pub(in crate::sim) struct Net {
    connections: Slab<Connection>,
    flights: Slab<Flight>,
    listeners: BTreeMap<String, Listening>,
    listener_next: u64,
    /// Who listened last under a host name: it is asked even while nobody listens.
    hosts: BTreeMap<String, u32>,
    /// Goodbyes that wait for a partition to heal, as a machine repeats them until they are heard.
    held: Vec<Key>,
    /// Pairs that do not hear each other, the lower id first.
    cuts: BTreeSet<(u32, u32)>,
    isolated: BTreeSet<u32>,
    /// From whom nothing comes to whom.
    one_way: BTreeSet<(u32, u32)>,
    latencies: BTreeMap<(u32, u32), Span>,
    rng: Rng,
}

struct Listening {
    node: u32,
    number: u64,
    backlog: VecDeque<(Key, Addr)>,
    waker: Option<Waker>,
}

struct Connection {
    ends: [End; 2],
    /// When the connect gives up.
    connect_deadline: u64,
}

struct End {
    node: u32,
    state: EndState,
    /// Handles that are left.
    halves: u8,
    /// No frame that this end sent arrives any more: its machine crashed and took them along.
    muted: bool,
    /// Its receiver is gone: frames that arrive are thrown away.
    deaf: bool,
    /// Arrived and not taken; whether each counts in the sender's queue.
    inbox: VecDeque<(Frame, bool)>,
    /// Who waits for a frame, or for the connection.
    waker: Option<Waker>,
    /// Sent by this end and not taken by the other.
    queued_frames: u32,
    queued_bytes: u64,
    /// Who waits for room in the queue, by ticket.
    waiting: BTreeMap<u64, Waker>,
    ticket_next: u64,
    /// Arrival of the last frame that this end sent: the next one does not overtake it.
    arrival_last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndState {
    /// No answer yet.
    Connecting,
    Open,
    /// The other side closed; what arrived before can be taken.
    Finished,
    /// This side closed.
    Closed,
    /// It broke.
    Broken(io::ErrorKind),
}

/// Something on its way over a connection.
struct Flight {
    connection: Key,
    /// The end that it goes to.
    to: usize,
    cargo: Cargo,
}

enum Cargo {
    Connect(Addr),
    Connected,
    Refused,
    TimedOut,
    /// Whether it counts in the sender's queue.
    Frame(Frame, bool),
    Close,
    Reset,
}

impl Net {
    pub(in crate::sim) fn new(seed: u64) -> Net {
        Net {
            connections: Slab::new(),
            flights: Slab::new(),
            listeners: BTreeMap::new(),
            listener_next: 0,
            hosts: BTreeMap::new(),
            held: Vec::new(),
            cuts: BTreeSet::new(),
            isolated: BTreeSet::new(),
            one_way: BTreeSet::new(),
            latencies: BTreeMap::new(),
            rng: Rng::stream(seed, "net", 0),
        }
    }

    pub(in crate::sim) fn cut(&mut self, one: u32, other: u32) {
        self.cuts.insert(pair(one, other));
    }

    pub(in crate::sim) fn cut_one_way(&mut self, from: u32, to: u32) {
        self.one_way.insert((from, to));
    }

    pub(in crate::sim) fn isolate(&mut self, node: u32) {
        self.isolated.insert(node);
    }

    pub(in crate::sim) fn set_latency(&mut self, one: u32, other: u32, latency: Span) {
        self.latencies.insert(pair(one, other), latency);
    }

    fn is_cut(&self, from: u32, to: u32) -> bool {
        from != to
            && (self.isolated.contains(&from)
                || self.isolated.contains(&to)
                || self.cuts.contains(&pair(from, to))
                || self.one_way.contains(&(from, to)))
    }
}

fn pair(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

impl End {
    fn new(node: u32, state: EndState) -> End {
        End {
            node,
            state,
            halves: 0,
            muted: false,
            deaf: false,
            inbox: VecDeque::new(),
            waker: None,
            queued_frames: 0,
            queued_bytes: 0,
            waiting: BTreeMap::new(),
            ticket_next: 0,
            arrival_last: 0,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, EndState::Open | EndState::Connecting)
    }
}

fn frame_bytes(frame: &Frame) -> u64 {
    (frame.head.len() + bulk_bytes(frame)) as u64
}

fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the node has crashed")
}
