//! `weft rankfs gc`: removes the images, mounts and loop devices that belong to no living job.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use super::attached;
use super::image::{self, Access, SUFFIX, plain};
use super::json;
use super::record::{Node, Record, own_ids};
use crate::control::describe;
use crate::failure::{Failure, Outcome};

/// How long the kernel may take to let an image go after its last mount has gone.
const RELEASE_WAIT: Duration = Duration::from_secs(10);

/// Remove the images of jobs that have ended, with what is mounted of them here. Nothing of a living job is touched.
/// Exit status 1: something is in use on another machine.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the images are
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// A job that has ended, for an epilog
    #[arg(long, value_name = "JOB")]
    ended: Vec<String>,
    /// Jobs that live, a job on each line; all others have ended. For example from "squeue -h -o %A"
    #[arg(long, value_name = "FILE")]
    living: Option<PathBuf>,
    /// Only images that were made on this machine, for an epilog that runs on each machine of a job
    #[arg(long, conflicts_with = "other_machines")]
    here: bool,
    /// Also images of other machines that nobody is seen to use. Give it only if nothing on those machines uses them any more: not every
    /// file system shows a lock of another machine
    #[arg(long)]
    other_machines: bool,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print an object of JSON
    #[arg(long)]
    json: bool,
}

/// What is known of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// It runs, or waits.
    Lives,
    /// It has ended.
    Ended,
    /// Nobody says.
    Unknown,
}

/// What is known of an image besides its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Of the job in the record.
    pub job: Job,
    /// Made on this machine.
    pub is_of_this_node: bool,
    /// Made since this machine came up.
    pub is_of_this_boot: bool,
    /// Whether the process that it ends with is there, if that can be seen: it is on this machine, and in no other container.
    pub owner_lives: Option<bool>,
    /// Somebody has its lock.
    pub is_locked: bool,
    /// Nothing was written to it.
    pub is_empty: bool,
    /// The user says that other machines use nothing that is not seen to be in use.
    pub others_are_over: bool,
}

impl Facts {
    /// A free lock proves nothing: it may count on one machine only, and the image is another one's.
    fn is_out_of_sight(&self) -> bool {
        !self.is_of_this_node && !self.others_are_over
    }
}

const OUT_OF_SIGHT: &str = "it was made on another machine, which may use it without a lock that is seen here; run gc there, or give --other-machines if nothing there uses it";

/// What is to be done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It stays, and why.
    Keep(&'static str),
    /// It belongs to no living job.
    Remove,
}

/// Decides about one image.
pub fn decide(record: Option<&Record>, facts: Facts) -> Decision {
    use Decision::{Keep, Remove};
    let Some(record) = record else {
        return match facts {
            Facts { is_locked: true, .. } => Keep("it is being made"),
            // Whoever made it was killed before it had anything in it.
            Facts { is_empty: true, .. } => Remove,
            Facts { .. } => Keep("it says of no job that it is its"),
        };
    };
    if record.is_partial {
        return match facts {
            Facts { is_locked: true, .. } => Keep("it is being imported"),
            facts if facts.is_out_of_sight() => Keep(OUT_OF_SIGHT),
            Facts { .. } => Remove,
        };
    }
    if record.kept {
        return Keep("it is to be kept");
    }
    match (record.job.is_some(), facts.job) {
        (true, Job::Ended) => return Remove,
        (true, Job::Lives) => return Keep("its job lives"),
        _ => {}
    }
    match record.owner {
        None if record.job.is_some() => Keep("nobody says whether its job lives; use --living or --ended"),
        None => Keep("it belongs to no job"),
        Some(_) if facts.is_of_this_node && !facts.is_of_this_boot => Remove,
        Some(_) if facts.owner_lives == Some(true) => Keep("its process lives"),
        Some(_) if facts.owner_lives == Some(false) => Remove,
        Some(_) if facts.is_of_this_node && facts.is_locked => Keep("it is in use in another container"),
        // The lock of a process, and of a machine that is gone, ends: with the process, or with the lease.
        Some(_) if facts.is_locked => Keep("it is in use on another machine"),
        Some(_) if facts.is_out_of_sight() => Keep(OUT_OF_SIGHT),
        Some(_) => Remove,
    }
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(serialize_with = "json::paths")]
    removed: Vec<PathBuf>,
    kept: Vec<Kept>,
    failed: Vec<Kept>,
}

#[derive(Debug, Serialize)]
struct Kept {
    #[serde(serialize_with = "json::path")]
    image: PathBuf,
    why: String,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let living = arguments.living.as_deref().map(read_living).transpose()?;
    let job = |job: &str| {
        if arguments.ended.iter().any(|ended| ended == job) {
            return Job::Ended;
        }
        match &living {
            Some(living) if living.contains(job) => Job::Lives,
            Some(_) => Job::Ended,
            None => Job::Unknown,
        }
    };
    let node = Node::this();
    let mut answer = Answer::default();
    for image in images(&arguments.directory)? {
        if arguments.here && Record::of(&image).ok().flatten().is_some_and(|record| record.node != node.name)
        {
            continue;
        }
        match look(&image, &node, arguments.other_machines, &job) {
            Ok(None) => {}
            Ok(Some(Decision::Keep(why))) => answer.kept.push(Kept { image, why: why.to_owned() }),
            Ok(Some(Decision::Remove)) if arguments.dry_run => answer.removed.push(image),
            Ok(Some(Decision::Remove)) => match remove(&image) {
                Ok(()) => answer.removed.push(image),
                Err(failure) => answer.failed.push(Kept { image, why: failure.message }),
            },
            Err(error) => answer.failed.push(Kept { image, why: describe(&error) }),
        }
    }
    tell(arguments, &answer)
}

fn tell(arguments: &Arguments, answer: &Answer) -> Outcome {
    if arguments.json {
        let text = serde_json::to_string(answer);
        out!("{}", text.map_err(|error| Failure::new(format!("the result cannot be written: {error}")))?);
    } else {
        let removed = if arguments.dry_run { "would be removed" } else { "removed" };
        for image in &answer.removed {
            out!("{}: {removed}", plain(&image.to_string_lossy()));
        }
        for Kept { image, why } in &answer.kept {
            out!("{}: stays, {why}", plain(&image.to_string_lossy()));
        }
    }
    for Kept { image, why } in &answer.failed {
        err!("{}: not removed: {why}", plain(&image.to_string_lossy()));
    }
    Ok(u8::from(!answer.failed.is_empty()))
}

fn read_living(path: &Path) -> Result<BTreeSet<String>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("{} cannot be read: {}; nothing was removed", path.display(), describe(&error)))
    })?;
    Ok(text.lines().map(str::trim).filter(|job| !job.is_empty()).map(str::to_owned).collect())
}

/// The images of a directory.
pub fn images(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "{} cannot be read: {}; name the directory of the images",
            directory.display(),
            describe(&error)
        ))
    };
    let directory = directory.canonicalize().map_err(failed)?;
    let own = own_ids().0;
    let mut images = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A pipe of that name would hold up whoever opens it, and a link leads anywhere.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        // Users see their own.
        let is_own = own == 0 || entry.metadata().is_ok_and(|status| status.uid() == own);
        if is_file && is_own && entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            images.push(entry.path());
        }
    }
    images.sort();
    Ok(images)
}

/// What is to be done with an image; none if it is gone.
fn look(
    path: &Path,
    node: &Node,
    others_are_over: bool,
    job: &impl Fn(&str) -> Job,
) -> io::Result<Option<Decision>> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    // The record is read under the lock, if it is free: between its making and its record an image has one.
    let is_locked = !image::lock_within(&file, Access::Shared, Duration::ZERO)?;
    let record = Record::of_file(&file)?;
    let record = record.as_ref();
    let is_of_this_node = record.is_some_and(|record| node.has_made(record));
    let is_of_this_boot = is_of_this_node && record.is_some_and(|record| record.boot == node.boot);
    let facts = Facts {
        job: record.and_then(|record| record.job.as_deref()).map_or(Job::Unknown, job),
        is_of_this_node,
        is_of_this_boot,
        owner_lives: record
            .filter(|_| is_of_this_boot)
            .and_then(|record| record.owner)
            .and_then(super::record::Owner::lives),
        is_locked,
        is_empty: file.metadata()?.len() == 0,
        others_are_over,
    };
    Ok(Some(decide(record, facts)))
}

/// Takes an image out of use on this machine, and removes it.
fn remove(path: &Path) -> Result<(), Failure> {
    let record = Record::of(path).ok().flatten();
    let devices = attached::devices_of(path);
    for (source, at) in attached::mounts_here().into_iter().rev() {
        if devices.contains(&source) {
            unmount(&at, UnmountFlags::NOFOLLOW).map_err(|error| match error {
                Errno::BUSY => Failure::new(format!(
                    "processes use it at {0}; \"fuser -vm {0}\" names them: end them and run gc again",
                    at.display()
                )),
                error => image::failed(&at, "cannot be unmounted", &error.into()),
            })?;
        }
    }
    // What `weft rankfs run` has started has a table of mounts of its own, and the image ends with it.
    let users = if devices.is_empty() { Vec::new() } else { attached::private_users(&devices) };
    if record.as_ref().is_some_and(|record| record.owner.is_some()) {
        for pid in &users {
            kill(*pid);
        }
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let file = match file {
        // Another one removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| image::failed(path, "cannot be opened", &error))?,
    };
    let is_ours = image::lock_within(&file, Access::Alone, RELEASE_WAIT);
    if !is_ours.map_err(|error| image::failed(path, "cannot be locked", &error))? {
        let where_to = match (devices.is_empty(), record) {
            (true, Some(record)) => {
                format!("it is in use on another machine ({}); run gc there", record.whose())
            }
            (true, None) => "it is in use on another machine; run gc there".to_owned(),
            (false, _) => format!(
                "processes of this machine use it still; end them (numbers {users:?}) and run gc again"
            ),
        };
        return Err(Failure::new(where_to));
    }
    match fs::symlink_metadata(path) {
        Ok(status) if image::is_same(&status, &file) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(image::failed(path, "cannot be removed", &error))
            }
            _ => Ok(()),
        },
        // Another one removed it, and its name may be that of a new image.
        _ => Ok(()),
    }
}

/// Ends a process that is seen to use an image of a job that has ended, and waits for its end.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // One that has ended meanwhile is what is wanted.
    let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    if pidfd_send_signal(&process, Signal::KILL).is_err() {
        return;
    }
    let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    let wait = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
    let _ = rustix::event::poll(&mut ended, Some(&wait));
}

#[cfg(test)]
mod tests {
    use super::super::record::Owner;
    use super::*;

    const HERE: Facts = Facts {
        job: Job::Unknown,
        is_of_this_node: true,
        is_of_this_boot: true,
        owner_lives: Some(true),
        is_locked: true,
        is_empty: false,
        others_are_over: false,
    };
    const AWAY: Facts = Facts { is_of_this_node: false, is_of_this_boot: false, owner_lives: None, ..HERE };
    const OWNER: Option<Owner> = Some(Owner { pid: 1, started: 1, namespace: 1 });

    fn check(job: Option<&str>, owner: Option<Owner>, facts: Facts, removed: bool) {
        let record = Record::new(job.map(str::to_owned), Some(0), owner, false);
        let is_removed = |record: &Record| decide(Some(record), facts) == Decision::Remove;
        assert_eq!(is_removed(&record), removed, "{job:?} {owner:?} {facts:?}");
        assert!(!is_removed(&Record { kept: true, ..record }));
    }

    #[test]
    fn what_says_no_job_is_asked_for_its_process() {
        for job in [None, Some("12")] {
            check(job, OWNER, HERE, false);
            check(job, OWNER, Facts { owner_lives: Some(false), ..HERE }, true);
            check(job, OWNER, Facts { is_of_this_boot: false, owner_lives: None, ..HERE }, true);
            check(job, OWNER, Facts { owner_lives: None, ..HERE }, false);
            check(job, OWNER, Facts { owner_lives: None, is_locked: false, ..HERE }, true);
            check(job, OWNER, AWAY, false);
            check(job, OWNER, Facts { is_locked: false, ..AWAY }, false);
            check(job, OWNER, Facts { is_locked: false, others_are_over: true, ..AWAY }, true);
            check(job, OWNER, Facts { others_are_over: true, ..AWAY }, false);
            check(job, None, HERE, false);
            check(job, None, Facts { is_locked: false, ..AWAY }, false);
        }
    }

    #[test]
    fn what_is_said_of_a_job_counts() {
        for facts in [HERE, AWAY, Facts { is_locked: false, owner_lives: Some(false), ..HERE }] {
            for owner in [None, OWNER] {
                check(Some("12"), owner, Facts { job: Job::Ended, ..facts }, true);
                check(Some("12"), owner, Facts { job: Job::Lives, ..facts }, false);
            }
        }
    }

    #[test]
    fn what_was_not_imported_to_its_end_goes() {
        let record = Record { is_partial: true, ..Record::new(None, None, None, false) };
        let decide = |facts| decide(Some(&record), facts);
        assert_eq!(decide(Facts { is_locked: false, ..HERE }), Decision::Remove);
        assert_eq!(decide(Facts { is_locked: false, ..AWAY }), Decision::Keep(OUT_OF_SIGHT));
        assert_eq!(decide(Facts { is_locked: false, others_are_over: true, ..AWAY }), Decision::Remove);
        for facts in [HERE, AWAY] {
            assert_ne!(decide(facts), Decision::Remove);
        }
    }

    #[test]
    fn without_a_record_only_what_is_empty_and_free_goes() {
        let decide = |is_locked, is_empty| decide(None, Facts { is_locked, is_empty, ..AWAY });
        assert_eq!(decide(false, true), Decision::Remove);
        for (is_locked, is_empty) in [(true, true), (true, false), (false, false)] {
            assert_ne!(decide(is_locked, is_empty), Decision::Remove);
        }
    }
}
