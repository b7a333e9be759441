//! Open files.

mod access;
mod allocate;
mod close;
mod end;
mod keeper;
mod kept;
mod open;
mod past;
mod relaid;
mod restate;
mod state;
mod table;
mod truncate;

pub(crate) use access::Accesses;
pub(crate) use close::Closer;
pub(crate) use end::Grants;
pub(crate) use keeper::Keeper;
pub(crate) use relaid::{Relaying, is_of_layout};
pub(crate) use state::{FileState, Unsent};
pub(crate) use table::{FileRef, Files, Handles, OpenFile};
