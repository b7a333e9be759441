//! What replays leave of the numbers that clients were told (`docs/recovery.md#renumbered`).

use proto::wire::messages as msg;
use proto::{ClientId, Code, Fid, Transno};

use crate::mdt::testing::World;

/// The client was told them, and takes what comes up to them for durable once it has asked for that.
#[test]
fn a_replay_that_changes_nothing_takes_its_number() {
    let world = World::new();
    let client = world.client(1);
    let file = client.file(Fid::ROOT, "f");
    let exists = client.create_request(Fid::ROOT, "f", 0o100_644);
    world.sync();
    let (boot, newest) = (world.store.boot(), world.store.last_transno());
    let world = world.crash();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    // Nobody has it open any more.
    let close = msg::Close { fid: file, handle: 77, atime: None, size: None, wrote: false };
    let (closed, refused) = (Transno(newest.0 + 5), Transno(newest.0 + 9));
    let replayed = client.replay(100, closed, close);
    assert_eq!((replayed.result.is_ok(), replayed.transno), (true, closed));
    assert!(client.replay(101, refused, exists).result.is_err(), "there is such a name");
    assert!(world.store.last_transno() >= refused);
}

/// A target that took the last number there is could never be opened again.
#[test]
fn a_number_that_nobody_can_have_been_told_is_refused() {
    let world = World::new();
    let client = world.client(1);
    let create = client.create_request(Fid::ROOT, "f", 0o100_644);
    let newest = world.store.last_transno();
    for (xid, wanted) in [(100, u64::MAX), (101, u64::MAX - 1), (102, newest.0 + (1 << 33))] {
        let refused = client.replay(xid, Transno(wanted), create.clone());
        assert_eq!(refused.result.err(), Some(Code::Malformed));
    }
    assert_eq!(world.store.last_transno(), newest);
    client.file(Fid::ROOT, "f");
}
