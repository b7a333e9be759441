//! What one owner may have of one thing: numbers only.

use std::cmp::min;

/// Bytes of the stored limits.
const LIMIT_BYTES: usize = 16;

/// The limits of an owner, and how it stands to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// What it may have for long; 0 for no limit.
    pub soft: u64,
    /// What it may have at all; 0 for no limit.
    pub hard: u64,
    /// Until when it may be above the soft limit; 0 if it was not when somebody looked last. It counts as long as it is above.
    pub deadline_s: u64,
}

/// What an owner may come to by getting one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// So much.
    pub most: u64,
    /// By that it comes above its soft limit, until then.
    pub deadline_s: Option<u64>,
}

impl Limit {
    /// What an owner that has `used` may come to at `now_s`. As `dqot_lookup` of Linux and Lustre's `qsd` have it: the time begins when the
    /// soft limit is passed, and begins anew whenever that happens again.
    pub fn most(&self, used: u64, now_s: u64, grace_s: u64) -> Most {
        let hard = if self.hard == 0 { u64::MAX } else { self.hard };
        if self.soft == 0 || used < self.soft {
            return Most { most: hard, deadline_s: None };
        }
        let is_above = used > self.soft && self.deadline_s != 0;
        if grace_s == 0 || is_above && now_s >= self.deadline_s {
            return Most { most: min(hard, self.soft), deadline_s: None };
        }
        Most { most: hard, deadline_s: (!is_above).then(|| now_s.saturating_add(grace_s)) }
    }

    /// Until when an owner that has `used` may be above its soft limit; 0 if it is not above.
    pub fn deadline(&self, used: u64) -> u64 {
        if self.soft != 0 && used > self.soft { self.deadline_s } else { 0 }
    }

    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.soft == 0 && self.hard == 0
    }

    /// The limits as they are stored.
    pub fn encode(&self) -> Vec<u8> {
        [self.soft.to_le_bytes(), self.hard.to_le_bytes()].concat()
    }

    /// The inverse of [`Limit::encode`]; `None` for what it does not make.
    pub fn decode(bytes: &[u8]) -> Option<Limit> {
        let bytes: &[u8; LIMIT_BYTES] = bytes.try_into().ok()?;
        let (soft, hard) = bytes.split_first_chunk::<8>()?;
        let hard = u64::from_le_bytes(hard.try_into().ok()?);
        Some(Limit { soft: u64::from_le_bytes(*soft), hard, deadline_s: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { soft: 10, hard: 20, deadline_s: 0 };

    fn most(limit: Limit, used: u64, now_s: u64) -> (u64, Option<u64>) {
        let Most { most, deadline_s } = limit.most(used, now_s, 100);
        (most, deadline_s)
    }

    #[test]
    fn time_begins_when_the_soft_limit_is_passed() {
        assert_eq!(most(LIMIT, 9, 1000), (20, None));
        assert_eq!(most(LIMIT, 10, 1000), (20, Some(1100)));
        let above = Limit { deadline_s: 1100, ..LIMIT };
        assert_eq!(most(above, 11, 1099), (20, None));
        assert_eq!(most(above, 11, 1100), (10, None));
        // It was below meanwhile.
        assert_eq!(most(above, 10, 5000), (20, Some(5100)));
        // Nobody has looked since the limit was set.
        assert_eq!(most(LIMIT, 15, 1000), (20, Some(1100)));
        assert_eq!((above.deadline(11), above.deadline(10)), (1100, 0));
    }

    #[test]
    fn a_limit_of_nothing_is_none() {
        assert_eq!(most(Limit { soft: 0, ..LIMIT }, 1 << 40, 1), (20, None));
        assert_eq!(most(Limit { hard: 0, ..LIMIT }, 9, 1), (u64::MAX, None));
        let never_above = LIMIT.most(10, 1, 0);
        assert_eq!(never_above, Most { most: 10, deadline_s: None });
        assert!(Limit::default().is_none());
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let bytes = LIMIT.encode();
        assert_eq!(Limit::decode(&bytes), Some(LIMIT));
        assert_eq!(Limit::decode(&bytes[1..]), None);
    }
}
