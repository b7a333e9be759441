//! Client and target in one process.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{GetAttr, GetSequence, Read, Statfs};
use proto::{ClientId, Code, Fid, ObjectId, Transno};
use rpc::{Hub, LinkState, Role, RpcError};
use rt::sim::{Options as World, Sim};

use crate::target::{Durable, Options, TARGET, Target, all_keys, fsname};

fn process(sim: &Sim, options: Options) -> (Hub, Arc<Target>, Arc<Mutex<Durable>>) {
    let rt = sim.rt("host");
    let disk = Arc::new(Mutex::new(Durable::default()));
    let hub = Hub::new(rt.clone(), fsname(), all_keys());
    let target = Target::start(&rt, &disk, options);
    hub.serve(TARGET, target.clone());
    (hub, target, disk)
}

#[test]
fn calls_come_back_with_replies_refusals_and_bulk() {
    let sim = Sim::new(World::seed(1));
    let (hub, _, _) = process(&sim, Options::default());
    sim.run(async {
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        assert_eq!(import.state().link, LinkState::Idle);
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!((answered.reply.seq, answered.transno), (1, Transno(1)));
        assert_eq!(import.state().link, LinkState::InProcess);
        let refused = import.call(GetAttr { fid: Fid::ROOT }).await.err();
        assert_eq!(refused, Some(RpcError::Refused(Code::NotFound)));
        let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
        let read =
            import.call(Read { object, offset: 0, len: 3, locked: false }).await.expect("the target answers");
        assert_eq!(read.bulk.concat(), [7, 7, 7]);
        assert!(import.last_committed() < Transno(1));
        import.committed(Transno(1)).await.expect("the target commits");
        assert_eq!(import.last_committed(), Transno(1));
        hub.close().await;
        assert_eq!(import.call(Statfs {}).await.err(), Some(RpcError::Closed));
    });
}

#[test]
fn a_caller_that_goes_away_does_not_stop_the_target_half_way() {
    let sim = Sim::new(World::seed(1));
    let (hub, target, _) = process(&sim, Options { work: Duration::from_millis(5), ..Options::default() });
    sim.run(async {
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        let given_up = import.call_within(Duration::from_millis(1), GetSequence {}).await;
        assert!(given_up.is_none());
        assert_eq!(target.counter(), 0);
        sim.root().sleep(Duration::from_millis(10)).await;
        assert_eq!(target.counter(), 1, "the change went on without its caller");
    });
}

#[test]
fn more_callers_than_slots_wait_for_their_turn() {
    let sim = Sim::new(World::seed(1));
    let (hub, target, _) = process(&sim, Options { work: Duration::from_millis(1), ..Options::default() });
    let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
    let done = Arc::new(Mutex::new(0));
    for _ in 0..100 {
        let (import, done) = (import.clone(), done.clone());
        hub.rt().spawn(async move {
            import.call(GetSequence {}).await.expect("the target answers");
            *done.lock() += 1;
        });
    }
    sim.run_until(|| *done.lock() == 100, Duration::from_secs(5));
    assert_eq!((*done.lock(), target.counter()), (100, 100));
}

#[test]
fn a_target_that_starts_later_or_again_is_found() {
    let sim = Sim::new(World::seed(1));
    let (hub, first, disk) = process(&sim, Options::default());
    hub.withdraw(TARGET);
    let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
    sim.run(async {
        assert!(import.call_within(Duration::from_secs(1), Statfs {}).await.is_none());
        assert!(import.state().problem.is_some());
        hub.serve(TARGET, first.clone());
        import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(import.state().problem, None);
        first.commit();
        hub.withdraw(TARGET);
        hub.serve(TARGET, Target::start(hub.rt(), &disk, Options::default()));
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(answered.reply.seq, 2);
        assert_eq!(import.state().evictions, 0);
    });
}

#[test]
fn what_an_unclean_end_of_a_target_lost_is_told() {
    let sim = Sim::new(World::seed(1));
    let (hub, _, disk) = process(&sim, Options { lazy: true, ..Options::default() });
    let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
    sim.run(async {
        let lost = import.call(GetSequence {}).await.expect("the target answers").transno;
        hub.withdraw(TARGET);
        hub.serve(TARGET, Target::start(hub.rt(), &disk, Options::default()));
        import.call(Statfs {}).await.expect("the target answers");
        assert_eq!(import.committed(lost).await, Err(RpcError::Refused(Code::Evicted)));
        assert_eq!(import.state().evictions, 1);
    });
}
