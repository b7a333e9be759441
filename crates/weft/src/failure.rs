//! Why a command did not do what it was asked: one sentence for a person, and an exit status for a script.

use std::process::ExitCode;

/// A command that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong and what to do.
    pub message: String,
    /// Exit status.
    pub status: u8,
}

/// The command was understood and could not be done.
const FAILED: u8 = 1;
/// What was written through a mount has not reached the servers.
pub const LOST: u8 = 3;
/// The command was not understood.
const USAGE: u8 = 2;

impl Failure {
    /// The command could not be done.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: FAILED }
    }

    /// The command was not understood.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: USAGE }
    }
}

impl From<mounting::Failure> for Failure {
    fn from(failure: mounting::Failure) -> Failure {
        match failure {
            mounting::Failure::Usage(message) => Failure::usage(message),
            mounting::Failure::Failed(message) => Failure::new(message),
        }
    }
}

/// What a command gives: an exit status other than 0 without a failure is an answer (of `weft status`).
pub type Outcome = Result<u8, Failure>;

/// Prints the failure, if it is one, and gives the exit status.
pub fn exit(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            err!("{program}: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}
