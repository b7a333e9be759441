//! How many inodes there are is known without looking at them, whatever happened before.

use proto::wire::messages::{CreateUnnamed, OPEN_READ, OPEN_WRITE};
use proto::{Cred, Fid};
use service::Handler;

use crate::mdt::testing::World;

/// Inodes, as `df -i` has them.
fn used(world: &World) -> u64 {
    let space = world.sim.run(world.target.handler().space()).expect("the disk says");
    space.files_total - space.files_free
}

#[test]
fn the_number_of_inodes_follows_every_change() {
    let world = World::new();
    assert_eq!(used(&world), 1, "the root");
    let world = {
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        for text in ["a", "b", "c"] {
            client.file(dir, text);
        }
        client.rename((dir, "a"), (dir, "b"), 0, &Cred::root()).expect("it takes the place of the other");
        client.unlink(dir, "c").expect("it exists");
        let open = client.file(dir, "open");
        let opened = client.open(open, OPEN_READ, &Cred::root()).expect("it exists");
        client.unlink(dir, "open").expect("it exists");
        assert_eq!(used(&world), 4, "what is open stays");
        client.close(open, opened.handle, false, None);
        assert_eq!(used(&world), 3);
        let request = CreateUnnamed {
            parent: dir,
            fid: client.new_fid(),
            mode: 0o600,
            open: OPEN_READ | OPEN_WRITE,
            hint: None,
            cred: Cred::root(),
            time: client.time(),
            umask: 0,
        };
        client.call(request).expect("it may");
        assert_eq!(used(&world), 4);
        world.sync();
        client.file(dir, "lost");
        world
    };
    let world = world.crash();
    assert_eq!(used(&world), 4, "what was not committed is not counted");
    let world = world.restart();
    assert_eq!(used(&world), 4);
}
