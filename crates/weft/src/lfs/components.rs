//! The components of a layout on a command line: `-E END` begins each, and what follows is about it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Parser;
use fuse::control::{Hint, HintPart};
use proto::limits::MDT_DATA_BYTES_MAX;

use crate::failure::Failure;
use crate::lfs::setstripe::LayoutArguments;
use crate::{lfs, size, usage};

/// What stands behind one `-E`.
#[derive(Parser)]
#[command(allow_negative_numbers = true, no_binary_name = true)]
struct Group {
    #[command(flatten)]
    layout: LayoutArguments,
    paths: Vec<PathBuf>,
}

/// A line with components: the line without them, and what they say.
pub struct Line {
    /// Program, command and paths.
    pub rest: Vec<OsString>,
    /// One for each component.
    pub parts: Vec<HintPart>,
}

/// The value of a `-E` at the front of `words`, and how many words it takes.
fn end_of(words: &[OsString]) -> Option<(Option<String>, usize)> {
    let word = words.first()?.to_str()?;
    if ["-E", "--component-end", "--comp-end"].contains(&word) {
        return Some((words.get(1).map(|end| end.to_string_lossy().into_owned()), 2));
    }
    let joined = ["--component-end=", "--comp-end=", "-E"];
    let end = joined.into_iter().find_map(|option| word.strip_prefix(option))?;
    Some((Some(end.to_owned()), 1))
}

/// Takes the components out of a line; `None` if it has none.
pub fn split(arguments: &[OsString]) -> Option<Result<Line, Failure>> {
    let command = arguments.get(1)?.to_str()?;
    if !["setstripe", "migrate"].contains(&command) {
        return None;
    }
    let mut groups: Vec<(Option<String>, Vec<OsString>)> = Vec::new();
    // Options before the first component are about that one.
    let mut before = Vec::new();
    let mut at = 2;
    while let Some(word) = arguments.get(at) {
        if word == "--" {
            let words = groups.last_mut().map_or(&mut before, |(_, words)| words);
            words.extend_from_slice(&arguments[at..]);
            break;
        }
        if let Some((end, taken)) = end_of(&arguments[at..]) {
            groups.push((end, std::mem::take(&mut before)));
            at += taken;
            continue;
        }
        groups.last_mut().map_or(&mut before, |(_, words)| words).push(word.clone());
        at += 1;
    }
    if groups.is_empty() { None } else { Some(line(command, &arguments[..2], groups)) }
}

fn line(
    command: &str,
    head: &[OsString],
    groups: Vec<(Option<String>, Vec<OsString>)>,
) -> Result<Line, Failure> {
    let (mut rest, mut parts): (Vec<OsString>, Vec<HintPart>) = (head.to_vec(), Vec::new());
    for (end, words) in groups {
        let bad = |why: String| Failure::usage(format!("error: {command}: -E: {why}"));
        let end = size::component_end(&end.unwrap_or_default()).map_err(bad)?;
        if parts.last().is_some_and(|last| end <= last.end) {
            return Err(bad("a component ends behind the one before it".to_owned()));
        }
        let missing = words.iter().filter_map(|word| word.to_str()).find_map(|word| not_yet(command, word));
        if let Some(missing) = missing {
            return Err(Failure::usage(missing));
        }
        let mut group = Group::try_parse_from(words)
            .map_err(|error| Failure::usage(usage::sentence::<lfs::Arguments>(command, error)))?;
        if group.layout.is_on_mdt(command)? {
            if !parts.is_empty() {
                return Err(bad("only the first component lies on the MDT".to_owned()));
            }
            if end > MDT_DATA_BYTES_MAX {
                let mib = MDT_DATA_BYTES_MAX >> 20;
                return Err(bad(format!("a component on the MDT ends at {mib} MiB at most")));
            }
            parts.push(HintPart { end, hint: Hint::default(), on_mdt: true, extension: 0 });
            rest.extend(group.paths.into_iter().map(PathBuf::into_os_string));
            continue;
        }
        let extension = group.layout.take_extension();
        let mut hint = group.layout.hint(command)?;
        if let Some(HintPart { hint: last, .. }) = parts.last() {
            follow(&mut hint, last, group.layout.names_pool());
        }
        parts.push(HintPart { end, hint, on_mdt: false, extension });
        rest.extend(group.paths.into_iter().map(PathBuf::into_os_string));
    }
    Ok(Line { rest, parts })
}

fn not_yet(command: &str, word: &str) -> Option<String> {
    let short = word.len() > 2 && !word.starts_with("--");
    usage::option_not_yet(command, if short { word.get(..2)? } else { word })
}

/// What a component leaves open is as in the one before it.
fn follow(hint: &mut Hint, last: &Hint, names_pool: bool) {
    if hint.stripe_count == 0 && hint.osts.is_empty() {
        hint.stripe_count = if last.osts.is_empty() { last.stripe_count } else { 0 };
        hint.overstripe |= last.overstripe && last.osts.is_empty();
    }
    if hint.stripe_size == 0 {
        hint.stripe_size = last.stripe_size;
    }
    if !names_pool && hint.osts.is_empty() && hint.start_index < 0 {
        hint.pool.clone_from(&last.pool);
    }
}

/// `-I2`, as Lustre's tools have it, as a word that is understood.
pub fn long_id(arguments: &mut [OsString]) {
    if arguments.get(1).map(OsString::as_os_str) != Some(OsStr::new("getstripe")) {
        return;
    }
    for word in arguments.iter_mut().skip(2) {
        let id = word.to_str().and_then(|word| word.strip_prefix("-I")).filter(|id| !id.is_empty());
        if let Some(id) = id {
            *word = format!("--component-id={id}").into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are left, and the components.
    type Cut = (Vec<String>, Vec<HintPart>);

    fn check(text: &str) -> Option<Result<Cut, String>> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let line = split(&words)?.map_err(|failure| failure.message);
        Some(line.map(|line| {
            (line.rest.iter().map(|word| word.to_string_lossy().into_owned()).collect(), line.parts)
        }))
    }

    #[test]
    fn lines_are_cut_into_components() {
        assert_eq!(check("lfs setstripe -c 1 f"), None);
        let hint = |stripe_count, stripe_size| Hint { stripe_count, stripe_size, ..Hint::default() };
        let (rest, parts) =
            check("lfs setstripe -S 128K -E 1M -c 1 --comp-end 1G -c 4 --component-end=-1 -c -1 f g")
                .expect("components")
                .expect("they are fine");
        assert_eq!(rest, ["lfs", "setstripe", "f", "g"]);
        let expected = [(1 << 20, 1), (1 << 30, 4), (u64::MAX, -1)];
        let expected = expected.map(|(end, count)| HintPart {
            end,
            hint: hint(count, 131_072),
            on_mdt: false,
            extension: 0,
        });
        assert_eq!(parts, expected);
        let (_, parts) =
            check("lfs setstripe -E 1M -p flash -E 1G -c 4 -E 2G -i 3 -E 3G -p disk -E -1 -p none f")
                .expect("components")
                .expect("they are fine");
        let pools: Vec<&str> = parts.iter().map(|part| part.hint.pool.as_str()).collect();
        assert_eq!(pools, ["flash", "flash", "", "disk", ""]);
        let (_, parts) =
            check("lfs setstripe -E 64K -L mdt -E -1 -c 2 f").expect("components").expect("they are fine");
        let shown: Vec<_> =
            parts.iter().map(|part| (part.end, part.on_mdt, part.hint.stripe_count)).collect();
        assert_eq!(shown, [(65_536, true, 0), (u64::MAX, false, 2)]);
        let (_, parts) = check("lfs setstripe -z 64M -E 1G -E -1 --ext-size=256M f")
            .expect("components")
            .expect("they are fine");
        let shown: Vec<_> = parts.iter().map(|part| (part.end, part.extension)).collect();
        assert_eq!(shown, [(1 << 30, 64 << 20), (u64::MAX, 256 << 20)]);
        for bad in [
            "-E 64K -L mdt -c 2 -E -1 f",
            "-E 64K -L mdt -z 64K -E -1 f",
            "-E 2M -L mdt -E -1 f",
            "-E 1M -E 2M -L mdt f",
            "-E 64K -L x f",
        ] {
            assert!(check(&format!("lfs setstripe {bad}")).is_some_and(|line| line.is_err()), "{bad}");
        }
        let said = |line: &str| check(line).and_then(Result::err).unwrap_or_default();
        assert_eq!(
            said("lfs setstripe -E 1M --comp-foo f"),
            "error: unexpected argument '--comp-foo' found\n\nUsage: lfs setstripe [OPTIONS] <PATH>..."
        );
        let told = said("lfs migrate -E 1M --comp-flags=prefer f");
        assert!(told.starts_with("error: migrate: --comp-flags is not available yet: "), "{told}");
        for bad in ["-E 2M -E 1M f", "-E 1000 f", "-E x f", "-E 1M -z 1000 f", "-E 1M -c x f", "f -E"] {
            assert!(check(&format!("lfs setstripe {bad}")).is_some_and(|line| line.is_err()), "{bad}");
        }
        let mut words = ["lfs", "getstripe", "-I2", "-I", "f"].map(OsString::from);
        long_id(&mut words);
        assert_eq!(words, ["lfs", "getstripe", "--component-id=2", "-I", "f"]);
    }
}
