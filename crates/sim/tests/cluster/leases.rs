//! Clients and their leases: who is cut off shows nothing old, who holds nothing says nothing.

use std::sync::Arc;
use std::time::Duration;

use client::{Allocation, AttrChange, Client, Error, FlockRequest, Handle};
use proto::layout::LayoutHint;
use proto::lock::flock::{Kind, Mode, Range};
use proto::{Code, Fid};
use rpc::Habits;
use rt::sim::Handle as World;
use rt::sync::oneshot;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scripted;
use weft_sim::workload::{READ_WRITE, root};

use crate::replaced::set;

/// A lease is over by then.
const LEASE: Duration = Duration::from_secs(16);

fn check(test: impl AsyncFnOnce(&Cluster, &World)) {
    with_cluster(1, Shape { osts: 2, osts_per_oss: 1 }, async |cluster| {
        test(cluster, cluster.handle()).await;
    });
}

async fn sleep(world: &World, duration: Duration) {
    world.rt("clock").sleep(duration).await;
}

async fn make(client: &Client, name: &str) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

async fn read(client: &Client, handle: Handle) -> Vec<u8> {
    client.files().read(handle, 0, 100).await.expect("what is healthy can be read").concat()
}

async fn mode(client: &Client, fid: Fid) -> u32 {
    client.names().getattr(fid).await.expect("it is there").mode & 0o777
}

/// Runs `work` on a node; its result comes when it comes.
fn on<T: Send + 'static>(
    world: &World,
    node: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    world.rt(node).spawn(async move {
        let _ = done.send(work.await);
    });
    result
}

#[test]
fn who_is_cut_off_from_everybody_shows_nothing_old() {
    scripted::cut_off_reader(Habits::TODAY, &["mgs", "mds", "oss0", "oss1"]);
}

#[test]
fn who_reaches_the_mgs_alone_is_told_what_to_drop() {
    scripted::cut_off_reader(Habits::TODAY, &["mds", "oss0", "oss1"]);
}

/// Every create of such a client was refused, for ever: it went on with FIDs of a session that was over, because nothing else
/// was lost with it.
#[test]
fn who_was_given_up_and_lost_nothing_makes_new_files() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        let (fid, handle) = make(&one, "f").await;
        one.sync_all().await.expect("what is healthy can be synced");
        assert_eq!(mode(&one, fid).await, 0o644);
        ["mgs", "mds"].iter().for_each(|server| world.partition("one", server));
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        let before = one.admin().held().sessions;
        other.files().setattr(&root(), fid, change, None).await.expect("nobody waits for who is given up");
        world.heal_all();
        one.sync_all().await.expect("nothing was lost");
        assert_eq!(mode(&one, fid).await, 0o600);
        assert_ne!(one.admin().held().sessions, before, "it was evicted");
        let _ = make(&one, "g").await;
        one.files().release(handle).await;
    });
}

/// The MDT has closed what it had open for writing. It is opened again, or others would take a size for known that is not.
#[test]
fn who_was_given_up_and_lost_nothing_goes_on_writing() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        let (fid, handle) = make(&one, "f").await;
        one.files().write(handle, 0, b"mine").await.expect("there is room");
        one.files().fsync(handle).await.expect("it is healthy");
        ["mgs", "mds"].iter().for_each(|server| world.partition("one", server));
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        other.files().setattr(&root(), fid, change, None).await.expect("nobody waits for who is given up");
        world.heal_all();
        one.sync_all().await.expect("nothing was lost");
        sleep(world, Duration::from_secs(5)).await;
        let writing = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        other.files().write(writing, 0, b"x").await.expect("there is room");
        other.files().release(writing).await;
        other.sync_all().await.expect("it is healthy");
        sleep(world, Duration::from_secs(5)).await;
        one.files().write(handle, 4, b"more").await.expect("it is open");
        one.files().fsync(handle).await.expect("it is healthy");
        let found = other.names().getattr(fid).await.expect("it is there").size;
        assert_eq!(found, 8, "what was written afterwards is seen");
        one.files().release(handle).await;
    });
}

/// All calls but write(2) that change a file, at the same time.
fn others_that_write(
    world: &World,
    client: &Arc<Client>,
    (fid, handle): (Fid, Handle),
) -> Vec<(&'static str, oneshot::Receiver<client::Result<()>>)> {
    let change = |client: Arc<Client>, what| async move {
        let files = client.files();
        match what {
            "a hole" => files.allocate(handle, 0, 4, Allocation::PunchHole).await,
            "zeros" => files.allocate(handle, 0, 4, Allocation::Zero { keep_size: true }).await,
            "a longer file" => files.allocate(handle, 0, 100, Allocation::Reserve { keep_size: false }).await,
            "a copy" => files.copy_range((handle, 0), (handle, 4), 4).await.map(|_| ()),
            _ => {
                let cut = AttrChange { size: Some(0), ..AttrChange::default() };
                files.setattr(&root(), fid, cut, Some(handle)).await.map(|_| ())
            }
        }
    };
    ["a hole", "zeros", "a longer file", "a copy", "a cut"]
        .map(|what| (what, on(world, "one", change(client.clone(), what))))
        .into()
}

/// Whoever had a file for himself alone must not write to it when another one may have it; and a handle that was closed meanwhile is open nowhere.
#[test]
fn who_has_lost_a_lock_does_not_write_any_more() {
    check(async |cluster, world| {
        let (rt, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        let (fid, handle) = make(&one, "f").await;
        let mut closed = Vec::new();
        for n in 0..100 {
            closed.push(make(&one, &format!("g{n}")).await);
        }
        one.files().write(handle, 0, b"mine").await.expect("there is room");
        one.sync_all().await.expect("it is healthy");
        let lock = FlockRequest { kind: Kind::Flock, range: Range::ALL, mode: Some(Mode::Write), pid: 1 };
        one.flocks().set_lock(handle, 1, lock).await.expect("nobody has it");
        let before = one.admin().held().sessions;
        ["mgs", "mds"].iter().for_each(|server| world.partition("one", server));
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        other.files().setattr(&root(), fid, change, None).await.expect("nobody waits for who is given up");
        let client = one.clone();
        let waiting = on(world, "one", async move { client.files().write(handle, 0, b"late").await });
        let late = others_that_write(world, &one, (fid, handle));
        let tries = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        other.flocks().set_lock(tries, 2, lock).await.expect("it is free");
        other.files().write(tries, 0, b"his!").await.expect("there is room");
        world.heal_all();
        // Some before they are opened again, some while they are, and some afterwards.
        let (client, ends) = (one.clone(), closed.clone());
        let closing = on(world, "one", async move {
            while client.admin().held().sessions == before {
                rt.sleep(Duration::from_micros(100)).await;
            }
            for (_, handle) in ends {
                client.files().release(handle).await;
                rt.sleep(Duration::from_micros(20)).await;
            }
        });
        closing.await.expect("it lives");
        sleep(world, Duration::from_secs(5)).await;
        let evicted = Err(Error::Refused(Code::Evicted));
        assert_eq!(waiting.await.expect("it lives"), evicted, "it has waited for the lease");
        for (what, waiting) in late {
            assert_eq!(
                waiting.await.expect("it lives"),
                evicted.map(|_| ()),
                "{what} has waited for it, too"
            );
        }
        assert_eq!(one.files().write(handle, 0, b"late").await, evicted, "another one has the lock");
        let cut = AttrChange { size: Some(0), ..AttrChange::default() };
        let cut = one.files().setattr(&root(), fid, cut, Some(handle)).await;
        assert_eq!(cut.err(), Some(Error::Refused(Code::Evicted)));
        let read = other.files().read(tries, 0, 100).await.expect("it can be read");
        assert_eq!(read.concat(), b"his!");
        assert_eq!(one.files().write(handle, 0, b"late").await, evicted, "for as long as it is open");
        one.files().release(handle).await;
        let (again, copy) = (one.files().open(&root(), fid, READ_WRITE).await, 1);
        one.files().write(again.expect("root may open"), 0, b"anew").await.expect("it is another handle");
        for (fid, _) in closed {
            other.hsm_begin_archive(fid, copy).await.expect("nobody has it open");
        }
    });
}

/// It goes on as before when the MGS is there again: nobody was told that it is dead.
#[test]
fn who_is_cut_off_from_the_mgs_alone_loses_nothing() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        let (_, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"mine").await.expect("there is room");
        world.partition("c", "mgs");
        sleep(world, LEASE).await;
        let reading = client.clone();
        let mut bytes = on(world, "c", async move { read(&reading, handle).await });
        sleep(world, Duration::from_secs(60)).await;
        assert!(bytes.try_recv().is_err(), "nothing is used without a lease");
        assert_eq!(client.admin().lease().lapses, 1);
        world.heal("c", "mgs");
        assert_eq!(bytes.await.expect("it goes on"), b"mine");
        client.sync_all().await.expect("nothing is lost");
    });
}

/// A new file with one stripe, on this OST, with `data` in it.
async fn file_on(client: &Client, ost: u32, data: &[u8]) -> (Fid, Handle) {
    let hint = LayoutHint { start_index: ost as i32, stripe_count: 1, ..LayoutHint::default() };
    let name = format!("f{ost}");
    let made = client
        .names()
        .create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint)
        .await
        .expect("the OST is there");
    let handle = client.files().open(&root(), made.fid, READ_WRITE).await.expect("root may open");
    client.files().write(handle, 0, data).await.expect("there is room");
    (made.fid, handle)
}

/// The MGS was away for so long that the lease was over, and has forgotten the client; an OST stays away. Every read and write of every
/// file waited for that OST.
#[test]
fn an_ost_that_stays_away_after_a_restart_of_the_mgs_holds_up_nobody_else() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        cluster.osts_are_known(&client).await;
        let (fid, here) = file_on(&client, 0, b"mine").await;
        let (_, there) = file_on(&client, 1, b"gone").await;
        client.sync_all().await.expect("what is healthy can be synced");
        client.files().write(there, 0, b"kept").await.expect("there is room");
        cluster.kill("mgs");
        sleep(world, Duration::from_secs(20)).await;
        cluster.kill("oss1");
        cluster.restart(&["mgs".to_owned()]);
        let using = client.clone();
        let mut used = on(world, "c", async move {
            let bytes = read(&using, here).await;
            using.files().write(here, 0, b"more").await.expect("there is room");
            using.files().fsync(here).await.expect("its OST is there");
            assert_eq!(mode(&using, fid).await, 0o644);
            bytes
        });
        let reading = client.clone();
        let mut waits = on(world, "c", async move { read(&reading, there).await });
        sleep(world, Duration::from_secs(30)).await;
        assert_eq!(used.try_recv().expect("it waits for an OST that it has no need of").as_slice(), b"mine");
        let root_mode = mode(&client, Fid::ROOT).await;
        let before = world.node_stats("c").frames_sent;
        assert_eq!(read(&client, here).await, b"more");
        assert_eq!(mode(&client, Fid::ROOT).await, root_mode);
        assert_eq!(world.node_stats("c").frames_sent, before, "what is held of the others is used");
        // Another restart, so that the OST is to be looked at anew.
        cluster.kill("mgs");
        sleep(world, Duration::from_secs(20)).await;
        cluster.restart(&["mgs".to_owned()]);
        sleep(world, Duration::from_secs(30)).await;
        assert_eq!(read(&client, here).await, b"more");
        assert!(waits.try_recv().is_err(), "nothing is used of an OST that may have given this client up");
        cluster.restart(&["oss1".to_owned()]);
        assert_eq!(waits.await.expect("it goes on"), b"kept");
        client.sync_all().await.expect("nothing is lost");
    });
}

/// The MGS that told an OST so is not there any more when the client is: nothing old is read, and files on other OSTs are used.
#[test]
fn who_was_given_up_and_is_not_told_uses_nothing_of_the_ost_before_it_answers() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&one).await;
        let (_, here) = file_on(&one, 0, b"mine").await;
        let (fid, there) = file_on(&one, 1, b"mine").await;
        one.sync_all().await.expect("what is healthy can be synced");
        ["mgs", "oss1"].iter().for_each(|server| world.partition("one", server));
        let opened = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        other.files().write(opened, 0, b"ours").await.expect("nobody waits for who is given up");
        cluster.kill("mgs");
        cluster.restart(&["mgs".to_owned()]);
        world.heal("one", "mgs");
        let reading = one.clone();
        let mut waits = on(world, "one", async move { read(&reading, there).await });
        sleep(world, Duration::from_secs(30)).await;
        assert_eq!(read(&one, here).await, b"mine");
        assert!(waits.try_recv().is_err(), "it was given up");
        world.heal("one", "oss1");
        assert_eq!(waits.await.expect("it goes on"), b"ours");
    });
}

/// Who waits for such an OST is refused as soon as an operator has nobody ask it.
#[test]
fn an_ost_that_was_not_seen_again_and_is_not_to_be_asked_is_refused() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        cluster.osts_are_known(&client).await;
        let (_, there) = file_on(&client, 1, b"gone").await;
        client.sync_all().await.expect("what is healthy can be synced");
        cluster.kill("mgs");
        sleep(world, Duration::from_secs(20)).await;
        cluster.kill("oss1");
        cluster.restart(&["mgs".to_owned()]);
        let reading = client.clone();
        let mut waits = on(world, "c", async move { reading.files().read(there, 0, 100).await });
        sleep(world, Duration::from_secs(30)).await;
        assert!(waits.try_recv().is_err(), "the OST may come back");
        set(&client, "osc.*-OST0001-*.active", "0").await;
        sleep(world, Duration::from_secs(1)).await;
        let told = waits.try_recv().expect("it is told at once");
        assert_eq!(told.err(), Some(Error::Refused(Code::Inactive)));
        let (_, here) = file_on(&client, 0, b"mine").await;
        assert_eq!(read(&client, here).await, b"mine");
    });
}

#[test]
fn who_holds_nothing_says_nothing() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        sleep(world, Duration::from_secs(40)).await;
        let frames = || world.node_stats("c").frames_sent;
        let before = frames();
        sleep(world, Duration::from_secs(600)).await;
        assert_eq!(frames(), before, "it holds nothing");
        let mut handles = Vec::new();
        for n in 0..8 {
            let (_, handle) = make(&client, &format!("f{n}")).await;
            client.files().write(handle, 0, b"data").await.expect("there is room");
            handles.push(handle);
        }
        client.sync_all().await.expect("what is healthy can be synced");
        sleep(world, Duration::from_secs(40)).await;
        let (before, renewals) = (frames(), client.admin().lease().renewals);
        sleep(world, Duration::from_secs(600)).await;
        let (sent, renewed) = (frames() - before, client.admin().lease().renewals - renewals);
        assert!(
            (119..=121).contains(&renewed),
            "{renewed} in ten minutes, whatever it holds, of however many"
        );
        // The questions for news of the configuration, one in 29 s, come on top; sent twice they would be 42.
        assert!(sent <= renewed + 35, "{sent} messages in ten minutes");
    });
}

#[test]
fn who_does_nothing_for_long_gives_back_what_it_keeps() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        let (fid, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        client.files().release(handle).await;
        client.names().getattr(fid).await.expect("it is there");
        sleep(world, Duration::from_secs(500)).await;
        assert!(
            client.admin().lease().number != 0 && !client.admin().held().ranges.is_empty(),
            "it may come in useful"
        );
        sleep(world, Duration::from_secs(200)).await;
        assert_eq!((client.admin().lease().number, client.admin().held().ranges.len()), (0, 0));
        let before = world.node_stats("c").frames_sent;
        sleep(world, Duration::from_secs(3600)).await;
        assert_eq!(world.node_stats("c").frames_sent, before, "it holds nothing");
        let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("it is there");
        assert_eq!(read(&client, handle).await, b"data");
        assert!(client.admin().lease().number != 0);
    });
}

#[test]
fn who_is_drained_holds_nothing_and_can_go_on() {
    check(async |cluster, _| {
        let (_, client) = cluster.mount("c").await;
        let (fid, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        let held = || {
            let granted = cluster.granted();
            granted.values().map(|target| target.held.len()).sum::<usize>()
        };
        let left = client.drain().await.expect("what is healthy can be drained");
        assert_eq!((left.open_count, left.open_files, left.unsent_bytes), (1, vec![fid], 0), "it is open");
        assert_eq!(held(), 0, "with the file open, too");
        assert!(client.admin().lease().number != 0, "an open file is held");
        client.files().release(handle).await;
        client.names().getattr(fid).await.expect("it is there");
        let before = client.admin().held();
        assert!(held() > 0 && !before.bits.is_empty(), "what is used again is held again");
        let left = client.drain().await.expect("what is healthy can be drained");
        assert_eq!((left.open_count, left.locks, left.unsent_bytes), (0, 0, 0));
        assert_eq!((held(), client.admin().lease().number), (0, 0));
        let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("it is there");
        assert_eq!(read(&client, handle).await, b"data");
        client.files().write(handle, 0, b"more").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
    });
}

/// A request that waits for long (the question for news of the configuration) is looked at late; renewals behind it are not.
#[test]
fn who_reaches_the_mgs_again_has_its_lease_soon() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        let (_, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"mine").await.expect("there is room");
        for _ in 0..5 {
            world.partition_one_way("c", "mgs");
            sleep(world, LEASE).await;
            world.heal_all();
            let back = world.now();
            assert_eq!(read(&client, handle).await, b"mine");
            assert!(world.now() - back < Duration::from_secs(6), "{:?}", world.now() - back);
            sleep(world, Duration::from_secs(17)).await;
        }
    });
}

/// Its answer to a callback was lost with the connection, and it has nothing to ask: the MGS has it show up.
#[test]
fn who_does_not_know_that_somebody_waits_is_told() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        let (fid, handle) = make(&one, "f").await;
        one.files().write(handle, 0, b"mine").await.expect("there is room");
        one.sync_all().await.expect("what is healthy can be synced");
        let opened = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        ["oss0", "oss1"].iter().for_each(|server| world.partition_one_way("one", server));
        let writing = other.clone();
        let written = on(world, "other", async move { writing.files().write(opened, 0, b"ours").await });
        sleep(world, Duration::from_secs(60)).await;
        world.heal_all();
        let back = world.now();
        written.await.expect("its node is up").expect("it can be written");
        assert!(world.now() - back < Duration::from_secs(20), "{:?}", world.now() - back);
        assert_eq!(read(&one, handle).await, b"ours");
        one.sync_all().await.expect("nothing was lost");
    });
}

/// What it held was given to somebody else when its goodbye came; that one could not state it again after a restart, if who had
/// left did so, and what it had not sent yet was not seen by others.
#[test]
fn who_has_left_states_nothing_again() {
    for moment in 0..40 {
        check(async |cluster, world| {
            let servers = ["oss0".to_owned(), "oss1".to_owned()];
            let (_, one) = cluster.mount("one").await;
            let (_, other) = cluster.mount("other").await;
            let (_, third) = cluster.mount("third").await;
            let (fid, handle) = make(&one, "f").await;
            one.files().write(handle, 0, b"mine").await.expect("there is room");
            one.files().release(handle).await;
            one.sync_all().await.expect("what is healthy can be synced");
            let opened = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
            other.files().write(opened, 100, b"far").await.expect("there is room");
            other.sync_all().await.expect("what is healthy can be synced");
            let leaving = on(world, "one", async move { one.unmount().await });
            sleep(world, Duration::from_micros(100) * moment).await;
            servers.iter().for_each(|server| world.partition_one_way(server, "one"));
            sleep(world, Duration::from_millis(5)).await;
            let writing = other.clone();
            let written =
                on(world, "other", async move { writing.files().write(opened, 0, &[1; 200]).await });
            sleep(world, Duration::from_millis(20)).await;
            cluster.cut_power(&servers);
            world.heal_all();
            cluster.restart(&servers);
            written.await.expect("its node is up").expect("it can be written");
            let size = third.names().getattr(fid).await.expect("it is there").size;
            assert_eq!(size, 200, "moment {moment}");
            leaving.await.expect("its node is up").expect("it has nothing to lose");
        });
    }
}

/// Nobody answered goodbyes, so each unmount took three seconds.
#[test]
fn goodbyes_are_answered() {
    check(async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        let (_, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"mine").await.expect("there is room");
        client.sync_all().await.expect("what is healthy can be synced");
        let before = world.now();
        client.unmount().await.expect("it has nothing to lose");
        let taken = world.now() - before;
        assert!(taken < Duration::from_millis(100), "{taken:?}");
    });
}

/// An MGS that had just restarted did not take the goodbye of a client that it had not heard of yet, and an MDT that restarted then waited for
/// that client until the MGS knew again who lived.
#[test]
fn who_says_goodbye_to_a_new_mgs_is_not_waited_for() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, other) = cluster.mount("other").await;
        let (fid, handle) = make(&one, "f").await;
        one.files().write(handle, 0, b"mine").await.expect("there is room");
        one.files().release(handle).await;
        one.sync_all().await.expect("what is healthy can be synced");
        cluster.kill("mgs");
        cluster.restart(&["mgs".to_owned()]);
        one.unmount().await.expect("it has nothing to lose");
        // Its goodbye is not durable there.
        cluster.cut_power(&["mds".to_owned()]);
        cluster.restart(&["mds".to_owned()]);
        let before = world.now();
        assert_eq!(mode(&other, fid).await, 0o644);
        let waited = world.now() - before;
        assert!(waited < Duration::from_secs(5), "{waited:?}");
    });
}

/// Locks of applications are all that it holds after the restart: nothing else of it is in anybody's way.
fn lock_of_a_dead_client(take: impl AsyncFnOnce(&Arc<Client>, &World, Fid, FlockRequest)) {
    check(async |cluster, world| {
        let (_, dead) = cluster.mount("dead").await;
        let (_, client) = cluster.mount("c").await;
        let (fid, handle) = make(&dead, "f").await;
        let lock = FlockRequest { kind: Kind::Flock, range: Range::ALL, mode: Some(Mode::Write), pid: 1 };
        dead.flocks().set_lock(handle, 1, lock).await.expect("nobody has it");
        dead.sync_all().await.expect("what is healthy can be synced");
        cluster.kill("mds");
        cluster.restart(&["mds".to_owned()]);
        assert_eq!(mode(&dead, fid).await, 0o644);
        let tries = client.files().open(&root(), fid, READ_WRITE).await.expect("root may");
        let refused = client.flocks().set_lock(tries, 2, lock).await;
        assert_eq!(refused, Err(Error::Refused(Code::WouldBlock)), "it lives");
        client.files().release(tries).await;
        drop(dead);
        world.kill("dead");
        take(&client, world, fid, lock).await;
    });
}

#[test]
fn whoever_tries_gets_the_lock_of_a_dead_client_when_its_lease_is_over() {
    lock_of_a_dead_client(async |client, world, fid, lock| {
        let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("root may");
        let mut tried = 0;
        while client.flocks().set_lock(handle, 2, lock).await.is_err() {
            sleep(world, Duration::from_secs(1)).await;
            tried += 1;
            assert!(tried < LEASE.as_secs(), "whoever tries is refused for ever");
        }
    });
}

#[test]
fn whoever_waits_gets_the_lock_of_a_dead_client_when_its_lease_is_over() {
    lock_of_a_dead_client(async |client, world, fid, lock| {
        let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("root may");
        let waiting = client.clone();
        let mut waited = on(world, "c", async move { waiting.flocks().set_lock_wait(handle, 3, lock).await });
        // The MDT looks when it has waited for 10 s.
        sleep(world, LEASE + Duration::from_secs(10)).await;
        waited.try_recv().expect("it waits for ever").expect("it has waited");
    });
}

/// A client that has written to files on all OSTs, and another one that reads them when the first has gone as `goes` says. How long it waited
/// for all of them, and for the first.
fn reader_of_a_lost_client(goes: impl Fn(&Cluster, &World)) -> (Duration, Duration) {
    const OSTS: u32 = 4;
    let mut waited = Default::default();
    with_cluster(1, Shape { osts: OSTS, osts_per_oss: 1 }, async |cluster| {
        let world = cluster.handle();
        let (_, lost) = cluster.mount("lost").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&lost).await;
        let mut files = Vec::new();
        for index in 0..OSTS {
            let hint = LayoutHint { start_index: index as i32, stripe_count: 1, ..LayoutHint::default() };
            let name = format!("f{index}");
            let made = lost
                .names()
                .create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint)
                .await
                .expect("the OST is there");
            let handle = lost.files().open(&root(), made.fid, READ_WRITE).await.expect("root may");
            lost.files().write(handle, 0, b"written").await.expect("there is room");
            files.push(made.fid);
        }
        lost.sync_all().await.expect("what is healthy can be synced");
        goes(cluster, world);
        let begin = world.rt("clock").now();
        let mut first = None;
        for fid in files {
            let handle = other.files().open(&root(), fid, READ_WRITE).await.expect("root may");
            assert_eq!(read(&other, handle).await, b"written");
            other.files().write(handle, 0, b"anew").await.expect("there is room");
            first.get_or_insert(world.rt("clock").now() - begin);
        }
        waited = (world.rt("clock").now() - begin, first.expect("there are files"));
        drop(lost);
    });
    waited
}

#[test]
fn nobody_waits_for_a_dead_client_again_at_each_target() {
    let (all, first) = reader_of_a_lost_client(|_, world| world.kill("lost"));
    assert!(first <= LEASE, "{first:?}");
    assert!(all <= first + Duration::from_secs(2), "{all:?}, the first {first:?}");
}

#[test]
fn nobody_waits_for_a_silent_client_again_at_each_target() {
    let servers = ["mgs", "mds", "oss0", "oss1", "oss2", "oss3"];
    let silent =
        |_: &Cluster, world: &World| servers.iter().for_each(|server| world.partition("lost", server));
    let (all, first) = reader_of_a_lost_client(silent);
    assert!(first >= Duration::from_secs(100) && first <= Duration::from_secs(200), "{first:?}");
    assert!(all <= first + Duration::from_secs(30), "{all:?}, the first {first:?}");
}
