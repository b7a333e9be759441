//! What every target answers outside any session: how it is, and what an operator orders.
//!
//! No session is needed because none may begin while others replay, and that is when an operator asks. The orders need
//! the servers' key.

use crate::ids::{ClientId, Fid, Transno};
use crate::wire_struct;

/// [`RecoveryReport::state`]: nobody had a session when the target started.
pub const RECOVERY_INACTIVE: u8 = 0;
/// [`RecoveryReport::state`]: nobody has come back yet.
pub const RECOVERY_WAITING: u8 = 1;
/// [`RecoveryReport::state`]: clients replay.
pub const RECOVERY_RUNNING: u8 = 2;
/// [`RecoveryReport::state`]: it is over.
pub const RECOVERY_COMPLETE: u8 = 3;

/// [`TargetState::flags`]: the MGS has told clients of this start.
pub const STATE_TOLD: u8 = 1;
/// [`TargetState::flags`]: replays went on past a gap that a missing client left.
pub const STATE_VERSIONS: u8 = 2;
/// [`TargetState::flags`]: a disk of the target has an I/O scheduler that does not suit it.
pub const STATE_SCHEDULER: u8 = 4;

/// [`MissingClient::place`]: not back yet.
pub const MISSING_ABSENT: u8 = 0;
/// [`MissingClient::place`]: back, and its next replay is awaited.
pub const MISSING_SILENT: u8 = 1;
/// [`MissingClient::place`]: it states again what it holds.
pub const MISSING_RESTATING: u8 = 2;

/// Most clients that a [`TargetState`] names.
pub const MISSING_MAX: usize = 16;

/// Most clients that one [`DrainClient`] is for.
pub const DRAINED_MAX: usize = 64;
/// Most files that a [`DrainDone`] names.
pub const DRAIN_FILES_MAX: usize = 16;

/// Most parameters that one [`SetParameters`] sets, and most patterns of one [`ReadParameters`].
pub const PARAMETERS_MAX: usize = 64;

/// [`ShownParameter::access`]: it has a value.
pub const PARAMETER_READABLE: u8 = 1;
/// [`ShownParameter::access`]: it can be set.
pub const PARAMETER_SETTABLE: u8 = 2;

/// [`ShownParameter::kind`]: words, or several lines.
pub const PARAMETER_TEXT: u8 = 0;
/// [`ShownParameter::kind`]: a number that goes up and down, or that is set.
pub const PARAMETER_GAUGE: u8 = 1;
/// [`ShownParameter::kind`]: a number that only grows until it is cleared.
pub const PARAMETER_COUNTER: u8 = 2;
/// [`ShownParameter::kind`]: lines that say how often which sizes or times occurred.
pub const PARAMETER_HISTOGRAM: u8 = 3;

wire_struct! {
    /// Asks how the target is.
    pub struct GetState {}
}

wire_struct! {
    /// How a target is.
    pub struct TargetState {
        /// The recovery after its start.
        pub recovery: RecoveryReport,
        /// Sessions.
        pub sessions: u32,
        /// What is wrong with it, a sentence for each; empty if all is well.
        pub problems: Vec<String>,
        ;
        /// Whom the recovery waits for: who has done nothing for longest comes first. At most `MISSING_MAX`.
        pub missing: Vec<MissingClient>,
        /// How many it waits for in all.
        pub missing_count: u32,
        /// `STATE_*`.
        pub flags: u8,
    }
}

wire_struct! {
    /// A client that a recovery waits for.
    pub struct MissingClient {
        /// The client.
        pub client: ClientId,
        /// Its address when it was seen last, `10.1.1.2@tcp`; empty if that is not known.
        pub nid: String,
        /// One of `MISSING_*`.
        pub place: u8,
        /// For how many seconds it has done nothing.
        pub quiet_s: u32,
        /// Whether the MGS says that it lives.
        pub lives: bool,
    }
}

wire_struct! {
    /// How far the recovery after a target's start is, or was when it ended.
    pub struct RecoveryReport {
        /// One of `RECOVERY_*`.
        pub state: u8,
        /// When it began, in seconds since 1970 (UTC).
        pub began_s: u64,
        /// Seconds that it took, or has taken so far.
        pub duration_s: u32,
        /// Seconds after which those who do nothing are given up; 0 when it is over.
        pub remaining_s: u32,
        /// Clients that had a session before the start.
        pub expected: u32,
        /// Those of them that came back.
        pub connected: u32,
        /// Those that are back and replay changes.
        pub replaying: u32,
        /// Those that are back and not done.
        pub unfinished: u32,
        /// Those that are done.
        pub completed: u32,
        /// Those that were given up.
        pub evicted: u32,
        /// Changes that were replayed.
        pub replayed: u64,
        /// Replays that wait for their turn.
        pub queued: u32,
        /// The change that is expected next.
        pub next_transno: Transno,
    }
}

wire_struct! {
    /// Orders a target to wait no more for clients that have not come back. Answered when the recovery is over. Needs the
    /// servers' key.
    pub struct AbortRecovery {}
}

wire_struct! {
    /// Sets parameters of a target until it is started again. Needs the servers' key.
    pub struct SetParameters {
        /// Those to set, at most `PARAMETERS_MAX`, in order; none behind one that is refused.
        pub parameters: Vec<Parameter>,
    }
}

wire_struct! {
    /// What a parameter is to be.
    pub struct Parameter {
        /// Its whole name, as Lustre's: `obdfilter.w-OST0000.sync_journal`.
        pub name: String,
        /// Its value.
        pub value: String,
    }
}

wire_struct! {
    /// Asks for the parameters and statistics of a target whose names fit a pattern. Needs no key of the servers.
    pub struct ReadParameters {
        /// Patterns of whole names, at most `PARAMETERS_MAX`, each of at most `PATTERN_BYTES_MAX` bytes; `*` stands for any characters.
        pub patterns: Vec<String>,
        /// How many of those that fit are known already.
        pub skip: u32,
        /// Whether values are left out.
        pub names_only: bool,
    }
}

wire_struct! {
    /// Parameters and statistics, in the target's order.
    pub struct ParameterPage {
        /// At most `PAGE_COUNT_MAX`.
        pub parameters: Vec<ShownParameter>,
        /// Whether there are more.
        pub more: bool,
    }
}

wire_struct! {
    /// A parameter or statistic.
    pub struct ShownParameter {
        /// Its whole name.
        pub name: String,
        /// Its value; empty if it cannot be read, or nobody asked for values.
        pub value: String,
        /// `PARAMETER_READABLE` and `PARAMETER_SETTABLE`.
        pub access: u8,
        /// `PARAMETER_TEXT` and so on.
        pub kind: u8,
        /// What a number counts: `bytes`, `MiB`, `s`, `ms`; empty for things, and for what is no number.
        pub unit: String,
        /// What it takes, for whoever sets it to something else; empty if it cannot be set.
        pub takes: String,
    }
}

wire_struct! {
    /// Orders a target to have a client, or all clients at an address, give back all that they keep, of every target. Answered
    /// when they have. Needs the servers' key.
    pub struct DrainClient {
        /// The client; 0 if an address is named.
        pub client: ClientId,
        /// The address as sessions have it, `10.1.1.2@tcp`; empty if a client is named.
        pub nid: String,
    }
}

wire_struct! {
    /// What the clients have left.
    pub struct Drained {
        /// At most `DRAINED_MAX`.
        pub clients: Vec<DrainedClient>,
    }
}

wire_struct! {
    /// What a client has left.
    pub struct DrainedClient {
        /// The client.
        pub client: ClientId,
        /// Its address.
        pub nid: String,
        /// Whether it has answered.
        pub answered: bool,
        /// Locks of this target that it holds still, as the target believes.
        pub locks: u32,
        /// What it says itself.
        pub left: DrainDone,
    }
}

wire_struct! {
    /// Asks a client to write what it has not written, to wait until all that it changed is durable, and to give back what it
    /// keeps, of every target.
    pub struct Drain {}
}

wire_struct! {
    /// What a client has left.
    pub struct DrainDone {
        /// Bytes that were written and not sent.
        pub unsent_bytes: u64,
        /// Locks that are in use.
        pub locks: u32,
        /// Handles of files that applications have open.
        pub open_count: u32,
        /// Those files, at most `DRAIN_FILES_MAX`.
        pub open_files: Vec<Fid>,
    }
}
