//! One component of a layout: an extent of the file, striped over objects.

use std::ops::Range;

use smallvec::SmallVec;

use super::{LayoutHint, Place, Run};
use crate::ids::{DataTarget, Fid, MdtIndex, ObjectId, OstIndex};
use crate::limits::{MDT_DATA_BYTES_MAX, STRIPE_SIZE_DEFAULT, STRIPE_SIZE_UNIT, STRIPES_MAX};

/// RAID-0 whose objects may hold more of the file than was known: what does not know that keeps away from it.
const RAID0_EXTENDING: u32 = 0x104;

/// How the bytes of a component lie in its objects. The numbers are those of the wire and of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Units of the stripe size go to the objects in turn (Lustre's LOV_PATTERN_RAID0).
    Raid0,
    /// The bytes lie as they are in one object of the MDT that has the inode (Lustre's LOV_PATTERN_MDT).
    Mdt,
    /// Nothing was written to the extent yet: it has no objects, and gets them as [`Component::wanted`] says.
    Pending,
    /// The extent never has data: whoever writes to it is refused.
    Nothing,
    /// The data is in the archive of the file's HSM state, and gets objects again as [`Component::wanted`] says when it is restored
    /// (Lustre's LOV_PATTERN_F_RELEASED).
    Released,
    /// One that this version does not know: it is kept as it is, and its data is left alone.
    Unknown(u32),
}

impl Pattern {
    /// Whether the component says what objects it is to get.
    pub fn has_wish(self) -> bool {
        matches!(self, Pattern::Pending | Pattern::Released)
    }

    /// The number of the pattern.
    pub fn to_u32(self) -> u32 {
        match self {
            Pattern::Raid0 => 1,
            Pattern::Mdt => 0x100,
            Pattern::Pending => 0x101,
            Pattern::Nothing => 0x102,
            Pattern::Released => 0x103,
            Pattern::Unknown(number) => number,
        }
    }

    /// The pattern with a number.
    pub fn from_u32(number: u32) -> Pattern {
        match number {
            1 | RAID0_EXTENDING => Pattern::Raid0,
            0x100 => Pattern::Mdt,
            0x101 => Pattern::Pending,
            0x102 => Pattern::Nothing,
            0x103 => Pattern::Released,
            number => Pattern::Unknown(number),
        }
    }
}

/// An extent of a file, and the objects that hold it.
///
/// Offsets in the objects follow from offsets in the file, not from offsets in the component, as in Lustre: the same striping
/// over a longer extent has the same bytes at the same places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Layout id: names the objects; never names two components. One without objects has no id of its own, but that of the file.
    pub id: Fid,
    /// First byte of the file.
    pub start: u64,
    /// First byte of the file behind it; `u64::MAX` for no end.
    pub end: u64,
    /// How the bytes lie in the objects.
    pub pattern: Pattern,
    /// Bytes of one stripe unit; a multiple of 64 KiB.
    pub stripe_size: u32,
    /// Whether several stripes may share a target (`lfs setstripe -C`).
    pub overstriped: bool,
    /// The target of each stripe, in order; empty if there are no objects.
    pub targets: SmallVec<[DataTarget; 4]>,
    /// The pool that the targets were taken from; empty for none.
    pub pool: String,
    /// What objects it gets with the first write to its extent; there if [`Pattern::has_wish`].
    pub wanted: Option<Box<LayoutHint>>,
    /// Bytes that are placed at a time (Lustre's extension_size, `lfs setstripe -z`); 0 for the whole extent. One with objects that has
    /// it takes over so much of the one behind it, which has no objects and the same value.
    pub extension: u64,
}

impl Component {
    /// A component for a whole file, striped over OSTs.
    pub fn striped(id: Fid, stripe_size: u32, osts: impl IntoIterator<Item = OstIndex>) -> Component {
        Component {
            id,
            start: 0,
            end: u64::MAX,
            pattern: Pattern::Raid0,
            stripe_size,
            overstriped: false,
            targets: osts.into_iter().map(DataTarget::Ost).collect(),
            pool: String::new(),
            wanted: None,
            extension: 0,
        }
    }

    /// The first bytes of a file, up to `end`, on an MDT.
    pub fn on_mdt(id: Fid, end: u64, mdt: MdtIndex) -> Component {
        Component {
            end,
            pattern: Pattern::Mdt,
            targets: [DataTarget::Mdt(mdt)].into_iter().collect(),
            ..Component::striped(id, u32::try_from(end).unwrap_or(u32::MAX), [])
        }
    }

    /// One without objects for `[start, end)`; `file` is the file's first layout id. Without `wanted` it never gets any.
    pub fn without_objects(file: Fid, (start, end): (u64, u64), wanted: Option<LayoutHint>) -> Component {
        Component {
            start,
            end,
            pattern: if wanted.is_some() { Pattern::Pending } else { Pattern::Nothing },
            overstriped: wanted.as_ref().is_some_and(|wanted| wanted.overstripe),
            pool: wanted.as_ref().map_or_else(String::new, |wanted| wanted.pool.clone()),
            wanted: wanted.as_ref().map(|wanted| Box::new(wanted.clone())),
            ..Component::striped(file, wanted.map_or(STRIPE_SIZE_UNIT, |wanted| wanted.stripe_size), [])
        }
    }

    /// The same extent when its data is in an archive alone; `file` is the file's first layout id. What lay on an MDT is restored to
    /// an OST.
    pub fn released(&self, file: Fid) -> Component {
        if self.pattern == Pattern::Nothing {
            return self.clone();
        }
        let wanted = self.wish();
        let without = Component::without_objects(file, (self.start, self.end), Some(wanted));
        // What had objects does not grow: the one behind it has none either.
        let extension = if self.is_placed() { 0 } else { self.extension };
        Component { pattern: Pattern::Released, extension, ..without }
    }

    /// The number of its pattern, on the wire and on disk.
    pub fn pattern_number(&self) -> u32 {
        if self.extends() { RAID0_EXTENDING } else { self.pattern.to_u32() }
    }

    /// Whether it takes over a part of the one behind it when that is written to.
    pub fn extends(&self) -> bool {
        self.pattern == Pattern::Raid0 && self.extension > 0
    }

    /// What to ask for to get such objects again.
    pub fn wish(&self) -> LayoutHint {
        match &self.wanted {
            Some(wanted) => LayoutHint::clone(wanted),
            None if self.pattern == Pattern::Mdt => {
                LayoutHint { stripe_count: 1, stripe_size: STRIPE_SIZE_DEFAULT, ..LayoutHint::default() }
            }
            None => LayoutHint {
                stripe_count: self.targets.len() as i32,
                stripe_size: self.stripe_size,
                overstripe: self.overstriped,
                pool: self.pool.clone(),
                ..LayoutHint::default()
            },
        }
    }

    /// Whether there are objects for the data.
    pub fn is_placed(&self) -> bool {
        !matches!(self.pattern, Pattern::Pending | Pattern::Nothing | Pattern::Released)
    }

    /// Whether the component can be what somebody made: a known pattern has a stripe size in units of 64 KiB and 1 to 2,000
    /// stripes.
    pub fn is_sane(&self) -> bool {
        let known = self.stripe_size != 0
            && self.stripe_size.is_multiple_of(STRIPE_SIZE_UNIT)
            && self.targets.is_empty() != self.is_placed()
            && self.wanted.is_some() == self.pattern.has_wish()
            && (self.pattern != Pattern::Mdt || self.is_sane_on_mdt());
        self.id.is_sane()
            && self.start < self.end
            && self.extension.is_multiple_of(u64::from(STRIPE_SIZE_UNIT))
            && self.targets.len() <= STRIPES_MAX
            && (known || !self.is_usable())
    }

    fn is_sane_on_mdt(&self) -> bool {
        let target = self.targets.first().copied();
        self.start == 0
            && self.end <= MDT_DATA_BYTES_MAX
            && u64::from(self.stripe_size) == self.end
            && self.targets.len() == 1
            && matches!(target, Some(DataTarget::Mdt(_)))
    }

    /// Whether this version can read and write the data.
    pub fn is_usable(&self) -> bool {
        !matches!(self.pattern, Pattern::Unknown(_))
    }

    /// Number of stripes.
    pub fn stripe_count(&self) -> u32 {
        self.targets.len() as u32
    }

    /// The OST of each stripe that lies on one, in order.
    pub fn osts(&self) -> impl Iterator<Item = OstIndex> + '_ {
        self.targets.iter().filter_map(|target| target.ost())
    }

    /// The object that holds `stripe`.
    pub fn object(&self, stripe: u32) -> ObjectId {
        ObjectId { layout: self.id, stripe }
    }

    /// Each object, and where it is.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..)
            .zip(&self.targets)
            .map(|(stripe, target)| Place { object: self.object(stripe), target: *target })
    }

    /// Where the object of `stripe` is; `None` if there is no such stripe.
    pub fn place(&self, stripe: u32) -> Option<Place> {
        let target = *self.targets.get(stripe as usize)?;
        Some(Place { object: self.object(stripe), target })
    }

    fn unit(&self) -> u64 {
        u64::from(self.stripe_size).max(1)
    }

    fn count(&self) -> u64 {
        u64::from(self.stripe_count()).max(1)
    }

    /// The stripe that holds byte `offset` of the file, and the byte's offset in that stripe's object.
    pub fn locate(&self, offset: u64) -> (u32, u64) {
        let (unit, count) = (self.unit(), self.count());
        let number = offset / unit;
        ((number % count) as u32, number / count * unit + offset % unit)
    }

    /// The file offset of byte `offset` of the object of `stripe`: the inverse of [`Component::locate`].
    pub fn file_offset(&self, stripe: u32, offset: u64) -> u64 {
        let (unit, count) = (self.unit(), self.count());
        let number = (offset / unit).saturating_mul(count).saturating_add(u64::from(stripe));
        number.saturating_mul(unit).saturating_add(offset % unit)
    }

    /// The piece that begins at `at` and ends before `end`, both within the extent: it lies within one stripe unit, or with one
    /// stripe is the whole range.
    pub(super) fn run(&self, at: u64, end: u64) -> Option<Run> {
        let (stripe, object_offset) = self.locate(at);
        let unit_end =
            if self.stripe_count() == 1 { end } else { (at / self.unit() + 1).saturating_mul(self.unit()) };
        Some(Run { place: self.place(stripe)?, file_offset: at, object_offset, len: unit_end.min(end) - at })
    }

    /// The ranges of the file that lie in a range of the object of `stripe`, in order.
    pub(super) fn file_ranges(
        &self,
        stripe: u32,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let unit_end = (at / self.unit() + 1).saturating_mul(self.unit());
            let until = if self.stripe_count() == 1 { range.end } else { range.end.min(unit_end) };
            let from = self.file_offset(stripe, at);
            let len = until - at;
            at = until;
            Some(from..from.saturating_add(len))
        })
    }

    /// Size of the object of `stripe` in a file of `file_size` bytes.
    pub(super) fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        if file_size <= self.start {
            return 0;
        }
        self.reach(stripe, file_size)
    }

    /// How far the object of `stripe` goes up to byte `end` of the file, or the end of the extent.
    pub fn reach(&self, stripe: u32, end: u64) -> u64 {
        let (unit, count, size) = (self.unit(), self.count(), end.min(self.end));
        let whole_units = size / unit;
        let full = whole_units / count;
        let last = (whole_units % count) as u32;
        full * unit
            + match stripe.cmp(&last) {
                std::cmp::Ordering::Less => unit,
                std::cmp::Ordering::Equal => size % unit,
                std::cmp::Ordering::Greater => 0,
            }
    }
}
