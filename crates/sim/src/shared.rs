//! One directory that all clients fight over: each name is made and removed by everybody. Of two that make it, one
//! wins; what was made and not removed is there at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Client, Error, OpenFlags};
use parking_lot::Mutex;
use proto::{Code, Fid};
use rt::sim::Rng;

use crate::workload::{READ_WRITE, read_whole_dir, root};

const NAMES: u64 = 12;

/// For each name: how often it was made less how often it was removed.
pub type Tally = Arc<Mutex<BTreeMap<String, i64>>>;

/// Makes and removes names in `dir`, `steps` times.
pub async fn fight(client: &Client, dir: Fid, mut rng: Rng, tally: Tally, steps: usize) {
    for _ in 0..steps {
        let name = format!("s{}", rng.below(NAMES));
        if rng.one_in(2) {
            let flags = OpenFlags { exclusive: true, ..READ_WRITE };
            let made = client.files().create(&root(), dir, name.as_bytes(), 0o100_644, flags).await;
            match made.map(|(_, handle)| handle) {
                Ok(handle) => {
                    *tally.lock().entry(name).or_default() += 1;
                    client.files().flush(handle).await.expect("an empty file can be flushed");
                    client.files().release(handle).await;
                }
                Err(error) => assert_eq!(error, Error::Refused(Code::Exists), "create of {name}"),
            }
        } else {
            match client.names().unlink(&root(), dir, name.as_bytes()).await {
                Ok(()) => *tally.lock().entry(name).or_default() -= 1,
                Err(error) => assert_eq!(error, Error::Refused(Code::NotFound), "unlink of {name}"),
            }
        }
    }
}

/// With nobody at work: the names are those of the tally.
pub async fn check(client: &Client, dir: Fid, tally: &Tally) {
    let found: Vec<String> = read_whole_dir(client, dir).await.into_keys().collect();
    let mut expected = Vec::new();
    for (name, count) in tally.lock().iter() {
        assert!((0..=1).contains(count), "{name} was made {count} times more often than removed");
        if *count == 1 {
            expected.push(name.clone());
        }
    }
    assert_eq!(found, expected, "the names that were made and not removed");
}
