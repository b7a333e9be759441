//! What an MDT is asked of its changelog, outside any session: who reads it need not use the file system.

use crate::changelog::Record;
use crate::wire_struct;

/// [`OrderChangelog::order`]: nothing; who reads it, and how far, is answered.
pub const CHANGELOG_LIST: u8 = 0;
/// [`OrderChangelog::order`]: a reader more, called `number`. Needs the servers' key.
pub const CHANGELOG_REGISTER: u8 = 1;
/// [`OrderChangelog::order`]: reader `user` wants nothing any more. Needs the servers' key.
pub const CHANGELOG_DEREGISTER: u8 = 2;
/// [`OrderChangelog::order`]: reader `user` has no need of records up to `number` any more; 0 for all.
pub const CHANGELOG_CLEAR: u8 = 3;

/// Most records of a [`ChangelogPage`].
pub const CHANGELOG_RECORDS_MAX: usize = 4096;
/// Most bytes of them.
pub const CHANGELOG_BYTES_MAX: u32 = 1 << 20;

wire_struct! {
    /// An order about who reads an MDT's changelog; answered when it is durable. The same order again changes nothing.
    pub struct OrderChangelog {
        /// One of `CHANGELOG_*`.
        pub order: u8,
        /// Of which reader.
        pub user: u32,
        /// Up to which record; of a registration a random number, by which it is known when it comes again.
        pub number: u64,
    }
}

wire_struct! {
    /// How an MDT's changelog stands.
    pub struct ChangelogState {
        /// The newest record.
        pub last: u64,
        /// The oldest record that is kept; one more than the newest if none is.
        pub oldest: u64,
        /// The kinds that are recorded.
        pub mask: u32,
        /// Who reads it.
        pub users: Vec<ChangelogUser>,
    }
}

wire_struct! {
    /// A registered reader of a changelog.
    pub struct ChangelogUser {
        /// `cl1` has 1.
        pub user: u32,
        /// Records up to this one are not needed by it.
        pub index: u64,
        /// The random number of its registration.
        pub number: u64,
        /// Seconds since it cleared something, or since the target was started.
        pub idle_s: u64,
    }
}

wire_struct! {
    /// Asks for durable records behind one.
    pub struct ReadChangelog {
        /// The last record that is known.
        pub behind: u64,
        /// Bytes of records at most; one comes in any case.
        pub bytes_max: u32,
    }
}

wire_struct! {
    /// Records in the order of their numbers.
    pub struct ChangelogPage {
        /// At most `CHANGELOG_RECORDS_MAX`; none if there are no more.
        pub records: Vec<Record>,
    }
}
