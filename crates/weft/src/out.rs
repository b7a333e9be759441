//! What the program says, on standard output and on standard error. Nothing else of it prints.
//!
//! Rust's own macros panic when there is nobody to print to. Here a pipe that nobody reads any more ends the process without a word,
//! as it ends other tools, and an output that takes nothing (a full disk) ends it with a sentence. What was started by then goes on:
//! it runs in another process, or does not print through here.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};

/// Exit status when standard output takes nothing: EX_IOERR of sysexits.h, which no command here has for anything else.
const UNWRITTEN: i32 = 74;

/// Prints a line.
macro_rules! out {
    ($($part:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($part)*))) };
}

/// Says a line on standard error. Whoever closed that does not want to hear it.
macro_rules! err {
    ($($part:tt)*) => { $crate::out::say(format_args!("{}\n", format_args!($($part)*))) };
}

/// Prints text as it is.
pub fn print(text: impl fmt::Display) {
    print_with(|out| write!(out, "{text}"));
}

/// Has `write` print, and ends the process if it cannot.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        end(&error);
    }
}

/// Says text as it is on standard error.
pub fn say(text: impl fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Ends the process, which could not print.
pub fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        rt::os::process::end_by_closed_pipe();
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (program, why) = (crate::program(&arguments), crate::control::describe(error));
    say(format_args!("{program}: standard output cannot be written: {why}\n"));
    std::process::exit(UNWRITTEN);
}
