//! `lfs find`: files by what they are called and what they are, found in the MDT and not by walking through the mount.
//!
//! What was typed ([`parse`]), what it means (a [`Plan`]), what is done with what is found ([`mod@print`]). The mount is asked for a page
//! after the other; each says where the next one begins.

mod ask;
pub(crate) mod numbers;
mod parse;
mod print;
mod search;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use proto::find::path_below;
use proto::wire::messages::{FIND_ENTRY, FIND_TARGET};

pub(crate) use ask::{Asked, Error};
pub(crate) use numbers::{Database, name_of};
pub(crate) use search::{Query, Search, look_again};

use crate::lfs::Outcome;
use print::Format;

/// Find files by name and attributes, in the metadata servers and not through the mount
///
/// Tests, operators and actions are those of find(1); `lfs find --help` lists them.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Where to begin, then tests, `!`, `-o`, parentheses and an action
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "DIR... [TEST...]")]
    words: Vec<OsString>,
}

const HELP: &str = "\
Find files by name and attributes, in the metadata servers and not through the mount.

Usage: lfs find [DIR...] [EXPRESSION]

Tests (N: exactly, +N: more, -N: less; with one or two dashes in front):
  -name GLOB  -iname GLOB  -path GLOB  -ipath GLOB
  -type [fdlpcbs],...      -empty               -size [+-]N[bcwkMGT]
  -user NAME  -group NAME  -uid [+-]N  -gid [+-]N  -projid [+-]N
  -perm MODE|-MODE|/MODE   -links [+-]N
  -newer FILE  -anewer FILE  -cnewer FILE
  -mtime [+-]DAYS  -atime  -ctime  -mmin [+-]MINUTES  -amin  -cmin
  -ost, -O INDEX,...       -mdt, -m INDEX,...   -pool NAME
  -stripe-count, -c [+-]N  -stripe-size, -S [+-]N[kMG]
  -component-count [+-]N   -component-start [+-]N[kMG]  -component-end, -E [+-]N[kMG]|EOF
  -component-flags FLAG,...  -extension-size, -z [+-]N[kMG]
  -layout, -L raid0|mdt|overstriped|composite   -true  -false
Operators: ( EXPR )  ! EXPR  -not  EXPR EXPR  -a  -and  EXPR -o EXPR  -or
Limits:    -maxdepth N  -mindepth N
Actions (one, for the whole expression):
  -print  -print0  -printf FORMAT
  --matched   print nothing but a last line \"MATCHED found/looked-at\"; with an action, that line behind it
FORMAT: %p %P %f %h %H %d %s %b %k %m %M %u %g %U %G %i %n %y %l %A@ %C@ %T@ %LF %Lc %LS %Li %Lo %Lp %LP %%, and \\n \\t \\0 \\NNN
";

/// What is to be found, and what is done with it.
#[derive(Debug, PartialEq)]
pub struct Plan {
    starts: Vec<OsString>,
    query: Query,
    action: Action,
    /// Whether a line at the end says how many were found, of how many.
    tells_matched: bool,
}

/// What is done with each file that is found.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Its path, and behind it this byte.
    Print(u8),
    /// What the format says.
    Format(Format),
    /// Nothing: they are counted.
    Count,
}

/// What a search has come to so far.
#[derive(Default)]
struct Sum {
    found: u64,
    visited: u64,
    has_failed: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.words.iter().any(|word| word == "--help" || word == "-help") {
        crate::out::print(HELP);
        return Ok(0);
    }
    let plan = parse::plan(&arguments.words, &mut numbers::Outside)?;
    let mut printer = print::Printer::default();
    let mut sum = Sum::default();
    for start in &plan.starts {
        if let Err(error) = search(&plan, start, &mut printer, &mut sum) {
            err!("lfs find: {}: {error}", start.display());
            sum.has_failed = true;
        }
    }
    if plan.tells_matched {
        out!("MATCHED {}/{}", sum.found, sum.visited);
    }
    Ok(u8::from(sum.has_failed))
}

/// Finds what is to be found below one place.
fn search(plan: &Plan, start: &OsStr, printer: &mut print::Printer, sum: &mut Sum) -> Result<(), String> {
    let mut search = Search::new(ask::Asked::of(start)?, &plan.query, start.as_bytes(), wants(&plan.action));
    loop {
        let page = match search.next_page() {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(()),
            Err(Error::Ended) => {
                err!(
                    "lfs find: {}: the search waited too long, or a server restarted; it goes on with the file system as it is \
                     now, and may miss or repeat what was moved meanwhile",
                    start.display()
                );
                sum.has_failed = true;
                continue;
            }
            Err(error) => return Err(error.sentence()),
        };
        sum.found += page.found.len() as u64;
        sum.visited += page.visited;
        printer.page(&plan.action, start.as_bytes(), &page.found);
        for hidden in &page.hidden {
            let path = path_below(start.as_bytes(), hidden);
            err!("lfs find: {}: Permission denied", OsStr::from_bytes(&path).display());
            sum.has_failed = true;
        }
    }
}

/// `FIND_*` bits of what an action shows.
fn wants(action: &Action) -> u32 {
    match action {
        Action::Format(format) => {
            let target = if format.wants_target() { FIND_TARGET } else { 0 };
            if format.wants_entry() { target | FIND_ENTRY } else { target }
        }
        Action::Print(_) | Action::Count => 0,
    }
}
