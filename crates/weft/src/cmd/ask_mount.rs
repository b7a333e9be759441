//! The process that asks through a mount in another's place, so that only this one waits if the mount does not answer.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use crate::ask;
use crate::failure::{Failure, Outcome};

/// Ask a mount something for another process of this program.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(value_name = "KIND", value_parser = [ask::GET, ask::SET, ask::RESOLVE])]
    kind: String,
    #[arg(value_name = "PATH")]
    path: PathBuf,
    #[arg(value_name = "NAME")]
    name: OsString,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let answer = ask::for_another(&arguments.kind, &arguments.path, &arguments.name);
    let said = std::io::stdout().write_all(&answer);
    said.map_err(|error| Failure::new(format!("nobody takes the answer: {error}"))).map(|()| 0)
}
