//! What a line of `lfs find` says in numbers: sizes, counts, ages, permissions; and what has to be looked up for it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use proto::Timestamp;
use proto::find::{Permissions, Span, TimeSpan};

/// The first time of all, and the last one.
const FIRST: Timestamp = Timestamp { secs: i64::MIN, nanos: 0 };
const LAST: Timestamp = Timestamp { secs: i64::MAX, nanos: 999_999_999 };
const NANOS: i128 = 1_000_000_000;
/// How long the system may take to say what it knows of a user or group.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What a line depends on besides its words.
pub trait World {
    /// The time of the call.
    fn now(&self) -> Timestamp;
    /// The id of a user or group, by its name.
    fn id(&mut self, database: Database, name: &OsStr) -> Option<u32>;
    /// Modification, access and change of a file.
    fn times(&self, path: &OsStr) -> Result<[Timestamp; 3], String>;
}

/// Where names of users and groups are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Database {
    /// Users.
    Users,
    /// Groups.
    Groups,
}

/// This machine.
#[derive(Default)]
pub struct Outside;

impl World for Outside {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
    }

    fn id(&mut self, database: Database, name: &OsStr) -> Option<u32> {
        // A number that is too large would be taken modulo 2^32.
        if name.as_bytes().iter().all(u8::is_ascii_digit) {
            return None;
        }
        fields(database, name)?.get(2)?.parse().ok()
    }

    fn times(&self, path: &OsStr) -> Result<[Timestamp; 3], String> {
        let of = std::fs::symlink_metadata(path).map_err(|error| crate::control::describe(&error))?;
        let time = |secs, nanos: i64| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
        Ok([
            time(of.mtime(), of.mtime_nsec()),
            time(of.atime(), of.atime_nsec()),
            time(of.ctime(), of.ctime_nsec()),
        ])
    }
}

/// The name of a user or group, if its number has one.
pub fn name_of(database: Database, id: u32) -> Option<String> {
    fields(database, OsStr::new(&id.to_string()))?.into_iter().next()
}

/// What the system knows of a user or group, by name or number: from wherever it keeps that.
fn fields(database: Database, key: &OsStr) -> Option<Vec<String>> {
    let database = match database {
        Database::Users => "passwd",
        Database::Groups => "group",
    };
    let mut getent = Command::new("getent");
    getent.args([OsStr::new(database), OsStr::new("--"), key]);
    let text = String::from_utf8(said_within(getent, ANSWER_MAX)?).ok()?;
    Some(text.lines().next()?.split(':').map(str::to_owned).collect())
}

/// What the command says. It is killed if it has not ended by then: a directory service that does not answer keeps nobody waiting.
fn said_within(mut command: Command, limit: Duration) -> Option<Vec<u8>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut from = child.stdout.take()?;
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = from.read_to_end(&mut bytes);
        // Whoever asked may have gone.
        let _ = sender.send(read.map(|_| bytes));
    });
    let said = said.recv_timeout(limit).ok().and_then(Result::ok);
    // It has said all, or has had its time; it may have ended.
    let _ = child.kill();
    child.wait().ok()?;
    said
}

/// Exactly, more, or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Exactly,
    More,
    Less,
}

fn sided(word: &OsStr) -> Option<(Side, &str)> {
    let word = word.to_str()?;
    Some(match word.as_bytes().first()? {
        b'+' => (Side::More, &word[1..]),
        b'-' => (Side::Less, &word[1..]),
        _ => (Side::Exactly, word),
    })
}

fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn span(side: Side, number: u64) -> Span {
    match side {
        Side::Exactly => Span { min: number, max: number },
        Side::More => match number.checked_add(1) {
            Some(min) => Span { min, max: u64::MAX },
            None => NOTHING,
        },
        Side::Less => match number.checked_sub(1) {
            Some(max) => Span { min: 0, max },
            None => NOTHING,
        },
    }
}

const NOTHING: Span = Span { min: 1, max: 0 };

/// `[+-]N`.
pub fn count(word: &OsStr) -> Option<Span> {
    let (side, number) = sided(word)?;
    Some(span(side, digits(number)?))
}

/// `[+-]N[bcwkMGT]`: sizes count in whole units, rounded up; a unit is 512 bytes unless it is said.
pub fn size(word: &OsStr) -> Option<Span> {
    let (side, text) = sided(word)?;
    let (number, unit) = match text.bytes().last()? {
        b'0'..=b'9' => (text, 512),
        last => (&text[..text.len() - 1], unit_of(last)?),
    };
    let units = span(side, digits(number)?);
    // In u128: sizes beyond what a file can have match none or all.
    let bytes = |units: u64| u64::try_from(u128::from(units) * u128::from(unit)).unwrap_or(u64::MAX);
    Some(match units {
        Span { min, max } if min > max => NOTHING,
        Span { min: 0, max } => Span { min: 0, max: bytes(max) },
        Span { min, max } => Span { min: bytes(min - 1).saturating_add(1), max: bytes(max) },
    })
}

fn unit_of(letter: u8) -> Option<u64> {
    Some(match letter {
        b'c' => 1,
        b'w' => 2,
        b'b' => 512,
        b'k' | b'K' => 1 << 10,
        b'M' => 1 << 20,
        b'G' => 1 << 30,
        b'T' => 1 << 40,
        _ => return None,
    })
}

/// `[+-]N[kMG]` bytes, as they are.
pub fn bytes(word: &OsStr) -> Option<Span> {
    let (side, text) = sided(word)?;
    let (number, unit) = match text.bytes().last()? {
        b'0'..=b'9' => (text, 1),
        last => (&text[..text.len() - 1], unit_of(last).filter(|unit| *unit >= 1024)?),
    };
    Some(span(side, digits(number)?.checked_mul(unit)?))
}

/// The same for where a component ends; `eof` for no end.
pub fn end(word: &OsStr) -> Option<Span> {
    let is_eof = word.eq_ignore_ascii_case("eof");
    if is_eof { Some(Span { min: u64::MAX, max: u64::MAX }) } else { bytes(word) }
}

/// How an age counts that is no whole number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// As if it were the last whole number of units: `-mtime 0` is less than a day.
    Days,
    /// As it is, but that `-mmin 1` is up to a minute.
    Minutes,
}

/// `[+-]N` days or minutes ago, as find(1) of GNU counts them. What lies ahead has an age below 0.
pub fn age(word: &OsStr, of: Age, now: Timestamp) -> Option<TimeSpan> {
    let (side, number) = sided(word)?;
    let number = i128::from(digits(number)?);
    let unit = NANOS
        * match of {
            Age::Days => 24 * 3600,
            Age::Minutes => 60,
        };
    let now = i128::from(now.secs) * NANOS + i128::from(now.nanos);
    let ago = |units: i128| now - unit * units;
    let (from, until) = match (side, of) {
        // find(1) gives it a second more.
        (Side::Less, Age::Days) => (Some(ago(number) - NANOS + 1), None),
        (Side::Less, Age::Minutes) => (Some(ago(number) + 1), None),
        (Side::More, Age::Days) => (None, Some(ago(number + 1))),
        (Side::More, Age::Minutes) => (None, Some(ago(number) - 1)),
        (Side::Exactly, Age::Days) => (Some(ago(number + 1) + 1), Some(ago(number))),
        (Side::Exactly, Age::Minutes) => (Some(ago(number)), Some(ago(number - 1) - 1)),
    };
    Some(TimeSpan { from: from.map_or(FIRST, time_of), until: until.map_or(LAST, time_of) })
}

fn time_of(nanos: i128) -> Timestamp {
    match i64::try_from(nanos.div_euclid(NANOS)) {
        Ok(secs) => Timestamp { secs, nanos: nanos.rem_euclid(NANOS) as u32 },
        Err(_) if nanos < 0 => FIRST,
        Err(_) => LAST,
    }
}

/// Later than `time`.
pub fn later(time: Timestamp) -> TimeSpan {
    let nanos = i128::from(time.secs) * NANOS + i128::from(time.nanos);
    TimeSpan { from: time_of(nanos + 1), until: LAST }
}

/// `MODE`, `-MODE`, `/MODE`, in octal digits or as chmod(1) has it.
pub fn permissions(word: &OsStr) -> Option<Permissions> {
    let word = std::str::from_utf8(word.as_bytes()).ok()?;
    let (make, mode): (fn(u32) -> Permissions, &str) = match word.as_bytes().first()? {
        b'-' => (Permissions::All, &word[1..]),
        b'/' => (Permissions::Any, &word[1..]),
        _ => (Permissions::Exactly, word),
    };
    let bits = match u32::from_str_radix(mode, 8) {
        Ok(bits) if mode.bytes().all(|byte| byte.is_ascii_digit()) => bits,
        _ => symbolic(mode)?,
    };
    (bits <= 0o7777).then(|| make(bits))
}

/// A mode such as `u+w,g=rx`, beginning with no permissions.
fn symbolic(text: &str) -> Option<u32> {
    let mut mode = 0;
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '='])?;
        let (who, rest) = clause.split_at(at);
        let mut classes = 0;
        for letter in who.chars() {
            classes |= match letter {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return None,
            };
        }
        let classes = if who.is_empty() { 0o7777 } else { classes };
        let mut bits = 0;
        for letter in rest[1..].chars() {
            bits |= match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => return None,
            };
        }
        let sticky = if bits & 0o1000 != 0 && classes & 0o1000 != 0 { 0o1000 } else { 0 };
        let bits = bits & 0o6777 & classes | sticky;
        mode = match rest.as_bytes()[0] {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            _ => mode & !(classes & 0o6777) | bits,
        };
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let mut silent = Command::new("sleep");
        silent.arg("1000");
        assert_eq!(said_within(silent, Duration::from_millis(20)), None);
        let mut echo = Command::new("echo");
        echo.arg("a:b");
        assert_eq!(said_within(echo, Duration::from_secs(100)), Some(b"a:b\n".to_vec()));
        assert_eq!(said_within(Command::new("/no/such/command"), Duration::from_secs(1)), None);
    }

    #[test]
    fn sizes_are_rounded_up_to_whole_units() {
        let check = |text: &str, expected: Option<(u64, u64)>| {
            let found = size(OsStr::new(text)).map(|span| (span.min, span.max));
            assert_eq!(found, expected, "{text}");
        };
        check("3901c", Some((3901, 3901)));
        check("1", Some((1, 512)));
        check("0", Some((0, 0)));
        check("2k", Some((1025, 2048)));
        check("+1M", Some(((1 << 20) + 1, u64::MAX)));
        check("-1M", Some((0, 0)));
        check("-2M", Some((0, 1 << 20)));
        check("-0", Some((1, 0)));
        check("+99999999999T", Some((u64::MAX, u64::MAX)));
        check("1w", Some((1, 2)));
        check("", None);
        check("1x", None);
        check("+-1", None);
        check("c", None);
    }

    #[test]
    fn days_are_whole_and_minutes_are_not() {
        let now = at(1_000_000, 500);
        let check = |of: Age, text: &str, expected: (Timestamp, Timestamp)| {
            let found = age(OsStr::new(text), of, now).expect("an age");
            assert_eq!((found.from, found.until), expected, "{of:?} {text}");
        };
        check(Age::Days, "0", (at(913_600, 501), at(1_000_000, 500)));
        check(Age::Days, "1", (at(827_200, 501), at(913_600, 500)));
        check(Age::Days, "+1", (FIRST, at(827_200, 500)));
        check(Age::Days, "-1", (at(913_599, 501), LAST));
        check(Age::Days, "-0", (at(999_999, 501), LAST));
        check(Age::Minutes, "0", (at(1_000_000, 500), at(1_000_060, 499)));
        check(Age::Minutes, "1", (at(999_940, 500), at(1_000_000, 499)));
        check(Age::Minutes, "+1", (FIRST, at(999_940, 499)));
        check(Age::Minutes, "-1", (at(999_940, 501), LAST));
        check(Age::Minutes, "-0", (at(1_000_000, 501), LAST));
        let most = u64::MAX.to_string();
        check(Age::Days, &most, (FIRST, FIRST));
        assert_eq!(age(OsStr::new("1.5"), Age::Minutes, now), None);
        assert_eq!(later(at(5, 999_999_999)), TimeSpan { from: at(6, 0), until: LAST });
    }

    #[test]
    fn permissions_in_digits_and_letters() {
        let check = |text: &str, expected: Option<Permissions>| {
            assert_eq!(permissions(OsStr::new(text)), expected, "{text}");
        };
        check("644", Some(Permissions::Exactly(0o644)));
        check("-0022", Some(Permissions::All(0o022)));
        check("/u+w,g+w", Some(Permissions::Any(0o220)));
        check("u=rw,go=r", Some(Permissions::Exactly(0o644)));
        check("a+x", Some(Permissions::Exactly(0o111)));
        check("-u+s", Some(Permissions::All(0o4000)));
        check("+t", Some(Permissions::Exactly(0o1000)));
        check("g=", Some(Permissions::Exactly(0)));
        check("88", None);
        check("77777", None);
        check("q+r", None);
        check("", None);
    }

    #[test]
    fn counts() {
        assert_eq!(count(OsStr::new("+2")), Some(Span { min: 3, max: u64::MAX }));
        assert_eq!(count(OsStr::new("2k")), None);
        assert_eq!(bytes(OsStr::new("-1M")), Some(Span { min: 0, max: (1 << 20) - 1 }));
        assert_eq!(bytes(OsStr::new("65536")), Some(Span { min: 65536, max: 65536 }));
        assert_eq!(bytes(OsStr::new("1b")), None);
    }
}
