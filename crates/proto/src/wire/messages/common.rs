//! What every target answers.

use crate::ids::{ClientId, Transno};
use crate::wire_struct;

/// The target can keep size on the MDT, objects without precreation, and everything else of version 1.
pub const FEATURE_BASE: u64 = 1 << 0;
/// Layouts with several stripes on one OST (Lustre's OBD_CONNECT2_OVERSTRIPING).
pub const FEATURE_OVERSTRIPING: u64 = 1 << 1;
/// The client keeps what it is granted, and gives it back when it is called (`docs/locks.md`).
pub const FEATURE_LOCKS: u64 = 1 << 2;
/// Several requests may come in one frame, and their answers too ([`crate::wire::batch`]).
pub const FEATURE_BATCH: u64 = 1 << 3;
/// Every feature that this code has.
pub const FEATURES_ALL: u64 = FEATURE_BASE | FEATURE_OVERSTRIPING | FEATURE_LOCKS | FEATURE_BATCH;

wire_struct! {
    /// Opens or resumes a session with a target.
    pub struct Connect {
        /// Name of this run of the client.
        pub client: ClientId,
        /// Features that the client has; the session has those that both sides have.
        pub features: u64,
        /// Name of the file system that the client means.
        pub fsname: String,
        /// The target's boot that the client knew; 0 for a new session.
        pub boot: u64,
        /// Epoch of the session that the client asks for: one more than its last.
        pub session_epoch: u64,
    }
}

wire_struct! {
    /// The session is open.
    pub struct Connected {
        /// Names the session in later headers.
        pub session: u64,
        /// Features of the session.
        pub features: u64,
        /// This start of the target; a different one than before means that it restarted.
        pub boot: u64,
        /// Reply slots that the client may use.
        pub slots: u32,
        /// Every change up to here is durable.
        pub last_committed: Transno,
        /// Whether the target knew the client: what it had not committed can be replayed.
        pub resumed: bool,
    }
}

wire_struct! {
    /// Ends the session: the client holds nothing any more.
    pub struct Disconnect {}
}

wire_struct! {
    /// Done; the header says the rest.
    pub struct Done {}
}

wire_struct! {
    /// Makes changes durable; the reply comes when they are.
    pub struct Sync {
        /// Every change up to here; 0 for every change that was answered so far.
        pub transno: Transno,
    }
}

wire_struct! {
    /// Asks for the space of a target.
    pub struct Statfs {}
}

wire_struct! {
    /// Space of a target.
    pub struct Space {
        /// Bytes in all.
        pub bytes_total: u64,
        /// Bytes not used.
        pub bytes_free: u64,
        /// Bytes that a user can still write.
        pub bytes_available: u64,
        /// Files or objects that the target can hold.
        pub files_total: u64,
        /// Files or objects that can still be made.
        pub files_free: u64,
        ;
        /// What is to be known of it besides; bits as in Lustre's `os_state`, of which there is [`Space::DEGRADED`].
        pub state: u32,
    }
}

impl Space {
    /// An operator has marked the target: new files keep away from it.
    pub const DEGRADED: u32 = 1;
}
