//! One request as an operation of an MDT sees it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::{Code, Fid, Transno};

use super::Outcome;
use super::bits::{BitLocks, Claims};
use super::export::Export;
use super::sharing::{Key, Sharing};

/// What an operation knows of its request, what it claims, and what it has seen of others.
pub struct Ctx<'a> {
    request: &'a service::Ctx<Export>,
    pub(super) claims: Claims,
    sharing: &'a Sharing,
    /// The newest change by others that it has seen.
    seen: AtomicU64,
}

impl<'a> Ctx<'a> {
    /// A request that claims nothing yet.
    pub(super) fn new(
        request: &'a service::Ctx<Export>,
        locks: &Arc<BitLocks>,
        sharing: &'a Sharing,
    ) -> Ctx<'a> {
        let claims = Claims::new(locks, request.session().handle());
        Ctx { request, claims, sharing, seen: AtomicU64::new(0) }
    }

    /// The operation has read what is `key`.
    pub(super) fn saw(&self, key: Key) {
        let foreign = self.sharing.foreign(key, self.session().handle());
        self.seen.fetch_max(foreign.0, Ordering::Relaxed);
    }

    /// Commits a change of `keys` by `commit`.
    pub(super) fn changing(&self, keys: &[Key], commit: impl FnOnce() -> Outcome) -> Outcome {
        let rests = Transno(self.seen.load(Ordering::Relaxed));
        self.sharing.changing(keys, self.session().handle(), rests, commit)
    }

    /// The newest change by others that it has seen: its answer waits until that is durable. A replay's does not: others
    /// have to be repeated before anything is committed, and this one was answered before.
    pub(super) fn seen(&self) -> Transno {
        if self.replay.is_some() { Transno(0) } else { Transno(self.seen.load(Ordering::Relaxed)) }
    }

    /// See [`Claims::need`]. Replays need nothing: nobody has been granted anything when they come.
    pub(super) fn need(&self, affected: &[(Fid, u32)]) -> Result<(), Code> {
        if self.request.replay.is_some() { Ok(()) } else { self.claims.need(affected) }
    }
}

impl Deref for Ctx<'_> {
    type Target = service::Ctx<Export>;

    fn deref(&self) -> &service::Ctx<Export> {
        self.request
    }
}
