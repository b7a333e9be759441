//! Parameters of mounts, by Lustre's names: what a mount caches (`llite.*`), what it has written to each target (`osc.*`), and
//! what it holds of each (`ldlm.namespaces.*`).
//! What is set holds for as long as the mount does.

use std::time::{SystemTime, UNIX_EPOCH};

use client::CACHED_BYTES_MIN;
use fuse::imports::{IMPORTS, Import, Imports};
use fuse::session::MountEntry;
use fuse::stats::{Count, STATS, Told};
use fuse::tunables::{Cache, SESSIONS_MAX, Session, TUNABLE, TUNABLES, Tunables};
use proto::parameters::device_name;
use proto::{TargetId, TargetKind};

use super::timeouts;
use crate::{ask, mountpoint};

/// A page, as Lustre counts (bytes).
const PAGE_BYTES: u64 = 4096;
/// Most targets that a mount is asked about.
const TARGETS_MAX: usize = 1 << 16;

/// A parameter of a mount.
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// How it is set, if it can be.
    pub setting: Option<Setting>,
}

/// How a parameter of a mount is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    mount: MountEntry,
    /// What the mount calls it.
    name: String,
    unit: Unit,
}

/// What the value of a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Memory, in MiB.
    Memory,
    /// A number of locks, or `clear`.
    Locks,
    /// Time, in milliseconds.
    Age,
    /// Counts, which anything sets to zero.
    Counts,
}

/// Why a parameter was not set.
pub struct Refusal {
    /// The sentence.
    pub why: String,
    /// Exit status: an error number.
    pub status: u8,
}

/// Those of every one of `mounts`. One that does not answer has none.
pub fn all(mounts: &[mountpoint::Mount]) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for mountpoint::Mount { entry, .. } in mounts {
        let Some(told) = told(entry) else { continue };
        let mount = Mount::new(entry, &told);
        parameters.extend(mount.of_cache(&told.cache));
        for session in &told.sessions {
            parameters.extend(mount.of_locks(session));
            if session.id().kind == TargetKind::Ost {
                parameters.extend(mount.of_writes(session));
            }
        }
        if let Ok(told) = ask::get::<Told>(entry, STATS) {
            let (name, own) = (mount.llite("stats"), "stats".to_owned());
            parameters.push(mount.settable(name, stats(&told), Unit::Counts, own));
        }
        let Ok(told) = ask::get::<Imports>(entry, IMPORTS) else { continue };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        parameters.extend(told.imports.iter().map(|import| mount.timeouts(import, now_s)));
    }
    parameters
}

/// A mount, for the names of its parameters.
struct Mount<'a> {
    entry: &'a MountEntry,
    fsname: &'a str,
    /// Tells several mounts of one file system apart, as Lustre's addresses do.
    digits: String,
}

impl<'a> Mount<'a> {
    fn new(entry: &'a MountEntry, told: &'a Tunables) -> Mount<'a> {
        let digits = told.client.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        Mount { entry, fsname: &told.fsname, digits }
    }

    fn readable(name: String, value: String) -> Parameter {
        Parameter { name, value, setting: None }
    }

    fn settable(&self, name: String, value: String, unit: Unit, own: String) -> Parameter {
        Parameter { name, value, setting: Some(Setting { mount: self.entry.clone(), name: own, unit }) }
    }

    fn llite(&self, name: &str) -> String {
        format!("llite.{}-{}.{name}", self.fsname, self.digits)
    }

    fn role(id: TargetId) -> &'static str {
        if id.kind == TargetKind::Mdt { "mdc" } else { "osc" }
    }

    fn of_target(&self, id: TargetId) -> String {
        format!("{}-{}-{}", device_name(self.fsname, id), Mount::role(id), self.digits)
    }

    fn of_cache(&self, cache: &Cache) -> [Parameter; 3] {
        let (pages, mb) = (cache.unstable / PAGE_BYTES, cache.unstable >> 20);
        let own = |name: &str| (self.llite(name), name.to_owned());
        let ((cached, cached_own), (dirty, dirty_own)) = (own("max_cached_mb"), own("max_dirty_mb"));
        [
            self.settable(cached, max_cached_mb(cache), Unit::Memory, cached_own),
            self.settable(dirty, mib(cache.dirty_max).to_string(), Unit::Memory, dirty_own),
            Mount::readable(
                self.llite("unstable_stats"),
                format!(
                    "unstable_check:     {:8}\nunstable_pages: {pages:12}\nunstable_mb:        {mb:8}",
                    1
                ),
            ),
        ]
    }

    fn of_locks(&self, session: &Session) -> [Parameter; 4] {
        let (space, id) = (format!("ldlm.namespaces.{}", self.of_target(session.id())), session.id());
        // Lustre's, too, tells how many are unused where it sizes the list itself.
        let size = if session.locks_max == 0 { session.locks_unused } else { session.locks_max };
        let own = |name: &str| (format!("{space}.{name}"), format!("{id}.{name}"));
        let ((age, age_own), (max, max_own)) = (own("lru_max_age"), own("lru_size"));
        [
            Mount::readable(format!("{space}.lock_count"), session.locks.to_string()),
            Mount::readable(format!("{space}.lock_unused_count"), session.locks_unused.to_string()),
            self.settable(age, session.locks_age_max_ms.to_string(), Unit::Age, age_own),
            self.settable(max, size.to_string(), Unit::Locks, max_own),
        ]
    }

    fn of_writes(&self, session: &Session) -> [Parameter; 4] {
        let osc = format!("osc.{}", self.of_target(session.id()));
        let (pages, mb) = (session.unstable / PAGE_BYTES, session.unstable >> 20);
        let own = format!("{}.max_dirty_mb", session.id());
        let max = mib(session.dirty_max).to_string();
        [
            Mount::readable(format!("{osc}.cur_dirty_bytes"), session.dirty.to_string()),
            Mount::readable(format!("{osc}.cur_grant_bytes"), room(session).to_string()),
            self.settable(format!("{osc}.max_dirty_mb"), max, Unit::Memory, own),
            Mount::readable(
                format!("{osc}.unstable_stats"),
                format!("unstable_pages: {pages:20}\nunstable_mb:              {mb:10}"),
            ),
        ]
    }

    fn timeouts(&self, import: &Import, now_s: u64) -> Parameter {
        let name = format!("{}.{}.timeouts", Mount::role(import.id()), self.of_target(import.id()));
        Mount::readable(name, timeouts::of(import, now_s))
    }
}

/// All of one mount, however many sessions it has.
fn told(mount: &MountEntry) -> Option<Tunables> {
    let mut told: Tunables = ask::get(mount, TUNABLES).ok()?;
    while told.more && told.sessions.len() < TARGETS_MAX {
        let next = format!("{TUNABLES}.{}", told.sessions.len());
        let Ok(page) = ask::get::<Tunables>(mount, &next) else { break };
        told.more = page.more && page.sessions.len() == SESSIONS_MAX;
        told.sessions.extend(page.sessions);
    }
    Some(told)
}

/// In MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// As Lustre prints it. Nothing is read ahead.
fn max_cached_mb(cache: &Cache) -> String {
    let max = mib(cache.max);
    let used = mib(cache.clean + cache.dirty + cache.unstable);
    format!(
        "users: {}\nmax_cached_mb: {max}\nused_mb: {used}\nunused_mb: {}\nreclaim_count: {}\nmax_read_ahead_mb: 0\nused_read_ahead_mb: 0",
        cache.users,
        max.saturating_sub(used),
        cache.reclaims,
    )
}

/// As Lustre prints counts (`lprocfs_stats_seq_show`).
fn stats(told: &Told) -> String {
    let time = |name: &str, ns: u64| {
        format!("{name:<25} {}.{:09} secs.nsecs", ns / 1_000_000_000, ns % 1_000_000_000)
    };
    let mut lines = vec![
        time("snapshot_time", told.now_ns),
        time("start_time", told.since_ns),
        time("elapsed_time", told.now_ns.saturating_sub(told.since_ns)),
    ];
    lines.extend(told.counts.iter().map(|count| {
        let Count { name, unit, samples, min, max, sum, sumsq } = count;
        format!("{name:<25} {samples} samples [{unit}] {min} {max} {sum} {sumsq}")
    }));
    lines.join("\n")
}

/// What may still be written before the OST has to be asked for space, as its last answer says it.
fn room(session: &Session) -> u64 {
    session.room.unwrap_or(0).saturating_sub(session.dirty)
}

/// Sets one.
pub fn set(setting: &Setting, value: &str) -> Result<(), Refusal> {
    let memory = memory_bytes();
    let (parsed, wanted) = match setting.unit {
        Unit::Memory => {
            let bytes = bytes(value, memory).filter(|bytes| (CACHED_BYTES_MIN..=memory).contains(bytes));
            let (least, most) = (CACHED_BYTES_MIN >> 20, memory >> 20);
            let wanted = format!(
                "write a number of MiB from {least} to {most}, which is this machine's memory, or a part of that, as in 10%"
            );
            (bytes.map(|bytes| bytes.to_string()), wanted)
        }
        Unit::Locks => {
            let count = if value == "clear" { Some(value.to_owned()) } else { locks(value) };
            (count, "write how many locks are kept, 0 for as many as there is room for, or clear".to_owned())
        }
        Unit::Counts => (Some("clear".to_owned()), String::new()),
        Unit::Age => {
            let wanted = "write a number of milliseconds, or of seconds as in 600s".to_owned();
            (age_ms(value).map(|ms| ms.to_string()), wanted)
        }
    };
    let Some(parsed) = parsed else { return Err(Refusal { why: wanted, status: libc::EINVAL as u8 }) };
    let attribute = format!("{TUNABLE}{}", setting.name);
    ask::set(&setting.mount, &attribute, parsed.as_bytes()).map_err(|error| Refusal {
        why: crate::control::describe(&error),
        status: error.raw_os_error().and_then(|number| u8::try_from(number).ok()).unwrap_or(1),
    })
}

fn locks(value: &str) -> Option<String> {
    value.parse::<u32>().ok().map(|count| count.to_string())
}

/// Milliseconds, unless a unit says seconds.
fn age_ms(value: &str) -> Option<u64> {
    if let Some(ms) = value.strip_suffix("ms") {
        return ms.parse().ok();
    }
    match value.strip_suffix('s') {
        Some(seconds) => seconds.parse::<u64>().ok()?.checked_mul(1000),
        None => value.parse().ok(),
    }
}

/// `64` is in MiB, `1G` says its unit, `10%` is a part of the memory. A name before it, as in what is printed, is left out.
fn bytes(value: &str, memory: u64) -> Option<u64> {
    let value = value.trim().trim_start_matches("max_cached_mb:").trim();
    if let Some(part) = value.strip_suffix('%') {
        let part: u64 = part.parse().ok().filter(|part| *part <= 100)?;
        return Some(memory / 100 * part);
    }
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find(|(unit, _)| value.to_ascii_uppercase().ends_with(*unit));
    let (digits, shift) = unit.map_or((value, 20), |(_, shift)| (&value[..value.len() - 1], *shift));
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Memory of this machine.
fn memory_bytes() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_lustres_words() {
        let cache = Cache {
            users: 5,
            max: 64 << 20,
            clean: 10 << 20,
            dirty: 1,
            dirty_max: 1 << 20,
            unstable: 2 << 20,
            reclaims: 3,
        };
        assert_eq!(
            max_cached_mb(&cache),
            "users: 5\nmax_cached_mb: 64\nused_mb: 13\nunused_mb: 51\nreclaim_count: 3\nmax_read_ahead_mb: 0\n\
             used_read_ahead_mb: 0"
        );
    }

    #[test]
    fn counts_look_as_lustres() {
        let count = Count {
            name: "getattr".into(),
            unit: "usecs".into(),
            samples: 1_000_002,
            min: 2,
            max: 12_215,
            sum: 10_099_392,
            sumsq: 1_764_429_274,
        };
        let told = Told {
            now_ns: 1_783_960_164_279_418_700,
            since_ns: 1_783_705_564_331_211_471,
            counts: vec![count],
        };
        assert_eq!(
            stats(&told),
            "snapshot_time             1783960164.279418700 secs.nsecs\n\
             start_time                1783705564.331211471 secs.nsecs\n\
             elapsed_time              254599.948207229 secs.nsecs\n\
             getattr                   1000002 samples [usecs] 2 12215 10099392 1764429274"
        );
    }

    #[test]
    fn ages_and_numbers() {
        for (text, wanted) in
            [("600s", Some(600_000)), ("600", Some(600)), ("7ms", Some(7)), ("s", None), ("1h", None)]
        {
            assert_eq!(age_ms(text), wanted, "{text}");
        }
        assert_eq!((locks("10").as_deref(), locks("-1"), locks("all")), (Some("10"), None, None));
    }

    #[test]
    fn sizes() {
        let memory = 8 << 30;
        for (text, wanted) in [
            ("64", Some(64 << 20)),
            ("max_cached_mb: 64", Some(64 << 20)),
            ("2G", Some(2 << 30)),
            ("4096k", Some(4 << 20)),
            ("25%", Some(memory / 100 * 25)),
            ("101%", None),
            ("", None),
            ("M", None),
            ("-1", None),
            ("64 MB", None),
            ("99999999999999T", None),
        ] {
            assert_eq!(bytes(text, memory), wanted, "{text}");
        }
    }
}
