//! Files of several components, which get their objects with the first write.

use std::time::Duration;

use client::{AttrChange, Client, Error, Handle, OpenFlags, Seek};
use proto::layout::{HintPart, LayoutHint};
use proto::{Code, Fid, Layout, TargetId};
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const MIB: u64 = 1 << 20;

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        test(cluster).await;
    });
}

/// One stripe up to 1 MiB, two up to 2 MiB, and all up to `end`.
fn parts(end: u64) -> LayoutHint {
    let hint = |stripe_count| LayoutHint { stripe_count, stripe_size: 65_536, ..LayoutHint::default() };
    let parts = [(MIB, 1), (2 * MIB, 2), (end, -1)].map(|(end, count)| HintPart::new(end, hint(count)));
    LayoutHint { parts: parts.to_vec(), ..LayoutHint::default() }
}

async fn make(client: &Client, name: &[u8], end: u64) -> (Fid, Handle) {
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name, 0o100_644, parts(end)).await;
    let fid = made.expect("a new name can be made").fid;
    (fid, open(client, fid, READ_WRITE).await)
}

async fn open(client: &Client, fid: Fid, flags: OpenFlags) -> Handle {
    client.files().open(&root(), fid, flags).await.expect("root may open")
}

async fn write(client: &Client, handle: Handle, offset: u64, data: &[u8]) {
    let wrote = client.files().write(handle, offset, data).await.expect("there is room");
    assert_eq!(wrote as usize, data.len());
}

async fn read(client: &Client, handle: Handle, offset: u64, len: u32) -> Vec<u8> {
    client.files().read(handle, offset, len).await.expect("what is healthy can be read").concat()
}

async fn layout(client: &Client, fid: Fid) -> Layout {
    client.names().layout(fid).await.expect("it is there").expect("of a file")
}

async fn placed(client: &Client, fid: Fid) -> Vec<bool> {
    layout(client, fid).await.components.iter().map(|component| component.is_placed()).collect()
}

async fn size(client: &Client, fid: Fid) -> u64 {
    client.names().getattr(fid).await.expect("it is there").size
}

async fn set_size(client: &Client, fid: Fid, size: u64) -> Result<(), Error> {
    let change = AttrChange { size: Some(size), ..AttrChange::default() };
    client.files().setattr(&root(), fid, change, None).await.map(|_| ())
}

/// What one client makes room for, another one that knows an older layout sees at once.
#[test]
fn others_see_components_that_grow() {
    check(1, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        let (fid, one) = make(&a, b"f", u64::MAX).await;
        let two = open(&b, fid, READ_WRITE).await;
        assert_eq!(placed(&b, fid).await, [true, false, false]);
        write(&a, one, 5, b"first").await;
        assert_eq!(read(&b, two, 0, 100).await, b"\0\0\0\0\0first");
        // Behind a component that stays as it is.
        write(&a, one, 2 * MIB + 7, b"third").await;
        assert_eq!(placed(&a, fid).await, [true, false, true]);
        assert_eq!(size(&b, fid).await, 2 * MIB + 12);
        assert_eq!(read(&b, two, 2 * MIB + 5, 100).await, b"\0\0third");
        assert_eq!(read(&b, two, MIB - 10, 20).await, [0; 20]);
        assert_eq!(read(&b, two, 0, 3 << 20).await.len() as u64, 2 * MIB + 12);
        // Both write to what the other one does not know.
        write(&b, two, 2 * MIB - 3, b"across").await;
        assert_eq!(placed(&a, fid).await, [true, true, true]);
        assert_eq!(read(&a, one, 2 * MIB - 4, 8).await, b"\0across\0");
        let seek = async |offset, what| b.files().seek(fid, offset, what).await.expect("it can be asked");
        assert!(seek(65_536, Seek::Data).await.is_some_and(|at| at > MIB));
        assert_eq!(seek(MIB + 1, Seek::Hole).await, Some(MIB + 1));
        a.files().release(one).await;
        b.files().release(two).await;
        assert_eq!(size(&a, fid).await, 2 * MIB + 12);
    });
}

/// A client that knows the oldest layout is the last one to close, and to append.
#[test]
fn ends_are_those_of_the_newest_layout() {
    check(2, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        let (fid, one) = make(&a, b"f", u64::MAX).await;
        let two = open(&b, fid, READ_WRITE).await;
        let log = open(&b, fid, OpenFlags { append: true, ..READ_WRITE }).await;
        write(&b, two, 0, b"x").await;
        write(&a, one, MIB + 9, b"y").await;
        a.files().release(one).await;
        write(&b, log, 0, b"z").await;
        assert_eq!(read(&b, two, MIB + 8, 10).await, b"\0yz");
        write(&b, two, 1, b"x").await;
        b.files().release(log).await;
        b.files().release(two).await;
        assert_eq!((size(&a, fid).await, size(&b, fid).await), (MIB + 11, MIB + 11));
        // Moved, it has what its size needs.
        a.migrate(&root(), fid, parts(u64::MAX)).await.expect("the owner may");
        assert_eq!((placed(&b, fid).await, size(&b, fid).await), (vec![true, true, false], MIB + 11));
    });
}

#[test]
fn behind_the_last_component_nothing_is_written() {
    check(3, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (fid, one) = make(&a, b"f", 4 * MIB).await;
        let refused = Err(Error::Refused(Code::NoComponent));
        assert_eq!(a.files().write(one, 4 * MIB, b"x").await, refused);
        assert_eq!(set_size(&a, fid, 4 * MIB + 1).await, Err(Error::Refused(Code::NoComponent)));
        assert_eq!((size(&a, fid).await, placed(&a, fid).await), (0, vec![true, false, false, false]));
        // A size is in the object that holds the last byte.
        set_size(&a, fid, 4 * MIB).await.expect("it fits");
        assert_eq!(placed(&a, fid).await, [true, false, true, false]);
        assert_eq!((size(&a, fid).await, read(&a, one, 4 * MIB - 5, 10).await), (4 * MIB, vec![0; 5]));
        let log = open(&a, fid, OpenFlags { append: true, ..READ_WRITE }).await;
        assert_eq!(a.files().write(log, 0, b"x").await, refused);
        set_size(&a, fid, 3).await.expect("it fits");
        write(&a, log, 0, b"x").await;
        assert_eq!((read(&a, one, 0, 10).await, size(&a, fid).await), (b"\0\0\0x".to_vec(), 4));
    });
}

/// The MDT loses power between the time at which components get objects and whatever follows: the objects stay the same.
#[test]
fn objects_stay_through_crashes_of_the_mdt() {
    for seed in 0..20 {
        check(seed, async |cluster| {
            let (rt, a) = cluster.mount("a").await;
            let (_, b) = cluster.mount("b").await;
            let (fid, one) = make(&a, b"f", u64::MAX).await;
            let servers = ["mds".to_owned()];
            write(&a, one, MIB, b"second").await;
            rt.sleep(std::time::Duration::from_micros(seed * seed * 50)).await;
            let before = layout(&a, fid).await;
            cluster.cut_power(&servers);
            cluster.restart(&servers);
            write(&a, one, 2 * MIB, b"third").await;
            let after = layout(&b, fid).await;
            assert_eq!((&before.components[1], after.generation), (&after.components[1], 2));
            let two = open(&b, fid, READ_WRITE).await;
            assert_eq!(read(&b, two, MIB, 6).await, b"second");
            assert_eq!(read(&b, two, 2 * MIB, 9).await, b"third");
        });
    }
}

/// One OST up to the end of the file, 256 KiB at a time.
fn extending() -> LayoutHint {
    let hint = LayoutHint { stripe_count: 1, stripe_size: 65_536, ..LayoutHint::default() };
    let part = HintPart { extension: 4 * 65_536, ..HintPart::new(u64::MAX, hint) };
    LayoutHint { parts: vec![part], ..LayoutHint::default() }
}

/// Where each component with objects ends, in units of what a file extends by, and on which OST it is.
async fn pieces(client: &Client, fid: Fid) -> Vec<(u64, u32)> {
    let layout = layout(client, fid).await;
    let placed = layout.components.iter().filter(|component| component.is_placed());
    placed.map(|of| (of.end / (4 * 65_536), of.osts().next().expect("it has one").0)).collect()
}

/// The mark of an OST is known to the MDT.
async fn mark(cluster: &Cluster, ost: u32, is_degraded: bool) {
    let value = if is_degraded { "1" } else { "0" };
    cluster.set_parameter_of(|target| target == TargetId::ost(ost), "degraded", value);
    cluster.handle().rt("clock").sleep(Duration::from_secs(2)).await;
}

/// Objects take over more of the file, and a client that knows less of them does not take it for a hole, nor for the end.
#[test]
fn others_see_a_component_that_extends_itself() {
    check(7, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        let made = a.names().create_with_layout(&root(), Fid::ROOT, b"f", 0o100_644, extending()).await;
        let fid = made.expect("a new name can be made").fid;
        let (one, two) = (open(&a, fid, READ_WRITE).await, open(&b, fid, READ_WRITE).await);
        write(&a, one, 0, b"first").await;
        assert_eq!(read(&b, two, 0, 100).await, b"first");
        let first = pieces(&a, fid).await[0].1;
        assert_eq!(pieces(&b, fid).await, [(1, first)]);
        write(&a, one, MIB - 3, b"second").await;
        assert_eq!(pieces(&a, fid).await, [(5, first)]);
        assert_eq!(read(&b, two, MIB - 5, 100).await, b"\0\0second");
        assert_eq!(size(&b, fid).await, MIB + 3);
        // Where it is, there is no room: the rest lies elsewhere, and then there again.
        mark(cluster, first, true).await;
        write(&b, two, 2 * MIB, b"third").await;
        let second = pieces(&b, fid).await[1].1;
        assert_eq!(pieces(&a, fid).await, [(5, first), (9, second)]);
        assert_ne!(second, first);
        assert_eq!(read(&a, one, 2 * MIB - 2, 100).await, b"\0\0third");
        mark(cluster, first, false).await;
        write(&a, one, 3 * MIB, b"fourth").await;
        assert_eq!(pieces(&a, fid).await, [(5, first), (13, second)]);
        for ost in 0..4 {
            mark(cluster, ost, true).await;
        }
        write(&b, two, 4 * MIB, b"fifth").await;
        assert_eq!(pieces(&b, fid).await, [(5, first), (17, second)], "there is no better place");
        let whole = read(&a, one, 0, 5 << 20).await;
        assert_eq!(whole.len() as u64, 4 * MIB + 5);
        for (at, text) in [(0, "first"), (MIB - 3, "second"), (2 * MIB, "third"), (3 * MIB, "fourth")] {
            assert_eq!(&whole[at as usize..at as usize + text.len()], text.as_bytes());
        }
        // A cut of what the other one has made longer, and a size beyond.
        set_size(&b, fid, MIB + 1).await.expect("root may");
        assert_eq!(read(&a, one, MIB - 3, 100).await, b"seco");
        set_size(&a, fid, 8 * MIB).await.expect("root may");
        assert_eq!((size(&b, fid).await, read(&b, two, 2 * MIB, 5).await), (8 * MIB, vec![0; 5]));
        a.migrate(&root(), fid, extending()).await.expect("the owner may");
        assert_eq!(read(&b, two, MIB - 3, 5).await, b"seco\0");
        a.files().release(one).await;
        b.files().release(two).await;
        assert_eq!(size(&a, fid).await, 8 * MIB);
    });
}
