//! Primitives for tasks to wait for each other.
//!
//! Those of tokio that do not depend on its runtime, do not draw random numbers and wake in order (`watch` does
//! not qualify; see `docs/determinism.md`). Every channel is bounded.

pub use tokio::sync::mpsc::{Receiver, Sender, channel};
pub use tokio::sync::oneshot;
pub use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
