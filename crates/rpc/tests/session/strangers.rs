//! People at the door who hold no key: what they can keep from those who do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::GetSequence;
use rpc::limits::{HANDSHAKE_TIME_MAX, STRANGERS_MAX, STRANGERS_OF_ADDRESS_MAX};
use rt::sim::{Options as World, Sim};
use rt::{Addr, Conn, Frame, Rt};

use crate::target::{Durable, Options, Server, client_hub, import};

fn addr() -> Addr {
    Addr("server:988".into())
}

#[test]
fn half_open_connections_keep_no_client_out() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let _server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let stranger = sim.rt("stranger");
        let mut held: Vec<Conn> = Vec::new();
        for round in 0..40 {
            // More whenever some were sent away, for three times as long as a stranger is borne.
            for _ in 0..300 {
                held.push(stranger.net().connect(&addr()).await.expect("somebody listens"));
            }
            held.drain(..held.len() - 300);
            let hub = client_hub(sim.rt(&format!("client{round}")));
            let start = sim.root().now();
            import(&hub, round + 1).call(GetSequence {}).await.expect("the target answers");
            let took = sim.root().now() - start;
            assert!(took < Duration::from_millis(200), "the client of round {round} waited for {took:?}");
            assert_eq!(sim.node_stats(&format!("client{round}")).connects, 1, "and came in at once");
            hub.close().await;
            sim.root().sleep(Duration::from_millis(400)).await;
        }
    });
}

/// Connections from `from` that say nothing.
async fn crowd(from: &Rt, count: usize) -> Vec<Conn> {
    let mut conns = Vec::with_capacity(count);
    for _ in 0..count {
        conns.push(from.net().connect(&addr()).await.expect("somebody listens"));
    }
    conns
}

/// How many of `conns` the server has not hung up on.
async fn held(rt: &Rt, conns: &mut [Conn]) -> usize {
    let mut held = 0;
    for conn in conns {
        held += usize::from(rt.timeout(Duration::ZERO, conn.receiver.recv()).await.is_none());
    }
    held
}

/// A peer that may take its time keeps its place at the door while one address fills it again and again; with nothing but a limit in
/// all, each stranger more would take the place of who has waited longest.
#[test]
fn a_crowd_from_one_address_sends_nobody_else_away() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let _server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let (slow, stranger) = (sim.rt("slow"), sim.rt("stranger"));
        let start = sim.root().now();
        let mut waiting = crowd(&slow, 1).await;
        let mut strangers = crowd(&stranger, 2 * STRANGERS_MAX).await;
        sim.root().sleep(Duration::from_millis(100)).await;
        assert!(sim.root().now() - start < HANDSHAKE_TIME_MAX, "nobody has stood there too long");
        assert_eq!(held(&slow, &mut waiting).await, 1, "who came first, from elsewhere");
        assert_eq!(held(&stranger, &mut strangers).await, STRANGERS_OF_ADDRESS_MAX);
        assert_eq!(held(&stranger, &mut strangers[..2 * STRANGERS_MAX - STRANGERS_OF_ADDRESS_MAX]).await, 0);
    });
}

/// What all addresses together hold at the door has an end, and it does not keep out who comes then.
#[test]
fn a_crowd_from_many_addresses_has_an_end_and_keeps_no_client_out() {
    const ADDRESSES: usize = 128;
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let _server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let start = sim.root().now();
        let each = STRANGERS_OF_ADDRESS_MAX / 2;
        let mut strangers = Vec::new();
        for n in 0..ADDRESSES {
            strangers.extend(crowd(&sim.rt(&format!("stranger{n}")), each).await);
        }
        let hub = client_hub(sim.rt("client"));
        import(&hub, 1).call(GetSequence {}).await.expect("the target answers");
        assert_eq!(sim.node_stats("client").connects, 1, "it came in at once");
        sim.root().sleep(Duration::from_millis(100)).await;
        assert!(sim.root().now() - start < HANDSHAKE_TIME_MAX, "nobody has stood there too long");
        // The client had a place, too, and has left it.
        assert_eq!(held(&sim.root(), &mut strangers).await, STRANGERS_MAX - 1, "of {}", ADDRESSES * each);
        let oldest = ADDRESSES * each - STRANGERS_MAX;
        assert_eq!(held(&sim.root(), &mut strangers[..oldest]).await, 0, "those who waited longest went");
        hub.close().await;
    });
}

#[test]
fn a_word_without_the_key_behind_it_is_refused_and_forgotten() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let _server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let stranger = sim.rt("stranger");
        let mut hello = vec![0; proto::auth::HELLO_BYTES];
        hello[..4].copy_from_slice(&proto::auth::AUTH_MAGIC);
        let version = proto::wire::header::VERSION as u8;
        (hello[4], hello[5], hello[6], hello[8], hello[10]) = (1, 2, version, version, 3);
        hello[16..20].copy_from_slice(b"weft");
        let mut conn = stranger.net().connect(&addr()).await.expect("somebody listens");
        let frame = Frame { head: Bytes::from(hello), bulk: Vec::new() };
        conn.sender.send(frame).await.expect("it is open");
        let refusal = conn.receiver.recv().await.expect("it is told why");
        assert_eq!((refusal.head[4], refusal.head[5]), (5, 3), "a refusal: the key is not accepted");
        assert!(conn.receiver.recv().await.is_err(), "and the server hangs up");
    });
}
