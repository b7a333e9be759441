//! Mending what was cut, and ending connections.

use super::*;

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
    pub(super) fn release_held(&mut self) {
        for flight in std::mem::take(&mut self.net.held) {
            let latency = self.options.net.latency.draw(&mut self.net.rng);
            self.clock.schedule(self.clock.now() + latency, Event::Flight(flight));
        }
    }

    /// Ends the connection from inside.
    pub(in crate::sim::net) fn close(&mut self, key: Key, end: usize) {
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
    pub(in crate::sim::net) fn deafen(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].deaf = true;
        for (frame, counts) in std::mem::take(&mut connection.ends[end].inbox) {
            if counts {
                self.release_room(key, 1 - end, frame_bytes(&frame));
            }
        }
    }

    /// One of an end's two handles is gone.
    pub(in crate::sim::net) fn release_half(&mut self, key: Key, end: usize) {
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        let halves = &mut connection.ends[end].halves;
        *halves = halves.saturating_sub(1);
        if *halves == 0 {
            self.close(key, end);
            self.net_forget_if_gone(key);
        }
    }

    pub(super) fn net_forget_if_gone(&mut self, key: Key) {
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
    pub(super) fn break_connection(&mut self, key: Key) {
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

    pub(super) fn stop_end(&mut self, key: Key, end: usize, power: Power, tell_peer: bool) {
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
            let notice_at = (self.clock.now() + delay).max(connection.ends[end].arrival_last);
            self.fly(key, 1 - end, Cargo::Reset, notice_at);
        }
        let Some(connection) = self.net.connections.get_mut(key) else { return };
        connection.ends[end].muted = muted;
    }
}
