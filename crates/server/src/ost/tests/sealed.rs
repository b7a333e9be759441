//! Sealed layouts.

use std::sync::Arc;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{Code, TargetId};
use rpc::{Callbacks, Import, Restate, Role};
use rt::BoxFuture;

use super::{World, at, check, id, read, refused, write};

/// A client that can be called back, and never is.
struct Quiet;

impl Callbacks for Quiet {
    fn called(self: Arc<Self>, _: TargetId, _: Request) -> BoxFuture<'static, Result<Reply, Code>> {
        Box::pin(async { Err(Code::NotSupported) })
    }

    fn session_lost(&self, _: TargetId) {}

    fn changes_lost(&self, _: TargetId) {}

    fn restarted(self: Arc<Self>, _: TargetId, _: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    fn disconnected(&self, _: TargetId) {}

    fn reconnected(&self, _: TargetId) {}
}

/// A session, and what has to be kept as long as it is used.
fn client(world: &World, number: u128) -> (Arc<Import>, Arc<Quiet>) {
    let (import, quiet) = (world.import(number, Role::Client), Arc::new(Quiet));
    import.set_callbacks(quiet.clone());
    (import, quiet)
}

fn seal(generation: u32, sealed: bool) -> msg::SealLayout {
    msg::SealLayout { layout: id(1).layout, stripes: vec![id(1).stripe], generation, sealed }
}

async fn enqueue(client: &Import, write: bool) -> Result<msg::Token, rpc::RpcError> {
    let asked = msg::Enqueue { object: id(1), write, start: 0, end: u64::MAX, restate: false };
    client.call(asked).await.map(|answered| answered.reply)
}

#[test]
fn what_is_sealed_is_of_use_to_nobody() {
    check(async |_rt, world| {
        let (mover, _quiet) = client(&world, 100);
        let x = || vec![Bytes::from_static(b"x")];
        mover.call_bulk(write(1, 0, 1), x()).await.expect("it is written");
        assert_eq!(refused(mover.call(seal(0, true)).await), Code::Busy, "it holds nothing");
        enqueue(&mover, false).await.expect("nobody else has it");
        assert_eq!(refused(mover.call(seal(0, true)).await), Code::Busy, "others may read what it reads");
        enqueue(&mover, true).await.expect("nobody else has it");
        mover.call(seal(0, true)).await.expect("it holds all");
        assert_eq!(refused(mover.call(read(1, 0, 1)).await), Code::Sealed);
        assert_eq!(refused(mover.call_bulk(write(1, 0, 1), x()).await), Code::Sealed);
        assert_eq!(refused(mover.call(msg::GetObjectAttr { object: id(1) }).await), Code::Sealed);
        assert_eq!(
            refused(mover.call(msg::SeekObject { object: id(1), offset: 0, hole: true }).await),
            Code::Sealed
        );
        let punch = msg::Punch { object: id(1), start: 0, end: 1, time: at(1) };
        assert_eq!(refused(mover.call(punch).await), Code::Sealed);
        mover.call(read(2, 0, 1)).await.expect("another layout is not sealed");
        mover.disconnect().await;
        let (other, _also_quiet) = client(&world, 101);
        assert_eq!(
            refused(enqueue(&other, false).await),
            Code::Sealed,
            "it is sealed without its author, too"
        );
        assert_eq!(
            refused(other.call_bulk(msg::Write { locked: true, ..write(1, 0, 1) }, x()).await),
            Code::Sealed
        );
        assert_eq!(refused(other.call(seal(0, false)).await), Code::Busy);
        other.call(seal(1, false)).await.expect("the generation is greater");
        assert_eq!(other.call(read(1, 0, 9)).await.expect("it is of use again").bulk.concat(), b"x");
        enqueue(&other, true).await.expect("what was refused is held by nobody");
        world.stop().await;
    });
}

#[test]
fn who_waits_for_what_is_destroyed_is_told() {
    check(async |_rt, world| {
        let (client, _quiet) = client(&world, 100);
        let server = world.import(200, Role::Server);
        client.call_bulk(write(1, 0, 1), vec![Bytes::from_static(b"x")]).await.expect("it is written");
        server.call(msg::Destroy { objects: vec![id(1)], dead: vec![] }).await.expect("a server may");
        assert_eq!(refused(enqueue(&client, true).await), Code::Gone);
        world.stop().await;
    });
}
