//! Sessions between clients and targets, above the runtime.
//!
//! A [`Service`] is what a target offers; an [`Import`] is a client's end of a session with one target. They meet
//! in a [`Hub`]: directly, as a call on the caller's thread, when both live in one process (`lo`), and over
//! connections otherwise (`tcp`). Servers are clients too: of the MGS, and an MDT of the OSTs.
//!
//! - [`session`]: the client's end of a session; [`export`]: the server's; [`tcp`]: what both ends of a connection share;
//! - [`callback`]: how a target asks its clients; [`hub`]: where all of it meets.

pub mod address;
pub mod callback;
pub mod habits;
pub mod hub;
pub mod import;
pub mod job;
pub mod keys;
pub mod limits;
pub mod process;
pub mod protect;
pub mod service;

mod ask;
mod clients;
mod event;
mod export;
mod frame;
mod guard;
mod session;
mod tcp;
mod together;

pub use address::{NotCarried, dialled};
pub use ask::AskError;
pub use callback::{CallbackError, Callbacks};
pub use habits::{Habits, Safeguards};
pub use hub::{Goodbye, Hub};
pub use import::{Answered, Import, ImportState, LinkState, Retaining, RpcError};
pub use keys::{Key, KeyParseError, Keys, Role};
pub use process::Process;
pub use protect::Protect;
pub use service::{Answer, Call, Origin, Peer, Service};
pub use session::{Calling, Restate};
