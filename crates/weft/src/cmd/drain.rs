//! `weft drain`: before maintenance of this machine, everything that a mount keeps goes back to the servers.

use std::path::PathBuf;

use fuse::control;

use crate::failure::{Failure, Outcome};
use crate::{ask, mountpoint};

/// Write everything that was written through a mount, and give back every lock, so that nobody ever waits for this machine.
/// Exit status 1: something is in use.
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
        out!("No weft file system is mounted here; nothing is held.");
    }
    let mut status = u8::from(left_out);
    for mount in mounts {
        let path = &mount.path;
        match ask::order(&mount, control::DRAIN) {
            Ok(()) => out!("{}: nothing is held any more", path.display()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                out!(
                    "{0}: all is written, but files are open or in use; \"fuser -vm {0}\" says by whom",
                    path.display()
                );
                status = 1;
            }
            Err(error) => {
                let why = crate::control::describe(&error);
                return Err(Failure::new(format!("{}: {why}", path.display())));
            }
        }
    }
    Ok(status)
}
