//! Layout ids of files that are gone for good, as ranges.
//!
//! An OST leaves a tombstone for each layout that it destroys, and merges those that touch. Files spread over OSTs in turn, so of
//! each OST no two touch. So the MDT tells it with each Destroy which ids around are dead too: one tombstone takes the place of
//! all that lie between. An id is told only after the change that took its inode away is durable: it never names a layout again. FIDs
//! of what never has a layout (directories, for example) count as well, once that is gone.
//!
//! Only in memory. What a restart forgets is told no more, and costs one tombstone more on each OST, not one for each file.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use proto::wire::messages::DeadRange;
use proto::{Fid, Transno};

/// Ranges that are remembered; beyond, those of the oldest sequence are forgotten.
const RANGES_MAX: usize = 65_536;
/// Ids that are remembered whose end is not durable yet; more are forgotten.
const YOUNG_MAX: usize = 65_536;

/// The layout ids of files that are gone.
#[derive(Default)]
pub(super) struct Dead {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last oid of each range, by sequence and first oid. No two overlap or touch.
    ranges: BTreeMap<(u64, u32), u32>,
    /// Those whose end is not durable yet, about in the order of the changes.
    young: VecDeque<(Transno, Fid)>,
}

impl Dead {
    /// Nothing that `fid` names is left after the change `transno`.
    pub(super) fn note(&self, fid: Fid, transno: Transno) {
        let mut state = self.state.lock();
        if fid.ver == 0 && state.young.len() < YOUNG_MAX {
            state.young.push_back((transno, fid));
        }
    }

    /// Every change up to `durable` is durable.
    pub(super) fn settle(&self, durable: Transno) {
        let mut state = self.state.lock();
        while let Some((transno, fid)) = state.young.front().copied()
            && transno <= durable
        {
            state.young.pop_front();
            state.insert(fid);
        }
    }

    /// The dead ids around `fid`, itself included; `None` if it is not known to be dead.
    pub(super) fn around(&self, fid: Fid) -> Option<DeadRange> {
        let state = self.state.lock();
        let (&(seq, first), &last) = state.ranges.range(..=(fid.seq, fid.oid)).next_back()?;
        (fid.ver == 0 && seq == fid.seq && last >= fid.oid).then_some(DeadRange { seq, first, last })
    }
}

impl State {
    fn insert(&mut self, fid: Fid) {
        let (seq, mut first, mut last) = (fid.seq, fid.oid, fid.oid);
        if let Some((&(of, from), &until)) = self.ranges.range(..=(seq, first)).next_back()
            && of == seq
            && u64::from(until) + 1 >= u64::from(first)
        {
            (first, last) = (from, last.max(until));
        }
        if let Some(next) = last.checked_add(1)
            && let Some(until) = self.ranges.remove(&(seq, next))
        {
            last = until;
        }
        self.ranges.insert((seq, first), last);
        while self.ranges.len() > RANGES_MAX {
            let Some((&(oldest, _), _)) = self.ranges.first_key_value() else { return };
            self.ranges = self.ranges.split_off(&(oldest + 1, 0));
        }
    }
}

/// The parts of `range` without the oids of `alive`, which are in order.
pub(super) fn without(range: &DeadRange, alive: &[u32]) -> Vec<DeadRange> {
    let (mut first, mut parts) = (u64::from(range.first), Vec::new());
    let last = u64::from(range.last);
    for end in alive.iter().map(|oid| u64::from(*oid)).filter(|oid| *oid <= last).chain([last + 1]) {
        if end > first {
            parts.push(DeadRange { seq: range.seq, first: first as u32, last: (end - 1) as u32 });
        }
        first = first.max(end + 1);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: u64 = 0x2_0000_0400;

    fn fid(oid: u32) -> Fid {
        Fid { seq: SEQ, oid, ver: 0 }
    }

    fn range(first: u32, last: u32) -> DeadRange {
        DeadRange { seq: SEQ, first, last }
    }

    #[test]
    fn only_what_is_durable_is_told() {
        let dead = Dead::default();
        for oid in [5, 3, 4, 9] {
            dead.note(fid(oid), Transno(u64::from(oid)));
        }
        assert_eq!(dead.around(fid(5)), None);
        dead.settle(Transno(5));
        assert_eq!(dead.around(fid(4)), Some(range(3, 5)));
        assert_eq!(dead.around(fid(9)), None);
        assert_eq!(dead.around(Fid { seq: SEQ + 1, oid: 4, ver: 0 }), None);
        dead.note(fid(6), Transno(10));
        dead.note(fid(8), Transno(11));
        dead.note(fid(7), Transno(12));
        dead.settle(Transno(12));
        assert_eq!(dead.around(fid(3)), Some(range(3, 9)), "they meet");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let dead = Dead::default();
        for n in 0..3 * RANGES_MAX as u32 / 2 {
            let of = u64::from(n / 1000);
            dead.note(Fid { seq: SEQ + of, oid: 1 + n % 1000 * 2, ver: 0 }, Transno(1));
            dead.settle(Transno(1));
        }
        assert!(dead.state.lock().ranges.len() <= RANGES_MAX);
        for n in 0..2 * YOUNG_MAX as u32 {
            dead.note(fid(n), Transno(9));
        }
        assert_eq!(dead.state.lock().young.len(), YOUNG_MAX);
    }

    #[test]
    fn what_is_still_to_be_destroyed_is_left_out() {
        assert_eq!(without(&range(1, 9), &[]), [range(1, 9)]);
        assert_eq!(without(&range(1, 9), &[1, 4, 5, 9]), [range(2, 3), range(6, 8)]);
        assert_eq!(without(&range(1, 1), &[1]), []);
        assert_eq!(without(&range(u32::MAX, u32::MAX), &[]), [range(u32::MAX, u32::MAX)]);
    }
}
