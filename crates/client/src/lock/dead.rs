//! What is held of the objects of a file that is gone.
//!
//! The OSTs forget what they granted together with the objects. Until then they may call it back, which is answered like every
//! callback for what is not held any more: nobody has to be told, and no file that comes and goes costs a message.

use std::sync::Arc;

use proto::{Fid, ObjectId};

use crate::Shared;

impl Shared {
    /// The last name of `fid` is gone: what is held of its objects goes too, unless the file is open here, or being closed. Only the
    /// first layout of a file is looked for; what is held of others goes when there is no room for it.
    pub(crate) fn forget_dead(self: &Arc<Self>, fid: Fid) {
        if self.files.find(fid).is_some() {
            return;
        }
        // A file has written its first stripe before others, but for those that are written in the middle only.
        let Some(first) = self.locks.find(ObjectId { layout: fid, stripe: 0 }) else { return };
        for place in first.layout.places() {
            let Some(object) = self.locks.find(place.object) else { continue };
            {
                let mut held = object.held.lock();
                if !held.is_idle() {
                    continue;
                }
                held.lost();
            }
            self.clean.drop_range(object.id, 0, u64::MAX);
            if object.id != first.id {
                self.locks.forget_if_empty(&object);
            }
        }
        self.locks.forget_if_empty(&first);
    }
}
