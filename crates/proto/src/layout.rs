//! How a file's bytes map to objects: RAID-0 striping in units of `stripe_size` (FEATURES L1).

use smallvec::SmallVec;

use crate::ids::{Fid, ObjectId};
use crate::limits::{STRIPE_SIZE_UNIT, STRIPES_MAX};

/// Where the data of one file lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Names the objects; never names two layouts.
    pub id: Fid,
    /// Grows when the layout of the file changes.
    pub generation: u32,
    /// Bytes of one stripe unit; a multiple of 64 KiB.
    pub stripe_size: u32,
    /// Whether several stripes may share an OST (`lfs setstripe -C`).
    pub overstriped: bool,
    /// The OST of each stripe, in order; not empty.
    pub osts: SmallVec<[u32; 4]>,
    /// The pool that the OSTs were taken from; empty for none.
    pub pool: String,
}

/// What a caller asks of a new layout; also a directory's default for new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutHint {
    /// Stripes: 0 is the default of the directory above, -1 one on every OST, -2 to -32 with `overstripe` that
    /// many on every OST.
    pub stripe_count: i32,
    /// Bytes of one stripe unit; 0 is the default of the directory above.
    pub stripe_size: u32,
    /// Index of the first OST; -1 leaves the choice to the MDT.
    pub start_index: i32,
    /// The OST of each stripe, in order; empty leaves the choice to the MDT.
    pub osts: Vec<u32>,
    /// Whether several stripes may share an OST.
    pub overstripe: bool,
    /// Pool to choose from; empty for none.
    pub pool: String,
}

impl Default for LayoutHint {
    fn default() -> LayoutHint {
        LayoutHint {
            stripe_count: 0,
            stripe_size: 0,
            start_index: -1,
            osts: Vec::new(),
            overstripe: false,
            pool: String::new(),
        }
    }
}

/// A contiguous piece of a file within one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Stripe that holds it.
    pub stripe: u32,
    /// Where it starts in the file, in bytes.
    pub file_offset: u64,
    /// Where it starts in the object, in bytes.
    pub object_offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Layout {
    /// Whether the layout can be used: a stripe size in units of 64 KiB and 1 to 2,000 stripes.
    pub fn is_sane(&self) -> bool {
        self.id.is_sane()
            && self.stripe_size != 0
            && self.stripe_size.is_multiple_of(STRIPE_SIZE_UNIT)
            && (1..=STRIPES_MAX).contains(&self.osts.len())
    }

    /// Number of stripes.
    pub fn stripe_count(&self) -> u32 {
        self.osts.len() as u32
    }

    /// The object that holds `stripe`.
    pub fn object(&self, stripe: u32) -> ObjectId {
        ObjectId { layout: self.id, stripe }
    }

    /// The stripe that holds byte `offset` of the file, and the byte's offset in that stripe's object.
    pub fn locate(&self, offset: u64) -> (u32, u64) {
        let unit = u64::from(self.stripe_size);
        let count = u64::from(self.stripe_count());
        let number = offset / unit;
        ((number % count) as u32, number / count * unit + offset % unit)
    }

    /// The file offset of byte `offset` of the object of `stripe`: the inverse of [`Layout::locate`].
    pub fn file_offset(&self, stripe: u32, offset: u64) -> u64 {
        let unit = u64::from(self.stripe_size);
        let count = u64::from(self.stripe_count());
        (offset / unit * count + u64::from(stripe)) * unit + offset % unit
    }

    /// The pieces of `[offset, offset + len)`, in file order; each lies within one stripe unit, or for a file of
    /// one stripe is the whole range.
    pub fn runs(&self, offset: u64, len: u64) -> impl Iterator<Item = Run> + '_ {
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (stripe, object_offset) = self.locate(at);
            let unit = u64::from(self.stripe_size);
            let unit_end = if self.stripe_count() == 1 { end } else { (at / unit + 1).saturating_mul(unit) };
            let run = Run { stripe, file_offset: at, object_offset, len: unit_end.min(end) - at };
            at += run.len;
            Some(run)
        })
    }

    /// Size of the object of `stripe` in a file of `file_size` bytes.
    pub fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        let unit = u64::from(self.stripe_size);
        let count = u64::from(self.stripe_count());
        let whole_units = file_size / unit;
        let full = whole_units / count;
        let last = (whole_units % count) as u32;
        full * unit
            + match stripe.cmp(&last) {
                std::cmp::Ordering::Less => unit,
                std::cmp::Ordering::Equal => file_size % unit,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Size of the file when the object of `stripe` has `object_size` bytes and nothing lies behind it.
    pub fn file_size_from(&self, stripe: u32, object_size: u64) -> u64 {
        match object_size.checked_sub(1) {
            None => 0,
            Some(last) => self.file_offset(stripe, last) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(stripe_size: u32, count: u32) -> Layout {
        Layout {
            id: Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 },
            generation: 0,
            stripe_size,
            overstriped: false,
            osts: (0..count).collect(),
            pool: String::new(),
        }
    }

    /// FEATURES L1: the mapping equals the formula, and the objects' sizes sum to the file's.
    #[test]
    fn mapping_matches_the_formula() {
        let mut random: u64 = 1;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 20
        };
        for _ in 0..1_000_000 {
            let layout_unit = 65_536 * (1 + next() % 64) as u32;
            let l = layout(layout_unit, 1 + (next() % 9) as u32);
            let offset = next() % (1 << 40);
            let (stripe, object_offset) = l.locate(offset);
            let unit = u64::from(l.stripe_size);
            let count = u64::from(l.stripe_count());
            assert_eq!(u64::from(stripe), offset / unit % count);
            assert_eq!(object_offset, offset / (unit * count) * unit + offset % unit);
            assert_eq!(l.file_offset(stripe, object_offset), offset);
        }
    }

    #[test]
    fn object_sizes_sum_to_the_file_size() {
        for count in [1, 2, 3, 7] {
            let l = layout(65_536, count);
            for size in [0, 1, 65_535, 65_536, 65_537, 1 << 20, 999_999] {
                let sum: u64 = (0..count).map(|stripe| l.object_size(stripe, size)).sum();
                assert_eq!(sum, size);
                let from_objects = (0..count).map(|s| l.file_size_from(s, l.object_size(s, size))).max();
                assert_eq!(from_objects, Some(size), "{count} stripes, {size} bytes");
                let runs: u64 = l.runs(0, size).map(|run| run.len).sum();
                assert_eq!(runs, size);
            }
        }
    }
}
