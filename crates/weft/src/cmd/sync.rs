//! `weft sync`: makes everything durable that was written through a mount. sync(2) does not reach a FUSE process.

use std::path::PathBuf;

use fuse::control;

use crate::failure::{Failure, Outcome};
use crate::mountpoint;

/// Make everything durable that was written through a mount.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which mount [default: all of this machine]
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let paths = match &arguments.mountpoint {
        Some(path) => vec![mountpoint::absolute(path)?],
        None => mountpoint::usable()?.into_iter().map(|entry| entry.path).collect(),
    };
    if paths.is_empty() {
        return Err(Failure::new("no weft file system is mounted here; nothing is to be written"));
    }
    for path in paths {
        crate::control::set(&path, control::SYNC, b"").map_err(|error| {
            Failure::new(format!("{}: {}", path.display(), crate::control::describe(&error)))
        })?;
    }
    Ok(0)
}
