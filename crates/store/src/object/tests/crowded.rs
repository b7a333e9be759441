//! Objects with very many small extents in one chunk: no commit carries all of them, and they do not become more and more.

use std::time::Duration;

use super::*;
use crate::limits::BATCH_BYTES_MAX;

/// Nothing is merged, and a commit cuts few extents.
const CUT: Limits = Limits {
    tail_changes_max: 10,
    hole_changes_max: 10,
    reserved_max: 1024,
    neighbours_max: usize::MAX,
    cache_bytes_max: 1 << 20,
};

/// An object of 64 KiB with holes of a byte each, all in the first chunk.
async fn make_crowded(target: &Target, id: ObjectId) -> Result<(), StoreError> {
    target.write(id, 0, &pattern(64 << 10, 1)).await?;
    for n in 0..100 {
        target.punch(id, n * 600 + 1, n * 600 + 2).await?;
    }
    assert_eq!(target.extent_count(id)?, 101);
    Ok(())
}

/// How many commits `change` takes.
async fn commits(target: &Target, change: impl Future<Output = Result<Transno, StoreError>>) -> u64 {
    let before = target.store.last_transno();
    change.await.expect("nothing refuses it");
    target.store.last_transno().0 - before.0
}

/// All extents of a chunk went in one commit, which aborted the process when it got too large, and at each start again.
#[test]
fn a_commit_cuts_few_of_the_extents_of_a_chunk() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make_with(&rt, CUT).await?;
        for oid in 1..=3 {
            make_crowded(&target, id(oid)).await?;
        }
        // The first extent is cut, and stays.
        assert_eq!(commits(&target, target.punch(id(1), 1000, u64::MAX)).await, 10);
        assert_eq!((target.extent_count(id(1))?, target.objects.attr(id(1))?.size), (3, 1000));
        assert_eq!(commits(&target, target.destroy(&[id(2)])).await, 11);
        assert_eq!(target.extent_count(id(2))?, 0);
        assert_eq!(commits(&target, target.punch(id(3), 0, 40_000)).await, 7);
        assert!(target.read(id(3), 0, 40_000).await?.iter().all(|byte| *byte == 0));
        assert_eq!(target.read(id(3), 60_100, 5436).await?, pattern(64 << 10, 1)[60_100..]);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("no operation fails");
}

/// A hole over very many extents was cut without a pause: nobody else of the same core had a turn.
#[test]
fn others_have_their_turn_while_a_hole_is_cut() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make_with(&rt, CUT).await?;
        make_crowded(&target, id(1)).await?;
        let (sender, mut receiver) = rt::sync::oneshot::channel();
        let other = target.clone();
        rt.spawn(async move {
            let _ = sender.send(other.punch(id(1), 0, 60_000).await);
        });
        let mut counts = vec![target.extent_count(id(1))?];
        while receiver.try_recv().is_err() {
            rt.sleep(Duration::from_micros(10)).await;
            counts.push(target.extent_count(id(1))?);
        }
        counts.dedup();
        assert!(counts.len() > 5, "somebody sees its steps: {counts:?}");
        target.close().await
    })
    .expect("no operation fails");
}

#[test]
fn holes_leave_no_crowd() {
    check(async |_rt, target| {
        let mut data = pattern(20_000, 1);
        target.write(id(1), 0, &data).await?;
        for at in (1..20_000).step_by(2) {
            target.punch(id(1), at, at + 1).await?;
            data[at as usize] = 0;
        }
        assert!(target.extent_count(id(1))? <= 70, "{}", target.extent_count(id(1))?);
        assert!(target.read(id(1), 0, 20_000).await? == data);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

/// Each of them left a byte of the one before, which held a block.
#[test]
fn large_writes_that_are_shifted_leave_no_crowd() {
    check(async |_rt, target| {
        let len = 64 << 10;
        for n in 0..500 {
            target.write(id(1), n, &pattern(len, n)).await?;
            // And at their other edge.
            target.write(id(2), 500 - n, &pattern(len, n)).await?;
        }
        for oid in [1, 2] {
            assert!(target.extent_count(id(oid))? <= 70, "{}", target.extent_count(id(oid))?);
            assert!(target.objects.attr(id(oid))?.blocks <= 8 * (70 + 17), "{oid}");
        }
        assert_eq!(target.read(id(1), 498, 2).await?, [pattern(1, 498), pattern(1, 499)].concat());
        assert_eq!(target.read(id(2), 500 + len as u64 - 1, 9).await?, pattern(len, 0)[len - 1..]);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

/// Reserved space in pieces was never merged, nor what was written in between.
#[test]
fn reserved_space_leaves_no_crowd() {
    check(async |_rt, target| {
        for oid in [1, 2] {
            target.punch(id(oid), 20_000, u64::MAX).await?;
            target.allocate(id(oid), 0, 20_000).await?;
        }
        for at in (1..2000).step_by(2) {
            target.punch(id(1), at, at + 1).await?;
            target.write(id(2), at, b"x").await?;
        }
        for oid in [1, 2] {
            assert!(target.extent_count(id(oid))? <= 140, "{}", target.extent_count(id(oid))?);
        }
        assert_eq!(target.objects.seek(id(1), 0, Seek::Data)?.offset, None, "what was reserved is no data");
        assert!(target.read(id(1), 0, 20_000).await? == [0; 20_000]);
        let want: Vec<u8> = (0..2000).map(|at| if at % 2 == 1 { b'x' } else { 0 }).collect();
        assert!(target.read(id(2), 0, 2000).await? == want);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn what_is_too_large_for_a_batch_is_refused() {
    check(async |_rt, target| {
        let value = Some(Bytes::from(vec![0; BATCH_BYTES_MAX / 4]));
        let change = |n: u8| Change { key: vec![1, n].into(), value: value.clone() };
        let batch = |count| crate::Batch { changes: (0..count).map(change).collect(), ..Default::default() };
        assert!(matches!(target.store.commit(batch(4)), Err(StoreError::TooBig)));
        assert_eq!(target.store.get(&[1, 0])?, None);
        target.store.commit(batch(3))?;
        target.write(id(1), 0, b"data").await?;
        target.close().await
    });
}

/// An error of what comes behind the commit was the answer, though what was asked for was done.
#[test]
fn what_was_committed_is_no_error() {
    check(async |rt, target| {
        target.close().await?;
        let target = Target::open(&rt, CUT).await?;
        make_crowded(&target, id(1)).await?;
        let (sender, receiver) = rt::sync::oneshot::channel();
        let other = target.clone();
        rt.spawn(async move {
            let _ = sender.send(other.punch(id(1), 0, u64::MAX).await);
        });
        // It has committed, and takes away what it cut.
        rt.sleep(Duration::from_micros(70)).await;
        assert_eq!(target.objects.attr(id(1))?.size, 0);
        assert!(target.extent_count(id(1))? > 0, "it is at it");
        target.store.shared.poison(&StoreError::Poisoned);
        receiver.await.expect("the task answers")?;
        Ok(())
    });
}
