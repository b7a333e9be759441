//! The command `cargo xtask`.

// A tool of the developers, never a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::PathBuf;
use std::process::ExitCode;

use xtask::tidy;

const USAGE: &str = "\
Usage: cargo xtask <command>

Commands:
  tidy            check the rules of STYLE.md that a program can check
  tidy --shrink   the same, and lower what the ratchet allows to what is left";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let shrink = match arguments.as_slice() {
        ["tidy"] => false,
        ["tidy", "--shrink"] => true,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match tidy::run(&root(), shrink) {
        Ok(report) => {
            print!("{report}");
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: cargo says where this package is.
fn root() -> PathBuf {
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) => PathBuf::from(package).join("../.."),
        None => PathBuf::from("."),
    }
}
