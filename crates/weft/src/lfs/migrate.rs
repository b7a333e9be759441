//! `lfs migrate`: moves the data of files to other OSTs while they are in use.

use std::path::PathBuf;

use fuse::control;

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::setstripe::LayoutArguments;

/// Move the data of files to other OSTs; who uses them waits meanwhile.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    #[command(flatten)]
    layout: LayoutArguments,
    /// Files to move
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let hint = control::encode(&arguments.layout.hint("migrate")?);
    for path in &arguments.paths {
        crate::control::set(path, control::MIGRATE, &hint).map_err(|error| {
            let why = crate::control::describe(&error);
            Failure::new(format!("error: migrate: '{}' stays where it is: {why}", path.display()))
        })?;
    }
    Ok(0)
}
