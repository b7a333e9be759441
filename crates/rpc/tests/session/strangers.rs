//! People at the door who hold no key: what they can keep from those who do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::GetSequence;
use rt::sim::{Options as World, Sim};
use rt::{Addr, Conn, Frame};

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
