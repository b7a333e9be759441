//! `weft stage`: copies a tree or a list of files from one file system to another one, before and after a job.
//!
//! A plan is made and kept first. Each copy is written under a temporary name, made durable, and then renamed, so that nothing is ever
//! partial under its own name. The same command goes on where a former one was killed. It deletes nothing in the target.

mod copy;
mod plan;
mod progress;
mod scan;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::Serialize;

use crate::control::describe;
use crate::failure::{Failure, Outcome};
pub use copy::{How, copy_content, copy_file};
pub use progress::{bytes_text, time_text};
pub use tree::Directory;

use plan::{Entry, Purpose};
use scan::STATE;
use state::State;
use tree::Tree;
use work::{Done, Work};

/// Copy files into or out of a job's file system: durable, checked, and going on where it was killed when the same command comes again.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    direction: Direction,
}

#[derive(clap::Subcommand)]
enum Direction {
    /// Before a job: from the global file system to the local one
    In(Copy),
    /// After a job: from the local file system to the global one
    Out(Copy),
}

#[derive(clap::Args)]
struct Copy {
    /// A directory, whose content is copied; or a file
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The directory that it goes to; it is made if only its last part is missing
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Copy only what this file names: a file or directory below SOURCE on each line
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Where plan and records are kept: on a file system that outlives this machine [default: TARGET/.weft-stage]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Files that are copied at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    streams: u8,
    /// Do not read each copy again to compare its checksum: for targets that check all that they keep
    #[arg(long)]
    no_verify: bool,
    /// Print the result as an object of JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for a script.
#[derive(Serialize)]
struct Answer {
    direction: &'static str,
    source: PathBuf,
    target: PathBuf,
    resumed: bool,
    copied: u64,
    up_to_date: u64,
    failed: u64,
    left_out: usize,
    bytes: u64,
    leftovers_removed: u64,
    seconds: f64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.direction {
        Direction::In(copy) => stage("in", copy),
        Direction::Out(copy) => stage("out", copy),
    }
}

fn stage(direction: &'static str, arguments: &Copy) -> Outcome {
    let start = Instant::now();
    let (source, single) = source(arguments)?;
    let target = target(&arguments.target)?;
    if target.path.starts_with(&source.path) || source.path.starts_with(&target.path) {
        let message = "one of SOURCE and TARGET lies in the other one; name two trees apart";
        return Err(Failure::usage(message));
    }
    let list = match &arguments.list {
        None => single,
        Some(list) => Some(fs::read(list).map_err(|error| {
            Failure::new(format!(
                "{} cannot be read: {}; name a file with a name on each line",
                list.display(),
                describe(&error)
            ))
        })?),
    };
    let (state, place) = state(arguments, &target)?;
    let purpose = Purpose {
        source: source.path.clone(),
        target: target.path.clone(),
        list: proto::wire::header::crc32c(list.as_deref().unwrap_or_default()),
    };
    let Planned { entries, former, resumed, left_out, unseen } =
        plan_of(&state, &purpose, &source, list.as_deref())?;
    for path in left_out.iter().take(20) {
        err!(
            "{}: left out, it is no file, directory or symbolic link, or has a name as stagers give to copies that are not whole",
            path.display()
        );
    }
    let wanted: BTreeSet<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
    let is_whole_tree = list.is_none();
    let records = state.take_records(&purpose, |path| !is_whole_tree || wanted.contains(path))?;
    let root = rustix::process::geteuid().is_root();
    let work = Work {
        source: &source,
        target: &target,
        mark: &plan::mark(&purpose, &place),
        how: How { keeps_owner: root, reads_again: !arguments.no_verify },
        records: &records,
        state: &state,
    };
    let leftovers_removed = work.remove_leftovers(entries.iter().chain(&former))?;
    // Not before: the former plan says where temporary names may be left.
    state.keep_plan(&purpose, &entries)?;
    work.make_directories(&entries)?;
    let mut done = work.copy(&entries, usize::from(arguments.streams));
    let unkept = work.end_directories(&entries);
    done.counts.failed.fetch_add(unkept.len() as u64, Ordering::Relaxed);
    done.troubles.extend(unkept);
    done.counts.failed.fetch_add(unseen.len() as u64, Ordering::Relaxed);
    done.troubles.extend(unseen.into_iter().take(work::NAMED_MAX));
    state.end_plan()?;
    let answer = Answer {
        direction,
        source: purpose.source.clone(),
        target: purpose.target.clone(),
        resumed,
        copied: done.counts.copied.load(Ordering::Relaxed),
        up_to_date: done.counts.up_to_date.load(Ordering::Relaxed),
        failed: done.counts.failed.load(Ordering::Relaxed),
        left_out: left_out.len(),
        bytes: done.counts.bytes.load(Ordering::Relaxed),
        leftovers_removed,
        seconds: start.elapsed().as_secs_f64(),
    };
    tell(&answer, &done, arguments.json)
}

fn tell(answer: &Answer, done: &Done, json: bool) -> Outcome {
    if json {
        let text = serde_json::to_string(answer);
        out!("{}", text.map_err(|error| Failure::new(format!("the result cannot be written: {error}")))?);
    } else {
        let rate = answer.bytes as f64 / answer.seconds.max(0.001);
        out!(
            "{} copied ({}, {}/s), {} up to date",
            files(answer.copied),
            progress::bytes_text(answer.bytes),
            progress::bytes_text(rate as u64),
            answer.up_to_date
        );
    }
    for trouble in &done.troubles {
        err!("{trouble}");
    }
    if answer.failed == 0 {
        return Ok(0);
    }
    Err(Failure::new(format!(
        "{} not copied; mend what stands above and run the same command again",
        files(answer.failed)
    )))
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

struct Planned {
    entries: Vec<Entry>,
    /// Of a plan that was not ended.
    former: Vec<Entry>,
    resumed: bool,
    left_out: Vec<PathBuf>,
    unseen: Vec<String>,
}

/// A new plan. The source is looked at each time: it may have more than when a plan was made that was not ended. What that
/// one has copied has its records.
fn plan_of(state: &State, purpose: &Purpose, source: &Tree, list: Option<&[u8]>) -> Result<Planned, Failure> {
    let former = state.plan()?;
    let resumed = former.as_ref().is_some_and(|(of, _)| of == purpose);
    let mut found = scan::scan(source, list)?;
    let left_out = std::mem::take(&mut found.left_out);
    let unseen = std::mem::take(&mut found.unseen);
    let entries = found.into_entries();
    let former = former.map(|(_, entries)| entries).unwrap_or_default();
    Ok(Planned { entries, former, resumed, left_out, unseen })
}

/// The state, and where it is.
fn state(arguments: &Copy, target: &Tree) -> Result<(State, PathBuf), Failure> {
    match &arguments.state {
        None => Ok((State::open_in(target, STATE.as_ref())?, target.path.join(STATE))),
        // It is there when it is open, and its path has one form.
        Some(place) => Ok((State::open(place)?, place.canonicalize().unwrap_or_else(|_| place.clone()))),
    }
}

/// The tree that is copied from; and a list of one name, if SOURCE is a file.
fn source(arguments: &Copy) -> Result<(Tree, Option<Vec<u8>>), Failure> {
    use std::os::unix::ffi::OsStrExt;
    let failed = |error: io::Error| {
        Failure::new(format!(
            "{} cannot be read: {}; name a directory or a file",
            arguments.source.display(),
            describe(&error)
        ))
    };
    let path = arguments.source.canonicalize().map_err(failed)?;
    if path.is_dir() {
        return Ok((Tree::open(path).map_err(failed)?, None));
    }
    match (path.parent(), path.file_name(), &arguments.list) {
        (Some(parent), Some(name), None) => {
            let parent = Tree::open(parent.to_path_buf()).map_err(failed)?;
            Ok((parent, Some(name.as_bytes().to_vec())))
        }
        _ => Err(Failure::usage(format!("{} is no directory; a list names what is in one", path.display()))),
    }
}

/// The directory that is copied to, made if it is not there.
fn target(path: &Path) -> Result<Tree, Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "{} cannot be copied to: {}; make the directories above",
            path.display(),
            describe(&error)
        ))
    };
    match fs::create_dir(path) {
        Ok(()) => Directory::of(path).and_then(|(above, _)| above.sync()).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let path = path.canonicalize().map_err(failed)?;
    if path.is_dir() {
        Tree::open(path).map_err(failed)
    } else {
        Err(Failure::usage(format!("{} is no directory; name one", path.display())))
    }
}
