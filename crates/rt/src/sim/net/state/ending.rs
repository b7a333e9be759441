//! Mending what was cut, and ending connections.

use super::*;

impl Net {
    pub(in crate::sim) fn mend(&mut self, machines: &mut Machines, one: u32, other: u32) {
        self.cuts.remove(&pair(one, other));
        self.one_way.remove(&(one, other));
        self.one_way.remove(&(other, one));
        self.release_held(machines);
    }

    pub(in crate::sim) fn mend_all(&mut self, machines: &mut Machines) {
        self.cuts.clear();
        self.isolated.clear();
        self.one_way.clear();
        self.release_held(machines);
    }

    /// Sends the goodbyes off again; what is still cut off is held again.
    pub(super) fn release_held(&mut self, machines: &mut Machines) {
        for flight in std::mem::take(&mut self.held) {
            let latency = machines.options.net.latency.draw(&mut self.rng);
            machines.clock.schedule(machines.clock.now() + latency, Event::Flight(flight));
        }
    }

    /// Ends the connection from inside.
    pub(in crate::sim::net) fn close(&mut self, machines: &mut Machines, key: Key, end: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        if !connection.ends[end].is_open() {
            return;
        }
        let node = connection.ends[end].node;
        self.finish(machines, key, end, EndState::Closed);
        if machines.nodes[node as usize].power == Power::Up {
            self.launch(machines, key, 1 - end, Cargo::Close);
        }
    }

    /// The end's receiver is gone; its senders may be there.
    pub(in crate::sim::net) fn deafen(&mut self, machines: &mut Machines, key: Key, end: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.ends[end].deaf = true;
        for (frame, counts) in std::mem::take(&mut connection.ends[end].inbox) {
            if counts {
                self.release_room(machines, key, 1 - end, frame_bytes(&frame));
            }
        }
    }

    /// One of an end's two handles is gone.
    pub(in crate::sim::net) fn release_half(&mut self, machines: &mut Machines, key: Key, end: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let halves = &mut connection.ends[end].halves;
        *halves = halves.saturating_sub(1);
        if *halves == 0 {
            self.close(machines, key, end);
            self.forget_if_gone(machines, key);
        }
    }

    pub(super) fn forget_if_gone(&mut self, machines: &mut Machines, key: Key) {
        let Some(connection) = self.connections.get(key) else { return };
        let gone = |end: &End| end.halves == 0 && end.state != EndState::Open;
        if connection.ends.iter().all(gone) {
            let nodes = [connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node];
            self.connections.remove(key);
            for node in nodes {
                machines.nodes[node as usize].connections.remove(&key);
            }
        }
    }

    /// Breaks the connection in the middle: each end hears of it after the usual time.
    pub(super) fn break_connection(&mut self, machines: &mut Machines, key: Key) {
        self.launch(machines, key, CONNECTOR, Cargo::Reset);
        self.launch(machines, key, ACCEPTOR, Cargo::Reset);
    }

    pub(in crate::sim) fn disconnect(&mut self, machines: &mut Machines, one: u32, other: u32) {
        let keys: Vec<Key> = machines.nodes[one as usize].connections.iter().copied().collect();
        for key in keys {
            let Some(connection) = self.connections.get(key) else { continue };
            if connection.ends.iter().any(|end| end.node == other) {
                self.break_connection(machines, key);
            }
        }
    }

    /// Cuts the connections of a node that stops, and its listeners.
    pub(in crate::sim) fn stop(&mut self, machines: &mut Machines, node: u32, power: Power) {
        self.listeners.retain(|_, listening| listening.node != node);
        let keys = std::mem::take(&mut machines.nodes[node as usize].connections);
        for key in keys {
            let Some(connection) = self.connections.get(key) else { continue };
            let nodes = [connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node];
            for end in [CONNECTOR, ACCEPTOR] {
                if nodes[end] == node {
                    self.stop_end(machines, key, end, power, nodes[1 - end] != node);
                }
            }
            self.forget_if_gone(machines, key);
        }
    }

    pub(super) fn stop_end(
        &mut self,
        machines: &mut Machines,
        key: Key,
        end: usize,
        power: Power,
        tell_peer: bool,
    ) {
        let was_open = self.connections.get(key).is_some_and(|connection| connection.ends[end].is_open());
        self.finish(machines, key, end, EndState::Broken(io::ErrorKind::ConnectionReset));
        let notice = match power {
            Power::Down => machines.options.net.crash_notice,
            Power::Up | Power::Killed => machines.options.net.latency,
        };
        let delay = notice.draw(&mut self.rng);
        // What was sent may have left the machine, or not.
        let muted = power == Power::Down && self.rng.one_in(2);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.ends[end].halves = 0;
        if tell_peer && was_open {
            let notice_at = (machines.clock.now() + delay).max(connection.ends[end].arrival_last);
            self.fly(machines, key, 1 - end, Cargo::Reset, notice_at);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.ends[end].muted = muted;
    }
}
