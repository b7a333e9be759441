//! What travels: the bodies of requests and replies, by whom they are for, and the [table of operations](operations).
//!
//! Bodies, and the structs in them, only grow at their end.

pub mod admin;
pub mod changelog;
pub mod common;
pub mod find;
pub mod flock;
pub mod hsm;
pub mod layouts;
pub mod lease;
pub mod lock;
pub mod mdt;
pub mod mgs;
pub mod operations;
pub mod ost;
pub mod owner;
pub mod quota;
pub mod xattr;

pub use admin::*;
pub use changelog::*;
pub use common::*;
pub use find::*;
pub use flock::*;
pub use hsm::*;
pub use layouts::*;
pub use lease::*;
pub use lock::*;
pub use mdt::*;
pub use mgs::*;
pub use operations::*;
pub use ost::*;
pub use owner::*;
pub use quota::*;
pub use xattr::*;
