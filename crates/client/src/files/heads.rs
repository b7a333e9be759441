//! The first bytes of files, which come with the answer that opens them, together with the right to read or to write there.

use std::sync::Arc;

use bytes::Bytes;
use proto::Fid;
use proto::layout::{Pattern, Place};
use proto::limits::HEAD_BYTES_MAX;
use proto::wire::messages::{Entry, Token};

use crate::lock::Before;
use crate::names::Names;
use crate::{Caller, OpenFlags};

/// Asks for the first bytes of files, and keeps them.
pub(super) struct Heads {
    names: Arc<Names>,
}

impl Heads {
    /// Those of a mounted file system.
    pub(super) fn new(names: Arc<Names>) -> Heads {
        Heads { names }
    }

    /// The answer to a create granted all of the first object of the file.
    pub(super) fn granted_new(&self, fid: Fid, token: &Token, before: Before) {
        let Some(file) = self.names.data.files.find(fid) else { return };
        let Ok(layout) = file.layout() else { return };
        if let Some(place) = layout.places().next() {
            self.names.data.locks.granted_head((fid, place), &layout, (token, None), before);
        }
    }

    /// The place of the first bytes of a small file that an open may bring, and what was so before; `None` if they are not to be
    /// had, or are on their way from here.
    pub(super) fn of(&self, fid: Fid, flags: OpenFlags) -> Option<(Place, Before)> {
        let entry = self.names.meta.kept.entry(fid).filter(|_| flags.read && !flags.truncate)?;
        let head = entry.layout.as_ref()?.components.first()?;
        let is_small = entry.attr.size_known && entry.attr.size <= HEAD_BYTES_MAX.min(head.end);
        let place = head.place(0).filter(|_| head.pattern == Pattern::Mdt && is_small)?;
        // In this order: what is written from now on is known to the locks.
        let before = self.names.data.locks.before_head(place.object);
        let is_sent = self.names.data.files.find(fid).is_none_or(|file| file.unsent().is_none());
        is_sent.then_some((place, before))
    }

    /// Opens without the MDT, unless that would have to be asked for the first bytes next, and brings them with the open.
    pub(super) fn open_own(&self, caller: &Caller, fid: Fid, flags: OpenFlags) -> Option<(Arc<Entry>, u64)> {
        let meta = &self.names.meta;
        let asks = !meta.kept.is_made_here(fid) && self.of(fid, flags).is_some();
        if asks { None } else { meta.opens.open_own(caller, fid, flags) }
    }

    /// The answer to an open brought the first bytes of a file.
    pub(super) fn brought(&self, fid: Fid, (place, before): (Place, Before), token: &Token, bytes: &[Bytes]) {
        let Some(layout) = self.names.data.files.find(fid).and_then(|file| file.layout().ok()) else {
            return;
        };
        if layout.place(place.object) != Some(place) {
            return;
        }
        let end = bytes.iter().map(|part| part.len() as u64).sum();
        let locks = &self.names.data.locks;
        if locks.granted_head((fid, place), &layout, (token, Some(end)), before) {
            self.names.data.keep_head(place.object, bytes, || locks.known_end(place.object) == Some(end));
        }
    }
}
