//! What the statistics of an OST say of what it was asked for.

use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::{FileOwner, JobId, TargetId};
use rpc::Role;
use rpc::job::OfJob;
use rt::sim::{Options, Sim, Span};

use super::{NODE, World, at, id, read, write};

/// Data of this length goes to the disk at once.
const LEN: usize = 64 << 10;

/// The value of `obdfilter.weft-OST0003.NAME`.
async fn value(world: &World, name: &str) -> String {
    let read =
        msg::ReadParameters { patterns: vec![format!("obdfilter.*.{name}")], skip: 0, names_only: false };
    let nids = [proto::Nid::lo()];
    let answer = world.hub.ask(TargetId::ost(3), Role::Server, &nids, read, Duration::from_secs(9)).await;
    answer.expect("it answers").parameters.into_iter().map(|one| one.value).collect()
}

/// What the histogram says of the operation: how many there were in each class.
fn classes(text: &str, operation: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(operation)).unwrap_or_default();
    let (_, classes) = line.split_once("hist: ").unwrap_or_default();
    classes.trim_end_matches(" }").to_owned()
}

/// 1 % of the writes take 10 ms: exactly so many are in the class of 8 to 16 ms (1 K is 1,024 microseconds), and reads are not.
#[test]
fn slow_writes_are_in_the_class_of_their_time() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    let slow = |slow: bool| {
        let micros = if slow { 10_000 } else { 50 };
        sim.change_disks(|disks| disks.write = Span::micros(micros, micros));
    };
    sim.run(async {
        let world = World::make(&rt).await;
        let client = world.import(100, Role::Client);
        // The first one waits until its client is on disk.
        client.call_bulk(write(1, 0, 7), vec![Bytes::from(vec![7; LEN])]).await.expect("it is written");
        let set = msg::Parameter { name: "obdfilter.weft-OST0003.opcode_hist".into(), value: "0".into() };
        let (set, nids) = (msg::SetParameters { parameters: vec![set] }, [proto::Nid::lo()]);
        let asked = world.hub.ask(TargetId::ost(3), Role::Server, &nids, set, Duration::from_secs(9)).await;
        asked.expect("it is cleared");
        for n in 0..500 {
            slow(n % 100 == 0);
            let data = vec![Bytes::from(vec![7; LEN])];
            client.call_bulk(write(1, n * LEN as u64, 7), data).await.expect("it is written");
            slow(false);
            client.call(read(1, n * LEN as u64, LEN as u32)).await.expect("it is read");
        }
        let times = value(&world, "opcode_hist").await;
        let written = classes(&times, "Write:");
        assert!(written.ends_with(", 16K: 5") && !written.contains("8K"), "{times}");
        assert!(!classes(&times, "Read:").contains("K:"), "{times}");
        let sums = value(&world, "stats").await;
        let bytes = 500 * LEN;
        assert!(
            sums.contains(&format!("\nread_bytes                500 samples [bytes] {LEN} {LEN} {bytes} ")),
            "{sums}"
        );
        assert!(
            sums.contains(&format!("\nwrite_bytes               500 samples [bytes] {LEN} {LEN} {bytes} ")),
            "{sums}"
        );
        assert!(sums.contains("\nwrite                     500 samples [usecs] "), "{sums}");
        world.stop().await;
    });
}

/// Two parts of one request that are apart from each other are two pieces on the disk, or one jump.
#[test]
fn pieces_of_requests_are_counted() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let world = World::make(&rt).await;
        let client = world.import(100, Role::Client);
        let part = |offset| msg::WritePart { offset, len: LEN as u32 };
        let parts = msg::WriteParts {
            object: id(1),
            parts: vec![part(0), part(1 << 20)],
            time: at(7),
            sync: false,
            owner: FileOwner::default(),
        };
        let data = vec![Bytes::from(vec![7; LEN * 2])];
        client.call_bulk(parts, data).await.expect("it is written");
        client.call(read(1, 0, LEN as u32)).await.expect("it is read");
        let text = value(&world, "brw_stats").await;
        let rows = |name: &str| {
            let below = text.split_once(name).map_or("", |(_, below)| below);
            let rows = below.lines().skip(1).take_while(|line| !line.is_empty());
            rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(rows("pages per bulk r/w"), ["16: 1 100 100 | 0 0 0", "32: 0 0 100 | 1 100 100"]);
        assert_eq!(rows("discontiguous pages"), ["0: 1 100 100 | 0 0 0", "1: 0 0 100 | 1 100 100"]);
        assert_eq!(rows("disk fragmented I/Os"), ["1: 1 100 100 | 0 0 0", "2: 0 0 100 | 1 100 100"]);
        // The space was taken at one go.
        assert_eq!(rows("discontiguous blocks"), ["0: 1 100 100 | 1 100 100"]);
        world.stop().await;
    });
}

/// What `call` does is for `job`.
async fn of_job<T>(job: &str, call: impl Future<Output = T>) -> T {
    OfJob::new(JobId::named(job.as_bytes()), std::pin::pin!(call)).await
}

/// The bytes that a job wrote and read are those that were sent for it; what nobody's job was is in neither.
#[test]
fn bytes_are_counted_for_their_jobs() {
    super::check(async |_, world| {
        let client = world.import(100, Role::Client);
        for (job, oid, lens) in [("4711", 1, [1, 70_000, 4096]), ("dd.0", 2, [5, 5, 5]), ("", 3, [9, 9, 9])] {
            for (n, len) in lens.into_iter().enumerate() {
                let data = vec![Bytes::from(vec![7; len])];
                let call = async { client.call_bulk(write(oid, n as u64 * 100_000, 7), data).await };
                of_job(job, call).await.expect("it is written");
            }
        }
        let call = async { client.call_bulk(read(1, 0, 300), Vec::new()).await };
        of_job("dd.0", call).await.expect("it is read");
        let text = value(&world, "job_stats").await;
        let rows: Vec<&str> =
            text.lines().filter(|line| line.contains("samples: ") && !line.contains(" 0, unit")).collect();
        let row = |name: &str, samples: u64, min: u64, max: u64, sum: u64, sumsq: u64| {
            format!(
                "  {name:<17}{{ samples: {samples:>11}, unit: bytes, min: {min:>7}, max: {max:>7}, sum: {sum:>15}, sumsq: {sumsq:>18} }}"
            )
        };
        let bytes: Vec<&str> = rows.iter().copied().filter(|line| line.contains("unit: bytes")).collect();
        let sumsq = 1 + 70_000 * 70_000 + 4096 * 4096;
        assert_eq!(
            bytes,
            [
                row("write_bytes:", 3, 1, 70_000, 74_097, sumsq),
                row("read_bytes:", 1, 300, 300, 300, 90_000),
                row("write_bytes:", 3, 5, 5, 15, 75),
            ],
            "{text}"
        );
        let times: Vec<&str> =
            rows.iter().filter_map(|line| line.split_once(", min").map(|(row, _)| row)).collect();
        assert!(times.contains(&"  write:           { samples:           3, unit: usecs"), "{text}");
        assert!(times.contains(&"  read:            { samples:           1, unit: usecs"), "{text}");
        assert_eq!(text.matches("job_id").count(), 2);
        world.stop().await;
    });
}
