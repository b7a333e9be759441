//! `weft check`: reads a target that nobody serves and says what is wrong with it; changes nothing, unless it is told to.

use std::path::PathBuf;

use crate::cmd::format::text;
use crate::cmd::serve::no_label;
use crate::failure::{Failure, Outcome};
use crate::serving;
use store::check::Depth;

/// Check a target that is not being served. Changes nothing. Exit status 0: clean; 1: damaged; 4: it is being served, so nothing
/// was looked at; 5: there is no target.
#[derive(clap::Args)]
pub struct Arguments {
    /// Directory of the target
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Read the data of all objects too and compare it with its checksums
    #[arg(long)]
    data: bool,
    /// Serve the directory from now on although the target was further: what it did since is lost, and sessions with it end. No FID
    /// is given twice. Checks nothing
    #[arg(long, conflicts_with = "data")]
    accept_older_copy: bool,
    /// Count again what the target's summary counts, and put right what it says wrong. Checks nothing else
    #[arg(long, conflicts_with_all = ["data", "accept_older_copy"])]
    sum_again: bool,
}

/// Exit status for a target that is being served.
const IN_USE: u8 = 4;
/// Exit status for a directory that is no target, or is not there.
const NO_TARGET: u8 = 5;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = std::path::absolute(&arguments.directory)
        .map_err(|error| Failure::new(format!("{}: {error}", arguments.directory.display())))?;
    let path = text(&path)?;
    let depth = if arguments.data { Depth::Data } else { Depth::Structure };
    let (node, rt) = serving::start_runtime()?;
    if arguments.accept_older_copy {
        let accepted =
            node.block_on(server::accept_older(&rt, path)).map_err(|error| not_opened(path, error))?;
        let server::Accepted { label, last } = accepted;
        out!(
            "{}-{}: this copy is served from now on; what changed behind {} is lost",
            label.fsname,
            label.target,
            last.0
        );
        return Ok(0);
    }
    if arguments.sum_again {
        let found =
            node.block_on(store::recount::sum_again(&rt, path)).map_err(|error| not_opened(path, error))?;
        for wrong in &found {
            out!("{wrong}");
        }
        out!("{path}: {} put right", found.len());
        return Ok(0);
    }
    let report = node.block_on(server::check_target(&rt, path, depth));
    let report = report.map_err(|error| not_checked(path, error))?;
    for finding in &report.findings {
        out!("{finding}");
    }
    if report.findings.len() >= store::check::FINDINGS_MAX {
        out!("... and more; these are the first {}", store::check::FINDINGS_MAX);
    }
    let name = report
        .label
        .as_ref()
        .map_or_else(|| path.to_owned(), |label| format!("{}-{}", label.fsname, label.target));
    let verdict = if report.is_clean() { "clean" } else { "DAMAGED" };
    out!("{name}: {verdict}; {} log records, {} keys", report.records, report.keys);
    Ok(u8::from(!report.is_clean()))
}

/// Why nothing was looked at, for a person.
fn not_checked(path: &str, error: store::StoreError) -> Failure {
    use std::io::ErrorKind::{NotADirectory, NotFound, WouldBlock};
    let no_target = |what: &str| {
        let message = format!("{path} {what}; name a target's directory");
        Failure { message, status: NO_TARGET }
    };
    match error {
        store::StoreError::Io(error) if error.kind() == WouldBlock => {
            let message = format!("{path} is being served, and was not looked at; stop its server first");
            Failure { message, status: IN_USE }
        }
        store::StoreError::NotATarget(_) => no_target("is no target: nothing of one is there"),
        store::StoreError::Io(error) if error.kind() == NotFound => no_target("is not there"),
        store::StoreError::Io(error) if error.kind() == NotADirectory => no_target("is no directory"),
        other => no_label(path, other),
    }
}

/// Why a target cannot be changed, for a person.
fn not_opened(path: &str, error: store::StoreError) -> Failure {
    match error {
        store::StoreError::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Failure::new(format!("{path} is being served; stop that first"))
        }
        why @ (store::StoreError::Damaged(_) | store::StoreError::NotATarget(_)) => {
            Failure::new(format!("{path}: {why}"))
        }
        other => no_label(path, other),
    }
}
