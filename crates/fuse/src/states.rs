//! How targets are, as the control attribute `weft.states` and the tools say it.

use proto::TargetId;
use proto::wire::messages as msg;
use serde::{Deserialize, Serialize};

use crate::control::Kind;

/// The attribute: [`States`] on any file of a mount.
pub const STATES: &str = "weft.states";

/// Clients that are waited for and that are named, of each target.
const MISSING_MAX: usize = 4;

/// How every target is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct States {
    /// Name of the file system.
    pub fsname: String,
    /// MDTs first, then OSTs, by index.
    pub targets: Vec<TargetState>,
}

/// How one target is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetState {
    /// Kind.
    pub kind: Kind,
    /// Index among its kind.
    pub index: u32,
    /// `None`: it does not answer.
    pub state: Option<State>,
}

/// What a target says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The recovery after its start.
    pub recovery: Recovery,
    /// Sessions.
    pub sessions: u32,
    /// What is wrong with it; empty if all is well.
    pub problems: Vec<String>,
    /// Whom its recovery waits for; who has done nothing for longest comes first. Not all of them.
    pub missing: Vec<Missing>,
    /// How many it waits for.
    pub missing_count: u32,
    /// The MGS has told clients of its start.
    pub told: bool,
    /// Replays went on past a gap that a missing client left.
    pub versions: bool,
    /// A disk of it has an I/O scheduler that does not suit it.
    pub scheduler: bool,
}

/// A client that a recovery waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The client.
    pub client: String,
    /// Its address when it was seen last; empty if that is not known.
    pub nid: String,
    /// What is awaited of it.
    pub place: Place,
    /// For how many seconds it has done nothing.
    pub quiet_s: u32,
    /// Whether the MGS says that it lives.
    pub lives: bool,
}

/// What is awaited of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// That it comes back.
    Absent,
    /// Its next replay.
    Silent,
    /// That it has stated again all that it holds.
    Restating,
    /// Something that a newer server knows.
    Unknown,
}

/// Stage of a recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Nobody had a session when the target started.
    #[default]
    Inactive,
    /// Nobody has come back.
    Waiting,
    /// Clients replay.
    Recovering,
    /// It is over.
    Complete,
    /// Something that a newer server knows.
    Unknown,
}

/// How far a recovery is, or was when it ended. Fields as in [`msg::RecoveryReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Stage.
    pub stage: Stage,
    /// When it began, in seconds since 1970.
    pub began_s: u64,
    /// Seconds that it took, or has taken.
    pub duration_s: u32,
    /// Seconds after which those who do nothing are given up.
    pub remaining_s: u32,
    /// Clients that had a session before.
    pub expected: u32,
    /// Clients that came back.
    pub connected: u32,
    /// Clients that replay changes.
    pub replaying: u32,
    /// Clients that are back and not done.
    pub unfinished: u32,
    /// Clients that are done.
    pub completed: u32,
    /// Clients that were given up.
    pub evicted: u32,
    /// Changes that were replayed.
    pub replayed: u64,
    /// Replays that wait for their turn.
    pub queued: u32,
    /// The change that is expected next.
    pub next_transno: u64,
}

impl TargetState {
    /// Kind and index.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }
}

impl From<&msg::TargetState> for State {
    fn from(state: &msg::TargetState) -> State {
        State {
            recovery: Recovery::from(&state.recovery),
            sessions: state.sessions,
            problems: state.problems.clone(),
            missing: state.missing.iter().take(MISSING_MAX).map(Missing::from).collect(),
            missing_count: state.missing_count,
            told: state.flags & msg::STATE_TOLD != 0,
            versions: state.flags & msg::STATE_VERSIONS != 0,
            scheduler: state.flags & msg::STATE_SCHEDULER != 0,
        }
    }
}

impl From<&msg::MissingClient> for Missing {
    fn from(missing: &msg::MissingClient) -> Missing {
        Missing {
            client: missing.client.to_string(),
            nid: missing.nid.clone(),
            place: match missing.place {
                msg::MISSING_ABSENT => Place::Absent,
                msg::MISSING_SILENT => Place::Silent,
                msg::MISSING_RESTATING => Place::Restating,
                _ => Place::Unknown,
            },
            quiet_s: missing.quiet_s,
            lives: missing.lives,
        }
    }
}

impl From<&msg::RecoveryReport> for Recovery {
    fn from(report: &msg::RecoveryReport) -> Recovery {
        Recovery {
            stage: match report.state {
                msg::RECOVERY_INACTIVE => Stage::Inactive,
                msg::RECOVERY_WAITING => Stage::Waiting,
                msg::RECOVERY_RUNNING => Stage::Recovering,
                msg::RECOVERY_COMPLETE => Stage::Complete,
                _ => Stage::Unknown,
            },
            began_s: report.began_s,
            duration_s: report.duration_s,
            remaining_s: report.remaining_s,
            expected: report.expected,
            connected: report.connected,
            replaying: report.replaying,
            unfinished: report.unfinished,
            completed: report.completed,
            evicted: report.evicted,
            replayed: report.replayed,
            queued: report.queued,
            next_transno: report.next_transno.0,
        }
    }
}
