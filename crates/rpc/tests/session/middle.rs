//! Somebody on the path between client and server, who sees every frame and may change, repeat, hold back and exchange
//! them: what each attack does to frames that are authenticated, and what it does to plain ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto::wire::header::{FLAG_BULK_CHECKSUM, HEADER_BYTES, crc32c};
use proto::wire::messages::{GetSequence, Read};
use proto::{Fid, ObjectId};
use rpc::{Hub, Key, Keys, Protect, Role};
use rt::net::{Conn, Receiver, Sender};
use rt::os::Node;
use rt::sim::{Options as World, Sim};
use rt::{Addr, Frame, Rt};

use crate::target::{Durable, Options, TARGET, Target, all_keys, client_hub, fsname};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Up,
    Down,
}

/// Frames of the handshake in each direction; what follows is sealed.
const GREETING: usize = 2;

/// What goes on instead of a frame, and where to. Gets the connection's number, the direction and the frame's number in it.
type Bend = Box<dyn FnMut(usize, Way, usize, Frame) -> Vec<(Way, Frame)> + Send>;

struct Middle {
    rt: Rt,
    server: Addr,
    bend: Mutex<Bend>,
    connections: Mutex<usize>,
}

impl Middle {
    async fn start(rt: Rt, at: &str, server: Addr, bend: Bend) -> (Arc<Middle>, Addr) {
        let mut listener = rt.net().listen(&Addr(at.into())).await.expect("a port is free");
        let addr = listener.addr();
        let middle =
            Arc::new(Middle { rt: rt.clone(), server, bend: Mutex::new(bend), connections: Mutex::new(0) });
        let here = middle.clone();
        rt.spawn(async move {
            while let Ok(client) = listener.accept().await {
                let Ok(server) = here.rt.net().connect(&here.server).await else { continue };
                let number = *here.connections.lock();
                *here.connections.lock() += 1;
                here.clone().join(number, client, server);
            }
        });
        (middle, addr)
    }

    fn join(self: Arc<Self>, number: usize, client: Conn, server: Conn) {
        let senders = BTreeMap::from([(Way::Up, server.sender), (Way::Down, client.sender)]);
        let (up, down) = (self.clone(), self.clone());
        let (to_up, to_down) = (senders.clone(), senders);
        self.rt.spawn(async move { up.pass(number, Way::Up, client.receiver, to_up).await });
        self.rt.spawn(async move { down.pass(number, Way::Down, server.receiver, to_down).await });
    }

    async fn pass(&self, number: usize, way: Way, mut from: Receiver, to: BTreeMap<Way, Sender>) {
        for frame in 0.. {
            let Ok(message) = from.recv().await else { break };
            let bent = (self.bend.lock())(number, way, frame, message);
            for (way, message) in bent {
                let _ = to[&way].send(message).await;
            }
        }
        to.values().for_each(Sender::close);
    }
}

/// Protection that both sides give up for this machine.
fn plain() -> Protect {
    "mac+127.0.0.1=none+server=none+middle=none+client=none".parse().expect("it says how")
}

/// What the client wants of its connections.
struct Wish {
    protect: Protect,
    checksums: bool,
}

struct Seen {
    sequences: Vec<u64>,
    data: Vec<u8>,
    connections: usize,
}

/// A client draws three numbers at once and reads, through somebody who bends frames.
async fn through([server, middle, client]: [Rt; 3], ats: [&str; 2], wish: Wish, bend: Bend) -> Seen {
    let Wish { protect, checksums } = wish;
    let disk = Arc::new(Mutex::new(Durable::default()));
    let hub = Hub::new(server.clone(), fsname(), all_keys());
    hub.set_protect(protect.clone());
    hub.serve(TARGET, Target::start(&server, &disk, Options::default()));
    let at = hub.listen(&Addr(ats[0].into())).await.expect("a port is free");
    let (middle, at) = Middle::start(middle, ats[1], at, bend).await;
    let client = client_hub(client);
    client.set_protect(protect);
    let nid = format!("{at}@tcp").parse().expect("an address makes a NID");
    let import = client.import(TARGET, client.new_client(), Role::Client, vec![nid]);
    import.set_checksums(checksums);
    let (drawn, mut draws) = rt::sync::channel(3);
    for _ in 0..3 {
        let (import, drawn) = (import.clone(), drawn.clone());
        client.rt().spawn(async move {
            let answered = import.call(GetSequence {}).await.expect("the target answers");
            drawn.send(answered.reply.seq).await.expect("the test waits");
        });
    }
    let mut sequences = Vec::new();
    for _ in 0..3 {
        sequences.push(draws.recv().await.expect("every task ends"));
    }
    sequences.sort_unstable();
    let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
    let read = import.call(Read { object, offset: 0, len: 3, locked: false }).await;
    let data = read.expect("the target answers").bulk.concat();
    let connections = *middle.connections.lock();
    client.close().await;
    hub.close().await;
    Seen { sequences, data, connections }
}

fn on_this_machine(protect: Protect, bend: Bend) -> Seen {
    wished_on_this_machine(Wish { protect, checksums: true }, bend)
}

fn wished_on_this_machine(wish: Wish, bend: Bend) -> Seen {
    let node = Node::start(2).expect("a runtime starts");
    let rt = || Rt::os(node.clone());
    let seen = node.block_on(through([rt(), rt(), rt()], ["127.0.0.1:0"; 2], wish, bend));
    node.stop(Duration::from_secs(1));
    seen
}

fn simulated(protect: Protect, bend: Bend) -> Seen {
    let sim = Sim::new(World::seed(1));
    let hosts = ["server", "middle", "client"].map(|host| sim.rt(host));
    sim.run(through(hosts, ["server:988", "middle:988"], Wish { protect, checksums: true }, bend))
}

/// Writes `data` over the bulk, as somebody does who knows the format: the checksums fit.
fn forge(frame: &Frame, data: &'static [u8]) -> Frame {
    let mut head = BytesMut::from(&frame.head[..]);
    let flags = u16::from_le_bytes([head[10], head[11]]);
    if flags & FLAG_BULK_CHECKSUM != 0 {
        head[116..120].copy_from_slice(&crc32c(data).to_le_bytes());
    }
    let crc = crc32c(&head[..HEADER_BYTES - 4]);
    head[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    Frame { head: head.freeze(), bulk: vec![Bytes::from_static(data)] }
}

/// Exchanges the data of the first answer that has some.
fn forger() -> Bend {
    let mut left = 1;
    Box::new(move |_, way, _, frame| {
        let data: usize = frame.bulk.iter().map(Bytes::len).sum();
        if way == Way::Down && data > 0 && left > 0 {
            left -= 1;
            return vec![(way, forge(&frame, b"\x09\x09\x09"))];
        }
        vec![(way, frame)]
    })
}

#[test]
fn data_that_was_exchanged_with_its_checksum_is_noticed() {
    for run in [on_this_machine, simulated] {
        let seen = run(plain(), forger());
        assert_eq!(
            (&seen.data[..], seen.connections),
            (&[9, 9, 9][..], 1),
            "a checksum keeps nobody from it"
        );
        let seen = run(Protect::default(), forger());
        assert_eq!(
            (&seen.data[..], seen.connections),
            (&[7, 7, 7][..], 2),
            "the connection ended, and another followed"
        );
        let crc: Protect = "mac-crc".parse().expect("it says how");
        let seen = run(crc, forger());
        assert_eq!(
            (&seen.data[..], seen.connections),
            (&[7, 7, 7][..], 2),
            "the checksum stands in a head that is sealed"
        );
        let seen = run("encrypt".parse().expect("it says how"), forger());
        assert_eq!((&seen.data[..], seen.connections), (&[7, 7, 7][..], 2));
    }
}

/// A bit flips in the data of the first answer that has some. It is noticed where data has a checksum, and is not where the client wants
/// none and nothing else covers it.
#[test]
fn a_bit_that_flips_is_noticed_by_the_checksum() {
    let flips = || -> Bend {
        let mut left = 1;
        Box::new(move |_, way, _, mut frame| {
            if way == Way::Down && left > 0 && !frame.bulk.is_empty() {
                left -= 1;
                let mut data = frame.bulk.concat();
                data[1] ^= 0x40;
                frame.bulk = vec![data.into()];
            }
            vec![(way, frame)]
        })
    };
    let crc = || -> Protect { "mac-crc".parse().expect("it says how") };
    for (protect, checksums, seen) in [
        (crc(), true, (vec![7, 7, 7], 2)),
        (crc(), false, (vec![7, 7 ^ 0x40, 7], 1)),
        (plain(), false, (vec![7, 7 ^ 0x40, 7], 1)),
        (Protect::default(), false, (vec![7, 7, 7], 2)),
    ] {
        let Seen { data, connections, .. } = wished_on_this_machine(Wish { protect, checksums }, flips());
        assert_eq!((data, connections), seen, "checksums: {checksums}");
    }
}

/// Does something to the frames of the first connection from the `GREETING`th on; the ones after it are left alone.
fn once(mut attack: impl FnMut(Way, usize, Frame) -> Vec<(Way, Frame)> + Send + 'static) -> Bend {
    Box::new(move |connection, way, number, frame| {
        if connection == 0 && number >= GREETING {
            return attack(way, number - GREETING, frame);
        }
        vec![(way, frame)]
    })
}

#[test]
fn whoever_meddles_with_frames_gets_the_connection_ended_and_nothing_else() {
    type Attack = fn() -> Bend;
    let attacks: [(&str, Attack); 5] = [
        ("flips a bit of a request", || {
            once(|way, number, mut frame| {
                if (way, number) == (Way::Up, 1) {
                    let mut head = BytesMut::from(&frame.head[..]);
                    head[16] ^= 1;
                    let crc = crc32c(&head[..HEADER_BYTES - 4]);
                    head[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
                    frame.head = head.freeze();
                }
                vec![(way, frame)]
            })
        }),
        ("repeats a request", || {
            once(|way, number, frame| match (way, number) {
                (Way::Up, 1) => vec![(way, frame.clone()), (way, frame)],
                _ => vec![(way, frame)],
            })
        }),
        ("sends a request back", || {
            once(|way, number, frame| match (way, number) {
                (Way::Up, 1) => vec![(Way::Down, frame)],
                _ => vec![(way, frame)],
            })
        }),
        ("takes an answer away, and lets the next pass", || {
            once(|way, number, frame| match (way, number) {
                (Way::Down, 1) => Vec::new(),
                _ => vec![(way, frame)],
            })
        }),
        ("exchanges two requests", || {
            let mut held: Option<Frame> = None;
            once(move |way, number, frame| match (way, number) {
                (Way::Up, 1) => {
                    held = Some(frame);
                    Vec::new()
                }
                (Way::Up, 2) => {
                    let mut both = vec![(way, frame)];
                    both.extend(held.take().map(|held| (way, held)));
                    both
                }
                _ => vec![(way, frame)],
            })
        }),
    ];
    for (attack, bend) in attacks {
        let seen = on_this_machine(Protect::default(), bend());
        assert_eq!((&seen.sequences[..], &seen.data[..]), (&[1, 2, 3][..], &[7, 7, 7][..]), "{attack}");
        assert_eq!(seen.connections, 2, "{attack}: the connection ended, and another followed");
    }
    let seen = on_this_machine(Protect::default(), Box::new(|_, way, _, frame| vec![(way, frame)]));
    assert_eq!(seen.connections, 1, "who only passes frames on is not noticed");
}

#[test]
fn a_handshake_that_is_refused_on_the_way_is_tried_again() {
    // The key was accepted: what says later that it is not comes from a damaged bit, or from whoever bends frames.
    for run in [on_this_machine, simulated] {
        let bend = |_: &()| -> Bend {
            Box::new(|connection, way, number, mut frame| {
                let mut head = BytesMut::from(&frame.head[..]);
                match (connection, way, number) {
                    // An answer, so that the first connection ends.
                    (0, Way::Down, 3) => head[16] ^= 1,
                    // A bit of the nonce of the Hello.
                    (1, Way::Up, 0) => head[40] ^= 1,
                    // The Proof.
                    (2, Way::Up, 1) => head[20] ^= 1,
                    // A Refusal for the HelloReply: the key is not accepted.
                    (3, Way::Down, 0) => {
                        head = BytesMut::from(&b"WFHS\x05\x03\x01\x00\x01\x00\0\0\0\0\0\0"[..]);
                    }
                    _ => {}
                }
                frame.head = head.freeze();
                vec![(way, frame)]
            })
        };
        let seen = run(Protect::default(), bend(&()));
        assert_eq!((&seen.sequences[..], &seen.data[..]), (&[1, 2, 3][..], &[7, 7, 7][..]));
        assert_eq!(seen.connections, 5, "each was refused, and another followed");
    }
}

#[test]
fn frames_of_one_connection_mean_nothing_on_another() {
    // The first connection is cut when a number was drawn; the request for it goes into the second once more.
    let mut kept = None;
    let bend: Bend = Box::new(move |connection, way, number, frame| match (connection, way, number) {
        (0, Way::Up, 3) => {
            kept = Some(frame);
            // Nonsense instead of it: the server ends the connection.
            vec![(way, Frame { head: Bytes::from_static(b"nonsense"), bulk: Vec::new() })]
        }
        (1, Way::Up, GREETING) => kept.take().into_iter().chain([frame]).map(|frame| (way, frame)).collect(),
        _ => vec![(way, frame)],
    });
    let seen = on_this_machine(Protect::default(), bend);
    assert_eq!((&seen.sequences[..], &seen.data[..]), (&[1, 2, 3][..], &[7, 7, 7][..]));
    assert_eq!(seen.connections, 3, "the second ended with the frame of the first");
}

#[test]
fn what_is_encrypted_is_not_seen_on_the_way() {
    let (watched, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let run = |text: &str| {
        let (watched, seen) = (watched.clone(), seen.clone());
        watched.lock().clear();
        *seen.lock() = 0;
        on_this_machine(
            text.parse().expect("it says how"),
            Box::new(move |_, way, number, frame| {
                if number >= GREETING {
                    *seen.lock() += usize::from(frame.head.starts_with(b"WEFT"));
                    watched.lock().extend(frame.bulk.concat());
                }
                vec![(way, frame)]
            }),
        )
    };
    assert_eq!(run("mac").data, [7, 7, 7]);
    assert!(*seen.lock() > 0 && watched.lock()[..] == [7, 7, 7]);
    assert_eq!(run("encrypt").data, [7, 7, 7]);
    assert_eq!(*seen.lock(), 0);
    assert!(watched.lock().len() == 3 && watched.lock()[..] != [7, 7, 7]);
}

#[test]
fn the_side_that_demands_more_decides() {
    let run = |server: &str, client: &str| {
        let node = Node::start(2).expect("a runtime starts");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let watched = heads.clone();
        node.block_on(async {
            let rt = Rt::os(node.clone());
            let hub = Hub::new(rt.clone(), fsname(), all_keys());
            hub.set_protect(server.parse().expect("it says how"));
            let disk = Arc::new(Mutex::new(Durable::default()));
            hub.serve(TARGET, Target::start(&rt, &disk, Options::default()));
            let at = hub.listen(&Addr("127.0.0.1:0".into())).await.expect("a port is free");
            let bend: Bend = Box::new(move |_, way, number, frame| {
                if number >= GREETING {
                    watched.lock().push(frame.head.clone());
                }
                vec![(way, frame)]
            });
            let (_middle, at) = Middle::start(rt.clone(), "127.0.0.1:0", at, bend).await;
            let keys = Keys { server: None, client: Some(Key([2; 32])) };
            let hub_there = Hub::new(rt.clone(), fsname(), keys);
            hub_there.set_protect(client.parse().expect("it says how"));
            let nid = format!("{at}@tcp").parse().expect("an address makes a NID");
            let import = hub_there.import(TARGET, hub_there.new_client(), Role::Client, vec![nid]);
            import.call(GetSequence {}).await.expect("the target answers");
            hub_there.close().await;
            hub.close().await;
        });
        node.stop(Duration::from_secs(1));
        let heads = heads.lock();
        let body = |head: &Bytes| u32::from_le_bytes([head[104], head[105], head[106], head[107]]) as usize;
        let first = heads.first().expect("something was sent");
        match first.starts_with(b"WEFT") {
            true => first.len() - HEADER_BYTES - body(first),
            false => usize::MAX,
        }
    };
    let none = "mac+127.0.0.1=none";
    assert_eq!(run(none, none), 0, "both name the address: nothing protects the frame");
    assert_eq!(run("mac", none), 24);
    assert_eq!(run(none, "mac"), 24);
    assert_eq!(run(none, "encrypt"), usize::MAX);
}
