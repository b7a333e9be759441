//! The kernel's protocol on one side, the client on the other.
//!
//! [`ops`] says what each request of the kernel means to the client and knows nothing of FUSE's library; `bridge`
//! turns the library's callbacks into those operations; [`errno`] is the one place where refusals become errnos;
//! [`control`] is the language that `lfs` and a mount speak through extended attributes; [`session`] mounts, serves
//! and unmounts.

// FUSE is an edge: its library speaks of files, threads and times.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bridge;
mod caller;
pub mod control;
mod dirs;
pub mod errno;
mod opens;
pub mod ops;
pub mod session;
mod virtuals;
