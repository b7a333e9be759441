//! Copies one thing: a file with its holes, its checksum and its attributes, or a symbolic link, under a temporary name.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crc_fast::{CrcAlgorithm, Digest};
use rustix::fs::{Advice, AtFlags, CWD, SeekFrom, Timespec, Timestamps, fadvise, futimens, seek, utimensat};

use super::plan::{Record, Stamp};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;
/// How often a file is read again that is being changed.
const TRIES_MAX: u32 = 3;
/// Read, written and executed: what a mode may say without the set-user-id bits of a file that is not there yet.
const MODE_MASK: u32 = 0o7777;

/// How files are copied.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// The owner is kept, too, which only root can do.
    pub keeps_owner: bool,
    /// Each copy is read again before it gets its name.
    pub reads_again: bool,
}

/// Size and time of a file.
pub fn stamp(status: &Metadata) -> Stamp {
    let mtime = i128::from(status.mtime()) * 1_000_000_000 + i128::from(status.mtime_nsec());
    Stamp { size: status.len(), mtime }
}

/// Copies a file to `temporary`, which is durable afterwards. `bytes` grows as the copy does.
pub fn copy_file(from: &Path, temporary: &Path, how: How, bytes: &AtomicU64) -> io::Result<Record> {
    let source =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(from)?;
    for _ in 0..TRIES_MAX {
        let status = source.metadata()?;
        let copy = new_file(temporary)?;
        let checksum = copy_content(&source, &copy, status.len(), bytes);
        if stamp(&source.metadata()?) != stamp(&status) {
            continue;
        }
        let checksum = checksum?;
        keep_attributes(&copy, &status, how)?;
        copy.sync_all()?;
        if how.reads_again {
            // What the kernel remembers of its own writing would prove nothing. Where it does not forget, the check is a weaker one.
            let _ = fadvise(&copy, 0, None, Advice::DontNeed);
            if content_checksum(&copy, status.len())? != checksum {
                return Err(io::Error::other(
                    "the copy is not what was written; check the target's servers and disks",
                ));
            }
        }
        let copy_mtime = stamp(&copy.metadata()?).mtime;
        return Ok(Record { source: stamp(&status), copy_mtime, checksum });
    }
    Err(io::Error::other("it is being changed; stage it when nothing writes to it any more"))
}

/// Makes a symbolic link `temporary` to what `from` leads to.
pub fn copy_link(from: &Path, temporary: &Path, how: How) -> io::Result<()> {
    let leads_to = fs::read_link(from)?;
    remove_if_there(temporary)?;
    std::os::unix::fs::symlink(leads_to, temporary)?;
    keep_link_attributes(temporary, &fs::symlink_metadata(from)?, how)
}

/// Gives a symbolic link the owner and times of its source.
pub fn keep_link_attributes(copy: &Path, status: &Metadata, how: How) -> io::Result<()> {
    if how.keeps_owner {
        std::os::unix::fs::lchown(copy, Some(status.uid()), Some(status.gid()))?;
    }
    // Not every file system has times of links.
    let _ = utimensat(CWD, copy, &times(status), AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}

/// Gives a copy the mode, owner and times of its source.
pub fn keep_attributes(copy: &File, status: &Metadata, how: How) -> io::Result<()> {
    if how.keeps_owner {
        std::os::unix::fs::fchown(copy, Some(status.uid()), Some(status.gid()))?;
    }
    // After the owner, whose change takes the set-user-id bits away.
    copy.set_permissions(Permissions::from_mode(status.mode() & MODE_MASK))?;
    Ok(futimens(copy, &times(status))?)
}

fn times(status: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(status.atime(), status.atime_nsec()),
        last_modification: time(status.mtime(), status.mtime_nsec()),
    }
}

/// Whether mode and owner of a copy are those of its source.
pub fn has_attributes(copy: &Metadata, source: &Metadata, how: How) -> bool {
    let same_owner = copy.uid() == source.uid() && copy.gid() == source.gid();
    copy.mode() & MODE_MASK == source.mode() & MODE_MASK && (same_owner || !how.keeps_owner)
}

/// Removes a name; it is fine if there is none.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    // Nobody else may look into it before it has its owner and mode.
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Copies the data of a file and leaves its holes out; gives the checksum of its content.
pub fn copy_content(source: &File, copy: &File, size: u64, bytes: &AtomicU64) -> io::Result<u32> {
    let checksum = for_each_chunk(source, size, |at, chunk| {
        copy.write_all_at(chunk, at)?;
        bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    copy.set_len(size)?;
    Ok(checksum)
}

/// CRC32C of a file's content.
pub fn content_checksum(file: &File, size: u64) -> io::Result<u32> {
    for_each_chunk(file, size, |_, _| Ok(()))
}

/// Goes through the data of a file, and gives the checksum of its data and holes.
fn for_each_chunk(
    file: &File,
    size: u64,
    mut act: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<u32> {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK)).max(1)];
    let zeroes = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let (start, end) = next_data(file, at, size)?;
        while at < start {
            let length = usize::try_from(start - at).unwrap_or(CHUNK).min(CHUNK);
            digest.update(&zeroes[..length]);
            at += length as u64;
        }
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(CHUNK).min(buffer.len());
            let read = file.read_at(&mut buffer[..length], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            digest.update(&buffer[..read]);
            act(at, &buffer[..read])?;
            at += read as u64;
        }
    }
    Ok(u32::try_from(digest.finalize()).unwrap_or(u32::MAX))
}

/// Where data begins at or after `at`, and where it ends; the size for both if only a hole is left. A file system that does not know its
/// holes has data only.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<(u64, u64)> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start.clamp(at, size),
        Err(rustix::io::Errno::NXIO) => return Ok((size, size)),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok((at, size)),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).map_or(size, |end| end.clamp(start, size));
    // A hole that is filled meanwhile must not stop the way through the file.
    Ok(if end == start && start < size { (start, size) } else { (start, end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: How = How { keeps_owner: false, reads_again: true };

    fn check(content: &[(u64, &[u8])], size: u64) {
        let dir = tempfile::tempdir().expect("a directory");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let source = File::create(&from).expect("a file");
        source.set_len(size).expect("its size");
        for (at, data) in content {
            source.write_all_at(data, *at).expect("its data");
        }
        source.set_permissions(Permissions::from_mode(0o640)).expect("its mode");
        fs::write(&to, b"what a stager left that was killed").expect("a file");
        let bytes = AtomicU64::new(0);
        let record = copy_file(&from, &to, HOW, &bytes).expect("a copy");
        let (from, to) = (fs::metadata(&from).expect("there"), fs::metadata(&to).expect("there"));
        assert_eq!(stamp(&from), stamp(&to));
        assert_eq!(record.source, stamp(&from));
        assert!(to.blocks() <= from.blocks(), "{} blocks of {}", to.blocks(), from.blocks());
        assert!(has_attributes(&to, &from, HOW));
        let whole = fs::read(dir.path().join("to")).expect("there");
        assert_eq!(whole, fs::read(dir.path().join("from")).expect("there"));
        assert_eq!(record.checksum, proto::wire::header::crc32c(&whole));
    }

    #[test]
    fn content_holes_and_checksums() {
        check(&[], 0);
        check(&[(0, b"123456789")], 9);
        check(&[(0, b"a"), (4 << 20, b"b")], (8 << 20) + 5);
        check(&[], 3 << 20);
        check(&[(5 << 20, &[7; 70_000])], (5 << 20) + 70_000);
    }

    #[test]
    fn links_are_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::os::unix::fs::symlink("a b", &from).expect("a link");
        for _ in 0..2 {
            copy_link(&from, &to, HOW).expect("a copy");
            assert_eq!(fs::read_link(&to).expect("a link"), Path::new("a b"));
        }
    }
}
