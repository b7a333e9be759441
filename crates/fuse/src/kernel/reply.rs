//! Typed answers to bytes.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::abi;

/// What answers a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It is done.
    Done,
    /// What a name means.
    Entry(abi::EntryOut),
    /// Attributes.
    Attr(abi::AttrOut),
    /// Attributes as statx(2) has them.
    Statx(Box<abi::StatxOut>),
    /// An open file or directory.
    Opened(abi::OpenOut),
    /// A new file, open.
    Created(abi::EntryOut, abi::OpenOut),
    /// So many bytes were written.
    Written(u32),
    /// So many bytes were copied; the answer to the older request has 32 bits.
    Copied(u64),
    /// Space.
    Statfs(abi::StatfsOut),
    /// The size of an attribute that the caller offers no room for.
    Size(u32),
    /// A lock.
    Lock(abi::LkOut),
    /// A position.
    Position(u64),
    /// Data of a file.
    Slices(Vec<Bytes>),
    /// A target of a link, the value of an attribute, entries of a directory.
    Block(Bytes),
    /// The answer to INIT.
    Init(abi::InitOut),
    /// An answer, and what is kept until it has reached the kernel.
    Holding(Box<Answer>, Held),
}

/// Kept until an answer has reached the kernel, which may believe it for a while: whoever wants to tell it otherwise
/// waits for that.
pub type Held = Arc<dyn Any + Send + Sync>;

/// The bytes of an answer behind its header, in pieces.
pub type Pieces<'a> = SmallVec<[&'a [u8]; 4]>;

/// The structures of an answer as bytes, where the answer does not have them as such.
#[derive(Default)]
pub struct Scratch {
    write: abi::WriteOut,
    copied: abi::CopyFileRangeOut,
    size: abi::GetxattrOut,
    position: abi::LseekOut,
}

impl Answer {
    /// The same answer, with one more thing that is kept until it has reached the kernel.
    pub fn holding(self, more: Held) -> Answer {
        match self {
            Answer::Holding(answer, held) => Answer::Holding(answer, Arc::new((held, more))),
            answer => Answer::Holding(Box::new(answer), more),
        }
    }

    /// What has to be kept until the answer has reached the kernel.
    pub fn held(&self) -> Option<Held> {
        match self {
            Answer::Holding(_, held) => Some(held.clone()),
            _ => None,
        }
    }

    /// The bytes behind the header, partly in `scratch`.
    pub fn pieces<'a>(&'a self, scratch: &'a mut Scratch) -> Pieces<'a> {
        let mut pieces = Pieces::new();
        match self {
            Answer::Done => {}
            Answer::Entry(entry) => pieces.push(entry.as_bytes()),
            Answer::Attr(attr) => pieces.push(attr.as_bytes()),
            Answer::Statx(statx) => pieces.push(statx.as_bytes()),
            Answer::Opened(open) => pieces.push(open.as_bytes()),
            Answer::Created(entry, open) => pieces.extend([entry.as_bytes(), open.as_bytes()]),
            Answer::Written(size) => {
                scratch.write.size = *size;
                pieces.push(scratch.write.as_bytes());
            }
            Answer::Copied(bytes_copied) => {
                scratch.copied.bytes_copied = *bytes_copied;
                pieces.push(scratch.copied.as_bytes());
            }
            Answer::Statfs(space) => pieces.push(space.as_bytes()),
            Answer::Size(size) => {
                scratch.size.size = *size;
                pieces.push(scratch.size.as_bytes());
            }
            Answer::Lock(lock) => pieces.push(lock.as_bytes()),
            Answer::Position(offset) => {
                scratch.position.offset = *offset;
                pieces.push(scratch.position.as_bytes());
            }
            Answer::Slices(slices) => pieces.extend(slices.iter().map(|slice| &slice[..])),
            Answer::Block(block) => pieces.push(block),
            Answer::Init(init) => pieces.push(init.as_bytes()),
            Answer::Holding(answer, _) => return answer.pieces(scratch),
        }
        pieces
    }
}

/// Entries of a directory, up to a number of bytes.
pub struct Entries {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Entries {
    /// None yet, and room for `bytes_max`.
    pub fn new(bytes_max: u32) -> Entries {
        let bytes_max = bytes_max as usize;
        Entries { bytes: Vec::with_capacity(bytes_max.min(ENTRIES_BYTES_AT_ONCE)), bytes_max }
    }

    /// Adds an entry; `true` if there is no room for it, and it is not added then. `entry` is what READDIRPLUS says of
    /// it in front.
    pub fn add(&mut self, entry: Option<&abi::EntryOut>, dirent: abi::Dirent, name: &[u8]) -> bool {
        let front = entry.map_or(0, |_| size_of::<abi::EntryOut>());
        let len = (front + size_of::<abi::Dirent>() + name.len()).next_multiple_of(RECORD_ALIGN);
        if self.bytes.len() + len > self.bytes_max {
            return true;
        }
        let end = self.bytes.len() + len;
        if let Some(entry) = entry {
            self.bytes.extend_from_slice(entry.as_bytes());
        }
        let dirent = abi::Dirent { namelen: name.len() as u32, ..dirent };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        false
    }

    /// The answer.
    pub fn finish(self) -> Answer {
        Answer::Block(self.bytes.into())
    }
}

/// Records of a directory begin at multiples of this many bytes.
const RECORD_ALIGN: usize = 8;
/// Room that is made at once for entries; a reader with a larger buffer pays for what it gets.
const ENTRIES_BYTES_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(answer: &Answer) -> Vec<u8> {
        let mut scratch = Scratch::default();
        answer.pieces(&mut scratch).concat()
    }

    #[test]
    fn answers_have_the_layout_of_the_kernels_structures() {
        assert_eq!(bytes(&Answer::Done), b"");
        assert_eq!(bytes(&Answer::Written(0x1234)), [0x34, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(&Answer::Copied(5)), [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(&Answer::Size(9)), [9, 0, 0, 0, 0, 0, 0, 0]);
        let slices = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        assert_eq!(bytes(&Answer::Slices(slices)), b"abc");
        let created =
            Answer::Created(abi::EntryOut { nodeid: 7, ..Default::default() }, abi::OpenOut::default());
        let created = bytes(&created);
        assert_eq!(created.len(), 128 + 16);
        assert_eq!(created[0], 7);
    }

    #[test]
    fn entries_are_aligned_and_stop_where_the_room_ends() {
        let mut entries = Entries::new(64 + 8);
        let dirent = abi::Dirent { ino: 3, off: 4, namelen: 0, kind: 8 };
        assert!(!entries.add(None, dirent, b"a"));
        assert!(!entries.add(None, dirent, b"bcdefghi"));
        assert!(entries.add(None, dirent, b"c"), "32 + 32 of 72 bytes are used");
        let Answer::Block(block) = entries.finish() else { panic!("entries are a block") };
        assert_eq!(block.len(), 64);
        assert_eq!(&block[16..20], &[1, 0, 0, 0], "length of the name");
        assert_eq!(&block[24..32], b"a\0\0\0\0\0\0\0");
        assert_eq!(&block[56..64], b"bcdefghi");
        let mut entries = Entries::new(1024);
        assert!(!entries.add(Some(&abi::EntryOut::default()), dirent, b"a"));
        let Answer::Block(block) = entries.finish() else { panic!("entries are a block") };
        assert_eq!(block.len(), 128 + 32);
    }
}
