//! Names and attributes: from what is kept, or by one request to the MDT; and what the MDT has to know of the data.
//!
//! [`cache`] is what the MDT lets this client keep; [`ops`], [`pages`], [`attr`] and [`layout`] are the operations; [`close`], [`truncate`] and
//! [`complete`] keep the size of a file true between the MDT and the objects; [`relaid`] is for files whose data was moved, [`restored`] for those whose data is in an archive; [`changes`]
//! is what fsync waits for; [`search`] finds files; [`statahead`] asks for names before applications do, and
//! [`ahead`] makes files before the MDT does.

mod access;
mod ahead;
mod attr;
mod cache;
mod changes;
mod close;
mod complete;
mod fids;
mod later;
mod layout;
mod ops;
mod pages;
mod relaid;
mod removed;
mod restored;
mod search;
mod statahead;
mod timer;
mod truncate;

use std::sync::Arc;

use crate::clock::Clock;
use crate::copies::Keepers;
use crate::data::Data;
use crate::targets::Targets;

pub(crate) use access::Accesses;
pub(crate) use ahead::{Ahead, Made, New};
pub(crate) use attr::Through;
pub(crate) use cache::MetadataCache;
pub use cache::{Fill, OnItsWay, Told};
pub(crate) use changes::Changes;
pub(crate) use close::{Ended, Sizes};
pub(crate) use fids::Fids;
pub(crate) use ops::no_change;
pub use pages::{Behind, Page, PageEntry};
pub(crate) use relaid::{Layouts, Relaying, is_of_layout};
use removed::Removed;
pub(crate) use restored::is_released;
pub(crate) use statahead::Settings as StataheadSettings;
use statahead::Statahead;

/// The name space of a mounted file system.
pub struct Names {
    targets: Arc<Targets>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) data: Arc<Data>,
    pub(crate) meta: Arc<MetadataCache>,
    pub(crate) layouts: Arc<Layouts>,
    pub(crate) sizes: Arc<Sizes>,
    pub(crate) fids: Arc<Fids>,
    pub(crate) statahead: Arc<Statahead>,
    pub(crate) ahead: Arc<Ahead>,
    /// Directories without a name in which somebody may work.
    removed: Removed,
}

impl Names {
    /// Nothing is known yet. Names that change are forgotten by `copies`.
    pub(crate) fn new(data: Arc<Data>, copies: Arc<Keepers>) -> Names {
        let (rt, targets) = (&data.rt, &data.targets);
        let meta =
            MetadataCache::new(rt.clone(), targets.clone(), data.lease.clone(), copies, data.files.clone());
        let meta = Arc::new(meta);
        let layouts = Arc::new(Layouts::new(rt.clone(), targets.clone(), meta.clone(), data.back.clone()));
        let sizes = Arc::new(Sizes::new(rt.clone(), targets.clone(), layouts.clone(), data.clone()));
        let fids = Arc::new(Fids::new(rt.clone(), targets.clone(), meta.changes.clone()));
        Names {
            targets: targets.clone(),
            statahead: Arc::new(Statahead::new(rt.clone(), meta.clone(), targets.clone())),
            ahead: Arc::new(Ahead::new(meta.clone(), data.clone(), fids.clone())),
            clock: data.clock.clone(),
            meta,
            layouts,
            sizes,
            fids,
            removed: Removed::default(),
            data,
        }
    }
}
