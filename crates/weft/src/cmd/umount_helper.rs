//! `umount.fuse.weft`: what umount(8) calls for a mount of weft. It ends when everything is written, as it does for other
//! file systems; the kernel tells a FUSE process of the unmount, and does not wait for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::mount::UnmountFlags;

use crate::cmd::down;
use crate::failure::Failure;
use crate::mountpoint;

/// Exit status of umount(8) for a wrong call.
const WRONG_CALL: u8 = 1;
/// Exit status of umount(8) for an unmount that failed.
const UMOUNT_FAILED: u8 = 32;
const CALL: &str = "call: umount.fuse.weft DIR [-flnrv] [-N NAMESPACE] [-t TYPE]";

/// The arguments of an unmount helper.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    operands: Vec<OsString>,
    force: bool,
    lazy: bool,
    verbose: bool,
}

/// The program called as `umount.fuse.weft DIR [-flnrv]`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let call = match parse(arguments.into_iter().skip(1)) {
        Ok(call) => call,
        Err(failure) => return fails(&failure, WRONG_CALL),
    };
    match run(&call) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fails(&failure, UMOUNT_FAILED),
    }
}

fn fails(failure: &Failure, status: u8) -> ExitCode {
    err!("umount.fuse.weft: {}", failure.message);
    ExitCode::from(status)
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Call, Failure> {
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
                'f' => call.force = true,
                'l' => call.lazy = true,
                'v' => call.verbose = true,
                // There is no table of mounts but the kernel's, and a mount that is busy is not made read-only.
                'n' | 'r' | 'i' => {}
                't' | 'N' => {
                    if flags.len() == index + 1 && arguments.next().is_none() {
                        return Err(Failure::usage(format!("-{flag} needs a value")));
                    }
                    break;
                }
                _ => return Err(Failure::usage(format!("option -{flag} is not known; {CALL}"))),
            }
        }
    }
    if call.operands.len() != 1 {
        return Err(Failure::usage(CALL));
    }
    Ok(call)
}

fn run(call: &Call) -> Result<(), Failure> {
    let directory = call.operands.first().map(PathBuf::from).unwrap_or_default();
    let name = directory.display();
    if call.force || call.lazy {
        // Nobody is waited for, and nobody who may not answer is asked.
        let mut flags = UnmountFlags::empty();
        flags.set(UnmountFlags::FORCE, call.force);
        flags.set(UnmountFlags::DETACH, call.lazy);
        return rustix::mount::unmount(&directory, flags)
            .map_err(|error| Failure::new(format!("{name} cannot be unmounted: {error}")));
    }
    let path = mountpoint::absolute(&directory)?;
    down::stop(&path)?;
    if call.verbose {
        out!("umount.fuse.weft: {name} unmounted, and everything is written");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Call, String> {
        parse(arguments.iter().map(OsString::from)).map_err(|failure| failure.message)
    }

    #[test]
    fn calls_of_umount_are_understood() {
        let call = |force, lazy, verbose| Call { operands: vec!["/mnt".into()], force, lazy, verbose };
        assert_eq!(parsed(&["/mnt"]), Ok(call(false, false, false)));
        assert_eq!(parsed(&["-lfv", "/mnt", "-t", "fuse.weft"]), Ok(call(true, true, true)));
        assert_eq!(parsed(&["/mnt", "-nr", "-N4026531840"]), Ok(call(false, false, false)));
    }

    #[test]
    fn wrong_calls_say_what_is_right() {
        assert!(parsed(&[]).is_err_and(|message| message.starts_with("call: umount.fuse.weft DIR")));
        assert!(parsed(&["/mnt", "-x"]).is_err_and(|message| message.contains("option -x is not known")));
        assert!(parsed(&["/mnt", "-t"]).is_err_and(|message| message.contains("-t needs a value")));
    }
}
