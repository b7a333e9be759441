//! `weft sync`: makes everything durable that was written through a mount. sync(2) does not reach a FUSE process.

use std::path::PathBuf;

use fuse::control;

use crate::failure::{Failure, Outcome};
use crate::{ask, mountpoint};

/// Make everything durable that was written through a mount.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which mount [default: all of this machine]
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let (mounts, left_out) = mountpoint::meant(arguments.mountpoint.as_deref())?;
    if mounts.is_empty() && !left_out {
        return Err(Failure::new("no weft file system is mounted here; nothing is to be written"));
    }
    for mount in mounts {
        ask::order(&mount, control::SYNC).map_err(|error| {
            let told = crate::control::describe(&error);
            Failure::new(format!(
                "{}: {told}; the log of the mount says what is not durable, and why",
                mount.path.display()
            ))
        })?;
    }
    Ok(u8::from(left_out))
}
