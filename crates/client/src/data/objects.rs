//! What the objects of a file say about it: size, space, times.

use std::sync::Arc;

use proto::layout::Place;
use proto::wire::messages::{GetObjectAttr, ObjectAttr, SizeUpdate};
use proto::{Attr, Code, Layout, Timestamp};
use rt::wait::join_all;

use crate::data::{Clean, FileState, Unsent};
use crate::targets::Targets;
use crate::{Error, Result};

/// Unit of `blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// What the objects of one file say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    /// The object with the newest ctime.
    pub(crate) newest: ObjectAttr,
}

/// An object that is not there.
pub(crate) const NO_OBJECT: ObjectAttr = ObjectAttr {
    size: 0,
    blocks: 0,
    mtime: Timestamp { secs: 0, nanos: 0 },
    ctime: Timestamp { secs: 0, nanos: 0 },
};

impl Sum {
    /// Adds up the objects, which are given in the order of the layout.
    pub(crate) fn of(layout: &Layout, objects: &[ObjectAttr]) -> Sum {
        let mut sum = Sum { size: 0, blocks: 0, newest: NO_OBJECT };
        for (place, object) in layout.places().zip(objects) {
            sum.size = sum.size.max(layout.file_size_from(place.object, object.size));
            sum.blocks = sum.blocks.saturating_add(object.blocks);
            if object.ctime > sum.newest.ctime {
                sum.newest = object.clone();
            }
        }
        sum
    }

    pub(crate) fn update(&self) -> SizeUpdate {
        let (mtime, ctime) = (self.newest.mtime, self.newest.ctime);
        SizeUpdate { size: self.size, blocks: self.blocks, mtime, ctime }
    }
}

/// Puts together what the MDT, the objects (if they were asked) and the own cache say of a regular file.
pub(crate) fn merge(mut attr: Attr, objects: Option<Sum>, unsent: Option<Unsent>) -> Attr {
    if let Some(sum) = objects {
        (attr.size, attr.blocks) = (sum.size, sum.blocks);
        written(&mut attr, sum.newest.mtime, sum.newest.ctime);
    }
    if let Some(unsent) = unsent {
        attr.size = attr.size.max(unsent.end);
        attr.blocks = attr.blocks.saturating_add(unsent.bytes.div_ceil(BLOCK_BYTES));
        written(&mut attr, unsent.time, unsent.time);
    }
    attr
}

/// Data was changed at `mtime`: that counts unless the time was set later.
fn written(attr: &mut Attr, mtime: Timestamp, ctime: Timestamp) {
    if mtime > attr.mtime_set {
        (attr.mtime, attr.mtime_set) = (mtime, mtime);
    }
    attr.ctime = attr.ctime.max(ctime);
}

/// What is asked of and done to objects at once.
pub(crate) struct Objects {
    pub(super) targets: Arc<Targets>,
    pub(super) clean: Arc<Clean>,
}

impl Objects {
    /// Of the targets.
    pub(super) fn new(targets: Arc<Targets>, clean: Arc<Clean>) -> Objects {
        Objects { targets, clean }
    }

    /// Asks one object.
    pub(crate) async fn object_attr(&self, place: Place) -> Result<ObjectAttr> {
        let target = self.targets.data(place.target).await?;
        match target.call(GetObjectAttr { object: place.object }).await {
            Ok(answered) => Ok(answered.reply),
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }

    /// Asks every object of a layout at the same time.
    pub(crate) async fn object_attrs(&self, layout: &Layout) -> Result<Vec<ObjectAttr>> {
        let asked = layout.places().map(|place| self.object_attr(place));
        join_all(asked).await.into_iter().collect()
    }

    /// Size of a file: what the objects say and what the own cache has.
    pub(crate) async fn true_size(&self, file: &FileState, layout: &Layout) -> Result<u64> {
        let unsent = file.unsent().map_or(0, |unsent| unsent.end);
        let sum = Sum::of(layout, &self.object_attrs(layout).await?);
        Ok(sum.size.max(unsent))
    }
}

#[cfg(test)]
mod tests {
    use proto::layout::Component;
    use proto::{Fid, OstIndex};

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn attr(size: u64, ctime: i64) -> Attr {
        Attr {
            fid: Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 },
            mode: 0o100_644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: 1,
            atime: at(ctime),
            mtime: at(ctime - 1),
            ctime: at(ctime),
            btime: at(0),
            size_known: true,
            version: 1,
            mtime_set: at(ctime - 1),
            project: 0,
            inherits: false,
        }
    }

    fn object(size: u64, blocks: u64, ctime: i64) -> ObjectAttr {
        ObjectAttr { size, blocks, mtime: at(ctime), ctime: at(ctime) }
    }

    fn layout(count: u32) -> Layout {
        let id = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        Component::striped(id, 1 << 20, (0..count).map(OstIndex)).into()
    }

    #[test]
    fn the_objects_tell_size_and_the_newest_time() {
        let sum = Sum::of(&layout(2), &[object(1 << 20, 2048, 50), object(10, 8, 60)]);
        assert_eq!((sum.size, sum.blocks), ((1 << 20) + 10, 2056));
        let newer = merge(attr(7, 55), Some(sum.clone()), None);
        assert_eq!((newer.size, newer.mtime, newer.ctime), ((1 << 20) + 10, at(60), at(60)));
        let set_later = merge(attr(7, 70), Some(sum.clone()), None);
        assert_eq!((set_later.mtime, set_later.ctime), (at(69), at(70)));
        // A change of mode after the write makes ctime newer and leaves mtime alone.
        let changed = merge(Attr { mtime_set: at(50), ..attr(7, 70) }, Some(sum), None);
        assert_eq!((changed.mtime, changed.ctime), (at(60), at(70)));
    }

    #[test]
    fn own_writes_count_at_once() {
        let unsent = Unsent { end: 100, bytes: 100, time: at(80) };
        let merged = merge(attr(7, 70), None, Some(unsent));
        assert_eq!((merged.size, merged.blocks, merged.mtime), (100, 2, at(80)));
        let inside = merge(attr(700, 90), None, Some(unsent));
        assert_eq!((inside.size, inside.ctime), (700, at(90)));
    }

    #[test]
    fn a_file_without_objects_is_empty() {
        let merged = merge(attr(7, 70), Some(Sum::of(&layout(3), &[NO_OBJECT, NO_OBJECT, NO_OBJECT])), None);
        assert_eq!((merged.size, merged.ctime), (0, at(70)));
    }
}
