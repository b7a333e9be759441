//! What a search reads of the snapshot: inodes and their names, whether the caller may see them, and whether they are what it looks for.

use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Expr, Subject, Test, Verdict};
use proto::wire::messages::{ACCESS_EXECUTE, ACCESS_READ, FIND_ENTRY, FIND_TARGET, Find, Found};
use proto::{Code, Cred, Fid, FileKind, Name, Transno};
use service::code_of;
use service::keys::behind;
use store::{Snapshot, Value};

use super::{DEPTH_MAX, after};
use crate::mdt::inode::Inode;
use crate::mdt::{access, keys};

/// How far the FIDs of files lie apart at most that are read in a row, and how many there are at least.
const GAP_MAX: u32 = 4;
const RUN_MIN: usize = 32;
/// Names of a file that are looked at to see whether the caller can reach it.
const LINKS_MAX: usize = 100;

/// What all jobs of a page know.
pub(super) struct Search {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) query: Expr,
    pub(super) request: Find,
    pub(super) mdt: u32,
    pub(super) bytes_max: usize,
    /// Whether something is asked of layouts.
    pub(super) judges_layouts: bool,
}

/// An entry that may be one of those that are searched.
pub(super) struct Candidate {
    pub(super) seen: u64,
    pub(super) name: Bytes,
    pub(super) fid: Fid,
    pub(super) kind: FileKind,
    pub(super) early: Verdict,
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

    /// The records of those files whose FIDs lie close together: many in a row are read in a fraction of the time that each takes by its key.
    /// In the order of the FIDs.
    pub(super) fn neighbours(&self, candidates: &[Candidate]) -> Result<Vec<(Fid, Value)>, Code> {
        let needed = candidates.iter().filter(|one| one.early == Verdict::Open || self.request.wants != 0);
        let mut fids: Vec<Fid> = needed.map(|one| one.fid).collect();
        fids.sort_unstable();
        let mut records = Vec::new();
        let close = |a: &Fid, b: &Fid| a.seq == b.seq && b.oid - a.oid <= GAP_MAX;
        for run in fids.chunk_by(close).filter(|run| run.len() >= RUN_MIN) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (from, until) = (keys::inode(*first), after(&keys::inode(*last)));
            let scan = self.snapshot.scan(&from, &until, &mut |key, value, version| {
                if let Some(fid) = keys::fid_of(key).filter(|fid| run.binary_search(fid).is_ok()) {
                    let bytes = Bytes::copy_from_slice(value);
                    records.push((fid, Value { bytes, version: Transno(version) }));
                }
                true
            });
            scan.map_err(|error| code_of(&error))?;
        }
        Ok(records)
    }

    /// The record of an inode that a name means, of `records` if it is there.
    fn record(&self, fid: Fid, records: &[(Fid, Value)]) -> Result<Value, Code> {
        if let Ok(at) = records.binary_search_by_key(&fid, |(fid, _)| *fid) {
            return Ok(records[at].1.clone());
        }
        let value = self.snapshot.get(&keys::inode(fid)).map_err(|error| code_of(&error))?;
        value.ok_or(Code::Corrupt)
    }

    /// What is told of a file, if it is one of those or may be. `early` came of its name and kind, `below` comes below the start.
    pub(super) fn judge(
        &self,
        subject: Subject<'_>,
        early: Verdict,
        fid: Fid,
        records: &[(Fid, Value)],
        below: impl FnOnce() -> Bytes,
    ) -> Result<Option<Found>, Code> {
        let (wants, kind) = (self.request.wants, subject.kind);
        let wants_target = wants & FIND_TARGET != 0 && kind == FileKind::Symlink;
        let mut found =
            Found { path: Bytes::new(), fid, mode: kind.mode_bits(), open: false, entry: None, target: None };
        if early == Verdict::No {
            return Ok(None);
        }
        if early == Verdict::Yes && wants & FIND_ENTRY == 0 && !wants_target {
            return Ok(Some(Found { path: below(), ..found }));
        }
        let record = self.record(fid, records)?;
        let decode = || Inode::decode(fid, &record.bytes, record.version.0).ok_or(Code::Corrupt);
        let mut inode = match self.judges_layouts {
            true => decode()?,
            // Layouts take most of the time.
            false => Inode::decode_fixed(fid, &record.bytes, record.version.0).ok_or(Code::Corrupt)?,
        };
        match self.judge_inode(subject, &inode)? {
            Verdict::No => return Ok(None),
            verdict => found.open = verdict == Verdict::Open,
        }
        if !self.judges_layouts {
            inode = decode()?;
        }
        found.target = wants_target.then(|| inode.target.clone());
        found.entry = (found.open || wants & FIND_ENTRY != 0).then(|| inode.entry());
        Ok(Some(Found { path: below(), ..found }))
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
