//! The load of an MDT's server: hours that a restart and a power cut leave there.

use std::time::Duration;

use bytes::Bytes;
use proto::wire::Reply;
use proto::wire::messages as msg;
use rpc::Role;
use store::{Batch, Change};

use crate::mdt::keys;
use crate::mdt::testing::{NODE, World, ask};

const SERIES: &str = "mdt.weft-MDT0000.cpu_load_hours.*";
const HOUR: Duration = Duration::from_secs(3600);

/// Names and values.
fn read(world: &World, pattern: &str) -> Vec<(String, String)> {
    let read = msg::ReadParameters { patterns: vec![pattern.into()], skip: 0, names_only: false };
    match ask(world, Role::Client, read) {
        Ok(Reply::ReadParameters(page)) => {
            page.parameters.into_iter().map(|one| (one.name, one.value)).collect()
        }
        other => panic!("any key may ask: {other:?}"),
    }
}

/// Beginnings and seconds of the hours of all months.
fn hours(world: &World) -> Vec<(u64, u64)> {
    let lines: Vec<String> = read(world, SERIES).into_iter().map(|(_, value)| value).collect();
    let hour = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 4, "{line}");
        Some((words[0].parse().ok()?, words[1].parse().ok()?))
    };
    lines.iter().flat_map(|text| text.lines()).map(|line| hour(line).expect("numbers")).collect()
}

/// A world begins at 22:13:20.
#[test]
fn hours_are_kept() {
    let world = World::new();
    assert!(read(&world, "mdt.*.*").iter().all(|(name, _)| !name.contains("hours")), "they are long");
    world.sim.run_for(2 * HOUR);
    let first = hours(&world);
    let begins: Vec<u64> = first.iter().map(|hour| hour.0).collect();
    assert_eq!(begins, [1_699_999_200, 1_700_002_800, 1_700_006_400]);
    let seconds: Vec<u64> = first.iter().map(|hour| hour.1).collect();
    assert_eq!(seconds, [2800, 3600, 800]);
    let before = hours(&world);
    // In order nothing is lost, in a power cut less than ten minutes.
    let world = world.restart();
    assert_eq!(hours(&world), before);
    let world = world.crash();
    assert_eq!(hours(&world)[..2], before[..2]);
    let last = hours(&world)[2].1;
    assert!((590..=800).contains(&last), "{last}");
    world.sim.run_for(HOUR);
    assert_eq!(hours(&world).len(), 4);
    assert!(hours(&world)[2].1 > 3000);
}

#[test]
fn work_is_seen() {
    let world = World::new();
    let load = |world: &World| read(world, "mdt.*.cpu_load")[0].1.parse::<f64>().expect("a number");
    world.sim.run_for(Duration::from_secs(20));
    assert!(load(&world) < 0.1);
    let rt = world.sim.rt(NODE);
    let worker = rt.clone();
    rt.spawn(async move {
        for _ in 0..100_000 {
            worker.sleep(Duration::from_micros(200)).await;
        }
    });
    // A turn of a task is a microsecond.
    world.sim.run_for(Duration::from_secs(20));
    assert!((0.5..0.6).contains(&load(&world)), "{}", load(&world));
}

/// Two years are kept.
#[test]
fn old_hours_go() {
    let world = World::new();
    let now: u32 = 1_700_000_000 / 3600;
    let kept =
        |hours: u32| world.store.get(&keys::load(now - hours)).expect("the store can be read").is_some();
    let value = Bytes::from_static(&[1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0]);
    let put = |hours: u32| Change { key: keys::load(now - hours), value: Some(value.clone()) };
    let years = 2 * 366 * 24;
    let changes = [years + 5000, years + 1, years - 2, 5000].map(put).to_vec();
    world.store.commit(Batch { changes, ..Batch::default() }).expect("the store takes it");
    assert!(kept(years + 5000));
    world.sim.run_for(HOUR);
    assert!(!kept(years + 5000) && !kept(years + 1) && kept(years - 2) && kept(5000));
    let months: Vec<String> = read(&world, SERIES).into_iter().map(|(name, _)| name).collect();
    let expected = ["2021-11", "2023-04", "2023-11"];
    assert_eq!(months, expected.map(|month| format!("mdt.weft-MDT0000.cpu_load_hours.{month}")));
}
