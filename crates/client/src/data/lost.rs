//! What the locks want of the data under them ([`RangeUser`]), and OSTs of what was not sent yet.

use std::ops::Range;

use proto::wire::messages::{Glimpse, Glimpsed};
use proto::{Code, Fid, ObjectId};
use rt::BoxFuture;

use crate::Error;
use crate::data::cache::Refund;
use crate::data::{Data, FileRef};
use crate::lock::RangeUser;

impl RangeUser for Data {
    fn flush(&self, fid: Fid, object: ObjectId, range: Range<u64>) -> BoxFuture<'_, ()> {
        Box::pin(self.back.flush_range(fid, object, range.start, range.end))
    }

    fn forget(&self, object: ObjectId, range: Range<u64>) {
        let before = self.clean.losses();
        self.clean.drop_range(object, range.start, range.end);
        if self.clean.losses() != before {
            self.taken_back(object);
        }
    }

    fn discard(&self, fid: Fid, object: ObjectId) {
        let Some(file) = self.files.find(fid) else { return };
        let refund = {
            let mut inner = file.inner.lock();
            if inner.cache.object_end(object) == 0 {
                return;
            }
            let refund = inner.cache.lose(object);
            inner.fail(Error::Refused(Code::Evicted));
            self.back.losses.add();
            if inner.cache.is_empty() && inner.listed {
                inner.listed = false;
                self.back.dirty.clean(file.fid);
            }
            refund
        };
        let bytes: u64 = refund.iter().map(|(_, bytes)| bytes).sum();
        tracing::error!(
            %fid, stripe = object.stripe, bytes,
            "a server has given this client up: data that was not written yet is lost, and fsync or close of the file \
             says so"
        );
        self.back.refund(refund);
    }

    fn while_unknown(&self, fid: Fid, hold: &mut dyn FnMut()) {
        let Some(file) = self.files.find(fid) else { return };
        let inner = file.inner.lock();
        if inner.is_unknown {
            hold();
        }
    }

    fn is_being_cut(&self, fid: Fid) -> bool {
        self.files.find(fid).is_some_and(|file| file.inner.lock().cuts > 0)
    }
}

impl Data {
    /// What this client has written to an object and not sent yet.
    pub(crate) fn glimpse(&self, asked: &Glimpse) -> Glimpsed {
        let nothing = Glimpsed { size: 0, time: proto::Timestamp::default() };
        let file = self.locks.table.find(asked.object).and_then(|object| self.files.find(object.fid));
        let Some(file) = file else { return nothing };
        let inner = file.inner.lock();
        let size = inner.cache.object_end(asked.object);
        let time = inner.cache.newest_time().filter(|_| size > 0).unwrap_or_default();
        Glimpsed { size, time }
    }

    /// A file without a name is closed that nobody else can know of: nobody can look at it any more, and what was not sent of it need not be.
    /// Whether that is so.
    pub(crate) fn drop_unsent(&self, file: &FileRef) -> bool {
        let refund: Refund = {
            let mut inner = file.inner.lock();
            let Some(layout) = inner.layout.clone().filter(|_| inner.is_out_of_sight()) else {
                return false;
            };
            let refund = layout.places().flat_map(|place| inner.cache.lose(place.object)).collect();
            if inner.cache.is_empty() && inner.listed {
                inner.listed = false;
                self.back.dirty.clean(file.fid);
            }
            refund
        };
        self.back.refund(refund);
        true
    }

    /// The last name of `fid` is gone: what is held of its objects goes too, unless the file is open here, or being closed.
    pub(crate) fn forget_dead(&self, fid: Fid) {
        if self.files.find(fid).is_none() {
            self.locks.forget_dead(fid);
        }
    }
}
