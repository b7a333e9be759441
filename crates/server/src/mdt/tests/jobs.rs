//! What jobs ask an MDT for: it is counted for them, each request once, and recorded with their names.

use std::collections::BTreeMap;

use proto::changelog::Kind;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Cred, Fid, JobId};
use rpc::Role;

use crate::mdt::testing::{World, ask, name};

/// The value of `mdt.weft-MDT0000.NAME`.
fn value(world: &World, name: &str) -> String {
    let patterns = vec![format!("mdt.*.{name}")];
    match ask(world, Role::Client, msg::ReadParameters { patterns, skip: 0, names_only: false }) {
        Ok(Reply::ReadParameters(page)) => page.parameters.into_iter().map(|one| one.value).collect(),
        other => panic!("another answer: {other:?}"),
    }
}

fn clear(world: &World, name: &str) {
    let name = format!("mdt.weft-MDT0000.{name}");
    let parameters = vec![msg::Parameter { name, value: "clear".into() }];
    ask(world, Role::Server, msg::SetParameters { parameters }).expect("a server may");
}

/// How often each job did what.
fn jobs(world: &World) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut jobs: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut job = String::new();
    for line in value(world, "job_stats").lines().skip(1) {
        let (name, rest) = line.split_once(':').expect("a name and a value");
        match name.strip_prefix("- ") {
            Some(_) => job = rest.trim().trim_matches('"').to_owned(),
            None => {
                let samples = rest.split_once("samples: ").and_then(|(_, rest)| rest.split_once(','));
                let count = samples.map_or(0, |(count, _)| count.trim().parse().expect("a number"));
                if count > 0 {
                    jobs.entry(job.clone()).or_default().insert(name.trim().to_owned(), count);
                }
            }
        }
    }
    jobs
}

/// What `md_stats` says.
fn all(world: &World) -> BTreeMap<String, u64> {
    let text = value(world, "md_stats");
    let rows = text.lines().filter(|line| line.contains(" samples "));
    let words = rows.map(|line| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>());
    words.map(|row| (row[0].clone(), row[1].parse().expect("a number"))).collect()
}

fn of_job<R>(job: &str, work: impl FnOnce() -> R) -> R {
    let _entered = rpc::job::enter(JobId::named(job.as_bytes()));
    work()
}

fn counts(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn each_job_has_what_it_did_and_together_all_of_it() {
    let world = World::new();
    let client = world.client(1);
    client.mkdir(Fid::ROOT, "of nobody");
    assert_eq!(jobs(&world), BTreeMap::new());
    clear(&world, "md_stats");
    of_job("4711", || {
        let dir = client.mkdir(Fid::ROOT, "d");
        for n in 0..3 {
            let file = client.file(dir, &n.to_string());
            let opened = client.open(file, msg::OPEN_WRITE, &Cred::root()).expect("root may");
            client.close(file, opened.handle, false, None);
        }
        client.rename((dir, "0"), (Fid::ROOT, "moved"), 0, &Cred::root()).expect("root may");
        client.rename((dir, "1"), (dir, "2"), 0, &Cred::root()).expect("root may");
        client.attr(dir).expect("it is there");
        assert!(client.lookup(dir, "no such name").is_err());
    });
    of_job("dd.0", || {
        client.unlink(Fid::ROOT, "moved").expect("it is there");
        client.chmod(Fid::ROOT, 0o777);
    });
    let first = [("mkdir", 1), ("mknod", 3), ("open", 3), ("close", 3), ("getattr", 1)];
    let renames = [("rename", 2), ("samedir_rename", 1), ("crossdir_rename", 1)];
    let expected = [
        ("4711".to_owned(), counts(&[&first[..], &renames].concat())),
        ("dd.0".to_owned(), counts(&[("unlink", 1), ("setattr", 1)])),
    ];
    assert_eq!(jobs(&world), expected.into());
    // What was refused is in these, and `create` is theirs alone.
    let mut sums = all(&world);
    assert_eq!(sums.remove("create"), Some(4));
    *sums.get_mut("getattr").expect("there were some") -= 1;
    let mut of_jobs: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in jobs(&world).into_values().flatten() {
        *of_jobs.entry(name).or_default() += count;
    }
    assert_eq!(of_jobs, sums);
    clear(&world, "job_stats");
    assert_eq!(jobs(&world), BTreeMap::new());
}

#[test]
fn what_is_sent_again_is_counted_once() {
    let world = World::new();
    let client = world.client(1);
    let (time, cred) = (client.time(), Cred::root());
    client.file(Fid::ROOT, "f");
    let unlink = msg::Unlink { parent: Fid::ROOT, name: name("f"), directory: false, cred, time };
    let xid = client.xid() + 1;
    let first = of_job("4711", || client.send(xid, unlink.clone()));
    assert!(first.result.is_ok());
    let again = of_job("4711", || client.send(xid, unlink));
    assert_eq!(again.transno, first.transno);
    assert_eq!(jobs(&world), [("4711".to_owned(), counts(&[("unlink", 1)]))].into());
}

#[test]
fn records_have_the_job_of_their_change() {
    let world = World::new();
    let client = world.client(1);
    let register = msg::OrderChangelog { order: msg::CHANGELOG_REGISTER, user: 0, number: 1 };
    ask(&world, Role::Server, register).expect("there is room");
    client.file(Fid::ROOT, "a");
    let file = of_job("4711", || client.file(Fid::ROOT, "b"));
    of_job("4712", || {
        let opened = client.open(file, msg::OPEN_WRITE, &Cred::root()).expect("root may");
        client.close(file, opened.handle, true, Some(9));
    });
    world.sync();
    let world = world.restart();
    let records = match ask(&world, Role::Client, msg::ReadChangelog { behind: 0, bytes_max: 1 << 16 }) {
        Ok(Reply::ReadChangelog(page)) => page.records,
        other => panic!("another answer: {other:?}"),
    };
    let told: Vec<_> = records.iter().map(|record| (record.kind(), record.job.as_str())).collect();
    let (created, closed) = (Some(Kind::Create), Some(Kind::Close));
    assert_eq!(told, [(created, ""), (created, "4711"), (closed, "4712")]);
}
