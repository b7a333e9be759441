//! What the MGS answers.

use crate::ids::{ClientId, OstIndex, TargetId, Transno};
use crate::nid::Nid;
use crate::wire_struct;

use super::owner::TargetOwner;

/// What a page of the configuration takes, in bytes, unless one target takes more.
pub const CONFIG_PAGE_BYTES: usize = 256 << 10;

wire_struct! {
    /// A target's process tells that it serves the target, and where. Needs the servers' key.
    pub struct Register {
        /// File system of the target.
        pub fsname: String,
        /// Kind and index.
        pub target: TargetId,
        /// The target's own name, made when it was formatted: tells a restart from another target that claims the
        /// same index.
        pub uuid: ClientId,
        /// Where the target is served, best first.
        pub nids: Vec<Nid>,
        /// The server that serves it; targets of one server share its fate and its links.
        pub server: String,
        ;
        /// Epoch of the owner, for a target that several servers may serve; 0 for others.
        pub epoch: u64,
        /// Whether the server is not the first of the target's service nodes, and so only stands in for that.
        pub stands_in: bool,
        /// Whether the target takes the place of one with the same index that is lost or was removed.
        pub replaces: bool,
    }
}

wire_struct! {
    /// The target is in the table.
    pub struct Registered {
        /// Version of the configuration that has it.
        pub version: u64,
        ;
        /// Whether clients are told of it now, because something is new.
        pub told: bool,
    }
}

wire_struct! {
    /// A target's process tells how far the target is, before anybody else hears of it, and again when it has to be remembered: the
    /// MGS refuses a target that was further before. Needs the servers' key.
    pub struct Claim {
        /// File system of the target.
        pub fsname: String,
        /// Kind and index.
        pub target: TargetId,
        /// The target's own name.
        pub uuid: ClientId,
        /// Where the target is to be served.
        pub nids: Vec<Nid>,
        /// Drawn at this start of the target: tells it from another copy.
        pub instance: u64,
        /// How often the target was opened.
        pub boot: u64,
        /// Its newest change that is durable.
        pub committed: Transno,
        /// Whether several servers may serve it: then its owner is chosen elsewhere.
        pub shared: bool,
        ;
        /// Whether it takes the place of one with the same index that is lost or was removed.
        pub replaces: bool,
    }
}

wire_struct! {
    /// The MGS will know the target again, and that is durable.
    pub struct Claimed {
        ;
        /// How many targets had its index before.
        pub replaced: u32,
    }
}

wire_struct! {
    /// Asks for the configuration ([`crate::config`]). The reply waits until there is a newer one than `known`, or `wait_ms`
    /// is over.
    pub struct GetConfig {
        /// File system that is meant.
        pub fsname: String,
        /// Version that the asker has; 0 for none.
        pub known: u64,
        /// Milliseconds to wait for a newer one.
        pub wait_ms: u32,
        ;
        /// Only what changed behind `known` is wanted, and at most [`CONFIG_PAGE_BYTES`] of it; else everything, in one message.
        pub pages: bool,
        /// Only the settings are wanted, and `known` is the version of their newest change.
        pub settings_only: bool,
    }
}

wire_struct! {
    /// The configuration of a file system, or a page of it.
    pub struct Config {
        /// Grows with every change. What is told, with what the asker has, is of this version.
        pub version: u64,
        /// Name of the file system.
        pub fsname: String,
        /// Every target, by kind and index; of a page, those that changed, in the order in which they did.
        pub targets: Vec<TargetEntry>,
        ;
        /// Who owns those of them that several servers may serve.
        pub owners: Vec<TargetOwner>,
        /// Those of them that new files keep away from, in order.
        pub degraded: Vec<TargetId>,
        /// Of a page, the newest version: there is more until `version` is that. 0 for everything in one message.
        pub newest: u64,
        /// Every pool; of a page, those that changed, in the order in which they did.
        pub pools: Vec<PoolEntry>,
        /// The names of all pools that there are, by name, if a pool has changed: others are no more.
        pub pool_names: Option<Vec<String>>,
        /// Every setting that there is ([`crate::settings`]), in the order in which they were set, if one has changed.
        pub settings: Option<Vec<Setting>>,
        /// Targets that are no part of the file system any more; of a page, those that changed.
        pub removed: Vec<TargetId>,
    }
}

impl Config {
    /// A configuration without anything.
    pub fn empty(fsname: &str) -> Config {
        Config {
            version: 0,
            fsname: fsname.to_owned(),
            targets: Vec::new(),
            owners: Vec::new(),
            degraded: Vec::new(),
            newest: 0,
            pools: Vec::new(),
            pool_names: None,
            settings: None,
            removed: Vec::new(),
        }
    }
}

wire_struct! {
    /// A pool in the configuration.
    pub struct PoolEntry {
        /// Its name.
        pub name: String,
        /// Its members, in order.
        pub osts: Vec<OstIndex>,
    }
}

/// [`ChangePool::change`]: an empty pool is made.
pub const POOL_NEW: u8 = 1;
/// OSTs become members.
pub const POOL_ADD: u8 = 2;
/// OSTs are members no longer.
pub const POOL_REMOVE: u8 = 3;
/// The pool, which is empty, ends.
pub const POOL_DESTROY: u8 = 4;

wire_struct! {
    /// Changes a pool, wholly or not at all ([`crate::pool`]). Needs the servers' key.
    pub struct ChangePool {
        /// File system that is meant.
        pub fsname: String,
        /// Name of the pool.
        pub name: String,
        /// What is done: [`POOL_NEW`] and the others.
        pub change: u8,
        /// The OSTs that it is done with.
        pub osts: Vec<OstIndex>,
    }
}

wire_struct! {
    /// The pool is as it was to be, and that is durable.
    pub struct PoolChanged {
        /// Version of the configuration that has it.
        pub version: u64,
    }
}

wire_struct! {
    /// Takes an OST out of the file system, and out of its pools; or takes that back, but for the pools. Needs the servers' key.
    pub struct RemoveTarget {
        /// File system that is meant.
        pub fsname: String,
        /// Kind and index.
        pub target: TargetId,
        /// Nothing is done: only what would be is told.
        pub only_look: bool,
        /// It is part of the file system again, unless another one has taken its place.
        pub undo: bool,
    }
}

wire_struct! {
    /// The target is no part of the file system any more, or is again, and that is durable.
    pub struct TargetRemoved {
        /// Version of the configuration in which that is so; if nothing was done, the newest.
        pub version: u64,
        /// The pools that the target was taken out of.
        pub pools: Vec<String>,
    }
}

wire_struct! {
    /// Asks for pools. Needs the servers' key.
    pub struct ReadPools {
        /// File system that is meant.
        pub fsname: String,
        /// The pool whose members are wanted; empty for none.
        pub name: String,
        /// OSTs of which is asked whether the file system has them.
        pub osts: Vec<OstIndex>,
    }
}

wire_struct! {
    /// A parameter that the MGS keeps, for whoever has one of that name.
    pub struct Setting {
        /// Its name; `*` stands for any characters.
        pub name: String,
        /// Its value.
        pub value: String,
        /// Version of the configuration that setting it has made.
        pub version: u64,
    }
}

wire_struct! {
    /// Has the MGS keep a parameter, or keep it no longer. Needs the servers' key.
    pub struct ChangeSetting {
        /// File system that is meant.
        pub fsname: String,
        /// Its name; `*` stands for any characters.
        pub name: String,
        /// Its value; `None` to delete it.
        pub value: Option<String>,
    }
}

wire_struct! {
    /// It is durable.
    pub struct SettingChanged {
        /// Version of the configuration since then.
        pub version: u64,
    }
}

wire_struct! {
    /// The pools that there are.
    pub struct PoolsTold {
        /// Their names, in order.
        pub names: Vec<String>,
        /// The members of the pool that was asked for, in order.
        pub osts: Vec<OstIndex>,
        /// Of the OSTs that were asked for, those that the file system does not have.
        pub unknown: Vec<OstIndex>,
    }
}

wire_struct! {
    /// A target tells that new files are to keep away from it, or no longer. That ends with its next [`Register`], too. Needs the
    /// servers' key.
    pub struct MarkTarget {
        /// Kind and index.
        pub target: TargetId,
        /// The target's own name.
        pub uuid: ClientId,
        /// Whether they are to.
        pub degraded: bool,
    }
}

wire_struct! {
    /// One target in the configuration.
    pub struct TargetEntry {
        /// Kind and index.
        pub target: TargetId,
        /// The target's own name.
        pub uuid: ClientId,
        /// Where it is served, best first: then, where else it may be.
        pub nids: Vec<Nid>,
        /// The server that serves it, or the first of those that may.
        pub server: String,
        ;
        /// Whether there was another target with this index before: what it had is lost.
        pub replaces: bool,
    }
}
