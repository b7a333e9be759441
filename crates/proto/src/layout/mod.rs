//! How a file's bytes map to objects (FEATURES L1): a list of components, each with an extent of the file, a pattern and objects.
//!
//! Data is addressed by object and target, never by the number of a stripe: what keeps data of a file need not know its layout.

mod component;
mod hint;
mod shown;
mod spread;
#[cfg(test)]
mod tests;

use std::ops::Range;

use smallvec::SmallVec;

pub use component::{Component, Pattern};
pub use hint::{HintPart, LayoutHint};
pub use shown::Shown;
pub use spread::{Spread, start};

use crate::ids::{DataTarget, Fid, ObjectId, OstIndex};
use crate::limits::COMPONENTS_MAX;

/// Where the data of one file lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Grows when the layout of the file changes.
    pub generation: u32,
    /// One behind the other, from the file's first byte to where no end is; not empty.
    pub components: SmallVec<[Component; 1]>,
}

/// An object, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The object.
    pub object: ObjectId,
    /// The target that has it; always the same for an object.
    pub target: DataTarget,
}

/// A contiguous piece of a file within one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The object.
    pub place: Place,
    /// Where it starts in the file, in bytes.
    pub file_offset: u64,
    /// Where it starts in the object, in bytes.
    pub object_offset: u64,
    /// Bytes.
    pub len: u64,
}

impl From<Component> for Layout {
    /// The first layout of a file, of one component.
    fn from(component: Component) -> Layout {
        Layout { generation: 0, components: SmallVec::from_buf([component]) }
    }
}

impl Layout {
    /// Whether the layout can be what somebody made: its components are sane, and cover the file.
    pub fn is_sane(&self) -> bool {
        let mut end = 0;
        let follows = |component: &Component| {
            let follows = component.start == end && component.is_sane();
            end = component.end;
            follows
        };
        let ends = self.components.iter().all(follows) && end == u64::MAX;
        self.components.len() <= COMPONENTS_MAX && ends && self.extends_into_pending()
    }

    /// Whether what extends has something to extend into.
    fn extends_into_pending(&self) -> bool {
        let is_space = |of: &Component, behind: &Component| {
            behind.pattern == Pattern::Pending && behind.extension == of.extension
        };
        let behind = self.components.iter().skip(1).map(Some).chain([None]);
        let mut pairs = self.components.iter().zip(behind);
        pairs.all(|(of, behind)| !of.extends() || behind.is_some_and(|behind| is_space(of, behind)))
    }

    /// Whether this version can read and write all of the data.
    pub fn is_usable(&self) -> bool {
        self.components.iter().all(Component::is_usable)
    }

    /// The ids of the components that have objects: they name all objects of the layout.
    pub fn ids(&self) -> impl Iterator<Item = Fid> + '_ {
        self.extents().map(|(id, ..)| id)
    }

    /// Whether a part of the file has no objects yet, so that another client may give it some at any time.
    pub fn is_growing(&self) -> bool {
        self.components.iter().any(|component| component.pattern.has_wish())
    }

    /// Whether the data is in an archive alone.
    pub fn is_released(&self) -> bool {
        self.components.iter().any(|component| component.pattern == Pattern::Released)
    }

    /// What a file without data in the file system has, of the next generation; `None` if there is none. `file` is its first layout id.
    pub fn released(&self, file: Fid) -> Option<Layout> {
        let generation = self.generation.checked_add(1)?;
        let components = self.components.iter().map(|component| component.released(file)).collect();
        Some(Layout { generation, components })
    }

    /// What to ask for to get a file that lies in the same way.
    pub fn wish(&self) -> LayoutHint {
        // What extends is asked for together with what it extends into.
        let wanted = |component: &&Component| component.pattern != Pattern::Nothing && !component.extends();
        let part = |component: &Component| {
            let extension = component.extension;
            HintPart { extension, ..HintPart::new(component.end, component.wish()) }
        };
        let is_one = |part: &HintPart| part.end == u64::MAX && part.extension == 0;
        let parts: Vec<HintPart> = self.components.iter().filter(wanted).map(part).collect();
        match &parts[..] {
            [one] if is_one(one) => one.hint(),
            _ => LayoutHint { parts, ..LayoutHint::default() },
        }
    }

    /// Whether there are objects for all of `[offset, offset + len)`.
    pub fn is_placed(&self, offset: u64, len: u64) -> bool {
        self.touched(offset, len).all(Component::is_placed)
    }

    /// The components that have a part of `[offset, offset + len)`.
    pub fn touched(&self, offset: u64, len: u64) -> impl Iterator<Item = &Component> + '_ {
        let end = offset.saturating_add(len);
        self.components.iter().filter(move |component| component.start < end && offset < component.end)
    }

    /// Whether the data lies in the same objects, and they hold the same parts of the file.
    pub fn lies_as(&self, other: &Layout) -> bool {
        self.extents().eq(other.extents())
    }

    /// What holds which part of the file.
    fn extents(&self) -> impl Iterator<Item = (Fid, u64, u64)> + '_ {
        let placed = self.components.iter().filter(|component| component.is_placed());
        placed.map(|component| (component.id, component.start, component.end))
    }

    /// Whether some component has several stripes on one target.
    pub fn is_overstriped(&self) -> bool {
        self.components.iter().any(|component| component.overstriped)
    }

    /// Each object, and where it is, in the order of the components and their stripes.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.components.iter().flat_map(Component::places)
    }

    /// The OSTs that hold objects; an OST that holds several comes several times.
    pub fn osts(&self) -> impl Iterator<Item = OstIndex> + '_ {
        self.components.iter().flat_map(Component::osts)
    }

    /// Number of objects.
    pub fn object_count(&self) -> usize {
        self.components.iter().map(|component| component.targets.len()).sum()
    }

    fn component_of(&self, object: ObjectId) -> Option<&Component> {
        let mut all = self.components.iter();
        all.find(|component| component.id == object.layout && object.stripe < component.stripe_count())
    }

    /// The component that holds byte `offset` of the file.
    fn component_at(&self, offset: u64) -> Option<&Component> {
        let mut all = self.components.iter();
        all.find(|component| offset < component.end).filter(|component| component.start <= offset)
    }

    /// Where an object of the layout is.
    pub fn place(&self, object: ObjectId) -> Option<Place> {
        self.component_of(object)?.place(object.stripe)
    }

    /// The object that holds byte `offset` of the file, and the byte's offset in it.
    pub fn locate(&self, offset: u64) -> Option<(Place, u64)> {
        let component = self.component_at(offset)?;
        let (stripe, object_offset) = component.locate(offset);
        Some((component.place(stripe)?, object_offset))
    }

    /// The file offset of byte `offset` of an object: the inverse of [`Layout::locate`]. `None` for an object of another layout.
    pub fn file_offset(&self, object: ObjectId, offset: u64) -> Option<u64> {
        Some(self.component_of(object)?.file_offset(object.stripe, offset))
    }

    /// The ranges of the file that lie in a range of an object, in order; none for an object of another layout.
    pub fn file_ranges(&self, object: ObjectId, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let component = self.component_of(object);
        component.into_iter().flat_map(move |component| component.file_ranges(object.stripe, range.clone()))
    }

    /// The pieces of `[offset, offset + len)`, in file order; each lies within one stripe unit, or within one component of one
    /// stripe is the whole range. What has no objects is left out.
    pub fn runs(&self, offset: u64, len: u64) -> impl Iterator<Item = Run> + '_ {
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            let component = loop {
                let component = self.component_at(at).filter(|_| at < end)?;
                if component.is_placed() {
                    break component;
                }
                at = component.end;
            };
            let run = component.run(at, end.min(component.end))?;
            at += run.len;
            Some(run)
        })
    }

    /// Size of an object in a file of `file_size` bytes.
    pub fn object_size(&self, object: ObjectId, file_size: u64) -> u64 {
        let component = self.component_of(object);
        component.map_or(0, |component| component.object_size(object.stripe, file_size))
    }

    /// Size of the file when an object has `object_size` bytes and nothing lies behind it.
    pub fn file_size_from(&self, object: ObjectId, object_size: u64) -> u64 {
        let last = object_size.checked_sub(1).and_then(|last| self.file_offset(object, last));
        last.map_or(0, |last| last.saturating_add(1))
    }
}
