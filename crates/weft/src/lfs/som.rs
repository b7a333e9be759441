//! `lfs getsom`: what the MDT knows of the sizes of files, without asking an OST.

use std::path::{Path, PathBuf};

use fuse::control::{self, SizeOnMdt};

use crate::failure::Failure;
use crate::lfs::Outcome;

/// Print what the MDT knows of the sizes of files; no OST is asked.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    value: Value,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// What is printed alone.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[group(multiple = false)]
struct Value {
    /// Only the bytes
    #[arg(short)]
    size: bool,
    /// Only the blocks, of 512 bytes
    #[arg(short)]
    blocks: bool,
    /// Only the flags: 1 if it is the truth, 4 if the file is open for writing, and has changed since perhaps
    #[arg(short)]
    flags: bool,
}

/// Lustre's flag of what is the truth (`SOM_FL_STRICT`).
const STRICT: u8 = 1;
/// Lustre's flag of what may be old (`SOM_FL_LAZY`).
const LAZY: u8 = 4;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    for path in &arguments.paths {
        let known: SizeOnMdt = crate::control::get(path, control::SOM).map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::ENODATA) => "it is no regular file".to_owned(),
                _ => crate::control::describe(&error),
            };
            Failure::new(format!("error: getsom: {}: {why}", path.display()))
        })?;
        crate::out::print(line(path, &known, arguments.value));
    }
    Ok(0)
}

fn line(path: &Path, known: &SizeOnMdt, value: Value) -> String {
    let SizeOnMdt { size, blocks, known } = *known;
    let flags = if known { STRICT } else { LAZY };
    match value {
        Value { size: true, .. } => format!("{size}\n"),
        Value { blocks: true, .. } => format!("{blocks}\n"),
        Value { flags: true, .. } => format!("{flags}\n"),
        _ => format!("file: {} size: {size} blocks: {blocks} flags: {flags}\n", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn check(command: &str, known: bool) -> Option<String> {
        let Arguments { value, paths } = Line::try_parse_from(command.split(' ')).ok()?.arguments;
        let told = SizeOnMdt { size: 3901, blocks: 8, known };
        Some(paths.iter().map(|path| line(path, &told, value)).collect())
    }

    #[test]
    fn lines_are_lustres() {
        assert_eq!(check("g /m/f", true).as_deref(), Some("file: /m/f size: 3901 blocks: 8 flags: 1\n"));
        assert_eq!(check("g f", false).as_deref(), Some("file: f size: 3901 blocks: 8 flags: 4\n"));
        assert_eq!(check("g -s f g", true).as_deref(), Some("3901\n3901\n"));
        assert_eq!(check("g -b f", true).as_deref(), Some("8\n"));
        assert_eq!(
            (check("g -f f", true).as_deref(), check("g -f f", false).as_deref()),
            (Some("1\n"), Some("4\n"))
        );
        for bad in ["g", "g -s -b f", "g -x f"] {
            assert_eq!(check(bad, true), None, "{bad}");
        }
    }
}
