//! Entries that are looked at away from the threads that serve: a part of a directory, or some directories.

use std::sync::Arc;

use bytes::Bytes;
use proto::find::Verdict;
use proto::{Code, Name};
use rt::wait::join_all;
use service::code_of;

use super::candidate::{Candidates, Directory};
use super::search::Search;
use super::{PATH_BYTES_MAX, after, name_in};
use crate::mdt::{Mdt, keys};

/// A part of a directory.
pub(super) struct Job {
    pub(super) search: Arc<Search>,
    pub(super) dir: Arc<Directory>,
    /// Names below the start of what is in it.
    pub(super) depth: u32,
    pub(super) from: Vec<u8>,
    pub(super) until: Vec<u8>,
    pub(super) count_max: usize,
    /// The walk comes into the directory with it: whether that is allowed is to be seen.
    pub(super) enters: bool,
}

/// What a job gives.
pub(super) struct Looked {
    pub(super) candidates: Candidates,
    pub(super) visited: u64,
    pub(super) first_hash: u64,
    pub(super) last: Option<Name>,
    /// The first key that it has not looked at.
    pub(super) from: Vec<u8>,
    /// All of its range was looked at.
    pub(super) is_all: bool,
    pub(super) has_dirs: bool,
    pub(super) is_hidden: bool,
}

impl Job {
    fn look(self) -> Result<Looked, Code> {
        let mut looked = Looked {
            candidates: Candidates::new(self.dir.clone()),
            visited: 0,
            first_hash: 0,
            last: None,
            from: self.until.clone(),
            is_all: true,
            has_dirs: false,
            is_hidden: false,
        };
        if self.enters {
            let dir = self.search.inode(self.dir.fid)?.ok_or(Code::Corrupt)?;
            match self.search.may_read(&dir) {
                Err(Code::AccessDenied) => return Ok(Looked { is_hidden: true, ..looked }),
                other => other?,
            }
            if self.dir.below.len() > PATH_BYTES_MAX {
                return Err(Code::NameTooLong);
            }
            looked.has_dirs = self.search.looks_below(&dir, self.depth);
        }
        self.scan(&mut looked)?;
        Ok(looked)
    }

    /// Passes the entries, and gives those that their names and kinds do not exclude.
    fn scan(&self, looked: &mut Looked) -> Result<(), Code> {
        let search = &self.search;
        let is_deep_enough = self.depth >= search.request.depth_min;
        let (mut path, mut last) = (self.dir.printed(search), Vec::with_capacity(keys::ENTRY_NAME_AT + 64));
        let (name_at, mut is_damaged) = (path.len(), false);
        let scan = search.snapshot.scan(&self.from, &self.until, &mut |key, value, _| {
            let (Some(name), Some((fid, kind))) = (name_in(key), keys::entry_of(value)) else {
                is_damaged = true;
                return false;
            };
            if looked.visited == 0 {
                looked.first_hash = keys::entry_hash(key).unwrap_or(0);
            }
            looked.visited += 1;
            last.clear();
            last.extend_from_slice(key);
            path.truncate(name_at);
            path.extend_from_slice(name);
            let early = search.query.judge(&search.subject(name, &path, kind));
            if is_deep_enough && early != Verdict::No {
                looked.candidates.push(looked.visited, name, (fid, kind), early);
            }
            looked.is_all = looked.visited < self.count_max as u64;
            looked.is_all
        });
        scan.map_err(|error| code_of(&error))?;
        if is_damaged {
            return Err(Code::Corrupt);
        }
        if !looked.is_all {
            looked.from = after(&last);
        }
        looked.last = name_in(&last).and_then(|name| Name::new(Bytes::copy_from_slice(name)).ok());
        Ok(())
    }
}

/// Does all jobs at the same time; what they give, in their order.
pub(super) async fn run_all(mdt: &Mdt, jobs: Vec<Job>) -> Result<Vec<Looked>, Code> {
    let looked = jobs.into_iter().map(|job| mdt.rt.offload(move || job.look()));
    join_all(looked).await.into_iter().collect()
}

/// The same with some directories each. None is looked at behind one in which the walk goes on, or that has much: the walk comes to it later.
pub(super) async fn run_rows(mdt: &Mdt, rows: Vec<Vec<Job>>, much: usize) -> Result<Vec<Looked>, Code> {
    let looked = rows.into_iter().map(|row| mdt.rt.offload(move || look_at_row(row, much)));
    let mut all = Vec::new();
    for row in join_all(looked).await {
        let (row, is_done) = row?;
        all.extend(row);
        if !is_done {
            break;
        }
    }
    Ok(all)
}

/// Whether it has come to the end of the row, too.
fn look_at_row(row: Vec<Job>, much: usize) -> Result<(Vec<Looked>, bool), Code> {
    let (count, mut visited) = (row.len(), 0);
    let mut all = Vec::with_capacity(count);
    for job in row {
        let looked = job.look()?;
        visited += looked.visited as usize;
        let goes_on = !looked.is_all || looked.has_dirs || visited >= much;
        all.push(looked);
        if goes_on {
            break;
        }
    }
    let is_done = all.len() == count;
    Ok((all, is_done))
}
