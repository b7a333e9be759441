//! `lfs changelog` and `lfs changelog_clear`.

use std::io::{self, Write};
use std::time::Duration;

use proto::wire::messages::{CHANGELOG_CLEAR, OrderChangelog};

use crate::changelog::{Changelog, user};
use crate::failure::Failure;
use crate::lfs::Outcome;

/// How often a changelog is looked at that is followed.
const FOLLOW_TICK: Duration = Duration::from_millis(500);

/// Print what has changed in a file system, one line for each change.
#[derive(clap::Args)]
pub struct Arguments {
    /// Wait for more at the end
    #[arg(long)]
    follow: bool,
    /// Begin behind what this reader has cleared, as in cl1
    #[arg(long, value_name = "ID", value_parser = user)]
    user: Option<u32>,
    /// The MDT, as in w-MDT0000
    #[arg(value_name = "MDT")]
    mdt: String,
    /// The first record
    #[arg(value_name = "START")]
    start: Option<u64>,
    /// The last one
    #[arg(value_name = "END")]
    end: Option<u64>,
}

/// Let records go that a reader of a changelog does not need any more.
#[derive(clap::Args)]
pub struct ClearArguments {
    /// The MDT, as in w-MDT0000
    #[arg(value_name = "MDT")]
    mdt: String,
    /// The reader, as in cl1
    #[arg(value_name = "ID", value_parser = user)]
    user: u32,
    /// The last record that it does not need; 0 for all that there are
    #[arg(value_name = "END")]
    end: u64,
}

/// Runs `lfs changelog`.
pub fn run(arguments: &Arguments) -> Outcome {
    let changelog = Changelog::find(&arguments.mdt)?;
    let mut behind = arguments.start.unwrap_or(0).saturating_sub(1);
    if let Some(id) = arguments.user {
        let state = changelog.state()?;
        let reader = state.users.iter().find(|reader| reader.user == id);
        let reader = reader.ok_or_else(|| unknown(&changelog, id))?;
        behind = behind.max(reader.index);
    }
    let mut out = io::stdout().lock();
    loop {
        let page = match arguments.follow {
            true => changelog.page_when_there(behind)?,
            false => changelog.page(behind)?,
        };
        let is_last = page.records.is_empty();
        for record in page.records {
            if arguments.end.is_some_and(|end| record.index > end) {
                return Ok(0);
            }
            behind = record.index;
            if writeln!(out, "{record}").is_err() {
                // Whoever reads this has enough.
                return Ok(0);
            }
        }
        if out.flush().is_err() {
            return Ok(0);
        }
        match (is_last, arguments.follow) {
            (true, false) => return Ok(0),
            (true, true) => std::thread::sleep(FOLLOW_TICK),
            (false, _) => {}
        }
    }
}

/// Runs `lfs changelog_clear`.
pub fn clear(arguments: &ClearArguments) -> Outcome {
    let changelog = Changelog::find(&arguments.mdt)?;
    let (id, number) = (arguments.user, arguments.end);
    let done = changelog.order(OrderChangelog { order: CHANGELOG_CLEAR, user: id, number });
    done.map(|()| 0).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => unknown(&changelog, id),
        Some(libc::EINVAL) => Failure::new(format!(
            "changelog_clear: {} has no record {number} yet; write the last one that you have read, or 0 for all",
            changelog.name
        )),
        _ => changelog.refused(&error),
    })
}

fn unknown(changelog: &Changelog, id: u32) -> Failure {
    let name = &changelog.name;
    Failure::new(format!(
        "{name} has no reader cl{id}: 'lctl get_param mdd.{name}.changelog_users' lists them, 'lctl changelog_register' makes one"
    ))
}
