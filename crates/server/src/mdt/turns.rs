//! In which turns new files take OSTs when some have much more room than others (FEATURES L6).
//!
//! As long as all have about as much, each has one turn in a round, and nothing of this is needed. Otherwise an OST has as many turns in a
//! round as its weight is worth, spread over the round, and those of one server are spread over it as well. Whoever has just had a turn
//! waits until the others had theirs: that is what Lustre's penalty of an OST and of its server is for. No number is drawn. A round is part
//! of the stored order, so a create that is replayed gives the same layout, and a client that foretells layouts can follow it.

use std::collections::{BTreeMap, BTreeSet};

use proto::OstIndex;
use proto::layout::Spread;
use proto::limits::LIST_MAX;

/// Turns of an OST in a round, on average, as long as a client can be told the round.
const TURNS_EACH: usize = 16;
/// The same of a file system with more OSTs than that.
const TURNS_EACH_MIN: usize = 4;

/// A round of turns; without any, each OST has one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Round {
    turns: Vec<OstIndex>,
    /// So many turns at least lie between one of an OST and its next one.
    gap: usize,
}

impl Round {
    /// These turns.
    pub fn new(turns: Vec<OstIndex>) -> Round {
        let mut gap = turns.len();
        let mut last = BTreeMap::new();
        for (at, ost) in turns.iter().chain(&turns).enumerate() {
            if let Some(before) = last.insert(*ost, at) {
                gap = gap.min(at - before);
            }
        }
        Round { turns, gap }
    }

    /// The turns, in their order.
    pub fn turns(&self) -> &[OstIndex] {
        &self.turns
    }

    /// Whether any `count` turns that follow each other are of different OSTs.
    pub fn keeps_apart(&self, count: usize) -> bool {
        count <= self.gap
    }

    /// The first `count` different OSTs from turn `start` on. Those of `all` that have no turn come behind those that do.
    pub fn take(&self, start: usize, count: usize, all: &[OstIndex]) -> Vec<OstIndex> {
        let mut taken = BTreeSet::new();
        let from_start = self.turns.iter().cycle().skip(start).take(self.turns.len());
        from_start.chain(all).copied().filter(|ost| taken.insert(*ost)).take(count).collect()
    }
}

/// What an OST has to offer.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    pub ost: OstIndex,
    /// Who serves it.
    pub server: &'a str,
    /// Bytes that can still be written; `None` if it has not said.
    pub free: Option<u64>,
}

/// When and how far room decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// As long as no OST has so much less room than the one that has most, in percent of that one's, all have as many turns
    /// (`qos_threshold_rr`).
    pub threshold_pct: u64,
    /// How far room above the average counts, in percent (`qos_prio_free`).
    pub prio_free_pct: u64,
}

impl Rule {
    /// Lustre's.
    pub const DEFAULT: Rule = Rule { threshold_pct: 17, prio_free_pct: 90 };

    /// How much each of `free` is worth, by the bytes that can be written there; `None` if all are to have as many turns.
    ///
    /// With a priority of 100 percent that is the room itself. With 0, room above the average counts for nothing: those that have it take
    /// turns alike, and only those that have less get fewer. An OST never gets more than its room is worth, so a nearly full one gets next to
    /// nothing whatever the priority is.
    pub fn weights(self, free: &[u64]) -> Option<Vec<u128>> {
        let max = u128::from(*free.iter().max()?);
        // A full one is passed over anyway.
        let min = u128::from(*free.iter().filter(|free| **free > 0).min()?);
        let threshold = u128::from(self.threshold_pct.min(100));
        if min == max || max * (100 - threshold) < min * 100 {
            return None;
        }
        let average = free.iter().map(|free| u128::from(*free)).sum::<u128>() / free.len() as u128;
        let prio = u128::from(self.prio_free_pct.min(100));
        let weight = |free: &u64| {
            let free = u128::from(*free);
            prio * free + (100 - prio) * free.min(average)
        };
        Some(free.iter().map(weight).collect())
    }

    /// A round of turns; none if each OST is to have one. Of one that has not said how much room it has the average is thought.
    pub fn round(self, offers: &[Offer<'_>]) -> Round {
        let known: Vec<u64> = offers.iter().filter_map(|offer| offer.free).collect();
        let sum: u128 = known.iter().map(|free| u128::from(*free)).sum();
        let average = sum.checked_div(known.len() as u128).unwrap_or(0) as u64;
        let free: Vec<u64> = offers.iter().map(|offer| offer.free.unwrap_or(average)).collect();
        let Some(weights) = self.weights(&free) else { return Round::default() };
        let shares = shares(&weights, round_len(offers.len()));
        let turns = offers.iter().zip(shares).map(|(offer, share)| (offer.ost, offer.server, share));
        Round::new(interleaved(turns))
    }
}

/// Turns of a round of so many OSTs: no more than a client can be told, if that is enough.
fn round_len(osts: usize) -> usize {
    (osts * TURNS_EACH).min(Spread::OSTS_MAX).max(osts * TURNS_EACH_MIN).min(LIST_MAX)
}

/// How many of `len` turns each weight is worth; what is left over goes to those that miss most.
fn shares(weights: &[u128], len: usize) -> Vec<usize> {
    let (len, sum) = (len as u128, weights.iter().sum::<u128>().max(1));
    let mut shares: Vec<usize> = weights.iter().map(|weight| (weight * len / sum) as usize).collect();
    let mut missing: Vec<(u128, usize)> =
        weights.iter().enumerate().map(|(n, weight)| (weight * len % sum, n)).collect();
    missing.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let left = (len as usize).saturating_sub(shares.iter().sum());
    for (_, n) in missing.into_iter().take(left) {
        if let Some(share) = shares.get_mut(n) {
            *share += 1;
        }
    }
    shares
}

/// Each OST, with its server, as often as it says: the turns of each server are spread over the round, and those of its OSTs over what is
/// the server's. Of two servers with two OSTs each that have one turn each the round is 0, 2, 1, 3.
pub fn interleaved<'a>(turns: impl Iterator<Item = (OstIndex, &'a str, usize)>) -> Vec<OstIndex> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_servers: Vec<Vec<(OstIndex, usize)>> = Vec::new();
    for (ost, server, share) in turns {
        let number = *numbers.entry(server).or_insert(of_servers.len());
        match of_servers.get_mut(number) {
            Some(osts) => osts.push((ost, share)),
            None => of_servers.push(vec![(ost, share)]),
        }
    }
    let of_servers: Vec<Vec<OstIndex>> = of_servers.into_iter().map(in_turn).collect();
    let counts = of_servers.iter().map(Vec::len).enumerate().collect();
    let mut next: Vec<_> = of_servers.iter().map(|osts| osts.iter().copied()).collect();
    in_turn(counts).into_iter().filter_map(|server| next.get_mut(server)?.next()).collect()
}

/// Each of `all` as often as it says, as evenly as can be: turn k of n has its place at (2k + 1) / 2n of the whole.
fn in_turn<T: Copy>(all: Vec<(T, usize)>) -> Vec<T> {
    let mut places: Vec<(u64, u64, T)> = Vec::new();
    for (one, count) in all {
        let n = count as u64;
        places.extend((0..n).map(|k| (2 * k + 1, 2 * n, one)));
    }
    // Of those at the same place the order stays.
    places.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
    places.into_iter().map(|place| place.2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const ALL_BY_ROOM: Rule = Rule { threshold_pct: 17, prio_free_pct: 100 };

    /// Servers of two OSTs each.
    fn round(rule: Rule, free: &[u64]) -> Vec<u32> {
        let servers = ["a", "b", "c", "d"];
        let offer = |(n, free): (usize, &u64)| Offer {
            ost: OstIndex(n as u32),
            server: servers[n / 2],
            free: Some(*free),
        };
        let offers: Vec<Offer<'_>> = free.iter().enumerate().map(offer).collect();
        rule.round(&offers).turns.into_iter().map(|ost| ost.0).collect()
    }

    fn count_of(round: &[u32], ost: u32) -> usize {
        round.iter().filter(|turn| **turn == ost).count()
    }

    #[test]
    fn room_decides_beyond_the_threshold() {
        let is_even = |free: &[u64]| round(Rule::DEFAULT, free).is_empty();
        assert!(is_even(&[100, 100, 100, 100]) && is_even(&[100, 84, 100, 90]));
        assert!(!is_even(&[100, 83, 100, 100]), "17 percent less");
        assert!(is_even(&[]) && is_even(&[7]) && is_even(&[0, 0]), "there is no choice");
        assert!(is_even(&[100, 0, 100, 100]), "a full one is passed over anyway");
        let at =
            |threshold_pct, free: &[u64]| Rule { threshold_pct, ..Rule::DEFAULT }.weights(free).is_none();
        assert!(at(100, &[1 << 50, 1]), "never");
        assert!(!at(0, &[100, 99]) && at(0, &[100, 100]), "always");
    }

    #[test]
    fn weights_are_the_room_and_the_priority_bounds_them() {
        let of = |prio_free_pct, free: &[u64]| Rule { prio_free_pct, ..Rule::DEFAULT }.weights(free);
        assert_eq!(of(100, &[100, 300, 0]), Some(vec![10_000, 30_000, 0]));
        assert_eq!(of(0, &[100, 300, 500, 300]), Some(vec![10_000, 30_000, 30_000, 30_000]));
        assert_eq!(of(90, &[100, 500]), Some(vec![10_000, 90 * 500 + 10 * 300]));
        assert!(of(90, &[u64::MAX, 1, u64::MAX]).is_some(), "no number is too large");
    }

    #[test]
    fn a_round_has_turns_by_weight_spread_over_it() {
        let all = round(ALL_BY_ROOM, &[GIB, 3 * GIB, 2 * GIB, 2 * GIB]);
        assert_eq!(all.len(), 64);
        assert_eq!([0, 1, 2, 3].map(|ost| count_of(&all, ost)), [8, 24, 16, 16]);
        for half in all.chunks(32) {
            assert_eq!([0, 1, 2, 3].map(|ost| count_of(half, ost)), [4, 12, 8, 8], "no part differs");
        }
        let server = |ost: &u32| ost / 2;
        assert!(all.windows(2).all(|pair| server(&pair[0]) != server(&pair[1])), "the servers interleave");
    }

    #[test]
    fn a_nearly_full_one_gets_next_to_nothing() {
        for prio_free_pct in [0, 50, 90, 100] {
            let rule = Rule { prio_free_pct, ..Rule::DEFAULT };
            let all = round(rule, &[GIB / 100, GIB, GIB, GIB]);
            assert!(count_of(&all, 0) <= 1, "{prio_free_pct}: {all:?}");
        }
    }

    #[test]
    fn what_nobody_knows_is_thought_average() {
        let offer = |n: u32, free| Offer { ost: OstIndex(n), server: "a", free };
        let offers = [offer(0, Some(GIB)), offer(1, None), offer(2, Some(3 * GIB))];
        let all: Vec<u32> = ALL_BY_ROOM.round(&offers).turns.iter().map(|ost| ost.0).collect();
        assert_eq!([0, 1, 2].map(|ost| count_of(&all, ost)), [8, 16, 24]);
        assert_eq!(ALL_BY_ROOM.round(&[offer(0, None), offer(1, None)]), Round::default());
    }

    #[test]
    fn a_round_is_no_longer_than_can_be_told() {
        for (osts, len) in [(2, 32), (64, 1024), (65, 1024), (256, 1024), (257, 1028), (60_000, 65_536)] {
            assert_eq!(round_len(osts), len, "{osts} OSTs");
        }
        let many: Vec<(OstIndex, &str, usize)> = (0..4096).map(|n| (OstIndex(n), "a", 1)).collect();
        assert_eq!(interleaved(many.into_iter()).len(), 4096);
    }

    #[test]
    fn stripes_take_different_osts() {
        let round = Round::new([0, 0, 1, 0, 2].map(OstIndex).to_vec());
        let all = [0, 1, 2, 3].map(OstIndex);
        let take = |start, count| -> Vec<u32> {
            round.take(start, count, &all).into_iter().map(|ost| ost.0).collect()
        };
        assert_eq!((take(0, 1), take(0, 2), take(4, 3)), (vec![0], vec![0, 1], vec![2, 0, 1]));
        assert_eq!(take(2, 9), [1, 0, 2, 3], "one without a turn comes last");
        assert!(round.keeps_apart(1) && !round.keeps_apart(2));
        let even = Round::new([0, 1, 2, 0, 1, 2].map(OstIndex).to_vec());
        assert!(even.keeps_apart(3) && !even.keeps_apart(4));
    }
}
