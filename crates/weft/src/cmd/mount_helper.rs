//! `mount.weft`: what mount(8) calls for `mount -t weft` and for lines of /etc/fstab.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cmd::mount::{self, MountOptions, Request, Unknown};
use crate::cmd::remount;
use crate::daemon::Place;
use crate::failure::Failure;
use mounting::Source;

/// Exit status of mount(8) for a wrong call.
const WRONG_CALL: u8 = 1;
/// Exit status of mount(8) for a mount that failed.
const MOUNT_FAILED: u8 = 32;

/// The arguments of a mount helper.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    operands: Vec<OsString>,
    options: String,
    sloppy: bool,
    fake: bool,
    verbose: bool,
}

impl Call {
    /// What becomes of options that are not known.
    fn unknown(&self) -> Unknown {
        if self.sloppy { Unknown::LetPass } else { Unknown::Refused }
    }
}

/// The program called as `mount.weft SPEC DIR [-sfnv] [-o OPTIONS]`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let result = parse(arguments.into_iter().skip(1)).and_then(run);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, status)) => {
            err!("mount.weft: {}", failure.message);
            ExitCode::from(status)
        }
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Call, (Failure, u8)> {
    let wrong = |message: String| (Failure::usage(message), WRONG_CALL);
    let mut call = Call::default();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let Some(flags) = text.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            call.operands.push(argument);
            continue;
        };
        for (index, flag) in flags.char_indices() {
            match flag {
                's' => call.sloppy = true,
                'f' => call.fake = true,
                // There is no table of mounts to leave alone but the kernel's.
                'n' => {}
                'v' => call.verbose = true,
                'o' | 't' | 'N' => {
                    let behind = &flags[index + 1..];
                    let value = if behind.is_empty() {
                        arguments.next().map(|value| value.to_string_lossy().into_owned())
                    } else {
                        Some(behind.to_owned())
                    };
                    let value = value.ok_or_else(|| wrong(format!("-{flag} needs a value")))?;
                    if flag == 'o' {
                        call.options = [call.options, value].join(",");
                    }
                    break;
                }
                _ => {
                    return Err(wrong(format!(
                        "option -{flag} is not known; call: mount.weft NID:/FSNAME DIR [-sfnv] [-o OPTIONS]"
                    )));
                }
            }
        }
    }
    if call.operands.len() != 2 {
        return Err(wrong("call: mount.weft NID:/FSNAME DIR [-sfnv] [-o OPTIONS]".into()));
    }
    Ok(call)
}

fn run(call: Call) -> Result<(), (Failure, u8)> {
    let wrong = |failure: Failure| (failure, WRONG_CALL);
    if remount::is_meant(&call.options) {
        let directory = call.operands.get(1).map(PathBuf::from).unwrap_or_default();
        let changed =
            if call.fake { Ok(()) } else { remount::run(&directory, &call.options, call.unknown()) };
        return changed.map_err(|failure| (failure, MOUNT_FAILED));
    }
    let unknown = call.unknown();
    let [source, mountpoint] = <[OsString; 2]>::try_from(call.operands)
        .map_err(|_| wrong(Failure::usage("call: mount.weft NID:/FSNAME DIR")))?;
    let source = Source::parse(&source.to_string_lossy()).map_err(|failure| wrong(failure.into()))?;
    let options = MountOptions::parse(&call.options, unknown).map_err(wrong)?;
    if call.verbose {
        out!("mount.weft: {source} on {}", PathBuf::from(&mountpoint).display());
    }
    if call.fake {
        return Ok(());
    }
    let request = Request { source, mountpoint: mountpoint.into(), options, place: Place::Background };
    mount::mount(request).map(|_| ()).map_err(|failure| (failure, MOUNT_FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Call, u8> {
        parse(line.split(' ').map(OsString::from)).map_err(|(_, status)| status)
    }

    #[test]
    fn calls_of_mount_are_parsed() {
        let call = check("a@tcp:/weft /mnt -sn -o rw,noauto -v").expect("a call of mount(8)");
        assert_eq!(call.operands, ["a@tcp:/weft", "/mnt"]);
        assert!(call.sloppy && call.verbose && !call.fake);
        assert_eq!(call.options, ",rw,noauto");
        assert_eq!(check("a@tcp:/weft /mnt -oro").map(|call| call.options), Ok(",ro".into()));
        assert_eq!(check("a@tcp:/weft"), Err(1));
        assert_eq!(check("a@tcp:/weft /mnt -o"), Err(1));
        assert_eq!(check("a@tcp:/weft /mnt -x"), Err(1));
    }
}
