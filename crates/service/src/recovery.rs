//! The time after a restart in which clients replay what the target lost.
//!
//! What one client did may rest on what another one did (a file in a directory), so replays are carried out in the
//! order of their transnos, over all clients: the next one is the smallest that waits, once every client that is
//! expected has one waiting or is done. A client is done with its first ordinary request. Until all are done, nobody
//! else is served: who looked now would see a state that never was. Who does not come in time is not waited for, and
//! forgotten; nor is who has no lease with the MGS any more, while one that lives has as long as it takes
//! ([`super::absent`]). The target's own tasks change nothing meanwhile, so that the replays keep their transnos.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages as msg;
use proto::{ClientId, Code, Transno};
use rt::sync::{Notify, oneshot};
use rt::{Rt, Time, Wall};

use crate::returns::Returns;

/// How long a client may take to come back, and between two of its replays.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client that is back may take for its next step after an operator has cut the wait short. Who is not back
/// is not waited for at all then.
const PATIENCE_HURRIED: Duration = Duration::from_secs(2);
/// A client of which the MGS said that it lives is waited for so much longer.
const LIFE_SIGN: Duration = Duration::from_secs(10);
/// A client that is back and has done nothing for so long is asked about, too.
const QUIET: Duration = Duration::from_secs(15);

/// Lines that say who is waited for.
const WAITS_MAX: usize = 100;
/// How often the time is looked at while clients are waited for.
const TICK: Duration = Duration::from_secs(1);
/// A process that sees a moment so much later than it should was stopped: what clients said meanwhile waits in its sockets.
const STOPPED: Duration = Duration::from_secs(1);

/// What a target waits for after a restart.
pub struct Recovery {
    rt: Rt,
    active: AtomicBool,
    waited: Mutex<Waited>,
    over: Notify,
    /// Somebody has cut the wait short.
    hurried: AtomicBool,
    hurry: Notify,
}

struct Waited {
    clients: BTreeMap<ClientId, Client>,
    /// Replays that wait for their turn, one of a client at most: of as many clients as all of them are, the first may go.
    turns: BTreeSet<(Transno, ClientId)>,
    record: Record,
}

/// A client that had a session before the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub client: ClientId,
    /// Whether it keeps a lease with the MGS: servers do not.
    pub leases: bool,
    /// Where it was; empty if that is not known.
    pub nid: Arc<str>,
}

/// What an operator is told.
struct Record {
    began: Time,
    began_wall: Wall,
    ended: Option<Time>,
    expected: u32,
    completed: u32,
    evicted: u32,
    replayed: u64,
    next: Transno,
    returns: Returns,
}

struct Client {
    place: Place,
    since: Time,
    leases: bool,
    nid: Arc<str>,
    /// When the MGS said last that it lives.
    lives: Option<Time>,
}

/// A client that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    pub client: ClientId,
    /// It has not come back at all.
    pub absent: bool,
    /// For how long it has done nothing.
    pub quiet: Duration,
}

enum Place {
    /// Not back yet.
    Absent,
    /// Back; its next request will show what it has to replay.
    Replaying,
    /// Its next replay waits for its turn.
    Waiting(Transno, oneshot::Sender<()>),
    /// Its changes are replayed, and it states again what it holds.
    Restating,
}

impl Recovery {
    /// Waits for `clients`; the first change that they may have to replay is `next`.
    pub(crate) fn new(rt: &Rt, clients: impl IntoIterator<Item = Expected>, next: Transno) -> Recovery {
        let since = rt.now();
        let client = |of: Expected| {
            let Expected { client, leases, nid } = of;
            (client, Client { place: Place::Absent, since, leases, nid, lives: None })
        };
        let clients: BTreeMap<_, _> = clients.into_iter().map(client).collect();
        let record = Record {
            began: since,
            began_wall: rt.wall(),
            ended: None,
            expected: count(clients.len()),
            completed: 0,
            evicted: 0,
            replayed: 0,
            next,
            returns: Returns::default(),
        };
        Recovery {
            rt: rt.clone(),
            active: AtomicBool::new(!clients.is_empty()),
            waited: Mutex::new(Waited { clients, turns: BTreeSet::new(), record }),
            over: Notify::new(),
            hurried: AtomicBool::new(false),
            hurry: Notify::new(),
        }
    }

    /// Whether somebody is waited for.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Who is waited for, a line for each of the first ones: whenever a client is given up this is written down.
    pub(crate) fn waits(&self) -> Vec<String> {
        let now = self.rt.now();
        let line = |(client, waited): (&ClientId, &Client)| {
            let place = match &waited.place {
                Place::Absent => "has not come back".to_owned(),
                Place::Replaying => "is back, and its next request awaited".to_owned(),
                Place::Waiting(transno, _) => format!("waits to replay {}", transno.0),
                Place::Restating => "states again what it holds".to_owned(),
            };
            format!("recovery: client {client} {place}, for {:?}", now - waited.since)
        };
        let waited = self.waited.lock();
        let mut lines: Vec<String> = waited.clients.iter().take(WAITS_MAX).map(line).collect();
        if let Some(more @ 1..) = waited.clients.len().checked_sub(WAITS_MAX) {
            lines.push(format!("recovery: and {more} clients more"));
        }
        lines
    }

    /// How far it is, or was when it ended.
    pub(crate) fn report(&self) -> msg::RecoveryReport {
        let now = self.rt.now();
        let waited = self.waited.lock();
        let Waited { clients, turns, record } = &*waited;
        let those = |wanted: fn(&Place) -> bool| count(clients.values().filter(|c| wanted(&c.place)).count());
        let unfinished = those(|place| !matches!(place, Place::Absent));
        let waiting = turns.first().map(|(transno, _)| *transno);
        let state = match (record.expected, record.ended) {
            (0, _) => msg::RECOVERY_INACTIVE,
            (_, Some(_)) => msg::RECOVERY_COMPLETE,
            (_, None) if unfinished + record.completed + record.evicted == 0 => msg::RECOVERY_WAITING,
            (_, None) => msg::RECOVERY_RUNNING,
        };
        let remaining = clients.values().filter_map(|client| self.deadline(client)).max();
        msg::RecoveryReport {
            state,
            began_s: u64::try_from(record.began_wall.secs).unwrap_or(0),
            duration_s: seconds(record.ended.unwrap_or(now) - record.began),
            remaining_s: seconds(remaining.unwrap_or(now) - now),
            expected: record.expected,
            connected: unfinished + record.completed,
            replaying: those(|place| matches!(place, Place::Replaying | Place::Waiting(..))),
            unfinished,
            completed: record.completed,
            evicted: record.evicted,
            replayed: record.replayed,
            queued: count(turns.len()),
            next_transno: waiting.unwrap_or(record.next),
        }
    }

    /// Whom it waits for, at most [`msg::MISSING_MAX`] of them, and how many they are.
    pub(crate) fn waits_for(&self) -> (Vec<msg::MissingClient>, u32) {
        let now = self.rt.now();
        let waited = self.waited.lock();
        let mut missing: Vec<(&ClientId, &Client)> =
            waited.clients.iter().filter(|(_, client)| client.waiting().is_none()).collect();
        let all = count(missing.len());
        missing.sort_by_key(|(id, client)| (client.since, **id));
        let told = missing.into_iter().take(msg::MISSING_MAX).map(|(id, client)| msg::MissingClient {
            client: *id,
            nid: client.nid.to_string(),
            place: match client.place {
                Place::Absent => msg::MISSING_ABSENT,
                Place::Replaying | Place::Waiting(..) => msg::MISSING_SILENT,
                Place::Restating => msg::MISSING_RESTATING,
            },
            quiet_s: seconds(now - client.since),
            lives: client.lives.is_some_and(|at| now < at + LIFE_SIGN),
        });
        (told.collect(), all)
    }

    /// When it began, when it ended if it has, and how clients came back.
    pub(crate) fn returns(&self) -> (u64, Option<u64>, Returns) {
        let waited = self.waited.lock();
        let record = &waited.record;
        let began = u64::try_from(record.began_wall.secs).unwrap_or(0);
        let ended = record.ended.map(|ended| began + (ended - record.began).as_secs());
        (began, ended.filter(|_| record.expected > 0), record.returns.clone())
    }

    /// Forgets how clients came back.
    pub(crate) fn clear_returns(&self, what: fn(&mut Returns)) {
        what(&mut self.waited.lock().record.returns);
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

    /// From now on nobody is waited for who is not back, and those who are back have little time for each step. What
    /// they have to replay is replayed.
    pub(crate) fn hurry(&self) {
        {
            let mut waited = self.waited.lock();
            if self.hurried.swap(true, Ordering::SeqCst) {
                return;
            }
            let now = self.rt.now();
            for client in waited.clients.values_mut() {
                client.since = now;
            }
        }
        self.hurry.notify_waiters();
    }

    /// Waits until `end`, or until somebody hurries.
    pub(crate) async fn until(&self, end: Time) {
        let mut hurry = std::pin::pin!(self.hurry.notified());
        hurry.as_mut().enable();
        let now = self.rt.now();
        if now < end && !self.hurried.load(Ordering::SeqCst) {
            // `None` is the end of the time.
            let _ = self.rt.timeout(end - now, hurry).await;
        }
    }

    /// The client is back, perhaps over a new connection.
    pub(crate) fn is_back(&self, client: ClientId) {
        self.moves(client, Place::Replaying);
    }

    /// The client states again what it holds: a sign of life, and not the end of what it has to say.
    pub(crate) fn restates(&self, client: ClientId) {
        self.moves(client, Place::Restating);
    }

    fn moves(&self, client: ClientId, place: Place) {
        let mut waited = self.waited.lock();
        let Waited { clients, record, .. } = &mut *waited;
        if let Some(waited) = clients.get_mut(&client) {
            waited.since = self.rt.now();
            if matches!(waited.place, Place::Absent) {
                record.returns.note(waited.nid.clone(), waited.since - record.began);
            }
            // A replay that waits for its turn goes on waiting: its answer goes to the new connection, and the client
            // sends no other one before.
            if !matches!(waited.place, Place::Waiting(..)) {
                waited.place = place;
            }
        }
    }

    /// The client has nothing to replay any more, or has left by itself.
    pub(crate) fn is_done(&self, client: ClientId) {
        self.leaves(client, |record| record.completed += 1);
    }

    /// The client is not waited for any more. Whether it was.
    pub(crate) fn give_up(&self, client: ClientId) -> bool {
        self.leaves(client, |record| record.evicted += 1)
    }

    fn leaves(&self, client: ClientId, note: impl FnOnce(&mut Record)) -> bool {
        if !self.is_active() {
            return false;
        }
        let mut waited = self.waited.lock();
        let gone = waited.clients.remove(&client);
        if let Some(gone) = &gone {
            if let Some(transno) = gone.waiting() {
                waited.turns.remove(&(transno, client));
            }
            note(&mut waited.record);
        }
        self.release(&mut waited);
        gone.is_some()
    }

    /// Waits until a replay of the client has its turn. An error means that it came too late.
    pub(crate) async fn turn(&self, client: ClientId, transno: Transno) -> Result<(), Code> {
        let turn = {
            let mut waited = self.waited.lock();
            let Waited { clients, turns, .. } = &mut *waited;
            let waiting = clients.get_mut(&client).ok_or(Code::Evicted)?;
            let (sender, turn) = oneshot::channel();
            if let Some(before) = waiting.waiting() {
                turns.remove(&(before, client));
            }
            turns.insert((transno, client));
            (waiting.place, waiting.since) = (Place::Waiting(transno, sender), self.rt.now());
            self.release(&mut waited);
            turn
        };
        turn.await.map_err(|_| Code::NoSession)
    }

    /// Lets the next replay go, or everybody if there are no more.
    fn release(&self, waited: &mut Waited) {
        let Waited { clients, turns, record } = waited;
        if clients.is_empty() {
            if record.ended.is_none() {
                record.ended = Some(self.rt.now());
            }
            self.active.store(false, Ordering::Release);
            self.over.notify_waiters();
            return;
        }
        assert!(turns.len() <= clients.len(), "who is not waited for does not wait for a turn");
        if turns.len() < clients.len() {
            return;
        }
        let Some((_, first)) = turns.pop_first() else { return };
        let next = clients.get_mut(&first).expect("who waits for a turn is waited for");
        next.since = self.rt.now();
        if let Place::Waiting(transno, turn) = std::mem::replace(&mut next.place, Place::Replaying) {
            record.replayed += 1;
            record.next = Transno(transno.0 + 1).max(record.next);
            // Whoever asked may have gone; its client sends the replay again or is given up later.
            let _ = turn.send(());
        }
    }

    /// When the client is given up if it does nothing; `None` if it is not its turn to do anything.
    fn deadline(&self, client: &Client) -> Option<Time> {
        let patience = match (self.hurried.load(Ordering::SeqCst), &client.place) {
            (_, Place::Waiting(..)) => return None,
            (false, _) => PATIENCE,
            (true, Place::Absent) => Duration::ZERO,
            (true, _) => PATIENCE_HURRIED,
        };
        let patient = client.since + patience;
        let lives = client.lives.filter(|_| !self.hurried.load(Ordering::SeqCst));
        Some(lives.map_or(patient, |at| patient.max(at + LIFE_SIGN)))
    }

    /// Those about whom the MGS is to be asked.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let now = self.rt.now();
        let waited = self.waited.lock();
        let missing = waited.clients.iter().filter_map(|(id, client)| {
            let (absent, quiet) = (matches!(client.place, Place::Absent), now - client.since);
            let asked = client.leases && client.waiting().is_none() && (absent || quiet >= QUIET);
            asked.then_some(Missing { client: *id, absent, quiet })
        });
        missing.collect()
    }

    /// The MGS says that the client lives.
    pub(crate) fn lives(&self, client: ClientId) {
        let now = self.rt.now();
        if let Some(waited) = self.waited.lock().clients.get_mut(&client) {
            waited.lives = Some(now);
        }
    }

    /// Waits until somebody has taken too long, and says who; nobody once it is over.
    pub(crate) async fn late(&self) -> Vec<ClientId> {
        loop {
            let mut hurry = std::pin::pin!(self.hurry.notified());
            hurry.as_mut().enable();
            let now = self.rt.now();
            let next = {
                let waited = self.waited.lock();
                let deadlines =
                    waited.clients.iter().filter_map(|(id, client)| Some((*id, self.deadline(client)?)));
                let (late, in_time): (Vec<_>, Vec<_>) = deadlines.partition(|(_, deadline)| *deadline <= now);
                if !late.is_empty() || waited.clients.is_empty() {
                    return late.into_iter().map(|(client, _)| client).collect();
                }
                in_time.iter().map(|(_, deadline)| *deadline).min()
            };
            let pause = TICK.min(next.unwrap_or(now + PATIENCE) - now);
            // Somebody may hurry meanwhile: then all deadlines are others.
            let _ = self.rt.timeout(pause, hurry).await;
            let slept = self.rt.now() - now;
            if slept >= pause + STOPPED {
                self.excuse(slept - pause);
            }
        }
    }

    /// Nobody was answered until now: that is not held against anybody.
    pub(crate) fn start_over(&self) {
        let now = self.rt.now();
        for client in self.waited.lock().clients.values_mut() {
            client.since = now;
        }
    }

    /// The time in which this process was stopped is not held against anybody.
    fn excuse(&self, stopped: Duration) {
        let now = self.rt.now();
        tracing::warn!(?stopped, "the recovery was stopped, and has heard nobody meanwhile");
        for client in self.waited.lock().clients.values_mut() {
            client.since = now.min(client.since + stopped);
            client.lives = client.lives.map(|at| now.min(at + stopped));
        }
    }
}

impl Client {
    fn waiting(&self) -> Option<Transno> {
        match self.place {
            Place::Waiting(transno, _) => Some(transno),
            Place::Absent | Place::Replaying | Place::Restating => None,
        }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::sim::{Options, Sim};

    fn expected(client: ClientId, leases: bool) -> Expected {
        Expected { client, leases, nid: "10.1.1.2@tcp".into() }
    }

    #[test]
    fn replays_go_in_the_order_of_their_transnos() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b].map(|id| expected(id, true)), Transno(2)));
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

    /// A server that was stopped in the middle of its recovery gave up all who had not come back before, when it went on.
    #[test]
    fn who_could_not_be_heard_is_not_late() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let recovery = Arc::new(Recovery::new(&rt, [expected(ClientId(1), true)], Transno(2)));
        let (sender, mut late) = oneshot::channel();
        let waiting = recovery.clone();
        rt.spawn(async move {
            let _ = sender.send(waiting.late().await);
        });
        sim.run_for(Duration::from_secs(10));
        sim.pause("server");
        sim.run_for(Duration::from_secs(60));
        sim.resume("server");
        sim.run_for(Duration::from_secs(15));
        assert_eq!(
            late.try_recv(),
            Err(oneshot::error::TryRecvError::Empty),
            "it had 10 s before and 15 s after"
        );
        sim.run_for(Duration::from_secs(10));
        assert_eq!(late.try_recv(), Ok(vec![ClientId(1)]));
    }

    #[test]
    fn a_replay_goes_on_waiting_when_its_client_is_back() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b].map(|id| expected(id, true)), Transno(2)));
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
        let recovery = Arc::new(Recovery::new(&rt, [a, b].map(|id| expected(id, true)), Transno(2)));
        recovery.is_back(a);
        recovery.is_done(a);
        assert!(recovery.is_active());
        assert_eq!(sim.run(recovery.late()), [b]);
        assert_eq!(sim.now(), PATIENCE);
        recovery.is_done(b);
        assert!(!recovery.is_active());
        assert!(sim.run(recovery.late()).is_empty());
    }

    #[test]
    fn who_lives_has_as_long_as_it_takes() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [expected(a, true), expected(b, false)], Transno(2)));
        let quiet = Duration::from_secs(25);
        sim.run(rt.sleep(quiet));
        let missing = Missing { client: a, absent: true, quiet };
        assert_eq!(recovery.missing(), [missing], "a server keeps no lease");
        recovery.lives(a);
        assert_eq!(sim.run(recovery.late()), [b]);
        assert_eq!(sim.now(), PATIENCE);
        recovery.give_up(b);
        assert_eq!(sim.run(recovery.late()), [a]);
        assert_eq!(sim.now(), quiet + LIFE_SIGN, "it is not waited for blindly");
        recovery.is_back(a);
        assert_eq!(recovery.missing(), []);
        sim.run(rt.sleep(QUIET));
        assert!(matches!(recovery.missing()[..], [Missing { absent: false, .. }]));
    }

    #[test]
    fn the_report_follows_the_clients() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        assert_eq!(Recovery::new(&rt, [], Transno(2)).report().state, msg::RECOVERY_INACTIVE);
        let [a, b, c] = [ClientId(1), ClientId(2), ClientId(3)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b, c].map(|id| expected(id, true)), Transno(2)));
        let report = recovery.report();
        assert_eq!((report.state, report.connected, report.expected), (msg::RECOVERY_WAITING, 0, 3));
        sim.run(rt.sleep(Duration::from_secs(5)));
        recovery.is_back(a);
        recovery.is_back(b);
        recovery.restates(b);
        let waiting = recovery.clone();
        rt.spawn(async move {
            let _ = waiting.turn(a, Transno(7)).await;
        });
        sim.run(rt.sleep(Duration::from_secs(1)));
        let report = recovery.report();
        assert_eq!((report.state, report.connected, report.replaying), (msg::RECOVERY_RUNNING, 2, 1));
        assert_eq!((report.unfinished, report.queued, report.next_transno), (2, 1, Transno(7)));
        assert_eq!((report.duration_s, report.remaining_s), (6, 29), "b came later than c was expected");
        recovery.is_done(b);
        assert!(recovery.give_up(c) && !recovery.give_up(c));
        sim.run(rt.sleep(Duration::from_secs(1)));
        recovery.is_done(a);
        sim.run(rt.sleep(Duration::from_secs(9)));
        let report = recovery.report();
        assert_eq!((report.state, report.completed, report.evicted), (msg::RECOVERY_COMPLETE, 2, 1));
        assert_eq!((report.replayed, report.next_transno, report.duration_s), (1, Transno(8), 7));
    }

    #[test]
    fn who_is_waited_for_is_named_who_did_nothing_for_longest_first() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let all: Vec<ClientId> = (1..=msg::MISSING_MAX as u128 + 4).map(ClientId).collect();
        let (a, b, c) = (all[0], all[1], all[2]);
        let recovery = Arc::new(Recovery::new(&rt, all.iter().map(|id| expected(*id, true)), Transno(2)));
        sim.run(rt.sleep(Duration::from_secs(5)));
        recovery.is_back(a);
        recovery.is_back(b);
        recovery.restates(b);
        recovery.lives(all[3]);
        let waiting = recovery.clone();
        rt.spawn(async move {
            let _ = waiting.turn(a, Transno(7)).await;
        });
        sim.run(rt.sleep(Duration::from_secs(2)));
        let (missing, count) = recovery.waits_for();
        assert_eq!(
            (missing.len(), count),
            (msg::MISSING_MAX, 19),
            "whose turn has not come is not waited for"
        );
        let nid = "10.1.1.2@tcp".to_owned();
        let first =
            msg::MissingClient { client: c, nid, place: msg::MISSING_ABSENT, quiet_s: 7, lives: false };
        assert_eq!(missing[0], first);
        assert!(missing[1].lives && missing.iter().all(|one| one.quiet_s == 7), "{missing:?}");
        all.iter().skip(2).for_each(|id| assert!(recovery.give_up(*id)));
        let (missing, count) = recovery.waits_for();
        assert_eq!((missing[0].client, missing[0].place, missing[0].quiet_s), (b, msg::MISSING_RESTATING, 2));
        assert_eq!(count, 1);
        let (began, ended, returns) = recovery.returns();
        assert_eq!(ended, None);
        assert!(returns.histogram(began, ended).contains("- { delay_sec:   8, clients:    2, pct: 100,"));
        assert_eq!(returns.top().lines().count(), 3);
        recovery.is_done(b);
        recovery.is_done(a);
        assert_eq!(recovery.returns().1, Some(began + 7));
        recovery.clear_returns(Returns::clear_classes);
        assert!(recovery.returns().2.histogram(began, None).ends_with("samples: 0"));
    }

    #[test]
    fn who_is_not_back_is_given_up_at_once_in_a_hurry_and_who_is_back_replays() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        let [a, b] = [ClientId(1), ClientId(2)];
        let recovery = Arc::new(Recovery::new(&rt, [a, b].map(|id| expected(id, true)), Transno(2)));
        recovery.is_back(a);
        let (late, hurried) = (recovery.clone(), recovery.clone());
        let (sender, who) = oneshot::channel();
        rt.spawn(async move {
            let _ = sender.send(late.late().await);
        });
        sim.run_for(Duration::from_secs(1));
        hurried.hurry();
        assert_eq!(sim.run(who).expect("the task lives"), [b]);
        assert_eq!(sim.now(), Duration::from_secs(1), "at once");
        recovery.give_up(b);
        assert_eq!(sim.run(recovery.turn(a, Transno(3))), Ok(()), "it has its turn still");
        assert_eq!(sim.run(recovery.late()), [a]);
        assert_eq!(sim.now(), Duration::from_secs(1) + PATIENCE_HURRIED);
    }
}
