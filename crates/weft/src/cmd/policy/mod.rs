//! `weft policy`: which files are moved to other OSTs, and which are removed, is written down in a file, and this does what it says.
//!
//! Nothing is kept between two runs. What is to be done follows from the files as they are: a rule's expression is asked anew in the MDT,
//! each file is looked at again right before its turn, and what was done does not match any more, or is seen to lie where it is to lie.

mod collect;
mod file;
mod pass;
mod place;
mod progress;
mod report;
mod rule;
mod space;
mod stop;
mod there;
mod watch;
mod words;
mod work;

use std::path::{Path, PathBuf};

use crate::control::describe;
use crate::failure::{Failure, Outcome};
use pass::Mode;
use report::{Report, RuleReport};
use rule::{Policy, Rule};
use stop::Stop;

/// Move and remove files by rules that are written in a file
///
/// A rule names files as lfs find does, and says what becomes of them. Exit status: 1, something failed; 2, the file is wrong.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say what a file means, or what is wrong with it
    Check(Check),
    /// Do once what a file says
    Run(Run),
    /// Do again and again what a file says, until SIGTERM or SIGINT comes
    Watch(Watch),
}

#[derive(clap::Args)]
struct Check {
    /// The rules
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(clap::Args)]
struct Run {
    #[command(flatten)]
    of: Of,
    /// Change nothing: print the paths of the files that would be moved or removed, and their sums on standard error
    #[arg(long)]
    dry_run: bool,
    /// Print the result as an object of JSON; with --dry-run, each file as one before that
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Watch {
    #[command(flatten)]
    of: Of,
}

/// What both are about.
#[derive(clap::Args)]
struct Of {
    /// The rules
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A directory of a weft file system: nothing outside of it is touched
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this rule; may be repeated
    #[arg(long, value_name = "NAME")]
    rule: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Check(check) => {
            let policy = read(&check.file)?;
            for (number, rule) in (1..).zip(&policy.rules) {
                out!("{number}. {}: {}", rule.name, rule.sentence());
            }
            Ok(0)
        }
        Command::Run(run) => run_once(run),
        Command::Watch(watch) => {
            let policy = read(&watch.of.file)?;
            let rules = chosen(&policy, &watch.of)?;
            if let Some(rule) = rules.iter().find(|rule| watch::Turn::of(rule).is_none()) {
                let name = &rule.name;
                return Err(Failure::usage(format!(
                    "{}: the rule \"{name}\" says neither every nor when: nobody knows how often it is to be watched",
                    watch.of.file.display()
                )));
            }
            let stop = Stop::catch()?;
            // A place that is not there is no reason to wait for it.
            for rule in &rules {
                let place = pass::place_of(rule, &watch.of.dir);
                place.map_err(|trouble| Failure::new(format!("{}: {}", trouble.path, trouble.why)))?;
            }
            watch::watch(&rules, &watch.of.dir, &stop);
            Ok(0)
        }
    }
}

/// What a file says.
fn read(path: &Path) -> Result<Policy, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("{} cannot be read: {}", path.display(), describe(&error)))
    })?;
    file::parse(&text)
        .map_err(|wrong| Failure::usage(format!("{}, line {}: {}", path.display(), wrong.line, wrong.what)))
}

/// The rules that are meant, in the order of the file.
fn chosen<'a>(policy: &'a Policy, of: &Of) -> Result<Vec<&'a Rule>, Failure> {
    if let Some(name) = of.rule.iter().find(|name| policy.rules.iter().all(|rule| rule.name != **name)) {
        return Err(Failure::usage(format!("{} has no rule \"{name}\"", of.file.display())));
    }
    let is_meant = |rule: &&Rule| of.rule.is_empty() || of.rule.contains(&rule.name);
    Ok(policy.rules.iter().filter(is_meant).collect())
}

fn run_once(arguments: &Run) -> Outcome {
    let policy = read(&arguments.of.file)?;
    let rules = chosen(&policy, &arguments.of)?;
    let mode = match (arguments.dry_run, arguments.json) {
        (false, _) => Mode::Act,
        (true, false) => Mode::List,
        (true, true) => Mode::ListJson,
    };
    // A list is not worth finishing.
    let stop = if mode == Mode::Act { Stop::catch()? } else { Stop::never() };
    let mut reports = Vec::new();
    for rule in rules {
        let report = pass::pass(rule, &arguments.of.dir, mode, &stop);
        tell(rule, &report, arguments);
        reports.push(report);
        if stop.is_told() {
            break;
        }
    }
    let failed: u64 = reports.iter().map(|report| report.failed).sum();
    if arguments.json {
        let report = Report { dry_run: arguments.dry_run, rules: reports };
        let text = serde_json::to_string(&report);
        out!("{}", text.map_err(|error| Failure::new(format!("the result cannot be written: {error}")))?);
    }
    Ok(u8::from(failed > 0 || stop.is_told()))
}

/// Says what came of a rule. Paths of a dry run stand alone on standard output.
fn tell(rule: &Rule, report: &RuleReport, arguments: &Run) {
    let verb = watch::verb(&rule.action);
    match (arguments.json, arguments.dry_run) {
        (true, _) => {}
        (false, true) => err!("{}", report.listed_line(verb)),
        (false, false) => out!("{}", report.line(verb)),
    }
    for trouble in &report.troubles {
        err!("{}: {}: {}", rule.name, trouble.path, trouble.why);
    }
}
