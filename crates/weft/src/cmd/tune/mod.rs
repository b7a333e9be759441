//! `weft tune`: settings of this machine that matter for clients and servers: what they are, what they should be, and what that brings.
//!
//! Nothing is changed without `--apply`, and what is changed holds until the machine starts again.

mod settings;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::{mountpoint, servers};
use settings::{Machine, Setting};

/// Show settings of this machine that matter for weft, what suits them and what that brings; change them with --apply
///
/// Settings of mounts and of servers' disks are shown for those that are here now. Exit status: 1, something could not be set.
#[derive(clap::Args)]
pub struct Arguments {
    /// Show them and change nothing: the default
    #[arg(long, conflicts_with = "apply")]
    check: bool,
    /// Set what does not suit, as root; it holds until the machine starts again
    #[arg(long)]
    apply: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Further directories whose disks are to be looked at, as those of targets that are not served now
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
}

/// A setting, and what became of it.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    /// It was set to what suits; without `--apply` nothing is.
    applied: bool,
    /// Why it was not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let settings = Machine { root: Path::new("/"), mounts: mounts()?, disks: disks(&arguments.directories)? };
    let settings = settings.settings();
    let report = |setting| {
        let outcome = if arguments.apply { settings::apply(setting) } else { Ok(false) };
        let (applied, error) = outcome.map_or_else(|error| (false, Some(error)), |applied| (applied, None));
        Report { setting, applied, error }
    };
    let reports: Vec<Report<'_>> = settings.iter().map(report).collect();
    if arguments.json {
        let text = serde_json::to_string_pretty(&reports)
            .map_err(|error| Failure::new(format!("the report is no JSON: {error}")))?;
        out!("{text}");
    } else {
        reports.iter().for_each(|report| out!("{}", render(report)));
        let unsuited = reports.iter().filter(|report| !report.setting.suits && !report.applied).count();
        out!("{}", verdict(unsuited, arguments.apply));
    }
    Ok(u8::from(reports.iter().any(|report| report.error.is_some())))
}

/// Mount points of weft and the numbers of their devices.
fn mounts() -> Result<Vec<(PathBuf, u32)>, Failure> {
    Ok(mountpoint::all()?.into_iter().map(|entry| (entry.path, entry.device)).collect())
}

/// The disks of the targets that are served here, and of `directories`, each once.
fn disks(directories: &[PathBuf]) -> Result<Vec<rt::queue::Queue>, Failure> {
    let mut disks = Vec::new();
    for directory in directories {
        let found = rt::os::disk::queues(directory).map_err(|error| {
            let why = crate::control::describe(&error);
            Failure::new(format!("{}: {why}; name a directory that is there", directory.display()))
        })?;
        disks.extend(found);
    }
    let of_servers = servers::all()?.into_iter().flat_map(|server| server.directories);
    let of_mounts =
        mountpoint::usable()?.into_iter().filter_map(|mount| mount.status.data).map(PathBuf::from);
    for directory in of_servers.chain(of_mounts) {
        // What is served and gone is told by "weft status".
        disks.extend(rt::os::disk::queues(&directory).unwrap_or_default());
    }
    disks.sort_by(|one, other| one.disk.cmp(&other.disk));
    disks.dedup();
    Ok(disks)
}

fn render(report: &Report<'_>) -> String {
    let Setting { name, present, recommended, suits, gain, .. } = report.setting;
    let present = present.as_deref().unwrap_or("not there");
    let state = match (&report.error, report.applied) {
        (Some(error), _) => format!("NOT SET: {error}"),
        (None, true) => format!("set to {recommended}, was {present}"),
        (None, false) if *suits => format!("{present}, suits"),
        (None, false) => format!("{present}, recommended: {recommended}"),
    };
    format!("{name}: {state}\n    gain: {gain}")
}

fn verdict(unsuited: usize, apply: bool) -> String {
    match (unsuited, apply) {
        (0, _) => "All settings suit.".to_owned(),
        (1, false) => "1 setting does not suit; \"weft tune --apply\" as root sets it.".to_owned(),
        (count, false) => format!("{count} settings do not suit; \"weft tune --apply\" as root sets them."),
        (count, true) => format!("{count} of the settings could not be set."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_shown_with_what_became_of_it() {
        let setting = |suits| Setting {
            name: "x".into(),
            present: Some("1".into()),
            recommended: "2".into(),
            suits,
            gain: "twice as fast".into(),
            file: None,
            value: String::new(),
        };
        let shown = |suits, applied, error: Option<&str>| {
            let (setting, error) = (setting(suits), error.map(str::to_owned));
            render(&Report { setting: &setting, applied, error })
        };
        assert_eq!(shown(true, false, None), "x: 1, suits\n    gain: twice as fast");
        assert_eq!(shown(false, false, None), "x: 1, recommended: 2\n    gain: twice as fast");
        assert_eq!(shown(false, true, None), "x: set to 2, was 1\n    gain: twice as fast");
        assert_eq!(shown(false, false, Some("no")), "x: NOT SET: no\n    gain: twice as fast");
        assert!(verdict(0, false).starts_with("All") && verdict(2, false).starts_with("2 settings do not"));
    }
}
