//! The truth about a file: what the MDT has told, what the objects say, and what was not sent yet.

use std::sync::Arc;

use proto::wire::messages::Entry;
use proto::{Attr, Code, FileKind, Layout};

use crate::data::{FileState, Sum, Unsent, merge};
use crate::names::{Relaying, Sizes, is_of_layout};
use crate::{Error, Result};

/// What is known of a file without a question.
enum AtHand {
    /// Everything.
    All(Attr),
    /// The objects of this layout know the rest, but for what was not sent to them.
    Lacks(Layout, Option<Unsent>),
}

impl Sizes {
    /// What the objects of a file say, and what they cannot know yet, if nobody but this client can have changed them.
    pub(super) fn own(&self, file: &FileState, layout: &Layout) -> Option<(Sum, Option<Unsent>)> {
        // In this order: what comes after the second look comes after the answer. Others give a file objects only after this client
        // has given the layout back; it may have given it some itself.
        let own = file.own(layout)?;
        let is_newest = || file.layout().is_ok_and(|newest| newest.lies_as(layout));
        (self.meta.kept.is_made_here(file.fid) && is_newest()).then_some(own)
    }

    /// The truth about a file, from what the MDT has told. Mostly nobody has to be asked; the future of asking is boxed, so that
    /// those who look need no room for it.
    pub(crate) async fn complete(self: &Arc<Self>, entry: &Entry) -> Result<Attr> {
        match self.at_hand(entry) {
            AtHand::All(attr) => Ok(attr),
            AtHand::Lacks(..) => Box::pin(self.from_objects(entry.clone())).await,
        }
    }

    /// The same for whoever needs the file, and not its size: if an OST that has objects of it is gone, what the MDT has told has to do. It is
    /// not kept, so that whoever asks for the size hears of it.
    pub(crate) async fn complete_as_far(self: &Arc<Self>, entry: &Entry) -> Result<Attr> {
        match self.complete(entry).await {
            Err(Error::Refused(Code::Lost | Code::Removed | Code::Inactive)) => {
                Ok(Attr { size_known: false, ..entry.attr.clone() })
            }
            attr => attr,
        }
    }

    fn at_hand(&self, entry: &Entry) -> AtHand {
        let attr = entry.attr.clone();
        if attr.kind() != FileKind::File {
            return AtHand::All(attr);
        }
        let file = self.data.files.find(attr.fid);
        // The own cache is looked at first: what it has no more is on the OSTs.
        let unsent = file.as_ref().and_then(|file| file.unsent());
        let Some(layout) = entry.layout.as_ref().filter(|_| !attr.size_known) else {
            return AtHand::All(merge(attr, None, unsent));
        };
        match file.as_ref().and_then(|file| self.own(file, layout)) {
            Some((sum, unsent)) => AtHand::All(merge(attr, Some(sum), unsent)),
            None => AtHand::Lacks(layout.clone(), unsent),
        }
    }

    async fn from_objects(self: &Arc<Self>, mut entry: Entry) -> Result<Attr> {
        let mut relaying = Relaying::default();
        loop {
            let (layout, unsent) = match self.at_hand(&entry) {
                AtHand::All(attr) => return Ok(attr),
                AtHand::Lacks(layout, unsent) => (layout, unsent),
            };
            let attr = entry.attr.clone();
            let refused = match self.data.objects.object_attrs(&layout).await {
                Ok(objects) => return Ok(merge(attr, Some(Sum::of(&layout, &objects)), unsent)),
                Err(error) if is_of_layout(error) => error,
                Err(error) => return Err(error),
            };
            // The data was moved, or the file is gone.
            let told = match self.layouts.fetch_entry(attr.fid).await {
                Ok(told) => told,
                Err(Error::Refused(Code::Stale)) => {
                    return Ok(merge(attr, Some(Sum::of(&layout, &[])), unsent));
                }
                Err(error) => return Err(error),
            };
            let moved = told.layout.as_ref().is_none_or(|told| !told.lies_as(&layout));
            let sealed = [(attr.fid, layout)];
            if !moved && !self.layouts.still_sealed(&sealed, refused, &mut relaying).await? {
                return Ok(merge(attr, Some(Sum::of(&sealed[0].1, &[])), unsent));
            }
            entry = told;
        }
    }
}
