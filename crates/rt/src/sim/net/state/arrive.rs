//! What happens at an end when something arrives.

use super::*;

impl Net {
    /// Something arrives. Gives the node that has received a frame by it.
    pub(super) fn arrive(&mut self, machines: &mut Machines, flight: Key) -> Option<u32> {
        let flight = self.flights.remove(flight).expect("each flight arrives once");
        let Flight { connection: key, to, cargo } = flight;
        let connection = self.connections.get(key)?;
        let (node, from) = (connection.ends[to].node, connection.ends[1 - to].node);
        let lost = self.is_cut(from, node);
        let muted = connection.ends[1 - to].muted;
        machines.stats(node).events += 1;
        match cargo {
            Cargo::TimedOut => {
                self.finish(machines, key, to, EndState::Broken(io::ErrorKind::TimedOut));
                // The other side may have heard the question.
                self.launch(machines, key, 1 - to, Cargo::Reset);
            }
            Cargo::Close if lost => {
                let flight = self.flights.insert(Flight { connection: key, to, cargo });
                self.held.push(flight);
            }
            Cargo::Connect(_) | Cargo::Connected if lost => self.connect_times_out(machines, key),
            Cargo::Frame(frame, counts) if lost || muted => {
                machines.count_dropped(from);
                if counts {
                    self.release_room(machines, key, 1 - to, frame_bytes(&frame));
                }
            }
            _ if lost => {}
            Cargo::Connect(addr) => self.arrive_connect(machines, key, &addr),
            Cargo::Connected => self.arrive_connected(machines, key),
            Cargo::Refused => {
                self.finish(machines, key, to, EndState::Broken(io::ErrorKind::ConnectionRefused))
            }
            Cargo::Frame(frame, counts) => return self.arrive_frame(machines, key, to, frame, counts),
            Cargo::Close => self.finish(machines, key, to, EndState::Finished),
            Cargo::Reset => self.finish(machines, key, to, EndState::Broken(io::ErrorKind::ConnectionReset)),
        }
        None
    }

    pub(super) fn arrive_connect(&mut self, machines: &mut Machines, key: Key, addr: &Addr) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (from, node) = (connection.ends[CONNECTOR].node, connection.ends[ACCEPTOR].node);
        if machines.nodes[node as usize].power == Power::Down {
            return self.connect_times_out(machines, key);
        }
        let port = machines.next_port(from);
        let peer = Addr(format!("{}:{port}", machines.nodes[from as usize].name));
        let listening = self.listeners.get_mut(&addr.0).filter(|listening| listening.node == node);
        let Some(listening) = listening.filter(|listening| listening.backlog.len() < BACKLOG_MAX) else {
            machines.note(Kind::Refuse, node, 0);
            return self.launch(machines, key, CONNECTOR, Cargo::Refused);
        };
        listening.backlog.push_back((key, peer));
        let waker = listening.waker.take();
        machines.wake(waker);
        let connection = self.connections.get_mut(key).expect("it was just seen");
        connection.ends[ACCEPTOR].state = EndState::Open;
        // It counts as held until the listener gives it out or goes.
        connection.ends[ACCEPTOR].halves = 1;
        self.launch(machines, key, CONNECTOR, Cargo::Connected);
    }

    pub(super) fn arrive_connected(&mut self, machines: &mut Machines, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let end = &mut connection.ends[CONNECTOR];
        if end.state == EndState::Connecting {
            end.state = EndState::Open;
            let waker = end.waker.take();
            machines.wake(waker);
        } else {
            // The one who asked has gone meanwhile.
            self.launch(machines, key, ACCEPTOR, Cargo::Reset);
        }
    }

    pub(super) fn arrive_frame(
        &mut self,
        machines: &mut Machines,
        key: Key,
        to: usize,
        frame: Frame,
        counts: bool,
    ) -> Option<u32> {
        let connection = self.connections.get_mut(key)?;
        let end = &mut connection.ends[to];
        let (node, open) = (end.node, end.is_open());
        let bytes = frame_bytes(&frame);
        if open && !end.deaf {
            end.inbox.push_back((frame, counts));
            let waker = end.waker.take();
            machines.wake(waker);
            machines.stats(node).frames_delivered += 1;
            machines.note(Kind::Deliver, node, bytes);
            return Some(node);
        }
        machines.count_dropped(node);
        if counts {
            self.release_room(machines, key, 1 - to, bytes);
        }
        if !open && machines.nodes[node as usize].power != Power::Down {
            self.launch(machines, key, 1 - to, Cargo::Reset);
        }
        None
    }

    /// Ends one end from outside.
    pub(super) fn finish(&mut self, machines: &mut Machines, key: Key, end: usize, state: EndState) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let end = &mut connection.ends[end];
        if !end.is_open() {
            return;
        }
        end.state = state;
        if state != EndState::Finished {
            end.inbox.clear();
        }
        let node = end.node;
        machines.left.wakes.extend(end.waker.take());
        machines.left.wakes.extend(std::mem::take(&mut end.waiting).into_values());
        machines.note(if state == EndState::Finished { Kind::Close } else { Kind::Reset }, node, 0);
    }
}
