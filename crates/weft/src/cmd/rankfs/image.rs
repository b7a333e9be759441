//! An image: a sparse file with a file system in it, which one user has at a time.
//!
//! It is made and repaired by e2fsprogs: its repair is needed in any case, and what makes an image is then what also checks it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::record::Record;
use super::spread;
use crate::control::describe;
use crate::failure::Failure;

/// How names of images end.
pub const SUFFIX: &str = ".rankfs";
/// The kernel tells of a last close only after it: who unmounts and mounts again may find the lock held for a moment.
const RELEASE_WAIT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);
/// Below that ext2 has no room for its own tables.
pub const SIZE_MIN: u64 = 1 << 20;
/// It numbers blocks of 4 KiB with 32 bits.
const SIZE_MAX: u64 = (1 << 44) - 4096;
/// Where ext2 keeps its magic number and whether it was closed in order, and what these are.
const MAGIC_AT: u64 = 1024 + 56;
const MAGIC: u16 = 0xef53;
const STATE_AT: u64 = 1024 + 58;
const STATE_CLEAN: u16 = 1;
const STATE_ERRORS: u16 = 2;
/// e2fsck has repaired all there was.
const REPAIRED_MAX: i32 = 2;

/// Who else may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nobody.
    Alone,
    /// Those who only read, too.
    Shared,
}

/// What an image is to be like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Its space is taken at once, so that a full shared file system is told of now and not to the rank.
    pub is_reserved: bool,
    /// Bytes for each file that there is room for.
    pub bytes_per_inode: u64,
    /// To whom its top directory belongs.
    pub owner: (u32, u32),
    /// The OST that all of it lies on; without one it lies where files of its directory do.
    pub ost: Option<u32>,
}

/// Opens an image and takes its lock, which counts on all machines that have the file system. It is held as long as the file is open: by
/// the kernel, too, as long as the image is mounted.
pub fn open_locked(path: &Path, access: Access) -> Result<File, Failure> {
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::Alone)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let file = file.map_err(|error| failed(path, "cannot be opened", &error))?;
    if !lock_within(&file, access, RELEASE_WAIT).map_err(|error| failed(path, "cannot be locked", &error))? {
        return Err(Failure::new(in_use(path)));
    }
    match fs::symlink_metadata(path) {
        Ok(status) if is_same(&status, &file) => {
            let record = Record::of_file(&file).map_err(|error| failed(path, "cannot be read", &error))?;
            match record.is_some_and(|record| record.is_partial) {
                true => Err(Failure::new(format!(
                    "{} was not imported to its end; remove it and import it again",
                    path.display()
                ))),
                false => Ok(file),
            }
        }
        _ => Err(Failure::new(format!("{} was removed meanwhile; make it again", path.display()))),
    }
}

/// Takes the lock of an image; whether it could be had within the time.
pub fn lock_within(file: &File, access: Access, wait: Duration) -> io::Result<bool> {
    let operation = match access {
        Access::Alone => FlockOperation::NonBlockingLockExclusive,
        Access::Shared => FlockOperation::NonBlockingLockShared,
    };
    let start = Instant::now();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if start.elapsed() < wait => std::thread::sleep(RETRY),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a name means an open file.
pub fn is_same(status: &fs::Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (status.dev(), status.ino()))
}

fn in_use(path: &Path) -> String {
    let whose =
        Record::of(path).ok().flatten().map_or(String::new(), |record| format!(" ({})", record.whose()));
    format!("{} is in use{whose}; unmount it there first", path.display())
}

/// Makes an image, with its record. Nothing of it stays if that fails.
pub fn create(path: &Path, shape: Shape, record: &Record) -> Result<File, Failure> {
    if shape.size < SIZE_MIN {
        return Err(Failure::usage("an image has at least 1M; write for example --size 2G"));
    }
    if shape.size > SIZE_MAX {
        return Err(Failure::usage("an image has less than 16T; make several"));
    }
    let file = new_file(path, shape.ost)?;
    let made = fill(path, &file, shape, record);
    if made.is_err() {
        // The first error says more than one of the tidying up.
        let _ = fs::remove_file(path);
    }
    made.map(|()| file)
}

/// How often an image is made again that was taken before it had a lock.
const TAKEN_MAX: usize = 10;

/// Makes the file of an image, on an OST if that is given, and takes its lock. Its name is an image's.
pub fn new_file(path: &Path, ost: Option<u32>) -> Result<File, Failure> {
    if !path.to_string_lossy().ends_with(SUFFIX) {
        return Err(Failure::usage(format!(
            "{} is no name of an image; let it end with {SUFFIX}",
            path.display()
        )));
    }
    for _ in 0..TAKEN_MAX {
        let file = open_new(path, ost)?;
        // Before the record: one without a lock and without a record is nobody's, and "weft rankfs gc" may remove it.
        let is_locked = lock_within(&file, Access::Alone, RELEASE_WAIT);
        if is_locked.map_err(|error| failed(path, "cannot be locked", &error))?
            && fs::symlink_metadata(path).is_ok_and(|status| is_same(&status, &file))
        {
            return Ok(file);
        }
    }
    Err(Failure::new(format!("{} was taken by somebody else meanwhile; try again", path.display())))
}

fn open_new(path: &Path, ost: Option<u32>) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    let file = match ost {
        Some(ost) => spread::make_on(path, ost).and_then(|()| options.open(path)),
        None => options.create_new(true).mode(0o600).open(path),
    };
    file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(format!("{} is there already; mount it, choose another name, or run \"weft rankfs gc\" if its job has ended", path.display()))
        }
        _ => failed(path, "cannot be made", &error),
    })
}

fn fill(path: &Path, file: &File, shape: Shape, record: &Record) -> Result<(), Failure> {
    record.keep(file).map_err(|error| failed(path, "cannot have a record", &error))?;
    file.set_len(shape.size).map_err(|error| failed(path, "cannot have that size", &error))?;
    let (uid, gid) = shape.owner;
    // Nothing is zeroed: a hole is. A file system that ends with its rank needs no journal and no place kept for root.
    let mut command = Command::new("mke2fs");
    command
        .args(["-q", "-F", "-t", "ext2", "-b", "4096", "-I", "256", "-m", "0"])
        .args(["-O", "^resize_inode,sparse_super,large_file,filetype,dir_index,ext_attr"])
        .args(["-E", &format!("root_owner={uid}:{gid},discard")])
        .args(["-i", &shape.bytes_per_inode.to_string(), "--"])
        .arg(path);
    run_quietly(&mut command, "mke2fs").and_then(|status| match status {
        0 => Ok(()),
        status => Err(Failure::new(format!(
            "{}: mke2fs ended with status {status}; is the shared file system full, or the size too small?",
            path.display()
        ))),
    })?;
    if shape.is_reserved {
        fallocate(file, FallocateFlags::KEEP_SIZE, 0, shape.size)
            .map_err(|error| failed(path, "cannot have its space", &error.into()))?;
    }
    file.sync_all().map_err(|error| failed(path, "cannot be written", &error))
}

/// Repairs an image that was not closed in order. What was made durable in it is still there.
pub fn repair_if_needed(path: &Path, file: &File) -> Result<(), Failure> {
    match state(file).map_err(|error| failed(path, "cannot be read", &error))? {
        State::Clean if is_trusted(file) => return Ok(()),
        State::Clean => {}
        State::None => {
            return Err(Failure::new(format!(
                "{} has no file system in it; remove it and make it again",
                path.display()
            )));
        }
        State::Unclean => {}
    }
    let status = run_quietly(Command::new("e2fsck").args(["-f", "-y", "--"]).arg(path), "e2fsck")?;
    if status > REPAIRED_MAX {
        return Err(Failure::new(format!(
            "{0}: it needs repair, and e2fsck ended with status {status}; \"mount -o ro,loop {0} DIR\" may show what is left in it",
            path.display()
        )));
    }
    file.sync_all().map_err(|error| failed(path, "cannot be written", &error))
}

/// Refuses an image that cannot be only read: one without a file system, or of another user's making and damaged.
pub fn refuse_damaged(path: &Path, file: &File) -> Result<(), Failure> {
    let is_there = state(file).map_err(|error| failed(path, "cannot be read", &error))? != State::None;
    let is_sound = is_there
        && (is_trusted(file)
            || run_quietly(Command::new("e2fsck").args(["-f", "-n", "--"]).arg(path), "e2fsck")? == 0);
    match (is_there, is_sound) {
        (false, _) => {
            Err(Failure::new(format!("{} has no file system in it; it is no image", path.display())))
        }
        (true, false) => Err(Failure::new(format!(
            "{} is damaged; mount it once for writing, which repairs it",
            path.display()
        ))),
        (true, true) => Ok(()),
    }
}

/// Whether nobody but root and this user can have written into it what only its file system's driver should: the kernel believes it.
fn is_trusted(file: &File) -> bool {
    file.metadata().is_ok_and(|status| status.uid() == 0 || status.uid() == super::record::own_ids().0)
}

/// How a file system was left.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// Closed in order.
    Clean,
    /// Not closed in order.
    Unclean,
    /// There is none.
    None,
}

/// How the file system of an image was left.
pub fn state(file: &File) -> io::Result<State> {
    let word = |at| {
        let mut bytes = [0; 2];
        match file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
            Ok(()) => Ok(u16::from_le_bytes(bytes)),
        }
    };
    let (magic, state) = (word(MAGIC_AT)?, word(STATE_AT)?);
    Ok(match (magic, state & (STATE_CLEAN | STATE_ERRORS)) {
        (MAGIC, STATE_CLEAN) => State::Clean,
        (MAGIC, _) => State::Unclean,
        _ => State::None,
    })
}

/// Says that an image has not all that was written to it. Whoever mounts it next has it repaired first: what was written may refer to
/// what was not.
pub fn has_lost(path: &Path, error: &io::Error) -> Failure {
    let distrusted = File::options().read(true).write(true).open(path).and_then(|file| {
        let state = (STATE_CLEAN | STATE_ERRORS).to_le_bytes();
        file.write_all_at(&state, STATE_AT)?;
        file.sync_all()
    });
    let Failure { mut message, status } = failed(path, "has lost some of what was written to it", error);
    // The kernel remembers that a block was not written, and not why.
    if error.raw_os_error() == Some(libc::EIO) {
        message += "; the shared file system was full, or not reached";
    }
    match distrusted {
        Ok(()) => Failure { message, status },
        Err(_) => Failure { message: format!("{message}; run \"e2fsck -f\" on it"), status },
    }
}

/// Runs a program of e2fsprogs and gives its status.
fn run_quietly(command: &mut Command, name: &str) -> Result<i32, Failure> {
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match ran {
        Ok(status) => Ok(status.code().unwrap_or(i32::MAX)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::new(format!("{name} is not installed; install the package e2fsprogs")))
        }
        Err(error) => Err(Failure::new(format!("{name} cannot be started: {}", describe(&error)))),
    }
}

/// A name or a word that somebody else chose, without what a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A sentence about an image.
pub fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    let what_to_do = match error.kind() {
        io::ErrorKind::PermissionDenied => "; this needs root",
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::StorageFull => "; the shared file system is full",
        _ => "",
    };
    Failure::new(format!("{} {what}: {}{what_to_do}", plain(&path.to_string_lossy()), describe(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(magic: u16, state_word: u16, expected: State) {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&magic.to_le_bytes(), MAGIC_AT).expect("written");
        file.write_all_at(&state_word.to_le_bytes(), STATE_AT).expect("written");
        assert_eq!(state(&file).expect("read"), expected);
    }

    #[test]
    fn states() {
        check(MAGIC, 1, State::Clean);
        check(MAGIC, 0, State::Unclean);
        check(MAGIC, 3, State::Unclean);
        check(0, 1, State::None);
        assert_eq!(state(&tempfile::tempfile().expect("a file")).expect("read"), State::None);
    }

    #[test]
    fn one_has_it_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.rankfs");
        let first = new_file(&path, None).expect("it is new");
        assert!(new_file(&path, None).is_err());
        let again = File::open(&path).expect("there");
        assert!(!lock_within(&again, Access::Shared, Duration::ZERO).expect("an answer"));
        drop(first);
        assert!(lock_within(&again, Access::Shared, Duration::ZERO).expect("an answer"));
        open_locked(&path, Access::Shared).expect("both read");
        assert!(new_file(&dir.path().join("a.img"), None).is_err());
    }
}
