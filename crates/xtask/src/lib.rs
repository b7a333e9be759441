//! Checks of the repository that no compiler makes.
//!
//! `cargo xtask tidy` runs them; the same is a test, so `cargo test` runs them too.

// This crate works on files of the machine and never runs as a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod tidy;
