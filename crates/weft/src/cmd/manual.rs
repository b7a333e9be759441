//! `weft manual`: pages of the manual, and what shells complete, from the same definitions as `--help`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

use crate::failure::{Failure, Outcome};
use crate::{lctl, lfs};

/// Write the pages of the manual, and what bash, zsh and fish complete, below a directory such as /usr/share.
#[derive(clap::Args)]
pub struct Arguments {
    /// The directory; made if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Where shells look for what they complete, below the directory, and how the files are called.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let root = &arguments.directory;
    for (command, section) in programs() {
        let written = pages(root, &command, section).and_then(|()| completions(root, command));
        written.map_err(|error| {
            Failure::new(format!("{}: {}", root.display(), crate::control::describe(&error)))
        })?;
    }
    Ok(0)
}

/// Each program with its section of the manual: Lustre's `lctl` is for administrators.
fn programs() -> [(Command, &'static str); 3] {
    [(super::command(), "8"), (lfs::command(), "1"), (lctl::command(), "8")]
}

/// A page for the program, and one for each of its commands.
fn pages(root: &Path, program: &Command, section: &'static str) -> io::Result<()> {
    let directory = root.join(format!("man/man{section}"));
    fs::create_dir_all(&directory)?;
    let mut program = program.clone().disable_help_subcommand(true);
    program.build();
    page(&directory, program, section)
}

fn page(directory: &Path, command: Command, section: &'static str) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        page(directory, below.clone(), section)?;
    }
    // `lfs-setstripe`; its first line says `lfs setstripe`.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    clap_mangen::Man::new(command).section(section).manual("weft").render(&mut text)?;
    fs::write(directory.join(format!("{name}.{section}")), text)
}

fn completions(root: &Path, mut program: Command) -> io::Result<()> {
    for (shell, place) in SHELLS {
        let directory = root.join(place);
        fs::create_dir_all(&directory)?;
        let name = program.get_name().to_owned();
        let file = match shell {
            Shell::Zsh => format!("_{name}"),
            Shell::Fish => format!("{name}.fish"),
            _ => name.clone(),
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program, name, &mut text);
        fs::write(directory.join(file), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_no_hidden_one() {
        let temp = tempfile::tempdir().expect("a directory for tests");
        let root = temp.path();
        run(&Arguments { directory: root.to_owned() }).expect("it can be written");
        let has = |name: &str| root.join(name).exists();
        for there in [
            "man/man8/weft.8",
            "man/man8/weft-up.8",
            "man/man8/weft-rankfs-run.8",
            "man/man1/lfs-setstripe.1",
            "man/man8/lctl-set_param.8",
            "bash-completion/completions/lfs",
            "zsh/vendor-completions/_lctl",
            "fish/vendor_completions.d/weft.fish",
        ] {
            assert!(has(there), "{there}");
        }
        let pages = fs::read_dir(root.join("man/man8")).expect("it is there");
        let names: Vec<String> =
            pages.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| !name.contains("guard") && !name.contains("ask")), "{names:?}");
        let page = fs::read_to_string(root.join("man/man1/lfs-setquota.1")).expect("it is there");
        assert!(page.contains("\\-\\-default") && page.contains(".TH"), "{page}");
    }
}
