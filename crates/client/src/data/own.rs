//! What the objects of a file say, as long as this client alone can have changed them: then nobody has to be asked.
//!
//! An OST's answer to a change says what the object is after it. So the newest answer of each object is what the OST would say
//! now. That others change nothing is not known here: [`crate::names::cache::Kept::is_made_here`].

use std::collections::BTreeMap;

use proto::wire::messages::ObjectAttr;
use proto::{Layout, ObjectId, Transno};

use super::objects::NO_OBJECT;

/// Objects of one file that are remembered; of a file with more, the OSTs are asked.
const OBJECTS_MAX: usize = 64;

/// What the newest answers of a file's objects said.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// `None`: the objects have to be asked. One that is not among them is not there.
    objects: Option<BTreeMap<ObjectId, (Transno, ObjectAttr)>>,
}

impl Own {
    /// This client has just made the file: it has no objects.
    pub(crate) fn made(&mut self) {
        self.objects = Some(BTreeMap::new());
    }

    /// An OST has answered a change.
    pub(crate) fn answered(&mut self, object: ObjectId, transno: Transno, attr: &ObjectAttr) {
        let Some(objects) = &mut self.objects else { return };
        let newest = objects.entry(object).or_insert_with(|| (Transno(0), NO_OBJECT));
        if transno >= newest.0 {
            *newest = (transno, attr.clone());
        }
        if objects.len() > OBJECTS_MAX {
            self.forget();
        }
    }

    /// Something else happened to the objects.
    pub(crate) fn forget(&mut self) {
        self.objects = None;
    }

    /// What each object of the layout says, in its order, when nothing is on its way.
    pub(crate) fn of(&self, layout: &Layout) -> Option<Vec<ObjectAttr>> {
        let objects = self.objects.as_ref()?;
        let of = |object: ObjectId| objects.get(&object).map_or(NO_OBJECT, |(_, attr)| attr.clone());
        Some(layout.places().map(|place| of(place.object)).collect())
    }
}

#[cfg(test)]
mod tests {
    use proto::layout::Component;
    use proto::{Fid, OstIndex, Timestamp};

    use super::*;

    fn attr(size: u64) -> ObjectAttr {
        ObjectAttr { size, blocks: 8, mtime: Timestamp::default(), ctime: Timestamp::default() }
    }

    fn object(stripe: u32) -> ObjectId {
        ObjectId { layout: Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 }, stripe }
    }

    #[test]
    fn the_newest_answer_of_each_object_counts() {
        let layout = Component::striped(object(0).layout, 1 << 20, (0..3).map(OstIndex)).into();
        let sizes = |own: &Own| own.of(&layout).map(|of| of.iter().map(|attr| attr.size).collect::<Vec<_>>());
        let mut own = Own::default();
        own.answered(object(0), Transno(5), &attr(100));
        assert_eq!(sizes(&own), None, "others may have written before");
        own.made();
        assert_eq!(sizes(&own), Some(vec![0, 0, 0]));
        own.answered(object(0), Transno(7), &attr(70));
        own.answered(object(0), Transno(6), &attr(60));
        own.answered(object(2), Transno(3), &attr(30));
        assert_eq!(sizes(&own), Some(vec![70, 0, 30]));
        own.forget();
        own.answered(object(0), Transno(8), &attr(80));
        assert_eq!(sizes(&own), None);
    }

    #[test]
    fn few_objects_are_remembered() {
        let layout = Component::striped(object(0).layout, 1 << 20, (0..3).map(OstIndex)).into();
        let mut own = Own::default();
        own.made();
        for stripe in 0..=OBJECTS_MAX as u32 {
            assert!(own.of(&layout).is_some());
            own.answered(object(stripe), Transno(1), &attr(1));
        }
        assert_eq!(own.of(&layout), None);
    }
}
