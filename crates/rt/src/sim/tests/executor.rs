//! Tasks, timers, crashes of the process, reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::sim::{Options, Order, Outcome, Sim};
use crate::sync::{Notify, oneshot};

type Log = Arc<Mutex<Vec<u64>>>;

/// Starts tasks 0.. on one node, each of which notes its number after so many milliseconds.
fn noted(sim: &Sim, delays: &[u64]) -> Vec<u64> {
    let log = Log::default();
    let rt = sim.rt("a");
    for (number, delay) in delays.iter().copied().enumerate() {
        let (rt2, log) = (rt.clone(), log.clone());
        rt.spawn(async move {
            rt2.sleep(Duration::from_millis(delay)).await;
            log.lock().push(number as u64);
        });
    }
    let outcome = sim.run_until(|| false, Duration::from_secs(1));
    assert_eq!(outcome, Outcome::Deadlock, "all tasks end");
    std::mem::take(&mut *log.lock())
}

#[test]
fn timers_strike_in_order_and_equal_ones_as_they_were_started() {
    let sim = Sim::new(Options::seed(1));
    assert_eq!(noted(&sim, &[30, 10, 20, 10, 0]), [4, 1, 3, 2, 0]);
    assert_eq!(sim.now(), Duration::from_millis(30));
}

#[test]
fn random_order_differs_between_seeds_and_not_between_runs() {
    let run = |seed| {
        let options = Options { order: Order::Random, ..Options::seed(seed) };
        noted(&Sim::new(options), &[0; 20])
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut sorted = run(1);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
}

#[test]
fn clocks_of_nodes_differ_and_run_alike() {
    let sim = Sim::new(Options::seed(1));
    let (one, other) = (sim.rt("a"), sim.rt("b"));
    let before = (one.now(), other.now());
    assert_ne!(before.0, before.1);
    sim.run(one.sleep(Duration::from_secs(3)));
    assert_eq!(one.now() - before.0, Duration::from_secs(3));
    assert_eq!(other.now() - before.1, Duration::from_secs(3));
    assert!(one.wall().secs >= 1_700_000_002);
    assert_ne!(one.random_u64(), other.random_u64());
}

#[test]
fn a_timeout_gives_its_timer_up() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.root();
    sim.run(async {
        for _ in 0..10_000 {
            let slept = rt.timeout(Duration::from_secs(1_000), rt.sleep(Duration::from_nanos(10))).await;
            assert_eq!(slept, Some(()));
        }
        assert_eq!(rt.timeout(Duration::from_millis(1), std::future::pending::<()>()).await, None);
    });
    assert_eq!(sim.now(), Duration::from_nanos(100_000) + Duration::from_millis(1));
    // What was given up is not waited for either.
    assert_eq!(sim.run_until(|| false, Duration::from_secs(10)), Outcome::Deadlock);
}

#[test]
fn a_deadlock_names_where_the_waiting_tasks_come_from() {
    let sim = Sim::new(Options::seed(7));
    sim.rt("oss1").spawn(std::future::pending());
    let failure = catch_unwind(AssertUnwindSafe(|| sim.run(std::future::pending::<()>())));
    let message = *failure.expect_err("it cannot end").downcast::<String>().expect("it has a message");
    assert!(message.contains("Deadlock") && message.contains("seed 7"), "{message}");
    assert!(message.contains("oss1: 1 tasks from") && message.contains("executor.rs"), "{message}");
}

#[test]
#[should_panic(expected = "node oss1 panicked at 5ms, seed 9: the cow is not purple")]
fn a_panic_names_node_and_seed() {
    let sim = Sim::new(Options::seed(9));
    let rt = sim.rt("oss1");
    rt.clone().spawn(async move {
        rt.sleep(Duration::from_millis(5)).await;
        panic!("the cow is not purple");
    });
    sim.run_for(Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "no progress")]
fn running_in_circles_is_noticed() {
    let sim = Sim::new(Options { polls_per_instant_max: 1_000, ..Options::seed(1) });
    sim.rt("a").spawn(std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }));
    sim.run_for(Duration::from_secs(1));
}

#[test]
fn a_crash_drops_the_tasks_and_a_restart_is_another_incarnation() {
    let sim = Sim::new(Options::seed(1));
    let old = sim.rt("a");
    let (dropped, held) = oneshot::channel::<()>();
    old.spawn(async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    });
    sim.run_for(Duration::from_millis(1));
    sim.crash("a");
    assert!(sim.run(held).is_err(), "the future and what it held are gone");
    assert!(!sim.node("a").is_alive());

    let fresh = crate::Rt::sim(sim.restart("a"));
    let log = Log::default();
    for (rt, number) in [(&old, 1), (&fresh, 2)] {
        let log = log.clone();
        rt.spawn(async move { log.lock().push(number) });
    }
    sim.run_for(Duration::from_millis(1));
    assert_eq!(*log.lock(), [2], "the old handle starts nothing");
    assert_ne!(old.now(), fresh.now(), "each incarnation has a clock of its own");
}

#[test]
fn a_task_may_crash_its_own_node() {
    let sim = Sim::new(Options::seed(1));
    let (handle, rt) = (sim.handle(), sim.rt("a"));
    let waker = Arc::new(Notify::new());
    let (held, dropped) = oneshot::channel::<()>();
    let notify = waker.clone();
    rt.spawn(async move {
        let _held = held;
        handle.crash("a");
        notify.notified().await;
        panic!("it goes on after the crash");
    });
    assert!(sim.run(dropped).is_err());
    // Its waker is harmless.
    waker.notify_one();
    sim.run_for(Duration::from_millis(1));
}

#[test]
fn a_dropped_future_may_come_back_to_the_world() {
    struct OnDrop(crate::Rt, Arc<Notify>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.spawn(async {});
            self.1.notify_one();
            let _ = self.0.random_u64();
        }
    }
    let sim = Sim::new(Options::seed(1));
    let (one, other) = (sim.rt("a"), sim.rt("b"));
    let notify = Arc::new(Notify::new());
    let guard = OnDrop(other.clone(), notify.clone());
    one.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    sim.run_for(Duration::from_millis(1));
    sim.crash("a");
    sim.run(notify.notified());
}

#[test]
fn a_paused_node_stands_still_while_time_passes() {
    let sim = Sim::new(Options::seed(1));
    let log = Log::default();
    let rt = sim.rt("a");
    let (rt2, log2) = (rt.clone(), log.clone());
    rt.spawn(async move {
        rt2.sleep(Duration::from_millis(5)).await;
        log2.lock().push(1);
    });
    sim.run_for(Duration::from_millis(1));
    sim.pause("a");
    sim.run(sim.root().sleep(Duration::from_millis(50)));
    assert!(log.lock().is_empty());
    sim.resume("a");
    sim.run_for(Duration::from_millis(1));
    assert_eq!(*log.lock(), [1]);
}

#[test]
fn work_in_place_goes_on_as_a_task() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt("a");
    let (done, wait) = oneshot::channel();
    let rt2 = rt.clone();
    rt.run_in_place(async move {
        rt2.sleep(Duration::from_millis(5)).await;
        let _ = done.send(rt2.offload(|| 6 * 7).await);
    });
    assert_eq!(sim.run(wait), Ok(42));
}

#[test]
fn idle_nodes_cost_nothing() {
    let sim = Sim::new(Options::seed(1));
    for number in 0..5_000 {
        let rt = sim.rt(&format!("client{number}"));
        rt.clone().spawn(async move { rt.sleep(Duration::from_secs(1_000_000)).await });
    }
    sim.run_for(Duration::from_secs(1));
    let before = sim.stats();
    sim.run(sim.root().sleep(Duration::from_secs(3_600)));
    let after = sim.stats();
    assert_eq!((after.events - before.events, after.polls - before.polls), (1, 0));
}
