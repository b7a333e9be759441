//! What a stager keeps of its work, as lines of text: the plan, and what of it is done. Nothing here touches a disk.
//!
//! Each line begins with the CRC32C of the rest, so that a line that was being written at a crash is told from one that was.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The first word of a plan, and the version of both files.
const MAGIC: &str = "weft-stage 1";
/// The first word of records.
const TREES: &str = "weft-staged 1";
/// The last word of a settled record.
const SETTLED: &str = " settled";

/// What a name in the source stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// Something that has to be in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file when the plan was made: for the progress that is shown.
    pub size: u64,
    /// Below the source, and below the target.
    pub path: PathBuf,
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// The directory that it is in.
    pub fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// What a plan is for. Another source, target or list takes another plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purpose {
    /// The tree that is copied.
    pub source: PathBuf,
    /// Where it goes.
    pub target: PathBuf,
    /// Checksum of the list of names, if there is one.
    pub list: u32,
}

/// Size and time of the last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// In bytes.
    pub size: u64,
    /// In nanoseconds since 1970.
    pub mtime: i128,
}

/// A file that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Of the source when it was read.
    pub source: Stamp,
    /// Of the copy. A file system may keep times less exactly than the other one.
    pub copy_mtime: i128,
    /// CRC32C of the content.
    pub checksum: u32,
    /// A change after the copy would show in the time.
    pub is_settled: bool,
}

/// The longest step of a clock that a file system has, which is that of FAT. A machine's clock may be behind another one's as much.
const CLOCK_STEP: i128 = 2_000_000_000;

/// Whether a file that was last changed at `mtime` gets another time by every change after `read`, from when on it was read: one in the
/// same step of the clock would leave the time as it was.
pub fn is_settled(mtime: i128, read: i128) -> bool {
    mtime + CLOCK_STEP < read
}

impl Record {
    /// Whether a file and its copy have the sizes and times that they had. If the record is not settled, their content may be another one
    /// all the same.
    pub fn fits(&self, source: Stamp, copy: Stamp) -> bool {
        self.source == source && copy == Stamp { size: source.size, mtime: self.copy_mtime }
    }
}

/// The part of temporary names that belongs to a purpose and a place of its state: another stager's are left alone.
pub fn mark(purpose: &Purpose, state: &Path) -> String {
    let mut words = Vec::new();
    for path in [&purpose.source, &purpose.target, &state.to_path_buf()] {
        words.extend_from_slice(path.as_os_str().as_bytes());
        words.push(0);
    }
    format!("{TEMPORARY}{:08x}-", proto::wire::header::crc32c(&words))
}

/// What temporary names begin with; the rest of the [`mark`], the number of a thread and that of the name follow.
const TEMPORARY: &str = ".weft-stage-";

/// Whether a stager that was killed may have left this name: what it means is not whole.
pub fn is_temporary(name: &OsStr) -> bool {
    let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)) else { return false };
    let parts: Vec<&str> = rest.split('-').collect();
    let is_hex = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match parts[..] {
        [mark, number, name] => is_hex(mark) && number.parse::<usize>().is_ok() && is_hex(name),
        _ => false,
    }
}

/// A plan as a file.
pub fn write_plan(purpose: &Purpose, entries: &[Entry]) -> Vec<u8> {
    let (source, target) = (escape(purpose.source.as_os_str()), escape(purpose.target.as_os_str()));
    let mut text = line(&format!("{MAGIC} {source} {target} {:08x}", purpose.list));
    for entry in entries {
        let kind = match entry.kind {
            Kind::File => 'f',
            Kind::Directory => 'd',
            Kind::Link => 'l',
        };
        text += &line(&format!("{kind} {} {}", entry.size, escape(entry.path.as_os_str())));
    }
    text += &line(&format!("end {}", entries.len()));
    text.into_bytes()
}

/// Reads a plan and what it is for; none if it is not whole.
pub fn read_plan(bytes: &[u8]) -> Option<(Purpose, Vec<Entry>)> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines().map(checked);
    let purpose = read_purpose(lines.next()??)?;
    let mut entries = Vec::new();
    loop {
        let words: Vec<&str> = lines.next()??.split(' ').collect();
        match words[..] {
            ["end", count] if count.parse() == Ok(entries.len()) => return Some((purpose, entries)),
            [kind, size, path] => {
                let kind = match kind {
                    "f" => Kind::File,
                    "d" => Kind::Directory,
                    "l" => Kind::Link,
                    _ => return None,
                };
                let path = PathBuf::from(unescape(path)?);
                if !is_below(&path) {
                    return None;
                }
                entries.push(Entry { kind, size: size.parse().ok()?, path });
            }
            _ => return None,
        }
    }
}

fn read_purpose(text: &str) -> Option<Purpose> {
    let words: Vec<&str> = text.strip_prefix(MAGIC)?.trim_start().split(' ').collect();
    let [source, target, list] = words[..] else { return None };
    let list = u32::from_str_radix(list, 16).ok()?;
    Some(Purpose { source: unescape(source)?.into(), target: unescape(target)?.into(), list })
}

/// Whether a path names something below a directory, and nothing else: no root, no `..`.
pub fn is_below(path: &Path) -> bool {
    use std::path::Component;
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The line that records begin with: they are of copies from one tree to another, and say nothing of copies from elsewhere.
pub fn write_trees(purpose: &Purpose) -> String {
    let (source, target) = (escape(purpose.source.as_os_str()), escape(purpose.target.as_os_str()));
    line(&format!("{TREES} {source} {target}"))
}

/// A line for a file that was copied.
pub fn write_record(path: &Path, record: &Record) -> String {
    let Record { source, copy_mtime, checksum, is_settled } = record;
    let path = escape(path.as_os_str());
    let settled = if *is_settled { SETTLED } else { "" };
    line(&format!("{} {} {copy_mtime} {checksum:08x} {path}{settled}", source.size, source.mtime))
}

/// Reads the lines of files that were copied, the last one of each counts. Lines that are damaged count for nothing, and none do behind a
/// first line that is not that of the `purpose`: their files are copied again.
pub fn read_records(purpose: &Purpose, bytes: &[u8]) -> BTreeMap<PathBuf, Record> {
    let Some(records) = bytes.strip_prefix(write_trees(purpose).as_bytes()) else { return BTreeMap::new() };
    let lines = records.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| read_record(checked(line)?)).collect()
}

fn read_record(text: &str) -> Option<(PathBuf, Record)> {
    let settled = text.strip_suffix(SETTLED);
    let words: Vec<&str> = settled.unwrap_or(text).split(' ').collect();
    let [size, mtime, copy_mtime, checksum, path] = words[..] else { return None };
    let source = Stamp { size: size.parse().ok()?, mtime: mtime.parse().ok()? };
    let copy_mtime = copy_mtime.parse().ok()?;
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    let record = Record { source, copy_mtime, checksum, is_settled: settled.is_some() };
    Some((unescape(path)?.into(), record))
}

fn line(text: &str) -> String {
    format!("{:08x} {text}\n", proto::wire::header::crc32c(text.as_bytes()))
}

fn checked(line: &str) -> Option<&str> {
    let (sum, text) = line.split_once(' ')?;
    let right = proto::wire::header::crc32c(text.as_bytes());
    (u32::from_str_radix(sum, 16).ok()? == right).then_some(text)
}

/// A name without spaces and line ends: what is not a visible character of ASCII is `%` and two digits.
fn escape(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.as_bytes() {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            other => text += &format!("%{other:02x}"),
        }
    }
    text
}

fn unescape(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purpose() -> Purpose {
        Purpose { source: "/mnt/a b".into(), target: "/scratch".into(), list: 7 }
    }

    fn entries() -> Vec<Entry> {
        let odd = OsString::from_vec(b"d/\xff\n% x".to_vec());
        vec![
            Entry { kind: Kind::Directory, size: 0, path: "d".into() },
            Entry { kind: Kind::File, size: 1 << 40, path: odd.into() },
            Entry { kind: Kind::Link, size: 3, path: "l".into() },
        ]
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let bytes = write_plan(&purpose(), &entries());
        assert_eq!(read_plan(&bytes), Some((purpose(), entries())));
        assert_eq!(read_plan(&write_plan(&purpose(), &[])), Some((purpose(), Vec::new())));
    }

    #[test]
    fn a_plan_that_is_not_whole_is_none() {
        let bytes = write_plan(&purpose(), &entries());
        for length in 0..bytes.len() - 1 {
            assert_eq!(read_plan(&bytes[..length]), None, "{length}");
        }
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(read_plan(&damaged), None, "{at}");
        }
        for path in ["../x", "/etc/passwd", "a/../../x", ""] {
            let entry = Entry { kind: Kind::File, size: 0, path: path.into() };
            assert_eq!(read_plan(&write_plan(&purpose(), &[entry])), None, "{path}");
        }
    }

    const STAMP: Stamp = Stamp { size: 5, mtime: 1_000_000_007 };
    const RECORD: Record =
        Record { source: STAMP, copy_mtime: 1_000_000_000, checksum: 0xabc, is_settled: true };

    #[test]
    fn the_last_whole_record_of_a_file_counts() {
        let newer = Record { checksum: 1, is_settled: false, ..RECORD };
        let mut text = write_trees(&purpose()) + &write_record(Path::new("a b"), &RECORD);
        text += &write_record(Path::new("c"), &RECORD);
        text += &write_record(Path::new("a b"), &newer);
        let cut = &write_record(Path::new("c"), &newer)[..20];
        let read_records = |text: &str| read_records(&purpose(), text.as_bytes());
        let read = read_records(&(text.clone() + cut));
        assert_eq!(read, BTreeMap::from([("a b".into(), newer), ("c".into(), RECORD)]));
        // The next writer's line stands behind the torn one.
        let read = read_records(&(text.clone() + cut + "\n" + &write_record(Path::new("d"), &newer)));
        assert_eq!(read.len(), 3);
        // Another tree may have files of the same names, sizes and times.
        let elsewhere = Purpose { source: "/mnt/b".into(), ..purpose() };
        assert!(super::read_records(&elsewhere, text.as_bytes()).is_empty());
        assert!(read_records(&text[text.find('\n').unwrap_or_default() + 1..]).is_empty());
    }

    #[test]
    fn what_records_fit() {
        let copy = Stamp { size: 5, mtime: 1_000_000_000 };
        assert!(RECORD.fits(STAMP, copy));
        assert!(!RECORD.fits(Stamp { size: 6, ..STAMP }, copy));
        assert!(!RECORD.fits(Stamp { mtime: 1_000_000_008, ..STAMP }, copy));
        assert!(!RECORD.fits(STAMP, Stamp { size: 4, ..copy }));
        assert!(!RECORD.fits(STAMP, Stamp { mtime: 1, ..copy }));
    }

    #[test]
    fn what_is_settled() {
        let read = 1_000_000_000_000;
        for (mtime, expected) in [
            (0, true),
            (read - CLOCK_STEP - 1, true),
            (read - CLOCK_STEP, false),
            (read, false),
            (2 * read, false),
        ] {
            assert_eq!(is_settled(mtime, read), expected, "{mtime}");
        }
    }

    #[test]
    fn temporary_names_are_their_stagers() {
        let here = mark(&purpose(), Path::new("/s"));
        assert_eq!(here, mark(&purpose(), Path::new("/s")));
        assert_ne!(here, mark(&purpose(), Path::new("/t")));
        assert_ne!(here, mark(&Purpose { target: "/x".into(), ..purpose() }, Path::new("/s")));
    }
}
