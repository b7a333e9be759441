//! As many OSTs as a large site has, and more than Lustre's table of devices had room for.

use std::time::Duration;

use proto::TargetId;

use crate::world::World;

/// Polls that a session with each of so many OSTs costs; all are there in the end.
fn polls_of_sessions(osts: u32) -> u64 {
    let world = World::new(1, osts);
    let client = world.mount();
    let before = world.sim.handle().stats().polls;
    world.run(async {
        for ost in 0..osts {
            let space = client.target_space(TargetId::ost(ost), Duration::from_secs(2)).await;
            assert!(space.is_ok_and(|space| space.is_some()), "OST {ost} answers");
        }
        // One with the MDT besides.
        assert_eq!(client.answers().len(), osts as usize + 1);
    });
    world.sim.handle().stats().polls - before
}

#[test]
fn a_session_of_many_costs_what_one_of_few_does() {
    let (few, many) = (polls_of_sessions(1_000), polls_of_sessions(12_000));
    assert!(many <= few * 13, "{few} polls for 1,000, {many} for 12,000");
}
