//! The directory in which a stager keeps its plan and its records, durable at each step.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use super::plan::{self, Entry, Purpose, Record};
use crate::control::describe;
use crate::failure::Failure;

/// What is to be done; gone when all of it was tried.
const PLAN: &str = "plan";
/// What is done: a line is added for each file.
const RECORDS: &str = "records";
/// The new form of one of these.
const NEW: &str = "new";
/// Held by the stager that works with this state. weft has it hold on every client.
const LOCK: &str = "lock";

/// The state of one stager, which nobody else uses meanwhile.
pub struct State {
    directory: PathBuf,
    records: Mutex<Option<File>>,
    _lock: File,
}

impl State {
    /// Opens a state, or makes one.
    pub fn open(directory: &Path) -> Result<State, Failure> {
        let failed = |error: io::Error| {
            let why = describe(&error);
            Failure::new(format!(
                "{}: no state can be kept there: {why}; name another directory with --state",
                directory.display()
            ))
        };
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => directory.parent().map_or(Ok(()), sync_directory).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_own(directory)?,
            Err(error) => return Err(failed(error)),
        }
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(directory.join(LOCK));
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let message = format!(
                    "another stager works with {}; wait for its end, or name another directory with --state",
                    directory.display()
                );
                return Err(Failure::new(message));
            }
            Err(error) => return Err(failed(error.into())),
        }
        Ok(State { directory: directory.to_path_buf(), records: Mutex::new(None), _lock: lock })
    }

    /// The plan that a stager had no time to end, and what it was for.
    pub fn plan(&self) -> Result<Option<(Purpose, Vec<Entry>)>, Failure> {
        Ok(self.read(PLAN)?.and_then(|bytes| plan::read_plan(&bytes)))
    }

    /// Keeps a new plan.
    pub fn keep_plan(&self, purpose: &Purpose, entries: &[Entry]) -> Result<(), Failure> {
        self.replace(PLAN, &plan::write_plan(purpose, entries)).map_err(|error| self.failed(&error))
    }

    /// Nothing of the plan is left to do.
    pub fn end_plan(&self) -> Result<(), Failure> {
        let removed = super::copy::remove_if_there(&self.directory.join(PLAN));
        removed.and_then(|()| sync_directory(&self.directory)).map_err(|error| self.failed(&error))
    }

    /// What was copied, and of it what `is_wanted`. Only that is kept from now on.
    pub fn take_records(
        &self,
        purpose: &Purpose,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> Result<BTreeMap<PathBuf, Record>, Failure> {
        let mut records = plan::read_records(purpose, &self.read(RECORDS)?.unwrap_or_default());
        records.retain(|path, _| is_wanted(path));
        let lines = records.iter().map(|(path, record)| plan::write_record(path, record));
        let text: String = std::iter::once(plan::write_trees(purpose)).chain(lines).collect();
        self.replace(RECORDS, text.as_bytes()).map_err(|error| self.failed(&error))?;
        let file = OpenOptions::new().append(true).open(self.directory.join(RECORDS));
        *self.records.lock() = Some(file.map_err(|error| self.failed(&error))?);
        Ok(records)
    }

    /// Adds records of copies that have their names, durably.
    pub fn add(&self, text: &str) -> io::Result<()> {
        let mut records = self.records.lock();
        let file = records.as_mut().ok_or_else(|| io::Error::other("the records are not open"))?;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        match fs::read(self.directory.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.directory.join(NEW);
        super::copy::remove_if_there(&new)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.directory.join(name))?;
        sync_directory(&self.directory)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(format!("{}: the state cannot be kept: {}", self.directory.display(), describe(error)))
    }
}

/// Whoever else may change a state leads its stager where he likes.
fn check_own(directory: &Path) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let is_own =
        fs::metadata(directory).is_ok_and(|status| status.uid() == own && status.mode() & 0o022 == 0);
    if is_own {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: the directory belongs to another user, or others may write to it; name another one with --state",
        directory.display()
    )))
}

/// Makes the names of a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
