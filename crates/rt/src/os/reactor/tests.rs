//! Cores of this machine. A kernel without io_uring has none, and then there is nothing to test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::os::Node;
use crate::os::tests::block_on_plain;
use crate::sync::{Notify, oneshot};

/// Longest that a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn reactors(count: usize) -> Option<Reactors> {
    Reactors::start(count).ok()
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn a_task_and_what_it_spawns_stay_on_one_core() {
    let Some(reactors) = reactors(3).map(Arc::new) else { return };
    let (tell, told) = mpsc::channel();
    for _ in 0..9 {
        let (inside, tell) = (reactors.clone(), tell.clone());
        reactors.spawn_apart(Box::pin(async move {
            let before = thread_name();
            let again = inside.clone();
            let (send, receive) = oneshot::channel();
            inside.spawn(Box::pin(async move {
                again.sleep_until(Instant::now() + Duration::from_millis(1)).await;
                let _ = send.send(thread_name());
            }));
            let child = receive.await.unwrap_or_default();
            let _ = tell.send((before, child, thread_name()));
        }));
    }
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..9 {
        let (before, child, after) = told.recv_timeout(PATIENCE).expect("all end");
        assert_eq!(before, child);
        assert_eq!(before, after);
        names.insert(before);
    }
    assert_eq!(names.len(), 3, "tasks apart go to all cores");
    reactors.stop(PATIENCE);
}

#[test]
fn work_behind_goes_to_a_core_that_sleeps() {
    for count in [1, 2] {
        let Some(reactors) = reactors(count).map(Arc::new) else { return };
        let (tell, told) = mpsc::channel();
        let inside = reactors.clone();
        reactors.spawn(Box::pin(async move {
            let here = thread_name();
            let deadline = Instant::now() + PATIENCE;
            // The other core may have something to do yet when this begins.
            loop {
                let (send, receive) = oneshot::channel();
                inside.spawn_behind(Box::pin(async move { drop(send.send(thread_name())) }));
                let is_here = receive.await.unwrap_or_default() == here;
                if is_here == (count == 1) || Instant::now() > deadline {
                    let _ = tell.send(is_here);
                    break;
                }
            }
        }));
        assert_eq!(told.recv_timeout(PATIENCE * 2), Ok(count == 1));
        reactors.stop(PATIENCE);
    }
}

#[test]
fn what_wakes_on_the_same_core_wakes_no_thread() {
    let Some(reactors) = reactors(1).map(Arc::new) else { return };
    let (tell, told) = mpsc::channel();
    let inside = reactors.clone();
    reactors.spawn(Box::pin(async move {
        let before = inside.wakes();
        let (ping, pong) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (other_ping, other_pong) = (ping.clone(), pong.clone());
        inside.spawn(Box::pin(async move {
            for _ in 0..1000 {
                other_ping.notified().await;
                other_pong.notify_one();
            }
        }));
        for _ in 0..1000 {
            ping.notify_one();
            pong.notified().await;
        }
        let _ = tell.send(inside.wakes() - before);
    }));
    assert_eq!(told.recv_timeout(PATIENCE).expect("it ends"), 0);
    reactors.stop(PATIENCE);
}

#[test]
fn what_never_waits_lets_others_of_its_core_go_on() {
    let Some(reactors) = reactors(1).map(Arc::new) else { return };
    let over = Arc::new(AtomicUsize::new(0));
    let (seen, other) = (over.clone(), over.clone());
    let (tell, told) = mpsc::channel();
    let inside = reactors.clone();
    reactors.spawn(Box::pin(async move {
        inside.spawn(Box::pin(async move {
            other.store(1, Ordering::SeqCst);
        }));
        while seen.load(Ordering::SeqCst) == 0 {
            std::future::poll_fn(poll_step).await;
        }
        let _ = tell.send(());
    }));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
    reactors.stop(PATIENCE);
}

/// What the kernel has done is seen while a task goes on and on.
#[test]
fn completions_come_while_a_task_never_waits() {
    // A core has put its entries into the ring by then.
    const STEPS: usize = 10_000;
    let Some(reactors) = reactors(1).map(Arc::new) else { return };
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let over = Arc::new(AtomicUsize::new(0));
    let (inside, seen, done) = (reactors.clone(), over.clone(), over);
    let ((begin, begun), (tell, told)) = (mpsc::channel(), mpsc::channel());
    reactors.spawn(Box::pin(async move {
        let reading = inside.begin(Want::read(Arc::new(reader), 0, vec![0; 8]));
        inside.spawn(Box::pin(async move {
            let _ = reading.await;
            done.store(1, Ordering::SeqCst);
        }));
        let deadline = Instant::now() + PATIENCE / 4;
        for step in 0.. {
            if seen.load(Ordering::SeqCst) == 1 || Instant::now() > deadline {
                break;
            }
            std::future::poll_fn(poll_step).await;
            if step == STEPS {
                let _ = begin.send(());
            }
        }
        let _ = tell.send(seen.load(Ordering::SeqCst));
    }));
    assert_eq!(begun.recv_timeout(PATIENCE), Ok(()));
    rustix::io::write(&writer, b"x").expect("there is room");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(1));
    reactors.stop(PATIENCE);
}

#[test]
fn wakers_of_other_threads_lose_nothing() {
    const ROUNDS: usize = 20_000;
    let Some(reactors) = reactors(2) else { return };
    let (ping, pong) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (other_ping, other_pong) = (ping.clone(), pong.clone());
    reactors.spawn(Box::pin(async move {
        for _ in 0..ROUNDS {
            other_ping.notified().await;
            other_pong.notify_one();
        }
    }));
    block_on_plain(async {
        for _ in 0..ROUNDS {
            ping.notify_one();
            pong.notified().await;
        }
    });
    assert!(reactors.wakes() > 0, "another thread wakes");
    reactors.stop(PATIENCE);
}

#[test]
fn an_earlier_timer_of_another_thread_counts() {
    let Some(reactors) = reactors(1) else { return };
    let begin = Instant::now();
    let mut late = Box::pin(reactors.sleep_until(begin + PATIENCE));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(late.as_mut().poll(&mut cx).is_pending());
    // The core waits for the late one by now, or will see both.
    block_on_plain(reactors.sleep_until(begin + Duration::from_millis(5)));
    let slept = begin.elapsed();
    assert!(slept >= Duration::from_millis(5) && slept < PATIENCE / 2, "{slept:?}");
    reactors.stop(PATIENCE);
}

#[test]
fn dropped_timers_leave_nothing() {
    let Some(reactors) = reactors(1) else { return };
    let far = Instant::now() + PATIENCE;
    for _ in 0..100 {
        let mut sleep = Box::pin(reactors.sleep_until(far));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(reactors.here().timers.first(), None);
    reactors.stop(PATIENCE);
}

#[test]
fn a_dropped_read_keeps_its_memory_until_it_is_done() {
    let Some(reactors) = reactors(1) else { return };
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    struct Watched(Vec<u8>, Arc<AtomicUsize>);
    impl AsMut<[u8]> for Watched {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let read = reactors.begin(Want::read(Arc::new(reader), 0, Watched(vec![0; 8], dropped.clone())));
    drop(read);
    // Another operation of the same core comes behind it.
    block_on_plain(reactors.sleep_until(Instant::now() + Duration::from_millis(1)));
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "the kernel may still write there");
    rustix::io::write(&writer, b"at last").expect("there is room");
    let deadline = Instant::now() + PATIENCE;
    while dropped.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "it is freed when it is done");
        block_on_plain(reactors.sleep_until(Instant::now() + Duration::from_millis(1)));
    }
    reactors.stop(PATIENCE);
}

#[test]
fn a_core_that_ends_takes_back_what_is_under_way() {
    let Some(reactors) = reactors(2) else { return };
    let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
    let reading = reactors.begin(Want::read(Arc::new(reader), 0, vec![0; 8]));
    let begin = Instant::now();
    reactors.stop(PATIENCE);
    assert!(begin.elapsed() < PATIENCE / 2);
    let (result, _) = block_on_plain(reading);
    assert!(result.is_err(), "it was cancelled");
}

#[test]
fn errors_of_operations_are_the_kernels() {
    let Some(reactors) = reactors(1) else { return };
    let directory =
        rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).expect("a root");
    let (result, (buf, _)) = block_on_plain(reactors.begin(Want::read(Arc::new(directory), 0, vec![7; 3])));
    assert_eq!(result.expect_err("no file").raw_os_error(), Some(libc::EISDIR));
    assert_eq!(buf, [7; 3], "what was lent comes back");
    reactors.stop(PATIENCE);
}

/// A source that says what it is told.
struct Telling {
    tell: mpsc::Sender<&'static str>,
    goes: Goes,
}

impl Source for Telling {
    fn begin(&mut self, _ring: &mut Ring) {
        let _ = self.tell.send("begin");
    }

    fn completed(&mut self, _name: u64, _result: i32) {}

    fn submit(&mut self, _ring: &mut Ring) -> std::io::Result<Goes> {
        let _ = self.tell.send("submit");
        Ok(self.goes)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = self.tell.send("drop");
    }
}

#[test]
fn a_source_is_asked_before_each_wait_until_it_goes() {
    let Some(reactors) = reactors(1) else { return };
    let (tell, told) = mpsc::channel();
    let staying = reactors.attach(0, None, Box::new(Telling { tell, goes: Goes::On }));
    assert_eq!(told.recv_timeout(PATIENCE), Ok("begin"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok("submit"));
    // Each wake-up is followed by a call, also when it comes while the core falls asleep.
    for _ in 0..1000 {
        while told.try_recv().is_ok() {}
        staying.wake();
        assert_eq!(told.recv_timeout(PATIENCE), Ok("submit"));
    }
    let (tell, told) = mpsc::channel();
    let _going = reactors.attach(5, None, Box::new(Telling { tell, goes: Goes::Away }));
    for word in ["begin", "submit", "drop"] {
        assert_eq!(told.recv_timeout(PATIENCE), Ok(word));
    }
    reactors.stop(PATIENCE);
}

#[test]
fn tasks_that_come_after_the_end_are_dropped() {
    let Ok(node) = Node::start(2) else { return };
    node.stop(PATIENCE);
    let (held, dropped) = oneshot::channel::<()>();
    node.spawn(Box::pin(async move {
        let _held = held;
        std::future::pending::<()>().await;
    }));
    assert!(block_on_plain(dropped).is_err());
}
