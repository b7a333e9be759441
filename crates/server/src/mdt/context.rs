//! One request as an operation of an MDT sees it.

use std::ops::Deref;
use std::sync::Arc;

use proto::{Code, Fid};

use super::bits::{BitLocks, Claims};
use super::export::Export;
use crate::target;

/// What an operation knows of its request, and what it claims.
pub struct Ctx<'a> {
    request: &'a target::Ctx<Export>,
    pub(super) claims: Claims,
}

impl<'a> Ctx<'a> {
    /// A request that claims nothing yet.
    pub(super) fn new(request: &'a target::Ctx<Export>, locks: &Arc<BitLocks>) -> Ctx<'a> {
        Ctx { request, claims: Claims::new(locks, request.session().handle()) }
    }

    /// See [`Claims::need`]. Replays need nothing: nobody has been granted anything when they come.
    pub(super) fn need(&self, affected: &[(Fid, u32)]) -> Result<(), Code> {
        if self.request.replay.is_some() { Ok(()) } else { self.claims.need(affected) }
    }
}

impl Deref for Ctx<'_> {
    type Target = target::Ctx<Export>;

    fn deref(&self) -> &target::Ctx<Export> {
        self.request
    }
}
