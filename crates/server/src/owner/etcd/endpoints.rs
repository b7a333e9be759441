//! Which member of the cluster is asked next.

use std::time::Duration;

/// First rest of a member that did not answer; it doubles each time.
const REST_MIN: Duration = Duration::from_millis(500);
/// Longest rest.
const REST_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    failures: u32,
    /// Until when it is asked only if all others rest longer.
    rests_until: u64,
}

/// The members in the order in which they were named. One that answers is asked again; one that does not rests.
#[derive(Debug)]
pub(super) struct Rotation {
    members: Vec<Member>,
    current: usize,
}

impl Rotation {
    /// Of `count` members, at least one.
    pub fn new(count: usize) -> Rotation {
        assert!(count > 0, "a cluster has members");
        Rotation { members: vec![Member::default(); count], current: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// The one to be asked at `now`, in nanoseconds.
    pub fn pick(&mut self, now: u64) -> usize {
        let count = self.members.len();
        let order = (0..count).map(|step| (self.current + step) % count);
        // The first of those that do not rest; if all do, the one that has rested longest.
        let rest =
            |index: &usize| self.members.get(*index).map_or(u64::MAX, |member| member.rests_until.max(now));
        self.current = order.min_by_key(rest).unwrap_or(0);
        self.current
    }

    /// A member did not answer, or with an error of its own.
    pub fn failed(&mut self, now: u64, index: usize) {
        if let Some(member) = self.members.get_mut(index) {
            let rest = REST_MIN.saturating_mul(1 << member.failures.min(16)).min(REST_MAX);
            member.failures = member.failures.saturating_add(1);
            member.rests_until = now + u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX / 2);
        }
    }

    /// A member answered.
    pub fn answered(&mut self, index: usize) {
        if let Some(member) = self.members.get_mut(index) {
            *member = Member::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_answers_is_asked_again() {
        let mut rotation = Rotation::new(3);
        for now in 0..100 {
            assert_eq!(rotation.pick(now * SECOND), 0);
            rotation.answered(0);
        }
    }

    #[test]
    fn a_dead_member_is_not_asked_while_another_one_answers() {
        let mut rotation = Rotation::new(3);
        assert_eq!(rotation.pick(0), 0);
        rotation.failed(0, 0);
        for now in 0..1000 {
            assert_eq!(rotation.pick(now * SECOND), 1);
            rotation.answered(1);
        }
    }

    #[test]
    fn of_three_that_fail_each_has_its_turn() {
        let mut rotation = Rotation::new(3);
        let mut asked = [0; 3];
        for step in 0..300 {
            let now = step * SECOND / 10;
            let index = rotation.pick(now);
            rotation.failed(now, index);
            asked[index] += 1;
        }
        assert!(asked.iter().all(|count| *count >= 90), "nobody waits while all rest: {asked:?}");
        rotation.answered(1);
        assert_eq!(rotation.pick(31 * SECOND), 1);
    }

    #[test]
    fn the_only_member_is_always_asked() {
        let mut rotation = Rotation::new(1);
        for now in 0..10 {
            assert_eq!(rotation.pick(now), 0);
            rotation.failed(now, 0);
        }
    }
}
