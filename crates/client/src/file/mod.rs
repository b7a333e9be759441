//! Open files.

mod access;
mod allocate;
mod close;
mod keeper;
mod kept;
mod open;
mod restate;
mod state;
mod table;
mod truncate;

pub(crate) use access::Accesses;
pub(crate) use close::Closer;
pub(crate) use keeper::Keeper;
pub(crate) use state::{FileState, Unsent};
pub(crate) use table::{Files, Handles, OpenFile};
