//! `lfs migrate`: moves the data of files to other OSTs while they are in use.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use fuse::control::{self, Hint, HintPart};
use parking_lot::Mutex;

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::setstripe::LayoutArguments;
use crate::lfs::{components, why_refused};

/// Files that are moved at the same time: who moves one waits for servers most of the time.
const AT_ONCE: usize = 8;

/// Move the data of files to other OSTs; who uses them waits meanwhile.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    #[command(flatten)]
    layout: LayoutArguments,
    /// Begin a component that ends there, or with `eof` has no end; what follows is about it
    #[arg(short = 'E', long, value_name = "END")]
    component_end: Vec<String>,
    /// Others wait meanwhile; always so
    #[arg(short = 'b', long)]
    block: bool,
    /// Files to move
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, parts: Vec<HintPart>) -> Outcome {
    let hint = Hint { parts, ..arguments.layout.hint("migrate")? };
    let asked = control::encode(&hint);
    let moved = |path: &PathBuf| {
        crate::control::set(path, control::MIGRATE, &asked).map_err(|error| {
            let is_directory = path.is_dir().then(|| "it is a directory; name its files".to_owned());
            let why = is_directory.unwrap_or_else(|| why_refused(path, &hint, &error));
            Failure::new(format!("error: migrate: '{}' stays where it is: {why}", path.display()))
        })
    };
    for_each(&arguments.paths, AT_ONCE, moved).map(|()| 0)
}

/// Does something with each of `all`, several at the same time, until one fails. What is said is the failure of the first that did.
fn for_each<T: Sync, E: Send>(
    all: &[T],
    at_once: usize,
    act: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(all.len()) {
            scope.spawn(|| {
                while failed.lock().is_none() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(at) else { return };
                    if let Err(error) = act(one) {
                        let mut failed = failed.lock();
                        if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                            *failed = Some((at, error));
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().map_or(Ok(()), |(_, error)| Err(error))
}

/// Options alone.
#[derive(Parser)]
#[command(no_binary_name = true, allow_negative_numbers = true, disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    layout: LayoutArguments,
}

/// What options of `lfs migrate` say, without files.
pub(crate) fn hint(options: &[OsString]) -> Result<Hint, Failure> {
    let line: Vec<OsString> =
        ["lfs", "migrate"].into_iter().map(OsString::from).chain(options.iter().cloned()).collect();
    let (words, parts) = match components::split(&line) {
        None => (options.to_vec(), Vec::new()),
        Some(line) => line.map(|line| (line.rest[2..].to_vec(), line.parts))?,
    };
    let options = Options::try_parse_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Hint { parts, ..options.layout.hint("migrate")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_at_once_until_one_fails() {
        let all: Vec<usize> = (0..100).collect();
        let done = Mutex::new(Vec::new());
        let act = |fails: usize| {
            done.lock().clear();
            for_each(&all, 4, |one| {
                done.lock().push(*one);
                if *one % fails == fails - 1 { Err(*one) } else { Ok(()) }
            })
        };
        assert_eq!(act(1000), Ok(()));
        let mut each = done.lock().clone();
        each.sort_unstable();
        assert_eq!(each, all, "each has its turn once");
        // Others may have failed by then, but it is the first that is told; and what is behind is left alone.
        assert_eq!(act(10), Err(9));
        assert!(done.lock().len() < 20, "{:?}", done.lock());
        assert_eq!(for_each(&[0; 0], 4, |_: &i32| Err(())), Ok(()));
    }

    #[test]
    fn options_without_files() {
        let check = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            hint(&words).map_err(|failure| failure.message)
        };
        let disk = Hint { pool: "disk".into(), stripe_count: 1, ..Hint::default() };
        assert_eq!(check("-p disk -c 1"), Ok(disk.clone()));
        let ends =
            check("-E 1M -c 1 -E eof -p disk").map(|hint| hint.parts.iter().map(|part| part.end).collect());
        assert_eq!(ends, Ok(vec![1 << 20, u64::MAX]));
        for bad in ["-p disk file", "-E 1M -E eof -c 1 file", "-Q", "-c x", "--help"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
