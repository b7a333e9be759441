//! The directory in which a stager keeps its plan and its records, durable at each step.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::plan::{self, Entry, Purpose, Record};
use super::tree::{Directory, Tree};
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
    directory: Directory,
    /// Where it was found, for people.
    path: PathBuf,
    records: Mutex<Option<File>>,
    _lock: File,
}

impl State {
    /// Opens the state at a place that the user named, or makes one.
    pub fn open(place: &Path) -> Result<State, Failure> {
        let made = match fs::DirBuilder::new().mode(0o700).create(place) {
            Ok(()) => Directory::of(place).and_then(|(above, _)| above.sync()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        State::of(place, made.and_then(|()| Directory::open(place)))
    }

    /// Opens the state with a name at the top of a tree, or makes one. Nothing there is believed that others may have put there.
    pub fn open_in(tree: &Tree, name: &OsStr) -> Result<State, Failure> {
        let place = tree.path.join(name);
        if tree.top.look(name).and_then(|it| it.metadata()).is_ok_and(|status| status.is_symlink()) {
            let message = format!("{} is a symbolic link, and may lead anywhere; remove it", place.display());
            return Err(Failure::new(message));
        }
        let made = match tree.top.make(name) {
            Ok(true) => tree.top.sync(),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        State::of(&place, made.and_then(|()| tree.top.down(name)))
    }

    fn of(place: &Path, directory: io::Result<Directory>) -> Result<State, Failure> {
        let failed = |error: io::Error| {
            let why = describe(&error);
            Failure::new(format!(
                "{}: no state can be kept there: {why}; name another directory with --state",
                place.display()
            ))
        };
        let directory = directory.map_err(failed)?;
        check_own(place, &directory)?;
        let lock = directory.open_or_create(LOCK.as_ref(), OFlags::empty()).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let message = format!(
                    "another stager works with {}; wait for its end, or name another directory with --state",
                    place.display()
                );
                return Err(Failure::new(message));
            }
            Err(error) => return Err(failed(error.into())),
        }
        Ok(State { directory, path: place.to_path_buf(), records: Mutex::new(None), _lock: lock })
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
        let removed = self.directory.remove(PLAN.as_ref());
        removed.and_then(|()| self.directory.sync()).map_err(|error| self.failed(&error))
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
        let file = self.directory.open_or_create(RECORDS.as_ref(), OFlags::APPEND);
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
        let mut bytes = Vec::new();
        match self.directory.read(name.as_ref()).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = NEW.as_ref();
        self.directory.remove(new)?;
        let mut file = self.directory.create(new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.directory.rename(new, name.as_ref())?;
        self.directory.sync()
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(format!("{}: the state cannot be kept: {}", self.path.display(), describe(error)))
    }
}

/// Whoever else may change a state leads its stager where he likes.
fn check_own(place: &Path, directory: &Directory) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = directory.status().is_ok_and(|status| status.uid() == own && status.mode() & 0o022 == 0);
    if is_own {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: the directory belongs to another user, or others may write to it; name another one with --state",
        place.display()
    )))
}
