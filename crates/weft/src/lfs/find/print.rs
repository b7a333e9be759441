//! What `lfs find` prints of each file: its path, or what a format says.

use std::collections::BTreeMap;
use std::io::{self, Write};

use proto::find::{last_part, path_below};
use proto::wire::messages::Found;
use proto::{Attr, Fid, FileKind, Layout, Timestamp};

use super::Action;
use super::numbers::{Database, name_of};

/// A format, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Format(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// The letter behind `%`.
    Of(u8),
    /// The letter behind `%L`.
    OfLayout(u8),
    /// `%LP`, as Lustre has it.
    Project,
    /// The letter before `@`: seconds.
    Seconds(u8),
}

/// Directives that need nothing but the path, the kind and the FID.
const OF_NAME: &[u8] = b"pPfhHdyil";
const OF_INODE: &[u8] = b"sbkmMugUGn";
const OF_LAYOUT: &[u8] = b"cSiop";

impl Format {
    /// Takes a format apart.
    pub fn parse(text: &[u8]) -> Result<Format, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some((&first, behind)) = rest.split_first() {
            rest = behind;
            match first {
                b'\\' => plain.push(escape(&mut rest)?),
                b'%' if rest.first() == Some(&b'%') => {
                    plain.push(b'%');
                    rest = &rest[1..];
                }
                b'%' => {
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(directive(&mut rest)?);
                }
                other => plain.push(other),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Format(parts))
    }

    /// Whether attributes or the layout are needed.
    pub fn wants_entry(&self) -> bool {
        self.0.iter().any(|part| match part {
            Part::Text(_) => false,
            Part::Of(letter) => OF_INODE.contains(letter),
            Part::OfLayout(letter) => *letter != b'F',
            Part::Seconds(_) | Part::Project => true,
        })
    }

    /// Whether the targets of symbolic links are needed.
    pub fn wants_target(&self) -> bool {
        self.0.contains(&Part::Of(b'l'))
    }
}

/// The byte that is meant by what stands behind a backslash.
fn escape(rest: &mut &[u8]) -> Result<u8, String> {
    let Some((&letter, behind)) = rest.split_first() else {
        return Err("the format ends behind a backslash".to_owned());
    };
    let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
    if digits > 0 {
        let value = rest[..digits].iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
        *rest = &rest[digits..];
        return u8::try_from(value).map_err(|_| "the format has an octal number beyond 377".to_owned());
    }
    *rest = behind;
    Ok(match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'\\' => b'\\',
        other => return Err(format!("the format has '\\{}', which is not known", char::from(other))),
    })
}

fn directive(rest: &mut &[u8]) -> Result<Part, String> {
    let (part, taken) = match rest {
        [of @ (b'A' | b'C' | b'T' | b'B'), b'@', ..] => (Part::Seconds(*of), 2),
        [b'L', b'F', ..] => (Part::OfLayout(b'F'), 2),
        [b'L', b'P', ..] => (Part::Project, 2),
        [b'L', of, ..] if OF_LAYOUT.contains(of) => (Part::OfLayout(*of), 2),
        [of, ..] if OF_NAME.contains(of) || OF_INODE.contains(of) => (Part::Of(*of), 1),
        other => {
            let len = if matches!(other.first(), Some(b'A' | b'C' | b'T' | b'B' | b'L')) { 2 } else { 1 };
            let shown = String::from_utf8_lossy(&other[..len.min(other.len())]);
            return Err(format!("the format has '%{shown}', which is not known"));
        }
    };
    *rest = &rest[taken..];
    Ok(part)
}

/// Prints what is found.
#[derive(Default)]
pub struct Printer {
    /// Names of users and groups that were looked up.
    names: BTreeMap<(Database, u32), String>,
}

impl Printer {
    /// Prints what a page has found below `start`.
    pub fn page(&mut self, action: &Action, start: &[u8], found: &[Found]) {
        let mut text = Vec::new();
        for file in found {
            let path = path_below(start, &file.path);
            match action {
                Action::Count => {}
                Action::Print(end) => {
                    text.extend_from_slice(&path);
                    text.push(*end);
                }
                Action::Format(format) => self.format(format, &mut text, &Shown { start, path: &path, file }),
            }
        }
        if !text.is_empty() {
            crate::out::print_with(|out| out.write_all(&text));
        }
    }

    fn format(&mut self, format: &Format, out: &mut Vec<u8>, shown: &Shown<'_>) {
        for part in &format.0 {
            let written = match part {
                Part::Text(text) => out.write_all(text),
                Part::Of(letter) if OF_NAME.contains(letter) => shown.put_name(*letter, out),
                Part::Of(letter) => match &shown.file.entry {
                    Some(entry) => self.put_inode(*letter, &entry.attr, out),
                    None => Ok(()),
                },
                Part::Project => match &shown.file.entry {
                    Some(entry) => write!(out, "{}", entry.attr.project),
                    None => Ok(()),
                },
                Part::Seconds(of) => match &shown.file.entry {
                    Some(entry) => put_seconds(*of, &entry.attr, out),
                    None => Ok(()),
                },
                Part::OfLayout(b'F') => write!(out, "{}", shown.file.fid),
                Part::OfLayout(letter) => {
                    let layout = shown.file.entry.as_ref().and_then(|entry| entry.layout.as_ref());
                    layout.map_or(Ok(()), |layout| put_layout(*letter, layout, out))
                }
            };
            written.expect("memory takes all that is written to it");
        }
    }

    fn put_inode(&mut self, letter: u8, attr: &Attr, out: &mut Vec<u8>) -> io::Result<()> {
        match letter {
            b's' => write!(out, "{}", attr.size),
            b'b' => write!(out, "{}", attr.blocks),
            b'k' => write!(out, "{}", attr.blocks.div_ceil(2)),
            b'm' => write!(out, "{:o}", attr.mode & 0o7777),
            b'M' => write!(out, "{}", permissions(attr)),
            b'u' => out.write_all(self.name(Database::Users, attr.uid).as_bytes()),
            b'g' => out.write_all(self.name(Database::Groups, attr.gid).as_bytes()),
            b'U' => write!(out, "{}", attr.uid),
            b'G' => write!(out, "{}", attr.gid),
            _ => write!(out, "{}", attr.nlink),
        }
    }

    fn name(&mut self, database: Database, id: u32) -> &str {
        let look_up = || name_of(database, id).unwrap_or_else(|| id.to_string());
        self.names.entry((database, id)).or_insert_with(look_up)
    }
}

struct Shown<'a> {
    start: &'a [u8],
    path: &'a [u8],
    file: &'a Found,
}

impl Shown<'_> {
    fn put_name(&self, letter: u8, out: &mut Vec<u8>) -> io::Result<()> {
        let below = &self.file.path;
        match letter {
            b'p' => out.write_all(self.path),
            b'P' => out.write_all(below),
            b'f' => {
                out.write_all(last_part(self.path))?;
                // As find(1) has it of a start.
                out.write_all(if without_slashes(self.path).len() < self.path.len() { b"/" } else { b"" })
            }
            b'h' => out.write_all(above(self.path)),
            b'H' => out.write_all(self.start),
            b'd' if below.is_empty() => out.write_all(b"0"),
            b'd' => write!(out, "{}", 1 + below.iter().filter(|byte| **byte == b'/').count()),
            b'y' => out.write_all(&[kind_letter(self.file.mode)]),
            b'i' => write!(out, "{}", inode_number(self.file.fid)),
            _ => out.write_all(self.file.target.as_deref().unwrap_or_default()),
        }
    }
}

/// Slashes at the end of a start do not count, unless there is nothing else.
fn without_slashes(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte != b'/').map_or(path, |last| &path[..=last])
}

/// What is before the last part of a path.
fn above(path: &[u8]) -> &[u8] {
    let path = without_slashes(path);
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(slash) => &path[..slash],
        None => b".",
    }
}

/// As `stat` shows it.
fn inode_number(fid: Fid) -> u64 {
    fid.ino().0
}

fn kind_letter(mode: u32) -> u8 {
    match FileKind::from_mode(mode) {
        Some(FileKind::File) => b'f',
        Some(FileKind::Dir) => b'd',
        Some(FileKind::Symlink) => b'l',
        Some(FileKind::Fifo) => b'p',
        Some(FileKind::Char) => b'c',
        Some(FileKind::Block) => b'b',
        Some(FileKind::Socket) => b's',
        None => b'U',
    }
}

/// As `ls -l` shows them.
fn permissions(attr: &Attr) -> String {
    let kind = match kind_letter(attr.mode) {
        b'f' => '-',
        letter => char::from(letter),
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn put_seconds(of: u8, attr: &Attr, out: &mut Vec<u8>) -> io::Result<()> {
    let Timestamp { secs, nanos } = match of {
        b'A' => attr.atime,
        b'C' => attr.ctime,
        b'B' => attr.btime,
        _ => attr.mtime,
    };
    // With the ten digits that find(1) gives.
    write!(out, "{secs}.{nanos:09}0")
}

fn put_layout(letter: u8, layout: &Layout, out: &mut Vec<u8>) -> io::Result<()> {
    let Some(last) = layout.components.iter().rfind(|component| component.is_placed()) else { return Ok(()) };
    let osts: Vec<String> = last.osts().map(|ost| ost.0.to_string()).collect();
    match letter {
        b'c' => write!(out, "{}", osts.len()),
        b'S' => write!(out, "{}", last.stripe_size),
        b'i' => write!(out, "{}", osts.first().map_or("", String::as_str)),
        b'o' => write!(out, "{}", osts.join(",")),
        _ => write!(out, "{}", last.pool),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::OstIndex;
    use proto::layout::Component;
    use proto::wire::messages::{Entry, Granted};

    use super::*;

    fn found() -> Found {
        let fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        let time = |secs| Timestamp { secs, nanos: 5 };
        let attr = Attr {
            fid,
            mode: 0o104_751,
            nlink: 2,
            uid: 4_000_000_000,
            gid: 4_000_000_001,
            rdev: 0,
            size: 3901,
            blocks: 9,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            btime: time(0),
            size_known: true,
            version: 1,
            mtime_set: time(2),
            project: 70,
            inherits: false,
        };
        let layout = Layout::from(Component::striped(fid, 1 << 20, [3, 1].map(OstIndex)));
        Found {
            path: Bytes::from_static(b"d/f"),
            fid,
            mode: 0o100_000,
            open: false,
            entry: Some(Box::new(Entry {
                attr,
                layout: Some(layout),
                xattrs: false,
                lock: Granted::default(),
            })),
            target: None,
        }
    }

    fn check(format: &str, expected: &str) {
        let format = Format::parse(format.as_bytes()).expect("a format");
        let (mut out, file) = (Vec::new(), found());
        let shown = Shown { start: b"/m", path: b"/m/d/f", file: &file };
        Printer::default().format(&format, &mut out, &shown);
        assert_eq!(String::from_utf8_lossy(&out), expected, "{format:?}");
    }

    #[test]
    fn slashes_at_the_end_of_a_start_are_those_of_find() {
        let file = Found { path: Bytes::new(), ..found() };
        for (start, expected) in [("/m/d", "d|/m"), ("/m/d//", "d/|/m"), ("d/", "d/|."), (".", ".|.")] {
            let format = Format::parse(b"%f|%h").expect("a format");
            let shown = Shown { start: start.as_bytes(), path: start.as_bytes(), file: &file };
            let mut out = Vec::new();
            Printer::default().format(&format, &mut out, &shown);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{start}");
        }
    }

    #[test]
    fn formats() {
        check("%p\\n", "/m/d/f\n");
        check("%P|%f|%h|%H|%d|%y", "d/f|f|/m/d|/m|2|f");
        check("%s %b %k %n", "3901 9 5 2");
        check("%m %M", "4751 -rwsr-x--x");
        check("%U:%G %u:%g", "4000000000:4000000001 4000000000:4000000001");
        check("%A@ %T@ %C@", "1.0000000050 2.0000000050 3.0000000050");
        check("%LP", "70");
        check("%LF %Lc %LS %Li %Lo", "[0x200000400:0x1:0x0] 2 1048576 3 3,1");
        check("100%%\\t\\101\\\\", "100%\tA\\");
    }

    #[test]
    fn what_is_needed() {
        let wants = |text: &str| {
            let format = Format::parse(text.as_bytes()).expect("a format");
            (format.wants_entry(), format.wants_target())
        };
        assert_eq!(wants("%p %f %y %LF\n"), (false, false));
        assert_eq!(wants("%p %s"), (true, false));
        assert_eq!(wants("%l"), (false, true));
        assert_eq!(wants("%Lc"), (true, false));
        assert!(Format::parse(b"%").is_err());
        assert!(Format::parse(b"\\").is_err());
        assert!(Format::parse(b"\\777").is_err());
        assert_eq!(Format::parse(b"%TY"), Err("the format has '%TY', which is not known".to_owned()));
    }
}
