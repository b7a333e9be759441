//! Connections, faults on the way, and who is told.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{addr, frame, number};
use crate::net::{Conn, FrameLimit};
use crate::sim::{Chance, NetOptions, Options, Sim, Span};
use crate::{Frame, Rt};

/// Two nodes and a connection between them.
async fn connected(sim: &Sim) -> (Conn, Conn) {
    let mut listener = sim.rt("server").net().listen(&addr(":988")).await.expect("the port is free");
    assert_eq!(listener.addr(), addr("server:988"));
    let client = sim.rt("client").net().connect(&addr("server:988")).await.expect("somebody listens");
    let server = listener.accept().await.expect("somebody connected");
    (client, server)
}

fn world(net: NetOptions) -> Sim {
    Sim::new(Options { net, ..Options::seed(3) })
}

#[test]
fn frames_arrive_in_order_after_the_latency() {
    let sim = world(NetOptions { latency: Span::micros(10, 500), ..NetOptions::default() });
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let before = sim.now();
        for sent in 0..200 {
            client.sender.send(frame(sent)).await.expect("it is open");
        }
        for expected in 0..200 {
            assert_eq!(number(&server.receiver.recv().await.expect("it is open")), expected);
        }
        let passed = sim.now() - before;
        assert!(passed >= Duration::from_micros(10) && passed <= Duration::from_micros(500), "{passed:?}");
    });
}

#[test]
fn bulk_is_shared_and_not_copied() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let bulk = Bytes::from(vec![7; 1 << 20]);
        let head = Bytes::from_static(b"head");
        client.sender.send(Frame { head, bulk: vec![bulk.clone()] }).await.expect("it is open");
        let arrived = server.receiver.recv().await.expect("it is open");
        assert_eq!(arrived.bulk[0].as_ptr(), bulk.as_ptr());
    });
}

#[test]
fn faults_drop_repeat_and_reorder() {
    let sim = world(NetOptions {
        drop: Chance::percent(10),
        duplicate: Chance::percent(10),
        reorder: Chance::percent(10),
        ..NetOptions::default()
    });
    let mut numbers = Vec::new();
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        for sent in 0..200 {
            client.sender.send(frame(sent)).await.expect("it is open");
        }
        let rt = sim.root();
        while let Some(arrived) = rt.timeout(Duration::from_secs(1), server.receiver.recv()).await {
            numbers.push(number(&arrived.expect("it is open")));
        }
    });
    let stats = sim.stats();
    assert!(
        stats.frames_dropped > 5 && stats.frames_duplicated > 5 && stats.frames_reordered > 5,
        "{stats:?}"
    );
    assert_eq!(stats.frames_delivered, 200 - stats.frames_dropped + stats.frames_duplicated);
    assert_eq!(numbers.len() as u64, stats.frames_delivered);
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, 200 - stats.frames_dropped);
}

#[test]
fn nobody_listens_and_nobody_answers() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let net = sim.rt("client").net();
        sim.node("server");
        for unknown in ["server:1", "nowhere:1"] {
            let refused = net.connect(&addr(unknown)).await.map(|_| ()).expect_err("nobody listens");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        }
        sim.crash("server");
        let before = sim.now();
        let silent = net.connect(&addr("server:1")).await.map(|_| ()).expect_err("it is down");
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        assert_eq!(sim.now() - before, Duration::from_secs(1));
    });
}

#[test]
fn a_partition_swallows_frames_until_it_heals() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let rt = sim.root();
        client.sender.send(frame(1)).await.expect("it is open");
        // What is on its way is lost too.
        sim.partition("client", "server");
        client.sender.send(frame(2)).await.expect("nobody is told");
        assert!(rt.timeout(Duration::from_secs(1), server.receiver.recv()).await.is_none());
        let cut = sim.rt("client").net().connect(&addr("server:988")).await.map(|_| ());
        assert_eq!(cut.expect_err("it is cut").kind(), io::ErrorKind::TimedOut);
        sim.heal("client", "server");
        client.sender.send(frame(3)).await.expect("it is open");
        assert_eq!(number(&server.receiver.recv().await.expect("it is healed")), 3);
        sim.isolate("server");
        client.sender.send(frame(4)).await.expect("nobody is told");
        assert!(rt.timeout(Duration::from_secs(1), server.receiver.recv()).await.is_none());
        sim.calm();
        client.sender.send(frame(5)).await.expect("it is open");
        assert_eq!(number(&server.receiver.recv().await.expect("it is healed")), 5);
    });
}

#[test]
fn closing_delivers_what_was_sent_and_then_ends() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        client.sender.send(frame(1)).await.expect("it is open");
        drop(client);
        assert_eq!(number(&server.receiver.recv().await.expect("it was sent before")), 1);
        assert!(server.receiver.recv().await.is_err());
        assert!(server.sender.send(frame(2)).await.is_err());
    });
}

#[test]
fn peers_hear_of_a_crash_after_a_while() {
    let sim = world(NetOptions { crash_notice: Span::millis(50, 60), ..NetOptions::default() });
    sim.run(async {
        let (mut client, server) = connected(&sim).await;
        let before = sim.now();
        sim.crash("server");
        assert!(client.receiver.recv().await.is_err());
        let passed = sim.now() - before;
        assert!(passed >= Duration::from_millis(50) && passed <= Duration::from_millis(60), "{passed:?}");
        assert!(client.sender.send(frame(1)).await.is_err());
        assert!(server.sender.send(frame(1)).await.is_err(), "the handles of the dead are dead");
        // The port is free again.
        let listening = Rt::sim(sim.restart("server")).net().listen(&addr(":988")).await;
        assert!(listening.is_ok());
    });
}

#[test]
fn who_missed_the_crash_hears_of_it_when_it_sends() {
    let sim = world(NetOptions { crash_notice: Span::millis(1, 2), ..NetOptions::default() });
    sim.run(async {
        let (mut client, _server) = connected(&sim).await;
        let rt = sim.root();
        sim.partition("client", "server");
        sim.crash("server");
        assert!(rt.timeout(Duration::from_secs(9), client.receiver.recv()).await.is_none());
        sim.heal("client", "server");
        sim.restart("server");
        client.sender.send(frame(1)).await.expect("it does not know yet");
        assert!(client.receiver.recv().await.is_err());
    });
}

#[test]
fn a_goodbye_is_heard_when_the_partition_heals() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let rt = sim.root();
        sim.partition("client", "server");
        drop(client);
        assert!(rt.timeout(Duration::from_secs(9), server.receiver.recv()).await.is_none());
        sim.heal("client", "server");
        assert!(server.receiver.recv().await.is_err());
    });
}

#[test]
fn a_host_name_belongs_to_who_listened_there() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let net = sim.rt("client").net();
        let listener = sim.rt("server").net().listen(&addr("10.0.0.1:988")).await.expect("it is free");
        let taken = sim.rt("other").net().listen(&addr("10.0.0.1:988")).await.map(|_| ());
        assert_eq!(taken.expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
        assert!(net.connect(&addr("10.0.0.1:988")).await.is_ok());
        drop(listener);
        let refused = net.connect(&addr("10.0.0.1:988")).await.map(|_| ()).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        sim.crash("server");
        let silent = net.connect(&addr("10.0.0.1:988")).await.map(|_| ()).expect_err("it is down");
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
fn senders_wait_in_line_while_the_queue_is_full() {
    let sim = world(NetOptions { queue_frames_max: 2, ..NetOptions::default() });
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let rt = sim.rt("client");
        let sent = Arc::new(Mutex::new(0));
        for text in 0..10 {
            let (sender, sent) = (client.sender.clone(), sent.clone());
            rt.spawn(async move {
                sender.send(frame(text)).await.expect("it is open");
                *sent.lock() += 1;
            });
        }
        let rt = sim.root();
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(*sent.lock(), 2);
        // Somebody who gives up does not hold up the others.
        assert!(rt.timeout(Duration::from_secs(1), client.sender.send(frame(99))).await.is_none());
        for expected in 0..10 {
            assert_eq!(number(&server.receiver.recv().await.expect("it is open")), expected);
        }
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(*sent.lock(), 10);
    });
}

#[test]
fn a_dropped_receiver_holds_nobody_up() {
    let sim = world(NetOptions { queue_frames_max: 2, ..NetOptions::default() });
    sim.run(async {
        let (client, server) = connected(&sim).await;
        drop(server.receiver);
        for sent in 0..10 {
            client.sender.send(frame(sent)).await.expect("the other direction is open");
        }
        let mut receiver = client.receiver;
        server.sender.send(frame(1)).await.expect("it is open");
        assert_eq!(number(&receiver.recv().await.expect("it is open")), 1);
    });
}

#[test]
fn a_frame_above_the_limit_ends_the_connection() {
    let sim = world(NetOptions::default());
    sim.run(async {
        let (mut client, mut server) = connected(&sim).await;
        server.receiver.set_limit(FrameLimit { head_bytes_max: 8, bulk_bytes_max: 0 });
        client.sender.send(frame(1)).await.expect("it is open");
        assert!(server.receiver.recv().await.is_ok());
        let large = Frame { head: Bytes::from_static(&[0; 9]), bulk: Vec::new() };
        client.sender.send(large).await.expect("it is open");
        let refused = server.receiver.recv().await.expect_err("it is too large");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(client.receiver.recv().await.is_err());
    });
}

#[test]
fn bandwidth_is_shared_by_all_that_arrives() {
    let sim = world(NetOptions { bytes_per_second: Some(1_000_000_000), ..NetOptions::default() });
    sim.run(async {
        let (client, mut server) = connected(&sim).await;
        let bulk = Bytes::from(vec![0; 1_000_000]);
        let before = sim.now();
        for _ in 0..10 {
            let large = Frame { head: Bytes::new(), bulk: vec![bulk.clone()] };
            client.sender.send(large).await.expect("it is open");
        }
        for _ in 0..10 {
            server.receiver.recv().await.expect("it is open");
        }
        let passed = sim.now() - before;
        assert!(passed >= Duration::from_millis(10) && passed < Duration::from_millis(11), "{passed:?}");
    });
}
