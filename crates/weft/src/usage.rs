//! Lines that are not understood: what is wrong, and no advice that makes it worse.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// Options of Lustre's tools that are not available, and what they are about.
const OPTIONS_NOT_YET: [(&str, &[(&str, &str)]); 3] = [
    (
        "setstripe",
        &[
            ("-z", "files that extend themselves"),
            ("--extension-size", "files that extend themselves"),
            ("-N", "mirrors"),
            ("--mirror-count", "mirrors"),
            ("-y", "layouts in YAML"),
            ("--yaml", "layouts in YAML"),
            ("--copy", "layouts of other files"),
        ],
    ),
    (
        "migrate",
        &[
            ("-m", "several MDTs"),
            ("--mdt-index", "several MDTs"),
            ("-z", "files that extend themselves"),
            ("--extension-size", "files that extend themselves"),
            ("-N", "mirrors"),
        ],
    ),
    ("getstripe", &[("-m", "several MDTs"), ("-v", "more details")]),
];

/// The arguments, or the exit status of a program that has said what is wrong with them, or its help.
pub fn parse<A: Parser>(arguments: Vec<OsString>) -> Result<A, ExitCode> {
    let command = arguments.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    A::try_parse_from(arguments).map_err(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument
            && let Some(sentence) = not_yet(&command, error.get(ContextKind::InvalidArg))
        {
            err!("{sentence}");
        } else {
            // "To pass it as a value, use -- before it" makes files of that name.
            error.remove(ContextKind::Suggested);
            if let Err(unwritten) = error.print()
                && !error.use_stderr()
            {
                crate::out::end(&unwritten);
            }
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
    })
}

fn not_yet(command: &str, argument: Option<&ContextValue>) -> Option<String> {
    let Some(ContextValue::String(argument)) = argument else { return None };
    option_not_yet(command, argument)
}

/// The sentence for an option of Lustre's that `command` does not have.
pub fn option_not_yet(command: &str, argument: &str) -> Option<String> {
    let (_, options) = OPTIONS_NOT_YET.iter().find(|(name, _)| *name == command)?;
    let (option, what) = options.iter().find(|(option, _)| *option == argument)?;
    Some(format!("error: {command}: {option} is not available yet: there are no {what}"))
}

/// Why there is no such sub-command: Lustre's `known` ones are not available yet, others are none.
pub fn no_command(program: &str, words: &[OsString], known: &[&str]) -> Failure {
    let word = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    if known.contains(&word.as_str()) {
        return Failure::usage(format!("error: {word}: not available yet; \"{program} help\" lists what is"));
    }
    Failure::usage(format!("error: {word}: no such command; \"{program} help\" lists those that there are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_told_from_what_is_not_known() {
        let said = |command, argument: &str| not_yet(command, Some(&ContextValue::String(argument.into())));
        let told = "error: setstripe: -z is not available yet: there are no files that extend themselves";
        assert_eq!(said("setstripe", "-z").as_deref(), Some(told));
        assert_eq!((said("setstripe", "-Q"), said("df", "-E")), (None, None));
        let words = |word: &str| no_command("lfs", &[word.into()], &["quota"]).message;
        assert_eq!(words("quota"), "error: quota: not available yet; \"lfs help\" lists what is");
        assert_eq!(words("qota"), "error: qota: no such command; \"lfs help\" lists those that there are");
    }
}
