//! Where a new file begins, and its layout, for who knows nothing but its FID and the OSTs in their order.
//!
//! The MDT chooses so, and a client that makes files ahead of it foretells the same.

use super::{Component, Layout};
use crate::ids::{Fid, OstIndex};
use crate::limits::STRIPES_MAX;
use crate::shards::mix;
use crate::wire_struct;

wire_struct! {
    /// How new files lie over OSTs: in stripes of one size, as many as there are, in turn.
    pub struct Spread {
        /// Bytes of one stripe unit.
        pub stripe_size: u32,
        /// Stripes of a file.
        pub stripe_count: u32,
        /// The OSTs in the order in which stripes take them; none if nothing can be foretold.
        pub osts: Vec<OstIndex>,
        /// The first sequence of FIDs that may name objects on all of them.
        pub first_sequence: u64,
    }
}

impl Spread {
    /// OSTs of one at most: where there are more, layouts are not foretold.
    pub const OSTS_MAX: usize = 1024;

    /// The layout of the new file `id`; `None` if it cannot be foretold.
    pub fn layout_of(&self, id: Fid) -> Option<Layout> {
        let (count, known) = (self.stripe_count as usize, self.osts.len());
        let can = (1..=known.min(STRIPES_MAX)).contains(&count) && id.seq >= self.first_sequence;
        can.then(|| {
            let start = start(id, count, known);
            let osts = self.osts.iter().cycle().skip(start).take(count).copied();
            Layout::from(Component::striped(id, self.stripe_size, osts))
        })
    }
}

/// Where a file of `count` stripes begins among `osts` OSTs.
///
/// Each run of as many files as there are OSTs fills all of them evenly. The runs are turned against each other, so
/// that no pattern of names (every second one a directory, say) leaves OSTs out.
pub fn start(file: Fid, count: usize, osts: usize) -> usize {
    let number = file.oid.saturating_sub(1) as usize;
    let (run, place) = (number / osts, number % osts);
    let turn = mix(run as u64, file.seq) >> 33;
    let step = if count.is_multiple_of(osts) { 1 } else { count };
    (place * step + turn as usize) % osts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    fn spread(count: u32, osts: u32) -> Spread {
        Spread {
            stripe_size: 1 << 20,
            stripe_count: count,
            osts: (0..osts).map(OstIndex).collect(),
            first_sequence: ID.seq,
        }
    }

    #[test]
    fn what_cannot_be_foretold() {
        assert_eq!(spread(1, 0).layout_of(ID), None);
        assert_eq!(spread(0, 4).layout_of(ID), None);
        assert_eq!(spread(5, 4).layout_of(ID), None, "several stripes of one OST");
        assert_eq!(spread(1, 4).layout_of(Fid { seq: ID.seq - 1, ..ID }), None, "it may name what is lost");
    }

    #[test]
    fn files_take_osts_in_turn() {
        let of = |oid| {
            let layout = spread(2, 4).layout_of(Fid { oid, ..ID }).expect("a layout");
            assert!(layout.is_sane());
            layout.osts().map(|ost| ost.0).collect::<Vec<_>>()
        };
        let (one, next) = (of(1), of(2));
        assert_eq!((one[1], next[0], next[1]), ((one[0] + 1) % 4, (one[0] + 2) % 4, (one[0] + 3) % 4));
    }
}
