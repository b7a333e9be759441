//! What requests and replies take on the wire: it grows with the stripes of a file, not with the OSTs there are (FEATURES R2, R3).

use proto::layout::LayoutHint;
use proto::wire::messages::{self as msg, OPEN_EXCLUSIVE, OPEN_READ, OPEN_WRITE, Operation};
use proto::wire::{Reply, Request};
use proto::{Fid, Timestamp};

use crate::mdt::testing::{Client, World};

/// Bytes of a stripe: the kind and the index of its target.
const STRIPE_BYTES: usize = 5;

/// Bytes of the bodies of requests and replies, in this order. There are heads of one length, and nothing in bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes {
    create: (usize, usize),
    /// By the last one who wrote: the reply brings the file, whose size is known again.
    close: (usize, usize),
    open: (usize, usize),
    /// By one who only read.
    close_unchanged: (usize, usize),
    unlink: (usize, usize),
}

/// Carries `operation` out. Gives its reply, and the bytes of both.
fn measure<O: Operation + Clone>(client: &Client<'_>, operation: O) -> (O::Reply, (usize, usize)) {
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    let request: Request = operation.clone().into();
    request.put_body(&mut asked);
    client.skip_to(client.xid() + 1);
    let answer = client.send(client.xid(), operation);
    assert!(answer.bulk.is_empty());
    let reply: Reply = answer.result.expect("there are OSTs");
    reply.put_body(&mut told);
    (O::reply_of(reply).expect("the reply is of the operation"), (asked.len(), told.len()))
}

/// The life of a file that its client writes, in a file system with so many OSTs, of the indexes from 0 on.
fn life(osts: u32, hint: Option<LayoutHint>) -> Bytes {
    life_on(&(0..osts).collect::<Vec<_>>(), hint)
}

/// The same with OSTs of these indexes.
fn life_on(osts: &[u32], hint: Option<LayoutHint>) -> Bytes {
    let world = World::new();
    let servers: Vec<String> = (0..osts.len().div_ceil(4)).map(|server| format!("oss{server}")).collect();
    let each = servers.iter().flat_map(|server| std::iter::repeat_n(server.as_str(), 4));
    let all: Vec<(u32, &str)> = osts.iter().copied().zip(each).collect();
    world.set_osts(&all);
    let client = world.client(1);
    let request = client.create_request(Fid::ROOT, "f", 0o100_644);
    let open = OPEN_EXCLUSIVE | OPEN_READ | OPEN_WRITE;
    let (created, create) = measure(&client, msg::Create { open, hint, ..request });
    let (fid, time) = (created.attr.fid, Timestamp { secs: 1_800_000_000, nanos: 0 });
    let size = Some(msg::SizeUpdate { size: 1 << 30, blocks: 1 << 21, mtime: time, ctime: time });
    let close = |handle| msg::Close { fid, handle, atime: Some(time), size: size.clone(), wrote: true };
    let (_, closed) = measure(&client, close(created.handle));
    let (opened, open) = measure(&client, msg::Open { fid, open: OPEN_READ, cred: proto::Cred::root() });
    let unchanged = msg::Close { atime: None, size: None, wrote: false, ..close(opened.handle) };
    let (_, close_unchanged) = measure(&client, unchanged);
    let (parent, name) = (Fid::ROOT, crate::mdt::testing::name("f"));
    let unlink = msg::Unlink { parent, name, directory: false, cred: proto::Cred::root(), time };
    let (_, unlink) = measure(&client, unlink);
    Bytes { create, close: closed, open, close_unchanged, unlink }
}

#[test]
fn a_file_costs_as_much_whether_there_is_one_ost_or_ten_thousand() {
    let one = life(1, None);
    assert_eq!([life(10, None), life(10_000, None)], [one, one]);
    assert!(one.close.0 < 100 && one.close.1 < 250, "as much as an open, and a little: {one:?}");
    assert!(one.close_unchanged.1 < 20, "{one:?}");
}

#[test]
fn stripes_cost_bytes_where_the_layout_is_told_and_nowhere_else() {
    let with = |osts, stripes| {
        life(osts, Some(LayoutHint { stripe_count: stripes, overstripe: true, ..LayoutHint::default() }))
    };
    for osts in [1, 10, 10_000] {
        let (one, thousand) = (with(osts, 1), with(osts, 1000));
        let layout = 999 * STRIPE_BYTES;
        let grown = |(asked, told): (usize, usize)| (asked, told + layout);
        let expected = Bytes {
            create: grown(one.create),
            close: grown(one.close),
            open: grown(one.open),
            close_unchanged: one.close_unchanged,
            unlink: one.unlink,
        };
        assert_eq!(thousand, expected, "{osts} OSTs");
    }
}

/// Lustre's replies had room for as many OSTs as the largest index says (FEATURES L8).
#[test]
fn indexes_far_from_each_other_cost_nothing() {
    let all = Some(LayoutHint { stripe_count: -1, ..LayoutHint::default() });
    for hint in [None, all] {
        assert_eq!(life_on(&[0, 7, 4096, 65_500], hint.clone()), life(4, hint));
    }
}
