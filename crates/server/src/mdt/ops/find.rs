//! Find: a page of a search, as the name space was at one moment.
//!
//! A search walks down from its start on a snapshot of the store. Of each directory it looks at all entries first, then at what lies in
//! the directories among them. Where it is, the request says; so a page can be asked for again. The reading goes in small jobs
//! away from the threads that serve, a few at the same time, and no guard is held. What a job found is taken in the order of the walk; what
//! the page has no room for is found again for the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Expr, QueryError, Subject, Test, Verdict, last_part, path_below};
use proto::wire::messages::{
    ACCESS_EXECUTE, ACCESS_READ, FIND_ENTRY, FIND_TARGET, Find, FindPlace, Found, FoundPage,
};
use proto::wire::{Reply, Wire};
use proto::{Code, Cred, Fid, FileKind, Name, Transno};
use rt::wait::join_all;
use service::keys::behind;
use service::{Done, code_of};
use store::{Snapshot, Value};

use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, Outcome, access, keys};

/// Files that one page looks at, about: a request is done in a fraction of a second.
const VISITS_MAX: u64 = 200_000;
/// Bytes of a page at most, and at least whatever the client says.
const PAGE_BYTES_MAX: usize = 900 << 10;
const PAGE_BYTES_MIN: usize = 4 << 10;
/// Entries that one job looks at, about.
const JOB_ENTRIES: usize = 4096;
/// Jobs at the same time.
const JOBS_MAX: usize = 4;
/// Directories of one directory that are known ahead.
const AHEAD_MAX: usize = 256;
/// Entries that are passed in one step to find them.
const PASSED_MAX: usize = 16_384;
/// How deep below its start a search goes at most.
const DEPTH_MAX: usize = 8192;
/// Bytes of a path below the start at most.
const PATH_BYTES_MAX: usize = 64 << 10;
/// How far the FIDs of files lie apart at most that are read in a row, and how many there are at least.
const GAP_MAX: u32 = 4;
const RUN_MIN: usize = 32;
/// Names of a file that are looked at to see whether the caller can reach it.
const LINKS_MAX: usize = 100;

pub(in crate::mdt) async fn find(mdt: &Mdt, request: &Find) -> Outcome {
    let query = Expr::decode(request.query.clone()).map_err(|error| match error {
        QueryError::Unknown(_) => Code::NotSupported,
        QueryError::TooLarge | QueryError::Damaged => Code::Invalid,
    })?;
    if request.path.len() > PATH_BYTES_MAX {
        return Err(Code::NameTooLong.into());
    }
    let (number, snapshot) = mdt.searches.snapshot(request.snapshot).await?;
    let judges_layouts = query.has(Test::is_of_layout);
    let search = Arc::new(Search {
        snapshot,
        query,
        judges_layouts,
        request: request.clone(),
        mdt: mdt.store.label().target.index,
        bytes_max: (request.bytes_max as usize).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX),
    });
    let page = FoundPage { snapshot: number, found: Vec::new(), visited: 0, hidden: Vec::new(), next: None };
    let walk = Walk { search, levels: Vec::new(), page, bytes: 0, jobs: JOBS_MAX };
    let mut walk = mdt.rt.offload(move || walk.begun()).await?;
    while !walk.is_done() {
        walk = walk.step(mdt).await?;
    }
    walk.page.next = walk.place();
    if walk.page.next.is_none() {
        mdt.searches.end(number);
    }
    Ok(Done::unchanged(Reply::Find(walk.page)))
}

/// What all jobs of a page know.
struct Search {
    snapshot: Arc<Snapshot>,
    query: Expr,
    request: Find,
    mdt: u32,
    bytes_max: usize,
    /// Whether something is asked of layouts.
    judges_layouts: bool,
}

/// Where the walk is in one directory.
struct Level {
    dir: Fid,
    /// Its path below the start.
    below: Vec<u8>,
    /// Whether it has directories that are looked into, so that its entries are passed once more.
    has_dirs: bool,
    descends: bool,
    /// The last name that is done.
    after: Option<Name>,
    /// The first key that is not, while it looks at entries.
    from: Vec<u8>,
    /// How much of the range of hashes a job takes; 0 as long as that is not known.
    stride: u64,
    /// The directories that come next, and whether there are no others.
    ahead: VecDeque<(Name, Fid)>,
    ahead_is_all: bool,
}

struct Walk {
    search: Arc<Search>,
    /// From the start down.
    levels: Vec<Level>,
    page: FoundPage,
    bytes: usize,
    /// Directories that are looked at together.
    jobs: usize,
}

/// A part of a directory that is looked at away from the threads that serve.
struct Job {
    search: Arc<Search>,
    dir: Fid,
    below: Vec<u8>,
    /// Names below the start of what is in it.
    depth: u32,
    from: Vec<u8>,
    until: Vec<u8>,
    count_max: usize,
    /// The walk comes into the directory with it: whether that is allowed is to be seen.
    enters: bool,
}

/// What a job gives.
struct Looked {
    /// Each with how many entries were looked at up to it.
    found: Vec<(u64, Found)>,
    visited: u64,
    first_hash: u64,
    last: Option<Name>,
    /// The first key that it has not looked at.
    from: Vec<u8>,
    /// All of its range was looked at.
    is_all: bool,
    has_dirs: bool,
    is_hidden: bool,
}

impl Walk {
    fn is_done(&self) -> bool {
        self.levels.is_empty() || self.is_full()
    }

    fn is_full(&self) -> bool {
        self.page.visited >= VISITS_MAX || self.bytes >= self.search.bytes_max
    }

    /// Where the next page begins.
    fn place(&self) -> Option<FindPlace> {
        let level = self.levels.last()?;
        Some(FindPlace { dir: level.dir, descends: level.descends, name: level.after.clone() })
    }

    /// Goes to where the request says.
    fn begun(mut self) -> Result<Walk, Code> {
        let search = self.search.clone();
        let start = search.inode(search.request.start)?.ok_or(Code::Stale)?;
        search.may_reach(&start)?;
        match &search.request.behind {
            Some(place) => self.go_to(place)?,
            None => self.begin_at(&start)?,
        }
        Ok(self)
    }

    fn begin_at(&mut self, start: &Inode) -> Result<(), Code> {
        let search = self.search.clone();
        self.page.visited = 1;
        if search.request.depth_min == 0 {
            let path = &search.request.path;
            let subject = search.subject(last_part(path), path, start.kind());
            let early = search.query.judge(&subject);
            let found = search.judge(subject, early, start.fid, &[], Bytes::new)?;
            found.into_iter().for_each(|found| self.take(found));
        }
        if !start.is_dir() || search.request.depth_max == 0 {
            return Ok(());
        }
        match search.may_read(start) {
            Err(Code::AccessDenied) => self.page.hidden.push(Bytes::new()),
            other => {
                other?;
                let has_dirs = search.looks_below(start, 1);
                self.levels.push(Level::new(start.fid, Vec::new(), has_dirs));
            }
        }
        Ok(())
    }

    /// Goes down from the start to where the last page ended.
    fn go_to(&mut self, place: &FindPlace) -> Result<(), Code> {
        let search = self.search.clone();
        let mut dirs = vec![(place.dir, place.name.clone())];
        while let Some((at, _)) = dirs.last().filter(|(at, _)| *at != search.request.start) {
            let (above, name) = search.links(*at, 1)?.pop().ok_or(Code::Stale)?;
            if dirs.len() > DEPTH_MAX {
                return Err(Code::NameTooLong);
            }
            dirs.push((above, Some(name)));
        }
        let mut below = Vec::new();
        while let Some((fid, name)) = dirs.pop() {
            let dir = search.inode(fid)?.filter(Inode::is_dir).ok_or(Code::Stale)?;
            search.may_read(&dir)?;
            let has_dirs = search.looks_below(&dir, self.levels.len() as u32 + 1);
            let mut level = Level::new(fid, below.clone(), has_dirs);
            if let Some(name) = &name {
                level.from = after(&keys::entry(fid, name));
                below = path_below_start(&below, name.as_bytes());
            }
            level.descends = place.descends || !dirs.is_empty();
            level.after = name;
            self.levels.push(level);
        }
        Ok(())
    }

    fn take(&mut self, found: Found) {
        self.bytes += bytes_of(&found);
        self.page.found.push(found);
    }

    /// One step: a few jobs, and what comes of them.
    async fn step(mut self, mdt: &Mdt) -> Result<Walk, Code> {
        let depth = self.levels.len() as u32;
        let Some(level) = self.levels.last() else { return Ok(self) };
        if !level.descends {
            let jobs = level.ranges(&self.search, depth);
            let looked = run_all(mdt, jobs).await?;
            self.take_entries(looked);
            return Ok(self);
        }
        if level.ahead.is_empty() && !level.ahead_is_all {
            return mdt.rt.offload(move || self.looked_ahead()).await;
        }
        let next = level.ahead.iter().take(self.jobs);
        let jobs = next.map(|(name, fid)| Job {
            search: self.search.clone(),
            dir: *fid,
            below: path_below_start(&level.below, name.as_bytes()),
            depth: depth + 1,
            from: keys::entries_from(*fid, 0),
            until: keys::entries_end(*fid),
            count_max: JOB_ENTRIES,
            enters: true,
        });
        let jobs: Vec<Job> = jobs.collect();
        if jobs.is_empty() {
            self.levels.pop();
            return Ok(self);
        }
        let looked = run_all(mdt, jobs).await?;
        self.take_dirs(looked);
        Ok(self)
    }

    /// Takes what was found among the entries of the directory, in order, as far as there is room.
    fn take_entries(&mut self, looked: Vec<Looked>) {
        for part in looked {
            let Some(level) = self.levels.last_mut() else { return };
            let end = keys::entries_end(level.dir);
            if let Some(last) = part.last.as_ref().filter(|_| part.visited > 1) {
                let width = last.hash().saturating_sub(part.first_hash);
                level.stride = (width / part.visited).saturating_mul(JOB_ENTRIES as u64).max(1);
            }
            let (last, from, is_all) = (part.last.clone(), part.from.clone(), part.is_all);
            if !self.take_found(part) {
                return;
            }
            let Some(level) = self.levels.last_mut() else { return };
            level.after = last.or(level.after.take());
            level.from = from;
            if is_all && level.from == end {
                (level.descends, level.after) = (true, None);
                if !level.has_dirs {
                    self.levels.pop();
                }
                return;
            }
            if !is_all {
                // There was more than expected: what comes behind it was not looked at in order.
                return;
            }
        }
    }

    /// Takes what a job has found as far as there is room; whether that is all.
    fn take_found(&mut self, looked: Looked) -> bool {
        let before = self.page.visited;
        for (seen, found) in looked.found {
            if self.is_full() {
                return false;
            }
            let name = Name::new(Bytes::copy_from_slice(last_part(&found.path))).ok();
            self.take(found);
            self.page.visited = before + seen;
            if let Some(level) = self.levels.last_mut() {
                level.after = name;
            }
        }
        self.page.visited = before + looked.visited;
        true
    }

    /// Takes what was found in the directories that come next, in order, until one of them has more.
    fn take_dirs(&mut self, looked: Vec<Looked>) {
        let depth = self.levels.len();
        for (done, part) in looked.into_iter().enumerate() {
            if self.is_full() {
                return;
            }
            let Some(level) = self.levels.last_mut() else { return };
            let Some((name, dir)) = level.ahead.pop_front() else { return };
            let below = path_below_start(&level.below, name.as_bytes());
            level.after = Some(name);
            if part.is_hidden {
                self.bytes += below.len();
                self.page.hidden.push(below.into());
                continue;
            }
            self.levels.push(Level::new(dir, below, part.has_dirs));
            self.take_entries(vec![part]);
            if self.levels.len() > depth {
                // It goes on in there. What was looked at behind it was for nothing, so less is looked at together.
                self.jobs = done.max(1);
                return;
            }
        }
        self.jobs = (2 * self.jobs).min(JOBS_MAX);
    }

    /// Finds the directories among the entries of the directory that come next.
    fn looked_ahead(mut self) -> Result<Walk, Code> {
        let Some(level) = self.levels.last_mut() else { return Ok(self) };
        let from = match &level.after {
            Some(name) => after(&keys::entry(level.dir, name)),
            None => keys::entries_from(level.dir, 0),
        };
        let (mut passed, mut last, mut is_damaged) = (0, None, false);
        let ahead = &mut level.ahead;
        let scan = self.search.snapshot.scan(&from, &keys::entries_end(level.dir), &mut |key, value, _| {
            passed += 1;
            let (name, entry) = (
                || name_in(key).and_then(|name| Name::new(Bytes::copy_from_slice(name)).ok()),
                keys::entry_of(value),
            );
            match entry {
                Some((fid, FileKind::Dir)) => match name() {
                    Some(name) => ahead.push_back((name, fid)),
                    None => is_damaged = true,
                },
                Some(_) => {}
                None => is_damaged = true,
            }
            let is_enough = ahead.len() >= AHEAD_MAX || passed >= PASSED_MAX;
            last = if is_enough { name() } else { None };
            !is_enough && !is_damaged
        });
        scan.map_err(|error| code_of(&error))?;
        if is_damaged {
            return Err(Code::Corrupt);
        }
        match last {
            None => level.ahead_is_all = true,
            // None of those that were passed was one.
            Some(last) if level.ahead.is_empty() => level.after = Some(last),
            Some(_) => {}
        }
        Ok(self)
    }
}

impl Level {
    fn new(dir: Fid, below: Vec<u8>, has_dirs: bool) -> Level {
        Level {
            dir,
            below,
            has_dirs,
            descends: false,
            after: None,
            from: keys::entries_from(dir, 0),
            stride: 0,
            ahead: VecDeque::new(),
            ahead_is_all: false,
        }
    }

    /// The next parts of its entries. Hashes are spread evenly, so each is about as large.
    fn ranges(&self, search: &Arc<Search>, depth: u32) -> Vec<Job> {
        let end = keys::entries_end(self.dir);
        let count = if self.stride == 0 { 1 } else { JOBS_MAX };
        let mut hash = keys::entry_hash(&self.from).unwrap_or(u64::MAX);
        let (mut jobs, mut from) = (Vec::new(), self.from.clone());
        while jobs.len() < count && from < end {
            hash = hash.saturating_add(self.stride);
            // Hashes have 63 bits.
            let is_last = self.stride == 0 || hash > u64::MAX >> 1;
            let until = if is_last { end.clone() } else { keys::entries_from(self.dir, hash) };
            jobs.push(Job {
                search: search.clone(),
                dir: self.dir,
                below: self.below.clone(),
                depth,
                from: std::mem::replace(&mut from, until.clone()),
                until,
                count_max: if self.stride == 0 { JOB_ENTRIES } else { 4 * JOB_ENTRIES },
                enters: false,
            });
        }
        jobs
    }
}

impl Search {
    /// The inode, as it was.
    fn inode(&self, fid: Fid) -> Result<Option<Inode>, Code> {
        let value = self.snapshot.get(&keys::inode(fid)).map_err(|error| code_of(&error))?;
        let Some(value) = value else { return Ok(None) };
        Inode::decode(fid, &value.bytes, value.version.0).map(Some).ok_or(Code::Corrupt)
    }

    /// Names of a file, with their directories.
    fn links(&self, fid: Fid, count_max: usize) -> Result<Vec<(Fid, Name)>, Code> {
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
    fn may_read(&self, dir: &Inode) -> Result<(), Code> {
        access::may(self.cred(), dir, ACCESS_READ | ACCESS_EXECUTE)
    }

    /// Whether the caller could walk from the root to `start`.
    fn may_reach(&self, start: &Inode) -> Result<(), Code> {
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
    fn looks_below(&self, dir: &Inode, depth: u32) -> bool {
        dir.nlink != 2 && depth < self.request.depth_max && (depth as usize) < DEPTH_MAX
    }

    fn subject<'a>(&self, name: &'a [u8], path: &'a [u8], kind: FileKind) -> Subject<'a> {
        Subject { name, path, kind, mdt: self.mdt, inode: None, is_bare: None }
    }

    /// The records of those files whose FIDs lie close together: many in a row are read in a fraction of the time that each takes by its key.
    /// In the order of the FIDs.
    fn neighbours(&self, candidates: &[Candidate]) -> Result<Vec<(Fid, Value)>, Code> {
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
    fn judge(
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

/// An entry that may be one of those that are searched.
struct Candidate {
    seen: u64,
    name: Bytes,
    fid: Fid,
    kind: FileKind,
    early: Verdict,
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
async fn run_all(mdt: &Mdt, jobs: Vec<Job>) -> Result<Vec<Looked>, Code> {
    let looked = jobs.into_iter().map(|job| mdt.rt.offload(move || job.look()));
    join_all(looked).await.into_iter().collect()
}

/// What it takes of a page.
fn bytes_of(found: &Found) -> usize {
    let mut encoded = Vec::with_capacity(128);
    found.put(&mut encoded);
    encoded.len()
}

/// The first key behind `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The name in the key of an entry.
fn name_in(key: &[u8]) -> Option<&[u8]> {
    key.get(keys::ENTRY_NAME_AT..).filter(|name| !name.is_empty())
}

fn path_below_start(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proto::find::{Glob, Span};
    use proto::wire::messages::OPEN_WRITE;

    use super::*;
    use crate::mdt::testing::{Client, World, user};

    fn find(start: Fid, query: Expr) -> Find {
        Find {
            start,
            path: Bytes::from_static(b"/m"),
            query: query.encode(),
            depth_min: 0,
            depth_max: u32::MAX,
            wants: 0,
            bytes_max: 0,
            snapshot: 0,
            behind: None,
            cred: Cred::root(),
        }
    }

    fn all() -> Expr {
        Expr::All(vec![])
    }

    fn named(pattern: &'static str) -> Expr {
        Expr::Test(Test::Name(Glob { pattern: Bytes::from(pattern), ignores_case: false }))
    }

    fn text(path: &Bytes) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    /// Everything that a search finds, page by page; between the pages `meanwhile` happens.
    fn search(client: &Client<'_>, find: &Find, meanwhile: impl Fn(usize)) -> Result<FoundPage, Code> {
        let mut find = find.clone();
        let mut sum = client.call(find.clone())?;
        for round in 0.. {
            let Some(next) = sum.next.take() else { break };
            meanwhile(round);
            (find.snapshot, find.behind) = (sum.snapshot, Some(next));
            let page = client.call(find.clone())?;
            sum.found.extend(page.found);
            sum.hidden.extend(page.hidden);
            (sum.visited, sum.next) = (sum.visited + page.visited, page.next);
        }
        Ok(sum)
    }

    fn paths(page: &FoundPage) -> Vec<String> {
        let mut paths: Vec<String> = page.found.iter().map(|found| text(&found.path)).collect();
        paths.sort();
        paths
    }

    fn check(client: &Client<'_>, find: &Find, expected: &[&str]) {
        let page = search(client, find, |_| ()).expect("it is found");
        assert_eq!(paths(&page), expected);
    }

    /// A tree of 3 directories of 400 files each, one of them below another one, and a deep chain; all paths.
    fn tree(client: &Client<'_>) -> BTreeSet<String> {
        let mut all = BTreeSet::from([String::new()]);
        let mut fill = |dir: Fid, below: &str| {
            all.insert(below.to_owned());
            for n in 0..400 {
                client.file(dir, &format!("file{n:03}"));
                all.insert(format!("{below}/file{n:03}"));
            }
        };
        let a = client.mkdir(Fid::ROOT, "a");
        fill(a, "a");
        fill(client.mkdir(a, "inner"), "a/inner");
        fill(client.mkdir(Fid::ROOT, "b"), "b");
        let (mut dir, mut below) = (Fid::ROOT, String::new());
        for n in 0..30 {
            dir = client.mkdir(dir, &format!("deep{n}"));
            below = if below.is_empty() { "deep0".to_owned() } else { format!("{below}/deep{n}") };
            all.insert(below.clone());
        }
        all
    }

    #[test]
    fn all_of_a_tree_is_found_once_page_by_page() {
        let world = World::new();
        let client = world.client(1);
        let expected = tree(&client);
        let page = search(&client, &find(Fid::ROOT, all()), |_| ()).expect("it is found");
        assert_eq!(page.visited, expected.len() as u64);
        assert_eq!(paths(&page), expected.iter().cloned().collect::<Vec<_>>());
        assert_eq!(world.target.handler().searches.count(), 0, "it has come to its end");
        let with_entries = Find { wants: FIND_ENTRY, ..find(Fid::ROOT, all()) };
        let page = search(&client, &with_entries, |_| ()).expect("it is found");
        assert_eq!(page.found.len(), expected.len());
        assert!(
            page.found.iter().all(|found| found.entry.as_ref().is_some_and(|of| of.attr.fid == found.fid))
        );
        let first = client.call(find(Fid::ROOT, all())).expect("a page");
        assert!(first.next.is_some() && first.found.len() < 300, "{} in a page", first.found.len());
        assert_eq!(world.target.handler().searches.count(), 1);
    }

    /// Whatever happens between its pages, a search finds what there was when it began.
    #[test]
    fn a_search_sees_one_moment() {
        let world = World::new();
        let client = world.client(1);
        let expected = tree(&client);
        let b = client.lookup(Fid::ROOT, "b").expect("it was made").fid;
        let a = client.lookup(Fid::ROOT, "a").expect("it was made").fid;
        let meanwhile = |round: usize| {
            for n in 0..20 {
                let n = (round * 20 + n) % 400;
                let _ = client.unlink(b, &format!("file{n:03}"));
                client.file(a, &format!("new{round}-{n}"));
            }
            if round == 1 {
                client.rename((Fid::ROOT, "b"), (a, "moved"), 0, &Cred::root()).expect("a directory moves");
            }
            world.store.forget_known();
        };
        let page = search(&client, &find(Fid::ROOT, all()), meanwhile).expect("it is found");
        assert_eq!(paths(&page), expected.into_iter().collect::<Vec<_>>());
        let now = search(&client, &find(Fid::ROOT, named("new*")), |_| ()).expect("it is found");
        assert!(now.found.len() >= 40, "the next search sees what was made meanwhile");
    }

    #[test]
    fn depths_and_starts() {
        let world = World::new();
        let client = world.client(1);
        let a = client.mkdir(Fid::ROOT, "a");
        let b = client.mkdir(a, "b");
        let file = client.file(b, "c");
        let limited = |start, depth_min, depth_max| Find { depth_min, depth_max, ..find(start, all()) };
        check(&client, &limited(Fid::ROOT, 0, 0), &[""]);
        check(&client, &limited(Fid::ROOT, 0, 1), &["", "a"]);
        check(&client, &limited(Fid::ROOT, 2, 9), &["a/b", "a/b/c"]);
        check(&client, &limited(a, 1, 1), &["b"]);
        check(&client, &find(file, all()), &[""]);
        check(&client, &find(Fid::ROOT, named("m")), &[""]);
        check(&client, &find(Fid::ROOT, Expr::Test(Test::Empty)), &["a/b/c"]);
        client.unlink(b, "c").expect("it was made");
        check(&client, &find(Fid::ROOT, Expr::Test(Test::Empty)), &["a/b"]);
        let gone = client.call(find(file, all()));
        assert_eq!(gone, Err(Code::Stale));
    }

    #[test]
    fn what_the_caller_may_not_see_is_not_told() {
        let world = World::new();
        let client = world.client(1);
        let root = Cred::root();
        let closed = client.make(Fid::ROOT, "closed", 0o040_700, &root).expect("root may").fid;
        let inner = client.make(closed, "inner", 0o040_755, &root).expect("root may").fid;
        let file = client.make(inner, "secret", 0o100_644, &root).expect("root may").fid;
        client.make(Fid::ROOT, "open", 0o100_600, &root).expect("root may");
        let as_user = |start| Find { cred: user(5), ..find(start, all()) };
        let page = search(&client, &as_user(Fid::ROOT), |_| ()).expect("the root is for all");
        assert_eq!(paths(&page), ["", "closed", "open"]);
        assert_eq!(page.hidden, [Bytes::from_static(b"closed")]);
        for start in [inner, file] {
            assert_eq!(client.call(as_user(start)), Err(Code::AccessDenied), "it lies below what is closed");
        }
        let page = search(&client, &as_user(closed), |_| ()).expect("its name is for all");
        assert_eq!((paths(&page), page.hidden), (vec![String::new()], vec![Bytes::new()]));
        let without_groups = Cred { groups: None, ..user(5) };
        client.chmod(closed, 0o750);
        assert_eq!(client.call(Find { cred: without_groups, ..as_user(Fid::ROOT) }), Err(Code::NeedGroups));
        // A place that nobody gave out is no way around.
        let behind = Some(FindPlace { dir: inner, descends: false, name: None });
        assert_eq!(client.call(Find { behind, ..as_user(Fid::ROOT) }), Err(Code::AccessDenied));
    }

    #[test]
    fn what_somebody_writes_is_told_apart() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        client.file(Fid::ROOT, "other");
        let sized = |size| Expr::Test(Test::Size(Span { min: size, max: size }));
        let handle = client.open(file, OPEN_WRITE, &Cred::root()).expect("a file").handle;
        let page = client.call(find(Fid::ROOT, sized(9))).expect("it is found");
        let open: Vec<_> = page.found.iter().map(|found| (text(&found.path), found.open)).collect();
        assert_eq!(open, [("f".to_owned(), true)]);
        assert!(page.found[0].entry.as_ref().is_some_and(|entry| entry.layout.is_some()));
        client.close(file, handle, true, Some(9));
        let page = client.call(find(Fid::ROOT, sized(9))).expect("it is found");
        assert_eq!(page.found.iter().map(|found| found.open).collect::<Vec<_>>(), [false]);
        assert_eq!(page.found[0].entry, None, "nobody has asked for it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let world = World::new();
        let client = world.client(1);
        let asked =
            |query: &'static [u8]| Find { query: Bytes::from_static(query), ..find(Fid::ROOT, all()) };
        assert_eq!(client.call(asked(&[99])), Err(Code::NotSupported));
        assert_eq!(client.call(asked(&[])), Err(Code::Invalid));
        assert_eq!(client.call(Find { snapshot: 7, ..find(Fid::ROOT, all()) }), Err(Code::Gone));
        let file = client.file(Fid::ROOT, "f");
        let behind = |dir| Some(FindPlace { dir, descends: false, name: None });
        assert_eq!(client.call(Find { behind: behind(file), ..find(Fid::ROOT, all()) }), Err(Code::Stale));
        let a = client.mkdir(Fid::ROOT, "a");
        let elsewhere = Find { behind: behind(Fid::ROOT), ..find(a, all()) };
        assert_eq!(client.call(elsewhere), Err(Code::Stale));
    }
}
