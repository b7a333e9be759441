//! The time after a restart in which clients replay what the target lost.
//!
//! What one client did may rest on what another one did (a file in a directory), so replays are carried out in the
//! order of their transnos, over all clients: the next one is the smallest that waits, once every client that is
//! expected has one waiting or is done. A client is done with its first ordinary request. Until all are done, nobody
//! else is served: who looked now would see a state that never was. Who does not come in time is not waited for, and
//! forgotten; the target's own tasks change nothing meanwhile, so that the replays keep their transnos.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::{ClientId, Code, Transno};
use rt::sync::{Notify, oneshot};
use rt::{Rt, Time};

/// How long a client may take to come back, and between two of its replays.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What a target waits for after a restart.
pub struct Recovery {
    rt: Rt,
    active: AtomicBool,
    clients: Mutex<BTreeMap<ClientId, Client>>,
    over: Notify,
}

struct Client {
    place: Place,
    since: Time,
}

enum Place {
    /// Not back yet.
    Absent,
    /// Back; its next request will show what it has to replay.
    Replaying,
    /// Its next replay waits for its turn.
    Waiting(Transno, oneshot::Sender<()>),
}

impl Recovery {
    /// Waits for `clients`.
    pub(super) fn new(rt: &Rt, clients: impl IntoIterator<Item = ClientId>) -> Recovery {
        let since = rt.now();
        let clients: BTreeMap<_, _> =
            clients.into_iter().map(|client| (client, Client { place: Place::Absent, since })).collect();
        Recovery {
            rt: rt.clone(),
            active: AtomicBool::new(!clients.is_empty()),
            clients: Mutex::new(clients),
            over: Notify::new(),
        }
    }

    /// Whether somebody is waited for.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Who is waited for, a line for each.
    pub(super) fn waits(&self) -> Vec<String> {
        let now = self.rt.now();
        let line = |(client, waited): (&ClientId, &Client)| {
            let place = match &waited.place {
                Place::Absent => "has not come back".to_owned(),
                Place::Replaying => "is back, and its next request awaited".to_owned(),
                Place::Waiting(transno, _) => format!("waits to replay {}", transno.0),
            };
            format!("recovery: client {client} {place}, for {:?}", now - waited.since)
        };
        self.clients.lock().iter().map(line).collect()
    }

    /// Waits until it is over.
    pub async fn until_over(&self) {
        while self.is_active() {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            if self.is_active() {
                over.await;
            }
        }
    }

    /// The client is back, perhaps over a new connection.
    pub(super) fn is_back(&self, client: ClientId) {
        if let Some(waited) = self.clients.lock().get_mut(&client) {
            waited.since = self.rt.now();
            // A replay that waits for its turn goes on waiting: its answer goes to the new connection, and the client
            // sends no other one before.
            if !matches!(waited.place, Place::Waiting(..)) {
                waited.place = Place::Replaying;
            }
        }
    }

    /// The client has nothing to replay any more, or is gone for good.
    pub(super) fn is_done(&self, client: ClientId) {
        if !self.is_active() {
            return;
        }
        let mut clients = self.clients.lock();
        clients.remove(&client);
        self.release(&mut clients);
    }

    /// Waits until a replay of the client has its turn. An error means that it came too late.
    pub(super) async fn turn(&self, client: ClientId, transno: Transno) -> Result<(), Code> {
        let turn = {
            let mut clients = self.clients.lock();
            let waited = clients.get_mut(&client).ok_or(Code::Evicted)?;
            let (sender, turn) = oneshot::channel();
            *waited = Client { place: Place::Waiting(transno, sender), since: self.rt.now() };
            self.release(&mut clients);
            turn
        };
        turn.await.map_err(|_| Code::NoSession)
    }

    /// Lets the next replay go, or everybody if there are no more.
    fn release(&self, clients: &mut BTreeMap<ClientId, Client>) {
        if clients.is_empty() {
            self.active.store(false, Ordering::Release);
            self.over.notify_waiters();
            return;
        }
        let waiting = |client: &Client| match client.place {
            Place::Waiting(transno, _) => Some(transno),
            Place::Absent | Place::Replaying => None,
        };
        if !clients.values().all(|client| waiting(client).is_some()) {
            return;
        }
        let Some(next) = clients.values_mut().min_by_key(|client| waiting(client)) else { return };
        next.since = self.rt.now();
        if let Place::Waiting(_, turn) = std::mem::replace(&mut next.place, Place::Replaying) {
            // Whoever asked may have gone; its client sends the replay again or is given up later.
            let _ = turn.send(());
        }
    }

    /// Waits until somebody has taken too long, and says who; nobody once it is over.
    pub(super) async fn late(&self) -> Vec<ClientId> {
        loop {
            let now = self.rt.now();
            let next = {
                let clients = self.clients.lock();
                let blocking =
                    clients.iter().filter(|(_, client)| !matches!(client.place, Place::Waiting(..)));
                let (late, in_time): (Vec<_>, Vec<_>) =
                    blocking.partition(|(_, client)| client.since + PATIENCE <= now);
                if !late.is_empty() || clients.is_empty() {
                    return late.into_iter().map(|(client, _)| *client).collect();
                }
                in_time.iter().map(|(_, client)| client.since + PATIENCE).min()
            };
            let pause = next.unwrap_or(now + PATIENCE);
            self.rt.sleep_until(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::sim::{Options, Sim};
    use std::sync::Arc;

    #[test]
    fn replays_go_in_the_order_of_their_transnos() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b]));
        let order = Arc::new(Mutex::new(Vec::new()));
        for (client, transnos) in [(a, [3, 4, 9]), (b, [2, 5, 6])] {
            let (recovery, order, task) = (recovery.clone(), order.clone(), rt.clone());
            rt.spawn(async move {
                task.sleep(Duration::from_secs(client.0 as u64)).await;
                recovery.is_back(client);
                for transno in transnos {
                    recovery.turn(client, Transno(transno)).await.expect("it is in time");
                    order.lock().push(transno);
                }
                recovery.is_done(client);
            });
        }
        sim.run(recovery.until_over());
        assert_eq!(*order.lock(), [2, 3, 4, 5, 6, 9]);
        assert_eq!(sim.run(recovery.turn(a, Transno(10))), Err(Code::Evicted));
    }

    #[test]
    fn a_replay_goes_on_waiting_when_its_client_is_back() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b]));
        let (sender, turn) = oneshot::channel();
        let waiting = recovery.clone();
        rt.spawn(async move {
            let _ = sender.send(waiting.turn(b, Transno(2)).await);
        });
        sim.run_for(Duration::from_secs(1));
        recovery.is_back(b);
        recovery.is_done(a);
        assert_eq!(sim.run(turn).expect("the task lives"), Ok(()));
    }

    #[test]
    fn who_does_not_come_is_not_waited_for() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b]));
        recovery.is_back(a);
        recovery.is_done(a);
        assert!(recovery.is_active());
        assert_eq!(sim.run(recovery.late()), [b]);
        assert_eq!(sim.now(), PATIENCE);
        recovery.is_done(b);
        assert!(!recovery.is_active());
        assert!(sim.run(recovery.late()).is_empty());
    }
}
