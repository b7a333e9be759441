//! What happens at an end when something arrives.

use super::*;

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

    pub(super) fn arrive_connect(&mut self, key: Key, addr: &Addr) {
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

    pub(super) fn arrive_connected(&mut self, key: Key) {
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

    pub(super) fn arrive_frame(&mut self, key: Key, to: usize, frame: Frame, counts: bool) {
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
    pub(super) fn finish(&mut self, key: Key, end: usize, state: EndState) {
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
        self.left.wakes.extend(end.waker.take());
        self.left.wakes.extend(std::mem::take(&mut end.waiting).into_values());
        self.note(if state == EndState::Finished { Kind::Close } else { Kind::Reset }, node, 0);
    }
}
