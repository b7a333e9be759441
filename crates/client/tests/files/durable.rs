//! fsync of a file keeps its names and attributes, whatever it is called through.

use bytes::Bytes;
use client::{AttrChange, Client, Handle, OpenFlags, TimeSet};
use proto::types::{Attr, MODE_KIND};
use proto::{Fid, FileKind, Timestamp};

use crate::world::{World, create, read_only, read_write, root};

const OSTS: u32 = 2;

/// What happens to the file `f` and is not a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Mode,
    Owner,
    Times,
    Xattr,
    NoXattr,
    Acl,
    Size,
    Link,
    Unlink,
    Rename,
    Exchange,
}

const CHANGES: [Change; 11] = [
    Change::Mode,
    Change::Owner,
    Change::Times,
    Change::Xattr,
    Change::NoXattr,
    Change::Acl,
    Change::Size,
    Change::Link,
    Change::Unlink,
    Change::Rename,
    Change::Exchange,
];

const TIME: Timestamp = Timestamp { secs: 1_000_000_000, nanos: 7 };
const ACL: &[u8] = b"system.posix_acl_access";

/// rw for the owner, r for user 5, nothing for the rest: version 2, then tag, permissions and id of each entry.
fn acl() -> Bytes {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 5), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes.into()
}

async fn find(client: &Client, name: &[u8]) -> Option<Attr> {
    client.names().lookup(&root(), Fid::ROOT, name).await.ok().map(|told| told.attr)
}

impl Change {
    async fn make(self, client: &Client, f: Fid) {
        let caller = root();
        let set = |change| client.files().setattr(&caller, f, change, None);
        let time = Some(TimeSet::At(TIME));
        match self {
            Change::Mode => set(AttrChange { mode: Some(0o641), ..AttrChange::default() }).await.map(drop),
            Change::Owner => {
                set(AttrChange { uid: Some(7), gid: Some(8), ..AttrChange::default() }).await.map(drop)
            }
            Change::Times => {
                set(AttrChange { atime: time, mtime: time, ..AttrChange::default() }).await.map(drop)
            }
            Change::Size => set(AttrChange { size: Some(2), ..AttrChange::default() }).await.map(drop),
            Change::Xattr => {
                client.names().set_xattr(&caller, f, b"user.new", Bytes::from_static(b"v"), 0).await
            }
            Change::NoXattr => client.names().remove_xattr(&caller, f, b"user.old").await,
            Change::Acl => client.names().set_xattr(&caller, f, ACL, acl(), 0).await,
            Change::Link => client.names().link(&caller, f, Fid::ROOT, b"second").await.map(drop),
            Change::Unlink => client.names().unlink(&caller, Fid::ROOT, b"twin").await,
            Change::Rename => client.names().rename(&caller, Fid::ROOT, b"f", Fid::ROOT, b"g", 0).await,
            Change::Exchange => {
                let exchange = proto::wire::messages::RENAME_EXCHANGE;
                client.names().rename(&caller, Fid::ROOT, b"other", Fid::ROOT, b"f", exchange).await
            }
        }
        .expect("everything works");
    }

    async fn is_kept(self, client: &Client, f: Fid) -> bool {
        let attr = async || client.names().getattr(f).await.expect("it has a name").attr;
        match self {
            Change::Mode => attr().await.mode & 0o777 == 0o641,
            Change::Owner => (attr().await.uid, attr().await.gid) == (7, 8),
            Change::Times => (attr().await.atime, attr().await.mtime) == (TIME, TIME),
            Change::Size => attr().await.size == 2,
            Change::Xattr => client.names().get_xattr(&root(), f, b"user.new").await.is_ok(),
            Change::NoXattr => client.names().get_xattr(&root(), f, b"user.old").await.is_err(),
            Change::Acl => client.names().get_xattr(&root(), f, ACL).await == Ok(acl()),
            Change::Link => find(client, b"second").await.is_some_and(|attr| attr.fid == f),
            Change::Unlink => find(client, b"twin").await.is_none(),
            Change::Rename => {
                find(client, b"f").await.is_none()
                    && find(client, b"g").await.is_some_and(|attr| attr.fid == f)
            }
            Change::Exchange => find(client, b"other").await.is_some_and(|attr| attr.fid == f),
        }
    }
}

/// A file `f`, durable, with another name and an attribute.
async fn prepare(client: &Client) -> Fid {
    let (attr, handle) = create(client, b"f").await;
    client.files().write(handle, 0, b"content").await.expect("there is room");
    client
        .names()
        .set_xattr(&root(), attr.fid, b"user.old", Bytes::from_static(b"v"), 0)
        .await
        .expect("a new one");
    client.names().link(&root(), attr.fid, Fid::ROOT, b"twin").await.expect("a new name");
    client.files().release(handle).await;
    let (_, other) = create(client, b"other").await;
    client.files().release(other).await;
    client.sync_all().await.expect("everything is durable");
    client.files().fsync_dir(Fid::ROOT).await.expect("everything is durable");
    attr.fid
}

async fn open(client: &Client, fid: Fid) -> Handle {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    client.files().open(&root(), fid, flags).await.expect("it is there")
}

/// `remote`: the servers are elsewhere, so that nothing is durable by chance with a commit in this process.
fn worlds(seed: u64) -> [World; 2] {
    [World::real(seed, OSTS), World::remote(seed, OSTS)]
}

#[test]
fn fsync_through_any_descriptor_keeps_names_and_attributes() {
    for (n, change) in (1..).zip(CHANGES) {
        for mut world in worlds(n) {
            let client = world.mount();
            let f = world.run(async {
                let f = prepare(&client).await;
                let asked = open(&client, f).await;
                client.files().release(asked).await;
                let known = open(&client, f).await;
                change.make(&client, f).await;
                client.files().fsync(known).await.expect("it is durable");
                f
            });
            drop(client);
            world.lose_power(OSTS);
            let client = world.mount();
            assert!(world.run(change.is_kept(&client, f)), "{change:?} is lost");
        }
    }
}

#[test]
fn fsync_keeps_what_came_after_an_fsync_of_the_same_descriptor() {
    for mut world in worlds(1) {
        let client = world.mount();
        let fid = world.run(async {
            let (_, old) = create(&client, b"f").await;
            client.files().release(old).await;
            let (attr, handle) = create(&client, b"tmp").await;
            client.files().write(handle, 0, b"new").await.expect("there is room");
            client.files().fsync(handle).await.expect("it is durable");
            client
                .names()
                .rename(&root(), Fid::ROOT, b"tmp", Fid::ROOT, b"f", 0)
                .await
                .expect("both are there");
            client.files().fsync(handle).await.expect("it is durable");
            attr.fid
        });
        drop(client);
        world.lose_power(OSTS);
        let client = world.mount();
        world.run(async {
            assert_eq!(find(&client, b"f").await.map(|attr| attr.fid), Some(fid));
            assert!(find(&client, b"tmp").await.is_none());
        });
    }
}

/// A pipe, a device and a symbolic link have no fsync of their own: that of their directory keeps them. A file that mknod
/// made has one.
#[test]
fn what_was_made_without_being_opened_is_kept() {
    for mut world in worlds(2) {
        let client = world.mount();
        world.run(async {
            let file = FileKind::File.mode_bits() | 0o600;
            let made = client.names().make(&root(), Fid::ROOT, b"node", file, 0, Bytes::new()).await;
            let handle = open(&client, made.expect("a new file").attr.fid).await;
            client.files().fsync(handle).await.expect("it is durable");
        });
        drop(client);
        world.lose_power(OSTS);
        let client = world.mount();
        assert!(world.run(find(&client, b"node")).is_some());
        world.run(async {
            let link = FileKind::Symlink.mode_bits() | 0o777;
            let fifo = FileKind::Fifo.mode_bits() | 0o600;
            let to = Bytes::from_static(b"f");
            client.names().make(&root(), Fid::ROOT, b"link", link, 0, to).await.expect("a new link");
            client
                .names()
                .make(&root(), Fid::ROOT, b"fifo", fifo, 0, Bytes::new())
                .await
                .expect("a new pipe");
            let dir = client.files().open(&root(), Fid::ROOT, read_only()).await.expect("it is there");
            client.files().fsync(dir).await.expect("it is durable");
        });
        drop(client);
        world.lose_power(OSTS);
        let client = world.mount();
        let kind = |name| world.run(find(&client, name)).map(|attr| attr.mode & MODE_KIND);
        assert_eq!(kind(b"link"), Some(FileKind::Symlink.mode_bits()));
        assert_eq!(kind(b"fifo"), Some(FileKind::Fifo.mode_bits()));
    }
}

/// An fsync asks nobody if everything of its file is durable, whatever was changed of others.
#[test]
fn fsync_of_what_is_durable_costs_nothing() {
    let world = World::remote(3, OSTS);
    let client = world.mount();
    world.run(async {
        let f = prepare(&client).await;
        let handle = client.files().open(&root(), f, read_write()).await.expect("it is there");
        client.files().write(handle, 0, b"more").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        Change::Mode.make(&client, f).await;
        client.files().fsync(handle).await.expect("it is durable");
        create(&client, b"somebody else's").await;
        let sent = || world.sim.node_stats("client").frames_sent;
        let before = sent();
        client.files().fsync(handle).await.expect("it is durable");
        assert_eq!(sent(), before);
        Change::Mode.make(&client, f).await;
        client.files().fsync(handle).await.expect("it is durable");
        assert!(sent() >= before + 2, "the change, and a request for a commit");
    });
}

/// A client tells the changes of 16,384 files apart. With one more it asked the MDT's session what is durable while it held its table of
/// changes, against the order of its locks, which ended a mount with debug assertions.
#[test]
fn more_files_are_changed_than_are_told_apart() {
    let mut world = World::real(4, OSTS);
    let client = world.mount();
    let fifo = FileKind::Fifo.mode_bits() | 0o600;
    world.run(async {
        for n in 0..17_000 {
            let name = format!("fifo{n}");
            let names = client.names();
            names.make(&root(), Fid::ROOT, name.as_bytes(), fifo, 0, Bytes::new()).await.expect("a new pipe");
        }
        let (_, handle) = create(&client, b"f").await;
        client.files().fsync(handle).await.expect("it is durable");
    });
    drop(client);
    world.lose_power(OSTS);
    let client = world.mount();
    assert!(world.run(find(&client, b"f")).is_some());
}
