//! `lctl`: what an administrator asks of a node. Most of Lustre's sub-commands are not available yet and say so.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fuse::control::{self, Configuration, Kind, Spaces, Status};

use crate::failure::{Failure, Outcome, exit};
use crate::mountpoint;

/// Look at the file systems of this machine.
#[derive(Parser)]
#[command(name = "lctl", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List devices: number, state, type, name, uuid, references
    #[command(visible_alias = "device_list")]
    Dl,
    /// Print parameters
    #[command(name = "get_param")]
    GetParam {
        /// Print the value only
        #[arg(short = 'n')]
        value_only: bool,
        /// Print the name only
        #[arg(short = 'N', conflicts_with = "value_only")]
        name_only: bool,
        /// Names; * stands for anything
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// List names of parameters
    #[command(name = "list_param")]
    ListParam {
        /// List what is below as well
        #[arg(short = 'R')]
        recursive: bool,
        /// Names; * stands for anything
        #[arg(required = true)]
        names: Vec<String>,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The program called as `lctl`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let outcome = match Arguments::parse_from(arguments).command {
        Command::Dl => list_devices(),
        Command::GetParam { value_only, name_only, names } => get(&names, value_only, name_only),
        Command::ListParam { names, .. } => get(&names, false, true),
        Command::Other(words) => {
            let word = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
            Err(Failure::usage(format!("{word}: not available yet; \"lctl help\" lists what is")))
        }
    };
    exit("lctl", outcome)
}

fn list_devices() -> Outcome {
    let mut number = 0;
    for entry in mountpoint::usable()? {
        let path = &entry.path;
        let (Ok(status), Ok(config)) = (mountpoint::status(path), configuration(path)) else { continue };
        for line in devices(&status, &config) {
            println!("{number:3} {line}");
            number += 1;
        }
    }
    Ok(0)
}

fn configuration(path: &Path) -> std::io::Result<Configuration> {
    crate::control::get(path, control::CONFIG)
}

/// The devices of one mount: what its process serves, then what its client uses. The format is Lustre's:
/// state, type, name, uuid, references.
fn devices(status: &Status, config: &Configuration) -> Vec<String> {
    let fsname = &config.fsname;
    let mut lines = Vec::new();
    for served in &status.serves {
        let kind = match served.rsplit('-').next() {
            Some(target) if target.starts_with("OST") => "obdfilter",
            Some(target) if target.starts_with("MDT") => "mdt",
            _ => "mgs",
        };
        lines.push(format!("UP {kind} {served} {served}_UUID 1"));
    }
    let mut targets: Vec<_> = config.targets.iter().collect();
    targets.sort_by_key(|target| target.id());
    for target in targets {
        let kind = match target.kind {
            Kind::Mgs => continue,
            Kind::Mdt => "mdc",
            Kind::Ost => "osc",
        };
        lines.push(format!("UP {kind} {fsname}-{}-{kind} {fsname}-{}_UUID 1", target.id(), target.id()));
    }
    lines
}

fn get(names: &[String], value_only: bool, name_only: bool) -> Outcome {
    let mut found_all = true;
    for pattern in names {
        let matching: Vec<_> = parameters().into_iter().filter(|(name, _)| matches(pattern, name)).collect();
        if matching.is_empty() {
            eprintln!("error: get_param: param_path '{pattern}': No such file or directory");
            found_all = false;
        }
        for (name, value) in matching {
            match (value_only, name_only) {
                (true, _) => println!("{}", value()?),
                (_, true) => println!("{name}"),
                _ => println!("{name}={}", value()?),
            }
        }
    }
    Ok(if found_all { 0 } else { libc::ENOENT as u8 })
}

type Value = fn() -> Result<String, Failure>;

fn parameters() -> Vec<(&'static str, Value)> {
    vec![("health_check", health), ("version", || Ok(env!("CARGO_PKG_VERSION").to_owned()))]
}

/// `healthy`, or what is not.
fn health() -> Result<String, Failure> {
    for entry in mountpoint::usable()? {
        let silent = match crate::control::get::<Spaces>(&entry.path, control::SPACE) {
            Ok(spaces) => spaces.targets.iter().any(|target| target.space.is_none()),
            Err(_) => true,
        };
        if silent {
            return Ok("NOT HEALTHY".to_owned());
        }
    }
    Ok("healthy".to_owned())
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| matches(behind, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("version", "version", true),
            ("ver*", "version", true),
            ("*", "version", true),
            ("*e*k", "health_check", true),
            ("ver", "version", false),
            ("*x*", "version", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern}");
        }
    }

    #[test]
    fn devices_have_lustres_columns() {
        let status = Status { serves: vec!["MGS".into(), "w-OST0001".into()], ..Status::default() };
        let target = control::Target {
            kind: Kind::Ost,
            index: 1,
            uuid: "u".into(),
            nids: Vec::new(),
            server: "oss0".into(),
        };
        let config = Configuration { fsname: "w".into(), version: 1, targets: vec![target] };
        assert_eq!(
            devices(&status, &config),
            [
                "UP mgs MGS MGS_UUID 1",
                "UP obdfilter w-OST0001 w-OST0001_UUID 1",
                "UP osc w-OST0001-osc w-OST0001_UUID 1"
            ]
        );
    }
}
