//! Lines that are not understood: what is wrong, and no advice that makes it worse.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::failure::Failure;

/// Options of Lustre's tools that are not available, and what there is not.
type NotYet = (&'static str, &'static str);

/// Of all that makes layouts.
const OF_LAYOUTS: &[NotYet] = &[
    ("-N", "mirrors"),
    ("--mirror-count", "mirrors"),
    ("-y", "layouts in YAML"),
    ("--yaml", "layouts in YAML"),
    ("--copy", "layouts of other files"),
    ("--component-flags", "flags of components to set"),
    ("--comp-flags", "flags of components to set"),
];
/// Of `lfs setstripe`.
const OF_SETSTRIPE: &[NotYet] = &[
    ("--component-add", ONE_COMPONENT),
    ("--comp-add", ONE_COMPONENT),
    ("--component-del", ONE_COMPONENT),
    ("--comp-del", ONE_COMPONENT),
    ("--component-set", ONE_COMPONENT),
    ("--comp-set", ONE_COMPONENT),
    ("--component-id", ONE_COMPONENT),
    ("--comp-id", ONE_COMPONENT),
];
const ONE_COMPONENT: &str = "changes of one component; \"lfs migrate\" with all of them gives a file others";
/// Of `lfs migrate`.
const OF_MIGRATE: &[NotYet] = &[("-m", "several MDTs"), ("--mdt-index", "several MDTs")];
/// Of `lfs getstripe`.
const OF_GETSTRIPE: &[NotYet] = &[("-m", "several MDTs"), ("-v", "more details")];

fn options_not_yet(command: &str) -> [&'static [NotYet]; 2] {
    match command {
        "setstripe" => [OF_LAYOUTS, OF_SETSTRIPE],
        "migrate" => [OF_LAYOUTS, OF_MIGRATE],
        "getstripe" => [OF_GETSTRIPE, &[]],
        _ => [&[], &[]],
    }
}

/// The arguments, or the exit status of a program that has said what is wrong with them, or its help.
pub fn parse<A: Parser>(arguments: Vec<OsString>) -> Result<A, ExitCode> {
    let command = arguments.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    A::try_parse_from(arguments).map_err(|error| {
        let (status, is_mistake) = (error.exit_code(), error.use_stderr());
        if error.kind() == ErrorKind::UnknownArgument {
            err!("{}", sentence::<A>(&command, error));
        } else if let Err(unwritten) = plain(error).print()
            && !is_mistake
        {
            crate::out::end(&unwritten);
        }
        ExitCode::from(u8::try_from(status).unwrap_or(1))
    })
}

/// "To pass it as a value, use -- before it" makes files of that name.
fn plain(mut error: clap::Error) -> clap::Error {
    error.remove(ContextKind::Suggested);
    error
}

/// What is wrong with a line for `command` of a program; of an option that there is not also how the command is written.
pub fn sentence<A: CommandFactory>(command: &str, error: clap::Error) -> String {
    if error.kind() != ErrorKind::UnknownArgument {
        return plain(error).to_string().trim_end().to_owned();
    }
    if let Some(sentence) = not_yet(command, error.get(ContextKind::InvalidArg)) {
        return sentence;
    }
    let first = error.to_string().lines().next().unwrap_or_default().to_owned();
    let mut program = A::command();
    program.build();
    let usage = match program.find_subcommand_mut(command) {
        Some(command) => command.render_usage(),
        None => program.render_usage(),
    };
    format!("{first}\n\n{usage}")
}

fn not_yet(command: &str, argument: Option<&ContextValue>) -> Option<String> {
    let Some(ContextValue::String(argument)) = argument else { return None };
    option_not_yet(command, argument)
}

/// The sentence for an option of Lustre's that `command` does not have.
pub fn option_not_yet(command: &str, argument: &str) -> Option<String> {
    let plain = argument.split('=').next()?;
    let mut options = options_not_yet(command).into_iter().flatten();
    let (option, what) = options.find(|(option, _)| *option == plain)?;
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
        let told = "error: setstripe: -N is not available yet: there are no mirrors";
        assert_eq!(said("setstripe", "-N").as_deref(), Some(told));
        assert_eq!((said("setstripe", "-Q"), said("df", "-E")), (None, None));
        let words = |word: &str| no_command("lfs", &[word.into()], &["quota"]).message;
        assert_eq!(words("quota"), "error: quota: not available yet; \"lfs help\" lists what is");
        assert_eq!(words("qota"), "error: qota: no such command; \"lfs help\" lists those that there are");
    }
}
