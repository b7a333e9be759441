//! O_APPEND: who alone can change a file knows where it ends.

use client::{AttrChange, Client, Handle, OpenFlags};
use proto::Fid;

use crate::world::{World, create, join, read_write, root, striped};

fn appending() -> OpenFlags {
    OpenFlags { append: true, ..read_write() }
}

/// As the mount writes: at once, if there is nothing to wait for; says whether there was not.
async fn append(client: &Client, handle: Handle, data: &[u8]) -> bool {
    let done = client.files().write_at_once(handle, 0, data).expect("there is room");
    if done.is_none() {
        assert_eq!(client.files().write(handle, 0, data).await, Ok(data.len() as u32));
    }
    done.is_some()
}

async fn cut(client: &Client, fid: Fid, size: u64) {
    let change = AttrChange { size: Some(size), ..AttrChange::default() };
    client.files().setattr(&root(), fid, change, None).await.expect("root may");
}

/// Each append asked every object of the file how long it is, although nobody else could change that.
#[test]
fn appends_of_one_client_ask_for_the_size_once() {
    let world = World::new(1, 3);
    let client = world.mount();
    world.run(async {
        let fid = striped(&client, 3).await;
        let handle = client.files().open(&root(), fid, appending()).await.expect("it is there");
        let asked = || world.osts.iter().map(|ost| ost.counts().attrs).collect::<Vec<_>>();
        append(&client, handle, b"0000").await;
        assert_eq!(asked(), [1, 1, 1]);
        let at_once = async |from: u64, until: u64| {
            for n in from..until {
                assert!(append(&client, handle, format!("{n:04}").as_bytes()).await, "append {n}");
            }
        };
        at_once(1, 5000).await;
        client.files().flush(handle).await.expect("the OSTs take it");
        at_once(5000, 5010).await;
        assert_eq!(asked(), [0, 0, 0]);
        let expected: Vec<u8> = (0..5010).flat_map(|n| format!("{n:04}").into_bytes()).collect();
        assert_eq!(join(&client.files().read(handle, 0, 1 << 20).await.expect("it can be read")), expected);
        // Its own changes of the size are seen.
        cut(&client, fid, 10).await;
        asked();
        append(&client, handle, b"end").await;
        assert!(append(&client, handle, b".").await);
        assert_eq!(asked(), [1, 1, 1]);
        let other = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(other, 20, b"far").await.expect("there is room");
        assert!(append(&client, handle, b"!").await);
        assert_eq!(asked(), [0, 0, 0]);
        let read = join(&client.files().read(handle, 0, 100).await.expect("it can be read"));
        assert_eq!(read, b"0000000100end.\0\0\0\0\0\0far!");
    });
}

#[test]
fn what_is_lost_with_an_ost_is_not_counted() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let fid = striped(&client, 1).await;
        let handle = client.files().open(&root(), fid, appending()).await.expect("it is there");
        append(&client, handle, b"kept").await;
        client.files().flush(handle).await.expect("the OST takes it");
        append(&client, handle, b"lost").await;
        world.osts[0].evict();
        client.files().flush(handle).await.expect_err("the OST does not know this client");
        append(&client, handle, b", and so on").await;
        client.files().flush(handle).await.expect("the OST takes it");
        let read = join(&client.files().read(handle, 0, 100).await.expect("it can be read"));
        assert_eq!(String::from_utf8_lossy(&read), "kept, and so on");
    });
}

/// Two that append in turn take the file from each other; whoever has it asks once.
#[test]
fn appends_of_two_clients_lie_one_behind_the_other() {
    let world = World::real(1, 2);
    let clients = [world.mount(), world.mount()];
    world.run(async {
        let (attr, _) = create(&clients[0], b"f").await;
        let mut handles = Vec::new();
        for client in &clients {
            handles.push(client.files().open(&root(), attr.fid, appending()).await.expect("it is there"));
        }
        let mut expected = Vec::new();
        let asked =
            || clients.iter().map(|client| client.admin().counters().get("rpc.GetObjectAttr").copied());
        let asked = || asked().flatten().sum::<u64>();
        let (before, rounds) = (asked(), 40);
        for round in 0..rounds {
            for (n, (client, handle)) in clients.iter().zip(&handles).enumerate() {
                for _ in 0..round % 3 + 1 {
                    let data = format!("{n}:{round};");
                    append(client, *handle, data.as_bytes()).await;
                    expected.extend(data.into_bytes());
                }
            }
            if round % 10 == 5 {
                cut(&clients[round / 10 % 2], attr.fid, 7).await;
                expected.truncate(7);
            }
        }
        let sent = asked() - before;
        for (client, handle) in clients.iter().zip(&handles) {
            let read = join(&client.files().read(*handle, 0, 1 << 16).await.expect("it can be read"));
            assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(&expected));
        }
        // Once for each turn, besides the cuts; some come when the bytes are taken from each other.
        assert!(sent <= 3 * rounds as u64, "{sent} questions in {} turns", 2 * rounds);
    });
}
