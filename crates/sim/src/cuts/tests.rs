use super::*;

const SCALE: Scale = Scale { clients: 2, osts: 2, steps: 16 };

fn world(sync_lies: Chance) -> World {
    World { seed: 1, scale: SCALE, sync_lies }
}

#[test]
fn a_cut_at_a_sync_harms_nobody_and_is_the_same_twice() {
    let world = world(Chance::NEVER);
    let count = count_syncs(world);
    assert!(count > 15, "{count} syncs");
    for (number, sync) in (1..=count).step_by(7).enumerate() {
        let cut = Cut { sync, moment: MOMENTS[number % MOMENTS.len()] };
        let found = run(world, cut);
        assert!(found.findings.is_empty(), "{cut:?}: {:?}", found.findings);
        assert!(found.cuts > 0);
        if number == 3 {
            assert_eq!(found, run(world, cut));
        }
    }
}

/// A disk that answers syncs without doing them: the same cuts find that changes are lost.
#[test]
fn a_disk_that_lies_is_found() {
    let world = world(Chance::ALWAYS);
    let count = count_syncs(world);
    let harmed = |sync: u64| {
        let run = || run(world, Cut { sync, moment: Moment::Before });
        !std::panic::catch_unwind(run).is_ok_and(|found| found.findings.is_empty())
    };
    assert!((count / 2..count).any(harmed));
}
