//! Records of what changes in a name space, as Lustre's changelog has them (`docs/changelog.md`).

use std::fmt;

use bytes::Bytes;

use crate::ids::Fid;
use crate::time::Timestamp;
use crate::wire_struct;

/// [`Record::flags`] of an UNLNK or a RMDIR: the last name went (`CLF_UNLINK_LAST`).
pub const LAST_NAME: u32 = 1;
/// [`Record::flags`] of a RENME: the file that had the new name lost its last one (`CLF_RENAME_LAST`).
pub const LAST_REPLACED: u32 = 1;

/// Longest address of a client in a record, in bytes.
pub const NID_BYTES_MAX: usize = 128;

/// Declares the kinds: number, name in the code, Lustre's word.
macro_rules! kinds {
    ($($(#[$doc:meta])* $number:literal $name:ident $word:literal,)*) => {
        /// What happened. The numbers are those of Lustre's `changelog_rec_type`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $number,)* }

        impl Kind {
            /// Every kind, in the order of the numbers.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// Lustre's word, of five letters at most.
            pub fn word(self) -> &'static str { match self { $(Kind::$name => $word,)* } }

            /// The kind with this number.
            pub fn of(number: u8) -> Option<Kind> { match number { $($number => Some(Kind::$name),)* _ => None } }
        }
    };
}

kinds! {
    /// A regular file was made.
    1 Create "CREAT",
    /// A directory was made.
    2 MakeDir "MKDIR",
    /// A file got one more name.
    3 Link "HLINK",
    /// A symbolic link was made.
    4 Symlink "SLINK",
    /// A device, a pipe or a socket was made.
    5 MakeNode "MKNOD",
    /// A name of a file that is no directory went.
    6 Unlink "UNLNK",
    /// A directory went.
    7 RemoveDir "RMDIR",
    /// A file got another name.
    8 Rename "RENME",
    /// A file that was written was closed.
    11 Close "CLOSE",
    /// Data lies elsewhere.
    12 Layout "LYOUT",
    /// A size was set.
    13 Truncate "TRUNC",
    /// Mode, owner or group was set.
    14 SetAttr "SATTR",
    /// An extended attribute changed.
    15 Xattr "XATTR",
    /// Its data was archived, released or restored, or its HSM flags were set.
    16 Hsm "HSM",
    /// The time of the last change of data was set, or became known after a writer was lost.
    17 ModifyTime "MTIME",
    /// Only the time of the last change changed.
    18 ChangeTime "CTIME",
    /// The time of the last access changed.
    19 AccessTime "ATIME",
}

impl Kind {
    /// Its bit of a mask.
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The kinds that are recorded unless others are wanted: all but accesses, as in Lustre.
pub const MASK: u32 = mask_of(Kind::ALL) & !Kind::AccessTime.bit();

const fn mask_of(kinds: &[Kind]) -> u32 {
    let (mut mask, mut at) = (0, 0);
    while at < kinds.len() {
        mask |= kinds[at].bit();
        at += 1;
    }
    mask
}

/// The words of the kinds in `mask`, as `changelog_mask` shows them. As in Lustre `MARK` is always among them, so that it is a mask, too,
/// if nothing is recorded; there are no such records here.
pub fn words_of(mask: u32) -> String {
    let kinds = Kind::ALL.iter().filter(|kind| mask & kind.bit() != 0);
    let words = std::iter::once("MARK").chain(kinds.map(|kind| kind.word()));
    words.collect::<Vec<_>>().join(" ")
}

/// The mask that `text` says: words, each of which may have `+` or `-` before it, and then changes `before`. `ALL` are all.
pub fn parse_mask(text: &str, before: u32) -> Option<u32> {
    let words: Vec<&str> = text.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let changes = words.iter().all(|word| word.starts_with(['+', '-']));
    let mut mask = if changes { before } else { 0 };
    for word in words {
        let bits = bits_of(word.trim_start_matches(['+', '-']))?;
        mask = if word.starts_with('-') { mask & !bits } else { mask | bits };
    }
    Some(mask)
}

/// Lustre's words for what never happens here are understood, and mean nothing.
fn bits_of(word: &str) -> Option<u32> {
    const NEVER: &[&str] = &["MARK", "RNMTO", "OPEN", "MIGRT", "FLRW", "RESYNC", "GXATR", "NOPEN"];
    if word.eq_ignore_ascii_case("ALL") {
        return Some(mask_of(Kind::ALL));
    }
    let kind = Kind::ALL.iter().find(|kind| kind.word().eq_ignore_ascii_case(word));
    let never = || NEVER.iter().any(|other| other.eq_ignore_ascii_case(word)).then_some(0);
    kind.map(|kind| kind.bit()).or_else(never)
}

wire_struct! {
    /// One change.
    pub struct Record {
        /// Its number: one more than that of the change before.
        pub index: u64,
        /// What happened: the number of a [`Kind`].
        pub kind: u8,
        /// What is special about it, as [`LAST_NAME`].
        pub flags: u32,
        /// When, by the clock of the server.
        pub time: Timestamp,
        /// The file; of a RENME the one that had the new name before, or [`Fid::ZERO`].
        pub target: Fid,
        /// The directory of the name, or [`Fid::ZERO`].
        pub parent: Fid,
        /// The name; of a RENME the new one.
        pub name: Bytes,
        /// Of a RENME the file that moved; else [`Fid::ZERO`].
        pub source: Fid,
        /// The directory that it had.
        pub source_parent: Fid,
        /// The name that it had.
        pub source_name: Bytes,
        /// The attribute of an XATTR.
        pub xattr: Bytes,
        /// Who did it; 0 for changes that come with a close.
        pub uid: u32,
        /// With which group.
        pub gid: u32,
        /// From where: `10.1.1.2@tcp`.
        pub nid: String,
        ;
        /// For which job; empty for none.
        pub job: String,
    }
}

impl Record {
    /// Something that happened to `target`, of which nothing else is known yet.
    pub fn new(kind: Kind, target: Fid) -> Record {
        Record {
            index: 0,
            kind: kind as u8,
            flags: 0,
            time: Timestamp { secs: 0, nanos: 0 },
            target,
            parent: Fid::ZERO,
            name: Bytes::new(),
            source: Fid::ZERO,
            source_parent: Fid::ZERO,
            source_name: Bytes::new(),
            xattr: Bytes::new(),
            uid: 0,
            gid: 0,
            nid: String::new(),
            job: String::new(),
        }
    }

    /// The same, of the entry `name` of `parent`.
    pub fn named(self, parent: Fid, name: &Bytes) -> Record {
        Record { parent, name: name.clone(), ..self }
    }

    /// The same, done by a user.
    pub fn by(self, uid: u32, gid: u32) -> Record {
        Record { uid, gid, ..self }
    }

    /// What happened, if this version knows it.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of(self.kind)
    }
}

impl fmt::Display for Record {
    /// As `lfs changelog` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind().map_or("", Kind::word);
        let (day, clock) = crate::time::civil(self.time.secs);
        write!(
            f,
            "{} {:02}{word:<5} {:02}:{:02}:{:02}.{:09} {:04}.{:02}.{:02} 0x{:x} t={}",
            self.index,
            self.kind,
            clock.0,
            clock.1,
            clock.2,
            self.time.nanos,
            day.0,
            day.1,
            day.2,
            self.flags,
            bracketed(self.target),
        )?;
        if !self.job.is_empty() {
            write!(f, " j={}", shown(self.job.as_bytes()))?;
        }
        // What is in the record: 1 users, 2 an address, 8 an attribute.
        let extra = 1 | if self.nid.is_empty() { 0 } else { 2 } | if self.xattr.is_empty() { 0 } else { 8 };
        write!(f, " ef=0x{extra:x} u={}:{}", self.uid, self.gid)?;
        if !self.nid.is_empty() {
            write!(f, " nid={}", self.nid)?;
        }
        if !self.xattr.is_empty() {
            write!(f, " x={}", String::from_utf8_lossy(&self.xattr))?;
        }
        if !self.name.is_empty() {
            write!(f, " p={} {}", bracketed(self.parent), shown(&self.name))?;
        }
        if self.source != Fid::ZERO {
            let (source, parent) = (bracketed(self.source), bracketed(self.source_parent));
            write!(f, " s={source} sp={parent} {}", shown(&self.source_name))?;
        }
        Ok(())
    }
}

fn bracketed(fid: Fid) -> String {
    let text = fid.to_string();
    if text.starts_with('[') { text } else { format!("[{text}]") }
}

/// A name in one line: what would end the line, or is no UTF-8, is escaped.
fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for part in name.utf8_chunks() {
        for char in part.valid().chars() {
            if char.is_control() || char == '\\' {
                text.extend(char.escape_default())
            } else {
                text.push(char)
            }
        }
        part.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_lustres_numbers_and_words() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(*kind as u8), Some(*kind));
            assert!(kind.word().len() <= 5);
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!((Kind::Unlink as u8, Kind::Unlink.word()), (6, "UNLNK"));
    }

    #[test]
    fn masks_are_set_and_changed() {
        assert_eq!(parse_mask("CREAT mkdir", 0), Some(Kind::Create.bit() | Kind::MakeDir.bit()));
        assert_eq!(parse_mask("-CLOSE", MASK), Some(MASK & !Kind::Close.bit()));
        assert_eq!(parse_mask("+ATIME -CREAT", Kind::Create.bit()), Some(Kind::AccessTime.bit()));
        assert_eq!(parse_mask("MARK RNMTO", MASK), Some(0));
        assert_eq!(parse_mask("HSM", 0), Some(Kind::Hsm.bit()));
        assert_eq!(parse_mask("ALL", 0), Some(MASK | Kind::AccessTime.bit()));
        assert_eq!(parse_mask("CREATE", 0), None);
        assert_eq!(parse_mask(&words_of(MASK), 0), Some(MASK));
        assert_eq!(words_of(Kind::Create.bit() | Kind::MakeDir.bit()), "MARK CREAT MKDIR");
        assert_eq!(words_of(0), "MARK", "a mask that records nothing is no empty line");
    }

    #[test]
    fn records_are_lines_as_lustres() {
        let fid = |oid| Fid { seq: 0x2_0000_0401, oid, ver: 0 };
        let time = Timestamp { secs: 1_669_115_034, nanos: 129_724_442 };
        let made = Record::new(Kind::Create, fid(2)).named(fid(1), &Bytes::from_static(b"a\nb")).by(5, 6);
        let made = Record { index: 7, time, nid: "10.1.1.2@tcp".into(), ..made };
        assert_eq!(
            made.to_string(),
            "7 01CREAT 11:03:54.129724442 2022.11.22 0x0 t=[0x200000401:0x2:0x0] ef=0x3 u=5:6 nid=10.1.1.2@tcp \
             p=[0x200000401:0x1:0x0] a\\nb"
        );
        let of_job = Record { job: "4711".into(), ..made };
        assert!(of_job.to_string().contains(" t=[0x200000401:0x2:0x0] j=4711 ef=0x3 u=5:6 "), "{of_job}");
        let moved = Record::new(Kind::Rename, Fid::ZERO).named(fid(1), &Bytes::from_static(b"new"));
        let old = Bytes::from_static(b"o\xffd");
        let moved = Record { source: fid(3), source_parent: fid(4), source_name: old, time, ..moved };
        assert_eq!(
            moved.to_string(),
            "0 08RENME 11:03:54.129724442 2022.11.22 0x0 t=[0x0:0x0:0x0] ef=0x1 u=0:0 p=[0x200000401:0x1:0x0] new \
             s=[0x200000401:0x3:0x0] sp=[0x200000401:0x4:0x0] o\\xffd"
        );
    }
}
