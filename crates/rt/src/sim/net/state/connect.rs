//! Listening and connecting.

use super::*;

impl World {
    pub(in crate::sim::net) fn listen(
        &mut self,
        node: u32,
        incarnation: u32,
        addr: &Addr,
    ) -> io::Result<(Addr, u64)> {
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

    pub(super) fn free_addr(&mut self, node: u32, host: &str) -> io::Result<String> {
        for _ in 0..=u16::MAX {
            let name = format!("{host}:{}", self.next_port(node));
            if !self.net.listeners.contains_key(&name) {
                return Ok(name);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))
    }

    pub(super) fn next_port(&mut self, node: u32) -> u16 {
        let state = &mut self.nodes[node as usize];
        state.port_next = (state.port_next + 1) % 16_384;
        49_152 + state.port_next
    }

    pub(in crate::sim::net) fn stop_listening(&mut self, addr: &Addr, number: u64) {
        if self.net.listeners.get(&addr.0).is_some_and(|listening| listening.number == number) {
            let listening = self.net.listeners.remove(&addr.0).expect("it was just seen");
            for (connection, _) in listening.backlog {
                self.release_half(connection, ACCEPTOR);
            }
        }
    }

    pub(in crate::sim::net) fn poll_accept(
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

    pub(in crate::sim::net) fn connect(
        &mut self,
        node: u32,
        incarnation: u32,
        addr: &Addr,
    ) -> io::Result<Key> {
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
        let connect_deadline = self.clock.now() + timeout;
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

    pub(super) fn connect_times_out(&mut self, key: Key) {
        let Some(connection) = self.net.connections.get(key) else { return };
        let deadline = connection.connect_deadline;
        self.fly(key, CONNECTOR, Cargo::TimedOut, deadline);
    }

    pub(in crate::sim::net) fn poll_connected(&mut self, key: Key, waker: &Waker) -> Poll<io::Result<()>> {
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
