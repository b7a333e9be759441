//! The summary that an open reads instead of the objects, with the engine of production: it is what a full survey finds, after every
//! stop and every loss of what was not committed.

// What a full survey finds is compared in a real directory.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use rt::sim::Rng;

use super::*;
use crate::object::OBJECTS;
use crate::object::{keys, summary, supply::Ready};
use crate::recount::{self, sum_again};
use crate::sums::Sums;
use crate::target::Batch;

/// Limits so small that the engine gets much of what a short test does, and lacks much of it.
fn small() -> crate::limits::Limits {
    crate::limits::Limits {
        commit_bytes: 16 << 10,
        segment_bytes: 128 << 10,
        allocate_bytes: 64 << 10,
        apply_after_bytes: 16 << 10,
        apply_bytes: 16 << 10,
        engine_table_bytes_min: 8 << 10,
        table_bytes_max: 16 << 10,
        ..crate::limits::Limits::default()
    }
}

async fn open(rt: &Rt, path: &str) -> Result<Target, StoreError> {
    let store = Store::open_with(rt, path, small()).await?;
    let objects = Objects::open_with(rt, store.clone(), SMALL, Ready::AtOnce).await?;
    Ok(Target { store, objects })
}

/// Runs `test` with a directory for a target.
fn in_directory<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Rt, String) -> F) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("ost").to_str().expect("temporary names are plain").to_owned();
    let node = rt::os::Node::start(2).expect("a node starts");
    let rt = Rt::os(node.clone());
    node.block_on(async {
        Store::format(&rt, &path, &label()).await?;
        test(rt, path).await
    })
    .expect("no operation fails");
    node.stop(Duration::from_secs(5));
}

/// What differs from a full survey.
fn wrong(target: &Target) -> Result<Vec<String>, StoreError> {
    let mut report = Report::default();
    recount::check_of(&*target.store, &mut report)?;
    Ok(report.findings)
}

async fn step(target: &Target, rng: &mut Rng, round: u32) -> Result<(), StoreError> {
    let any = stripe(if rng.one_in(2) { 1 + rng.below(4) as u32 } else { 100 + round }, rng.below(2) as u32);
    let (start, len) = (rng.below(300_000), rng.between(1, 40_000));
    let done = match rng.below(12) {
        0 => target.punch(any, start, u64::MAX).await,
        1 => target.punch(any, 0, u64::MAX).await,
        2 | 3 => target.punch(any, start, start + len).await,
        4 => target.allocate(any, start, start + len).await,
        5 if round > 0 && rng.one_in(4) => {
            target.destroy(&[stripe(100 + round - 1, 0), stripe(100 + round - 1, 1)]).await
        }
        6 => target.objects.set_owner(any, owner(start)).await.map(Option::unwrap_or_default),
        7 | 8 => target.write(any, start, &pattern(rng.between(1, 200) as usize, start)).await,
        _ => target.write(any, start / 4096 * 4096, &pattern(len as usize, start)).await,
    };
    match done {
        Ok(_) | Err(StoreError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

#[test]
fn the_summary_is_what_a_survey_finds() {
    for seed in 1..4 {
        in_directory(async |rt, path| {
            let mut rng = Rng::new(seed);
            let mut lost = 0;
            for round in 0..8 {
                let target = open(&rt, &path).await?;
                assert_eq!(wrong(&target)?, Vec::<String>::new(), "seed {seed}, round {round}");
                for _ in 0..rng.between(1, 120) {
                    step(&target, &mut rng, round).await?;
                    if rng.one_in(10) {
                        target.sync().await?;
                    }
                }
                assert_eq!(wrong(&target)?, Vec::<String>::new(), "seed {seed}, round {round}");
                if rng.one_in(2) {
                    target.close().await?;
                } else {
                    lost += u32::from(target.store.last_committed() < target.store.last_transno());
                    target.store.abandon().await;
                }
            }
            assert!(lost > 0, "seed {seed}: something has to be lost");
            let report = crate::check::check(&rt, &path).await?;
            assert!(report.is_clean(), "{report:?}");
            Ok(())
        });
    }
}

/// Whatever the number of objects: none is read. A survey would refuse what it cannot read.
#[test]
fn an_open_reads_no_object() {
    in_directory(async |rt, path| {
        let target = open(&rt, &path).await?;
        target.write(id(1), 0, b"data").await?;
        let garbage = [keys::extent_key(id(2), 0), keys::record_key(id(2))];
        let changes = garbage.map(|key| Change { key, value: Some(Bytes::from_static(b"garbage")) });
        target.store.commit(Batch { changes: changes.into(), ..Batch::default() })?;
        target.close().await?;
        let target = open(&rt, &path).await?;
        let space = target.objects.space().await?;
        assert_eq!(space.files_total - space.files_free, 1);
        assert_eq!(target.read(id(1), 0, 10).await?, b"data");
        target.close().await
    });
}

#[test]
fn a_wrong_summary_is_told_and_put_right() {
    in_directory(async |rt, path| {
        let target = open(&rt, &path).await?;
        for oid in 1..4 {
            target.write(id(oid), 0, &pattern(10_000, 1)).await?;
        }
        let file = summary::load(&target.store)?.used.into_keys().next().expect("it holds the data");
        let mut sums = Sums::default();
        sums.add(&OBJECTS.key(), 7);
        sums.add(&keys::used_key(file), -2);
        let other = super::super::extent::FileId { boot: 77, seq: 0 };
        sums.add(&keys::used_key(other), 5);
        let changes = vec![Change { key: keys::rest_key(id(3)), value: Some(Bytes::new()) }];
        target.store.commit(Batch { changes, sums, ..Batch::default() })?;
        let last = target.store.last_transno();
        target.close().await?;
        let report = crate::check::check(&rt, &path).await?;
        let said = [
            format!("The summary says that 7 blocks of data file {file} are used, and 9 are."),
            format!("The summary says that 5 blocks of data file {other} are used, and 0 are."),
            format!("The summary says that object {}:0 has data behind its end.", id(3).layout),
            "The summary says that there are 10 objects, and there are 3.".to_owned(),
        ];
        assert_eq!(report.findings, said);
        assert_eq!(sum_again(&rt, &path).await?, said);
        let report = crate::check::check(&rt, &path).await?;
        assert!(report.is_clean(), "{report:?}");
        let target = open(&rt, &path).await?;
        assert_eq!(target.store.last_transno(), last, "clients may have changes to replay");
        target.destroy(&[id(1), id(2), id(3)]).await?;
        assert_eq!(wrong(&target)?, Vec::<String>::new());
        target.close().await
    });
}

/// A sum that is too small already is not made worse.
#[test]
fn no_sum_gets_below_zero() {
    check(async |_, target| {
        target.write(id(1), 0, b"data").await?;
        let before = target.store.last_transno();
        let mut sums = Sums::default();
        sums.add(&OBJECTS.key(), -2);
        let change = Change { key: Bytes::from_static(b"P"), value: Some(Bytes::from_static(b"x")) };
        let refused = target.store.commit(Batch { changes: vec![change], sums, ..Batch::default() });
        assert!(matches!(&refused, Err(StoreError::Damaged(why)) if why.contains("\"N\"")), "{refused:?}");
        assert_eq!((target.store.last_transno(), target.store.get(b"P")?), (before, None));
        assert_eq!(target.store.sum(&OBJECTS.key())?, 1);
        Ok(())
    });
}
