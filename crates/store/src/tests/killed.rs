//! A process that is killed at any moment leaves a target that opens, with everything it had announced.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// The child's task: where its target is.
const CHILD: &str = "WEFT_TEST_STORE_CHILD";
const KEYS: u64 = 400;
const KILLS: u64 = 3;

fn key(n: u64) -> String {
    format!("e{:016}{:05}", n % 7, n % KEYS)
}

fn value(n: u64) -> String {
    format!("{n}-{}", "x".repeat((n % 500) as usize))
}

/// Commits without end, the change `n` under a key and with a value that follow from `n`, and tells on the standard
/// output what is durable. Does nothing unless the test below starts it.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let node = rt::os::Node::start(2).expect("a node starts");
    let rt = Rt::os(node.clone());
    node.block_on(async {
        let limits = Limits { commit_after: Duration::from_millis(2), ..small() };
        let store = Store::open_with(&rt, &path, limits).await.expect("the target opens");
        let mut told = 0;
        loop {
            store.room(Need::Growth).await.expect("there is room");
            let n = store.last_transno().0 + 1;
            let drawn = store.commit(batch([put(&key(n), &value(n))])).expect("the store takes it");
            assert_eq!(drawn.0, n, "nobody else draws");
            if store.last_committed().0 > told {
                told = store.last_committed().0;
                println!("durable {told}");
            }
        }
    });
}

#[test]
fn nothing_announced_is_lost() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().to_str().expect("temporary names are plain");
    with_node(async |rt| Store::format(&rt, path, &label()).await);
    let mut random = Rng::new(0x5eed);
    let mut last = 0;
    for _ in 0..KILLS {
        let durable = run_and_kill(path, 5 + random.below(50));
        assert!(durable > last, "the child has made progress");
        with_node(async |rt| {
            last = verify(&rt, path, durable).await?;
            Ok(())
        });
    }
}

/// Opens what a killed child left; returns its last transno.
async fn verify(rt: &Rt, path: &str, durable: u64) -> Result<u64, StoreError> {
    let store = Store::open_with(rt, path, small()).await?;
    let last = store.last_transno().0;
    assert!(last >= durable, "{last} >= {durable}");
    let mut seen = std::collections::BTreeSet::new();
    for n in (1..=last).rev() {
        if seen.insert(key(n)) {
            assert_eq!(value_of(&store, &key(n)), Some((value(n), n)));
        }
    }
    store.abandon().await;
    let report = crate::check::check(rt, path).await?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.keys, seen.len() as u64);
    Ok(last)
}

/// Runs the child until it has announced `count` times and kills it; returns the last announcement.
fn run_and_kill(path: &str, count: u64) -> u64 {
    let program = std::env::current_exe().expect("the test's own program");
    let mut child = Command::new(program)
        .args(["--exact", "tests::killed::child", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let stdout = child.stdout.take().expect("it is piped");
    let mut announced = 0;
    let mut left = count;
    for line in BufReader::new(stdout).lines() {
        let line = line.expect("the child writes text");
        let Some((_, number)) = line.split_once("durable ") else { continue };
        announced = number.parse().expect("a number");
        if left == 0 {
            // The rest of what it wrote before it died counts too, so read on.
            let _ = child.kill();
        }
        left = left.saturating_sub(1);
    }
    let _ = child.wait();
    announced
}

/// The first start was broken off while it made the engine; every later one then failed with "File exists", and the check said DAMAGED.
#[test]
fn an_engine_that_was_being_made_is_made_again() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().to_str().expect("temporary names are plain");
    with_node(async |rt| Store::format(&rt, path, &label()).await);
    std::fs::create_dir_all(temp.path().join(crate::log::DIR)).expect("a directory");
    let engine = temp.path().join(crate::open::ENGINE_DIR);
    std::fs::create_dir_all(&engine).expect("a directory");
    for name in ["0.jnl", "lock"] {
        std::fs::write(engine.join(name), []).expect("a file");
    }
    with_node(async |rt| {
        let boot = crate::boot::Boot { number: 1, ..Default::default() };
        boot.write(&rt.disk().open_dir(path).await?).await?;
        let report = crate::check::check(&rt, path).await?;
        assert!(report.is_clean(), "{report:?}");
        let store = Store::open_with(&rt, path, small()).await?;
        store.commit(batch([put("a", "1")]))?;
        store.close().await?;
        let store = Store::open_with(&rt, path, small()).await?;
        assert_eq!(value_of(&store, "a"), Some(("1".into(), 1)));
        // From now on it is damage.
        store.abandon().await;
        std::fs::remove_file(engine.join("version")).expect("the engine has it");
        assert!(Store::open_with(&rt, path, small()).await.is_err());
        Ok(())
    });
}
