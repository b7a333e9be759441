//! What an MDT is asked of quotas, outside any session. What a user may see and set, the mount decides that asks.

use crate::wire_struct;

/// A kind of owners: users.
pub const QUOTA_USER: u8 = 0;
/// A kind of owners: groups.
pub const QUOTA_GROUP: u8 = 1;
/// Longest time that an owner may be above a soft limit, in seconds: what fits with a time of today.
pub const QUOTA_GRACE_MAX_S: u64 = 1 << 40;

wire_struct! {
    /// Asks what an owner has, and may have.
    pub struct ReadQuota {
        /// One of `QUOTA_*`.
        pub kind: u8,
        /// Number of the user or group.
        pub id: u32,
    }
}

wire_struct! {
    /// Changes what an owner may have; answered when it is durable. What is not said stays.
    pub struct SetQuota {
        /// One of `QUOTA_*`.
        pub kind: u8,
        /// Number of the user or group.
        pub id: u32,
        /// The new soft limit of inodes; 0 for none.
        pub inodes_soft: Option<u64>,
        /// The new hard limit; 0 for none.
        pub inodes_hard: Option<u64>,
        /// How long every owner of the kind may be above its soft limit, in seconds.
        pub inodes_grace_s: Option<u64>,
    }
}

wire_struct! {
    /// What an owner has, and may have.
    pub struct QuotaState {
        /// Of inodes.
        pub inodes: QuotaUse,
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
    }
}
