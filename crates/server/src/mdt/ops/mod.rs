//! The operations of an MDT, a file for each.

mod access;
mod acl;
mod cancel_bits;
mod close;
pub(super) mod create;
mod create_unnamed;
mod fid_to_path;
mod flock;
mod get_attr;
mod layout;
mod link;
mod lookup;
mod open;
mod read_dir;
mod read_link;
mod rename;
mod restate_opens;
mod sequence;
mod set_attr;
mod set_size;
mod unlink;
mod xattr;
