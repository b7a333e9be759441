//! `lfs migrate`: moves the data of files to other OSTs while they are in use.

use std::path::PathBuf;

use fuse::control::{self, Hint, HintPart};

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::setstripe::LayoutArguments;
use crate::lfs::why_refused;

/// Move the data of files to other OSTs; who uses them waits meanwhile.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    #[command(flatten)]
    layout: LayoutArguments,
    /// Begin a component that ends there, or with `eof` has no end; what follows is about it
    #[arg(short = 'E', long, value_name = "END")]
    component_end: Vec<String>,
    /// Files to move
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, parts: Vec<HintPart>) -> Outcome {
    let hint = Hint { parts, ..arguments.layout.hint("migrate")? };
    let asked = control::encode(&hint);
    for path in &arguments.paths {
        crate::control::set(path, control::MIGRATE, &asked).map_err(|error| {
            let is_directory = path.is_dir().then(|| "it is a directory; name its files".to_owned());
            let why = is_directory.unwrap_or_else(|| why_refused(path, &hint, &error));
            Failure::new(format!("error: migrate: '{}' stays where it is: {why}", path.display()))
        })?;
    }
    Ok(0)
}
