//! `weft rankfs run`: an image for as long as a program runs, seen by that program alone.
//!
//! The image is mounted in a table of mounts that only this process and what it starts have. So nothing of it is left mounted when they
//! have ended, in whatever way; `weft rankfs gc` then removes the file.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use rt::os::loopback::{self, EndSignals};
use rustix::process::{Pid, Signal, kill_process};

use super::attached::{self, How};
use super::based::Based;
use super::image;
use super::record::{self, Owner, Record, own_ids};
use super::served::Served;
use super::{Making, gc, transfer};
use crate::control::describe;
use crate::failure::{Failure, Outcome};

/// Where the image is mounted for root's programs. Each rank has its own there.
const PLACE: &str = "/run/weft/rankfs";
/// Tells the program that place.
const VARIABLE: &str = "RANKDIR";
/// Bits of a mode that let the group and others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
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
    /// Where the program sees the image [default: /run/weft/rankfs, for users weft/rankfs in $XDG_RUNTIME_DIR or weft-UID/rankfs in /tmp]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// An image that the program sees below its own: it is only read, by any number of ranks on any machines, and what the program
    /// changes of it is in its own image
    #[arg(long, value_name = "IMAGE")]
    base: Option<PathBuf>,
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
    if let Some(owner) = making.owner()?.filter(|owner| !is_root() && *owner != own_ids()) {
        return Err(Failure::usage(format!(
            "an image for user {} needs root; leave --owner out for one of your own",
            owner.0
        )));
    }
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
    // Before the program has worked for it.
    arguments.export.as_deref().map_or(Ok(()), transfer::may_export_to)?;
    let file = image::create(&path, making.shape(&path, rank)?, &record)?;
    let mut left = Left::Nothing;
    let ran = inside(arguments, &path, &file, &signals, &mut left);
    let ended = match left {
        Left::All => end(arguments, &path, &file),
        // Nothing ran: what a run before has exported stays.
        Left::Nothing => remove(&path),
        // Its user decides what becomes of it.
        Left::Doubtful => {
            match keep(&file) {
                Ok(()) => err!(
                    "weft: the image is kept: {0}; mount it, or export it, and remove it then",
                    path.display()
                ),
                Err(error) => {
                    err!("weft: the image stays until \"weft rankfs gc\": {}: {error}", path.display())
                }
            }
            Ok(())
        }
    };
    drop(file);
    let status = ran?;
    ended.map(|()| status)
}

/// What a run has left in its image.
enum Left {
    /// No program ran.
    Nothing,
    /// All that it wrote.
    All,
    /// Not all that it wrote may be there.
    Doubtful,
}

/// The image, as the program sees it.
enum Seen {
    /// Mounted by the kernel.
    Alone,
    /// The same, over an image that many have.
    Based(Based),
    /// Served by a program, for a user who may not mount.
    Served(Served),
}

/// Mounts the image and runs the program. Says in `left` what is in the image afterwards.
fn inside(
    arguments: &Arguments,
    path: &Path,
    file: &fs::File,
    signals: &EndSignals,
    left: &mut Left,
) -> Outcome {
    let at = match &arguments.at {
        Some(at) => std::path::absolute(at).map_err(|error| image::failed(at, "cannot be used", &error))?,
        None => place(),
    };
    make_place(&at)?;
    let outer = attached::mount_space("self");
    let seen = show(arguments, path, file, &at)?;
    *left = Left::Doubtful;
    let ran = run_program(arguments, &at, signals);
    let mut flushed = seen.flush(&at);
    // Whatever the program left running is not to use the image any more, nor keep its space.
    let mut detached = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::NOFOLLOW);
    if detached.is_err() {
        let inmates = outer.map(|outer| attached::inmates(&outer)).unwrap_or_default();
        inmates.into_iter().filter(|pid| !seen.is_of(*pid)).for_each(gc::kill);
        flushed = flushed.and_then(|()| seen.flush(&at));
        detached = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::NOFOLLOW);
    }
    if detached.is_err() {
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| image::failed(&at, "cannot be unmounted", &error.into()))?;
        err!("weft: {} is still in use by what {:?} has started", path.display(), arguments.command[0]);
    }
    let ended = seen.end(path);
    let ended = match flushed {
        Ok(()) => ended,
        Err(error) => Err(image::has_lost(path, &error)),
    };
    if ended.is_ok() {
        let is_started = !matches!(&ran, Err(failure) if failure.status == NOT_STARTED);
        *left = if is_started { Left::All } else { Left::Nothing };
    }
    ended.and(ran)
}

/// Lets this process, and what it starts, see the image at a place.
fn show(arguments: &Arguments, path: &Path, file: &fs::File, at: &Path) -> Result<Seen, Failure> {
    let how = How { reads_only: false, discards: arguments.discard };
    if !is_root() {
        if arguments.base.is_some() {
            return Err(Failure::new("--base needs root: users may not mount one image over another"));
        }
        return Served::begin(path, file, at).map(Seen::Served);
    }
    loopback::private_mounts().map_err(|error| {
        Failure::new(format!("no mounts of its own can be had: {}; this needs root", describe(&error)))
    })?;
    match &arguments.base {
        Some(base) => Based::begin(base, (path, file, how), arguments.making.owner()?, at).map(Seen::Based),
        None => attached::attach(path, file, at, how).map(|()| Seen::Alone),
    }
}

impl Seen {
    /// Whether a process serves the image.
    fn is_of(&self, pid: u32) -> bool {
        matches!(self, Seen::Served(served) if served.pid() == pid)
    }

    /// Has all that was written reach the image's file. The program that serves a user's image does that at its end.
    fn flush(&self, at: &Path) -> io::Result<()> {
        match self {
            Seen::Alone => attached::flush(at),
            Seen::Based(based) => attached::flush(based.own()),
            Seen::Served(_) => Ok(()),
        }
    }

    /// What the program saw is not mounted any more: nor is what lies below.
    fn end(self, path: &Path) -> Result<(), Failure> {
        match self {
            Seen::Alone => Ok(()),
            Seen::Based(based) => based.end(),
            Seen::Served(served) => served.end(path),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn place() -> PathBuf {
    if is_root() {
        return PathBuf::from(PLACE);
    }
    match std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute() && is_own(dir))
    {
        Some(dir) => dir.join("weft/rankfs"),
        None => std::env::temp_dir().join(format!("weft-{}", own_ids().0)).join("rankfs"),
    }
}

/// Makes the place where an image is mounted, in a directory that nobody else can put something into: others may have made one in /tmp.
fn make_place(at: &Path) -> Result<(), Failure> {
    let mode = if is_root() { 0o755 } else { 0o700 };
    let made = DirBuilder::new().mode(mode).recursive(true).create(at);
    made.map_err(|error| image::failed(at, "cannot be made", &error))?;
    if is_root() || is_own(at) && at.parent().is_none_or(is_own) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} and the directory above it have to be your own, and others may not write there; name another place with --at",
        at.display()
    )))
}

/// Whether a directory is this user's, and nobody else can put anything into it.
fn is_own(path: &Path) -> bool {
    let is_own = |status: fs::Metadata| {
        status.is_dir() && status.uid() == own_ids().0 && status.mode() & WRITABLE_BY_OTHERS == 0
    };
    fs::symlink_metadata(path).is_ok_and(is_own)
}

fn run_program(arguments: &Arguments, at: &Path, signals: &EndSignals) -> Outcome {
    let Some((program, words)) = arguments.command.split_first() else {
        return Err(Failure::usage("say what is to be run"));
    };
    let mut command = Command::new(program);
    command.args(words).env(VARIABLE, at).current_dir(at);
    if let Some((uid, gid)) = arguments.making.owner()?.filter(|_| is_root()) {
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
        // Of the two failures the export's says more.
        let _ = keep(file);
        let synced = file.sync_all().map_err(|error| image::failed(path, "cannot be written", &error));
        exported.map_err(|failure| {
            Failure::new(format!("{}; the image is kept: {}", failure.message, path.display()))
        })?;
        return synced;
    }
    remove(path)
}

/// Has `weft rankfs gc` leave an image alone.
fn keep(file: &fs::File) -> io::Result<()> {
    match Record::of_file(file)? {
        Some(record) => Record { kept: true, ..record }.keep(file),
        None => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
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
