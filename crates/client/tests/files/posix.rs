//! Rules of POSIX that need more than one operation to be seen.

use std::time::Duration;

use client::{AttrChange, FlockRequest, OpenFlags, TimeSet};
use proto::lock::flock::{Kind, Mode, Range};
use proto::{Code, Fid, Timestamp};

use crate::world::{World, create, read_write, root, user};

fn reader() -> OpenFlags {
    OpenFlags { read: true, ..OpenFlags::default() }
}

/// The kernel opens a program to read and to execute it, on behalf of somebody who may only do the latter.
#[test]
fn what_may_be_executed_and_not_read_is_opened_to_be_executed() {
    let world = World::real(1, 1);
    let client = world.mount();
    world.run(async {
        let (attr, handle) = create(&client, b"program").await;
        client.files().release(handle).await;
        let execute = OpenFlags { execute: true, ..reader() };
        let table = [
            (0o711, 5, Ok(()), Err(Code::AccessDenied)),
            (0o4111, 5, Ok(()), Err(Code::AccessDenied)),
            (0o744, 5, Err(Code::AccessDenied), Ok(())),
            (0o555, 5, Ok(()), Ok(())),
            (0o666, 0, Err(Code::AccessDenied), Ok(())),
            (0o100, 0, Ok(()), Ok(())),
        ];
        for (mode, uid, executes, reads) in table {
            let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
            client.files().setattr(&root(), attr.fid, change, None).await.expect("root may");
            // The second time the mount knows the answer, and the third time the file is open at the MDT.
            for turn in 0..3 {
                for (flags, expected) in [(execute, executes), (reader(), reads)] {
                    let opened = client.files().open(&user(uid), attr.fid, flags).await;
                    let expected = expected.map_err(client::Error::Refused);
                    assert_eq!(opened.map(drop), expected, "{mode:o} by {uid}, turn {turn}: {flags:?}");
                }
            }
        }
    });
}

/// What was read before does not count, whatever the close of the reader brings.
#[test]
fn a_time_of_access_that_is_set_stays() {
    let past = Timestamp { secs: -5, nanos: 0 };
    for world in [World::real(2, 1), World::remote(2, 1)] {
        let client = world.mount();
        world.run(async {
            let (attr, handle) = create(&client, b"f").await;
            client.files().write(handle, 0, b"data").await.expect("there is room");
            client.files().release(handle).await;
            world.hub.rt().sleep(Duration::from_secs(1)).await;
            let handle = client.files().open(&root(), attr.fid, reader()).await.expect("it is there");
            client.files().read(handle, 0, 4).await.expect("it is there");
            let atime = async || client.names().getattr(attr.fid).await.expect("it is there").atime;
            assert!(atime().await > attr.btime);
            let change = AttrChange { atime: Some(TimeSet::At(past)), ..AttrChange::default() };
            client.files().setattr(&root(), attr.fid, change, None).await.expect("root may");
            assert_eq!(atime().await, past);
            client.files().release(handle).await;
            world.hub.rt().sleep(Duration::from_secs(10)).await;
            assert_eq!(atime().await, past);
        });
    }
}

/// close(2) has returned on one mount, and the kernel tells of it some time later: another mount's lock is not refused.
#[test]
fn a_lock_that_goes_with_a_close_is_waited_for() {
    let whole = |kind, mode| FlockRequest { kind, range: Range::ALL, mode: Some(mode), pid: 1 };
    for kind in [Kind::Flock, Kind::Posix] {
        for world in [World::real(3, 1), World::remote(3, 1)] {
            let (one, other) = (world.mount(), world.mount());
            world.run(async {
                let rt = world.hub.rt();
                let (attr, held) = create(&one, b"f").await;
                let asks = other.files().open(&root(), attr.fid, reader()).await.expect("it is there");
                one.flocks().set_lock(held, 7, whole(kind, Mode::Write)).await.expect("nobody has it");
                let refused = Err(client::Error::Refused(Code::WouldBlock));
                let before = rt.now();
                assert_eq!(other.flocks().set_lock(asks, 8, whole(kind, Mode::Read)).await, refused);
                assert!(rt.now() - before < Duration::from_millis(20), "nothing was closed: nobody waits");
                // A descriptor is closed by some process; it was the last one.
                one.flocks().unlock_owner(held, 1).await.expect("it has no such locks");
                let (holder, later) = (one.clone(), rt.clone());
                rt.spawn(async move {
                    later.sleep(Duration::from_millis(30)).await;
                    holder.files().release(held).await;
                });
                let asked = other.flocks().set_lock(asks, 8, whole(kind, Mode::Read)).await;
                asked.expect("the holder has closed the file");
                // It was not the last one: the lock stays, and the wait has an end.
                let (_, again) = create(&one, b"g").await;
                let fid = one.names().lookup(&root(), Fid::ROOT, b"g").await.expect("it is there").fid;
                let asks = other.files().open(&root(), fid, reader()).await.expect("it is there");
                one.flocks().set_lock(again, 7, whole(kind, Mode::Write)).await.expect("nobody has it");
                one.flocks().unlock_owner(again, 1).await.expect("it has no such locks");
                assert_eq!(other.flocks().set_lock(asks, 8, whole(kind, Mode::Read)).await, refused);
            });
        }
    }
}

/// The same for a question: F_GETLK told of a lock that was gone with close(2), on the same mount and on another one.
#[test]
fn a_lock_that_goes_with_a_close_is_not_told_of() {
    for kind in [Kind::Flock, Kind::Posix] {
        let whole = |mode| FlockRequest { kind, range: Range::ALL, mode: Some(mode), pid: 1 };
        for world in [World::real(3, 1), World::remote(3, 1)] {
            let (one, other) = (world.mount(), world.mount());
            world.run(async {
                let rt = world.hub.rt();
                let (attr, _) = create(&one, b"f").await;
                for asker in [&one, &other] {
                    let asks = asker.files().open(&root(), attr.fid, reader()).await.expect("it is there");
                    let held = one.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
                    one.flocks().set_lock(held, 7, whole(Mode::Write)).await.expect("nobody has it");
                    let ask = async || {
                        asker.flocks().get_lock(asks, 8, whole(Mode::Read)).await.expect("an answer")
                    };
                    assert!(ask().await.is_some());
                    // A descriptor is closed by some process; it was the last one.
                    one.flocks().unlock_owner(held, 1).await.expect("it has no such locks");
                    let (holder, later) = (one.clone(), rt.clone());
                    rt.spawn(async move {
                        later.sleep(Duration::from_millis(30)).await;
                        holder.files().release(held).await;
                    });
                    assert_eq!(ask().await, None);
                }
            });
        }
    }
}

/// Somebody works in a directory while it is removed.
#[test]
fn a_directory_that_was_removed_has_attributes_and_no_name() {
    let world = World::real(4, 1);
    let client = world.mount();
    world.run(async {
        let mode = proto::FileKind::Dir.mode_bits() | 0o755;
        let made = client.names().make(&root(), Fid::ROOT, b"d", mode, 0, bytes::Bytes::new()).await;
        let dir = made.expect("a new directory").attr;
        client.names().rmdir(&root(), Fid::ROOT, b"d").await.expect("it is empty");
        let found = client.names().getattr(dir.fid).await.expect("it was removed here").attr;
        assert_eq!((found.nlink, found.mode, found.fid), (0, dir.mode, dir.fid));
    });
}
