//! What an administrator sees of the memory that a client takes, and the bounds that can be set while it runs.

use std::sync::Arc;

use proto::parameters::{ClientTree, Parameter, Unit};
use proto::{Code, OstIndex, TargetId};

use super::parameters::{Setting, bytes, mebibytes};
use crate::data::Taken;
use crate::targets::Target;
use crate::{Error, Result, Shared};

/// Least that may be cached, or be unsent to an OST, in bytes: some requests have to fit.
pub const CACHED_BYTES_MIN: u64 = 4 << 20;
/// A page, as Lustre counts (bytes).
const PAGE_BYTES: u64 = 4096;

/// What a client caches, in bytes, besides what the kernel keeps of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// Who uses it: the mount, and each session with an OST.
    pub users: usize,
    /// Most that may be cached.
    pub max: u64,
    /// What was read.
    pub clean: u64,
    /// What was written and not taken by an OST yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What was written and is kept until it is durable.
    pub unstable: u64,
    /// How often something had to go to make room.
    pub reclaims: u64,
    /// What was fetched for readers to come, on its way or here.
    pub ahead: u64,
    /// Most of that.
    pub ahead_max: u64,
}

/// What a client has written to an OST, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OstUse {
    /// Its index.
    pub ost: OstIndex,
    /// What it has not taken yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What it has taken, and is kept until it is durable.
    pub unstable: u64,
    /// What the client may have unsent, as the OST said last; `None` if it did not say.
    pub room: Option<u64>,
}

/// What an administrator sees and sets of the memory that a client takes.
pub struct MemoryBounds {
    shared: Arc<Shared>,
}

impl MemoryBounds {
    pub(crate) fn of(shared: &Arc<Shared>) -> MemoryBounds {
        MemoryBounds { shared: shared.clone() }
    }

    /// What is cached now.
    pub fn cache_use(&self) -> CacheUse {
        let [_, clean, reclaims] = self.shared.names.data.clean.counts();
        let (dirty, unstable) =
            (self.shared.names.data.back.rooms.dirty(), self.shared.names.data.back.rooms.unstable());
        CacheUse {
            users: 1 + self.shared.targets.osts().len(),
            max: self.shared.names.data.back.rooms.kept().max,
            clean,
            dirty: dirty.used,
            dirty_max: dirty.max,
            unstable,
            reclaims,
            ahead: self.shared.names.data.ahead.held_bytes(),
            ahead_max: self.shared.names.data.ahead.settings().mount_bytes_max,
        }
    }

    /// What was written to each OST with which there has been a session, by index.
    pub fn ost_uses(&self) -> Vec<OstUse> {
        let osts = self.shared.targets.osts().into_iter();
        osts.map(|(ost, target)| self.use_of(ost, &target)).collect()
    }

    /// What was written to `ost`; `None` if there was no session with it.
    pub(super) fn ost_use(&self, ost: OstIndex) -> Option<OstUse> {
        Some(self.use_of(ost, &*self.shared.targets.made(TargetId::ost(ost))?))
    }

    fn use_of(&self, ost: OstIndex, target: &Target) -> OstUse {
        let Taken { max, used } = self.shared.names.data.back.rooms.of_ost(ost.into());
        OstUse { ost, dirty: used, dirty_max: max, unstable: target.unstable(), room: target.room() }
    }

    /// No more than `bytes` are cached from now on: what was read goes at once; what was written is sent and made durable
    /// first, which may go on after this returns.
    pub async fn set_cached_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        self.shared.names.data.back.rooms.set_kept_max(bytes);
        self.shared.names.data.files.memory.set_cached_max(bytes);
        self.shared.names.data.ahead.set(bytes, |_| ());
        self.shared.names.data.clean.fit();
        let kept = self.shared.names.data.back.rooms.kept();
        if kept.used > kept.max {
            self.shared.names.data.back.relieve();
        }
        self.shared.rt.release_memory().await;
        Ok(())
    }

    /// No more than `bytes` are written and not sent from now on, whatever the OST.
    pub fn set_dirty_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        self.shared.names.data.back.rooms.set_dirty_max(bytes);
        self.shared.targets.set_unsent_max(bytes);
        Ok(())
    }

    /// No more than `bytes` are written and not taken by an OST from now on. What is more already stays until it is sent.
    pub fn set_ost_dirty_max(&self, ost: OstIndex, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        if self.shared.targets.made(TargetId::ost(ost)).is_none() {
            return Err(Error::Refused(Code::NotFound));
        }
        self.shared.names.data.back.rooms.set_ost_max(ost.into(), bytes);
        Ok(())
    }

    /// Registers what a mount caches.
    pub(super) fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
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

    /// Registers what is written to an OST.
    pub(super) fn parameters_of<'a>(&'a self, ost: OstIndex, tree: &mut ClientTree<'a, Setting<'a>>) {
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

    /// The most that a bound of memory can be, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.shared.rt.memory_bytes()
    }
}

fn at_least(bytes: u64) -> Result<()> {
    if bytes < CACHED_BYTES_MIN { Err(Error::Refused(Code::Invalid)) } else { Ok(()) }
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
