//! The first bytes of files on the MDT: the objects are the file's, and go with it.

use std::time::Duration;

use proto::layout::{HintPart, LayoutHint, Pattern};
use proto::limits::MDT_DATA_BYTES_MAX;
use proto::wire::messages::GetObjectAttr;
use proto::{Code, Fid, ObjectId, OstIndex};
use store::sums::OBJECTS;

use crate::mdt::keys;
use crate::mdt::testing::{NODE, World};

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
