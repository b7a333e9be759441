//! What the framework does for a role, seen from outside: an MDT is the target.

mod admin;
mod many;
mod sessions;
