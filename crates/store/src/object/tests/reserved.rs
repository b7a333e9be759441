//! Reserved space, and where data and holes are.

use std::time::Duration;

use proto::wire::messages::Sought;

use super::super::cache::State;
use super::*;

const MIB: u64 = 1 << 20;

fn seek(target: &Target, id: ObjectId, offset: u64, what: Seek) -> Option<u64> {
    let mut at = offset;
    loop {
        let Sought { offset, more } = target.objects.seek(id, at, what).expect("memory does not fail");
        match offset {
            Some(next) if more => at = next,
            found => return found,
        }
    }
}

#[test]
fn reserved_space_has_blocks_and_reads_as_zeros() {
    check(async |rt, target| {
        target.write(id(1), 10_000, b"data").await?;
        target.punch(id(1), 40 * MIB, u64::MAX).await?;
        target.allocate(id(1), 5_000, 30 * MIB).await?;
        let blocks = target.objects.attr(id(1))?.blocks;
        assert!((60_000..62_000).contains(&blocks), "{blocks}");
        assert_eq!(target.read(id(1), 9_999, 6).await?, b"\0data\0");
        assert!(target.read(id(1), 20 * MIB, 1 << 20).await?.iter().all(|byte| *byte == 0));
        target.allocate(id(1), 0, 30 * MIB).await?;
        let again = target.objects.attr(id(1))?.blocks;
        assert!(again >= blocks && again < blocks + 40, "what is reserved is not reserved twice");
        assert_eq!(
            (seek(&target, id(1), 0, Seek::Data), seek(&target, id(1), 10_000, Seek::Hole)),
            (Some(10_000), Some(10_004))
        );
        assert_eq!(seek(&target, id(1), 10_004, Seek::Data), None);
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert_eq!(target.objects.attr(id(1))?.blocks, again);
        target.write(id(1), 8 * MIB, &pattern(1 << 20, 3)).await?;
        assert_eq!(target.objects.attr(id(1))?.blocks, again, "a write takes what was reserved for it");
        assert_eq!(target.read(id(1), 8 * MIB, 1 << 20).await?, pattern(1 << 20, 3));
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.punch(id(1), 0, 30 * MIB).await?;
        assert_eq!(target.objects.attr(id(1))?.blocks, 0);
        Ok(())
    });
}

#[test]
fn nothing_is_reserved_behind_the_end() {
    check(async |_rt, target| {
        target.allocate(id(1), 0, MIB).await?;
        assert_eq!((target.objects.attr(id(1))?.size, target.objects.attr(id(1))?.blocks), (0, 0));
        target.write(id(1), 0, b"x").await?;
        target.allocate(id(1), 0, MIB).await?;
        assert_eq!((target.objects.attr(id(1))?.size, target.objects.attr(id(1))?.blocks), (1, 8));
        Ok(())
    });
}

#[test]
fn what_is_reserved_can_be_written_on_a_full_disk() {
    let sim = Sim::new(Options::seed(2));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 128 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        target.punch(id(1), 64 * MIB, u64::MAX).await?;
        target.allocate(id(1), 0, 16 * MIB).await?;
        let mut count = 1;
        while target.write(id(count + 1), 0, &pattern(1 << 20, 5)).await.is_ok() {
            count += 1;
        }
        let refused = target.allocate(id(2), 0, MIB).await;
        assert!(refused.is_ok(), "it has its blocks");
        target.punch(id(3), 20 * MIB, u64::MAX).await?;
        let refused = target.allocate(id(3), 0, 20 * MIB).await;
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        for mib in 0..16 {
            target.write(id(1), mib * MIB, &pattern(1 << 20, mib)).await?;
        }
        for mib in 0..16 {
            assert!(target.read(id(1), mib * MIB, 1 << 20).await? == pattern(1 << 20, mib));
        }
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("what was promised is kept");
}

/// Each step began at the start of the range again, and went through all chunks that had no hole without a pause.
#[test]
fn reserving_looks_at_each_chunk_a_few_times_and_at_few_at_a_time() {
    const CHUNKS: u64 = 200;
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make_with(&rt, Limits { reserved_max: 8, ..Limits::default() }).await?;
        let end = CHUNKS * super::super::CHUNK_BYTES;
        target.punch(id(1), end, u64::MAX).await?;
        let looks = || {
            let of_object =
                |state: &mut State| state.object(&target.store, id(1)).map(|object| object.looks());
            target.objects.with(id(1).layout, of_object).expect("it is in memory")
        };
        let before = looks();
        target.allocate(id(1), 0, end).await?;
        let of_holes = looks() - before;
        assert!(of_holes <= 3 * CHUNKS, "each is found and filled, and some are met twice: {of_holes}");
        assert_eq!(target.objects.attr(id(1))?.blocks, end / 512);
        let (before, began) = (looks(), rt.now());
        target.allocate(id(1), 0, end).await?;
        assert_eq!(looks() - before, CHUNKS);
        assert!(rt.now() - began >= Duration::from_micros(150), "there were three pauses");
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("there is space enough");
}

#[test]
fn data_and_holes_are_found() {
    check(async |_rt, target| {
        assert_eq!(
            (seek(&target, id(9), 0, Seek::Data), seek(&target, id(9), 5, Seek::Hole)),
            (None, Some(5))
        );
        // Adjacent over the border of a chunk, then a hole of many chunks.
        let border = super::super::CHUNK_BYTES;
        target.write(id(1), border - 100, &pattern(200, 1)).await?;
        target.write(id(1), 3000 * border, b"far").await?;
        target.punch(id(1), 3000 * border + 10, u64::MAX).await?;
        let table = [
            (0, Some(border - 100), Some(0)),
            (border - 100, Some(border - 100), Some(border + 100)),
            (border + 99, Some(border + 99), Some(border + 100)),
            (border + 100, Some(3000 * border), Some(border + 100)),
            (3000 * border + 1, Some(3000 * border + 1), Some(3000 * border + 3)),
            (3000 * border + 3, None, Some(3000 * border + 3)),
            (3000 * border + 10, None, Some(3000 * border + 10)),
            (u64::MAX, None, Some(u64::MAX)),
        ];
        for (from, data, hole) in table {
            assert_eq!(
                (seek(&target, id(1), from, Seek::Data), seek(&target, id(1), from, Seek::Hole)),
                (data, hole),
                "{from}"
            );
        }
        // More data in a row than one question looks at.
        for mib in 0..3 {
            target.write(id(2), mib * 512 * MIB, b"x").await?;
        }
        target.punch(id(2), 3000 * MIB, u64::MAX).await?;
        target.allocate(id(2), 0, 1100 * MIB).await?;
        assert_eq!(seek(&target, id(2), 1024 * MIB + 1, Seek::Data), None);
        assert_eq!(seek(&target, id(2), 1, Seek::Data), Some(512 * MIB));
        target.destroy(&[id(1)]).await?;
        assert!(matches!(target.objects.seek(id(1), 0, Seek::Hole), Err(StoreError::Gone)));
        Ok(())
    });
}
