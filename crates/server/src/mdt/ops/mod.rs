//! The operations of an MDT, a file for each.

pub(super) mod access;
mod acl;
pub(super) mod cancel_bits;
pub(super) mod close;
pub(super) mod create;
pub(super) mod create_unnamed;
pub(super) mod fid_to_path;
pub(super) mod find;
pub(super) mod flock;
pub(super) mod get_attr;
pub(super) mod hsm;
pub(super) mod keep_promises;
pub(super) mod layout;
pub(super) mod link;
pub(super) mod lookup;
pub(super) mod open;
pub(super) mod read_dir;
pub(super) mod read_link;
pub(super) mod rename;
pub(super) mod restate_alone;
pub(super) mod restate_names;
pub(super) mod restate_opens;
pub(super) mod sequence;
pub(super) mod set_attr;
pub(super) mod set_size;
pub(super) mod unlink;
pub(super) mod xattr;
