//! Parameters of mounts, by Lustre's names: what a mount caches (`llite.*`), and what it has of each target (`osc.*`).
//! What is set holds for as long as the mount does.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use client::CACHED_BYTES_MIN;
use fuse::imports::{IMPORTS, Imports};
use fuse::tunables::{Cache, SESSIONS_MAX, Session, TUNABLE, TUNABLES, Tunables};
use proto::{TargetId, TargetKind};

use super::{reach, timeouts};
use crate::failure::Failure;
use crate::mountpoint;

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
    mount: PathBuf,
    /// What the mount calls it.
    name: String,
}

/// Why a parameter was not set.
pub struct Refusal {
    /// The sentence.
    pub why: String,
    /// Exit status: an error number.
    pub status: u8,
}

/// Those of every mount. One that does not answer has none.
pub fn all() -> Result<Vec<Parameter>, Failure> {
    let mut parameters = Vec::new();
    for entry in mountpoint::usable()? {
        let Some(told) = told(&entry.path) else { continue };
        let digits: String = told.client.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        let of_target = |id: TargetId| {
            let role = if id.kind == TargetKind::Mdt { "mdc" } else { "osc" };
            format!("{}-{role}-{digits}", reach::name(&told.fsname, id))
        };
        let set = |name: String| Some(Setting { mount: entry.path.clone(), name });
        let mut add = |name: String, value, setting| parameters.push(Parameter { name, value, setting });
        let llite = format!("llite.{}-{digits}", told.fsname);
        add(format!("{llite}.max_cached_mb"), max_cached_mb(&told.cache), set("max_cached_mb".into()));
        let dirty = mib(told.cache.dirty_max).to_string();
        add(format!("{llite}.max_dirty_mb"), dirty, set("max_dirty_mb".into()));
        let check = format!(
            "unstable_check:     {:8}\nunstable_pages: {:12}\nunstable_mb:        {:8}",
            1,
            told.cache.unstable / PAGE_BYTES,
            told.cache.unstable >> 20
        );
        add(format!("{llite}.unstable_stats"), check, None);
        for session in &told.sessions {
            let osc = format!("osc.{}", of_target(session.id()));
            let max = mib(session.dirty_max).to_string();
            add(format!("{osc}.cur_dirty_bytes"), session.dirty.to_string(), None);
            add(format!("{osc}.cur_grant_bytes"), room(session).to_string(), None);
            add(format!("{osc}.max_dirty_mb"), max, set(format!("{}.max_dirty_mb", session.id())));
            let unstable = format!(
                "unstable_pages: {:20}\nunstable_mb:              {:10}",
                session.unstable / PAGE_BYTES,
                session.unstable >> 20
            );
            add(format!("{osc}.unstable_stats"), unstable, None);
        }
        let Ok(told) = crate::control::get::<Imports>(&entry.path, IMPORTS) else { continue };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for import in &told.imports {
            let role = if import.id().kind == TargetKind::Mdt { "mdc" } else { "osc" };
            add(format!("{role}.{}.timeouts", of_target(import.id())), timeouts::of(import, now_s), None);
        }
    }
    Ok(parameters)
}

/// All of one mount, however many sessions it has.
fn told(path: &Path) -> Option<Tunables> {
    let mut told: Tunables = crate::control::get(path, TUNABLES).ok()?;
    while told.more && told.sessions.len() < TARGETS_MAX {
        let next = format!("{TUNABLES}.{}", told.sessions.len());
        let Ok(page) = crate::control::get::<Tunables>(path, &next) else { break };
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

/// What may still be written before the OST has to be asked for space, as its last answer says it.
fn room(session: &Session) -> u64 {
    session.room.unwrap_or(0).saturating_sub(session.dirty)
}

/// Sets one.
pub fn set(setting: &Setting, value: &str) -> Result<(), Refusal> {
    let memory = memory_bytes();
    let bytes = bytes(value, memory).filter(|bytes| (CACHED_BYTES_MIN..=memory).contains(bytes));
    let Some(bytes) = bytes else {
        let why = format!(
            "write a number of MiB from {} to {}, which is this machine's memory, or a part of that, as in 10%",
            CACHED_BYTES_MIN >> 20,
            memory >> 20
        );
        return Err(Refusal { why, status: libc::EINVAL as u8 });
    };
    let attribute = format!("{TUNABLE}{}", setting.name);
    crate::control::set(&setting.mount, attribute, bytes.to_string().as_bytes()).map_err(|error| Refusal {
        why: crate::control::describe(&error),
        status: error.raw_os_error().and_then(|number| u8::try_from(number).ok()).unwrap_or(1),
    })
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
