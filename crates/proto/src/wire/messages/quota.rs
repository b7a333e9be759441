//! What an MDT is asked of quotas. What a user may see and set, the mount decides that asks.

use crate::ids::DataTarget;
use crate::wire_struct;

/// A kind of owners: users.
pub const QUOTA_USER: u8 = 0;
/// A kind of owners: groups.
pub const QUOTA_GROUP: u8 = 1;
/// A kind of owners: projects. 0 is none.
pub const QUOTA_PROJECT: u8 = 2;
/// In a kind: what is asked or said is about the space of a pool's OSTs. An MDT that knows no limits of pools refuses the kind.
pub const QUOTA_IN_POOL: u8 = 0x10;
/// In place of an owner's number: limits that are said of it are those of every owner of the kind of whom nothing else was said, but for 0.
/// Nobody has this number: chown(2) takes it for "as before".
pub const QUOTA_DEFAULT_ID: u32 = u32::MAX;
/// Longest time that an owner may be above a soft limit, in seconds: what fits with a time of today.
pub const QUOTA_GRACE_MAX_S: u64 = 1 << 40;

wire_struct! {
    /// Asks what an owner has, and may have.
    pub struct ReadQuota {
        /// One of `QUOTA_*`, with [`QUOTA_IN_POOL`] if a pool is meant.
        pub kind: u8,
        /// Number of the user, group or project, or [`QUOTA_DEFAULT_ID`].
        pub id: u32,
        ;
        /// The pool; empty if none is meant.
        pub pool: String,
    }
}

wire_struct! {
    /// Changes what an owner may have; answered when it is durable. What is not said stays.
    pub struct SetQuota {
        /// One of `QUOTA_*`, with [`QUOTA_IN_POOL`] if a pool is meant.
        pub kind: u8,
        /// Number of the user, group or project.
        pub id: u32,
        /// The new soft limit of inodes; 0 for none.
        pub inodes_soft: Option<u64>,
        /// The new hard limit; 0 for none.
        pub inodes_hard: Option<u64>,
        /// How long every owner of the kind may be above its soft limit, in seconds.
        pub inodes_grace_s: Option<u64>,
        ;
        /// The new soft limit of space, in bytes; 0 for none.
        pub bytes_soft: Option<u64>,
        /// The new hard limit of space, in bytes; 0 for none.
        pub bytes_hard: Option<u64>,
        /// How long every owner of the kind may be above its soft limit of space, in seconds.
        pub bytes_grace_s: Option<u64>,
        /// The owner has no limits of its own any more: what is said here is not looked at, and those of [`QUOTA_DEFAULT_ID`] apply.
        pub forget: bool,
        /// The pool; empty if none is meant. It has limits of space alone.
        pub pool: String,
    }
}

wire_struct! {
    /// What an owner has, and may have.
    pub struct QuotaState {
        /// Of inodes: without limits if a pool is meant.
        pub inodes: QuotaUse,
        ;
        /// Of space, in bytes. Targets that do not answer are not in it, as far as nobody knows what they have.
        pub bytes: Option<QuotaUse>,
        /// What of it lies where.
        pub targets: Vec<TargetUsage>,
    }
}

wire_struct! {
    /// What an owner has of one target.
    pub struct TargetUsage {
        /// The target.
        pub target: DataTarget,
        /// The space that its objects occupy there, in bytes; `None` if the target does not answer.
        pub bytes: Option<u64>,
    }
}

wire_struct! {
    /// What a client has written of an owner's and not sent, or is about to; what the MDT heard before is replaced. The answer permits
    /// more. So `write` says that a limit is reached, and nothing fails that was accepted.
    pub struct HoldSpace {
        /// The user.
        pub uid: u32,
        /// The group.
        pub gid: u32,
        /// Bytes that the client has or may still write by what it was permitted, and that no target has answered.
        pub held: u64,
        /// The least that it needs more, in bytes; 0 if it only tells.
        pub least: u64,
        /// What it can use.
        pub most: u64,
        /// The project; 0 for none.
        pub project: u32,
        ;
        /// What lies in this pool alone, or may; empty: all.
        pub pool: String,
    }
}

wire_struct! {
    /// What a client may write of an owner's.
    pub struct SpaceHeld {
        /// So many bytes more; 0 if a limit is reached.
        pub bytes: u64,
        /// None of user, group and project has a limit, for so many milliseconds from the question on.
        pub free_ms: u32,
        /// Others may give back what they were permitted, or space is being freed: to be asked again.
        pub is_changing: bool,
        ;
        /// The pools in which one of them has a limit: of what lies there, the client has to be permitted that too.
        pub pools: Vec<String>,
        /// There are no others for so many milliseconds from the question on; 0 from an MDT that knows no limits of pools.
        pub pools_ms: u32,
    }
}

wire_struct! {
    /// One thing that is limited.
    pub struct QuotaUse {
        /// What the owner has.
        pub used: u64,
        /// What it may have for long; 0 for no limit.
        pub soft: u64,
        /// What it may have at all; 0 for no limit.
        pub hard: u64,
        /// Until when it may be above the soft limit, in seconds of the MDT's clock since 1970; 0 if it is not.
        pub deadline_s: u64,
        /// How much of that is left, in seconds.
        pub left_s: u64,
        /// How long it may be above the soft limit, in seconds.
        pub grace_s: u64,
        ;
        /// Whether the owner has no limits of its own, and these are those of [`QUOTA_DEFAULT_ID`].
        pub is_default: bool,
    }
}
