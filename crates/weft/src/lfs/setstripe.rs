//! `lfs setstripe`: makes a file with a layout, or sets the default layout of a directory.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use fuse::control::{self, Hint, HintPart};

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::why_refused;
use crate::pools;
use crate::size::{extension_size, stripe_size};

/// Make a file with a layout, or set what new files in a directory get.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    #[command(flatten)]
    layout: LayoutArguments,
    /// Begin a component that ends there, or with `eof` has no end; what follows is about it
    #[arg(short = 'E', long, value_name = "END")]
    component_end: Vec<String>,
    /// Take the default layout of a directory away
    #[arg(short = 'd', long, conflicts_with_all = ["stripe_count", "overstripe_count", "stripe_size", "stripe_index", "ost", "pool"])]
    delete: bool,
    /// Files to make, or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// What a layout is to be like.
#[derive(clap::Args)]
pub struct LayoutArguments {
    /// Stripes: 0 for the default, -1 for one on every OST
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(-1..=COUNT_MAX))]
    stripe_count: Option<i32>,
    /// Stripes, which may share OSTs; -N for N on every OST
    #[arg(short = 'C', long, value_name = "COUNT", conflicts_with = "stripe_count", value_parser = clap::value_parser!(i32).range(-32..=COUNT_MAX))]
    overstripe_count: Option<i32>,
    /// Bytes in a row on one OST, a multiple of 64K; K, M and G are understood, a number below 4096 is KiB
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = stripe_size)]
    stripe_size: Option<u32>,
    /// First OST; -1 for any
    #[arg(short = 'i', long, visible_alias = "stripe-offset", value_name = "INDEX", value_parser = clap::value_parser!(i32).range(-1..=INDEX_MAX))]
    stripe_index: Option<i32>,
    /// The OST of each stripe, for example 0,2,4-6
    #[arg(short = 'o', long, visible_alias = "ost-list", value_name = "LIST", value_parser = ost_list)]
    ost: Option<OstList>,
    /// Pool to choose OSTs from; none for that of the directory above, ignore for no pool
    #[arg(short = 'p', long, visible_alias = "pool-name", value_name = "POOL")]
    pool: Option<String>,
    /// Where the bytes lie: mdt, of a first component, or raid0, on OSTs
    #[arg(short = 'L', long = "layout", value_name = "PATTERN")]
    pattern: Option<Pattern>,
    /// Bytes that a component gets at a time, a multiple of 64K: where its OSTs are full it goes on elsewhere
    #[arg(short = 'z', long, visible_alias = "ext-size", value_name = "SIZE", value_parser = extension_size)]
    extension_size: Option<u64>,
}

/// Where the bytes of a component lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Pattern {
    Raid0,
    Mdt,
}

/// Most stripes.
const COUNT_MAX: i64 = proto::limits::STRIPES_MAX as i64;
/// Largest index of an OST.
const INDEX_MAX: i64 = proto::limits::TARGETS_MAX as i64 - 1;

#[derive(Debug, Clone, PartialEq, Eq)]
struct OstList(Vec<u32>);

/// Reads `1,2-4,7`; the order stays.
fn ost_list(text: &str) -> Result<OstList, String> {
    let mut osts = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (ost_index(first)?, ost_index(last)?);
        if last < first || osts.len() + (last - first) as usize >= proto::limits::STRIPES_MAX {
            return Err(format!("\"{part}\" is no range of OSTs"));
        }
        osts.extend(first..=last);
    }
    Ok(OstList(osts))
}

fn ost_index(text: &str) -> Result<u32, String> {
    let index = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match index {
        Ok(index) if i64::from(index) <= INDEX_MAX => Ok(index),
        _ => Err(format!("\"{text}\" is no index of an OST")),
    }
}

/// Runs the command.
pub fn run(arguments: Arguments, parts: Vec<HintPart>) -> Outcome {
    let hint = Hint { parts, ..arguments.layout.hint("setstripe")? };
    for path in &arguments.paths {
        if arguments.delete {
            delete(path)?;
        } else {
            set(path, &hint)?;
        }
    }
    Ok(0)
}

impl LayoutArguments {
    /// Whether they say something of a pool.
    pub fn names_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// By how much the component extends itself; 0 if it does not. What they say else is about one that does not.
    pub fn take_extension(&mut self) -> u64 {
        self.extension_size.take().unwrap_or(0)
    }

    /// Whether the bytes are to lie on the MDT; of anything else nothing may be said then.
    pub fn is_on_mdt(&self, command: &str) -> Result<bool, Failure> {
        let is_on_mdt = self.pattern == Some(Pattern::Mdt);
        let plain =
            LayoutArguments { pattern: None, pool: self.pool.clone(), ost: self.ost.clone(), ..*self };
        if is_on_mdt && (plain.hint(command)? != Hint::default() || self.names_pool()) {
            return Err(Failure::usage(format!(
                "error: {command}: a component on the MDT has an end, and no stripes, OSTs or pool"
            )));
        }
        Ok(is_on_mdt)
    }

    /// What they say; `command` stands in messages.
    pub fn hint(&self, command: &str) -> Result<Hint, Failure> {
        if self.pattern == Some(Pattern::Mdt) {
            return Err(Failure::usage(format!(
                "error: {command}: -L mdt is for a first component: -E END -L mdt -E -1"
            )));
        }
        if self.extension_size.is_some() {
            return Err(Failure::usage(format!(
                "error: {command}: -z is for a component of a file on OSTs: -E END -z SIZE"
            )));
        }
        let pool = self.pool.as_deref().map_or(Ok(String::new()), |pool| pools::of_layout(command, pool))?;
        let osts = self.ost.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        let mut distinct = osts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let repeated = distinct.len() < osts.len();
        if repeated && self.overstripe_count.is_none() {
            return Err(Failure::usage(format!(
                "error: {command}: an OST is in the list twice; use -C for that"
            )));
        }
        let count = self.stripe_count.or(self.overstripe_count);
        match count {
            Some(count) if !osts.is_empty() && usize::try_from(count).ok() != Some(osts.len()) => {
                return Err(Failure::usage(format!(
                    "error: {command}: stripe count '{count}' doesn't match the number of OSTs: {}",
                    osts.len()
                )));
            }
            _ => {}
        }
        let start_index = match (self.stripe_index, osts.first()) {
            (Some(index), Some(_)) if index >= 0 && !osts.contains(&index.cast_unsigned()) => {
                return Err(Failure::usage(format!(
                    "error: {command}: stripe offset '{index}' is not in the target list"
                )));
            }
            (index, _) => index.unwrap_or(-1),
        };
        Ok(Hint {
            stripe_count: count.unwrap_or(if osts.is_empty() { 0 } else { osts.len() as i32 }),
            stripe_size: self.stripe_size.unwrap_or(0),
            start_index,
            osts,
            overstripe: self.overstripe_count.is_some(),
            pool,
            ..Hint::default()
        })
    }
}

fn set(path: &Path, hint: &Hint) -> Result<(), Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            crate::control::set(path, control::LAYOUT, &control::encode(hint))
                .map_err(|error| refused(path, path, hint, &error))
        }
        Ok(metadata) if metadata.file_type().is_fifo() || metadata.file_type().is_socket() => {
            Err(failed(path, &io::Error::from_raw_os_error(libc::EEXIST)))
        }
        Ok(_) => Err(failed(path, &io::Error::from_raw_os_error(libc::EEXIST))),
        Err(_) => create(path, hint),
    }
}

fn create(path: &Path, hint: &Hint) -> Result<(), Failure> {
    let name = path.file_name().ok_or_else(|| failed(path, &io::Error::from_raw_os_error(libc::ENOENT)))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The file is made for us by the mount, which does not know this process's umask.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let hint = Hint { mode: Some(control::CREATE_MODE & !umask.bits()), ..hint.clone() };
    crate::control::create(directory, name.as_bytes(), &hint)
        .map_err(|error| refused(path, directory, &hint, &error))
}

/// `existing` is a path in the file system in which `path` was to be.
fn refused(path: &Path, existing: &Path, hint: &Hint, error: &io::Error) -> Failure {
    let why = why_refused(existing, hint, error);
    Failure::new(format!("error: setstripe: create stripe file '{}' failed: {why}", path.display()))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let why = crate::control::describe(error);
    Failure::new(format!("error: setstripe: create stripe file '{}' failed: {why}", path.display()))
}

fn delete(path: &Path) -> Result<(), Failure> {
    match crate::control::remove(path, control::LAYOUT) {
        // There was no default.
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        result => result.map_err(|error| {
            let why = crate::control::describe(&error);
            Failure::new(format!(
                "error: setstripe: delete default layout of '{}' failed: {why}",
                path.display()
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn check(line: &str) -> Result<Hint, String> {
        let line = Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        line.arguments.layout.hint("setstripe").map_err(|failure| failure.message)
    }

    #[test]
    fn hints() {
        assert_eq!(check("s -c -1 f"), Ok(Hint { stripe_count: -1, ..Hint::default() }));
        assert_eq!(
            check("s -C 8 -S 64k -i 3 f"),
            Ok(Hint {
                stripe_count: 8,
                overstripe: true,
                stripe_size: 65_536,
                start_index: 3,
                ..Hint::default()
            })
        );
        assert_eq!(
            check("s -o 5,0-2 f"),
            Ok(Hint { stripe_count: 4, osts: vec![5, 0, 1, 2], ..Hint::default() })
        );
        for bad in [
            "s -o 1,1 f",
            "s -o 1,2 -c 3 f",
            "s -o 1,2 -i 3 f",
            "s -o 3-1 f",
            "s -o a f",
            "s -p a,b f",
            "s -c -2 f",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
