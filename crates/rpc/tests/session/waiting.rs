//! Requests that wait at their target for others.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{Enqueue, GetAttr, GetSequence, Statfs};
use proto::{ClientId, Code, Fid, ObjectId};
use rpc::{Hub, Import, Role, RpcError, limits};
use rt::sim::{Options as World, Sim};

use crate::callback::{Client, disk, revoke};
use crate::target::{Options, Server, TARGET, Target, all_keys, client_hub, fsname, import};

pub fn enqueue(start: u64, restate: bool) -> Enqueue {
    let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
    Enqueue { object, write: true, start, end: u64::MAX, restate }
}

/// The results of both.
async fn join<A, B>(one: impl Future<Output = A>, two: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut two) = (pin!(one), pin!(two));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = two.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match first.is_some() && second.is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    (first.expect("it is done"), second.expect("it is done"))
}

/// Starts `count` requests that wait; the counter says how many came back.
fn wait(hub: &Hub, import: &Arc<Import>, count: usize) -> Arc<Mutex<usize>> {
    let done = Arc::new(Mutex::new(0));
    for start in 0..count {
        let (import, done) = (import.clone(), done.clone());
        hub.rt().spawn(async move {
            let token = import.call(enqueue(start as u64, false)).await.expect("the target answers").reply;
            assert_eq!(token.start, start as u64);
            *done.lock() += 1;
        });
    }
    done
}

/// More requests wait than ordinary ones may be under way, in the client and on the connection; guards that they are
/// counted apart. Beyond their own limit they wait in the client.
#[test]
fn requests_that_wait_leave_room_for_others() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let count = limits::WAITING_MAX + 10;
        let done = wait(&hub, &import, count);
        while server.target.waiting() < limits::WAITING_MAX {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
        let answered = import.call_within(Duration::from_secs(1), Statfs {}).await;
        assert!(answered.expect("in time").is_ok());
        let answered = import.call_within(Duration::from_secs(1), GetSequence {}).await;
        assert!(answered.expect("in time").is_ok());
        assert_eq!(server.target.waiting(), limits::WAITING_MAX);
        server.target.release();
        while *done.lock() < count {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Two imports share a connection: what goes beyond its limit is asked again later.
#[test]
fn a_connection_full_of_requests_that_wait_refuses_more_and_reads_on() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let (one, two) = (import(&hub, 1), import(&hub, 2));
        let first = wait(&hub, &one, limits::WAITING_MAX);
        while server.target.waiting() < limits::WAITING_MAX {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
        let second = wait(&hub, &two, 10);
        sim.root().sleep(Duration::from_secs(1)).await;
        assert_eq!(server.target.waiting(), limits::WAITING_MAX);
        assert!(two.call_within(Duration::from_secs(1), Statfs {}).await.is_some());
        server.target.release();
        while *first.lock() + *second.lock() < limits::WAITING_MAX + 10 {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Requests that wait until somebody was called back fill a connection, and the answer that they wait for is behind
/// them. Guards that such a connection is read on, and that what the client has to do before it answers passes.
#[test]
fn a_full_connection_does_not_keep_the_answer_to_a_callback() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let options = Options { stuck: true, ..Options::default() };
        let server = Server::start(sim.rt("server"), &disk(), options).await;
        let hub = client_hub(sim.rt("client"));
        let called = import(&hub, 1);
        let client = Client::new(&called, hub.rt(), Duration::from_secs(1));
        called.call(Statfs {}).await.expect("the target answers");
        let back = Arc::new(Mutex::new(0));
        let count = 5 * 700;
        for n in 0..count {
            let (import, back) = (import(&hub, 2 + n % 5), back.clone());
            hub.rt().spawn(async move {
                let refused = import.call(GetAttr { fid: Fid::ROOT }).await.err();
                assert_eq!(refused, Some(RpcError::Refused(Code::NotFound)));
                *back.lock() += 1;
            });
        }
        sim.root().sleep(Duration::from_secs(1)).await;
        assert_eq!(server.target.waiting(), limits::RUNNING_MAX);
        assert!(called.call_within(Duration::from_secs(1), Statfs {}).await.is_none(), "nothing is read");
        let session = server.target.session_of(1).expect("the client has a session");
        let (callback, patience) = (revoke(7), Duration::from_secs(600));
        let calling = server.hub.call_back(TARGET, session, callback, patience);
        let flush = async {
            while client.count(7).begun == 0 {
                sim.root().sleep(Duration::from_millis(1)).await;
            }
            called.call_within(Duration::from_millis(900), Statfs {}).await
        };
        let (answer, flushed) = join(calling, flush).await;
        assert!(answer.is_ok_and(|answer| answer.is_ok()));
        assert!(flushed.is_some_and(|flushed| flushed.is_ok()), "what never waits has room of its own");
        server.target.release();
        while *back.lock() < count {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn requests_that_wait_leave_room_within_a_process() {
    let sim = Sim::new(World::seed(1));
    let rt = sim.rt("host");
    let hub = Hub::new(rt.clone(), fsname(), all_keys());
    let target = Target::start(&rt, &disk(), Options::default());
    hub.serve(TARGET, target.clone());
    sim.run(async {
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        let done = wait(&hub, &import, 2000);
        while target.waiting() < 2000 {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..100 {
            import.call(GetSequence {}).await.expect("the target answers");
        }
        target.release();
        while *done.lock() < 2000 {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
    });
}

/// One that waits for ten minutes is sent again a few times, and its connection is not given up meanwhile.
#[test]
fn a_long_wait_is_cheap() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let done = wait(&hub, &import, 1);
        sim.root().sleep(Duration::from_secs(29)).await;
        let sent = sim.node_stats("client").frames_sent;
        assert_eq!(sent, 4, "two of the handshake, a Connect and the request");
        sim.root().sleep(Duration::from_secs(571)).await;
        let (calls, sent) = (server.target.seen.lock().calls, sim.node_stats("client").frames_sent);
        assert_eq!((calls, sim.node_stats("client").connects), (2, 1), "a Connect and the request, once");
        assert!(sent <= 30, "{sent} frames");
        // Over a new connection it is sent at once.
        sim.disconnect("client", "server");
        sim.root().sleep(Duration::from_secs(1)).await;
        assert_eq!((server.target.waiting(), server.target.seen.lock().connects), (1, 2));
        server.target.release();
        sim.root().sleep(Duration::from_secs(1)).await;
        assert_eq!(*done.lock(), 1);
    });
}
