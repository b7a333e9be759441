//! Random operations against a model, with stops and crashes in between.
//!
//! Each operation leaves a key with its number in its own batch. After a crash these keys tell which operations
//! survived and in which order they took effect; the objects must be what exactly those operations make.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rt::sim::Rng;
use rt::sync::channel;

use super::*;
use crate::object::CHUNK_BYTES;

/// What one operation does.
#[derive(Debug, Clone)]
enum Op {
    Write { id: ObjectId, parts: Vec<(u64, Vec<u8>)> },
    Punch { id: ObjectId, start: u64, end: u64 },
    Allocate { id: ObjectId, start: u64, end: u64 },
    Destroy { ids: Vec<ObjectId> },
}

/// Where operations take place: near the start of an object and near the border of its first chunks.
const PLACES: [u64; 2] = [0, CHUNK_BYTES - 30_000];
/// Bytes of a place.
const PLACE_BYTES: u64 = 110_000;

/// An object of the model. Elsewhere it has zeros.
#[derive(Debug, Clone)]
struct Bytewise {
    size: u64,
    places: [Vec<u8>; 2],
}

impl Default for Bytewise {
    fn default() -> Bytewise {
        Bytewise { size: 0, places: [(); 2].map(|()| vec![0; PLACE_BYTES as usize]) }
    }
}

impl Bytewise {
    /// The bytes of `[start, end)` at each place that the range touches, with their offset in the object.
    fn within(&mut self, start: u64, end: u64) -> impl Iterator<Item = (u64, &mut [u8])> {
        self.places.iter_mut().zip(PLACES).filter_map(move |(bytes, first)| {
            let (from, to) = (start.max(first), end.min(first + PLACE_BYTES));
            (from < to).then(|| (from, &mut bytes[(from - first) as usize..(to - first) as usize]))
        })
    }

    fn clear(&mut self, start: u64, end: u64) {
        self.within(start, end).for_each(|(_, bytes)| bytes.fill(0));
    }
}

#[derive(Debug, Default, Clone)]
struct Model {
    objects: BTreeMap<ObjectId, Bytewise>,
    dead: Vec<Fid>,
}

impl Model {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { id, parts } => {
                let object = self.objects.entry(*id).or_default();
                for (offset, data) in parts {
                    let end = offset + data.len() as u64;
                    object.size = object.size.max(end);
                    for (from, bytes) in object.within(*offset, end) {
                        let from = (from - offset) as usize;
                        bytes.copy_from_slice(&data[from..from + bytes.len()]);
                    }
                }
            }
            Op::Punch { id, start, end: u64::MAX } => {
                if *start > 0 || self.objects.contains_key(id) {
                    let object = self.objects.entry(*id).or_default();
                    object.size = *start;
                    object.clear(*start, u64::MAX);
                }
            }
            Op::Punch { id, start, end } => {
                if let Some(object) = self.objects.get_mut(id) {
                    object.clear(*start, *end);
                }
            }
            // What is reserved reads as what was there.
            Op::Allocate { .. } => {}
            Op::Destroy { ids } => {
                for id in ids {
                    self.objects.remove(id);
                    self.dead.push(id.layout);
                }
            }
        }
    }
}

const OBJECTS: u32 = 4;

/// An offset that leaves room for the longest operation within its place.
fn place(rng: &mut Rng) -> u64 {
    let near = rng.below(60_000);
    let near = if rng.one_in(2) { near / 4096 * 4096 } else { near };
    near + PLACES[usize::from(rng.one_in(3))]
}

fn random_bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    rng.fill(&mut data);
    data
}

fn random_op(rng: &mut Rng, round: u32) -> Op {
    // Objects are destroyed for ever: each round has some of its own.
    let any = |rng: &mut Rng| {
        let oid = if rng.one_in(2) { 1 + rng.below(u64::from(OBJECTS)) as u32 } else { 100 + round };
        stripe(oid, rng.below(2) as u32)
    };
    match rng.below(20) {
        0 if round > 0 => {
            let ids = vec![stripe(100 + round - 1, 0), stripe(100 + round - 1, 1)];
            Op::Destroy { ids }
        }
        1 | 2 => Op::Punch { id: any(rng), start: place(rng), end: u64::MAX },
        3 => Op::Punch { id: any(rng), start: 0, end: u64::MAX },
        7 => {
            let start = place(rng);
            Op::Allocate { id: any(rng), start, end: start + rng.between(1, 20_000) }
        }
        4..=6 => {
            let start = place(rng);
            Op::Punch { id: any(rng), start, end: start + rng.between(1, 20_000) }
        }
        8..=10 => {
            let (mut at, mut parts) = (place(rng), Vec::new());
            for _ in 0..rng.between(2, 12) {
                let len = rng.between(1, 50);
                let data = random_bytes(rng, len);
                let end = at + data.len() as u64;
                parts.push((at, data));
                at = end + if rng.one_in(5) { 4096 } else { rng.below(100) };
            }
            Op::Write { id: any(rng), parts }
        }
        _ => {
            let len = if rng.one_in(2) { rng.between(1, 200) } else { rng.between(1, 12) * 4096 };
            let data = random_bytes(rng, len);
            Op::Write { id: any(rng), parts: vec![(place(rng), data)] }
        }
    }
}

fn mark_key(number: u64) -> Bytes {
    [b"P", &number.to_be_bytes()[..]].concat().into()
}

/// Leaves the operation's number in its batch.
fn mark(number: u64) -> Extra {
    let keys = move |_: &_| vec![Change { key: mark_key(number), value: Some(Bytes::from_static(b"done")) }];
    Extra { author: None, keys: Some(Box::new(keys)) }
}

async fn carry_out(objects: &Objects, number: u64, op: Op) -> Result<Transno, StoreError> {
    let time = at(number as i64);
    match op {
        Op::Write { id, parts } => {
            let slices = |(offset, data): (u64, Vec<u8>)| {
                let (middle, data) = (data.len() / 3, Bytes::from(data));
                (offset, vec![data.slice(..middle), data.slice(middle..)])
            };
            let parts = parts.into_iter().map(slices).collect();
            let by = By { time, owner: owner(number) };
            Ok(objects.write_parts(id, parts, by, None, mark(number)).await?.1)
        }
        Op::Punch { id, start, end } => Ok(objects.punch(id, start, end, time, None, mark(number)).await?.1),
        Op::Allocate { id, start, end } => {
            Ok(objects.allocate(id, start..end, time, None, mark(number)).await?.1)
        }
        Op::Destroy { ids } => objects.destroy(&ids, &[], None, mark(number)).await,
    }
}

/// Everything that was tried, by number, and the transno of what was acknowledged.
#[derive(Default)]
struct History {
    ops: Vec<Op>,
    acknowledged: BTreeMap<u64, Transno>,
}

/// Starts `tasks` tasks that carry out random operations and waits for them; they end with the node.
async fn work(rt: &Rt, target: &Target, history: &Arc<Mutex<History>>, rng: &mut Rng, round: u32) {
    let (sender, mut receiver) = channel::<()>(8);
    for _ in 0..3 {
        let (objects, history, mut rng) = (target.objects.clone(), history.clone(), Rng::new(rng.next_u64()));
        let sender = sender.clone();
        rt.spawn(async move {
            for _ in 0..25 {
                let op = random_op(&mut rng, round);
                let number = {
                    let mut history = history.lock();
                    history.ops.push(op.clone());
                    history.ops.len() as u64 - 1
                };
                match carry_out(&objects, number, op).await {
                    Ok(transno) => {
                        history.lock().acknowledged.insert(number, transno);
                    }
                    Err(StoreError::Gone) => {}
                    Err(error) => panic!("operation {number}: {error}"),
                }
            }
            drop(sender);
        });
    }
    drop(sender);
    let _ = receiver.recv().await;
}

/// Compares the target with what the operations that took effect make.
async fn compare(target: &Target, history: &History, rng: &mut Rng) -> Result<(), StoreError> {
    let marks = target.store.scan(b"P", b"Q", usize::MAX)?;
    let mut order: Vec<(Transno, u64)> = marks
        .iter()
        .map(|(key, value)| {
            let number = key[1..].try_into().map(u64::from_be_bytes).expect("a mark has 8 bytes");
            (value.version, number)
        })
        .collect();
    order.sort_unstable();
    let mut model = Model::default();
    for (_, number) in &order {
        model.apply(&history.ops[*number as usize]);
    }
    assert_eq!(target.list()?, model.objects.keys().copied().collect::<Vec<_>>());
    for (id, object) in &model.objects {
        assert_eq!(target.objects.attr(*id)?.size, object.size, "{id:?}");
        let mut object = object.clone();
        let end = object.size;
        for (start, want) in object.within(rng.below(10_000), end) {
            let read = target.read(*id, start, PLACE_BYTES as u32).await?;
            assert!(read.starts_with(want), "{id:?} at {start}");
            assert!(read[want.len()..].iter().all(|byte| *byte == 0), "{id:?} behind {start}");
        }
    }
    for layout in &model.dead {
        let attr = target.objects.attr(ObjectId { layout: *layout, stripe: 0 });
        assert!(matches!(attr, Err(StoreError::Gone)), "{attr:?}");
    }
    assert_eq!(target.findings().await?, Vec::<String>::new());
    Ok(())
}

fn run(seed: u64, crashes: bool) {
    let mut options = Options::swarm(seed);
    options.run_limit = Duration::from_secs(24 * 3600);
    let sim = Sim::new(options);
    let mut rng = sim.rng("workload");
    let history = Arc::new(Mutex::new(History::default()));
    let mut rt = sim.rt(NODE);
    let mut target = sim.run(Target::make(&rt)).expect("a target is made");
    for round in 0..4 {
        let hole_changes_max = if crashes { SMALL.hole_changes_max } else { 1 };
        let limits = if rng.one_in(2) { Limits { hole_changes_max, ..SMALL } } else { Limits::default() };
        let crash = crashes && rng.one_in(2);
        if crash {
            let handle = sim.handle();
            let limit = Duration::from_micros(rng.between(10, 400_000));
            let _ = sim.run_timeout(work(&rt, &target, &history, &mut rng, round), limit);
            let durable = target.store.last_committed();
            handle.crash(NODE);
            drop(target);
            rt = Rt::sim(sim.restart(NODE));
            target = sim.run(Target::open(&rt, limits)).expect("the target opens after a crash");
            let mut history = history.lock();
            let survived =
                |number: &u64| target.store.get(&mark_key(*number)).expect("keys are there").is_some();
            let mut lost = None;
            let mut by_transno: Vec<_> = history.acknowledged.iter().map(|(n, t)| (*t, *n)).collect();
            by_transno.sort_unstable();
            for (transno, number) in by_transno {
                let here = survived(&number);
                assert!(here || transno > durable, "operation {number} was durable");
                assert!(!here || lost.is_none(), "operation {number} survived and {lost:?} did not");
                if !here {
                    lost = Some(number);
                }
            }
            // What was lost is not there the next time either.
            history.acknowledged.retain(|number, _| survived(number));
        } else {
            sim.run(async {
                work(&rt, &target, &history, &mut rng, round).await;
                target.close().await
            })
            .expect("a target closes");
            target = sim.run(Target::open(&rt, limits)).expect("a target opens");
        }
        sim.run(compare(&target, &history.lock(), &mut rng)).expect("no operation fails");
    }
    sim.run(target.close()).expect("a target closes");
}

#[test]
fn objects_are_what_the_operations_make() {
    for seed in 0..5 {
        run(seed, false);
    }
}

#[test]
fn after_a_crash_objects_are_what_the_surviving_operations_make() {
    for seed in 100..108 {
        run(seed, true);
    }
}
