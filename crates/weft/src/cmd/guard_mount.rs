//! The process that looks after a mount's process: when that is gone, however it went, the connection to the kernel is
//! broken, so that nobody waits for answers that never come.

use crate::failure::{Failure, Outcome};

/// Break the connection of a mount when the process that serves it has ended.
#[derive(clap::Args)]
pub struct Arguments {
    /// The process that serves it, which started this one
    #[arg(value_name = "PID")]
    parent: u32,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let failed =
        |error| Failure::new(format!("the mount of process {} is not guarded: {error}", arguments.parent));
    fuse::abort::guard(arguments.parent).map_err(failed).map(|()| 0)
}
