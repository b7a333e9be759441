//! `weft rankfs run`: an image for as long as a program runs, seen by that program alone.
//!
//! The image is mounted in a table of mounts that only this process and what it starts have. So nothing of it is left mounted when they
//! have ended, in whatever way; `weft rankfs gc` then removes the file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use rt::os::loopback::{self, EndSignals};
use rustix::process::{Pid, Signal, kill_process};

use super::attached::{self, How};
use super::image;
use super::record::{self, Owner, Record};
use super::{Making, gc, transfer};
use crate::control::describe;
use crate::failure::{Failure, Outcome};

/// Where the image is mounted for the program. Each rank has its own there.
const PLACE: &str = "/run/weft/rankfs";
/// Tells the program that place.
const VARIABLE: &str = "RANKDIR";
/// What a shell says of a program that is not there, and adds to the number of the signal that a program ended by.
const NOT_STARTED: u8 = 127;
const SIGNALLED: i32 = 128;

/// Make an image, run a program with it as $RANKDIR, and remove the image when the program has ended. The exit status is the program's.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the image is made, on the shared file system
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    making: Making,
    /// Where the program sees the image
    #[arg(long, value_name = "DIR", default_value = PLACE)]
    at: PathBuf,
    /// Give the space of removed files back at once
    #[arg(long)]
    discard: bool,
    /// Keep the image
    #[arg(long)]
    keep: bool,
    /// Copy the image to this file at the end, whatever the program's status
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// The program, and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let making = &arguments.making;
    let (job, rank) = (making.job()?, making.rank.or_else(record::rank_of_environment));
    let path = arguments
        .dir
        .canonicalize()
        .map_err(|error| image::failed(&arguments.dir, "cannot be used", &error))?;
    let path = path.join(file_name(job.as_deref(), rank));
    let record = Record::new(job, rank, Owner::this(), arguments.keep);
    // From here on a signal ends the program, and not this process: the image has to be removed.
    let signals = EndSignals::hold();
    let signals = signals.map_err(|error| Failure::new(format!("signals cannot be held: {error}")))?;
    if path.symlink_metadata().is_ok() {
        return Err(Failure::new(format!(
            "{} is there already, of another run of this job and rank; give another --rank, or run \"weft rankfs gc\" if that one has ended",
            path.display()
        )));
    }
    let file = image::create(&path, making.shape()?, &record)?;
    let ran = inside(arguments, &path, &file, &signals);
    let ended = end(arguments, &path, &file);
    drop(file);
    let status = ran?;
    ended.map(|()| status)
}

/// Mounts the image and runs the program.
fn inside(arguments: &Arguments, path: &Path, file: &fs::File, signals: &EndSignals) -> Outcome {
    let at = &arguments.at;
    fs::create_dir_all(at).map_err(|error| image::failed(at, "cannot be made", &error))?;
    let outer = attached::mount_space("self");
    loopback::private_mounts().map_err(|error| {
        Failure::new(format!("no mounts of its own can be had: {}; this needs root", describe(&error)))
    })?;
    attached::attach(path, file, at, How { reads_only: false, discards: arguments.discard })?;
    let ran = run_program(arguments, signals);
    // Whatever the program left running is not to use the image any more, nor keep its space.
    let mut detached = rustix::mount::unmount(at, rustix::mount::UnmountFlags::NOFOLLOW);
    if detached.is_err() {
        let left = outer.map(|outer| attached::inmates(&outer)).unwrap_or_default();
        left.into_iter().for_each(gc::kill);
        detached = rustix::mount::unmount(at, rustix::mount::UnmountFlags::NOFOLLOW);
    }
    if detached.is_err() {
        rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| image::failed(at, "cannot be unmounted", &error.into()))?;
        err!("weft: {} is still in use by what {:?} has started", path.display(), arguments.command[0]);
    }
    ran
}

fn run_program(arguments: &Arguments, signals: &EndSignals) -> Outcome {
    let Some((program, words)) = arguments.command.split_first() else {
        return Err(Failure::usage("say what is to be run"));
    };
    let mut command = Command::new(program);
    command.args(words).env(VARIABLE, &arguments.at).current_dir(&arguments.at);
    if let Some((uid, gid)) = arguments.making.owner()? {
        command.uid(uid).gid(gid);
    }
    loopback::kill_with_parent(&mut command);
    signals.let_through(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let message = format!("{} cannot be run: {}", program.display(), describe(&error));
            return Err(Failure { message, status: NOT_STARTED });
        }
    };
    let status = wait(&mut child, signals);
    let status = status
        .map_err(|error| Failure::new(format!("the program's end is unknown: {}", describe(&error))))?;
    Ok(exit_status(status))
}

/// Waits for the program's end, and passes on to it what this process is told. The thread that started the program has to outlive it, so
/// another one takes the signals.
fn wait(child: &mut Child, signals: &EndSignals) -> io::Result<ExitStatus> {
    let of_number = |number| i32::try_from(number).ok().and_then(Pid::from_raw);
    let (program, this) = (of_number(child.id()), of_number(std::process::id()));
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let teller = scope.spawn(|| {
            loop {
                let signal = signals.next();
                if has_ended.load(Ordering::Acquire) {
                    return;
                }
                if let (Some(program), Some(signal)) = (program, Signal::from_named_raw(signal)) {
                    // It may just have ended.
                    let _ = kill_process(program, signal);
                }
            }
        });
        let status = child.wait();
        has_ended.store(true, Ordering::Release);
        // To itself: it ends the other thread.
        if let Some(this) = this {
            let _ = kill_process(this, Signal::TERM);
        }
        let _ = teller.join();
        status
    })
}

fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

/// Exports, keeps or removes the image.
fn end(arguments: &Arguments, path: &Path, file: &fs::File) -> Result<(), Failure> {
    let exported = match &arguments.export {
        Some(to) => file
            .sync_all()
            .map_err(|error| image::failed(path, "cannot be written", &error))
            .and_then(|()| transfer::copy(path, to)),
        None => Ok(()),
    };
    if exported.is_err() || arguments.keep {
        let synced = file.sync_all().map_err(|error| image::failed(path, "cannot be written", &error));
        exported.map_err(|failure| {
            Failure::new(format!("{}; the image is kept: {}", failure.message, path.display()))
        })?;
        return synced;
    }
    fs::remove_file(path).map_err(|error| image::failed(path, "cannot be removed", &error))
}

/// A name that no other rank has.
fn file_name(job: Option<&str>, rank: Option<u32>) -> String {
    let job =
        job.map_or_else(|| format!("{}-{}", record::Node::this().name, std::process::id()), str::to_owned);
    match rank {
        Some(rank) => format!("{job}.{rank}{}", image::SUFFIX),
        None => format!("{job}{}", image::SUFFIX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_statuses() {
        assert_eq!(file_name(Some("12"), Some(3)), "12.3.rankfs");
        assert_eq!(file_name(Some("12"), None), "12.rankfs");
        assert_ne!(file_name(None, Some(1)), file_name(None, Some(2)));
        assert_eq!(exit_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_status(ExitStatus::from_raw(15)), 143);
    }
}
