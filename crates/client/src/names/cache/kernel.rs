//! What the kernel is told and may keep, and what it has to forget.

use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{LOCK_LAYOUT, LOCK_LOOKUP, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR};
use proto::{Attr, Fid, FileKind, Name};
use rt::sync::oneshot;

use super::Kept;
use super::inode::ATTR_BITS;
use super::told::{Fill, Told};
use crate::Forget;
use crate::copies::Keepers;
use crate::data::Files;
use crate::lease::Lease;
use crate::names::Accesses;

/// The copies that the kernel has of names and attributes.
pub(crate) struct KernelCopies {
    kept: Arc<Kept>,
    lease: Arc<Lease>,
    accesses: Arc<Accesses>,
    files: Arc<Files>,
    pub(crate) copies: Arc<Keepers>,
}

impl KernelCopies {
    /// The kernel has none yet.
    pub(super) fn new(
        kept: Arc<Kept>,
        lease: Arc<Lease>,
        accesses: Arc<Accesses>,
        files: Arc<Files>,
        copies: Arc<Keepers>,
    ) -> KernelCopies {
        KernelCopies { kept, lease, accesses, files, copies }
    }

    /// An answer about a file, with what of it may be kept: attributes only if they are those that are kept here,
    /// and complete; the name only if it is kept here.
    pub(crate) fn told(&self, mut attr: Attr, name: Option<(Fid, &Name)>) -> Told {
        let accessed = self.accesses.note(&mut attr);
        let named = name.map(|(parent, name)| {
            let part = self.kept.inodes.part(parent);
            part.inodes.get(&parent).and_then(|dir| dir.names.get(name).flatten())
        });
        let complete =
            attr.kind() != FileKind::File || attr.size_known && !self.files.is_being_written(attr.fid);
        let untouched = !complete && self.files.is_untouched(attr.fid);
        let part = self.kept.inodes.part(attr.fid);
        let Some(inode) = part.inodes.get(&attr.fid).filter(|_| self.kept.may_use(attr.fid)) else {
            return Told::once(attr);
        };
        // The kernel sees each write that this mount makes, and asks again after it.
        let complete = complete || untouched && inode.is_made_here();
        let known = inode.entry.as_ref().filter(|_| inode.has(ATTR_BITS));
        let is_known = known.is_some_and(|known| known.attr.version == attr.version);
        let keep_attr = complete && !accessed && is_known;
        // The kernel keeps mode and owner as long as the name, and decides by them.
        let is_kept = is_known && inode.keeps_names() && named.flatten() == Some((attr.fid, inode.stamp));
        let keep_name = if is_kept { self.lease.left() } else { Duration::ZERO };
        Told { keep_name, keep_attr, fill: Fill::new(part.filling()), attr }
    }

    /// Has the kernel forget what was kept under `bits`.
    pub(super) async fn forget_kept(&self, fid: Fid, bits: u32) {
        let mut forget = Vec::new();
        // Nobody is ever let keep that a name is not there. The kernel asks for a name anew that it has forgotten, and not for an owner: chmod(2),
        // utimensat(2) and sticky directories go by the one that came with the name.
        if bits & (LOCK_LOOKUP | LOCK_PERM) != 0 {
            forget.push(Forget::NamesOf(fid));
        }
        if bits & (LOCK_PERM | LOCK_XATTR) != 0 {
            forget.push(Forget::Attributes(fid));
        } else if bits & (LOCK_UPDATE | LOCK_LAYOUT) != 0 {
            forget.push(Forget::SizeAndTimes(fid));
        }
        if !forget.is_empty() {
            self.copies.forget(forget).await;
        }
    }

    /// Files of which the kernel may keep something, and what has to arrive before it can forget.
    pub(crate) fn kept_by_kernel(&self) -> Vec<(Fid, Option<oneshot::Receiver<()>>)> {
        let mut kept = Vec::new();
        for part in self.kept.inodes.parts() {
            let mut part = part.lock();
            kept.push((Fid::ZERO, Some(part.close_gate())));
            let held = part.inodes.iter().filter(|(_, inode)| inode.held().bits != 0);
            kept.extend(held.map(|(fid, _)| (*fid, None)));
        }
        kept
    }
}
