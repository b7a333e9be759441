//! Sessions: what makes every change happen exactly once, whatever happens to connections and servers.
//!
//! A client numbers its requests (xid) and sends each that changes something in a reply slot of its own; the target
//! keeps the reply of the newest request of each slot, durable together with the change. So a request that is sent
//! again gets its old reply. What a target has answered but not yet made durable, the client keeps and replays after
//! the target's restart. Rules: `docs/wire.md#sessions`.
//!
//! Nothing here sends, waits or knows the time: [`Machine`], a client's end, and [`SlotTable`], a target's, are told what
//! happened and say what has to be done.

mod client;
mod estimate;
mod flight;
pub mod limits;
pub mod machine;
mod message;
mod record;
mod slots;

pub use client::{Asks, Begun, ClientSession, Full, Limits, Meant, Outcome, Resumption, Retained, Sent};
pub use estimate::{Estimate, Estimated};
pub use machine::{Event, Machine, Output, Step};
pub use message::Message;
pub use record::ReplyRecord;
pub use slots::{Decision, SlotTable};
