//! Limits of the space of pools, as an MDT keeps them and permits by them. Its OSTs do not answer here: owners have what clients hold.

use std::time::Duration;

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::wire::messages::{QUOTA_IN_POOL, QUOTA_USER, QuotaState, SetQuota, SpaceHeld};
use rpc::Role;

use crate::mdt::keys;
use crate::mdt::testing::{Client, World, ask};

const BOB: u32 = 1000;
const MIB: u64 = 1 << 20;
const OSTS: [(u32, &str); 4] = [(0, "a"), (1, "a"), (2, "b"), (3, "b")];

fn limit(pool: &str, id: u32, hard: u64) -> SetQuota {
    SetQuota {
        kind: if pool.is_empty() { QUOTA_USER } else { QUOTA_USER | QUOTA_IN_POOL },
        id,
        inodes_soft: None,
        inodes_hard: None,
        inodes_grace_s: None,
        bytes_soft: None,
        bytes_hard: Some(hard),
        bytes_grace_s: None,
        forget: false,
        pool: pool.to_owned(),
    }
}

fn set(world: &World, set: SetQuota) -> Result<(), Code> {
    ask(world, Role::Client, set).map(drop)
}

fn read(world: &World, kind: u8, id: u32, pool: &str) -> Result<QuotaState, Code> {
    match ask(world, Role::Client, msg::ReadQuota { kind, id, pool: pool.to_owned() })? {
        Reply::ReadQuota(state) => Ok(state),
        other => panic!("another answer: {other:?}"),
    }
}

fn hard(world: &World, id: u32, pool: &str) -> u64 {
    let kind = if pool.is_empty() { QUOTA_USER } else { QUOTA_USER | QUOTA_IN_POOL };
    read(world, kind, id, pool).expect("it is there").bytes.expect("space is limited").hard
}

/// Says what is held, and asks for `least` bytes.
fn hold(client: &Client, pool: &str, held: u64, least: u64) -> SpaceHeld {
    let (uid, gid, pool) = (BOB, BOB, pool.to_owned());
    let hold = msg::HoldSpace { uid, gid, held, least, most: least, project: 0, pool };
    client.call(hold).expect("it is answered")
}

#[test]
fn a_pool_has_to_be_there_and_has_limits_of_space_alone() {
    let world = World::new();
    world.set_pools(&OSTS, &[("flash", &[0, 1])]);
    assert_eq!(set(&world, limit("slow", BOB, MIB)), Err(Code::NotFound));
    let inodes = SetQuota { inodes_hard: Some(7), ..limit("flash", BOB, MIB) };
    assert_eq!(set(&world, inodes), Err(Code::Invalid));
    assert_eq!(set(&world, SetQuota { kind: QUOTA_USER, ..limit("flash", BOB, MIB) }), Err(Code::Invalid));
    let nameless = SetQuota { kind: QUOTA_USER | QUOTA_IN_POOL, ..limit("", BOB, MIB) };
    assert_eq!(set(&world, nameless), Err(Code::Invalid));
    assert_eq!(
        set(&world, SetQuota { kind: 3 | QUOTA_IN_POOL, ..limit("flash", BOB, MIB) }),
        Err(Code::NotSupported)
    );
    assert_eq!(read(&world, QUOTA_USER | QUOTA_IN_POOL, BOB, "slow"), Err(Code::NotFound));
    assert_eq!(world.keys(keys::QUOTA_POOL), 0);
    set(&world, limit("flash", BOB, MIB)).expect("it is there");
    assert_eq!((hard(&world, BOB, "flash"), hard(&world, BOB, "")), (MIB, 0));
    let state = read(&world, QUOTA_USER | QUOTA_IN_POOL, BOB, "flash").expect("it is there");
    let osts: Vec<_> = state.targets.iter().filter_map(|of| of.target.ost()).map(|ost| ost.0).collect();
    assert_eq!(osts, [0, 1], "its members");
}

#[test]
fn what_lies_in_a_pool_is_permitted_apart() {
    let world = World::new();
    world.set_pools(&OSTS, &[("flash", &[0, 1]), ("disk", &[2, 3])]);
    let (a, b) = (world.client(1), world.client(2));
    let told = hold(&a, "", 0, 1);
    assert!(told.free_ms > 0 && told.pools.is_empty() && told.pools_ms > 0, "{told:?}");
    set(&world, limit("flash", BOB, 10 * MIB)).expect("it is there");
    let told = hold(&a, "", 0, 1);
    assert!(told.free_ms > 0 && told.pools == ["flash"], "nothing else is limited: {told:?}");
    assert_eq!(hold(&a, "flash", 0, 8 * MIB).bytes, 8 * MIB);
    let told = hold(&b, "flash", 0, 3 * MIB);
    assert_eq!((told.bytes, told.free_ms, told.is_changing), (0, 0, true), "others have it");
    assert_eq!(hold(&b, "flash", 0, 2 * MIB).bytes, 2 * MIB);
    assert!(hold(&b, "disk", 0, MIB).free_ms > 0);
    // Both limits hold.
    set(&world, limit("", BOB, 12 * MIB)).expect("it is kept");
    let told = hold(&b, "", 2 * MIB, 10 * MIB);
    assert_eq!((told.bytes, &told.pools[..]), (10 * MIB, &["flash".to_owned()][..]));
    assert_eq!(hold(&b, "", 12 * MIB, MIB).bytes, 0);
    // What a client holds no more counts until the OSTs were asked; these have never said anything.
    assert_eq!(hold(&a, "flash", 4 * MIB, 0).bytes, 0);
    assert_eq!(hold(&b, "flash", 2 * MIB, 4 * MIB).bytes, 4 * MIB);
    assert_eq!(hold(&b, "flash", 6 * MIB, MIB).bytes, 0);
    set(&world, limit("flash", BOB, 0)).expect("it is taken away");
    assert!(hold(&a, "flash", 4 * MIB, MIB).free_ms > 0);
    assert!(hold(&a, "", 0, 0).pools.is_empty());
}

#[test]
fn limits_of_all_are_those_of_a_pool_too() {
    let world = World::new();
    world.set_pools(&OSTS, &[("flash", &[0, 1])]);
    let client = world.client(1);
    set(&world, limit("flash", msg::QUOTA_DEFAULT_ID, 2 * MIB)).expect("it is there");
    assert_eq!(hold(&client, "", 0, 1).pools, ["flash"]);
    assert_eq!((hold(&client, "flash", 0, 3 * MIB).bytes, hold(&client, "flash", 0, MIB).bytes), (0, MIB));
    let state = read(&world, QUOTA_USER | QUOTA_IN_POOL, BOB, "flash").expect("it is there");
    assert!(
        state.bytes.is_some_and(|bytes| bytes.is_default && bytes.hard == 2 * MIB)
            && !state.inodes.is_default
    );
    set(&world, limit("flash", BOB, 5 * MIB)).expect("it is there");
    assert_eq!(hold(&client, "flash", MIB, 4 * MIB).bytes, 4 * MIB);
    set(&world, SetQuota { forget: true, ..limit("flash", BOB, 0) }).expect("it is there");
    assert_eq!(hard(&world, BOB, "flash"), 2 * MIB);
}

#[test]
fn what_was_said_of_a_pool_ends_with_it() {
    let world = World::new();
    world.set_pools(&OSTS, &[("flash", &[0, 1]), ("disk", &[2, 3])]);
    let client = world.client(1);
    let grace = SetQuota { bytes_grace_s: Some(60), bytes_soft: Some(MIB), ..limit("flash", BOB, 2 * MIB) };
    set(&world, grace).expect("it is there");
    set(&world, limit("disk", BOB, MIB)).expect("it is there");
    assert_eq!(hold(&client, "flash", 0, 2 * MIB).bytes, 2 * MIB);
    assert_eq!(world.keys(keys::QUOTA_POOL), 4, "two limits, the time of grace, and when it ends");
    world.set_pools(&OSTS, &[("disk", &[2, 3])]);
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.keys(keys::QUOTA_POOL), 1);
    assert!(hold(&client, "flash", 0, MIB).free_ms > 0);
    assert_eq!(hold(&client, "", 0, 1).pools, ["disk"]);
    world.set_pools(&OSTS, &[("flash", &[0, 1]), ("disk", &[2, 3])]);
    assert_eq!((hard(&world, BOB, "flash"), hard(&world, BOB, "disk")), (0, MIB), "it is another one");
}
