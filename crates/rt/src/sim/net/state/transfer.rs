//! Sending and receiving.

use super::*;

/// How a frame goes off.
pub(super) struct Sending {
    bytes: u64,
    /// Whether it counts in the sender's queue.
    counts: bool,
    /// How much later than it would arrive.
    delay: u64,
}

impl Net {
    /// The frame of a send that has room, and the node that sends it.
    pub(super) fn take_turn(
        &mut self,
        options: &NetOptions,
        (key, end): (Key, usize),
        frame: &mut Option<Frame>,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<io::Result<(u32, Frame)>> {
        let frames_max = options.queue_frames_max.max(1);
        let bytes_max = options.queue_bytes_max;
        let Some(connection) = self.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
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
        Poll::Ready(Ok((from.node, frame.take().expect("it was just seen"))))
    }

    pub(super) fn wake_sender(&mut self, machines: &mut Machines, key: Key, end: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let waiting = connection.ends[end].waiting.first_key_value();
        machines.left.wakes.extend(waiting.map(|(_, waker)| waker.clone()));
    }

    pub(in crate::sim::net) fn leave_send_queue(
        &mut self,
        machines: &mut Machines,
        key: Key,
        end: usize,
        ticket: u64,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.ends[end].waiting.remove(&ticket);
        // If it was its turn, somebody else's has come.
        self.wake_sender(machines, key, end);
    }

    pub(super) fn transmit(&mut self, machines: &mut Machines, key: Key, end: usize, frame: Frame) {
        let Some(connection) = self.connections.get(key) else { return };
        let bytes = frame_bytes(&frame);
        let (from, to) = (connection.ends[end].node, connection.ends[1 - end].node);
        let stats = machines.stats(from);
        stats.frames_sent += 1;
        stats.bytes_sent += bytes;
        machines.note(Kind::Send, from, digest(&frame.head) ^ bytes.rotate_left(40));
        let peer = 1 - end;
        if from == to {
            return self.launch_frame(machines, key, peer, frame, Sending { bytes, counts: true, delay: 0 });
        }
        let net = machines.options.net;
        let rng = &mut self.rng;
        if net.break_connection.strikes(rng) {
            machines.stats(from).breaks += 1;
            return self.break_connection(machines, key);
        }
        if net.drop.strikes(rng) || self.is_cut(from, to) {
            return machines.count_dropped(from);
        }
        let rng = &mut self.rng;
        let duplicate = net.duplicate.strikes(rng).then(|| frame.clone());
        let delay = if net.reorder.strikes(rng) { net.reorder_delay.draw(rng).max(1) } else { 0 };
        let repeat_delay = duplicate.is_some().then(|| net.reorder_delay.draw(rng).max(1));
        self.launch_frame(machines, key, peer, frame, Sending { bytes, counts: true, delay });
        if delay > 0 {
            machines.stats(from).frames_reordered += 1;
            machines.note(Kind::Reorder, from, delay);
        }
        if let (Some(repeat), Some(delay)) = (duplicate, repeat_delay) {
            machines.stats(from).frames_duplicated += 1;
            machines.note(Kind::Duplicate, from, delay);
            self.launch_frame(machines, key, peer, repeat, Sending { bytes, counts: false, delay });
        }
    }

    /// Sends a frame off. One that is delayed does not hold up those behind it.
    pub(super) fn launch_frame(
        &mut self,
        machines: &mut Machines,
        key: Key,
        to: usize,
        frame: Frame,
        sending: Sending,
    ) {
        let Sending { bytes, counts, delay } = sending;
        let arrival = self.arrival(machines, key, to, bytes);
        let connection = self.connections.get_mut(key).expect("the caller has it");
        let from = &mut connection.ends[1 - to];
        if counts {
            from.queued_frames += 1;
            from.queued_bytes += bytes;
        }
        if delay == 0 {
            from.arrival_last = arrival;
        }
        self.fly(machines, key, to, Cargo::Frame(frame, counts), arrival + delay);
    }

    /// Sends something small off, in order with the frames.
    pub(super) fn launch(&mut self, machines: &mut Machines, key: Key, to: usize, cargo: Cargo) {
        let arrival = self.arrival(machines, key, to, 0);
        let connection = self.connections.get_mut(key).expect("the caller has it");
        connection.ends[1 - to].arrival_last = arrival;
        self.fly(machines, key, to, cargo, arrival);
    }

    pub(super) fn fly(
        &mut self,
        machines: &mut Machines,
        connection: Key,
        to: usize,
        cargo: Cargo,
        time: u64,
    ) {
        let flight = self.flights.insert(Flight { connection, to, cargo });
        machines.clock.schedule(time, Event::Flight(flight));
    }

    /// When `bytes` sent now to end `to` arrive.
    pub(super) fn arrival(&mut self, machines: &mut Machines, key: Key, to: usize, bytes: u64) -> u64 {
        let connection = self.connections.get(key).expect("the caller has it");
        let (from, target) = (connection.ends[1 - to].node, connection.ends[to].node);
        let after = connection.ends[1 - to].arrival_last;
        if from == target {
            return (machines.clock.now() + LOOPBACK_NS).max(after);
        }
        let net = &machines.options.net;
        let mut latency = net.latency;
        if !self.latencies.is_empty() {
            latency = self.latencies.get(&pair(from, target)).copied().unwrap_or(latency);
        }
        let mut time = machines.clock.now();
        let passing = net.bytes_per_second.map(|rate| transfer_ns(bytes, rate));
        if let Some(passing) = passing {
            let node = &mut machines.nodes[from as usize];
            time = time.max(node.send_free_at) + passing;
            node.send_free_at = time;
        }
        time += latency.draw(&mut self.rng);
        if let Some(passing) = passing {
            // The first byte came in as early as the last one left; only what else arrives can delay it.
            let node = &mut machines.nodes[target as usize];
            time = time.max(node.receive_free_at + passing);
            node.receive_free_at = time;
        }
        time.max(after)
    }

    pub(in crate::sim::net) fn poll_recv(
        &mut self,
        machines: &mut Machines,
        key: Key,
        end: usize,
        waker: &Waker,
    ) -> Poll<io::Result<Frame>> {
        let Some(connection) = self.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
        let to = &mut connection.ends[end];
        if let Some((frame, counts)) = to.inbox.pop_front() {
            if counts {
                self.release_room(machines, key, 1 - end, frame_bytes(&frame));
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
    pub(super) fn release_room(&mut self, machines: &mut Machines, key: Key, end: usize, bytes: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let from = &mut connection.ends[end];
        from.queued_frames -= 1;
        from.queued_bytes -= bytes;
        self.wake_sender(machines, key, end);
    }
}

fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
