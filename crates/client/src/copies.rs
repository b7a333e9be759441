//! Whoever keeps copies of what the client told: the kernel behind a mount.

use std::ops::Range;
use std::sync::Arc;

use proto::Fid;
use rt::BoxFuture;

use crate::order::{LEAF, RwLock};

/// What a keeper of copies has to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    /// Every name, of every directory.
    Names,
    /// Every name of a file.
    NamesOf(Fid),
    /// Attributes and ACL of a file.
    Attributes(Fid),
    /// Attributes of a file, of which mode, owner and ACL are as before.
    SizeAndTimes(Fid),
    /// Bytes of a file; what was changed through mappings is written first.
    Data(Fid, Range<u64>),
}

/// A keeper of copies. It keeps only what the client permits, and forgets when it is told.
pub trait Copies: Send + Sync + 'static {
    /// Forgets `what`; done when nothing of it is used any more. It may have to write data first, which comes to
    /// the client as a write; it never waits for anything else that the client does.
    fn forget(&self, what: Vec<Forget>) -> BoxFuture<'static, ()>;
}

/// Whoever keeps copies, as long as there is somebody.
#[derive(Default)]
pub(crate) struct Keepers(RwLock<LEAF, Option<Arc<dyn Copies>>>);

impl Keepers {
    /// Whoever keeps copies.
    pub(crate) fn get(&self) -> Option<Arc<dyn Copies>> {
        self.0.read().clone()
    }

    /// Says who keeps copies.
    pub(crate) fn set(&self, copies: Arc<dyn Copies>) {
        *self.0.write() = Some(copies);
    }

    /// Whoever keeps copies forgets `what` ([`Copies::forget`]).
    pub(crate) async fn forget(&self, what: Vec<Forget>) {
        if let Some(copies) = self.get() {
            copies.forget(what).await;
        }
    }
}
