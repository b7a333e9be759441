//! Two clients change one file at the same time.

use std::sync::Arc;
use std::time::Duration;

use client::posix::{AccessTimes, Posix, WriteRequest};
use client::{Allocation, Client, Handle, Limits};
use proto::wire::messages::{Enqueue, SealLayout};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Fid, Layout, Nid, TargetId};
use rpc::{Callbacks, Restate, Role};
use rt::BoxFuture;
use rt::wait::join_all;

use crate::world::{MIB, World, create, join, read_write, root};

/// A client on a machine of its own.
async fn elsewhere(world: &World, machine: &str) -> Arc<Client> {
    Client::mount(&world.machine(machine), world.mgs(), Limits::default()).await.expect("everything is there")
}

async fn reserve(client: &Client, handle: Handle, start: u64, len: u64) {
    let what = Allocation::Reserve { keep_size: false };
    client.files().allocate(handle, start, len, what).await.expect("there is room");
}

/// Each made the file as long as it wanted it, and cut off what the other had written behind that.
#[test]
fn who_reserves_space_leaves_what_others_wrote_behind() {
    let world = World::remote(1, 2);
    let rt = world.hub.rt();
    world.run(async {
        let clients = [elsewhere(&world, "one").await, elsewhere(&world, "two").await];
        for round in 0..20 {
            let name = format!("f{round}");
            let (attr, handle) = create(&clients[0], name.as_bytes()).await;
            let other = clients[1].files().open(&root(), attr.fid, read_write()).await.expect("it is there");
            let (front, back) = (&clients[0], &clients[1]);
            let in_front: BoxFuture<'_, ()> = Box::pin(reserve(front, handle, 0, MIB));
            let behind: BoxFuture<'_, ()> = Box::pin(async move {
                rt.sleep(Duration::from_micros(50 * round)).await;
                reserve(back, other, MIB, MIB).await;
                back.files().write(other, MIB, &[7; 4096]).await.expect("there is room");
                back.files().fsync(other).await.expect("the OSTs are there");
            });
            join_all([in_front, behind]).await;
            let read = front.files().read(handle, MIB, 4096).await.expect("it is there");
            assert!(join(&read) == [7; 4096], "what was written behind is gone in round {round}");
            let size = back.names().getattr(attr.fid).await.expect("it is there").size;
            assert_eq!(size, 2 * MIB, "round {round}");
            front.files().release(handle).await;
            back.files().release(other).await;
        }
    });
}

/// A client wants a range of which another one has written, while that goes on writing beside it, in the same chunk.
#[test]
fn a_range_comes_while_its_holder_writes_beside_it() {
    let world = World::remote(2, 1);
    world.run(async {
        let (holder, other) = (elsewhere(&world, "one").await, elsewhere(&world, "two").await);
        let (attr, handle) = create(&holder, b"f").await;
        holder.files().write(handle, 0, &[1; 100]).await.expect("there is room");
        holder.files().write(handle, 512 << 10, &[1; 100]).await.expect("there is room");
        let reading = other.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        let rt = world.hub.rt();
        let writing = async {
            loop {
                holder.files().write(handle, 512 << 10, &[2; 100]).await.expect("there is room");
                rt.sleep(Duration::from_micros(10)).await;
            }
        };
        let begin = rt.now();
        let read = rt::wait::race(Box::pin(other.files().read(reading, 0, 100)), Box::pin(writing));
        let read = rt.timeout(Duration::from_secs(1), read).await;
        assert!(read.is_some(), "the other one waits for ever");
        assert!(rt.now() - begin < Duration::from_millis(100));
    });
}

/// O_APPEND is set on an open file with F_SETFL: this client does not know where the file ends.
#[test]
fn a_flag_that_is_set_later_appends_too() {
    let world = World::real(3, 1);
    let (one, two) = (world.mount(), world.mount());
    let (one, two) = (Posix::new(one, AccessTimes::default()), Posix::new(two, AccessTimes::default()));
    world.run(async {
        let (told, handle) = one
            .create(&root(), Fid::ROOT, b"f", 0o644, libc::O_CREAT | libc::O_RDWR)
            .await
            .expect("a new file");
        let fid = told.fid;
        drop(told);
        let other = two.open(&root(), fid, libc::O_RDWR).await.expect("it is there");
        let append = |handle| WriteRequest {
            fid,
            handle,
            offset: 0,
            flags: libc::O_WRONLY | libc::O_APPEND,
            cached: false,
            kill_privileges: false,
        };
        for text in [b"one", b"two"] {
            assert_eq!(one.write(&root(), append(handle), text).await.ok(), Some(3));
            assert_eq!(two.write(&root(), append(other), text).await.ok(), Some(3));
        }
        let read = one.client().files().read(handle, 0, 100).await.expect("it can be read");
        assert_eq!(join(&read), b"oneonetwotwo");
        one.release(handle).await;
        two.release(other).await;
    });
}

/// A mover of data that is never called back.
struct Mover;

impl Callbacks for Mover {
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

/// Seals the only object of a file, and is gone.
async fn seal(world: &World, layout: &Layout) {
    let import = world.hub.import(TargetId::ost(0), ClientId(77), Role::Client, vec![Nid::lo()]);
    let mover = Arc::new(Mover);
    import.set_callbacks(mover.clone());
    let object = layout.places().next().expect("one stripe").object;
    let all = Enqueue { object, write: true, start: 0, end: u64::MAX, restate: false };
    import.call(all).await.expect("it is given back");
    let seal = SealLayout {
        layout: object.layout,
        stripes: vec![object.stripe],
        generation: layout.generation,
        sealed: true,
    };
    import.call(seal).await.expect("it holds all");
    import.disconnect().await;
}

/// Whoever moves the data of a file is gone when the old objects are sealed: a copy into it does not wait for ever, and one out of it
/// does not fail, wherever the copy meets the seal.
#[test]
fn a_copy_goes_on_when_whoever_moves_a_file_is_gone() {
    for sealed in [b"from", b"into"] {
        let world = World::real(1, 1);
        let (one, other) = (world.mount(), world.mount());
        world.run(async {
            let (_, from) = create(&one, b"from").await;
            one.files().write(from, 0, b"some data").await.expect("there is room");
            one.files().fsync(from).await.expect("the OST takes it");
            let (_, into) = create(&one, b"into").await;
            one.files().write(into, 0, b"before").await.expect("there is room");
            one.files().fsync(into).await.expect("the OST takes it");
            let found = other.names().lookup(&root(), Fid::ROOT, sealed).await.expect("it is there").fid;
            let layout = other.names().layout(found).await.expect("it is there").expect("a regular file");
            seal(&world, &layout).await;
            let copying = one.files().copy_range((from, 0), (into, 0), 100);
            let copied = world.hub.rt().timeout(Duration::from_secs(60), copying).await;
            assert_eq!(copied, Some(Ok(9)), "{sealed:?}");
            assert_eq!(join(&one.files().read(into, 0, 100).await.expect("it can be read")), b"some data");
        });
    }
}
