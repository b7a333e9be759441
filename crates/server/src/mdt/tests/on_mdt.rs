//! The first bytes of files on the MDT: the objects are the file's, and go with it.

use std::time::Duration;

use proto::layout::{HintPart, LayoutHint, Pattern};
use proto::limits::MDT_DATA_BYTES_MAX;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, GetObjectAttr};
use proto::{ClientId, Code, Fid, Layout, ObjectId, OstIndex};
use rpc::Role;
use store::object::OBJECTS;

use crate::mdt::keys;
use crate::mdt::testing::{NODE, World, ask};

fn headed(end: u64) -> LayoutHint {
    let parts = vec![HintPart::mdt(end), HintPart::new(u64::MAX, LayoutHint::default())];
    LayoutHint { parts, ..LayoutHint::default() }
}

#[test]
fn objects_go_with_their_file() {
    let world = World::new();
    let client = world.client(1);
    let made = client.file_with(Fid::ROOT, "f", headed(1 << 16)).expect("a file");
    let layout = made.layout.expect("of a file");
    assert_eq!(
        (layout.components[0].pattern, layout.components[1].pattern),
        (Pattern::Mdt, Pattern::Pending)
    );
    let object = ObjectId { layout: layout.components[0].id, stripe: 0 };
    client.write((object, 0), b"ten bytes.").expect("there is room");
    assert_eq!(client.write((object, MDT_DATA_BYTES_MAX - 1), b"too far"), Err(Code::TooLarge));
    let opened = client.open(made.attr.fid, proto::wire::messages::OPEN_WRITE, &proto::Cred::root());
    client.close(made.attr.fid, opened.expect("root may").handle, true, Some(10));
    let objects = |world: &World| world.store.sum(&OBJECTS.key()).expect("the store can be read");
    assert_eq!(objects(&world), 1);
    client.unlink(Fid::ROOT, "f").expect("it exists");
    assert_eq!(world.destroys().len(), 1);
    world.sync();
    let world = world.crash();
    world.sim.run(world.sim.rt(NODE).sleep(Duration::from_secs(600)));
    assert_eq!((world.keys(keys::DESTROY), objects(&world)), (0, 0));
    let client = world.client(1);
    assert_eq!(client.write((object, 0), b"late").err(), Some(Code::Gone));
    assert_eq!(client.call(GetObjectAttr { object }).err(), Some(Code::Gone));
}

#[test]
fn only_a_first_part_of_a_bounded_size_lies_on_the_mdt() {
    let world = World::new();
    let client = world.client(1);
    let make = |name: &str, hint| client.file_with(Fid::ROOT, name, hint).map(drop);
    assert_eq!(make("a", headed(1 << 20)), Ok(()));
    let rest = HintPart::new(u64::MAX, LayoutHint::default());
    let striped = HintPart { osts: vec![OstIndex(0)], ..HintPart::mdt(1 << 16) };
    let second = vec![HintPart::new(1 << 16, LayoutHint::default()), HintPart::mdt(1 << 17), rest.clone()];
    for parts in [headed(2 << 20).parts, headed(u64::MAX).parts, vec![striped, rest], second] {
        let hint = LayoutHint { parts, ..LayoutHint::default() };
        assert_eq!(make("b", hint.clone()), Err(Code::Invalid), "{hint:?}");
    }
    assert_eq!(make("c", LayoutHint { parts: vec![HintPart::mdt(1 << 16)], ..headed(1) }), Ok(()));
}

/// The client has used the layout that it was given before the crash, whatever may lie on the MDT by now; and what an operator has said
/// stays (FEATURES L16).
#[test]
fn what_may_lie_on_the_mdt_is_bounded_and_a_replay_finds_the_bound() {
    let set = |world: &World, bytes: &str| {
        let name = "lod.weft-MDT0000-mdtlov.dom_stripesize".into();
        let parameter = msg::Parameter { name, value: bytes.into() };
        let done = ask(world, Role::Server, msg::SetParameters { parameters: vec![parameter] }).map(drop);
        world.sim.run_for(Duration::from_secs(1));
        done
    };
    let ends = |layout: &Layout| layout.components.iter().map(|part| part.end).collect::<Vec<_>>();
    let world = World::new();
    for wrong in ["65537", "1114112", "-1", "much"] {
        assert_eq!(set(&world, wrong), Err(Code::Invalid), "{wrong}");
    }
    set(&world, "65536").expect("it is a bound");
    let client = world.client(1);
    world.sync();
    let request = client.create_request(Fid::ROOT, "f", 0o100_644);
    let request = msg::Create { hint: Some(headed(1 << 20)), ..request };
    let answer = client.send(100, request.clone());
    let Ok(Reply::Create(made)) = answer.result else { panic!("a new name: {:?}", answer.result) };
    let layout = made.layout.expect("of a file");
    assert_eq!(ends(&layout), [65_536, u64::MAX]);

    let (boot, transno) = (world.store.boot(), answer.transno);
    let world = world.crash();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    let again = client.replay(100, transno, request);
    let Ok(Reply::Create(again)) = again.result else { panic!("it was lost: {:?}", again.result) };
    assert_eq!(again.layout, Some(layout));
    set(&world, "0").expect("it is a bound");
    let none = world
        .client(2)
        .file_with(Fid::ROOT, "g", headed(1 << 20))
        .expect("a file")
        .layout
        .expect("of a file");
    assert_eq!((ends(&none), none.components[0].pattern), (vec![u64::MAX], Pattern::Raid0));
}
