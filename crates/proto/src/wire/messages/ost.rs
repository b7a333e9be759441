//! What an OST answers.

use crate::ids::{Fid, ObjectId};
use crate::time::Timestamp;
use crate::types::FileOwner;
use crate::wire_struct;

wire_struct! {
    /// Writes the message's bulk into an object; makes the object if it is not there.
    pub struct Write {
        /// The object.
        pub object: ObjectId,
        /// Where in the object, in bytes.
        pub offset: u64,
        /// Time of the application's call; becomes mtime and ctime if it is newer.
        pub time: Timestamp,
        /// The client has no lock on the range: the OST takes one for the time of the write.
        pub locked: bool,
        ;
        /// Answered when it is durable. Other changes are not waited for, but those that share its commit.
        pub sync: bool,
        /// Whose file it is.
        pub owner: FileOwner,
    }
}

wire_struct! {
    /// One part of a [`WriteParts`].
    pub struct WritePart {
        /// Where in the object, in bytes.
        pub offset: u64,
        /// Bytes of the bulk that belong there; not 0.
        pub len: u32,
    }
}

wire_struct! {
    /// Writes the message's bulk into an object in several parts, as one change; makes the object if it is not there. The
    /// client holds all ranges.
    pub struct WriteParts {
        /// The object.
        pub object: ObjectId,
        /// In order, and apart from each other; the bulk has their bytes one behind the other.
        pub parts: Vec<WritePart>,
        /// Time of the newest of the application's calls; becomes mtime and ctime if it is newer.
        pub time: Timestamp,
        ;
        /// Answered when it is durable. Other changes are not waited for, but those that share its commit.
        pub sync: bool,
        /// Whose file it is.
        pub owner: FileOwner,
    }
}

wire_struct! {
    /// What an OST knows of an object. An object that is not there has size 0 and times 0.
    pub struct ObjectAttr {
        /// Bytes up to the last one written.
        pub size: u64,
        /// Used space in units of 512 bytes.
        pub blocks: u64,
        /// Last change of the data.
        pub mtime: Timestamp,
        /// Newest ctime that came with a change.
        pub ctime: Timestamp,
    }
}

wire_struct! {
    /// Reads from an object; the data comes as the message's bulk.
    pub struct Read {
        /// The object.
        pub object: ObjectId,
        /// Where in the object, in bytes.
        pub offset: u64,
        /// Bytes wanted.
        pub len: u32,
        /// The client has no lock on the range: the OST takes one for the time of the read.
        pub locked: bool,
    }
}

wire_struct! {
    /// The bulk holds what was read: short only at the end of the object, holes filled with zeros.
    pub struct ReadDone {
        /// Size of the object.
        pub size: u64,
    }
}

wire_struct! {
    /// Cuts a range out of an object. `end` = `u64::MAX` sets the object's size to `start`, larger or smaller.
    pub struct Punch {
        /// The object.
        pub object: ObjectId,
        /// First byte, or the new size.
        pub start: u64,
        /// First byte behind the range.
        pub end: u64,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// Asks where data or a hole begins in an object (SEEK_DATA, SEEK_HOLE). Space that is only reserved is a hole.
    pub struct SeekObject {
        /// The object.
        pub object: ObjectId,
        /// The first byte that counts.
        pub offset: u64,
        /// Whether a hole is looked for, and not data.
        pub hole: bool,
    }
}

wire_struct! {
    /// How far the search came. The end of the object is a hole; behind it there is no data.
    pub struct Sought {
        /// First byte at or behind the question's offset that is what was looked for; if `more`, none before this is.
        pub offset: Option<u64>,
        /// Whether the search stopped because it took long: to be asked again from `offset`.
        pub more: bool,
    }
}

/// [`AdviseObject::advice`]: the bytes will be read soon.
pub const ADVICE_WILL_READ: u8 = 1;
/// Largest range of an [`AdviseObject`], in bytes.
pub const ADVISE_BYTES_MAX: u64 = 16 << 20;

wire_struct! {
    /// Says what will be done with a range of an object, of at most `ADVISE_BYTES_MAX` bytes. `NotSupported` where that changes nothing.
    pub struct AdviseObject {
        /// The object.
        pub object: ObjectId,
        /// First byte.
        pub start: u64,
        /// First byte behind the range.
        pub end: u64,
        /// `ADVICE_*`.
        pub advice: u8,
    }
}

wire_struct! {
    /// Reserves the space of a range of an object: holes in it take blocks and read as zeros. Never changes the size;
    /// what lies behind it is not reserved.
    pub struct AllocateObject {
        /// The object.
        pub object: ObjectId,
        /// First byte.
        pub start: u64,
        /// First byte behind the range.
        pub end: u64,
        /// Time of the application's call.
        pub time: Timestamp,
        ;
        /// Whose file it is.
        pub owner: FileOwner,
    }
}

wire_struct! {
    /// Copies bytes between two objects of one OST, or within one. The reply comes when the copy is durable, so that it
    /// is never replayed: the source may have changed until then.
    pub struct CopyObject {
        /// The object that is read.
        pub source: ObjectId,
        /// Where in it, in bytes.
        pub source_offset: u64,
        /// The object that is written; made if it is not there.
        pub target: ObjectId,
        /// Where in it, in bytes.
        pub target_offset: u64,
        /// Bytes; what the source does not have is zeros. At most what a bulk may have.
        pub len: u32,
        /// Time of the application's call.
        pub time: Timestamp,
        ;
        /// Whose file the target is of.
        pub owner: FileOwner,
    }
}

wire_struct! {
    /// Asks what the OST knows of an object.
    pub struct GetObjectAttr {
        /// The object.
        pub object: ObjectId,
    }
}

wire_struct! {
    /// Deletes objects for ever and leaves a tombstone. Needs the servers' key.
    pub struct Destroy {
        /// The objects.
        pub objects: Vec<ObjectId>,
        ;
        /// Layout ids that are dead as well, or have been for long. The OST need never have had an object of them: knowing them
        /// makes one tombstone of many.
        pub dead: Vec<DeadRange>,
    }
}

wire_struct! {
    /// Layout ids of version 0 of one sequence: each named a layout whose file is gone for good.
    pub struct DeadRange {
        /// The sequence.
        pub seq: u64,
        /// The first oid.
        pub first: u32,
        /// The last oid.
        pub last: u32,
    }
}

wire_struct! {
    /// Seals the objects of a layout on this OST, or takes a seal away. Whatever else than Destroy comes for sealed objects is refused with
    /// Sealed. The reply waits until it is durable.
    pub struct SealLayout {
        /// The layout.
        pub layout: Fid,
        /// Its stripes on this OST. The sender holds all of each to change it; not looked at when a seal is taken away.
        pub stripes: Vec<u32>,
        /// The generation of the file's layout. A seal is taken away only with a greater one than it was made with.
        pub generation: u32,
        /// Whether they are sealed afterwards.
        pub sealed: bool,
    }
}

wire_struct! {
    /// Tells an OST that replaces a lost one what that one may have had: objects that sequences before this name are lost, and whoever
    /// asks for one is told so. Before that the OST answers nobody who asks for objects. Answered when it is durable. Needs the
    /// servers' key.
    pub struct LoseBefore {
        /// The first sequence whose objects are new.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Gives objects to other owners, as files change hands; makes those that are not there, so that nobody who knows an older owner
    /// makes them. Answered when it is durable. Needs the servers' key.
    pub struct SetOwners {
        /// The objects.
        pub objects: Vec<OwnedObject>,
    }
}

wire_struct! {
    /// An object, and whose it is.
    pub struct OwnedObject {
        /// The object.
        pub object: ObjectId,
        /// Its owner; nothing happens if the object has one of a newer version.
        pub owner: FileOwner,
    }
}

wire_struct! {
    /// A byte of an object.
    #[derive(Copy, PartialOrd, Ord)]
    pub struct ObjectPlace {
        /// The object.
        pub object: ObjectId,
        /// Where in it.
        pub offset: u64,
    }
}

wire_struct! {
    /// Looks at the objects of a target in the order of their ids, and reads them against their checksums if that is asked for. Needs the
    /// servers' key.
    pub struct InspectObjects {
        /// Where to begin; the object need not be there.
        pub from: ObjectPlace,
        /// Objects of this layout and of those behind it are left out.
        pub until: Fid,
        /// Whether data is read.
        pub verifies: bool,
    }
}

wire_struct! {
    /// An object that was looked at.
    pub struct InspectedObject {
        /// The object.
        pub object: ObjectId,
        /// Bytes up to the last one written.
        pub size: u64,
        /// What of it cannot be read, or does not match its checksum, in what was read now.
        pub damaged: Vec<ByteRange>,
    }
}

wire_struct! {
    /// Bytes from the first to the one before `end`.
    pub struct ByteRange {
        /// The first.
        pub start: u64,
        /// The one behind the last.
        pub end: u64,
    }
}

wire_struct! {
    /// Some objects of a target.
    pub struct InspectedPage {
        /// In order. The last one may come again in the next page.
        pub objects: Vec<InspectedObject>,
        /// Where the next page begins; none if this was the last one.
        pub next: Option<ObjectPlace>,
        /// Bytes that were read.
        pub bytes: u64,
    }
}

wire_struct! {
    /// Asks what an owner has of a target.
    pub struct ReadUsage {
        /// One of `QUOTA_*`.
        pub kind: u8,
        /// Number of the user, group or project.
        pub id: u32,
    }
}

wire_struct! {
    /// What an owner has of a target.
    pub struct Usage {
        /// The space that its objects occupy, in bytes.
        pub bytes: u64,
    }
}
