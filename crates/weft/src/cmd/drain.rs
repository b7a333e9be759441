//! `weft drain`: before maintenance of this machine, everything that a mount keeps goes back to the servers.

use std::path::PathBuf;

use fuse::control;

use crate::failure::{Failure, Outcome};
use crate::mountpoint;

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
    let paths = match &arguments.mountpoint {
        Some(path) => vec![mountpoint::absolute(path)?],
        None => mountpoint::usable()?.into_iter().map(|entry| entry.path).collect(),
    };
    if paths.is_empty() {
        println!("No weft file system is mounted here; nothing is held.");
    }
    let mut status = 0;
    for path in paths {
        match crate::control::set(&path, control::DRAIN, b"") {
            Ok(()) => println!("{}: nothing is held any more", path.display()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                println!(
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
