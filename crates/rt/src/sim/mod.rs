//! A world of simulated machines: one thread, virtual nanoseconds, everything drawn from a seed.
//!
//! A [`Sim`] owns the world and runs it; a [`Handle`] changes it (crash, partition, pause); a [`Node`] is one
//! incarnation of one machine, and what [`crate::Rt::sim`] takes. Time passes only when no task can run. Nothing
//! here is done per tick or per pair of nodes, so idle nodes cost only their memory.
//!
//! What is random and who controls it is written in `docs/determinism.md`.

pub mod disk;
pub mod net;

mod clock;
mod control;
mod cut;
mod executor;
mod machines;
mod node;
mod options;
mod rng;
mod run;
mod slab;
mod trace;
mod world;

#[cfg(test)]
mod tests;

pub use control::Handle;
pub use cut::{Moment, PowerCut, Step};
pub use node::Node;
pub use options::{Chance, DiskOptions, NetOptions, Options, Order, Span};
pub use rng::Rng;
pub use run::{Outcome, Sim};
pub use trace::Stats;
