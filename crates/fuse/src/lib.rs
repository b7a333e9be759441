//! The kernel's protocol on one side, the client on the other.
//!
//! [`kernel`] is the kernel's language, bytes to requests and answers to bytes; [`engine`] brings requests and takes
//! answers back; `dispatch` turns a request into an operation of [`ops`], which says what it means to the client and
//! knows nothing of FUSE. [`control`] is the language that
//! `lfs` and a mount speak through extended attributes, and through [`socket`]; [`session`] mounts, serves and unmounts.

pub mod session;

pub mod abort;
mod asking;
mod caller;
pub mod changelog;
pub mod control;
mod dispatch;
pub mod engine;
mod expire;
mod find;
mod helper;
pub mod hsm;
pub mod imports;
mod interrupt;
mod jobs;
pub mod kernel;
mod known;
mod learning;
mod moved;
pub mod moves;
mod names;
mod notify;
pub mod ops;
pub mod parameters;
pub mod pools;
mod proc;
mod progress;
pub mod projects;
pub mod quotas;
mod readahead;
mod remembered;
mod reopen;
pub mod settings;
mod settling;
pub mod socket;
pub mod states;
mod stats;
mod threads;
mod virtuals;
mod ways;
