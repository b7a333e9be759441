//! Clients that write and read the same few places over a bad network: who reads finds what was written last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::Timestamp;
use rt::Rt;
use rt::sim::{Chance, NetOptions, Options, Rng, Sim, Span};
use rt::sync::oneshot;

use super::fake::{Fake, SERVER, Server};
use super::id;

const CLIENTS: usize = 4;
const OPERATIONS: usize = 60;
const PLACES: u64 = 6;
const PLACE_BYTES: usize = 100;

/// One write of one place: its value, and when it began and ended.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: u64,
    begun: u64,
    ended: u64,
}

/// Everything that was written, by its place.
#[derive(Default)]
struct History {
    written: BTreeMap<u64, Vec<Written>>,
    next: u64,
}

impl History {
    fn begin(&mut self, place: u64, now: u64) -> u64 {
        self.next += 1;
        let written = Written { value: self.next, begun: now, ended: u64::MAX };
        self.written.entry(place).or_default().push(written);
        self.next
    }

    fn end(&mut self, place: u64, value: u64, now: u64) {
        let writes = self.written.entry(place).or_default();
        writes.iter_mut().filter(|write| write.value == value).for_each(|write| write.ended = now);
    }

    /// A read between these times may find `value`: no other write lies wholly between that and the read.
    fn check(&self, place: u64, value: u64, begun: u64, ended: u64) {
        let writes = self.written.get(&place).map_or(&[][..], Vec::as_slice);
        let nothing = Written { value: 0, begun: 0, ended: 0 };
        let found = writes.iter().find(|write| write.value == value).unwrap_or(&nothing);
        assert_eq!(found.value, value, "place {place}: nobody wrote this");
        assert!(found.begun <= ended, "place {place}: {found:?} was read before it was written");
        let newer = writes.iter().find(|write| write.begun > found.ended && write.ended < begun);
        assert!(newer.is_none(), "place {place}: {found:?} was read at {begun} instead of {newer:?}");
    }
}

async fn work(fake: Arc<Fake>, clock: Rt, mut rng: Rng, history: Arc<Mutex<History>>) {
    for _ in 0..OPERATIONS {
        clock.sleep(Duration::from_micros(rng.below(20_000))).await;
        let place = rng.below(PLACES);
        let (offset, begun) = (place * PLACE_BYTES as u64, clock.now().0);
        if rng.below(2) == 0 {
            let value = history.lock().begin(place, begun);
            let mut data = value.to_le_bytes().to_vec();
            data.resize(PLACE_BYTES, value as u8);
            fake.write(offset, Bytes::from(data), Timestamp { secs: value as i64, nanos: 0 }).await;
            history.lock().end(place, value, clock.now().0);
        } else {
            let data = fake.read(offset, PLACE_BYTES as u32).await;
            let (value, rest) = data.split_at(8);
            let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
            assert!(rest.iter().all(|byte| *byte == value as u8), "a record is written as a whole");
            history.lock().check(place, value, begun, clock.now().0);
        }
    }
}

/// Gives the ranges that clients stated again after crashes of the server.
fn run(seed: u64, crashes: usize) -> u64 {
    let net = NetOptions {
        latency: Span::micros(50, 2000),
        drop: Chance::percent(1),
        duplicate: Chance::percent(1),
        reorder: Chance::percent(5),
        reorder_delay: Span::millis(1, 30),
        break_connection: Chance(2_000),
        ..Options::default().net
    };
    let sim = Sim::new(Options { seed, net, ..Options::default() });
    sim.run(async {
        let mut server = Server::make(&sim).await;
        // On and off, for each has its own ways to go wrong.
        server.target.handler().data.locks().tokens().set_contended_answers(seed.is_multiple_of(2));
        let history = Arc::new(Mutex::new(History::default()));
        let clients: [Arc<Fake>; CLIENTS] =
            std::array::from_fn(|n| Fake::new(&sim, &format!("client{n}"), 100 + n as u8, id(1)));
        let mut tasks = Vec::new();
        for (n, fake) in clients.iter().enumerate() {
            let (sender, done) = oneshot::channel();
            let rng = sim.handle().rng(&format!("client{n}"));
            // Each machine has a clock of its own; the history needs one for all.
            let work = work(fake.clone(), sim.handle().root(), rng, history.clone());
            fake.rt().spawn(async move {
                work.await;
                let _ = sender.send(());
            });
            tasks.push(done);
        }
        let mut rng = sim.handle().rng("crashes");
        for _ in 0..crashes {
            sim.handle().root().sleep(Duration::from_millis(rng.below(400))).await;
            sim.handle().crash(SERVER);
            drop(server);
            sim.restart(SERVER);
            server = Server::open(sim.rt(SERVER)).await;
        }
        for task in tasks {
            task.await.expect("nobody found what should not be there");
        }
        let lost: u64 = clients.iter().map(|client| client.figures().lost).sum();
        assert_eq!(lost, 0, "a bad network is no reason to evict anybody");
        let revocations = clients.iter().map(|client| client.figures().revocations).sum::<u64>();
        assert!(revocations > 10, "{revocations} callbacks");
        clients.iter().map(|client| client.figures().restated).sum()
    })
}

#[test]
fn who_reads_finds_what_was_written_last() {
    for seed in 0..10 {
        assert_eq!(run(seed, 0), 0);
    }
}

#[test]
fn who_reads_finds_what_was_written_last_whatever_the_server_forgets() {
    let restated: u64 = (0..10).map(|seed| run(seed, 3)).sum();
    assert!(restated > 10, "{restated}");
}
