//! An archive in a directory of any file system, as Lustre's `lhsmtool_posix` has it: a file for each copy, below directories named
//! after its FID, and beside it a description with its checksum.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use client::hsm::{Archive, Copy, Get, Put};
use client::{Error, Result};
use proto::Code;
use rt::Rt;
use rustix::fs::{SeekFrom, seek};

use super::copies::{ABOUT_SUFFIX, About, MARKED, MARKER, Sum, name_of};
use crate::control::describe;
use crate::failure::Failure;

/// Bytes that are read at a time.
const CHUNK: u64 = 4 << 20;
/// Only the owner of the archive reads what it has: whose data it is does not matter there.
const FILE_MODE: u32 = 0o600;

/// An archive below a directory.
pub struct Posix {
    rt: Rt,
    /// Held, so that it cannot be unmounted: nothing is ever written to what lies below a mount point.
    _held: File,
    /// The way through it.
    root: PathBuf,
}

/// What an error means to whoever waits for the data; all of it is said here.
fn failed(path: &Path, error: &io::Error) -> Error {
    err!("{}: {}", named(path), describe(error));
    Error::Refused(match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::StorageFull => Code::NoSpace,
        io::ErrorKind::QuotaExceeded => Code::Quota,
        _ => Code::Io,
    })
}

/// A path in the archive, for people.
fn named(path: &Path) -> String {
    let parts: Vec<_> = path.components().skip(5).map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

impl Posix {
    /// The one below `root`; with `is_new` one is made of an empty directory.
    pub fn open(rt: &Rt, root: &Path, is_new: bool) -> std::result::Result<Posix, Failure> {
        let failed = |why: &str| Failure::new(format!("{}: {why}", root.display()));
        let of =
            |error: io::Error| failed(&format!("{}; name the directory of an archive", describe(&error)));
        let held = File::open(root).map_err(of)?;
        if !held.metadata().map_err(of)?.is_dir() {
            return Err(failed("it is no directory; name the directory of an archive"));
        }
        let way = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let marker = way.join(MARKER);
        match fs::read(&marker) {
            Ok(text) if text == MARKED => {}
            Ok(_) => return Err(failed("it is the archive of another version of weft; use that one")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of(error)),
            Err(_) if !is_new => {
                return Err(failed(
                    "there is no archive in it; mount the archive there, or make one of an empty directory with --init",
                ));
            }
            Err(_) => {
                // What a new file system has.
                let is_own = |entry: &fs::DirEntry| entry.file_name() != "lost+found";
                let mut entries = fs::read_dir(&way).map_err(of)?.filter_map(std::result::Result::ok);
                if entries.any(|entry| is_own(&entry)) {
                    return Err(failed("it is not empty; --init needs an empty directory"));
                }
                write_durably(&marker, MARKED).and_then(|()| held.sync_all()).map_err(of)?;
            }
        }
        Ok(Posix { rt: rt.clone(), _held: held, root: way })
    }

    fn path(&self, of: &Copy<'_>) -> PathBuf {
        self.root.join(name_of(of))
    }
}

fn about_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ABOUT_SUFFIX);
    name.into()
}

/// A copy that is written under its own name: nobody looks for it before the MDT knows it.
pub struct Writing {
    rt: Rt,
    path: PathBuf,
    file: Arc<File>,
    about: About,
    sum: Sum,
    is_whole: bool,
}

/// A copy that is read.
pub struct Reading {
    rt: Rt,
    path: PathBuf,
    file: Arc<File>,
    size: u64,
    expected: String,
    at: u64,
    sum: Sum,
}

impl Archive for Posix {
    type Put = Writing;
    type Get = Reading;

    async fn put(&self, of: Copy<'_>) -> Result<Writing> {
        let path = self.path(&of);
        let about = About::new(&of)?;
        let (rt, made) = (self.rt.clone(), path.clone());
        let file = rt.offload(move || make(&made)).await.map_err(|error| failed(&path, &error))?;
        Ok(Writing { rt, path, file: Arc::new(file), about, sum: Sum::default(), is_whole: false })
    }

    async fn get(&self, of: Copy<'_>) -> Result<Reading> {
        let path = self.path(&of);
        let (rt, read) = (self.rt.clone(), path.clone());
        let opened = rt.offload(move || {
            let about: About = serde_json::from_slice(&fs::read(about_of(&read))?)?;
            Ok((File::open(&read)?, about))
        });
        let (file, about) = opened.await.map_err(|error: io::Error| failed(&path, &error))?;
        if !about.is_of(&of) {
            err!("{}: what is said beside the copy is about another one", named(&path));
            return Err(Error::Refused(Code::Corrupt));
        }
        let (size, expected) = (about.size, about.crc64);
        Ok(Reading { rt, path, file: Arc::new(file), size, expected, at: 0, sum: Sum::default() })
    }

    async fn remove(&self, of: Copy<'_>) -> Result<()> {
        let path = self.path(&of);
        let gone = path.clone();
        let removed = self.rt.offload(move || remove(&gone));
        removed.await.map_err(|error| failed(&path, &error))
    }
}

fn make(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        make_directories(directory)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Makes directories, durably.
fn make_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        make_directories(above)?;
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => File::open(above)?.sync_all()?,
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    for path in [path, &about_of(path)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Put for Writing {
    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<()> {
        self.sum.add(offset, &bytes);
        let file = self.file.clone();
        let written = self.rt.offload(move || file.write_all_at(&bytes, offset)).await;
        written.map_err(|error| failed(&self.path, &error))
    }

    async fn finish(mut self, size: u64) -> Result<()> {
        self.sum.hole_until(size);
        self.about.size = size;
        self.about.crc64 = self.sum.text();
        let text = self.about.text();
        let (file, path) = (self.file.clone(), self.path.clone());
        let finished = self.rt.offload(move || finish(&file, &path, size, &text)).await;
        self.is_whole = finished.is_ok();
        finished.map_err(|error| failed(&self.path, &error))
    }
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    io::Write::write_all(&mut file, text)?;
    file.sync_all()
}

fn finish(file: &File, path: &Path, size: u64, about: &[u8]) -> io::Result<()> {
    file.set_len(size)?;
    file.sync_all()?;
    write_durably(&about_of(path), about)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

impl Drop for Writing {
    fn drop(&mut self) {
        // A copytool that is killed here leaves it: nobody ever looks for it.
        if !self.is_whole
            && let Err(error) = remove(&self.path)
        {
            err!("{}: a copy that was begun stays in the archive: {}", named(&self.path), describe(&error));
        }
    }
}

impl Get for Reading {
    fn size(&self) -> u64 {
        self.size
    }

    async fn next(&mut self) -> Result<Option<(u64, Bytes)>> {
        let (file, at, size) = (self.file.clone(), self.at, self.size);
        let read = self.rt.offload(move || read_next(&file, at, size)).await;
        match read.map_err(|error| failed(&self.path, &error))? {
            Some((offset, bytes)) => {
                self.sum.add(offset, &bytes);
                self.at = offset + bytes.len() as u64;
                Ok(Some((offset, bytes)))
            }
            None => {
                self.sum.hole_until(self.size);
                if self.sum.text() != self.expected {
                    err!(
                        "{}: the copy is not what was written: its checksum is another one",
                        named(&self.path)
                    );
                    return Err(Error::Refused(Code::Corrupt));
                }
                Ok(None)
            }
        }
    }
}

/// What comes behind `at` and is no hole.
fn read_next(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, Bytes)>> {
    if file.metadata()?.len() != size {
        return Err(io::Error::other("the copy has another size than it had when it was made"));
    }
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => at,
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    let mut bytes = vec![0; CHUNK.min(end.saturating_sub(start)) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok((!bytes.is_empty()).then(|| (start, bytes.into())))
}
