//! The record of an inode. Specified in `docs/disk-mdt.md#inode`.

mod hsm;
mod layout;

pub use hsm::Hsm;

use bytes::Bytes;
use proto::acl::Acl;
use proto::layout::LayoutHint;
use proto::types::MODE_KIND;
use proto::wire::Reader;
use proto::wire::messages::{Entry, Granted, LOCK_LAYOUT, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR};
use proto::{Attr, Code, Fid, FileKind, FileOwner, Layout, Timestamp};
use service::VERSION_OF_THIS;
use store::sums::INODE_FORMAT_OF_PROJECTS;

/// Version of the format of inodes without a project.
const FORMAT: u8 = 2;
/// Version of the format of those that have one, or pass it on: it follows the fixed part.
const FORMAT_OF_PROJECTS: u8 = INODE_FORMAT_OF_PROJECTS;
/// Bytes of the part that every inode has.
const FIXED_BYTES: usize = 116;
/// Bytes of a project.
const PROJECT_BYTES: usize = 4;

/// `size` and `blocks` are the truth.
const FLAG_SIZE_KNOWN: u8 = 1 << 0;
/// Something was written once: the file may have objects.
const FLAG_WRITTEN: u8 = 1 << 1;
/// The inode may have extended attributes.
const FLAG_XATTRS: u8 = 1 << 2;
/// What is made in the directory gets its project.
const FLAG_INHERITS: u8 = 1 << 3;

const TAG_LAYOUT: u8 = 1;
const TAG_HINT: u8 = 2;
const TAG_TARGET: u8 = 3;
const TAG_ACL: u8 = 5;
const TAG_DEFAULT_ACL: u8 = 6;
const TAG_HSM: u8 = 7;

/// Size of a directory in bytes, as `stat` shows it.
const DIR_BYTES: u64 = 4096;

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its name.
    pub fid: Fid,
    /// Kind and permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Used space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of anything; never goes back.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Time of the call that set `mtime` to what it is: data written earlier does not change it any more.
    pub mtime_set: Timestamp,
    /// Directory above; of directories only.
    pub parent: Fid,
    /// Whether `size` and `blocks` are the truth.
    pub size_known: bool,
    /// Whether something was written once.
    pub written: bool,
    /// Whether there may be extended attributes.
    pub xattrs: bool,
    /// The project that it counts for; 0 for none.
    pub project: u32,
    /// Whether what is made in it gets its project; of directories only.
    pub inherits: bool,
    /// Where the data lies; of regular files.
    pub layout: Option<Layout>,
    /// Layout of new files; of directories that say so.
    pub hint: Option<LayoutHint>,
    /// Target of a symbolic link.
    pub target: Bytes,
    /// Who may do what, if that is more than the mode says. Its mode is the inode's.
    pub acl: Option<Acl>,
    /// What new files in it inherit; of directories.
    pub default_acl: Option<Acl>,
    /// What an archive has of a regular file, or may have; nothing in most.
    pub hsm: Hsm,
    /// Transno of the last change.
    pub version: u64,
}

impl Inode {
    /// An inode without links, as `mode` and `time` say.
    pub fn new(fid: Fid, mode: u32, time: Timestamp) -> Inode {
        let is_dir = mode & MODE_KIND == FileKind::Dir.mode_bits();
        Inode {
            fid,
            mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev: 0,
            size: if is_dir { DIR_BYTES } else { 0 },
            blocks: if is_dir { DIR_BYTES / 512 } else { 0 },
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            mtime_set: time,
            parent: Fid::ZERO,
            size_known: true,
            written: false,
            xattrs: false,
            project: 0,
            inherits: false,
            layout: None,
            hint: None,
            target: Bytes::new(),
            acl: None,
            default_acl: None,
            hsm: Hsm::default(),
            version: VERSION_OF_THIS,
        }
    }

    /// For whom it counts.
    pub fn owner(&self) -> FileOwner {
        FileOwner { uid: self.uid, gid: self.gid, version: self.version, project: self.project }
    }

    /// Whether it counts for others than `other` does.
    pub fn counts_for_others(&self, other: &Inode) -> bool {
        (self.uid, self.gid, self.project) != (other.uid, other.gid, other.project)
    }

    /// Whether it may come into the directory `dir`: what is in one that passes its project on is all of that project.
    pub fn fits_into(&self, dir: &Inode) -> bool {
        !dir.inherits || dir.project == self.project
    }

    /// Kind of the file.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::File)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }

    /// Whether OSTs may hold objects of it.
    pub fn may_have_objects(&self) -> bool {
        self.layout.is_some() && (self.written || !self.size_known || self.size != 0)
    }

    /// The attributes.
    pub fn attr(&self) -> Attr {
        Attr {
            fid: self.fid,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            size_known: self.size_known,
            version: self.version,
            mtime_set: self.mtime_set,
            project: self.project,
            inherits: self.inherits,
        }
    }

    /// Attributes and layout, of which nothing may be kept.
    pub fn entry(&self) -> Entry {
        self.entry_kept(Granted::default())
    }

    /// Attributes and layout, of which `lock` may be kept.
    pub fn entry_kept(&self, lock: Granted) -> Entry {
        Entry { attr: self.attr(), layout: self.layout.clone(), xattrs: self.xattrs, lock }
    }

    /// Somebody may write from now on: what is known of the size and of the archive's copy may be old.
    pub fn begin_writing(&mut self) {
        self.size_known = false;
        self.hsm.data_may_change();
    }

    /// Refuses a change of data that is in an archive alone.
    pub fn check_there(&self) -> Result<(), Code> {
        if self.hsm.is_released() { Err(Code::Released) } else { Ok(()) }
    }

    /// One link less. An inode that has none any more is damaged; a check mends it, and the MDT goes on.
    pub fn lose_link(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
    }

    /// Something changed at `time`.
    pub fn touch(&mut self, time: Timestamp) {
        self.ctime = self.ctime.max(time);
        self.version = VERSION_OF_THIS;
    }

    /// Data, or the entries of a directory, changed at `time`.
    pub fn touch_data(&mut self, time: Timestamp) {
        self.mtime = time;
        self.mtime_set = time;
        self.touch(time);
    }

    /// What of it others see change when it becomes `after` (`LOCK_*` bits). The time of the last change counts only
    /// together with everything else (`docs/locks.md`).
    pub fn seen_changes(&self, after: &Inode) -> u32 {
        let bit = |changed: bool, bit: u32| if changed { bit } else { 0 };
        let (a, b) = (self, after);
        bit((a.mode, a.uid, a.gid) != (b.mode, b.uid, b.gid), LOCK_PERM)
            | bit((a.project, a.inherits) != (b.project, b.inherits), LOCK_PERM)
            | bit((a.nlink, a.parent) != (b.nlink, b.parent), LOCK_UPDATE)
            | bit((a.size, a.blocks, a.size_known) != (b.size, b.blocks, b.size_known), LOCK_UPDATE)
            | bit((a.mtime, a.mtime_set, a.btime) != (b.mtime, b.mtime_set, b.btime), LOCK_UPDATE)
            | bit(a.atime != b.atime, LOCK_UPDATE)
            | bit(a.layout != b.layout, LOCK_LAYOUT)
            | bit(a.acl != b.acl, LOCK_PERM)
            | bit((a.xattrs, &a.acl, &a.default_acl) != (b.xattrs, &b.acl, &b.default_acl), LOCK_XATTR)
    }

    /// The record.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(FIXED_BYTES + 96);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let has_project = self.project != 0 || self.inherits;
        out.push(if has_project { FORMAT_OF_PROJECTS } else { FORMAT });
        out.push(
            flag(self.size_known, FLAG_SIZE_KNOWN)
                | flag(self.written, FLAG_WRITTEN)
                | flag(self.xattrs, FLAG_XATTRS)
                | flag(self.inherits, FLAG_INHERITS),
        );
        out.extend_from_slice(&[0, 0]);
        for number in [self.mode, self.nlink, self.uid, self.gid, self.rdev] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        for time in [self.atime, self.mtime, self.ctime, self.btime, self.mtime_set] {
            out.extend_from_slice(&time.secs.to_le_bytes());
            out.extend_from_slice(&time.nanos.to_le_bytes());
        }
        out.extend_from_slice(&self.parent.to_key());
        if has_project {
            out.extend_from_slice(&self.project.to_le_bytes());
        }
        if let Some(layout) = &self.layout {
            put_tagged(&mut out, TAG_LAYOUT, |out| layout::put_layout(out, layout));
        }
        if let Some(hint) = &self.hint {
            put_tagged(&mut out, TAG_HINT, |out| layout::put_hint(out, hint));
        }
        if !self.target.is_empty() {
            put_tagged(&mut out, TAG_TARGET, |out| out.extend_from_slice(&self.target));
        }
        for (tag, acl) in [(TAG_ACL, &self.acl), (TAG_DEFAULT_ACL, &self.default_acl)] {
            if let Some(acl) = acl {
                put_tagged(&mut out, tag, |out| out.extend_from_slice(&acl.encode()));
            }
        }
        if self.hsm != Hsm::default() {
            put_tagged(&mut out, TAG_HSM, |out| self.hsm.put(out));
        }
        out.into()
    }

    /// The inode in a record; `None` if it is none of this format.
    pub fn decode(fid: Fid, record: &Bytes, version: u64) -> Option<Inode> {
        let mut inode = Inode::decode_fixed(fid, record, version)?;
        let fixed = match record.first() {
            Some(&FORMAT_OF_PROJECTS) => FIXED_BYTES + PROJECT_BYTES,
            _ => FIXED_BYTES,
        };
        if record.len() > fixed {
            inode.decode_tagged(record.slice(fixed..))?;
        }
        Some(inode)
    }

    /// The same without what not every inode has: layout, target, ACLs.
    pub fn decode_fixed(fid: Fid, record: &[u8], version: u64) -> Option<Inode> {
        let (fixed, rest) = record.split_first_chunk::<FIXED_BYTES>()?;
        let project = match fixed[0] {
            FORMAT => 0,
            FORMAT_OF_PROJECTS => u32::from_le_bytes(*rest.first_chunk::<PROJECT_BYTES>()?),
            _ => return None,
        };
        if fixed[2..4] != [0, 0] {
            return None;
        }
        let mut from = Fixed { rest: &fixed[4..] };
        Some(Inode {
            fid,
            mode: from.number(),
            nlink: from.number(),
            uid: from.number(),
            gid: from.number(),
            rdev: from.number(),
            size: from.long(),
            blocks: from.long(),
            atime: from.time(),
            mtime: from.time(),
            ctime: from.time(),
            btime: from.time(),
            mtime_set: from.time(),
            parent: Fid::from_key(from.rest)?,
            size_known: fixed[1] & FLAG_SIZE_KNOWN != 0,
            written: fixed[1] & FLAG_WRITTEN != 0,
            xattrs: fixed[1] & FLAG_XATTRS != 0,
            project,
            inherits: fixed[1] & FLAG_INHERITS != 0,
            layout: None,
            hint: None,
            target: Bytes::new(),
            acl: None,
            default_acl: None,
            hsm: Hsm::default(),
            version,
        })
    }

    fn decode_tagged(&mut self, tagged: Bytes) -> Option<()> {
        let mut from = Reader::new(tagged);
        while from.remaining() > 0 {
            let tag: u8 = from.take().ok()?;
            let len: u32 = from.take().ok()?;
            let body = from.take_bytes(len as usize).ok()?;
            match tag {
                TAG_LAYOUT => self.layout = Some(layout::take_layout(body)?),
                TAG_HINT => self.hint = Some(layout::take_hint(body)?),
                TAG_TARGET => self.target = body,
                TAG_ACL => self.acl = Acl::decode(&body).ok()?,
                TAG_DEFAULT_ACL => self.default_acl = Acl::decode(&body).ok()?,
                TAG_HSM => self.hsm = Hsm::take(body)?,
                _ => return None,
            }
        }
        Some(())
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, put: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// Takes numbers from the fixed part, whose length the caller has checked.
struct Fixed<'a> {
    rest: &'a [u8],
}

impl Fixed<'_> {
    fn number(&mut self) -> u32 {
        let (number, rest) = self.rest.split_first_chunk().expect("the fixed part is long enough");
        self.rest = rest;
        u32::from_le_bytes(*number)
    }

    fn long(&mut self) -> u64 {
        let (number, rest) = self.rest.split_first_chunk().expect("the fixed part is long enough");
        self.rest = rest;
        u64::from_le_bytes(*number)
    }

    fn time(&mut self) -> Timestamp {
        Timestamp { secs: self.long() as i64, nanos: self.number() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::OstIndex;
    use proto::layout::Component;

    fn acl() -> Acl {
        use proto::acl::{Entry, Tag};
        let tags = [Tag::Owner, Tag::User(7), Tag::Group, Tag::Mask, Tag::Other];
        let entries = (1..).zip(tags).map(|(bits, tag)| Entry { tag, bits });
        Acl::new(entries.collect()).expect("a valid ACL")
    }

    fn full() -> Inode {
        let fid = Fid { seq: 0x2_0000_0400, oid: 3, ver: 0 };
        let time = |secs| Timestamp { secs, nanos: 7 };
        Inode {
            nlink: 3,
            uid: 1,
            gid: 2,
            rdev: 9,
            size: 1 << 40,
            blocks: 12,
            atime: time(-1),
            mtime: time(2),
            ctime: time(3),
            btime: time(4),
            mtime_set: time(5),
            parent: Fid::ROOT,
            size_known: false,
            written: true,
            xattrs: true,
            project: 0,
            inherits: false,
            layout: Some(Component::striped(fid, 1 << 20, [3, 1].map(OstIndex)).into()),
            hint: Some(LayoutHint { stripe_count: -1, ..LayoutHint::default() }),
            target: Bytes::from_static(b"../elsewhere"),
            acl: Some(acl()),
            default_acl: Some(acl()),
            hsm: Hsm { flags: 9, archive: 2, copy: 7, copying: 1 << 40 },
            version: 77,
            ..Inode::new(fid, 0o100_644, time(0))
        }
    }

    #[test]
    fn a_record_gives_its_inode_back() {
        let inode = full();
        assert_eq!(Inode::decode(inode.fid, &inode.encode(), 77), Some(inode.clone()));
        let of_project = Inode { project: 0x0102, inherits: true, ..inode.clone() };
        let record = of_project.encode();
        assert_eq!(record[..4], [3, 15 ^ 1, 0, 0]);
        assert_eq!(record[116..120], [2, 1, 0, 0]);
        assert_eq!(Inode::decode(inode.fid, &record, 77), Some(of_project.clone()));
        assert_eq!(Inode::decode_fixed(inode.fid, &record[..118], 77), None);
        let plain = Inode { version: 77, ..Inode::new(inode.fid, 0o040_755, Timestamp::default()) };
        assert_eq!(plain.encode().len(), FIXED_BYTES);
        assert_eq!(Inode::decode(plain.fid, &plain.encode(), 77), Some(plain));
    }

    #[test]
    fn damaged_records_are_refused() {
        let record = full().encode();
        for len in 0..record.len() {
            let fid = full().fid;
            let cut = Inode::decode(fid, &record.slice(..len), 0);
            assert!(cut.is_none() || cut != Some(full()), "{len}");
        }
        let mut other = record.to_vec();
        other[0] = 1;
        assert_eq!(Inode::decode(full().fid, &other.into(), 0), None);
    }
}
