//! Layouts: where the data of a file lies, and moving it.

use crate::ids::Fid;
use crate::layout::LayoutHint;
use crate::time::Timestamp;
use crate::types::Cred;
use crate::wire_struct;

wire_struct! {
    /// Sets a directory's default layout, or the layout of a file that has no objects yet.
    pub struct SetLayout {
        /// The directory or file.
        pub fid: Fid,
        /// The layout; `None` takes a directory's default away.
        pub hint: Option<LayoutHint>,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// Asks for objects for a part of a file that is about to be written: those components that it touches and that have none get
    /// some, and the generation of the layout grows. Refused with NoComponent if there never are any.
    pub struct PlaceData {
        /// The file.
        pub fid: Fid,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub len: u64,
    }
}

wire_struct! {
    /// Moves a file's data to where another one's lies: the two exchange their layouts, and the file's generation grows. Whoever
    /// asks has copied the data and has sealed the layout that the file had ([`super::SealLayout`]). With no other file only
    /// the generation grows: who may have sealed the layout and is about to ask, is refused then.
    pub struct SwapLayouts {
        /// The file; it has a name.
        pub fid: Fid,
        /// A file without a name that takes the old layout over; ZERO for none.
        pub with: Fid,
        /// The generation of the file's layout; refused with Busy if it has another one.
        pub generation: u32,
        /// Who asks: the owner, unless only the generation grows.
        pub cred: Cred,
        ;
        /// What the file's new objects occupy, in units of 512 bytes, for a file whose size is known.
        pub blocks: Option<u64>,
    }
}

wire_struct! {
    /// Asks for the default layout of a directory.
    pub struct GetDefaultLayout {
        /// The directory.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Default layout of a directory.
    pub struct DefaultLayout {
        /// What the directory itself says, if anything.
        pub own: Option<LayoutHint>,
        /// What new files in it get, every field filled in.
        pub effective: LayoutHint,
    }
}
