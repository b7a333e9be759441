//! The steps of a write, in the order in which machine and disk see them: request and data arrive, the data is written, it is
//! synced, the record of the commit is written, it is synced; and the answer, before or after the commit.

use bytes::Bytes;
use proto::FileOwner;
use proto::wire::messages as msg;
use rt::sim::{Options, Sim};
use service::Watch;

use super::fake::{Fake, SERVER, Server};
use super::{at, id};

const BYTES: usize = 1 << 20;

/// What the server's machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Arrives,
    Data,
    Sync,
    Record,
    Answer,
}

/// The step that a line of the trace tells of: time, node, kind, and a digest (of a write its offset and, from bit 40 on, its length).
fn step(line: &str) -> Option<Step> {
    let mut words = line.split(' ').skip(1);
    let (node, kind, digest) = (words.next()?, words.next()?, words.next()?);
    let digest = u64::from_str_radix(digest.strip_prefix("0x")?, 16).expect("a number");
    Some(match kind {
        _ if node != SERVER => return None,
        "Deliver" => Step::Arrives,
        "Send" => Step::Answer,
        "Sync" => Step::Sync,
        "Write" if digest >> 40 >= BYTES as u64 => Step::Data,
        "Write" => Step::Record,
        _ => return None,
    })
}

/// The steps of one write and its commit.
fn steps(sync: bool, sync_journal: bool) -> Vec<Step> {
    let sim = Sim::new(Options { trace: true, ..Options::seed(1) });
    sim.run(async {
        let server = Server::make(&sim).await;
        let value = if sync_journal { "1" } else { "0" };
        Watch::set_parameter(&*server.target, "*.sync_journal", value).expect("a value that there is");
        let client = Fake::new(&sim, "client", 100, id(1));
        let write = |offset| {
            let write = msg::Write {
                object: id(1),
                offset,
                time: at(1),
                locked: false,
                sync,
                owner: FileOwner::default(),
            };
            client.import.call_bulk(write, vec![Bytes::from(vec![7; BYTES])])
        };
        // Session and space are there from now on.
        let first = write(0).await.expect("it is written");
        client.import.committed(first.transno).await.expect("it becomes durable");
        let before = sim.handle().trace().len();
        let written = write(BYTES as u64).await.expect("it is written");
        assert!(written.transno > first.transno && written.reply.size == 2 * BYTES as u64);
        while server.target.handler().store.last_committed() < written.transno {
            client.rt().sleep(std::time::Duration::from_millis(10)).await;
        }
        let trace = sim.handle().trace();
        let steps = trace.iter().skip(before).filter_map(|line| step(line)).collect();
        server.close().await;
        steps
    })
}

#[test]
fn a_write_takes_its_steps_in_order() {
    use Step::*;
    let committed_later = [Arrives, Data, Answer, Sync, Record, Sync];
    let committed_first = [Arrives, Data, Sync, Record, Sync, Answer];
    assert_eq!(steps(false, false), committed_later);
    assert_eq!(steps(true, false), committed_first, "the write asks for it");
    assert_eq!(steps(false, true), committed_first, "the target does it always");
}
