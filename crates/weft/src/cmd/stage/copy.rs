//! Copies one thing: a file with its holes, its checksum and its attributes, or a symbolic link, under a temporary name.

use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crc_fast::{CrcAlgorithm, Digest};
use rustix::fs::{
    Advice, AtFlags, Gid, SeekFrom, Timespec, Timestamps, Uid, chownat, fadvise, futimens, seek, utimensat,
};

use super::plan::{Record, Stamp, is_settled};
use super::tree::{Directory, leads_to};

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

/// Now, as file systems count it: in nanoseconds since 1970.
fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| i128::try_from(time.as_nanos()).unwrap_or(0))
}

/// Copies a file to `temporary` in `to`, which is durable afterwards. `bytes` grows as the copy does.
pub fn copy_file(
    source: &File,
    to: &Directory,
    temporary: &OsStr,
    how: How,
    bytes: &AtomicU64,
) -> io::Result<Record> {
    for _ in 0..TRIES_MAX {
        let began = now();
        let status = source.metadata()?;
        if !status.is_file() {
            return Err(io::Error::other("it is no file any more; run the same command again"));
        }
        to.remove(temporary)?;
        let copy = to.create(temporary)?;
        let checksum = copy_content(source, &copy, status.len(), bytes);
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
        let source = stamp(&status);
        return Ok(Record { source, copy_mtime, checksum, is_settled: is_settled(source.mtime, began) });
    }
    Err(io::Error::other("it is being changed; stage it when nothing writes to it any more"))
}

/// Compares a file and its copy, which have the sizes and times that a record has, with the checksum in it. Gives the record as it is from
/// now on; none if the file has to be copied again.
pub fn compare(source: &File, copy: &File, record: &Record) -> io::Result<Option<Record>> {
    let began = now();
    // What cannot be read is not the same. A copy of it will say why.
    let is_same = |file: &File| {
        content_checksum(file, record.source.size).is_ok_and(|checksum| checksum == record.checksum)
    };
    let is_same = is_same(source) && is_same(copy);
    let fits = record.fits(stamp(&source.metadata()?), stamp(&copy.metadata()?));
    let is_settled = is_settled(record.source.mtime, began);
    Ok((is_same && fits).then_some(Record { is_settled, ..*record }))
}

/// Makes a symbolic link `temporary` in `to`, as the one that is open.
pub fn copy_link(link: &File, to: &Directory, temporary: &OsStr, how: How) -> io::Result<()> {
    to.remove(temporary)?;
    to.link(&leads_to(link)?, temporary)?;
    keep_link_attributes(&to.look(temporary)?, &link.metadata()?, how)
}

/// Gives a symbolic link the owner and times of its source.
pub fn keep_link_attributes(copy: &File, status: &Metadata, how: How) -> io::Result<()> {
    // Others may be able to put something else in its place before it is opened.
    if !copy.metadata()?.is_symlink() {
        return Err(io::Error::other(
            "somebody else has changed it in the target; run the same command again",
        ));
    }
    if how.keeps_owner {
        let (owner, group) = (Uid::from_raw(status.uid()), Gid::from_raw(status.gid()));
        chownat(copy, "", Some(owner), Some(group), AtFlags::EMPTY_PATH)?;
    }
    // Not every file system has times of links.
    let _ = utimensat(copy, "", &times(status), AtFlags::EMPTY_PATH);
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
    use std::fs;
    use std::path::Path;

    use super::*;

    const HOW: How = How { keeps_owner: false, reads_again: true };

    fn copy_it(dir: &Path, bytes: &AtomicU64) -> Record {
        let place = Directory::open(dir).expect("a directory");
        let source = place.read("from".as_ref()).expect("there");
        copy_file(&source, &place, "to".as_ref(), HOW, bytes).expect("a copy")
    }

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
        let record = copy_it(dir.path(), &bytes);
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

    /// What is compared with its copy after `change`, and gives this.
    fn check_compared(mtime: SystemTime, change: impl Fn(&Path), was_settled: bool, expected: Option<bool>) {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("from"), b"12345").expect("a file");
        set_time(&dir.path().join("from"), mtime);
        let record = copy_it(dir.path(), &AtomicU64::new(0));
        assert_eq!(record.is_settled, was_settled);
        change(dir.path());
        for name in ["from", "to"] {
            set_time(&dir.path().join(name), mtime);
        }
        let open = |name| File::open(dir.path().join(name)).expect("there");
        let compared = compare(&open("from"), &open("to"), &record).expect("both are read");
        assert_eq!(compared, expected.map(|is_settled| Record { is_settled, ..record }));
    }

    fn set_time(path: &Path, mtime: SystemTime) {
        let file = File::options().write(true).open(path).expect("there");
        file.set_modified(mtime).expect("its time");
    }

    #[test]
    fn what_was_changed_just_now_is_compared_by_its_content() {
        let write = |name: &'static str, content: &'static str| {
            move |dir: &Path| fs::write(dir.join(name), content).expect("written")
        };
        let second = std::time::Duration::from_secs(1);
        let now = SystemTime::now();
        let (past, future) = (now - 100 * second, now + 100 * second);
        check_compared(past, write("from", "12345"), true, Some(true));
        check_compared(future, write("from", "12345"), false, Some(false));
        for name in ["from", "to"] {
            check_compared(future, write(name, "12346"), false, None);
            check_compared(future, write(name, "1234"), false, None);
            check_compared(future, write(name, "123456"), false, None);
        }
    }

    #[test]
    fn links_are_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("a b", dir.path().join("from")).expect("a link");
        let place = Directory::open(dir.path()).expect("a directory");
        let link = place.look("from".as_ref()).expect("there");
        for _ in 0..2 {
            copy_link(&link, &place, "to".as_ref(), HOW).expect("a copy");
            assert_eq!(fs::read_link(dir.path().join("to")).expect("a link"), Path::new("a b"));
        }
    }

    #[test]
    fn what_is_no_link_gets_no_attributes_of_one() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("to"), b"").expect("a file");
        let place = Directory::open(dir.path()).expect("a directory");
        let there = place.look("to".as_ref()).expect("there");
        let status = there.metadata().expect("its attributes");
        assert!(keep_link_attributes(&there, &status, HOW).is_err());
    }
}
