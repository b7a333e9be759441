//! `lfs migrate`: moves the data of files to other OSTs while they are in use.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use fuse::control::{self, ComponentLayout, FileLayout, Hint, HintPart, LayoutAnswer};
use fuse::moves::Move;
use parking_lot::Mutex;
use proto::limits::STRIPES_MAX;

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::names::{List, names};
use crate::lfs::setstripe::LayoutArguments;
use crate::lfs::{components, why_refused};
use crate::limit::Limiter;

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
    /// Others who read or write a file wait until it has been moved; so without this option, too
    #[arg(short = 'b', long, conflicts_with = "non_block")]
    block: bool,
    /// Leave a file where it is that others read or write meanwhile
    #[arg(short = 'n', long)]
    non_block: bool,
    /// As many stripes as the square root of the file's size in GiB, and one more
    #[arg(short = 'A', long, conflicts_with_all = ["stripe_count", "overstripe_count", "ost", "component_end"])]
    auto_stripe: bool,
    /// Print the name of each file that has been moved
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Move no more than so many MiB in a second, over all files; with G, GiB. A file that was begun is moved as fast as it can be
    #[arg(short = 'W', long, visible_alias = "bandwidth", value_name = "MIB", value_parser = mib_a_second)]
    bandwidth_limit: Option<u64>,
    /// Understood, and changes nothing: data is moved as it is written
    #[arg(short = 'D', long)]
    non_direct: bool,
    /// Move the files that LIST names, one in each line; - reads from standard input
    #[arg(long, value_name = "LIST", value_hint = clap::ValueHint::FilePath)]
    files_from: Option<PathBuf>,
    /// A NUL stands behind each name in the list, which is standard input if no other is named; -0 is the same
    #[arg(long)]
    null: bool,
    /// Files to move
    #[arg(required_unless_present_any = ["files_from", "null"], conflicts_with_all = ["files_from", "null"], value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Options that are not about a layout, but may stand before, among or behind those of components.
const ALONE: [&str; 9] =
    ["--null", "-v", "--verbose", "-b", "--block", "-n", "--non-block", "-D", "--non-direct"];
/// Those that have a value.
const WITH_VALUE: [&str; 4] = ["--files-from", "-W", "--bandwidth-limit", "--bandwidth"];

/// Takes such options out of the line of an `lfs migrate`; `-0` gets a form that is not taken for a number.
pub fn take_own_options(arguments: &mut Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "migrate") {
        return Vec::new();
    }
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    let mut words = arguments.drain(2..);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") => {
                rest.push(word);
                break;
            }
            Some("-0") => own.push("--null".into()),
            Some(option) if WITH_VALUE.contains(&option) => match words.next() {
                Some(value) => own.extend([word, value]),
                // Behind it stands nothing that would be taken for its value.
                None => rest.push(word),
            },
            Some(option) if ALONE.contains(&option) || has_value(option) => own.push(word),
            _ => rest.push(word),
        }
    }
    rest.extend(words);
    arguments.extend(rest);
    own
}

/// Whether a word is such an option together with its value.
fn has_value(word: &str) -> bool {
    let long = word.split_once('=').is_some_and(|(option, _)| WITH_VALUE.contains(&option));
    long || word.starts_with("-W")
}

/// Runs the command.
pub fn run(arguments: &Arguments, parts: Vec<HintPart>) -> Outcome {
    let wanted = Hint { parts, ..arguments.layout.hint("migrate")? };
    let list = arguments.files_from.clone().or_else(|| arguments.null.then(|| "-".into()));
    let list = list.map(|from| List { from, has_nuls: arguments.null });
    let (limiter, began) = (Mutex::new(Limiter::new(arguments.bandwidth_limit, None)), Instant::now());
    let moved = for_each(names(&arguments.paths, list.as_ref())?, AT_ONCE, |path| {
        let path = &path.inspect_err(|failure| err!("{}", failure.message))?;
        let stripe_count = match arguments.auto_stripe {
            // Whatever is wrong with it is said when it is moved.
            true => std::fs::metadata(path).map_or(1, |file| stripes_of(file.len())),
            false => wanted.stripe_count,
        };
        if arguments.bandwidth_limit.is_some() {
            let bytes = std::fs::metadata(path).map_or(0, |file| file.blocks().saturating_mul(512));
            let start = limiter.lock().take(began.elapsed(), bytes);
            std::thread::sleep(start.saturating_sub(began.elapsed()));
        }
        move_one(path, &Hint { stripe_count, ..wanted.clone() }, arguments.non_block)
            .inspect(|()| {
                if arguments.verbose {
                    out!("{}", path.display());
                }
            })
            .inspect_err(|failure| err!("{}", failure.message))
    });
    // Each has been told.
    Ok(moved.map_or_else(|first| first.status, |()| 0))
}

/// Bytes a second from what `-W` says: MiB, or with G GiB.
fn mib_a_second(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['M', 'm']) {
        Some(number) => (number, 1 << 20),
        None => text.strip_suffix(['G', 'g']).map_or((text, 1 << 20), |number| (number, 1 << 30)),
    };
    let bytes =
        number.parse().ok().and_then(|number: u64| number.checked_mul(unit)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "it is MiB a second and more than 0, as in 100, or with a unit, as in 2G".to_owned())
}

/// How many stripes a file of that size gets with `-A`, as in Lustre.
fn stripes_of(bytes: u64) -> i32 {
    let gib = bytes >> 30;
    i32::try_from(gib.isqrt() + 1).unwrap_or(i32::MAX).min(STRIPES_MAX as i32)
}

/// Moves a file to where `wanted` says. Without a wish it keeps its own layout, with objects on other OSTs, as in Lustre.
fn move_one(path: &Path, wanted: &Hint, unless_used: bool) -> Result<(), Failure> {
    let stays =
        |why: String| Failure::new(format!("error: migrate: '{}' stays where it is: {why}", path.display()));
    let hint = match *wanted == Hint::default() {
        true => own(path).map_err(|error| stays(crate::control::describe(&error)))?,
        false => Some(wanted.clone()),
    };
    let hint = hint.filter(|_| !path.is_dir());
    let hint = hint.ok_or_else(|| stays("it is a directory; name its files".to_owned()))?;
    let wanted = Move { hint, unless_used };
    crate::control::migrate(path, &wanted).map_err(|error| match error.raw_os_error() {
        Some(libc::EAGAIN) if unless_used => stays("others use it".to_owned()),
        Some(libc::EINTR) => {
            Failure::new(format!("error: migrate: '{}' is moved on by the mount", path.display()))
        }
        _ => stays(why_refused(path, &wanted.hint, &error)),
    })
}

/// The layout of a file as a wish; none for a directory.
fn own(path: &Path) -> io::Result<Option<Hint>> {
    Ok(match crate::control::get(path, control::LAYOUT)? {
        LayoutAnswer::File(layout) => Some(as_hint(&layout)),
        LayoutAnswer::Directory(_) => None,
    })
}

/// What a layout is like, wherever its objects lie.
fn as_hint(layout: &FileLayout) -> Hint {
    let part = |part: &ComponentLayout| {
        let hint = Hint {
            stripe_count: part.stripe_count,
            stripe_size: part.stripe_size,
            overstripe: part.overstriped,
            pool: part.pool.clone(),
            ..Hint::default()
        };
        // Of what lies on the MDT nothing is asked for.
        let hint = if part.on_mdt { Hint::default() } else { hint };
        HintPart { end: part.end, hint, on_mdt: part.on_mdt, extension: 0 }
    };
    let mut parts: Vec<HintPart> = Vec::new();
    for component in &layout.components {
        match parts.last_mut().filter(|_| component.extension > 0) {
            // Together with what it extends into.
            Some(before) => (before.end, before.extension) = (component.end, component.extension),
            None => parts.push(part(component)),
        }
    }
    if !parts.is_empty() {
        return Hint { parts, ..Hint::default() };
    }
    Hint {
        stripe_count: i32::try_from(layout.osts.len()).unwrap_or(i32::MAX),
        stripe_size: layout.stripe_size,
        overstripe: layout.overstriped,
        pool: layout.pool.clone(),
        ..Hint::default()
    }
}

/// Does something with each of `all`, several at the same time; those that fail do not end it. Gives the failure of the first that did, in
/// the order of `all`.
fn for_each<T: Send, E: Send>(
    all: impl Iterator<Item = T> + Send,
    at_once: usize,
    act: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let at_once = all.size_hint().1.map_or(at_once, |most| at_once.min(most));
    let all = Mutex::new(all.enumerate());
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = all.lock().next();
                    let Some((at, one)) = next else { return };
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
    fn own_options_may_stand_among_components() {
        let taken = |line: &str| {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let own = take_own_options(&mut words);
            [own, words]
                .map(|words| words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        };
        for (line, own, rest) in [
            ("lfs migrate -E 1M -c 1 -0 -E -1 -v", "--null -v", "lfs migrate -E 1M -c 1 -E -1"),
            ("lfs migrate -c 2 --files-from l", "--files-from l", "lfs migrate -c 2"),
            ("lfs migrate -c -1 -- -0 -v", "", "lfs migrate -c -1 -- -0 -v"),
            ("lfs find -0 f -v", "", "lfs find -0 f -v"),
            ("lfs migrate f --files-from", "", "lfs migrate f --files-from"),
            ("lfs migrate -E 1M -W 5 -W5 --bandwidth=2G f", "-W 5 -W5 --bandwidth=2G", "lfs migrate -E 1M f"),
        ] {
            assert_eq!(taken(line), [own, rest], "{line}");
        }
    }

    #[test]
    fn bandwidth_is_in_mib() {
        assert_eq!(["1", "5M", "2G"].map(mib_a_second), [Ok(1 << 20), Ok(5 << 20), Ok(2 << 30)]);
        for bad in ["", "0", "M", "-1", "1K", "99999999999999G"] {
            assert!(mib_a_second(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn several_at_once_whether_they_fail_or_not() {
        let all: Vec<usize> = (0..100).collect();
        let done = Mutex::new(Vec::new());
        let act = |fails: usize| {
            done.lock().clear();
            for_each(all.iter().copied(), 4, |one| {
                done.lock().push(one);
                if one % fails == fails - 1 { Err(one) } else { Ok(()) }
            })
        };
        // (Every how many fails, what is told.) It is the first, though others may have failed before it.
        for (fails, told) in [(1000, Ok(())), (10, Err(9)), (1, Err(0))] {
            assert_eq!(act(fails), told);
            let mut each = done.lock().clone();
            each.sort_unstable();
            assert_eq!(each, all, "each has its turn once");
        }
        assert_eq!(for_each(std::iter::empty::<i32>(), 4, |_| Err(())), Ok(()));
    }

    #[test]
    fn a_layout_is_a_wish_for_the_same() {
        let plain = FileLayout {
            id: "[0x200000400:0x1:0x0]".into(),
            generation: 3,
            stripe_size: 1 << 17,
            overstriped: true,
            osts: vec![2, 0, 2],
            pool: "disk".into(),
            on_mdt: false,
            released: None,
            components: Vec::new(),
        };
        let wish = Hint {
            stripe_count: 3,
            stripe_size: 1 << 17,
            overstripe: true,
            pool: "disk".into(),
            ..Hint::default()
        };
        assert_eq!(as_hint(&plain), wish);
        let component = |start, end, stripe_count, on_mdt| ComponentLayout {
            start,
            end,
            id: None,
            stripe_count,
            stripe_size: 1 << 17,
            start_index: -1,
            overstriped: true,
            osts: Vec::new(),
            pool: "disk".into(),
            on_mdt,
            released: false,
            extension: 0,
        };
        let space = ComponentLayout { extension: 1 << 26, ..component(1 << 30, u64::MAX, 0, false) };
        let components = vec![component(0, 65_536, 0, true), component(65_536, 1 << 30, 3, false), space];
        let parts = vec![
            HintPart { end: 65_536, hint: Hint::default(), on_mdt: true, extension: 0 },
            HintPart { end: u64::MAX, hint: wish, on_mdt: false, extension: 1 << 26 },
        ];
        let composite = FileLayout { components, ..plain };
        assert_eq!(as_hint(&composite), Hint { parts, ..Hint::default() });
    }

    #[test]
    fn large_files_get_more_stripes() {
        let gib = |n: u64| n << 30;
        for (bytes, stripes) in [
            (0, 1),
            (gib(1) - 1, 1),
            (gib(1), 2),
            (gib(4) - 1, 2),
            (gib(4), 3),
            (gib(100), 11),
            (u64::MAX, 2000),
        ] {
            assert_eq!(stripes_of(bytes), stripes, "{bytes} bytes");
        }
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
