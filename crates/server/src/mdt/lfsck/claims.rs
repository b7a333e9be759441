//! Which objects files claim, and what is wrong with them. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use proto::layout::{Component, Place};
use proto::wire::messages::InspectedObject;
use proto::{DataTarget, Fid, FileKind, Layout, ObjectId};

use crate::mdt::inode::Inode;

/// Where a file's data is to be.
pub struct File {
    pub fid: Fid,
    pub layout: Layout,
    /// The last change of the inode.
    pub version: u64,
    /// The object with the last byte, and how far it has to go at least; none if the size is not known, or nothing has to be there.
    end: Option<(Place, u64)>,
}

impl File {
    /// What an inode says; none if it has no objects.
    pub fn of(inode: Inode) -> Option<File> {
        let end = end_of(&inode);
        let Inode { fid, version, .. } = inode;
        let layout = inode.layout.filter(|layout| layout.ids().next().is_some())?;
        Some(File { fid, layout, version, end })
    }

    fn component(&self, id: Fid) -> Option<&Component> {
        self.layout.components.iter().find(|component| component.is_placed() && component.id == id)
    }

    /// Whether the object is one of the file's, where it is.
    fn claims(&self, target: DataTarget, object: ObjectId) -> bool {
        let of = self.component(object.layout);
        of.and_then(|component| component.place(object.stripe)).is_some_and(|place| place.target == target)
    }

    /// Damage of a part of an object: what lies one behind the other in the object need not do so in the file.
    fn damage(&self, target: DataTarget, object: ObjectId, part: Range<u64>) -> Vec<Damage> {
        let Some(component) = self.component(object.layout) else { return Vec::new() };
        let unit = u64::from(component.stripe_size).max(1);
        let mut all: Vec<Damage> = Vec::new();
        let mut at = part.start;
        while at < part.end {
            let end = (at / unit + 1).saturating_mul(unit).min(part.end);
            let first = component.file_offset(object.stripe, at);
            let bytes = first..first + (end - at);
            match all.last_mut() {
                Some(Damage { part, of: Some((_, before)), .. }) if before.end == bytes.start => {
                    (part.end, before.end) = (end, bytes.end);
                }
                _ => all.push(Damage { target, object, part: at..end, of: Some((self.fid, bytes)) }),
            }
            at = end;
        }
        all
    }
}

/// The object that holds the last byte of a file whose size is known, and how long it is at least.
fn end_of(inode: &Inode) -> Option<(Place, u64)> {
    if inode.kind() != FileKind::File || !inode.size_known || !inode.written {
        return None;
    }
    let layout = inode.layout.as_ref()?;
    let last = inode.size.checked_sub(1)?;
    let component = layout.touched(last, 1).next().filter(|component| component.is_placed())?;
    let (stripe, offset) = component.locate(last);
    Some((component.place(stripe)?, offset + 1))
}

/// An object that the file with the id of its layout does not have.
pub struct Unclaimed {
    pub target: DataTarget,
    pub object: ObjectId,
    pub size: u64,
    pub damaged: Vec<Range<u64>>,
}

/// Damaged bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage {
    pub target: DataTarget,
    pub object: ObjectId,
    /// In the object.
    pub part: Range<u64>,
    /// Whose they are, and which of the file's; none if nobody has the object.
    pub of: Option<(Fid, Range<u64>)>,
}

/// Files with ids in one range, and what became of the objects that were seen.
#[derive(Default)]
pub struct Claims {
    files: BTreeMap<Fid, File>,
    /// Ends of files that were not seen.
    ends: BTreeMap<(DataTarget, ObjectId), (Fid, u64)>,
    pub unclaimed: Vec<Unclaimed>,
    pub damage: Vec<Damage>,
}

impl Claims {
    /// Another range of files. What was found so far stays.
    pub fn begin(&mut self, files: Vec<File>) {
        // Of layouts with another id all objects come with what nobody claims at first, and their ends are not looked at.
        let ends = files.iter().filter_map(|file| {
            let (place, size) = file.end.filter(|(place, _)| place.object.layout == file.fid)?;
            Some(((place.target, place.object), (file.fid, size)))
        });
        self.ends = ends.collect();
        self.files = files.into_iter().map(|file| (file.fid, file)).collect();
    }

    /// A target has this object.
    pub fn see(&mut self, target: DataTarget, seen: InspectedObject) {
        let InspectedObject { object, size, damaged } = seen;
        let damaged: Vec<Range<u64>> = damaged.iter().map(|range| range.start..range.end).collect();
        let end = self.ends.get(&(target, object)).is_some_and(|(_, least)| size >= *least);
        if end {
            self.ends.remove(&(target, object));
        }
        match self.files.get(&object.layout).filter(|file| file.claims(target, object)) {
            Some(file) => {
                self.damage.extend(damaged.into_iter().flat_map(|part| file.damage(target, object, part)));
            }
            // The last object of a page comes again.
            None => match self.unclaimed.last_mut() {
                Some(last) if (last.target, last.object) == (target, object) => {
                    last.damaged.extend(damaged);
                    last.size = size;
                }
                _ => self.unclaimed.push(Unclaimed { target, object, size, damaged }),
            },
        }
    }

    /// Files of the range whose last bytes no target has, with the version of the inode, the object, and how far it has to go.
    pub fn short(&mut self) -> Vec<(Fid, u64, Place, u64)> {
        let ends = std::mem::take(&mut self.ends);
        let of = |((target, object), (fid, size))| {
            let version = self.files.get(&fid)?.version;
            Some((fid, version, Place { object, target }, size))
        };
        ends.into_iter().filter_map(of).collect()
    }
}

/// Objects that files with other ids may have: all files are asked.
pub struct Foreign {
    by_layout: BTreeMap<Fid, Vec<Unclaimed>>,
    pub damage: Vec<Damage>,
}

impl Foreign {
    pub fn new(unclaimed: Vec<Unclaimed>) -> Foreign {
        let mut by_layout: BTreeMap<Fid, Vec<Unclaimed>> = BTreeMap::new();
        for one in unclaimed {
            by_layout.entry(one.object.layout).or_default().push(one);
        }
        Foreign { by_layout, damage: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.by_layout.is_empty()
    }

    /// There is this file.
    pub fn ask(&mut self, file: &File) {
        for id in file.layout.ids() {
            let Some(objects) = self.by_layout.get_mut(&id) else { continue };
            let (claimed, left) =
                std::mem::take(objects).into_iter().partition(|one| file.claims(one.target, one.object));
            *objects = left;
            self.damage.extend(Vec::<Unclaimed>::into_iter(claimed).flat_map(|one| {
                let Unclaimed { target, object, damaged, .. } = one;
                damaged.into_iter().flat_map(move |part| file.damage(target, object, part))
            }));
        }
    }

    /// What no file has.
    pub fn left(self) -> Vec<Unclaimed> {
        self.by_layout.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::ByteRange;
    use proto::{OstIndex, Timestamp};

    use super::*;

    const UNIT: u32 = 65_536;

    fn fid(oid: u32) -> Fid {
        Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }
    }

    fn ost(index: u32) -> DataTarget {
        DataTarget::Ost(OstIndex(index))
    }

    /// A file of `size` bytes over the OSTs 0 and 1, whose layout has the id `id`.
    fn file(oid: u32, id: u32, size: u64) -> File {
        let mut inode = Inode::new(fid(oid), 0o100_644, Timestamp::default());
        let component = Component::striped(fid(id), UNIT, [OstIndex(0), OstIndex(1)]);
        inode.layout = Some(Layout { generation: 0, components: [component].into_iter().collect() });
        (inode.size, inode.written, inode.version) = (size, true, 77);
        File::of(inode).expect("it has objects")
    }

    fn seen(id: u32, stripe: u32, size: u64, damaged: &[(u64, u64)]) -> InspectedObject {
        let damaged = damaged.iter().map(|(start, end)| ByteRange { start: *start, end: *end }).collect();
        InspectedObject { object: ObjectId { layout: fid(id), stripe }, size, damaged }
    }

    #[test]
    fn objects_of_files_are_told_from_those_of_none() {
        let mut claims = Claims::default();
        claims.begin(vec![file(1, 1, 3 * u64::from(UNIT)), file(2, 2, 10), file(3, 9, 10), file(4, 4, 10)]);
        // The third unit is the second one of the first object.
        claims.see(ost(0), seen(1, 0, 2 * u64::from(UNIT), &[(70_000, 70_010)]));
        claims.see(ost(1), seen(1, 1, u64::from(UNIT), &[]));
        claims.see(ost(1), seen(2, 0, 10, &[]));
        claims.see(ost(0), seen(2, 0, 9, &[]));
        claims.see(ost(1), seen(8, 0, 5, &[(0, 1)]));
        claims.see(ost(1), seen(8, 0, 5, &[(3, 4)]));
        claims.see(ost(0), seen(9, 0, 10, &[(0, 4)]));
        let object = ObjectId { layout: fid(1), stripe: 0 };
        let of = Some((fid(1), 2 * 65_536 + 4464..2 * 65_536 + 4474));
        assert_eq!(claims.damage, [Damage { target: ost(0), object, part: 70_000..70_010, of }]);
        let short: Vec<(Fid, u64, u64)> =
            claims.short().into_iter().map(|(fid, version, _, size)| (fid, version, size)).collect();
        assert_eq!(short, [(fid(2), 77, 10), (fid(4), 77, 10)], "of another id nothing is said");
        // Two units side by side in the object are apart in the file.
        let (apart, unit) = (file(1, 1, 1 << 20), u64::from(UNIT));
        let object = ObjectId { layout: fid(1), stripe: 1 };
        let parts: Vec<(Range<u64>, Range<u64>)> = apart
            .damage(ost(1), object, unit - 10..unit + 5)
            .into_iter()
            .filter_map(|damage| Some((damage.part, damage.of?.1)))
            .collect();
        assert_eq!(
            parts,
            [(unit - 10..unit, 2 * unit - 10..2 * unit), (unit..unit + 5, 3 * unit..3 * unit + 5)]
        );
        // On the wrong target, of no file, of a file with another id.
        let mut foreign = Foreign::new(std::mem::take(&mut claims.unclaimed));
        foreign.ask(&file(3, 9, 10));
        let object = ObjectId { layout: fid(9), stripe: 0 };
        assert_eq!(foreign.damage, [Damage { target: ost(0), object, part: 0..4, of: Some((fid(3), 0..4)) }]);
        let left: Vec<(DataTarget, u32, usize)> =
            foreign.left().iter().map(|one| (one.target, one.object.layout.oid, one.damaged.len())).collect();
        assert_eq!(left, [(ost(1), 2, 0), (ost(1), 8, 2)]);
    }

    #[test]
    fn what_need_not_be_there_is_not_missed() {
        let mut claims = Claims::default();
        let mut open = Inode::new(fid(1), 0o100_644, Timestamp::default());
        let component = Component::striped(fid(1), UNIT, [OstIndex(0)]);
        open.layout = Some(Layout { generation: 0, components: [component].into_iter().collect() });
        (open.size, open.written) = (10, true);
        let unwritten = Inode { written: false, ..open.clone() };
        open.size_known = false;
        claims.begin([open, unwritten].into_iter().filter_map(File::of).collect());
        assert!(claims.short().is_empty());
        claims.begin(vec![file(1, 1, 0)]);
        assert!(claims.short().is_empty());
    }
}
