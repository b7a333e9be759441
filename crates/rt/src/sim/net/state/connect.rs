//! Listening and connecting.

use super::*;

impl Net {
    pub(in crate::sim::net) fn listen(
        &mut self,
        machines: &mut Machines,
        node: u32,
        incarnation: u32,
        addr: &Addr,
    ) -> io::Result<(Addr, u64)> {
        if !machines.lives(node, incarnation) {
            return Err(dead());
        }
        let (host, port) = addr
            .0
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{addr} is not host:port")))?;
        let own = machines.nodes[node as usize].name.to_string();
        let host = if matches!(host, "" | "0.0.0.0" | "[::]") { own } else { host.to_owned() };
        let name = if port == 0 { self.free_addr(machines, node, &host)? } else { format!("{host}:{port}") };
        if self.listeners.contains_key(&name) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{name} is taken")));
        }
        let number = self.listener_next;
        self.listener_next += 1;
        self.hosts.insert(host, node);
        let listening = Listening { node, number, backlog: VecDeque::new(), waker: None };
        self.listeners.insert(name.clone(), listening);
        Ok((Addr(name), number))
    }

    pub(super) fn free_addr(&mut self, machines: &mut Machines, node: u32, host: &str) -> io::Result<String> {
        for _ in 0..=u16::MAX {
            let name = format!("{host}:{}", machines.next_port(node));
            if !self.listeners.contains_key(&name) {
                return Ok(name);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))
    }

    pub(in crate::sim::net) fn stop_listening(&mut self, machines: &mut Machines, addr: &Addr, number: u64) {
        if self.listeners.get(&addr.0).is_some_and(|listening| listening.number == number) {
            let listening = self.listeners.remove(&addr.0).expect("it was just seen");
            for (connection, _) in listening.backlog {
                self.release_half(machines, connection, ACCEPTOR);
            }
        }
    }

    pub(in crate::sim::net) fn poll_accept(
        &mut self,
        machines: &mut Machines,
        addr: &Addr,
        number: u64,
        waker: &Waker,
    ) -> Poll<io::Result<(Key, Addr)>> {
        let listening = self.listeners.get_mut(&addr.0).filter(|listening| listening.number == number);
        let Some(listening) = listening else { return Poll::Ready(Err(dead())) };
        let node = listening.node;
        let Some((connection, peer)) = listening.backlog.pop_front() else {
            listening.waker = Some(waker.clone());
            return Poll::Pending;
        };
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.ends[ACCEPTOR].halves = 2;
        }
        machines.note(Kind::Accept, node, 0);
        Poll::Ready(Ok((connection, peer)))
    }

    pub(in crate::sim::net) fn connect(
        &mut self,
        machines: &mut Machines,
        node: u32,
        incarnation: u32,
        addr: &Addr,
    ) -> io::Result<Key> {
        if !machines.lives(node, incarnation) {
            return Err(dead());
        }
        machines.stats(node).connects += 1;
        machines.note(Kind::Connect, node, digest(addr.0.as_bytes()));
        let host = addr.0.rsplit_once(':').map_or(addr.0.as_str(), |(host, _)| host);
        let to = match self.listeners.get(&addr.0) {
            Some(listening) => Some(listening.node),
            None => self.hosts.get(host).or_else(|| machines.names.get(host)).copied(),
        };
        let timeout = machines.options.net.connect_timeout.as_nanos() as u64;
        let mut ends =
            [End::new(node, EndState::Connecting), End::new(to.unwrap_or(node), EndState::Connecting)];
        ends[CONNECTOR].halves = 2;
        let connect_deadline = machines.clock.now() + timeout;
        let key = self.connections.insert(Connection { ends, connect_deadline });
        machines.nodes[node as usize].connections.insert(key);
        match to {
            Some(to) if self.is_cut(node, to) => self.connect_times_out(machines, key),
            Some(to) => {
                machines.nodes[to as usize].connections.insert(key);
                self.launch(machines, key, ACCEPTOR, Cargo::Connect(addr.clone()));
            }
            None => self.launch(machines, key, CONNECTOR, Cargo::Refused),
        }
        Ok(key)
    }

    pub(super) fn connect_times_out(&mut self, machines: &mut Machines, key: Key) {
        let Some(connection) = self.connections.get(key) else { return };
        let deadline = connection.connect_deadline;
        self.fly(machines, key, CONNECTOR, Cargo::TimedOut, deadline);
    }

    pub(in crate::sim::net) fn poll_connected(&mut self, key: Key, waker: &Waker) -> Poll<io::Result<()>> {
        let Some(connection) = self.connections.get_mut(key) else { return Poll::Ready(Err(dead())) };
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
