//! `lctl set_param -P` and `-F`, `lctl conf_param` and `lctl llog_print params`: parameters that the MGS keeps for every process of its file system.

use std::path::Path;
use std::time::Duration;

use fuse::control;
use fuse::settings::{KEEP_PARAMETER, KeepOrder};
use proto::parameters::{Glob, may_fit_any};
use proto::settings::{SETTING_VALUE_BYTES_MAX, is_setting_name, is_setting_value};
use proto::wire::messages as msg;
use proto::{Code, TargetId};
use rpc::AskError;

use super::conf::{self, Kept};
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

/// Longest file of `set_param -F`: as much as the MGS keeps is a twentieth of that.
const FILE_BYTES_MAX: u64 = 1 << 20;

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
        status = keep(reach, &fsname, name, value.filter(|_| !delete))?.unwrap_or(status);
    }
    Ok(status)
}

/// `conf_param`, and with `delete` `conf_param -d`: each says of which file system it is.
pub fn set_of_devices(reach: &mut Reach, settings: &[String], delete: bool) -> Outcome {
    let mut status = 0;
    for setting in settings {
        let Kept { fsname, name, value } = conf::parsed(setting, delete)?;
        let fsname = one_fsname(reach, fsname.as_deref())?;
        status = keep(reach, &fsname, &name, Some(value.as_str()).filter(|_| !delete))?.unwrap_or(status);
    }
    Ok(status)
}

/// `set_param -F`: each line of `llog_print` is set, whatever becomes of the others.
pub fn set_from(reach: &mut Reach, fsname: Option<&str>, file: &Path) -> Outcome {
    let failure = |error: &std::io::Error| {
        Failure::new(format!("{}: {}", file.display(), crate::control::describe(error)))
    };
    let size = std::fs::metadata(file).map_err(|error| failure(&error))?.len();
    if size > FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{}: a file of parameters is no larger than 1 MiB",
            file.display()
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|error| failure(&error))?;
    let mut status = 0;
    for Kept { fsname: own, name, value } in conf::lines(&text)? {
        let fsname = one_fsname(reach, fsname.or(own.as_deref()))?;
        match keep(reach, &fsname, &name, Some(&value)) {
            Ok(None) => out!("set_param: {name}={value}"),
            Ok(Some(refused)) => status = refused,
            Err(failure) => {
                err!("error: set_param: setting {name}={value}: {}", failure.message);
                status = failure.status;
            }
        }
    }
    Ok(status)
}

/// Has one kept, or with no value kept no longer; the exit status if it is refused, as the user was told.
fn keep(reach: &mut Reach, fsname: &str, name: &str, value: Option<&str>) -> Result<Option<u8>, Failure> {
    let name = params::plain(name);
    checked(&name, value.unwrap_or_default())?;
    if let Some(value) = value {
        match params::keep_here(reach, fsname, &name, value)? {
            Here::Set => {}
            Here::Nobody if may_fit_any(&Glob::new(&name)) => err!(
                "warning: {name}: nobody who is reached from here has such a parameter; it is kept for who has it elsewhere, or later: 'lctl list_param' shows names"
            ),
            Here::Nobody => {
                err!("error: set_param: param_path '{name}': No such file or directory");
                return Ok(Some(libc::ENOENT as u8));
            }
            Here::Refused(refusal) => return Ok(Some(refusal)),
        }
    }
    change(reach, fsname, &name, value)?;
    Ok(None)
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

/// A name and a value that can be kept.
pub fn checked(name: &str, value: &str) -> Result<(), Failure> {
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
