//! Which server owns a target that several may serve, and for how long: what the MGS is asked outside any session.

use crate::ids::TargetId;
use crate::nid::Nid;
use crate::wire_struct;

/// Most targets that one server owns or waits for.
pub const OWNED_MAX: usize = 4096;

wire_struct! {
    /// Goes on owning targets. Needs the servers' key.
    pub struct RenewTargets {
        /// Name of the server.
        pub server: String,
        /// Its process; another one after each start.
        pub instance: u64,
        /// What it owns, as it believes.
        pub holds: Vec<Tenure>,
    }
}

wire_struct! {
    /// A target as one server owns it, from one start to one end.
    pub struct Tenure {
        /// The target.
        pub target: TargetId,
        /// Grows with every owner.
        pub epoch: u64,
    }
}

wire_struct! {
    /// What was renewed.
    pub struct TargetsRenewed {
        /// Milliseconds for which it holds, counted from the moment at which the request was sent.
        pub ttl_ms: u32,
        /// What somebody else owns, or nobody.
        pub lost: Vec<TargetId>,
    }
}

wire_struct! {
    /// Wants to own targets; the reply waits until at least one of them is free, or `wait_ms` is over. Needs the servers'
    /// key.
    pub struct TakeTargets {
        /// Name of the server.
        pub server: String,
        /// Its process.
        pub instance: u64,
        /// Where it serves.
        pub nids: Vec<Nid>,
        /// What it wants.
        pub wanted: Vec<Wanted>,
        /// Milliseconds to wait.
        pub wait_ms: u32,
    }
}

wire_struct! {
    /// A target that a server wants to own.
    pub struct Wanted {
        /// The target.
        pub target: TargetId,
        /// Newest epoch that its directory shows.
        pub seen: u64,
        /// Whether the server is the first of the target's service nodes.
        pub preferred: bool,
    }
}

wire_struct! {
    /// What the server owns from now on; nothing if the time was over.
    pub struct TargetsTaken {
        /// Milliseconds within which it has to be renewed: it may be used from the first renewal on.
        pub ttl_ms: u32,
        /// Each with its new epoch.
        pub taken: Vec<Taken>,
        ;
        /// Of those, each that a former owner may still use.
        pub former: Vec<FormerOwner>,
    }
}

wire_struct! {
    /// A server that may still use a target although it does not own it any more: it has not said that it stopped.
    pub struct FormerOwner {
        /// The target.
        pub target: TargetId,
        /// Name of the server.
        pub server: String,
        /// Where it served.
        pub nids: Vec<Nid>,
    }
}

wire_struct! {
    /// A target that a server owns from now on.
    pub struct Taken {
        /// The target.
        pub target: TargetId,
        /// Larger than that of every owner before.
        pub epoch: u64,
        /// Epoch of the owner before; 0 if there was none.
        pub before: u64,
        /// Whether the owner before has said that it stopped, or was this server: its directory may be used as it is if
        /// it had opened it and nobody else has it open.
        pub in_place: bool,
    }
}

wire_struct! {
    /// Begins to use the directory of a target, which a former owner does not use any more. Needs the servers' key.
    pub struct SettleTarget {
        /// Name of the server.
        pub server: String,
        /// Its process.
        pub instance: u64,
        /// What it owns.
        pub tenure: Tenure,
    }
}

wire_struct! {
    /// Owns a target no more: it is closed. Needs the servers' key.
    pub struct ReleaseTarget {
        /// Name of the server.
        pub server: String,
        /// Its process.
        pub instance: u64,
        /// What it owned.
        pub tenure: Tenure,
        /// Name or NID of the server that is to have it; empty for whoever wants it.
        pub to: String,
    }
}

wire_struct! {
    /// Orders a target's server to stop it and to leave it to another one. Needs the servers' key.
    pub struct HandOver {
        /// Name or NID of that server; empty for whoever wants it.
        pub to: String,
    }
}

wire_struct! {
    /// Who owns a target that several servers may serve.
    pub struct TargetOwner {
        /// The target.
        pub target: TargetId,
        /// The server.
        pub server: String,
        /// Its epoch.
        pub epoch: u64,
    }
}
