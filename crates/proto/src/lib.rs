//! What weft's machines say to each other, and the rules that can be stated without a clock, a socket or a file.
//!
//! Ids, messages with their codec (`docs/wire.md`), layout arithmetic, and pure state machines. Nothing here is
//! async, reads a clock, names a socket or a file, or depends on the order of a hash map.

pub mod acl;
pub mod auth;
pub mod changelog;
pub mod code;
pub mod config;
pub mod find;
pub mod hsm;
pub mod identity;
pub mod ids;
pub mod intervals;
pub mod job;
pub mod layout;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod name;
pub mod nid;
pub mod owner;
pub mod ownership;
pub mod parameters;
pub mod pool;
pub mod readahead;
pub mod seal;
pub mod second_chance;
pub mod session;
pub mod settings;
pub mod shards;
pub mod statistics;
pub mod time;
pub mod types;
pub mod whom;
pub mod wire;

pub use code::Code;
pub use config::ConfigCopy;
pub use ids::{
    ClientId, DataTarget, Fid, Ino, MdtIndex, ObjectId, OstIndex, TargetId, TargetKind, Transno, Xid, mdt_of,
};
pub use job::JobId;
pub use layout::Layout;
pub use name::{FsName, Name};
pub use nid::{Network, NetworkKind, Nid};
pub use pool::Pools;
pub use settings::Settings;
pub use shards::Shards;
pub use time::Timestamp;
pub use types::{Attr, Cred, FileKind, FileOwner};
pub use whom::Whom;
