//! The lease of a client with the MGS, and what servers ask about it (`docs/wire.md#leases`).

use crate::ids::{ClientId, TargetId};
use crate::wire_struct;

/// A state in [`LeaseStates`]: the client lives, and may use what it holds.
pub const LEASE_LIVES: u8 = 1;
/// A state in [`LeaseStates`]: the client uses nothing any more of what was asked about, and never will.
pub const LEASE_OVER: u8 = 2;
/// A state in [`LeaseStates`]: the MGS has not been there for long enough to know.
pub const LEASE_NOT_KNOWN: u8 = 3;
/// A state in [`LeaseStates`]: as far as the MGS remembers the client held nothing.
pub const LEASE_NONE: u8 = 4;
/// A state in [`LeaseStates`]: the client has said goodbye, and that it holds nothing of anybody.
pub const LEASE_LEFT: u8 = 5;

/// A state in [`LeaseStates`]: as [`LEASE_OVER`], and the MGS has not heard of the client for [`SILENT_MAX_MS`](crate::lease::SILENT_MAX_MS).
pub const LEASE_LONG_OVER: u8 = 6;

/// A wish in [`LeaseAsked`]: only to know. Who is dead has to drop what it held, should it ever come back.
pub const ASKED: u8 = 0;
/// A wish in [`LeaseAsked`]: one that lives is to drop what it holds in the session.
pub const ASKED_TO_FENCE: u8 = 1;
/// A wish in [`LeaseAsked`]: one that lives is to show up, and nobody is to drop anything.
pub const ASKED_TO_RETURN: u8 = 2;

/// Most clients that one [`AskLeases`] names.
pub const LEASES_ASKED_MAX: usize = 16_384;
/// Most orders that one [`LeaseRenewed`] brings; more come with the next one.
pub const DROP_ORDERS_MAX: usize = 4096;

wire_struct! {
    /// A client that holds something lives. It counts its lease from the moment at which it sent this.
    pub struct RenewLease {
        /// The lease as the MGS named it; 0 for a new one.
        pub lease: u64,
        /// The client holds nothing any more: the lease ends.
        pub release: bool,
        /// Numbers of orders that were carried out.
        pub dropped: Vec<u64>,
    }
}

wire_struct! {
    /// The lease goes on, or is a new one.
    pub struct LeaseRenewed {
        /// Names the lease.
        pub lease: u64,
        /// Whether the MGS knew the lease that was named: then all that targets were told of its end is in `orders`.
        pub known: bool,
        /// Milliseconds that it lasts.
        pub ttl_ms: u32,
        /// What the client has to drop.
        pub orders: Vec<DropOrder>,
        /// Targets that started again or have lost the connection, and wait for the client, which may not have noticed.
        pub awaited: Vec<Awaited>,
    }
}

wire_struct! {
    /// A target that waits for a client to come back.
    pub struct Awaited {
        /// The target.
        pub target: TargetId,
        /// Its boot.
        pub boot: u64,
    }
}

wire_struct! {
    /// A target will give to others, or has given, what the client holds of it in a session.
    pub struct DropOrder {
        /// Names the order.
        pub number: u64,
        /// The target.
        pub target: TargetId,
        /// The session that is meant; 0 for any that began in a boot of the target before `boot`.
        pub session: u64,
        /// The target's boot.
        pub boot: u64,
    }
}

wire_struct! {
    /// A target asks which clients live. Needs the servers' key.
    pub struct AskLeases {
        /// The target.
        pub target: TargetId,
        /// Its boot.
        pub boot: u64,
        /// The clients.
        pub clients: Vec<LeaseAsked>,
    }
}

wire_struct! {
    /// One client that is asked about.
    pub struct LeaseAsked {
        /// The client.
        pub client: ClientId,
        /// Its session with the target; 0 if it has none in this boot.
        pub session: u64,
        /// `ASKED*`.
        pub wish: u8,
    }
}

wire_struct! {
    /// How the clients are, in the order in which they were named.
    pub struct LeaseStates {
        /// `LEASE_*`.
        pub states: Vec<u8>,
    }
}
