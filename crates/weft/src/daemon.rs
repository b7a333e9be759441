//! A command that goes on in the background: it starts itself again, waits until that process is ready, and ends.
//!
//! The process in the background says one line on its standard output: `ready`, or why it is not. Its standard
//! error is the log file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;

/// Told to the process in the background, so that it reports and gets a session of its own.
pub const CHILD_FLAG: &str = "--background-child";

const READY: &str = "ready";

/// How a serving command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In front, until it is stopped; logs to standard error.
    Foreground,
    /// In the background; this process only starts it.
    Background,
    /// This process is the one in the background.
    Child,
}

impl Place {
    /// What the flags say.
    pub fn from_flags(foreground: bool, child: bool) -> Place {
        match (child, foreground) {
            (true, _) => Place::Child,
            (false, true) => Place::Foreground,
            (false, false) => Place::Background,
        }
    }

    /// Prepares the process for what it is to do. Call before threads are started.
    pub fn enter(self) -> Result<(), Failure> {
        if self == Place::Child {
            rustix::process::setsid().map_err(|error| {
                Failure::new(format!("no session of its own for the background: {error}"))
            })?;
        }
        crate::log::start();
        Ok(())
    }

    /// Tells that the command does its work from now on; `words` are for a person.
    pub fn ready(self, words: &str) {
        // Nobody may be there to read it any more.
        let _ = match self {
            Place::Child => tell(READY),
            Place::Foreground | Place::Background => writeln!(io::stdout(), "{words}"),
        };
    }

    /// Whether the process that waits for this one in the foreground is gone: somebody has ended it.
    pub fn is_abandoned(self) -> bool {
        let out = rustix::stdio::stdout();
        let mut waits = [PollFd::new(&out, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Nobody reads a pipe that says so.
        self == Place::Child
            && poll(&mut waits, Some(&now)).is_ok()
            && waits[0].revents().contains(PollFlags::ERR)
    }

    /// Tells that the command failed, in the background; the caller ends the process.
    pub fn failed(self, failure: &Failure) {
        if self == Place::Child {
            let _ = tell(&failure.message.replace('\n', " "));
            tracing::error!("{}", failure.message);
        }
    }
}

/// Says one line to the process that waits, and then no more.
fn tell(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")?;
    io::stdout().flush()?;
    let nowhere = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(nowhere)?)
}

/// Starts this program again with `arguments` in the background and waits until it is ready.
pub fn launch(arguments: &[OsString], log: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| Failure::new(format!("{what}: {error}"));
    if let Some(directory) = log.parent() {
        fs::create_dir_all(directory)
            .map_err(|error| failed(&format!("no directory {} for the log", directory.display()), error))?;
    }
    let log_file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| failed(&format!("the log {} cannot be written", log.display()), error))?;
    let program =
        std::env::current_exe().map_err(|error| failed("this program does not find itself", error))?;
    let mut child = Command::new(program)
        .arg0("weft")
        .args(arguments)
        .arg(CHILD_FLAG)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(|error| failed("no process in the background", error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // A process that ends says nothing; that is told below.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    match line.trim_end() {
        READY => Ok(()),
        "" => Err(Failure::new(format!("the process in the background ended; {} says why", log.display()))),
        reason => Err(Failure::new(reason)),
    }
}
