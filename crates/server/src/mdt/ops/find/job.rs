//! A part of a directory that is looked at away from the threads that serve.

use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Verdict, path_below};
use proto::wire::messages::Found;
use proto::{Code, Fid, Name};
use rt::wait::join_all;
use service::code_of;

use super::search::{Candidate, Search};
use super::{PATH_BYTES_MAX, after, bytes_of, name_in, path_below_start};
use crate::mdt::{Mdt, keys};

/// A part of a directory that is looked at away from the threads that serve.
pub(super) struct Job {
    pub(super) search: Arc<Search>,
    pub(super) dir: Fid,
    pub(super) below: Vec<u8>,
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
    /// Each with how many entries were looked at up to it.
    pub(super) found: Vec<(u64, Found)>,
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
            found: Vec::new(),
            visited: 0,
            first_hash: 0,
            last: None,
            from: self.until.clone(),
            is_all: true,
            has_dirs: false,
            is_hidden: false,
        };
        if self.enters {
            let dir = self.search.inode(self.dir)?.ok_or(Code::Corrupt)?;
            match self.search.may_read(&dir) {
                Err(Code::AccessDenied) => return Ok(Looked { is_hidden: true, ..looked }),
                other => other?,
            }
            if self.below.len() > PATH_BYTES_MAX {
                return Err(Code::NameTooLong);
            }
            looked.has_dirs = self.search.looks_below(&dir, self.depth);
        }
        let candidates = self.scan(&mut looked)?;
        self.judge(candidates, &mut looked)?;
        Ok(looked)
    }

    /// The path of the directory as it is printed, up to where a name goes.
    fn path(&self) -> Vec<u8> {
        let mut path = path_below(&self.search.request.path, &self.below);
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path
    }

    /// Passes the entries, and gives those that their names and kinds do not exclude.
    fn scan(&self, looked: &mut Looked) -> Result<Vec<Candidate>, Code> {
        let search = &self.search;
        let is_deep_enough = self.depth >= search.request.depth_min;
        let (mut candidates, mut is_damaged) = (Vec::new(), false);
        let (mut path, mut last) = (self.path(), Vec::with_capacity(keys::ENTRY_NAME_AT + 64));
        let name_at = path.len();
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
                let name = Bytes::copy_from_slice(name);
                candidates.push(Candidate { seen: looked.visited, name, fid, kind, early });
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
        Ok(candidates)
    }

    /// Looks at the candidates' inodes, until what is found fills a page.
    fn judge(&self, candidates: Vec<Candidate>, looked: &mut Looked) -> Result<(), Code> {
        let mut path = self.path();
        let (name_at, mut bytes) = (path.len(), 0);
        let records = self.search.neighbours(&candidates)?;
        for Candidate { seen, name, fid, kind, early } in candidates {
            path.truncate(name_at);
            path.extend_from_slice(&name);
            let below = || path_below_start(&self.below, &name).into();
            let subject = self.search.subject(&name, &path, kind);
            let Some(found) = self.search.judge(subject, early, fid, &records, below)? else { continue };
            bytes += bytes_of(&found);
            looked.found.push((seen, found));
            if bytes >= self.search.bytes_max {
                let name = Name::new(name).map_err(|_| Code::Corrupt)?;
                looked.from = after(&keys::entry(self.dir, &name));
                (looked.visited, looked.last, looked.is_all) = (seen, Some(name), false);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Does all jobs at the same time; what they give, in their order.
pub(super) async fn run_all(mdt: &Mdt, jobs: Vec<Job>) -> Result<Vec<Looked>, Code> {
    let looked = jobs.into_iter().map(|job| mdt.rt.offload(move || job.look()));
    join_all(looked).await.into_iter().collect()
}
