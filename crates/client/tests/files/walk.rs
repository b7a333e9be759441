//! Paths, and what system calls mean ([`client::posix`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::posix::{AccessTimes, Errno, Posix, Process, WriteRequest};
use client::{AttrChange, Client, Handle, Limits};
use proto::{Fid, FileKind};

use crate::world::{World, join, make, root, user};

const WRONLY: i32 = 1;
const CREAT_RDWR: i32 = 0o102;
const APPEND: i32 = 0o2000;

fn posix(client: Arc<Client>) -> Posix {
    Posix::new(client, AccessTimes::default())
}

#[test]
fn paths_lead_where_they_do_on_linux() {
    let world = World::new(1, 1);
    let posix = posix(world.mount());
    world.run(async {
        let client = posix.client();
        let d = make(client, Fid::ROOT, b"d", FileKind::Dir, b"").await;
        let e = make(client, d, b"e", FileKind::Dir, b"").await;
        let f = make(client, e, b"f", FileKind::File, b"").await;
        let up = make(client, e, b"up", FileKind::Symlink, b"../e/./f").await;
        make(client, d, b"abs", FileKind::Symlink, b"/d//e").await;
        make(client, d, b"loop", FileKind::Symlink, b"loop").await;
        make(client, d, b"gone", FileKind::Symlink, b"nowhere").await;
        let process = Process::new(root());
        let leads = async |process: &Process, path: &[u8], follow| {
            posix.walk(process, path, follow).await.map(|walked| walked.found.map(|found| found.fid))
        };
        let (yes, here) = (true, Process { working_directory: e, ..process.clone() });
        for (path, expected) in [
            (&b"/"[..], Ok(Some(Fid::ROOT))),
            (b"/..", Ok(Some(Fid::ROOT))),
            (b"d", Ok(Some(d))),
            (b"//d/./e/", Ok(Some(e))),
            (b"/d/e/../e/f", Ok(Some(f))),
            (b"/d/e/up", Ok(Some(f))),
            (b"/d/abs/up", Ok(Some(f))),
            (b"/d/abs/", Ok(Some(e))),
            (b"/d/e/nothing", Ok(None)),
            (b"/d/gone", Ok(None)),
            (b"/d/nothing/f", Err(Errno(libc::ENOENT))),
            (b"/d/gone/f", Err(Errno(libc::ENOENT))),
            (b"", Err(Errno(libc::ENOENT))),
            (b"/d/e/f/", Err(Errno::NOT_DIRECTORY)),
            (b"/d/e/f/x", Err(Errno::NOT_DIRECTORY)),
            (b"/d/loop", Err(Errno(libc::ELOOP))),
            (&[b'a'; 5000], Err(Errno(libc::ENAMETOOLONG))),
        ] {
            assert_eq!(leads(&process, path, yes).await, expected, "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(leads(&process, b"/d/e/up", false).await, Ok(Some(up)), "the link itself");
        assert_eq!(leads(&here, b"up", yes).await, Ok(Some(f)), "from a working directory");
        assert_eq!(leads(&here, b"../../d", yes).await, Ok(Some(d)));
        let below = Process { root: d, working_directory: d, ..process.clone() };
        assert_eq!(leads(&below, b"/../e/f", yes).await, Ok(Some(f)), "nothing is above a process's root");
        assert_eq!(
            leads(&below, b"abs/f", yes).await,
            Err(Errno(libc::ENOENT)),
            "its absolute links begin there"
        );
        let walked = posix.walk(&process, b"/d/e/new", yes).await.expect("its directory is there");
        assert_eq!((walked.parent, &walked.name[..]), (e, &b"new"[..]));
    });
}

#[test]
fn who_may_not_search_a_directory_goes_no_further() {
    let world = World::new(1, 1);
    let posix = posix(world.mount());
    world.run(async {
        let client = posix.client();
        let closed = FileKind::Dir.mode_bits() | 0o700;
        let dir =
            client.names().make(&root(), Fid::ROOT, b"d", closed, 0, Bytes::new()).await.expect("new").fid;
        make(client, dir, b"f", FileKind::File, b"").await;
        let walked = posix.walk(&Process::new(user(1000)), b"/d/f", true).await;
        assert_eq!(walked, Err(Errno(libc::EACCES)));
    });
}

/// What a mapping has changed is written where its page is, though the only handle writes at the end.
#[test]
fn pages_are_written_where_they_are_whatever_handles_do() {
    let world = World::new(1, 1);
    let posix = posix(world.mount());
    world.run(async {
        let (told, handle) =
            posix.create(&root(), Fid::ROOT, b"f", 0o644, CREAT_RDWR | APPEND).await.expect("a new file");
        let fid = told.fid;
        drop(told);
        let write = |handle: Handle, offset, flags, cached| WriteRequest {
            fid,
            handle,
            offset,
            flags,
            cached,
            kill_privileges: false,
        };
        posix.write(&root(), write(handle, 0, APPEND | WRONLY, false), b"one").await.expect("there is room");
        posix.write(&root(), write(handle, 0, APPEND | WRONLY, false), b"two").await.expect("there is room");
        // F_SETFL has taken O_APPEND away.
        posix.write(&root(), write(handle, 1, WRONLY, false), b"N").await.expect("there is room");
        posix.write(&root(), write(handle, 3, WRONLY, true), b"T").await.expect("there is room");
        let read = posix.client().files().read(handle, 0, 100).await.expect("it can be read");
        assert_eq!(join(&read), b"oNeTwo");
        posix.release(handle).await;
    });
}

/// What takes set-user-id away is who writes, and not who opened the file.
#[test]
fn whoever_writes_decides_about_set_user_id() {
    let world = World::new(1, 1);
    let posix = posix(world.mount());
    world.run(async {
        let (told, handle) =
            posix.create(&root(), Fid::ROOT, b"f", 0o666, CREAT_RDWR).await.expect("a new file");
        let fid = told.fid;
        drop(told);
        posix.release(handle).await;
        // The first write through each handle looks for capabilities.
        let set = posix.client().names().set_xattr(&root(), fid, b"user.a", b"1"[..].into(), 0).await;
        set.expect("root may");
        let set = AttrChange { mode: Some(0o4777), uid: Some(5), ..AttrChange::default() };
        let mode = async || posix.client().names().getattr(fid).await.expect("it is there").mode & 0o7777;
        for (opener, writers, expected) in [
            (root(), [(root(), 0o4777), (user(5), 0o777)], 0o777),
            (user(5), [(root(), 0o4777), (user(5), 0o777)], 0o777),
            (user(5), [(root(), 0o4777), (root(), 0o4777)], 0o4777),
        ] {
            posix.setattr(&root(), fid, set.clone(), None).await.map(drop).expect("root may");
            let handle = posix.open(&opener, fid, WRONLY).await.expect("everybody may");
            for (writer, expected) in writers {
                let kill_privileges = writer.uid != 0;
                let request =
                    WriteRequest { fid, handle, offset: 0, flags: WRONLY, cached: false, kill_privileges };
                if posix.write_at_once(&request, b"data").expect("there is room").is_none() {
                    posix.write(&writer, request, b"data").await.expect("there is room");
                }
                assert_eq!(mode().await, expected, "{} writes", writer.uid);
            }
            posix.release(handle).await;
            assert_eq!(mode().await, expected);
        }
    });
}

/// Another mount sets them while the file is open here, and this one was not asked for its mode since.
#[test]
fn set_user_id_that_another_mount_has_set_is_taken_away() {
    let world = World::new(1, 1);
    let (here, other) = (posix(world.mount()), posix(world.mount()));
    world.run(async {
        let (told, handle) =
            here.create(&root(), Fid::ROOT, b"f", 0o666, CREAT_RDWR).await.expect("a new file");
        let fid = told.fid;
        drop(told);
        let asked = || {
            let counters = here.client().admin().counters();
            ["GetAttr", "SetAttr"].map(|name| counters.get(&format!("rpc.{name}")).copied().unwrap_or(0))
        };
        let write = async |offset| {
            let request =
                WriteRequest { fid, handle, offset, flags: WRONLY, cached: false, kill_privileges: true };
            if here.write_at_once(&request, b"data").expect("there is room").is_none() {
                here.write(&user(5), request, b"data").await.expect("there is room");
            }
        };
        for set in [0o4777, 0o2777, 0o6777] {
            write(0).await;
            let mode = AttrChange { mode: Some(set), ..AttrChange::default() };
            other.setattr(&root(), fid, mode, None).await.map(drop).expect("root may");
            write(0).await;
            let mode = other.client().names().getattr(fid).await.expect("it is there").mode & 0o7777;
            assert_eq!(mode, 0o777, "{set:o}");
        }
        // A file that others write to as well is looked at once.
        let there = other.open(&root(), fid, WRONLY).await.expect("root may");
        write(0).await;
        let before = asked();
        for n in 1..50 {
            let request = WriteRequest {
                fid,
                handle: there,
                offset: n * 8192,
                flags: WRONLY,
                cached: false,
                kill_privileges: false,
            };
            other.write(&root(), request, b"data").await.expect("there is room");
            write(n * 8192 + 4096).await;
        }
        assert_eq!(asked(), before);
    });
}

/// Other mounts replace what a name means, faster than this one can look it up and open it: what is held stays, with or without a name.
#[test]
fn what_a_name_means_that_others_replace_all_the_time_can_be_held() {
    let world = World::remote(1, 1);
    let posix = posix(world.mount());
    world.run(async {
        make(posix.client(), Fid::ROOT, b"busy", FileKind::File, b"").await;
        for name in [b"a", b"b", b"c"] {
            let client = world.mounted(Limits::default()).await;
            world.sim.rt("client").spawn(replace(client, name));
        }
        let mut gone = 0;
        for _ in 0..100 {
            let held = posix.hold_name(&root(), Fid::ROOT, b"busy").await;
            let (fid, held) = held.expect("there is always one");
            world.sim.rt("client").sleep(Duration::from_millis(5)).await;
            let told = posix.client().names().getattr(fid).await.expect("it is held");
            assert_eq!(told.fid, fid);
            drop(told);
            let handle = posix.open(&root(), fid, WRONLY).await.expect("it is held");
            posix.release_held(held.expect("a regular file")).await;
            posix.release(handle).await;
            // What the kernel does by itself.
            let found = posix.client().names().lookup(&root(), Fid::ROOT, b"busy").await.map(|told| told.fid);
            match posix.open(&root(), found.expect("there is always one"), 0).await {
                Ok(handle) => posix.release(handle).await,
                Err(error) => {
                    assert_eq!(error, Errno(libc::ESTALE));
                    gone += 1;
                }
            }
        }
        assert!(gone > 0, "the name was replaced too slowly for the test");
    });
}

async fn replace(client: Arc<Client>, name: &'static [u8; 1]) {
    loop {
        make(&client, Fid::ROOT, name, FileKind::File, b"").await;
        let moved = client.names().rename(&root(), Fid::ROOT, name, Fid::ROOT, b"busy", 0).await;
        moved.expect("root may");
    }
}
