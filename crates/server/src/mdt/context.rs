//! One request as an operation of an MDT sees it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::MdtRequest;
use proto::{Code, Fid, Transno};
use service::Done;

use super::bits::{BitLocks, Claims};
use super::export::Export;
use super::namespace::Changes;
use super::plan::{Halt, Plan, Reads, Step};
use super::sharing::{Key, Sharing};

/// Keys and values of all changes of a request, in bytes: half of what the store takes.
const CHANGES_BYTES_MAX: usize = 8 << 20;

/// What an operation knows of its request, what it claims, and what it has seen of others.
pub struct Ctx<'a> {
    request: &'a service::Ctx<Export>,
    claims: Claims,
    reads: Reads,
    /// What it has read before.
    pub(super) plan: Plan,
    /// Of a request with several changes: those that come first.
    earlier: Mutex<Changes>,
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
        reads: Reads,
    ) -> Ctx<'a> {
        let claims = Claims::new(locks, request.session().handle());
        Ctx {
            request,
            claims,
            reads,
            plan: Plan::default(),
            earlier: Mutex::default(),
            sharing,
            seen: AtomicU64::new(0),
        }
    }

    /// How the operation reads.
    pub(super) fn reads(&self) -> Reads {
        self.reads
    }

    /// What the earlier changes of the same request make of `key`; `None` if they leave it.
    pub(super) fn changed(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.earlier.lock().changed(key).cloned()
    }

    /// One more change of the request: those that are planned from now on come behind it, and all are committed together.
    pub(super) fn join(&self, changes: Changes) {
        self.earlier.lock().join(changes);
    }

    /// Whether all changes of the request together are as much as one may bring.
    pub(super) fn changes_too_much(&self) -> bool {
        self.earlier.lock().joined_bytes() > CHANGES_BYTES_MAX
    }

    /// All changes of the request so far, to be committed, or dropped when it is carried out again.
    pub(super) fn take_changes(&self) -> Changes {
        std::mem::take(&mut self.earlier.lock())
    }

    /// The operation has read what is `key`.
    pub(super) fn saw(&self, key: Key) {
        let foreign = self.sharing.foreign(key, self.session().handle());
        self.seen.fetch_max(foreign.0, Ordering::Relaxed);
    }

    /// Another client may have the directory to itself, with changes of which the MDT does not know: they come first. A replay comes
    /// before anybody has said so.
    pub(super) fn settled(&self, fid: Fid) -> Step<()> {
        match self.claims.alone(fid).filter(|_| self.request.replay.is_none()) {
            Some(conflict) => Err(Halt::Conflict(vec![(fid, conflict)])),
            None => Ok(()),
        }
    }

    /// Commits a change of `keys` by `commit`.
    pub(super) fn changing(
        &self,
        keys: &[Key],
        commit: impl FnOnce() -> Result<Done, Code>,
    ) -> Result<Done, Code> {
        let rests = Transno(self.seen.load(Ordering::Relaxed));
        self.sharing.changing(keys, self.session().handle(), rests, commit)
    }

    /// The newest change by others that it has seen: its answer waits until that is durable. A replay's does not: others
    /// have to be repeated before anything is committed, and this one was answered before.
    pub(super) fn seen(&self) -> Transno {
        if self.replay.is_some() { Transno(0) } else { Transno(self.seen.load(Ordering::Relaxed)) }
    }

    /// See [`Claims::need`]. Replays need nothing: nobody has been granted anything when they come.
    pub(super) fn need(&self, affected: &[(Fid, u32)]) -> Step<()> {
        if self.request.replay.is_some() {
            return Ok(());
        }
        let conflicts = self.claims.need(affected);
        if conflicts.is_empty() { Ok(()) } else { Err(Halt::Conflict(conflicts)) }
    }
}

impl Deref for Ctx<'_> {
    type Target = service::Ctx<Export>;

    fn deref(&self) -> &service::Ctx<Export> {
        self.request
    }
}

impl Reads {
    /// How `request` is carried out: what takes guards reads what is known, everything else takes none.
    pub(super) fn of(request: &MdtRequest) -> Reads {
        match request {
            MdtRequest::GetAttr(_) | MdtRequest::Lookup(_) | MdtRequest::Access(_) => Reads::All,
            MdtRequest::ReadDir(_) | MdtRequest::ReadLink(_) | MdtRequest::FidToPath(_) => Reads::All,
            MdtRequest::GetXattr(_) | MdtRequest::ListXattr(_) | MdtRequest::GetDefaultLayout(_) => {
                Reads::All
            }
            MdtRequest::Flock(_) | MdtRequest::FlockWait(_) | MdtRequest::FlockCancel(_) => Reads::All,
            MdtRequest::FlockTest(_) | MdtRequest::RestateFlocks(_) => Reads::All,
            MdtRequest::RestateNames(_) | MdtRequest::RestateAlone(_) | MdtRequest::HoldSpace(_) => {
                Reads::All
            }
            MdtRequest::GetHsm(_)
            | MdtRequest::AskHsm(_)
            | MdtRequest::TakeHsm(_)
            | MdtRequest::EndHsm(_) => Reads::All,
            MdtRequest::SetHsm(_) | MdtRequest::ReleaseData(_) => Reads::Known,
            MdtRequest::CancelBits(_) | MdtRequest::GetSequence(_) | MdtRequest::Find(_) => Reads::All,
            MdtRequest::Create(_) | MdtRequest::CreateUnnamed(_) | MdtRequest::Open(_) => Reads::Known,
            MdtRequest::KeepPromises(_) => Reads::Known,
            MdtRequest::Close(_) | MdtRequest::Unlink(_) => Reads::Known,
            MdtRequest::RestateOpens(_) | MdtRequest::StateOpens(_) => Reads::Known,
            MdtRequest::Rename(_) | MdtRequest::Link(_) | MdtRequest::SetAttr(_) => Reads::Known,
            MdtRequest::SetSize(_) | MdtRequest::SetXattr(_) | MdtRequest::RemoveXattr(_) => Reads::Known,
            MdtRequest::SetLayout(_) | MdtRequest::SwapLayouts(_) | MdtRequest::PlaceData(_) => Reads::Known,
        }
    }
}
