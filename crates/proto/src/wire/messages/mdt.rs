//! What an MDT answers about files and their names.

use bytes::Bytes;

use super::lock::{Granted, Token};
use crate::ids::Fid;
use crate::layout::{Layout, LayoutHint, Spread};
use crate::name::Name;
use crate::time::Timestamp;
use crate::types::{Attr, Cred};
use crate::wire_struct;

wire_struct! {
    /// Asks for a sequence of FIDs; it belongs to this session alone.
    pub struct GetSequence {}
}

wire_struct! {
    /// A sequence of FIDs: oids 1 to 2^20 - 1.
    pub struct Sequence {
        /// The sequence.
        pub seq: u64,
    }
}

wire_struct! {
    /// Asks for the attributes of a file.
    pub struct GetAttr {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// A file.
    pub struct Entry {
        /// Its attributes.
        pub attr: Attr,
        /// Where its data lies; for regular files.
        pub layout: Option<Layout>,
        /// Whether it has extended attributes.
        pub xattrs: bool,
        /// What of this the client may keep.
        pub lock: Granted,
    }
}

wire_struct! {
    /// Asks what a name in a directory means.
    pub struct Lookup {
        /// The directory.
        pub parent: Fid,
        /// The name; `None` asks for the parent of `parent` (`..`).
        pub name: Option<Name>,
        /// Who asks: search permission on the directory is needed.
        pub cred: Cred,
    }
}

wire_struct! {
    /// Asks for a page of a directory.
    pub struct ReadDir {
        /// The directory.
        pub fid: Fid,
        /// Entries behind all names of this hash; 0 for the first.
        pub cookie: u64,
        /// Most bytes of the reply's body; at least one entry comes.
        pub bytes_max: u32,
        /// Whether attributes are wanted too.
        pub plus: bool,
        ;
        /// Entries behind this name of the hash `cookie`, or behind all of that hash if it is empty. Absent from an
        /// older client: a page for it never ends inside equal hashes.
        pub behind: Option<Bytes>,
    }
}

wire_struct! {
    /// A page of a directory, without `.` and `..`.
    pub struct DirPage {
        /// The directory above.
        pub parent: Fid,
        /// Entries in the order of their cookies.
        pub entries: Vec<DirEntry>,
        /// Whether nothing comes behind them.
        pub end: bool,
        /// What of the directory the client may keep.
        pub lock: Granted,
        ;
        /// Whether the next page may begin with the hash of the last entry.
        pub splits: bool,
    }
}

wire_struct! {
    /// One entry of a directory.
    pub struct DirEntry {
        /// Position: the name's hash.
        pub cookie: u64,
        /// The name.
        pub name: Name,
        /// The file.
        pub fid: Fid,
        /// The kind's bits of its mode.
        pub mode: u32,
        /// The file's attributes, if they were asked for and are at hand.
        pub entry: Option<Entry>,
    }
}

/// The file is opened for reading.
pub const OPEN_READ: u32 = 1 << 0;
/// The file is opened for writing: until its last writer closes, the MDT does not know its size.
pub const OPEN_WRITE: u32 = 1 << 1;
/// An existing file is an error (O_EXCL).
pub const OPEN_EXCLUSIVE: u32 = 1 << 2;
/// The file is opened to be executed.
pub const OPEN_EXECUTE: u32 = 1 << 3;
/// The answer may grant the client all of the object that the MDT has of the file.
pub const OPEN_RANGE: u32 = 1 << 4;
/// The client would like to have the new directory to itself ([`super::LOCK_ALONE`]), and to know where new files in it lie.
pub const OPEN_ALONE: u32 = 1 << 5;
/// The client had it open when the MDT ended its session: its owner is not asked for the mode, which may be another than when it was opened.
pub const OPEN_AGAIN: u32 = 1 << 6;

wire_struct! {
    /// Makes a file of any kind and puts it in a directory; a regular file can be opened at once.
    pub struct Create {
        /// The directory.
        pub parent: Fid,
        /// The new entry.
        pub name: Name,
        /// The file's FID, from a sequence of this session.
        pub fid: Fid,
        /// Kind and permissions; without those of `umask` they are what the file gets.
        pub mode: u32,
        /// Device number of a device file.
        pub rdev: u32,
        /// Target of a symbolic link; empty otherwise.
        pub target: Bytes,
        /// `OPEN_*` bits; with none of read and write the file is made but not opened. Without
        /// [`OPEN_EXCLUSIVE`], an existing regular file is opened instead.
        pub open: u32,
        /// The layout that the caller wants; `None` takes the directory's default.
        pub hint: Option<LayoutHint>,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
        /// Permissions that the file does not get, unless the directory has a default ACL; 0 if the caller has taken
        /// them off `mode`.
        pub umask: u32,
        ;
        /// The answer is foretold: what the client has acted on already.
        pub foretold: Option<Box<Foretold>>,
    }
}

wire_struct! {
    /// What a client has told of a new file in a directory that it has to itself, before the MDT has made it.
    pub struct Foretold {
        /// Names the open file in [`Close`]: [`Foretold::handle_of`] its FID. 0 if it is not opened.
        pub handle: u64,
        /// Where its data lies.
        pub layout: Option<Layout>,
    }
}

impl Foretold {
    /// The handle of a file that its client makes ahead of the MDT: no number of a request is one.
    pub fn handle_of(fid: Fid) -> u64 {
        1 << 63 | fid.ino().0
    }
}

wire_struct! {
    /// Changes that a client has told of before the MDT has made them, in the order in which it told them. The MDT makes them all at
    /// once, but for those that it refuses: a restart loses all or none.
    pub struct KeepPromises {
        /// The changes; [`PROMISES_MAX`](crate::limits::PROMISES_MAX) at most.
        pub promises: Vec<Promise>,
    }
}

wire_struct! {
    /// A change that a client has told of: one of these.
    #[derive(Default)]
    pub struct Promise {
        ;
        /// A new file, foretold; nothing that is there already is opened.
        pub create: Option<Create>,
        /// Other attributes, and not another size.
        pub set_attr: Option<SetAttr>,
        /// A name that goes. That of a directory is the first promise of its request, and that of a new file is in a later one.
        pub remove: Option<Remove>,
    }
}

wire_struct! {
    /// Takes a name away whose meaning is known.
    pub struct Remove {
        /// The name.
        pub unlink: Unlink,
        /// What it means.
        pub fid: Fid,
    }
}

wire_struct! {
    /// What became of each promise.
    pub struct PromisesKept {
        /// As many, in the same order.
        pub kept: Vec<Kept>,
        ;
        /// How many the client's next request is to have at most, so that others are served in between; 0 if nothing is said.
        pub most: u32,
    }
}

wire_struct! {
    /// What became of a promise.
    #[derive(Default)]
    pub struct Kept {
        /// 0, or the number of the [`Code`](crate::Code) that refuses it.
        pub status: u32,
        /// The file afterwards; `None` in an answer that is repeated.
        pub attr: Option<Attr>,
        /// What of that the client may keep.
        pub lock: Granted,
        /// Where new files of its directory lie, if that is not as it was foretold.
        pub spread: Option<Spread>,
    }
}

wire_struct! {
    /// Makes a regular file without a name and opens it (O_TMPFILE). It goes with its last close, unless it was linked.
    pub struct CreateUnnamed {
        /// The directory whose group, ACL and layout the file takes over, and in which the caller may make files.
        pub parent: Fid,
        /// The file's FID, from a sequence of this session.
        pub fid: Fid,
        /// Permissions, as in [`Create`].
        pub mode: u32,
        /// `OPEN_*` bits; [`OPEN_WRITE`] is among them. With [`OPEN_EXCLUSIVE`], [`Link`] never gives the file a name.
        pub open: u32,
        /// The layout that the caller wants; `None` takes the directory's default.
        pub hint: Option<LayoutHint>,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
        /// As in [`Create`].
        pub umask: u32,
    }
}

wire_struct! {
    /// A file was made, or an existing one opened.
    pub struct Created {
        /// Its attributes.
        pub attr: Attr,
        /// Where its data lies; for regular files.
        pub layout: Option<Layout>,
        /// Names the open file in [`Close`]; 0 if it was not opened.
        pub handle: u64,
        /// Whether the file was there before.
        pub existed: bool,
        /// Whether it has extended attributes.
        pub xattrs: bool,
        /// What of this the client may keep.
        pub lock: Granted,
        ;
        /// With [`OPEN_RANGE`]: the range of the object of a new file whose first bytes lie on the MDT.
        pub range: Option<Token>,
        /// Of a directory that the client has to itself: where new files in it lie. Of a file whose layout was foretold: the same of its
        /// directory, if that has changed.
        pub spread: Option<Spread>,
    }
}

/// [`Close::handle`] of what the client had opened without the target: the target is told the time of access only.
pub const NOT_OPEN: u64 = 0;

wire_struct! {
    /// Opens a regular file or a directory.
    pub struct Open {
        /// The file.
        pub fid: Fid,
        /// `OPEN_*` bits.
        pub open: u32,
        /// Who asks.
        pub cred: Cred,
    }
}

wire_struct! {
    /// A file is open.
    pub struct Opened {
        /// Its attributes.
        pub attr: Attr,
        /// Where its data lies; for regular files.
        pub layout: Option<Layout>,
        /// Names the open file in [`Close`].
        pub handle: u64,
        /// Whether it has extended attributes.
        pub xattrs: bool,
        /// What of this the client may keep.
        pub lock: Granted,
        ;
        /// With [`OPEN_RANGE`], of a file whose first bytes lie on the MDT and that is opened to read, or to read and write: all of its
        /// object there. The bulk has what the object holds, if that is no more than [`HEAD_BYTES_MAX`](crate::limits::HEAD_BYTES_MAX).
        pub range: Option<Token>,
    }
}

wire_struct! {
    /// Size and times of a file whose data is durable on the OSTs.
    pub struct SizeUpdate {
        /// Bytes.
        pub size: u64,
        /// Used space in units of 512 bytes.
        pub blocks: u64,
        /// Last change of the data.
        pub mtime: Timestamp,
        /// Last change of data or attributes; the MDT keeps the newest.
        pub ctime: Timestamp,
    }
}

wire_struct! {
    /// Ends an open file.
    pub struct Close {
        /// The file.
        pub fid: Fid,
        /// What [`Opened`] or [`Created`] named it.
        pub handle: u64,
        /// Last access through this handle, if it is to be kept.
        pub atime: Option<Timestamp>,
        /// Size and times, when this client wrote the file and has all of it durable; `None` leaves the size
        /// unknown if there was any write.
        pub size: Option<SizeUpdate>,
        /// Whether anything was written through this handle.
        pub wrote: bool,
    }
}

impl Close {
    /// Whether it has the MDT call other clients back. One that tells nothing does not, but for a writer that has written nothing: with such
    /// a close a client answers a callback for what it keeps open to read.
    pub(super) fn contends(&self) -> bool {
        self.wrote || self.size.is_some() || self.atime.is_some()
    }
}

wire_struct! {
    /// A close, or a size that was told, was taken.
    #[derive(Default)]
    pub struct Settled {
        ;
        /// The file, if that has changed it: a client that looks at it next need not ask.
        pub entry: Option<Entry>,
        /// The MDT does not know the size, and nobody has the file open to write: the client is to ask the objects from now on, and to tell it
        /// ([`SetSize`]).
        pub wants_size: bool,
        /// The number of that question, which comes back with the size: an answer to an earlier one does not count.
        pub question: u64,
    }
}

impl Settled {
    /// The client is to tell the size, and to answer this question; 0 if it is not to.
    pub fn asking(question: u64) -> Settled {
        Settled { entry: None, wants_size: question != 0, question }
    }

    /// The question that the client is asked.
    pub fn asked(&self) -> Option<u64> {
        self.wants_size.then_some(self.question)
    }
}

wire_struct! {
    /// States the files again that the client had open for reading before the target restarted: the target knows by itself
    /// only of those that are open for writing. Taken only while clients replay; stating twice does no harm.
    pub struct RestateOpens {
        /// The open files and directories.
        pub opens: Vec<OpenHeld>,
    }
}

wire_struct! {
    /// States files that the client has open for reading, and of which the target was not told: somebody is about to remove them. The
    /// client has held [`LOCK_UPDATE`](super::LOCK_UPDATE) of each since it made it; stating twice does no harm. The handles are the
    /// client's own numbers.
    pub struct StateOpens {
        /// The open files.
        pub opens: Vec<OpenHeld>,
    }
}

wire_struct! {
    /// A file or directory that a client has open.
    pub struct OpenHeld {
        /// The file.
        pub fid: Fid,
        /// What [`Opened`] or [`Created`] named it.
        pub handle: u64,
    }
}

wire_struct! {
    /// Takes a name away.
    pub struct Unlink {
        /// The directory.
        pub parent: Fid,
        /// The entry.
        pub name: Name,
        /// Whether the entry has to be a directory (rmdir), or must not be one (unlink).
        pub directory: bool,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// The name is gone.
    pub struct Unlinked {
        /// The file that it named.
        pub fid: Fid,
        /// Links that the file still has.
        pub nlink: u32,
    }
}

/// The new name must not exist (RENAME_NOREPLACE).
pub const RENAME_NOREPLACE: u32 = 1 << 0;
/// The two names change places (RENAME_EXCHANGE).
pub const RENAME_EXCHANGE: u32 = 1 << 1;

wire_struct! {
    /// Moves an entry.
    pub struct Rename {
        /// Directory of the old name.
        pub parent: Fid,
        /// The old name.
        pub name: Name,
        /// Directory of the new name.
        pub new_parent: Fid,
        /// The new name.
        pub new_name: Name,
        /// `RENAME_*` bits.
        pub flags: u32,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// The entry was moved.
    pub struct Renamed {
        /// The file that was moved.
        pub fid: Fid,
        /// The file that the new name meant before, if any.
        pub replaced: Option<Fid>,
    }
}

wire_struct! {
    /// Gives a file one more name.
    pub struct Link {
        /// The file.
        pub fid: Fid,
        /// Directory of the new name.
        pub parent: Fid,
        /// The new name.
        pub name: Name,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// Sets attributes; those that are `None` stay.
    pub struct SetAttr {
        /// The file.
        pub fid: Fid,
        /// Permissions.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size. The MDT checks, marks the size unknown and answers; the client then cuts the objects and sends
        /// [`SetSize`] (`docs/wire.md#sizes`).
        pub size: Option<u64>,
        /// Last access.
        pub atime: Option<TimeChange>,
        /// Last change of the data.
        pub mtime: Option<TimeChange>,
        /// Handle of an open file; its open mode then permits a change of size, instead of the mode bits.
        pub handle: Option<u64>,
        /// Whether the caller's privilege bits (setuid, setgid) are to be dropped, as a write does.
        pub kill_privileges: bool,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
        ;
        /// Project, 0 for none; only the superuser changes it.
        pub project: Option<u32>,
        /// Whether what is made in the directory gets its project; likewise.
        pub inherits: Option<bool>,
    }
}

wire_struct! {
    /// A new time.
    pub struct TimeChange {
        /// The time.
        pub time: Timestamp,
        /// Whether it is "now": then write permission is enough, otherwise the caller has to be the owner.
        pub now: bool,
    }
}

wire_struct! {
    /// Tells the MDT the size of a file whose data is durable; taken only if no other client has it open for
    /// writing.
    pub struct SetSize {
        /// The file.
        pub fid: Fid,
        /// Size and times.
        pub update: SizeUpdate,
        ;
        /// The client has cut the file before it asked the objects. If the MDT does not know that, because it has restarted since, what others
        /// have told meanwhile may be of before the cut.
        pub cut: bool,
        /// The question that it answers ([`Settled::question`]); 0 if it was not asked.
        pub question: u64,
    }
}

wire_struct! {
    /// Asks for the target of a symbolic link.
    pub struct ReadLink {
        /// The link.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Target of a symbolic link.
    pub struct LinkTarget {
        /// Bytes of any value but NUL.
        pub target: Bytes,
    }
}

wire_struct! {
    /// Asks for the paths of a file.
    pub struct FidToPath {
        /// The file.
        pub fid: Fid,
        /// Who asks: is told paths of directories only that it may search.
        pub cred: Cred,
    }
}

wire_struct! {
    /// Paths of a file, without a leading slash.
    pub struct Paths {
        /// One for each link, at most 1,000.
        pub paths: Vec<Bytes>,
    }
}

/// Permission to execute or search.
pub const ACCESS_EXECUTE: u32 = 1;
/// Permission to write.
pub const ACCESS_WRITE: u32 = 2;
/// Permission to read.
pub const ACCESS_READ: u32 = 4;

wire_struct! {
    /// Asks whether the caller may do something to a file.
    pub struct Access {
        /// The file.
        pub fid: Fid,
        /// `ACCESS_*` bits.
        pub mask: u32,
        /// Who asks.
        pub cred: Cred,
    }
}
