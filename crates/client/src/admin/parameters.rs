//! What an administrator sees and sets of a client, by Lustre's names: what a mount caches (`llite.*`), what it has written to each
//! OST (`osc.*`), what it holds of each target (`ldlm.namespaces.*`), how long answers take, and which configuration it knows.
//! What is set holds for as long as the mount does.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use proto::parameters::{CLEARS, ClientTree, Parameter, SWITCH, Unit, switch};
use proto::{Code, OstIndex, TargetId};

use super::Admin;
use super::answers;
use super::tune::{CACHED_BYTES_MIN, CacheUse, OstUse};
use crate::Result;

/// What setting a parameter of a client gives: something that has to be waited for.
pub type Setting<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A page, as Lustre counts (bytes).
const PAGE_BYTES: u64 = 4096;
/// What a number of locks takes.
const LOCKS: &str = "write how many locks are kept, 0 for as many as there is room for, or clear";
/// What an age takes.
const AGE: &str = "write a number of milliseconds, or of seconds as in 600s";

impl Admin {
    /// Registers all that a client has.
    pub fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        self.memory_in(tree);
        self.read_ahead_in(tree);
        self.statahead_in(tree);
        self.ahead_in(tree);
        self.counting_in(tree);
        self.switches_in(tree);
        let targets: Vec<TargetId> = self.shared.targets.sessions().into_keys().collect();
        for target in &targets {
            self.locks_in(*target, tree);
            if let Some(ost) = target.ost_index() {
                self.writes_in(ost, tree);
            }
            self.rpcs_in(*target, tree);
        }
        for target in targets {
            tree.of_session(target, || [Parameter::text("timeouts", move || self.timeouts(target))]);
        }
        tree.of_mgs(Parameter::text("ir_state", || {
            self.with_config(|config| answers::ir_state(config.fsname(), config.version()))
        }));
    }

    fn memory_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let most = self.memory_bytes();
        let cached = Parameter::text("max_cached_mb", || max_cached_mb(&self.cache_use()));
        tree.of_mount(cached.settable(sizes(most), move |text: &str| -> Setting<'a> {
            let bytes = size(text, most);
            Box::pin(async move { self.set_cached_max(bytes?).await })
        }));
        let dirty =
            Parameter::gauge("max_dirty_mb", Unit::Mebibytes, || mebibytes(self.cache_use().dirty_max));
        tree.of_mount(dirty.settable(sizes(most), move |text: &str| -> Setting<'a> {
            let bytes = size(text, most);
            Box::pin(async move { self.set_dirty_max(bytes?) })
        }));
        tree.of_mount(Parameter::text("unstable_stats", || {
            let unstable = self.cache_use().unstable;
            let (pages, mb) = (unstable / PAGE_BYTES, unstable >> 20);
            format!("unstable_check:     {:8}\nunstable_pages: {pages:12}\nunstable_mb:        {mb:8}", 1)
        }));
    }

    fn locks_in<'a>(&'a self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let size = move || match self.keep(target).count_max {
            // Lustre's, too, tells how many are unused where it sizes the list itself.
            0 => self.lock_unused_count(target),
            most => most,
        };
        let set_size = move |text: &str| -> Setting<'a> {
            let is_clear = text == "clear";
            let count = text.parse::<u32>().map_err(|_| Code::Invalid);
            Box::pin(async move {
                if is_clear {
                    return self.clear_locks(target).await;
                }
                self.set_locks_max(target, usize::try_from(count?).map_err(|_| Code::Invalid)?).await
            })
        };
        let set_age = move |text: &str| -> Setting<'a> {
            let age = age(text);
            Box::pin(async move { self.set_locks_age_max(target, age?) })
        };
        tree.of_locks(target, || {
            let age = Parameter::gauge("lru_max_age", Unit::Milliseconds, move || {
                millis(self.keep(target).age_max)
            });
            [
                Parameter::gauge("lock_count", Unit::None, move || self.lock_count(target)),
                Parameter::gauge("lock_unused_count", Unit::None, move || self.lock_unused_count(target)),
                age.settable(AGE, set_age),
                Parameter::gauge("lru_size", Unit::None, size).settable(LOCKS, set_size),
            ]
        });
    }

    /// Of every OST, whether it was used or not.
    fn switches_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets = &self.shared.targets;
        let osts: Vec<TargetId> = self.with_config(|config| {
            let all = config.targets().map(|entry| entry.target);
            all.filter(|id| id.ost_index().is_some()).collect()
        });
        for id in osts {
            tree.of_session(id, || {
                let active = Parameter::gauge("active", Unit::None, move || u8::from(targets.is_active(id)));
                [active.settable(SWITCH, move |text: &str| -> Setting<'a> {
                    let active = switch(text);
                    Box::pin(async move {
                        targets.set_active(id, active.map_err(crate::Error::Refused)?);
                        Ok(())
                    })
                })]
            });
        }
    }

    fn writes_in<'a>(&'a self, ost: OstIndex, tree: &mut ClientTree<'a, Setting<'a>>) {
        let most = self.memory_bytes();
        let of = move |read: fn(&OstUse) -> u64| move || self.ost_use(ost).map_or(0, |of| read(&of));
        let unstable = of(|of| of.unstable);
        let set_max = move |text: &str| -> Setting<'a> {
            let bytes = size(text, most);
            Box::pin(async move { self.set_ost_dirty_max(ost, bytes?) })
        };
        tree.of_session(TargetId::ost(ost), || {
            let max = Parameter::gauge("max_dirty_mb", Unit::Mebibytes, of(|of| mebibytes(of.dirty_max)));
            [
                Parameter::gauge("cur_dirty_bytes", Unit::Bytes, of(|of| of.dirty)),
                // What may still be written before the OST has to be asked for space, as its last answer says it.
                Parameter::gauge(
                    "cur_grant_bytes",
                    Unit::Bytes,
                    of(|of| of.room.unwrap_or(0).saturating_sub(of.dirty)),
                ),
                max.settable(sizes(most), set_max),
                Parameter::text("unstable_stats", move || {
                    let (pages, mb) = (unstable() / PAGE_BYTES, unstable() >> 20);
                    format!("unstable_pages: {pages:20}\nunstable_mb:              {mb:10}")
                }),
            ]
        });
    }

    /// As in Lustre, whatever is written clears them.
    fn rpcs_in<'a>(&'a self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let text = move || {
            let dirty = target.ost_index().and_then(|ost| self.ost_use(ost)).map_or(0, |of| of.dirty);
            self.shared.targets.made(target).map_or(String::new(), |made| made.rpc_stats(dirty))
        };
        let clear = move |_: &str| -> Setting<'a> {
            if let Some(made) = self.shared.targets.made(target) {
                made.clear_rpc_stats();
            }
            Box::pin(std::future::ready(Ok(())))
        };
        tree.of_session(target, || [Parameter::histogram("rpc_stats", text).settable(CLEARS, clear)]);
    }

    fn timeouts(&self, target: TargetId) -> String {
        let now_s = u64::try_from(self.shared.rt.wall().secs).unwrap_or(0);
        let made = self.shared.targets.made(target);
        made.map_or(String::new(), |made| answers::timeouts(&made.state().answers, now_s))
    }

    /// The most that a bound of memory can be, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.shared.rt.memory_bytes()
    }
}

/// As Lustre prints it.
fn max_cached_mb(cache: &CacheUse) -> String {
    let max = mebibytes(cache.max);
    let used = mebibytes(cache.clean + cache.dirty + cache.unstable);
    format!(
        "users: {}\nmax_cached_mb: {max}\nused_mb: {used}\nunused_mb: {}\nreclaim_count: {}\nmax_read_ahead_mb: {}\nused_read_ahead_mb: {}",
        cache.users,
        max.saturating_sub(used),
        cache.reclaims,
        mebibytes(cache.ahead_max),
        mebibytes(cache.ahead),
    )
}

/// In MiB, rounded up.
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds, unless a unit says seconds.
fn age(text: &str) -> std::result::Result<Duration, Code> {
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| Code::Invalid);
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => Ok(Duration::from_millis(number(ms)?)),
        (None, Some(seconds)) => {
            let ms = number(seconds)?.checked_mul(1000).ok_or(Code::Invalid)?;
            Ok(Duration::from_millis(ms))
        }
        (None, None) => Ok(Duration::from_millis(number(text)?)),
    }
}

/// What [`size`] takes.
fn sizes(most: u64) -> String {
    let (least, most) = (CACHED_BYTES_MIN >> 20, most >> 20);
    format!(
        "write a number of MiB from {least} to {most}, which is the memory that the process may use, or a part of that, as in 10%"
    )
}

/// A number of bytes of at most `most`. `64` is in MiB, `1G` says its unit, `10%` is a part of `most`. A name before it, as in what is
/// printed, is left out.
fn size(text: &str, most: u64) -> std::result::Result<u64, Code> {
    let bytes = bytes(text, most).filter(|bytes| (CACHED_BYTES_MIN..=most).contains(bytes));
    bytes.ok_or(Code::Invalid)
}

pub(super) fn bytes(text: &str, most: u64) -> Option<u64> {
    let text = text.trim().trim_start_matches("max_cached_mb:").trim();
    if let Some(part) = text.strip_suffix('%') {
        let part: u64 = part.parse().ok().filter(|part| *part <= 100)?;
        return Some(most / 100 * part);
    }
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find(|(unit, _)| text.to_ascii_uppercase().ends_with(*unit));
    let (digits, shift) = unit.map_or((text, 20), |(_, shift)| (&text[..text.len() - 1], *shift));
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_lustres_words() {
        let cache = CacheUse {
            users: 5,
            max: 64 << 20,
            clean: 10 << 20,
            dirty: 1,
            dirty_max: 1 << 20,
            unstable: 2 << 20,
            reclaims: 3,
            ahead: 5 << 20,
            ahead_max: 32 << 20,
        };
        assert_eq!(
            max_cached_mb(&cache),
            "users: 5\nmax_cached_mb: 64\nused_mb: 13\nunused_mb: 51\nreclaim_count: 3\nmax_read_ahead_mb: 32\n\
             used_read_ahead_mb: 5"
        );
    }

    #[test]
    fn ages() {
        for (text, wanted) in
            [("600s", Ok(600_000)), ("600", Ok(600)), ("7ms", Ok(7)), ("s", Err(())), ("1h", Err(()))]
        {
            let wanted = wanted.map(Duration::from_millis).map_err(|()| Code::Invalid);
            assert_eq!(age(text), wanted, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
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
            ("3", None),
            ("9G", None),
            ("99999999999999T", None),
        ] {
            assert_eq!(size(text, memory).ok(), wanted, "{text}");
        }
    }
}
