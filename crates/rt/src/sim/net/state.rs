//! Connections, what travels on them, and who is cut off from whom.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::task::{Poll, Waker};

use super::super::cut::Step;
use super::super::options::Span;
use super::super::rng::Rng;
use super::super::slab::{Key, Slab};
use super::super::trace::{Kind, digest};
use super::super::world::{Event, Power, World};
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

/// Listening and connecting.
impl World {
    pub(super) fn listen(&mut self, node: u32, incarnation: u32, addr: &Addr) -> io::Result<(Addr, u64)> {
        if !self.lives(node, incarnation) {
            return Err(dead());
        }
        let (host, port) = addr
            .0
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{addr} is not host:port")))?;
        let own = self.nodes[node as usize].name.to_string();
        let host = if matches!(host, "" | "0.0.0.0" | "[::]") { own } else { host.to_owned() };
        let name = if port == 0 { self.free_addr(node, &host)? } else { format!("{host}:{port}") };
        if self.net.listeners.contains_key(&name) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{name} is taken")));
        }
        let number = self.net.listener_next;
        self.net.listener_next += 1;
        self.net.hosts.insert(host, node);
        let listening = Listening { node, number, backlog: VecDeque::new(), waker: None };
        self.net.listeners.insert(name.clone(), listening);
        Ok((Addr(name), number))
    }

    fn free_addr(&mut self, node: u32, host: &str) -> io::Result<String> {
        for _ in 0..=u16::MAX {
            let name = format!("{host}:{}", self.next_port(node));
            if !self.net.listeners.contains_key(&name) {
                return Ok(name);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))
    }

    fn next_port(&mut self, node: u32) -> u16 {
        let state = &mut self.nodes[node as usize];
        state.port_next = (state.port_next + 1) % 16_384;
        49_152 + state.port_next
    }

    pub(super) fn stop_listening(&mut self, addr: &Addr, number: u64) {
        if self.net.listeners.get(&addr.0).is_some_and(|listening| listening.number == number) {
            let listening = self.net.listeners.remove(&addr.0).expect("it was just seen");
            for (connection, _) in listening.backlog {
                self.release_half(connection, ACCEPTOR);
            }
        }
    }

    pub(super) fn poll_accept(
        &mut self,
        addr: &Addr,
        number: u64,
        waker: &Waker,
    ) -> Poll<io::Result<(Key, Addr)>> {
        let listening = self.net.listeners.get_mut(&addr.0).filter(|listening| listening.number == number);
        let Some(listening) = listening else { return Poll::Ready(Err(dead())) };
        let node = listening.node;
        let Some((connection, peer)) = listening.backlog.pop_front() else {
            listening.waker = Some(waker.clone());
            return Poll::Pending;
        };
        if let Some(connection) = self.net.connections.get_mut(connection) {
            connection.ends[ACCEPTOR].halves = 2;
        }
        self.note(Kind::Accept, node, 0);
        Poll::Ready(Ok((connection, peer)))
    }

    pub(super) fn connect(&mut self, node: u32, incarnation: u32, addr: &Addr) -> io::Result<Key> {
        if !self.lives(node, incarnation) {
            return Err(dead());
        }
        self.stats(node).connects += 1;
        self.note(Kind::Connect, node, digest(addr.0.as_bytes()));
        let host = addr.0.rsplit_once(':').map_or(addr.0.as_str(), |(host, _)| host);
        let to = match self.net.listeners.get(&addr.0) {
            Some(listening) => Some(listening.node),
            None => self.net.hosts.get(host).or_else(|| self.names.get(host)).copied(),
        };
        let timeout = self.options.net.connect_timeout.as_nanos() as u64;
        let mut ends =
            [End::new(node, EndState::Connecting), End::new(to.unwrap_or(node), EndState::Connecting)];
        ends[CONNECTOR].halves = 2;
        let connect_deadline = self.now + timeout;
        let key = self.net.connections.insert(Connection { ends, connect_deadline });
        self.nodes[node as usize].connections.insert(key);
        match to {
            Some(to) if self.net.is_cut(node, to) => self.connect_times_out(key),
            Some(to) => {
                self.nodes[to as usize].connections.insert(key);
                self.launch(key, ACCEPTOR, Cargo::Connect(addr.clone()));
            }
            None => self.launch(key, CONNECTOR, Cargo::Refused),
        }
        Ok(key)
    }

    fn connect_times_out(&mut self, key: Key) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let deadline = connection.connect_deadline;
        self.fly(key, CONNECTOR, Cargo::TimedOut, deadline);
    }

    pub(super) fn poll_connected(&mut self, key: Key, waker: &Waker) -> Poll<io::Result<()>> {
        let Some(connection) = self.net.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
        let end = &mut connection.ends[CONNECTOR];
        match end.state {
            EndState::Connecting => {
                end.waker = Some(waker.clone());
                Poll::Pending
            }
            EndState::Open | EndState::Finished | EndState::Closed => Poll::Ready(Ok(())),
            EndState::Broken(kind) => Poll::Ready(Err(kind.into())),
        }
    }
}

/// Sending and receiving.
impl World {
    pub(super) fn poll_send(
        &mut self,
        key: Key,
        end: usize,
        frame: &mut Option<Frame>,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<io::Result<()>> {
        let frames_max = self.options.net.queue_frames_max.max(1);
        let bytes_max = self.options.net.queue_bytes_max;
        let Some(connection) = self.net.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
        let from = &mut connection.ends[end];
        if from.state != EndState::Open {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection is gone")));
        }
        let bytes = frame_bytes(frame.as_ref().expect("a send that is done is not polled"));
        let first = from.waiting.first_key_value().map(|(first, _)| *first);
        let turn = first.is_none() || first == *ticket;
        let room = from.queued_frames == 0
            || (from.queued_frames < frames_max && from.queued_bytes + bytes <= bytes_max);
        if !turn || !room {
            let ticket = *ticket.get_or_insert(from.ticket_next);
            from.ticket_next = from.ticket_next.max(ticket + 1);
            from.waiting.insert(ticket, waker.clone());
            return Poll::Pending;
        }
        if let Some(ticket) = ticket.take() {
            from.waiting.remove(&ticket);
        }
        let frame = frame.take().expect("it was just seen");
        self.transmit(key, end, frame, bytes);
        // The next in line looks for itself whether there is room.
        self.wake_sender(key, end);
        Poll::Ready(Ok(()))
    }

    fn wake_sender(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let waiting = connection.ends[end].waiting.first_key_value();
        self.wakes.extend(waiting.map(|(_, waker)| waker.clone()));
    }

    pub(super) fn leave_send_queue(&mut self, key: Key, end: usize, ticket: u64) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].waiting.remove(&ticket);
        // If it was its turn, somebody else's has come.
        self.wake_sender(key, end);
    }

    fn transmit(&mut self, key: Key, end: usize, frame: Frame, bytes: u64) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let (from, to) = (connection.ends[end].node, connection.ends[1 - end].node);
        if self.count_step(from, Step::Send) {
            return;
        }
        let stats = self.stats(from);
        stats.frames_sent += 1;
        stats.bytes_sent += bytes;
        self.note(Kind::Send, from, digest(&frame.head) ^ bytes.rotate_left(40));
        let peer = 1 - end;
        if from == to {
            return self.launch_frame(key, peer, frame, bytes, true, 0);
        }
        let net = self.options.net;
        let rng = &mut self.net.rng;
        if net.break_connection.strikes(rng) {
            self.stats(from).breaks += 1;
            return self.break_connection(key);
        }
        if net.drop.strikes(rng) || self.net.is_cut(from, to) {
            return self.count_dropped(from);
        }
        let rng = &mut self.net.rng;
        let duplicate = net.duplicate.strikes(rng).then(|| frame.clone());
        let delay = if net.reorder.strikes(rng) { net.reorder_delay.draw(rng).max(1) } else { 0 };
        let repeat_delay = duplicate.is_some().then(|| net.reorder_delay.draw(rng).max(1));
        self.launch_frame(key, peer, frame, bytes, true, delay);
        if delay > 0 {
            self.stats(from).frames_reordered += 1;
            self.note(Kind::Reorder, from, delay);
        }
        if let (Some(repeat), Some(delay)) = (duplicate, repeat_delay) {
            self.stats(from).frames_duplicated += 1;
            self.note(Kind::Duplicate, from, delay);
            self.launch_frame(key, peer, repeat, bytes, false, delay);
        }
    }

    fn count_dropped(&mut self, node: u32) {
        self.stats(node).frames_dropped += 1;
        self.note(Kind::Drop, node, 0);
    }

    /// Sends a frame off. One that is delayed does not hold up those behind it.
    fn launch_frame(&mut self, key: Key, to: usize, frame: Frame, bytes: u64, counts: bool, delay: u64) {
        let arrival = self.arrival(key, to, bytes);
        let connection = self.net.connections.get_mut(key).expect("the caller has it");
        let from = &mut connection.ends[1 - to];
        if counts {
            from.queued_frames += 1;
            from.queued_bytes += bytes;
        }
        if delay == 0 {
            from.arrival_last = arrival;
        }
        self.fly(key, to, Cargo::Frame(frame, counts), arrival + delay);
    }

    /// Sends something small off, in order with the frames.
    fn launch(&mut self, key: Key, to: usize, cargo: Cargo) {
        let arrival = self.arrival(key, to, 0);
        let connection = self.net.connections.get_mut(key).expect("the caller has it");
        connection.ends[1 - to].arrival_last = arrival;
        self.fly(key, to, cargo, arrival);
    }

    fn fly(&mut self, connection: Key, to: usize, cargo: Cargo, time: u64) {
        let flight = self.net.flights.insert(Flight { connection, to, cargo });
        self.schedule(time, Event::Flight(flight));
    }

    /// When `bytes` sent now to end `to` arrive.
    fn arrival(&mut self, key: Key, to: usize, bytes: u64) -> u64 {
        let connection = self.net.connections.get(key).expect("the caller has it");
        let (from, target) = (connection.ends[1 - to].node, connection.ends[to].node);
        let after = connection.ends[1 - to].arrival_last;
        if from == target {
            return (self.now + LOOPBACK_NS).max(after);
        }
        let net = &self.options.net;
        let mut latency = net.latency;
        if !self.net.latencies.is_empty() {
            latency = self.net.latencies.get(&pair(from, target)).copied().unwrap_or(latency);
        }
        let mut time = self.now;
        let passing = net.bytes_per_second.map(|rate| transfer_ns(bytes, rate));
        if let Some(passing) = passing {
            let node = &mut self.nodes[from as usize];
            time = time.max(node.send_free_at) + passing;
            node.send_free_at = time;
        }
        time += latency.draw(&mut self.net.rng);
        if let Some(passing) = passing {
            // The first byte came in as early as the last one left; only what else arrives can delay it.
            let node = &mut self.nodes[target as usize];
            time = time.max(node.receive_free_at + passing);
            node.receive_free_at = time;
        }
        time.max(after)
    }

    pub(super) fn poll_recv(&mut self, key: Key, end: usize, waker: &Waker) -> Poll<io::Result<Frame>> {
        let Some(connection) = self.net.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
        let to = &mut connection.ends[end];
        if let Some((frame, counts)) = to.inbox.pop_front() {
            if counts {
                self.release_room(key, 1 - end, frame_bytes(&frame));
            }
            return Poll::Ready(Ok(frame));
        }
        let kind = match to.state {
            EndState::Connecting | EndState::Open => {
                to.waker = Some(waker.clone());
                return Poll::Pending;
            }
            EndState::Finished => io::ErrorKind::UnexpectedEof,
            EndState::Closed => io::ErrorKind::NotConnected,
            EndState::Broken(kind) => kind,
        };
        Poll::Ready(Err(io::Error::new(kind, "the connection is gone")))
    }

    /// A frame of `end` was taken, or lost on its way.
    fn release_room(&mut self, key: Key, end: usize, bytes: u64) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let from = &mut connection.ends[end];
        from.queued_frames -= 1;
        from.queued_bytes -= bytes;
        self.wake_sender(key, end);
    }
}

/// Arriving.
impl World {
    pub(in crate::sim) fn arrive(&mut self, flight: Key) {
        let flight = self.net.flights.remove(flight).expect("each flight arrives once");
        let Flight { connection: key, to, cargo } = flight;
        let Some(connection) = self.net.connections.get(key) else { return };
        let (node, from) = (connection.ends[to].node, connection.ends[1 - to].node);
        let lost = self.net.is_cut(from, node);
        let muted = connection.ends[1 - to].muted;
        self.stats(node).events += 1;
        match cargo {
            Cargo::TimedOut => {
                self.finish(key, to, EndState::Broken(io::ErrorKind::TimedOut));
                // The other side may have heard the question.
                self.launch(key, 1 - to, Cargo::Reset);
            }
            Cargo::Close if lost => {
                let flight = self.net.flights.insert(Flight { connection: key, to, cargo });
                self.net.held.push(flight);
            }
            Cargo::Connect(_) | Cargo::Connected if lost => self.connect_times_out(key),
            Cargo::Frame(frame, counts) if lost || muted => {
                self.count_dropped(from);
                if counts {
                    self.release_room(key, 1 - to, frame_bytes(&frame));
                }
            }
            _ if lost => {}
            Cargo::Connect(addr) => self.arrive_connect(key, &addr),
            Cargo::Connected => self.arrive_connected(key),
            Cargo::Refused => self.finish(key, to, EndState::Broken(io::ErrorKind::ConnectionRefused)),
            Cargo::Frame(frame, counts) => self.arrive_frame(key, to, frame, counts),
            Cargo::Close => self.finish(key, to, EndState::Finished),
            Cargo::Reset => self.finish(key, to, EndState::Broken(io::ErrorKind::ConnectionReset)),
        }
    }

    fn arrive_connect(&mut self, key: Key, addr: &Addr) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let (from, node) = (connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node);
        if self.nodes[node as usize].power == Power::Down {
            return self.connect_times_out(key);
        }
        let port = self.next_port(from);
        let peer = Addr(format!("{}:{port}", self.nodes[from as usize].name));
        let listening = self.net.listeners.get_mut(&addr.0).filter(|listening| listening.node == node);
        let Some(listening) = listening.filter(|listening| listening.backlog.len() < BACKLOG_MAX) else {
            self.note(Kind::Refuse, node, 0);
            return self.launch(key, CONNECTOR, Cargo::Refused);
        };
        listening.backlog.push_back((key, peer));
        let waker = listening.waker.take();
        self.wake(waker);
        let connection = self.net.connections.get_mut(key).expect("it was just seen");
        connection.ends[ACCEPTOR].state = EndState::Open;
        // It counts as held until the listener gives it out or goes.
        connection.ends[ACCEPTOR].halves = 1;
        self.launch(key, CONNECTOR, Cargo::Connected);
    }

    fn arrive_connected(&mut self, key: Key) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let end = &mut connection.ends[CONNECTOR];
        if end.state == EndState::Connecting {
            end.state = EndState::Open;
            let waker = end.waker.take();
            self.wake(waker);
        } else {
            // The one who asked has gone meanwhile.
            self.launch(key, ACCEPTOR, Cargo::Reset);
        }
    }

    fn arrive_frame(&mut self, key: Key, to: usize, frame: Frame, counts: bool) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let end = &mut connection.ends[to];
        let (node, open) = (end.node, end.is_open());
        let bytes = frame_bytes(&frame);
        if open && !end.deaf {
            end.inbox.push_back((frame, counts));
            let waker = end.waker.take();
            self.wake(waker);
            self.stats(node).frames_delivered += 1;
            self.note(Kind::Deliver, node, bytes);
            self.count_step(node, Step::Receive);
            return;
        }
        self.count_dropped(node);
        if counts {
            self.release_room(key, 1 - to, bytes);
        }
        if !open && self.nodes[node as usize].power != Power::Down {
            self.launch(key, 1 - to, Cargo::Reset);
        }
    }

    /// Ends one end from outside.
    fn finish(&mut self, key: Key, end: usize, state: EndState) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let end = &mut connection.ends[end];
        if !end.is_open() {
            return;
        }
        end.state = state;
        if state != EndState::Finished {
            end.inbox.clear();
        }
        let node = end.node;
        self.wakes.extend(end.waker.take());
        self.wakes.extend(std::mem::take(&mut end.waiting).into_values());
        self.note(if state == EndState::Finished { Kind::Close } else { Kind::Reset }, node, 0);
    }
}

/// Mending and ending.
impl World {
    pub(in crate::sim) fn mend(&mut self, one: u32, other: u32) {
        self.net.cuts.remove(&pair(one, other));
        self.net.one_way.remove(&(one, other));
        self.net.one_way.remove(&(other, one));
        self.release_held();
    }

    pub(in crate::sim) fn mend_all(&mut self) {
        self.net.cuts.clear();
        self.net.isolated.clear();
        self.net.one_way.clear();
        self.release_held();
    }

    /// Sends the goodbyes off again; what is still cut off is held again.
    fn release_held(&mut self) {
        for flight in std::mem::take(&mut self.net.held) {
            let latency = self.options.net.latency.draw(&mut self.net.rng);
            self.schedule(self.now + latency, Event::Flight(flight));
        }
    }

    /// Ends the connection from inside.
    pub(super) fn close(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get(key) else { return };
        if !connection.ends[end].is_open() {
            return;
        }
        let node = connection.ends[end].node;
        self.finish(key, end, EndState::Closed);
        if self.nodes[node as usize].power == Power::Up {
            self.launch(key, 1 - end, Cargo::Close);
        }
    }

    /// The end's receiver is gone; its senders may be there.
    pub(super) fn deafen(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].deaf = true;
        for (frame, counts) in std::mem::take(&mut connection.ends[end].inbox) {
            if counts {
                self.release_room(key, 1 - end, frame_bytes(&frame));
            }
        }
    }

    /// One of an end's two handles is gone.
    pub(super) fn release_half(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let halves = &mut connection.ends[end].halves;
        *halves = halves.saturating_sub(1);
        if *halves == 0 {
            self.close(key, end);
            self.net_forget_if_gone(key);
        }
    }

    fn net_forget_if_gone(&mut self, key: Key) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let gone = |end: &End| end.halves == 0 && end.state != EndState::Open;
        if connection.ends.iter().all(gone) {
            let nodes = [connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node];
            self.net.connections.remove(key);
            for node in nodes {
                self.nodes[node as usize].connections.remove(&key);
            }
        }
    }

    /// Breaks the connection in the middle: each end hears of it after the usual time.
    fn break_connection(&mut self, key: Key) {
        self.launch(key, CONNECTOR, Cargo::Reset);
        self.launch(key, ACCEPTOR, Cargo::Reset);
    }

    pub(in crate::sim) fn disconnect(&mut self, one: u32, other: u32) {
        let keys: Vec<Key> = self.nodes[one as usize].connections.iter().copied().collect();
        for key in keys {
            let Some(connection) = self.net.connections.get(key) else { continue };
            if connection.ends.iter().any(|end| end.node == other) {
                self.break_connection(key);
            }
        }
    }

    /// Cuts the connections of a node that stops, and its listeners.
    pub(in crate::sim) fn net_stop(&mut self, node: u32, power: Power) {
        self.net.listeners.retain(|_, listening| listening.node != node);
        let keys = std::mem::take(&mut self.nodes[node as usize].connections);
        for key in keys {
            let Some(connection) = self.net.connections.get(key) else { continue };
            let nodes = [connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node];
            for end in [CONNECTOR, ACCEPTOR] {
                if nodes[end] == node {
                    self.stop_end(key, end, power, nodes[1 - end] != node);
                }
            }
            self.net_forget_if_gone(key);
        }
    }

    fn stop_end(&mut self, key: Key, end: usize, power: Power, tell_peer: bool) {
        let was_open = self.net.connections.get(key).is_some_and(|connection| connection.ends[end].is_open());
        self.finish(key, end, EndState::Broken(io::ErrorKind::ConnectionReset));
        let notice = match power {
            Power::Down => self.options.net.crash_notice,
            Power::Up | Power::Killed => self.options.net.latency,
        };
        let delay = notice.draw(&mut self.net.rng);
        // What was sent may have left the machine, or not.
        let muted = power == Power::Down && self.net.rng.one_in(2);
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].halves = 0;
        if tell_peer && was_open {
            let notice_at = (self.now + delay).max(connection.ends[end].arrival_last);
            self.fly(key, 1 - end, Cargo::Reset, notice_at);
        }
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].muted = muted;
    }
}

fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
