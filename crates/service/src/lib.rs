//! What every target has: sessions, reply slots, exactly-once, recovery, callbacks, order of start and stop.
//!
//! A role implements [`Handler`] and sees only requests of live sessions, each of them once: what was answered
//! before is answered again from the slot's record, which the handler's batch carried to disk together with the
//! change ([`Ctx::commit`], [`Recorder`]). The role itself lives in [`Target`], which is the [`rpc::Service`]. Nothing
//! here knows a role, or asks which one it is.

mod absent;
mod admin;
mod claimant;
mod clients;
mod connect;
mod context;
mod dead;
mod disk_queues;
mod eviction;
mod exports;
mod gauge;
mod handler;
mod jobs;
pub mod keys;
mod lives;
mod lock_room;
mod parameters;
mod ranges;
mod recent;
mod recovery;
mod recovery_status;
pub mod replaced;
mod returns;
mod session;
mod slot;
mod stop;
mod tally;
mod target;
mod timing;
mod watch;

pub use claimant::{Claimant, Unclaimed};
pub use clients::{Backchannel, CallbackAnswer, Called, Clients, DEADLINE, PATIENCE};
pub use context::{Ctx, Done, Recorder, VERSION_OF_THIS, code_of, space_state};
pub use eviction::DIRECTORY as EVICTIONS;
pub use handler::{Env, HandOver, Handler, Shown, Start, Supervision};
pub use lock_room::LockRoom;
pub use ranges::{GivenUp, RangeCounts, RangeLocks, Using};
pub use recovery::{PATIENCE as RETURN_PATIENCE, Recovery};
pub use session::Session;
pub use stop::Stop;
pub use target::Target;
pub use timing::{Counted, Stats, VARIANTS};
pub use watch::{Held, Holding, Wait, Watch};
