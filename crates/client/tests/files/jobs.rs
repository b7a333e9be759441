//! What is done for a job is asked for in its name, also what is done later.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Client;
use client::job::OfJob;
use proto::wire::messages::ReadParameters;
use proto::{JobId, TargetId};

use crate::world::{MIB, World, create};

/// What a target counted for each job: how often, and all together.
async fn counted(client: &Client, target: TargetId, row: &str) -> BTreeMap<String, (u64, u64)> {
    let read = ReadParameters { patterns: vec!["*.job_stats".to_owned()], skip: 0, names_only: false };
    let page = client.admin().order(target, read, Duration::from_secs(9)).await.expect("it answers");
    let text: String = page.parameters.into_iter().map(|one| one.value).collect();
    let (mut jobs, mut job) = (BTreeMap::new(), "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("- job_id:") {
            job = name.trim().trim_matches('"');
        }
        if let Some(sums) = line.trim_start().strip_prefix(row).and_then(|rest| rest.strip_prefix(':')) {
            let number = |name: &str| {
                let (_, rest) = sums.split_once(name).expect("it is there");
                let digits = rest.trim_start().split([',', ' ']).next().expect("a number");
                digits.parse().expect("a number")
            };
            jobs.insert(job.to_owned(), (number("samples:"), number("sum:")));
        }
    }
    jobs
}

/// Data goes back long after it was written, and files are closed when it is durable: by tasks that belong to no job. Within a process
/// and over a connection.
#[test]
fn what_is_sent_later_belongs_to_the_job_that_did_it() {
    for world in [World::real(1, 1), World::remote(1, 1)] {
        world.run(async {
            let client = world.mounted(client::Limits::default()).await;
            let rt = world.hub.rt();
            let jobs = [("4711", 3 * MIB + 100), ("dd.0", 70_000), ("", 900)];
            for (name, bytes) in jobs {
                let job = JobId::named(name.as_bytes());
                let write = Box::pin(async {
                    let (_, handle) = create(&client, format!("of{name}").as_bytes()).await;
                    client.files().write(handle, 0, &vec![7; bytes as usize]).await.expect("there is room");
                    assert_eq!(client.files().job_of(handle), job);
                    handle
                });
                let handle = OfJob::new(job, write).await;
                OfJob::new(job, Box::pin(client.files().release(handle))).await;
            }
            rt.sleep(Duration::from_secs(60)).await;
            let written: BTreeMap<_, _> = counted(&client, TargetId::ost(0), "write_bytes").await;
            let bytes: Vec<(&str, u64)> =
                written.iter().map(|(job, (_, sum))| (job.as_str(), *sum)).collect();
            assert_eq!(bytes, [("4711", 3 * MIB + 100), ("dd.0", 70_000)]);
            let times = |row: BTreeMap<String, (u64, u64)>| -> Vec<(String, u64)> {
                row.into_iter().map(|(job, (count, _))| (job, count)).collect()
            };
            let one_each = [("4711".to_owned(), 1), ("dd.0".to_owned(), 1)];
            for row in ["open", "close"] {
                assert_eq!(times(counted(&client, TargetId::mdt(0), row).await), one_each, "{row}");
            }
        });
    }
}
