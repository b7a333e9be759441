//! What a search reads of the snapshot: inodes and their names, whether the caller may see them, and whether they are what it looks for.

use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Expr, Subject, Test, Verdict};
use proto::wire::messages::{ACCESS_EXECUTE, ACCESS_READ, FIND_ENTRY, FIND_TARGET, Find, Found};
use proto::{Code, Cred, Fid, FileKind, Name};
use service::code_of;
use service::keys::behind;
use store::Snapshot;

use super::DEPTH_MAX;
use crate::mdt::inode::Inode;
use crate::mdt::{access, keys};

/// Names of a file that are looked at to see whether the caller can reach it.
const LINKS_MAX: usize = 100;

/// What all jobs of a search know.
pub(super) struct Search {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) query: Expr,
    pub(super) request: Find,
    pub(super) mdt: u32,
    /// Whether something is asked of layouts, and of paths.
    pub(super) judges_layouts: bool,
    pub(super) judges_paths: bool,
}

impl Search {
    /// The inode, as it was.
    pub(super) fn inode(&self, fid: Fid) -> Result<Option<Inode>, Code> {
        let value = self.snapshot.get(&keys::inode(fid)).map_err(|error| code_of(&error))?;
        let Some(value) = value else { return Ok(None) };
        Inode::decode(fid, &value.bytes, value.version.0).map(Some).ok_or(Code::Corrupt)
    }

    /// Names of a file, with their directories.
    pub(super) fn links(&self, fid: Fid, count_max: usize) -> Result<Vec<(Fid, Name)>, Code> {
        let from = keys::of(keys::LINK, fid);
        let mut found = Vec::new();
        let scan = self.snapshot.scan(&from, &behind(&from), &mut |key, _, _| {
            found.push(keys::link_parts(&Bytes::copy_from_slice(key)).ok_or(Code::Corrupt));
            found.len() < count_max
        });
        scan.map_err(|error| code_of(&error))?;
        found.into_iter().collect()
    }

    fn cred(&self) -> &Cred {
        &self.request.cred
    }

    /// Whether the caller may see what is in the directory, and look at it.
    pub(super) fn may_read(&self, dir: &Inode) -> Result<(), Code> {
        access::may(self.cred(), dir, ACCESS_READ | ACCESS_EXECUTE)
    }

    /// Whether the caller could walk from the root to `start`.
    pub(super) fn may_reach(&self, start: &Inode) -> Result<(), Code> {
        if access::is_root(self.cred()) || start.fid == Fid::ROOT {
            return Ok(());
        }
        if start.is_dir() {
            return self.may_walk(start.parent);
        }
        let mut refused = Code::Stale;
        for (parent, _) in self.links(start.fid, LINKS_MAX)? {
            match self.may_walk(parent) {
                Err(Code::AccessDenied) => refused = Code::AccessDenied,
                other => return other,
            }
        }
        Err(refused)
    }

    fn may_walk(&self, to: Fid) -> Result<(), Code> {
        let mut at = to;
        for _ in 0..DEPTH_MAX {
            let dir = self.inode(at)?.filter(Inode::is_dir).ok_or(Code::Stale)?;
            access::may(self.cred(), &dir, ACCESS_EXECUTE)?;
            if at == Fid::ROOT {
                return Ok(());
            }
            at = dir.parent;
        }
        Err(Code::NameTooLong)
    }

    /// Whether the walk looks into directories of `dir`, whose entries have `depth` names below the start. Each directory is a link of
    /// the one above it.
    pub(super) fn looks_below(&self, dir: &Inode, depth: u32) -> bool {
        dir.nlink != 2 && depth < self.request.depth_max && (depth as usize) < DEPTH_MAX
    }

    pub(super) fn subject<'a>(&self, name: &'a [u8], path: &'a [u8], kind: FileKind) -> Subject<'a> {
        Subject { name, path, kind, mdt: self.mdt, inode: None, is_bare: None }
    }

    /// Whether the inode has to be read of a file of which its name and kind have given `early`.
    pub(super) fn needs_inode(&self, early: Verdict, kind: FileKind) -> bool {
        early == Verdict::Open || self.request.wants & FIND_ENTRY != 0 || self.wants_target(kind)
    }

    fn wants_target(&self, kind: FileKind) -> bool {
        self.request.wants & FIND_TARGET != 0 && kind == FileKind::Symlink
    }

    /// What is told of a file by its name and kind alone.
    pub(super) fn by_name(&self, fid: Fid, kind: FileKind, below: Bytes) -> Found {
        Found { path: below, fid, mode: kind.mode_bits(), open: false, entry: None, target: None }
    }

    /// What is told of a file, if it is one of those or may be, by its record. `below` comes below the start.
    pub(super) fn judge(
        &self,
        subject: Subject<'_>,
        fid: Fid,
        record: (&[u8], u64),
        below: impl FnOnce() -> Bytes,
    ) -> Result<Option<Found>, Code> {
        let (bytes, version) = record;
        let (wants, kind) = (self.request.wants, subject.kind);
        let decode = || Inode::decode(fid, &Bytes::copy_from_slice(bytes), version).ok_or(Code::Corrupt);
        let verdict = if self.judges_layouts {
            self.judge_inode(subject, &decode()?)?
        } else {
            // Layouts take most of the time.
            let Some(fixed) = Inode::decode_fixed(fid, bytes, version) else { return Err(Code::Corrupt) };
            self.judge_inode(subject, &fixed)?
        };
        if verdict == Verdict::No {
            return Ok(None);
        }
        let mut found = self.by_name(fid, kind, below());
        found.open = verdict == Verdict::Open;
        let (tells_entry, tells_target) = (found.open || wants & FIND_ENTRY != 0, self.wants_target(kind));
        if tells_entry || tells_target {
            let inode = decode()?;
            found.entry = tells_entry.then(|| Box::new(inode.entry()));
            found.target = tells_target.then(|| inode.target.clone());
        }
        Ok(Some(found))
    }

    /// The same, and reads the record.
    pub(super) fn judge_by_key(
        &self,
        subject: Subject<'_>,
        fid: Fid,
        below: impl FnOnce() -> Bytes,
    ) -> Result<Option<Found>, Code> {
        let value = self.snapshot.get(&keys::inode(fid)).map_err(|error| code_of(&error))?;
        let value = value.ok_or(Code::Corrupt)?;
        self.judge(subject, fid, (&value.bytes, value.version.0), below)
    }

    fn judge_inode(&self, subject: Subject<'_>, inode: &Inode) -> Result<Verdict, Code> {
        let attr = inode.attr();
        let mut subject = Subject { inode: Some((&attr, inode.layout.as_ref())), ..subject };
        let verdict = self.query.judge(&subject);
        let needs_bare = verdict == Verdict::Open && subject.kind == FileKind::Dir;
        if !needs_bare || !self.query.has(|test| *test == Test::Empty) {
            return Ok(verdict);
        }
        subject.is_bare = Some(self.is_bare(inode.fid)?);
        Ok(self.query.judge(&subject))
    }

    fn is_bare(&self, dir: Fid) -> Result<bool, Code> {
        let mut is_bare = true;
        let (from, until) = (keys::entries_from(dir, 0), keys::entries_end(dir));
        let scan = self.snapshot.scan(&from, &until, &mut |_, _, _| {
            is_bare = false;
            false
        });
        scan.map_err(|error| code_of(&error)).map(|()| is_bare)
    }
}
