//! Two ends on this machine.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use bytes::Bytes;

use super::room::Pace;
use super::*;
use crate::net::{Frame, FrameLimit, Receiver};
use crate::os::Node;
use crate::os::tests::block_on_plain;
use crate::{Net, Rt};

/// With rings on the cores, if this kernel has them, and without.
fn nodes() -> [(Node, Net); 2] {
    [Node::start(2), Node::start_without_rings(2)].map(|node| {
        let node = node.expect("a node starts");
        let net = Rt::os(node.clone()).net();
        (node, net)
    })
}

async fn pair(net: &Net) -> (Conn, Conn) {
    let mut listener = net.listen(&Addr("127.0.0.1:0".to_owned())).await.expect("it listens");
    let client = net.connect(&listener.addr()).await.expect("it connects");
    let server = listener.accept().await.expect("it accepts");
    (client, server)
}

/// A connection whose other end is a plain socket.
fn raw(node: &Node, net: &Net) -> (std::net::TcpStream, Conn) {
    node.block_on(async {
        let mut listener = net.listen(&Addr("127.0.0.1:0".to_owned())).await.expect("it listens");
        let stream = std::net::TcpStream::connect(listener.addr().0).expect("it connects");
        (stream, listener.accept().await.expect("it accepts"))
    })
}

fn frame(seed: u8, head: usize, bulk: &[usize]) -> Frame {
    let bytes = |len: usize| Bytes::from_iter((0..len).map(|i| (i % 249) as u8 ^ seed));
    Frame { head: bytes(head), bulk: bulk.iter().map(|&len| bytes(len)).collect() }
}

fn same(got: &Frame, sent: &Frame) -> bool {
    got.head == sent.head && got.bulk.concat() == sent.bulk.concat() && got.bulk.len() <= 1
}

async fn error_of(receiver: &mut Receiver) -> ErrorKind {
    receiver.recv().await.map(|_| ()).expect_err("the connection is gone").kind()
}

#[test]
fn frames_arrive_as_they_were_sent() {
    for (node, net) in nodes() {
        node.block_on(async {
            let (client, mut server) = pair(&net).await;
            let frames = [
                frame(1, 0, &[]),
                frame(2, 100, &[]),
                frame(3, 100, &[1 << 20]),
                frame(4, 0, &[5]),
                frame(5, 70_000, &[4096, 0, 1, 4097]),
                frame(6, 16_384 - 16, &[4 << 20, 1]),
                frame(7, 3, &[300; 1000]),
            ];
            for sent in &frames {
                client.sender.send(sent.clone()).await.expect("it is open");
                let got = server.receiver.recv().await.expect("it is open");
                assert!(same(&got, sent));
                assert!(got.bulk.iter().all(|bulk| bulk.as_ptr().addr().is_multiple_of(crate::buf::ALIGN)));
            }
            server.sender.send(frame(8, 8, &[8])).await.expect("it is open");
            let mut receiver = client.receiver;
            assert!(same(&receiver.recv().await.expect("it is open"), &frame(8, 8, &[8])));
        });
    }
}

#[test]
fn many_senders_do_not_mix() {
    for (node, net) in nodes() {
        let (client, mut server) = node.block_on(pair(&net));
        const EACH: usize = 300;
        std::thread::scope(|scope| {
            for seed in 0..6u8 {
                let sender = client.sender.clone();
                scope.spawn(move || {
                    for i in 0..EACH {
                        let bulk = if i % 5 == 0 { vec![i * 700] } else { vec![] };
                        let mut sent = frame(seed, 200 + i, &bulk);
                        sent.head = Bytes::from([&[seed][..], &sent.head].concat());
                        block_on_plain(sender.send(sent)).expect("it is open");
                    }
                });
            }
            // Received on a plain thread too, without any runtime entered.
            let mut next = [0; 6];
            for _ in 0..6 * EACH {
                let got = block_on_plain(server.receiver.recv()).expect("it is open");
                let seed = got.head[0];
                let i = next[usize::from(seed)];
                let bulk = if i % 5 == 0 { vec![i * 700] } else { vec![] };
                let sent = frame(seed, 200 + i, &bulk);
                assert!(got.head[1..] == sent.head && got.bulk.concat() == sent.bulk.concat());
                next[usize::from(seed)] += 1;
            }
        });
    }
}

#[test]
fn what_a_core_sends_in_a_turn_goes_together() {
    const FRAMES: u8 = 100;
    for (node, net) in nodes() {
        if node.reactors().is_none() {
            continue;
        }
        let (client, mut server) = node.block_on(pair(&net));
        let sender = client.sender.clone();
        let calls = |sender: &crate::net::Sender| match sender {
            crate::net::Sender::Os(sender) => sender.calls(),
            crate::net::Sender::Sim(_) => 0,
        };
        let before = calls(&sender);
        Rt::os(node.clone()).spawn(async move {
            for seed in 0..FRAMES {
                sender.send(frame(seed, 100, &[])).await.expect("it is open");
            }
        });
        node.block_on(async {
            for seed in 0..FRAMES {
                let received = server.receiver.recv().await.expect("it is open");
                assert!(same(&received, &frame(seed, 100, &[])), "in their order");
            }
        });
        let calls = calls(&client.sender) - before;
        assert!((1..=2).contains(&calls), "{calls}");
    }
}

#[test]
fn everything_works_from_foreign_threads() {
    for (_node, net) in nodes() {
        block_on_plain(async {
            let (client, mut server) = pair(&net).await;
            client.sender.send(frame(1, 10, &[2 << 20])).await.expect("it is open");
            assert!(same(&server.receiver.recv().await.expect("it is open"), &frame(1, 10, &[2 << 20])));
        });
    }
}

#[test]
fn a_full_queue_makes_senders_wait() {
    for (node, net) in nodes() {
        node.block_on(async {
            let (client, mut server) = pair(&net).await;
            let rt = Rt::os(node.clone());
            let sender = client.sender.clone();
            let (done, mut count) = crate::sync::channel(1000);
            rt.spawn(async move {
                for _ in 0..100 {
                    sender.send(frame(1, 0, &[1 << 20])).await.expect("it is open");
                    done.send(()).await.expect("the test waits");
                }
            });
            // The peer does not read: some frames fit into queue and socket, never all.
            let mut sent = 0;
            while rt.timeout(Duration::from_millis(300), count.recv()).await.flatten().is_some() {
                sent += 1;
            }
            assert!(sent < 100, "{sent} frames are waiting");
            for _ in 0..100 {
                server.receiver.recv().await.expect("it is open");
            }
            for _ in sent..100 {
                count.recv().await.expect("all are sent in the end");
            }
        });
    }
}

#[test]
fn a_dropped_receive_loses_nothing() {
    for (node, net) in nodes() {
        let (mut stream, mut conn) = raw(&node, &net);
        let rt = Rt::os(node.clone());
        let mut bytes = prefix::Prefix::new(3, 2).expect("it is short").encode().to_vec();
        bytes.extend_from_slice(b"abcde");
        node.block_on(async {
            for byte in bytes {
                let early = rt.timeout(Duration::ZERO, conn.receiver.recv()).await;
                assert!(early.is_none(), "the frame is not whole");
                stream.write_all(&[byte]).expect("it is open");
            }
            let got = conn.receiver.recv().await.expect("it is open");
            assert_eq!((got.head.as_ref(), got.bulk.concat().as_slice()), (&b"abc"[..], &b"de"[..]));
        });
    }
}

#[test]
fn limits_are_enforced() {
    for (node, net) in nodes() {
        node.block_on(async {
            for (head, bulk, good) in [(64, 128, true), (65, 0, false), (0, 129, false)] {
                let (client, mut server) = pair(&net).await;
                server.receiver.set_limit(FrameLimit { head_bytes_max: 64, bulk_bytes_max: 128 });
                client.sender.send(frame(1, head, &[bulk])).await.expect("it is open");
                match server.receiver.recv().await {
                    Ok(_) => assert!(good, "{head} {bulk}"),
                    Err(error) => assert!(!good && error.kind() == ErrorKind::InvalidData, "{error}"),
                }
            }
        });
    }
}

#[test]
fn garbage_ends_the_connection() {
    for (node, net) in nodes() {
        let (mut stream, mut conn) = raw(&node, &net);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").expect("it is open");
        assert_eq!(node.block_on(error_of(&mut conn.receiver)), ErrorKind::InvalidData);
        assert!(node.block_on(conn.receiver.recv()).is_err(), "it stays closed");
        assert!(node.block_on(conn.sender.send(frame(1, 1, &[]))).is_err());
        assert_eq!(stream.read(&mut [0; 10]).expect("the peer sees the end"), 0);
    }
}

#[test]
fn close_ends_both_sides() {
    for (node, net) in nodes() {
        node.block_on(async {
            let (mut client, mut server) = pair(&net).await;
            // What was sent before the close still arrives.
            client.sender.send(frame(1, 1, &[3 << 20])).await.expect("it is open");
            client.sender.close();
            assert!(client.sender.send(frame(1, 1, &[])).await.is_err());
            assert!(client.receiver.recv().await.is_err());
            assert!(same(&server.receiver.recv().await.expect("it was sent"), &frame(1, 1, &[3 << 20])));
            assert_eq!(error_of(&mut server.receiver).await, ErrorKind::UnexpectedEof);
            assert!(server.sender.send(frame(1, 1, &[])).await.is_err(), "the end is known");
        });
    }
}

#[test]
fn close_wakes_a_receiver_that_waits() {
    for (node, net) in nodes() {
        let (client, _server) = node.block_on(pair(&net));
        let mut receiver = client.receiver;
        let mut recv = Box::pin(receiver.recv());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Future::poll(recv.as_mut(), &mut cx).is_pending());
        client.sender.close();
        assert!(node.block_on(recv).is_err());
    }
}

#[test]
fn dropping_all_ends_closes() {
    for (node, net) in nodes() {
        node.block_on(async {
            let (client, mut server) = pair(&net).await;
            let clone = client.sender.clone();
            drop(client.receiver);
            drop(client.sender);
            clone.send(frame(1, 1, &[])).await.expect("a sender is left");
            server.receiver.recv().await.expect("it was sent");
            drop(clone);
            assert_eq!(error_of(&mut server.receiver).await, ErrorKind::UnexpectedEof);
        });
    }
}

#[test]
fn a_peer_that_does_not_read_cannot_hold_a_closed_connection() {
    for (node, net) in nodes() {
        let (mut stream, conn) = raw(&node, &net);
        node.block_on(async {
            for _ in 0..3 {
                conn.sender.send(frame(1, 0, &[5 << 20])).await.expect("there is room");
            }
        });
        drop(conn);
        // Nobody reads, so the end cannot come behind the data: the connection is reset.
        assert!(ended(&stream), "the socket ends");
        let mut rest = Vec::new();
        assert!(stream.read_to_end(&mut rest).is_err() && rest.len() < 15 << 20);
    }
}

/// Whether the other side ends `stream` soon, seen without reading it.
fn ended(stream: &std::net::TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut fds, Some(&patience)).expect("poll works") > 0
}

#[test]
fn nobody_listens() {
    for (node, net) in nodes() {
        node.block_on(async {
            let listener = net.listen(&Addr("127.0.0.1:0".to_owned())).await.expect("it listens");
            let addr = listener.addr();
            drop(listener);
            let error = net.connect(&addr).await.map(|_| ()).expect_err("nobody is there");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(net.connect(&Addr("no address".to_owned())).await.is_err());
        });
    }
}

/// A network of `node` that takes so many bytes of frames at a time.
fn net_with_room(node: &Node, bytes: usize, silence_max: Duration) -> (Net, Arc<Room>) {
    let pace = Pace { silence_max, frame_time_min: Duration::from_millis(200), rate_min: 100 << 20 };
    let room = Arc::new(Room::new(bytes, pace));
    (Net::Os(super::Net::new(node.inner.driver.clone(), room.clone())), room)
}

/// A peer that sends a byte now and then was never silent, and kept its room for ever.
#[test]
fn a_frame_that_only_drips_does_not_keep_its_room() {
    const MIB: usize = 1 << 20;
    for (node, _net) in nodes() {
        let (net, room) = net_with_room(&node, 4 * MIB, Duration::from_secs(60));
        let (mut stream, mut conn) = raw(&node, &net);
        let prefix = super::prefix::Prefix::new(0, 4 * MIB).expect("it is short");
        stream.write_all(&prefix.encode()).expect("it is open");
        let dripping = std::thread::spawn(move || {
            // Until nobody takes it any more.
            while stream.write_all(&[7]).is_ok() {}
        });
        node.block_on(async {
            let dripped = node.inner.driver.handle.spawn(async move { error_of(&mut conn.receiver).await });
            while room.try_take(4 * MIB).is_some() {
                tokio::task::yield_now().await;
            }
            let (client, mut server) = pair(&net).await;
            let sent = frame(1, 10, &[3 * MIB]);
            let (sender, data) = (client.sender.clone(), sent.clone());
            let sending = node.inner.driver.handle.spawn(async move { sender.send(data).await });
            let got = tokio::time::timeout(Duration::from_secs(60), server.receiver.recv()).await;
            assert!(same(&got.expect("it gets room in the end").expect("it is open"), &sent));
            assert_eq!(dripped.await.expect("it ends"), ErrorKind::TimedOut);
            sending.await.expect("it ends").expect("it is open");
        });
        dripping.join().expect("it ends");
    }
}

/// Hundreds of connections announced 4 MiB each and sent no more: all of that memory was taken, for ever.
#[test]
fn half_sent_frames_take_bounded_room_and_not_for_ever() {
    const MIB: usize = 1 << 20;
    for (node, _net) in nodes() {
        // Room for two.
        let (net, _) = net_with_room(&node, 8 * MIB, Duration::from_millis(50));
        let mut halves: Vec<_> = (0..6).map(|_| raw(&node, &net)).collect();
        for (stream, _) in &mut halves {
            let prefix = super::prefix::Prefix::new(0, 4 * MIB).expect("it is short");
            stream.write_all(&prefix.encode()).expect("it is open");
            stream.write_all(&[7; 1000]).expect("it is open");
        }
        node.block_on(async {
            let (client, mut server) = pair(&net).await;
            let mut tasks = tokio::task::JoinSet::new();
            for (stream, mut conn) in halves {
                tasks.spawn(async move {
                    let error = error_of(&mut conn.receiver).await;
                    drop(stream);
                    error
                });
            }
            let sent = frame(1, 10, &[3 * MIB]);
            let (sender, data) = (client.sender.clone(), sent.clone());
            tasks.spawn(async move {
                sender.send(data).await.expect("it is open");
                std::future::pending().await
            });
            let got = server.receiver.recv().await;
            assert!(same(&got.expect("it gets room in the end"), &sent));
            // Those that kept others waiting are gone.
            for _ in 0..2 {
                let ended = tokio::time::timeout(std::time::Duration::from_secs(60), tasks.join_next()).await;
                let ended =
                    ended.expect("somebody waited for room").expect("there are more").expect("it ends");
                assert_eq!(ended, ErrorKind::TimedOut);
            }
        });
    }
}
