//! Entries that may be among those that are searched: their inodes are read for many of them together.
//!
//! An inode takes a fifth of the time in a scan of the store that it takes by its key. A directory's entries lie in the order of their hashes
//! and its inodes in the order of their FIDs, so few entries have inodes that are spread, and many have some that lie close together.

use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Subject, Verdict, path_below};
use proto::wire::messages::{FindPlace, Found};
use proto::{Code, Fid, FileKind, Name};
use rt::wait::join_all;
use service::code_of;

use super::search::Search;
use super::{JOBS_MAX, after, path_below_start};
use crate::mdt::{Mdt, keys};

/// How far the FIDs of files lie apart at most that are read in a row, how far on average, and how many there are at least.
const GAP_MAX: u32 = 64;
const GAP_MEAN_MAX: usize = 5;
const RUN_MIN: usize = 32;

/// Bytes that one takes that was found, about, without its path, and what is told of it besides if that was asked for.
const FOUND_BYTES: usize = 160;
const ENTRY_BYTES: usize = 512;

/// A directory of the walk.
pub(super) struct Directory {
    pub(super) fid: Fid,
    /// Its path below the start.
    pub(super) below: Vec<u8>,
}

impl Directory {
    pub(super) fn new(fid: Fid, below: Vec<u8>) -> Directory {
        Directory { fid, below }
    }

    /// Its path as it is printed, up to where a name goes.
    pub(super) fn printed(&self, search: &Search) -> Vec<u8> {
        let mut printed = path_below(&search.request.path, &self.below);
        if !printed.ends_with(b"/") {
            printed.push(b'/');
        }
        printed
    }
}

/// Entries of one directory that may be among those that are searched, in its order.
pub(super) struct Candidates {
    pub(super) dir: Arc<Directory>,
    /// Entries of the page that were looked at before.
    pub(super) before: u64,
    /// Their names, one behind the other.
    names: Vec<u8>,
    all: Vec<Candidate>,
}

/// One of them. There are many at a time: what they share is not in it.
struct Candidate {
    fid: Fid,
    /// Entries that were looked at up to this one, behind those before.
    seen: u32,
    name_from: u32,
    name_bytes: u16,
    kind: FileKind,
    early: Verdict,
}

/// Which one of which directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    of: u32,
    at: u32,
}

/// One that was found, or may be.
pub(super) type Judged = (Place, Found);
/// One whose inode has to be read.
type ByFid = (Fid, Place);

impl Candidates {
    pub(super) fn new(dir: Arc<Directory>) -> Candidates {
        Candidates { dir, before: 0, names: Vec::new(), all: Vec::new() }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes of memory that they take, about, and that they would take if all were found.
    pub(super) fn memory(&self, wants_entries: bool) -> u64 {
        let of_each = if wants_entries { FOUND_BYTES + ENTRY_BYTES } else { FOUND_BYTES };
        let each = size_of::<Candidate>() + of_each + self.dir.below.len();
        let directory = size_of::<Self>() + size_of::<Directory>() + self.dir.below.len();
        (directory + 2 * self.names.len() + self.all.len() * each) as u64
    }

    /// Adds one, the `seen`-th entry.
    pub(super) fn push(&mut self, seen: u64, name: &[u8], (fid, kind): (Fid, FileKind), early: Verdict) {
        // A job looks at some thousand entries, and a name has 255 bytes at most.
        let (name_from, name_bytes) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.all.push(Candidate { fid, seen: seen as u32, name_from, name_bytes, kind, early });
    }

    fn name(&self, one: &Candidate) -> &[u8] {
        let from = one.name_from as usize;
        self.names.get(from..from + usize::from(one.name_bytes)).unwrap_or_default()
    }

    fn below(&self, one: &Candidate) -> Bytes {
        path_below_start(&self.dir.below, self.name(one)).into()
    }
}

/// How many entries of the page were looked at up to this one, and where a page goes on that ends with it.
pub(super) fn end_at(candidates: &[Candidates], place: Place) -> Result<(u64, FindPlace), Code> {
    let of = candidates.get(place.of as usize).ok_or(Code::Corrupt)?;
    let one = of.all.get(place.at as usize).ok_or(Code::Corrupt)?;
    let name = Name::new(Bytes::copy_from_slice(of.name(one))).map_err(|_| Code::Corrupt)?;
    let next = FindPlace { dir: of.dir.fid, descends: false, name: Some(name) };
    Ok((of.before + u64::from(one.seen), next))
}

impl Place {
    /// The place in front of all of the `of`-th directory.
    pub(super) fn first_of(of: usize) -> Place {
        Place { of: of as u32, at: 0 }
    }
}

/// Those of the candidates that are searched or may be, in any order.
pub(super) async fn judge_all(
    mdt: &Mdt,
    search: &Arc<Search>,
    candidates: &Arc<Vec<Candidates>>,
) -> Result<Vec<Vec<Judged>>, Code> {
    let (of, all) = (search.clone(), candidates.clone());
    let (found, by_fid) = mdt.rt.offload(move || sorted(&of, &all)).await;
    let by_fid = Arc::new(by_fid);
    let part = by_fid.len().div_ceil(JOBS_MAX).max(RUN_MIN);
    let parts = (0..by_fid.len()).step_by(part).map(|from| {
        let (search, candidates, by_fid) = (search.clone(), candidates.clone(), by_fid.clone());
        mdt.rt.offload(move || {
            let until = by_fid.len().min(from + part);
            judge_part(&search, &candidates, &by_fid[from..until])
        })
    });
    let parts = join_all(parts).await.into_iter();
    std::iter::once(Ok(found)).chain(parts).collect()
}

/// What is told of those that need no inode, and the others in the order of their FIDs.
fn sorted(search: &Search, candidates: &[Candidates]) -> (Vec<Judged>, Vec<ByFid>) {
    let count = candidates.iter().map(|of| of.all.len()).sum();
    let (mut found, mut by_fid) = (Vec::new(), Vec::with_capacity(count));
    for (of, dir) in candidates.iter().enumerate() {
        for (at, one) in dir.all.iter().enumerate() {
            let place = Place { of: of as u32, at: at as u32 };
            if search.needs_inode(one.early, one.kind) {
                by_fid.push((one.fid, place));
            } else {
                found.push((place, search.by_name(one.fid, one.kind, dir.below(one))));
            }
        }
    }
    by_fid.sort_unstable();
    (found, by_fid)
}

/// Judges some of the candidates, in the order of their FIDs.
fn judge_part(search: &Search, candidates: &[Candidates], part: &[ByFid]) -> Result<Vec<Judged>, Code> {
    let mut judge = Judge { search, candidates, path: Vec::new(), found: Vec::new() };
    let close = |(a, _): &ByFid, (b, _): &ByFid| a.seq == b.seq && b.oid - a.oid <= GAP_MAX;
    for run in part.chunk_by(close) {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
        if run.len() >= RUN_MIN && (last.oid - first.oid) as usize <= GAP_MEAN_MAX * run.len() {
            judge.scan(run)?;
        } else {
            run.iter().try_for_each(|(_, place)| judge.by_key(*place))?;
        }
    }
    Ok(judge.found)
}

struct Judge<'a> {
    search: &'a Search,
    candidates: &'a [Candidates],
    path: Vec<u8>,
    found: Vec<Judged>,
}

impl<'a> Judge<'a> {
    /// Reads all inodes from the first to the last FID of the run, in their order.
    fn scan(&mut self, run: &[ByFid]) -> Result<(), Code> {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { return Ok(()) };
        let (from, until) = (keys::inode(*first), after(&keys::inode(*last)));
        let (mut rest, mut result) = (run, Ok(()));
        let search = self.search;
        let scan = search.snapshot.scan(&from, &until, &mut |key, record, version| {
            let Some(fid) = keys::fid_of(key) else { return true };
            // A file has as many candidates as it has names.
            while let Some((&(wanted, place), others)) = rest.split_first()
                && wanted <= fid
            {
                let record = (wanted == fid).then_some((record, version));
                result = record.ok_or(Code::Corrupt).and_then(|record| self.by_record(place, record));
                if result.is_err() {
                    return false;
                }
                rest = others;
            }
            true
        });
        scan.map_err(|error| code_of(&error))?;
        result?;
        // A name without an inode.
        if rest.is_empty() { Ok(()) } else { Err(Code::Corrupt) }
    }

    fn by_record(&mut self, place: Place, record: (&[u8], u64)) -> Result<(), Code> {
        let Some((of, one)) = self.candidate(place) else { return Ok(()) };
        let subject = subject(self.search, of, one, &mut self.path);
        let found = self.search.judge(subject, one.fid, record, || of.below(one))?;
        self.found.extend(found.map(|found| (place, found)));
        Ok(())
    }

    fn by_key(&mut self, place: Place) -> Result<(), Code> {
        let Some((of, one)) = self.candidate(place) else { return Ok(()) };
        let subject = subject(self.search, of, one, &mut self.path);
        let found = self.search.judge_by_key(subject, one.fid, || of.below(one))?;
        self.found.extend(found.map(|found| (place, found)));
        Ok(())
    }

    fn candidate(&self, place: Place) -> Option<(&'a Candidates, &'a Candidate)> {
        let of = self.candidates.get(place.of as usize)?;
        Some((of, of.all.get(place.at as usize)?))
    }
}

/// What is asked of the candidate, with its path as it is printed.
fn subject<'a>(search: &Search, of: &'a Candidates, one: &Candidate, path: &'a mut Vec<u8>) -> Subject<'a> {
    path.clear();
    if search.judges_paths {
        path.extend_from_slice(&of.dir.printed(search));
        path.extend_from_slice(of.name(one));
    }
    search.subject(of.name(one), path, one.kind)
}
