//! `lctl set_param -P` and `lctl llog_print params`: parameters that the MGS keeps for every process of its file system.

use std::time::Duration;

use fuse::control;
use fuse::settings::{KEEP_PARAMETER, KeepOrder};
use proto::parameters::{Glob, may_fit_any};
use proto::settings::{SETTING_VALUE_BYTES_MAX, is_setting_name, is_setting_value};
use proto::wire::messages as msg;
use proto::{Code, TargetId};
use rpc::AskError;

use super::orders::refused;
use super::params::{self, Here};
use super::pools::{Keeper, of_error};
use super::reach::Reach;
use crate::ask;
use crate::failure::{Failure, Outcome};

/// How long the MGS may take.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// Where the MGS says what it keeps.
const KEPT: &str = "mgs.MGS.live.params";

/// `set_param -P`, and with `delete` `set_param -P -d`, of one file system.
pub fn set(reach: &mut Reach, fsname: Option<&str>, settings: &[String], delete: bool) -> Outcome {
    let fsname = one_fsname(reach, fsname)?;
    let mut status = 0;
    for setting in settings {
        let (name, value) = match setting.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None if delete => (setting.as_str(), None),
            None => return Err(Failure::usage(format!("{setting}: write NAME=VALUE"))),
        };
        let name = params::plain(name);
        checked(&name, value.unwrap_or_default())?;
        if let (Some(value), false) = (value, delete) {
            match params::keep_here(reach, &fsname, &name, value)? {
                Here::Set => {}
                Here::Nobody if may_fit_any(&Glob::new(&name)) => err!(
                    "warning: {name}: nobody who is reached from here has such a parameter; it is kept for who has it elsewhere, or later: 'lctl list_param' shows names"
                ),
                Here::Nobody => {
                    err!("error: set_param: param_path '{name}': No such file or directory");
                    status = libc::ENOENT as u8;
                    continue;
                }
                Here::Refused(refusal) => {
                    status = refusal;
                    continue;
                }
            }
        }
        change(reach, &fsname, &name, value.filter(|_| !delete))?;
    }
    Ok(status)
}

/// `llog_print params`.
pub fn print(reach: &mut Reach, log: &str) -> Outcome {
    if log != "params" {
        return Err(Failure::usage(format!(
            "{log}: the log that there is is 'params', what set_param -P keeps"
        )));
    }
    let found = params::values(reach, KEPT)?;
    if found.is_empty() {
        return Err(no_mgs(None));
    }
    for (index, line) in found.iter().flat_map(|text| text.lines()).enumerate() {
        out!("{}", record(index + 1, line));
    }
    Ok(0)
}

/// A line of Lustre's `llog_print`.
fn record(index: usize, line: &str) -> String {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    format!("- {{ index: {index}, event: set_param, device: general, parameter: {name}, value: {value} }}")
}

fn checked(name: &str, value: &str) -> Result<(), Failure> {
    if !is_setting_name(name) {
        return Err(Failure::usage(format!(
            "{name}: a name has up to 255 letters and signs without spaces, * for anything, as in osc.*.max_dirty_mb"
        )));
    }
    if !is_setting_value(value) {
        return Err(Failure::usage(format!(
            "{name}: a value that is kept has at most {SETTING_VALUE_BYTES_MAX} bytes in one line"
        )));
    }
    Ok(())
}

/// The file system that is meant: the one that is named, or the only one whose MGS is reached.
fn one_fsname(reach: &Reach, named: Option<&str>) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let of_devices = reach.devices.iter().filter(|device| device.target == TargetId::MGS);
    let mut names: Vec<&str> = of_devices.map(|device| device.fsname.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [one] => Ok(one.to_owned()),
        [] => Err(no_mgs(None)),
        _ => Err(Failure::usage(format!(
            "several file systems have their MGS here ({}): name one with --fsname",
            names.join(", ")
        ))),
    }
}

fn no_mgs(fsname: Option<&str>) -> Failure {
    let of = fsname.map_or(String::new(), |fsname| format!(" of {fsname}"));
    Failure {
        message: format!("no MGS{of} is reached from here: run this on its host, as root"),
        status: libc::EOPNOTSUPP as u8,
    }
}

/// Has the MGS keep a parameter, or keep it no longer.
fn change(reach: &mut Reach, fsname: &str, name: &str, value: Option<&str>) -> Result<(), Failure> {
    let (name, value) = (name.to_owned(), value.map(str::to_owned));
    let code = match reach.keeper(fsname)? {
        Keeper::Mount(mount) => {
            let order = KeepOrder { name: name.clone(), value };
            match ask::set(mount, KEEP_PARAMETER, &control::encode(&order)) {
                Ok(()) => return Ok(()),
                Err(error) => of_error(&error).ok_or_else(|| {
                    Failure::new(format!("{}: {}", mount.path.display(), crate::control::describe(&error)))
                })?,
            }
        }
        Keeper::Mgs(device) => {
            let order = msg::ChangeSetting { fsname: fsname.to_owned(), name: name.clone(), value };
            match reach.ask(&device, order, ORDER_WAIT)? {
                Ok(_) => return Ok(()),
                Err(AskError::Refused(code @ (Code::NotFound | Code::TooBig | Code::Invalid))) => code,
                Err(error) => return Err(refused(&device, &error)),
            }
        }
    };
    Err(sentence(fsname, &name, code))
}

/// What a refusal means, and what can be done.
fn sentence(fsname: &str, name: &str, code: Code) -> Failure {
    let (message, status) = match code {
        Code::NotFound => (
            format!("{name} is not kept: 'lctl llog_print params' lists what the MGS of {fsname} keeps"),
            libc::ENOENT,
        ),
        Code::TooBig => (
            format!(
                "{fsname} keeps as many parameters as it can: delete some with 'lctl set_param -P -d NAME'"
            ),
            libc::E2BIG,
        ),
        Code::Forbidden => {
            (format!("{name}: Permission denied: root sets it, on the host of the MGS"), libc::EACCES)
        }
        Code::NotSupported => return no_mgs(Some(fsname)),
        _ => (format!("{name}: the MGS of {fsname} refuses: {code}"), libc::EINVAL),
    };
    Failure { message, status: status as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_lustres() {
        assert_eq!(
            record(3, "osc.*.max_dirty_mb=64"),
            "- { index: 3, event: set_param, device: general, parameter: osc.*.max_dirty_mb, value: 64 }"
        );
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        assert!(checked("osc.*.max_dirty_mb", "64").is_ok());
        for (name, value) in [("", "1"), ("a b", "1"), ("a", "1\n2"), ("a", &"x".repeat(1025))] {
            assert!(checked(name, value).is_err(), "{name}={value}");
        }
        let failure = sentence("w", "debug", Code::NotFound);
        assert_eq!(
            (failure.message.as_str(), i32::from(failure.status)),
            ("debug is not kept: 'lctl llog_print params' lists what the MGS of w keeps", libc::ENOENT)
        );
    }
}
