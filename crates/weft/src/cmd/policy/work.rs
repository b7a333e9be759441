//! Acts on the files of a batch: several at the same time, no faster than the limits allow, and each only if it still is one of those.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use fuse::control::{self, Hint};
use fuse::hsm::HsmOrder;
use fuse::moves::Move;
use parking_lot::Mutex;
use proto::hsm::flag;

use super::collect::Candidate;
use super::place::{Place, is_gone};
use super::report::Trouble;
use super::rule::{Action, Rule};
use super::stop::Stop;
use super::there::Wanted;
use crate::control::describe;
use crate::lfs;
use crate::lfs::find::{Asked, Query, look_again};
use crate::lfs::hsm;
use crate::limit::Limiter;

/// Files that could not be dealt with and are named.
pub const NAMED_MAX: usize = 20;

/// What was done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Files that were moved or removed.
    pub done: AtomicU64,
    /// Files that lay where they were to be when their turn came.
    pub there: AtomicU64,
    /// Files that did not match any more, or were gone.
    pub skipped: AtomicU64,
    /// Files that could not be dealt with.
    pub failed: AtomicU64,
    /// Bytes of those that were moved or removed.
    pub bytes: AtomicU64,
}

/// What is to be done.
pub struct Job<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Which files it is about.
    pub query: &'a Query,
    /// Where they lie.
    pub place: &'a Place,
    /// Where they are to lie, for a rule that moves them.
    pub wanted: Option<&'a Wanted<'a>>,
    /// Whether it is to end.
    pub stop: &'a Stop,
}

/// How a job is carried out.
pub struct Work<'a> {
    job: Job<'a>,
    limiter: Mutex<Limiter>,
    began: Instant,
    /// Nothing more can be done.
    is_stuck: AtomicBool,
    /// What was done.
    pub counts: Counts,
    troubles: Mutex<Vec<Trouble>>,
}

/// What became of a file.
enum Outcome {
    Done,
    There,
    Skipped,
}

/// Why a file could not be dealt with.
struct Failed {
    why: String,
    /// The next ones could not, either.
    is_stuck: bool,
}

impl<'a> Work<'a> {
    /// Begins.
    pub fn new(job: Job<'a>) -> Work<'a> {
        let limits = &job.rule.limits;
        let bytes_per_second = limits.bytes_per_second.filter(|_| job.rule.action.copies());
        Work {
            limiter: Mutex::new(Limiter::new(bytes_per_second, limits.files_per_second)),
            job,
            began: Instant::now(),
            is_stuck: AtomicBool::new(false),
            counts: Counts::default(),
            troubles: Mutex::default(),
        }
    }

    /// Whether nothing more is to be begun.
    pub fn is_over(&self) -> bool {
        self.job.stop.is_told() || self.is_stuck()
    }

    /// Whether something failed that every other file would fail at.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// What could not be done: the first ones.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.lock().clone()
    }

    /// Acts on files until `goal` bytes are freed, if that is said. How many of them, from the first one, had their turn.
    pub fn act_on(&self, batch: &[Candidate], goal: Option<u64>) -> usize {
        let next = AtomicUsize::new(0);
        // What others are about to free counts, too: else each of them would take one file too many.
        let planned = AtomicU64::new(0);
        let is_enough = || goal.is_some_and(|goal| planned.load(Ordering::Relaxed) >= goal);
        std::thread::scope(|scope| {
            for number in 0..self.job.rule.limits.at_once.min(batch.len()) {
                let (next, planned, is_enough) = (&next, &planned, &is_enough);
                scope.spawn(move || {
                    let mut asked = self.job.place.asked(number + 1);
                    while !self.is_over() && !is_enough() {
                        let Some(candidate) = batch.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        planned.fetch_add(candidate.frees, Ordering::Relaxed);
                        if !self.turn(&mut asked, candidate) {
                            planned.fetch_sub(candidate.frees, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        next.into_inner().min(batch.len())
    }

    /// One file has its turn. Whether it was moved or removed.
    fn turn(&self, asked: &mut Asked, candidate: &Candidate) -> bool {
        let start = self.limiter.lock().take(self.began.elapsed(), candidate.bytes);
        self.job.stop.wait_until(self.began + start);
        if self.is_over() {
            return false;
        }
        let count = |of: &AtomicU64, number| of.fetch_add(number, Ordering::Relaxed);
        match self.act(asked, candidate) {
            Ok(Outcome::Done) => {
                count(&self.counts.done, 1);
                count(&self.counts.bytes, candidate.bytes);
                return true;
            }
            Ok(Outcome::There) => count(&self.counts.there, 1),
            Ok(Outcome::Skipped) => count(&self.counts.skipped, 1),
            Err(failed) => self.trouble(candidate, failed),
        };
        false
    }

    fn act(&self, asked: &mut Asked, candidate: &Candidate) -> Result<Outcome, Failed> {
        let (below, fid) = (&candidate.below[..], candidate.fid);
        let Some(named) = self.job.place.find(below, fid).map_err(|error| Failed::of(&error))? else {
            return Ok(Outcome::Skipped);
        };
        let found = look_again(asked, self.job.query, fid, (self.job.place.start(), below));
        let Some(found) = found.map_err(|error| Failed { why: error.sentence(), is_stuck: false })? else {
            return Ok(Outcome::Skipped);
        };
        match &self.job.rule.action {
            Action::Purge => match named.remove() {
                Ok(true) => Ok(Outcome::Done),
                Ok(false) => Ok(Outcome::Skipped),
                Err(error) => Err(Failed::of(&error)),
            },
            Action::Archive => archive(&named.path()),
            Action::Release => release(&named.path()),
            Action::Migrate { to, .. } => {
                let layout = found.entry.as_ref().and_then(|entry| entry.layout.as_ref());
                let wanted = self.job.wanted;
                if layout.zip(wanted).is_some_and(|(layout, wanted)| wanted.has(layout)) {
                    return Ok(Outcome::There);
                }
                let path = named.path();
                let wanted = Move { hint: Hint::clone(to), unless_used: false };
                match crate::control::migrate(&path, &wanted) {
                    Ok(()) => Ok(Outcome::Done),
                    Err(error) if is_gone(&error) && !names_no_pool(&path, to, &error) => {
                        Ok(Outcome::Skipped)
                    }
                    Err(error) => {
                        Err(Failed { why: lfs::why_refused(&path, to, &error), ..Failed::of(&error) })
                    }
                }
            }
        }
    }

    fn trouble(&self, candidate: &Candidate, failed: Failed) -> u64 {
        if failed.is_stuck {
            self.is_stuck.store(true, Ordering::Relaxed);
        }
        let mut troubles = self.troubles.lock();
        if troubles.len() < NAMED_MAX {
            let path = self.job.place.path(&candidate.below);
            troubles.push(Trouble { path: path.to_string_lossy().into_owned(), why: failed.why });
        }
        self.counts.failed.fetch_add(1, Ordering::Relaxed)
    }
}

fn archive(path: &Path) -> Result<Outcome, Failed> {
    let flags = flags(path)?;
    let is_current = flags & (flag::ARCHIVED | flag::DIRTY | flag::LOST) == flag::ARCHIVED;
    if is_current || flags & (flag::RELEASED | flag::NOARCHIVE) != 0 {
        return Ok(Outcome::There);
    }
    hsm::give(path, HsmOrder::Archive(0)).map_err(Failed::because)?;
    Ok(Outcome::Done)
}

fn release(path: &Path) -> Result<Outcome, Failed> {
    let flags = flags(path)?;
    if flags & flag::RELEASED != 0 {
        return Ok(Outcome::There);
    }
    if flags & (flag::ARCHIVED | flag::DIRTY | flag::LOST | flag::NORELEASE) != flag::ARCHIVED {
        return Ok(Outcome::Skipped);
    }
    hsm::give(path, HsmOrder::Release).map_err(Failed::because)?;
    Ok(Outcome::Done)
}

fn flags(path: &Path) -> Result<u32, Failed> {
    hsm::read(path).map(|file| file.flags).map_err(Failed::because)
}

/// Whether "there is no such thing" is about the pool, and not about the file.
fn names_no_pool(path: &Path, to: &control::Hint, error: &io::Error) -> bool {
    lfs::why_refused(path, to, error) != describe(error)
}

impl Failed {
    fn because(why: String) -> Failed {
        Failed { why, is_stuck: false }
    }

    fn of(error: &io::Error) -> Failed {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let is_full = matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem);
        Failed { why: describe(error), is_stuck: is_full || crate::mountpoint::is_dead(error) }
    }
}
