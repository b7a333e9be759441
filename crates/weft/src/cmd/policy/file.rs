//! The file that policies are written in: TOML, each word of it checked before anything is done.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::rule::{Action, Limits, Measured, Order, Policy, Rule, When};
use super::words;
use crate::failure::Failure;
use crate::{lfs, pools, size};

/// Rules of a file at most.
const RULES_MAX: usize = 1000;
/// Files at the same time, if nothing is said, and at most.
const AT_ONCE: usize = 4;
const AT_ONCE_MAX: i64 = 16;

/// What is wrong with a file, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Line, from 1.
    pub line: usize,
    /// A sentence.
    pub what: String,
}

type Text = Spanned<String>;
/// What is wrong at a byte of the file.
type Fault = (usize, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: Text,
    below: Option<Text>,
    files: Text,
    action: Text,
    to: Option<Text>,
    order: Option<Text>,
    when: Option<Spanned<RawWhen>>,
    every: Option<Text>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWhen {
    pool: Option<Text>,
    ost: Option<Spanned<i64>>,
    above: Text,
    until: Text,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    bytes_per_second: Option<Text>,
    files_per_second: Option<Spanned<i64>>,
    at_once: Option<Spanned<i64>>,
}

/// What the text of a file means.
pub fn parse(text: &str) -> Result<Policy, Wrong> {
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let raw: RawFile = toml::from_str(text).map_err(|error| Wrong {
        line: line(error.span().map_or(0, |span| span.start)),
        what: one_line(error.message()),
    })?;
    policy(raw).map_err(|(at, what)| Wrong { line: line(at), what })
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn policy(raw: RawFile) -> Result<Policy, Fault> {
    if raw.rule.is_empty() {
        return Err((0, "there is no rule; a rule begins with a line [[rule]]".to_owned()));
    }
    if raw.rule.len() > RULES_MAX {
        return Err((0, format!("there are more than {RULES_MAX} rules")));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for of in raw.rule {
        let of = of.into_inner();
        let at = of.name.span().start;
        let rule = rule(of, &raw.limits)?;
        if rules.iter().any(|other| other.name == rule.name) {
            return Err((at, format!("there are two rules with the name \"{}\"", rule.name)));
        }
        rules.push(rule);
    }
    Ok(Policy { rules })
}

fn rule(raw: RawRule, common: &RawLimits) -> Result<Rule, Fault> {
    if raw.name.get_ref().trim().is_empty() {
        return Err((raw.name.span().start, "a rule has a name".to_owned()));
    }
    if split(&raw.files)?.is_empty() {
        let what = "files names no test; write -true if all files are meant";
        return Err((raw.files.span().start, what.to_owned()));
    }
    let rule = Rule {
        below: raw.below.as_ref().map(|text| checked(text, below)).transpose()?,
        files: raw.files.get_ref().clone(),
        action: action(&raw.action, raw.to.as_ref())?,
        order: raw.order.as_ref().map(order).transpose()?,
        when: raw.when.map(when).transpose()?,
        every: raw.every.as_ref().map(|every| checked(every, duration)).transpose()?,
        limits: limits(&raw.limits, common)?,
        name: raw.name.into_inner(),
    };
    // Ages count from the moment of a search, so this is asked again then.
    rule.query().map_err(|failure| {
        (raw.files.span().start, format!("files: {}", sentence(&failure, "lfs find: ")))
    })?;
    Ok(rule)
}

fn split(text: &Text) -> Result<Vec<std::ffi::OsString>, Fault> {
    words::split(text.get_ref())
        .map_err(|why| (text.span().start, format!("in \"{}\" {why}", text.get_ref())))
}

fn below(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if text.is_empty() || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "\"{text}\" has to be a directory below that of the command line, without .. in it"
        ));
    }
    // Without dots that mean nothing.
    Ok(path.components().filter(|part| *part != Component::CurDir).collect())
}

/// The first line of what a command would have said.
fn sentence(failure: &Failure, prefix: &str) -> String {
    let line = failure.message.lines().next().unwrap_or_default();
    line.strip_prefix(prefix).unwrap_or(line).to_owned()
}

fn checked<T>(text: &Text, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Fault> {
    parse(text.get_ref()).map_err(|why| (text.span().start, why))
}

fn action(action: &Text, to: Option<&Text>) -> Result<Action, Fault> {
    let at = action.span().start;
    match (action.get_ref().as_str(), to) {
        ("migrate", Some(to)) => migrate(to),
        ("migrate", None) => Err((at, "migrate needs a line such as to = \"-p disk -c 1\"".to_owned())),
        ("purge", None) => Ok(Action::Purge),
        ("purge", Some(to)) => Err((to.span().start, "to is for migrate; a purge moves nothing".to_owned())),
        ("archive", None) => Ok(Action::Archive),
        ("release", None) => Ok(Action::Release),
        ("archive" | "release", Some(to)) => Err((to.span().start, "to is for migrate".to_owned())),
        (other, _) => {
            Err((at, format!("\"{other}\" is no action; there are migrate, archive, release and purge")))
        }
    }
}

fn migrate(to: &Text) -> Result<Action, Fault> {
    let at = to.span().start;
    let words = split(to)?;
    let hint = lfs::migrate::hint(&words)
        .map_err(|failure| (at, format!("to: {}", sentence(&failure, "error: "))))?;
    if hint == fuse::control::Hint::default() {
        return Err((at, "to says nothing; write options of lfs migrate, for example -p disk".to_owned()));
    }
    let options = to.get_ref().trim().to_owned();
    Ok(Action::Migrate { to: Box::new(hint), options })
}

fn order(text: &Text) -> Result<Order, Fault> {
    checked(text, |text| match text {
        "atime" => Ok(Order::Accessed),
        "mtime" => Ok(Order::Modified),
        "size" => Ok(Order::Size),
        other => Err(format!(
            "\"{other}\" is no order; there are atime and mtime (oldest first) and size (largest first)"
        )),
    })
}

fn when(raw: Spanned<RawWhen>) -> Result<When, Fault> {
    let at = raw.span().start;
    let raw = raw.into_inner();
    let of = match (raw.pool, raw.ost) {
        (Some(pool), None) => {
            let is_name = pools::check_name("when", pool.get_ref());
            is_name.map_err(|failure| (pool.span().start, failure.message))?;
            Measured::Pool(pool.into_inner())
        }
        (None, Some(ost)) => {
            let index = u32::try_from(*ost.get_ref()).ok();
            Measured::Ost(index.ok_or_else(|| (ost.span().start, "ost is the index of an OST".to_owned()))?)
        }
        (None, None) => Measured::All,
        (Some(_), Some(_)) => return Err((at, "when measures a pool or an OST, and not both".to_owned())),
    };
    let (above, until) = (checked(&raw.above, thousandths)?, checked(&raw.until, thousandths)?);
    if until >= above {
        return Err((raw.until.span().start, "until has to be less than above".to_owned()));
    }
    Ok(When { of, above, until })
}

/// `85%` or `85.5%`, in thousandths.
fn thousandths(text: &str) -> Result<u32, String> {
    let bad = || format!("\"{text}\" is no percentage; write for example 85%");
    let number = text.trim().strip_suffix('%').ok_or_else(bad)?.trim_end();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<u32>().ok() } else { None }
    };
    match (digits(whole), digits(tenth)) {
        (Some(whole), Some(tenth)) if whole <= 100 && tenth < 10 && 10 * whole + tenth <= 1000 => {
            Ok(10 * whole + tenth)
        }
        _ => Err(bad()),
    }
}

/// `30s`, `10m`, `1h`, `2d`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("\"{text}\" is no duration; write for example 30s, 10m, 1h or 2d");
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(bad()),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = digits.parse::<u32>().ok().filter(|seconds| is_number && *seconds > 0).ok_or_else(bad)?;
    Ok(Duration::from_secs(u64::from(seconds) * unit))
}

/// What a rule says of its limits, else what the file says.
fn limits(own: &RawLimits, common: &RawLimits) -> Result<Limits, Fault> {
    let bytes = own.bytes_per_second.as_ref().or(common.bytes_per_second.as_ref());
    let files = own.files_per_second.as_ref().or(common.files_per_second.as_ref());
    let at_once = own.at_once.as_ref().or(common.at_once.as_ref());
    let number = |of: &Spanned<i64>, max: i64, what: &str| match *of.get_ref() {
        number if (1..=max).contains(&number) => Ok(number.unsigned_abs()),
        number => {
            Err((of.span().start, format!("{what} is {number}, and has to be a number from 1 to {max}")))
        }
    };
    let at_once = at_once.map(|of| number(of, AT_ONCE_MAX, "at_once")).transpose()?;
    Ok(Limits {
        bytes_per_second: bytes.map(|bytes| checked(bytes, size::bytes)).transpose()?,
        files_per_second: files.map(|of| number(of, 1_000_000_000, "files_per_second")).transpose()?,
        at_once: at_once.map_or(AT_ONCE, |at_once| usize::try_from(at_once).unwrap_or(AT_ONCE)),
    })
}

#[cfg(test)]
mod tests;
