//! Find: a page of a search in the MDT.

use bytes::Bytes;

use super::mdt::Entry;
use crate::ids::Fid;
use crate::name::Name;
use crate::types::Cred;
use crate::wire_struct;

/// [`Find`]: the attributes and the layout of what is found are wanted.
pub const FIND_ENTRY: u32 = 1 << 0;
/// [`Find`]: the targets of symbolic links that are found are wanted.
pub const FIND_TARGET: u32 = 1 << 1;

wire_struct! {
    /// Searches a part of the name space, as it is at one moment; a page at a time.
    pub struct Find {
        /// Where the search begins; it is looked at too.
        pub start: Fid,
        /// The path of that, as the user wrote it.
        pub path: Bytes,
        /// What is asked of each file: [`crate::find::Expr`], in its own encoding.
        pub query: Bytes,
        /// Names below the start that a path has at least.
        pub depth_min: u32,
        /// Names below the start that a path has at most.
        pub depth_max: u32,
        /// `FIND_*` bits.
        pub wants: u32,
        /// Most bytes of what is found and told in one page.
        pub bytes_max: u32,
        /// The moment, as [`FoundPage`] has named it; 0 for now.
        pub snapshot: u64,
        /// Where the last page ended.
        pub behind: Option<FindPlace>,
        /// Who asks: directories that it may not read and search are passed over.
        pub cred: Cred,
    }
}

wire_struct! {
    /// Where a page of a search ends.
    pub struct FindPlace {
        /// The directory that was being read.
        pub dir: Fid,
        /// Whether all its entries were looked at: then it is about what lies in the directories among them.
        pub descends: bool,
        /// The last name in it that is done; `None` for none.
        pub name: Option<Name>,
    }
}

wire_struct! {
    /// A page of a search.
    pub struct FoundPage {
        /// The moment; a search ends with its last page, or when it is not asked for on for a minute.
        pub snapshot: u64,
        /// What was found.
        pub found: Vec<Found>,
        /// Files that were looked at for this page.
        pub visited: u64,
        /// Directories below the start, as their paths, that were passed over.
        pub hidden: Vec<Bytes>,
        /// Where it goes on; `None` at the end.
        pub next: Option<FindPlace>,
    }
}

wire_struct! {
    /// A file that was found.
    pub struct Found {
        /// Its path below the start; empty for the start itself.
        pub path: Bytes,
        /// The file.
        pub fid: Fid,
        /// The kind's bits of its mode.
        pub mode: u32,
        /// Whether it depends on what its objects say whether it is one of those: somebody writes it.
        pub open: bool,
        /// Attributes and layout, if they were asked for or if it is open. In a box: most have none, and there are many at a time.
        pub entry: Option<Box<Entry>>,
        /// Target of a symbolic link, if that was asked for.
        pub target: Option<Bytes>,
    }
}
