//! `lfs ladvise`: advice about what will be done with files, for their OSTs. Options are Lustre's.

use std::path::PathBuf;

use clap::ValueEnum;
use fuse::control::{ADVISE, Advice};

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::size;

/// Have OSTs read files into their memory before somebody asks for them; they need read_cache_enable=1.
#[derive(clap::Args)]
pub struct Arguments {
    /// What will be done
    #[arg(short, long, value_name = "ADVICE")]
    advice: Kind,
    /// Where it begins, in bytes, or with a unit K, M, G or T
    #[arg(short, long, value_name = "START", default_value = "0", value_parser = size::count)]
    start: u64,
    /// Where it ends [default: the end of the file]
    #[arg(short, long, value_name = "END", value_parser = size::count, conflicts_with = "length")]
    end: Option<u64>,
    /// How long it is
    #[arg(short, long, value_name = "LENGTH", value_parser = size::bytes)]
    length: Option<u64>,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// What will be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// They will be read
    Willread,
}

impl Arguments {
    fn advice(&self) -> Result<Advice, Failure> {
        let Kind::Willread = self.advice;
        let end = match (self.end, self.length) {
            (Some(end), _) => end,
            (None, Some(length)) => self.start.saturating_add(length),
            (None, None) => u64::MAX,
        };
        if end <= self.start {
            return Err(Failure::usage(format!(
                "the range ends at {end} and begins at {}; write an --end behind --start",
                self.start
            )));
        }
        Ok(Advice::WillRead { start: self.start, end })
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let advice = serde_json::to_vec(&arguments.advice()?)
        .map_err(|error| Failure::new(format!("the advice is no JSON: {error}")))?;
    for path in &arguments.paths {
        crate::control::set(path, ADVISE, &advice).map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::ENODATA) => {
                    "an OST keeps nothing of what it reads, or not of a file of this size; \"lctl set_param osd-weft.*.read_cache_enable=1\" \
                     and readcache_max_filesize on its server change that"
                        .to_owned()
                }
                Some(libc::EINVAL) => "it is no regular file".to_owned(),
                _ => crate::control::describe(&error),
            };
            Failure::new(format!("cannot give advice about {}: {why}", path.display()))
        })?;
    }
    Ok(0)
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

    fn check(line: &str, wanted: Option<(u64, u64)>) {
        let parsed = Line::try_parse_from(line.split(' ')).ok();
        let advice = parsed.and_then(|line| line.arguments.advice().ok());
        let wanted = wanted.map(|(start, end)| Advice::WillRead { start, end });
        assert_eq!(advice, wanted, "{line}");
    }

    #[test]
    fn ranges_are_lustres() {
        check("l -a willread f", Some((0, u64::MAX)));
        check("l --advice willread --start 1M --end 64M f g", Some((1 << 20, 64 << 20)));
        check("l -a willread -s 4k -l 4k f", Some((4096, 8192)));
        let bad = [
            "l f",
            "l -a willread",
            "l -a dontneed f",
            "l -a willread -s 2 -e 2 f",
            "l -a willread -e 1 -l 1 f",
        ];
        bad.into_iter().for_each(|line| check(line, None));
    }
}
