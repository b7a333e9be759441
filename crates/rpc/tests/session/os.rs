//! The same on this machine: real threads and real connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{GetSequence, Read};
use proto::{ClientId, Fid, Nid, ObjectId};
use rpc::{Hub, Key, Keys, Role, RpcError};
use rt::os::Node;
use rt::{Addr, Rt};

use crate::callback::{Client, revoke};
use crate::target::{CLIENT_KEY, Durable, Options, TARGET, Target, all_keys, fsname, identify};

struct Server {
    rt: Rt,
    hub: Hub,
    target: Arc<Target>,
    nid: Nid,
}

async fn server(node: &Node) -> Server {
    let rt = Rt::os(node.clone());
    let disk = Arc::new(Mutex::new(Durable::default()));
    let hub = Hub::new(rt.clone(), fsname(), all_keys());
    let target = Target::start(&rt, &disk, Options::default());
    hub.serve(TARGET, target.clone());
    let addr = hub.listen(&Addr("127.0.0.1:0".into())).await.expect("a port is free");
    let nid = format!("{addr}@tcp").parse().expect("an address makes a NID");
    Server { rt, hub, target, nid }
}

fn client_keys() -> Keys {
    Keys { server: None, client: Some(CLIENT_KEY) }
}

#[test]
fn many_threads_call_over_one_connection() {
    let node = Node::start(2).expect("a runtime starts");
    node.block_on(async {
        let Server { rt, hub, target, nid } = server(&node).await;
        let client = Hub::new(rt.clone(), fsname(), client_keys());
        let import = client.import(TARGET, client.new_client(), Role::Client, vec![nid]);
        let (done, mut finished) = rt::sync::channel(64);
        for _ in 0..20 {
            let (import, done) = (import.clone(), done.clone());
            rt.spawn(async move {
                for _ in 0..20 {
                    import.call(GetSequence {}).await.expect("the target answers");
                }
                let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
                let read = Read { object, offset: 0, len: 1 << 20, locked: false };
                let read = import.call(read).await.expect("the target answers");
                assert_eq!(read.bulk.iter().map(|slice| slice.len()).sum::<usize>(), 1 << 20);
                done.send(()).await.expect("the test waits");
            });
        }
        for _ in 0..20 {
            finished.recv().await.expect("every task ends");
        }
        assert_eq!(target.counter(), 400);
        client.close().await;
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}

#[test]
fn many_threads_send_batches_over_one_connection() {
    let node = Node::start(2).expect("a runtime starts");
    node.block_on(async {
        let Server { rt, hub, target, nid } = server(&node).await;
        let client = Hub::new(rt.clone(), fsname(), client_keys());
        let import = client.import(TARGET, client.new_client(), Role::Client, vec![nid]);
        let (done, mut finished) = rt::sync::channel(64);
        for _ in 0..8 {
            let (import, done) = (import.clone(), done.clone());
            rt.spawn(async move {
                let mut drawn = Vec::new();
                for _ in 0..4 {
                    let outcomes = import.batch(vec![GetSequence {}; 50]).await;
                    drawn.extend(outcomes.into_iter().map(|one| one.expect("the target answers").reply.seq));
                }
                done.send(drawn).await.expect("the test waits");
            });
        }
        let mut drawn = Vec::new();
        for _ in 0..8 {
            drawn.extend(finished.recv().await.expect("every task ends"));
        }
        drawn.sort_unstable();
        assert_eq!(drawn, (1..=1600).collect::<Vec<u64>>());
        assert_eq!(target.counter(), 1600);
        client.close().await;
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}

#[test]
fn many_threads_call_in_one_process() {
    let node = Node::start(2).expect("a runtime starts");
    node.block_on(async {
        let Server { rt, hub, target, .. } = server(&node).await;
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        let (done, mut finished) = rt::sync::channel(64);
        // More tasks than the target grants slots.
        for _ in 0..20 {
            let (import, done) = (import.clone(), done.clone());
            rt.spawn(async move {
                for _ in 0..500 {
                    import.call(GetSequence {}).await.expect("the target answers");
                }
                done.send(()).await.expect("the test waits");
            });
        }
        for _ in 0..20 {
            finished.recv().await.expect("every task ends");
        }
        assert_eq!(target.counter(), 10_000);
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}

/// Thousands of callbacks from two threads, to a client elsewhere and to one of the same process.
#[test]
fn many_threads_call_clients_back() {
    let node = Node::start(2).expect("a runtime starts");
    node.block_on(async {
        let Server { rt, hub, target, nid } = server(&node).await;
        let elsewhere = Hub::new(rt.clone(), fsname(), client_keys());
        let imports = [
            elsewhere.import(TARGET, identify(&elsewhere, 1), Role::Client, vec![nid]),
            hub.import(TARGET, identify(&hub, 2), Role::Client, Vec::new()),
        ];
        let clients = imports.each_ref().map(|import| Client::new(import, &rt, Duration::ZERO));
        for import in &imports {
            import.call(GetSequence {}).await.expect("the target answers");
        }
        let (done, mut finished) = rt::sync::channel(64);
        for task in 0..20_u64 {
            let (hub, done) = (hub.clone(), done.clone());
            let session = target.session_of(1 + u128::from(task % 2)).expect("the client has a session");
            rt.spawn(async move {
                for call in 0..200 {
                    let callback =
                        hub.call_back(TARGET, session, revoke(task * 1000 + call), Duration::from_secs(5));
                    assert!(callback.await.is_ok_and(|answer| answer.is_ok()));
                }
                done.send(()).await.expect("the test waits");
            });
        }
        for _ in 0..20 {
            finished.recv().await.expect("every task ends");
        }
        for client in clients {
            assert_eq!(client.counts.lock().values().filter(|count| count.done == 1).count(), 2000);
        }
        elsewhere.close().await;
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}

#[test]
fn a_wrong_key_is_told_at_once() {
    let node = Node::start(1).expect("a runtime starts");
    node.block_on(async {
        let Server { rt, hub, nid, .. } = server(&node).await;
        let keys = Keys { server: None, client: Some(Key([9; 32])) };
        let client = Hub::new(rt, fsname(), keys);
        let import = client.import(TARGET, client.new_client(), Role::Client, vec![nid]);
        let error = import.call(GetSequence {}).await.err();
        assert_eq!(error, Some(RpcError::Refused(proto::Code::Forbidden)));
        let problem = import.state().problem.expect("the failure is told");
        assert!(problem.ends_with("the server of file system weft does not accept this key"), "{problem}");
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}
