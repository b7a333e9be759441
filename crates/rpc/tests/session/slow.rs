//! Targets that take long: clients wait, and do not make it worse (docs/recovery.md#slow).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::GetSequence;
use rpc::limits;
use rt::sim::{Options as World, Sim};

use crate::callback::disk;
use crate::target::{Options, Server, client_hub, import};

const WORK: Duration = Duration::from_secs(40);
const MIB: usize = 1 << 20;

fn slow() -> Options {
    Options { work: WORK, ..Options::default() }
}

fn bulk() -> Vec<Bytes> {
    vec![Bytes::from(vec![7; MIB])]
}

/// Lustre's replay-single 65: an operation that takes 40 s costs no reconnect, and the client hears that it is under way. Its data is
/// not sent a second time.
#[test]
fn an_operation_that_takes_long_is_asked_about() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), slow()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let start = sim.now();
        import.call_bulk(GetSequence {}, bulk()).await.expect("the target answers");
        assert!(sim.now() - start < WORK + Duration::from_secs(1));
        let (client, seen) = (sim.node_stats("client"), server.target.seen.lock().clone());
        assert_eq!(
            (client.connects, seen.connects, seen.calls),
            (1, 1, 2),
            "a Connect and the request, once"
        );
        let questions = client.frames_sent - 4;
        assert!((1..=3).contains(&questions), "{questions} questions in 40 s");
        assert_eq!(sim.node_stats("server").frames_sent, 4 + questions, "each was answered at once");
        assert!(client.bytes_sent < 2 * MIB as u64, "{} bytes", client.bytes_sent);
    });
}

/// The second one is expected to take as long.
#[test]
fn patience_grows_with_what_answers_took() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let _server = Server::start(sim.rt("server"), &disk(), slow()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(import.state().answers.current.as_secs(), WORK.as_secs());
        let before = sim.node_stats("client").frames_sent;
        import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(sim.node_stats("client").frames_sent - before, 1, "nobody wondered");
        // Ten minutes later nothing is known any more.
        sim.root().sleep(Duration::from_secs(900)).await;
        assert_eq!(import.state().answers.current, Duration::ZERO);
        assert_eq!(import.state().answers.worst.as_secs(), WORK.as_secs());
    });
}

/// So much is under way that the server reads nothing more, and so no question either: it says by itself that it lives.
#[test]
fn a_connection_that_is_not_read_is_not_given_up() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), slow()).await;
        let hub = client_hub(sim.rt("client"));
        let count = (limits::RUNNING_BYTES_MAX + limits::PARKED_BYTES_MAX) / MIB + 20;
        let (back, data) = (Arc::new(Mutex::new(0)), Bytes::from(vec![7; MIB]));
        for n in 0..count {
            let (import, back, data) = (import(&hub, 1 + n as u128 % 40), back.clone(), data.clone());
            hub.rt().spawn(async move {
                import.call_bulk(GetSequence {}, vec![data]).await.expect("the target answers");
                *back.lock() += 1;
            });
        }
        while *back.lock() < count {
            sim.root().sleep(Duration::from_secs(1)).await;
        }
        assert_eq!((sim.node_stats("client").connects, server.target.seen.lock().connects), (1, 40));
        let sent = sim.node_stats("client").bytes_sent;
        assert!(sent < ((count + 2) * MIB) as u64, "{sent} bytes for {count} MiB");
    });
}
