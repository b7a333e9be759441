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

impl World {
    pub(in crate::sim::net) fn poll_send(
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

    pub(super) fn wake_sender(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let waiting = connection.ends[end].waiting.first_key_value();
        self.left.wakes.extend(waiting.map(|(_, waker)| waker.clone()));
    }

    pub(in crate::sim::net) fn leave_send_queue(&mut self, key: Key, end: usize, ticket: u64) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].waiting.remove(&ticket);
        // If it was its turn, somebody else's has come.
        self.wake_sender(key, end);
    }

    pub(super) fn transmit(&mut self, key: Key, end: usize, frame: Frame, bytes: u64) {
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
            return self.launch_frame(key, peer, frame, Sending { bytes, counts: true, delay: 0 });
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
        self.launch_frame(key, peer, frame, Sending { bytes, counts: true, delay });
        if delay > 0 {
            self.stats(from).frames_reordered += 1;
            self.note(Kind::Reorder, from, delay);
        }
        if let (Some(repeat), Some(delay)) = (duplicate, repeat_delay) {
            self.stats(from).frames_duplicated += 1;
            self.note(Kind::Duplicate, from, delay);
            self.launch_frame(key, peer, repeat, Sending { bytes, counts: false, delay });
        }
    }

    pub(super) fn count_dropped(&mut self, node: u32) {
        self.stats(node).frames_dropped += 1;
        self.note(Kind::Drop, node, 0);
    }

    /// Sends a frame off. One that is delayed does not hold up those behind it.
    pub(super) fn launch_frame(&mut self, key: Key, to: usize, frame: Frame, sending: Sending) {
        let Sending { bytes, counts, delay } = sending;
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
    pub(super) fn launch(&mut self, key: Key, to: usize, cargo: Cargo) {
        let arrival = self.arrival(key, to, 0);
        let connection = self.net.connections.get_mut(key).expect("the caller has it");
        connection.ends[1 - to].arrival_last = arrival;
        self.fly(key, to, cargo, arrival);
    }

    pub(super) fn fly(&mut self, connection: Key, to: usize, cargo: Cargo, time: u64) {
        let flight = self.net.flights.insert(Flight { connection, to, cargo });
        self.clock.schedule(time, Event::Flight(flight));
    }

    /// When `bytes` sent now to end `to` arrive.
    pub(super) fn arrival(&mut self, key: Key, to: usize, bytes: u64) -> u64 {
        let connection = self.net.connections.get(key).expect("the caller has it");
        let (from, target) = (connection.ends[1 - to].node, connection.ends[to].node);
        let after = connection.ends[1 - to].arrival_last;
        if from == target {
            return (self.clock.now() + LOOPBACK_NS).max(after);
        }
        let net = &self.options.net;
        let mut latency = net.latency;
        if !self.net.latencies.is_empty() {
            latency = self.net.latencies.get(&pair(from, target)).copied().unwrap_or(latency);
        }
        let mut time = self.clock.now();
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

    pub(in crate::sim::net) fn poll_recv(
        &mut self,
        key: Key,
        end: usize,
        waker: &Waker,
    ) -> Poll<io::Result<Frame>> {
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
    pub(super) fn release_room(&mut self, key: Key, end: usize, bytes: u64) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let from = &mut connection.ends[end];
        from.queued_frames -= 1;
        from.queued_bytes -= bytes;
        self.wake_sender(key, end);
    }
}

fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
