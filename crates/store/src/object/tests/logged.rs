//! Small data that the log carries.

use super::*;
use crate::check::{Depth, check_to};
use crate::object::files::DIR;
use crate::object::logged::LOGGED_BYTES_MAX;

/// The first bytes of the only data file, as they are after a power cut that nobody has mended yet.
async fn after_a_cut(handle: &rt::sim::Handle, target: Target) -> Result<Vec<u8>, StoreError> {
    let name = target.data_files().await?.remove(0);
    handle.crash(NODE);
    drop(target);
    handle.restart(NODE);
    let dir = handle.rt(NODE).disk().open_dir(PATH).await?.subdir(DIR).await?;
    Ok(dir.open(&name).await?.read_at(0, 100).await?.to_vec())
}

/// Of what is not synced a power cut takes a part, another one with each seed.
const SEEDS: u64 = 10;

fn run(mut test: impl AsyncFnMut(rt::sim::Handle, Target) -> Result<(), StoreError>) {
    for seed in 0..SEEDS {
        let sim = Sim::new(Options::seed(seed));
        let handle = sim.handle();
        let rt = handle.rt(NODE);
        let done = sim.run(async {
            let target = Target::make(&rt).await?;
            test(handle, target).await
        });
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// One sync makes a small write durable, and after a power cut the log has the data.
#[test]
fn a_small_write_is_durable_with_the_log() {
    let mut lost = 0;
    run(async |handle, target| {
        target.write(id(1), 5, &pattern(100, 1)).await?;
        target.write(id(2), 0, &pattern(LOGGED_BYTES_MAX as usize, 2)).await?;
        let before = handle.node_stats(NODE).syncs;
        target.sync().await?;
        assert_eq!(handle.node_stats(NODE).syncs - before, 1, "of the log alone");
        lost += u64::from(after_a_cut(&handle, target).await? != pattern(100, 1));
        let check = check_to(&handle.rt(NODE), PATH, Depth::Data).await?;
        assert!(check.is_clean(), "{check:?}");
        let target = Target::open(&handle.rt(NODE), Limits::default()).await?;
        assert_eq!(target.read(id(1), 5, 100).await?, pattern(100, 1));
        assert_eq!(target.read(id(2), 0, 1 << 20).await?, pattern(LOGGED_BYTES_MAX as usize, 2));
        // What was put back is durable.
        assert_eq!(after_a_cut(&handle, target).await?, pattern(100, 1));
        Ok(())
    });
    assert!(lost > 0, "nobody has synced the data file");
}

/// The log is cut behind what the engine has.
#[test]
fn the_engine_gets_no_record_before_the_data_file_is_synced() {
    run(async |handle, target| {
        let written = target.write(id(1), 0, &pattern(100, 1)).await?;
        target.store.applied(written).await?;
        assert_eq!(after_a_cut(&handle, target).await?, pattern(100, 1));
        Ok(())
    });
}

/// A block is freed, and then has data that the log does not carry.
#[test]
fn nothing_is_put_back_where_something_else_was_written() {
    run(async |handle, target| {
        let small = pattern(100, 1);
        target.write(id(1), 0, &small).await?;
        target.sync().await?;
        target.destroy(&[id(1)]).await?;
        target.sync().await?;
        let large = pattern(LOGGED_BYTES_MAX as usize + 1, 2);
        target.write(id(2), 0, &large).await?;
        target.sync().await?;
        assert_eq!(after_a_cut(&handle, target).await?, large[..100], "the block was used again");
        let target = Target::open(&handle.rt(NODE), Limits::default()).await?;
        assert_eq!(target.read(id(2), 0, 1 << 20).await?, large);
        Ok(())
    });
}
