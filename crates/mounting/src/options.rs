//! Options of a client, as they stand among those of a mount.

use std::path::PathBuf;

use client::Limits;
use rpc::Protect;

use crate::{Failure, Result};

/// Largest limit of a client's memory, in MiB.
const MB_MAX: u32 = 1 << 20;

/// The least that a process may be limited to, in MiB.
const MEM_LIMIT_MB_MIN: u32 = (rt::memory::LIMIT_BYTES_MIN >> 20) as u32;

/// How a client is to work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The clients' key.
    pub key: Option<PathBuf>,
    /// MiB of data that was read and is kept besides the kernel's page cache.
    pub max_cached_mb: Option<u32>,
    /// MiB of data that was written and not sent yet.
    pub max_dirty_mb: Option<u32>,
    /// MiB that the process may hold in all.
    pub mem_limit_mb: Option<u32>,
    /// How connections are protected.
    pub protect: Option<Protect>,
}

impl Options {
    /// Takes `option` if it is one of these: `key=FILE`, `max_cached_mb=N`, `max_dirty_mb=N`, `mem_limit_mb=N`,
    /// `protect=WAY`. Whether it was.
    ///
    /// # Errors
    /// It is, and its value is none.
    pub fn take(&mut self, option: &str) -> Result<bool> {
        let Some((name, value)) = option.split_once('=') else { return Ok(false) };
        match name {
            "key" => self.key = Some(PathBuf::from(value)),
            "max_cached_mb" => self.max_cached_mb = Some(megabytes(option, value)?),
            "max_dirty_mb" => self.max_dirty_mb = Some(megabytes(option, value)?),
            "mem_limit_mb" => self.mem_limit_mb = Some(megabytes_from(MEM_LIMIT_MB_MIN, option, value)?),
            "protect" => {
                let wrong = |why| Failure::usage(format!("mount option \"{option}\": {why}"));
                self.protect = Some(value.parse().map_err(wrong)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The same options as text, without the key.
    pub fn to_text(&self) -> Vec<String> {
        let cached = self.max_cached_mb.map(|mb| format!("max_cached_mb={mb}"));
        let dirty = self.max_dirty_mb.map(|mb| format!("max_dirty_mb={mb}"));
        let limit = self.mem_limit_mb.map(|mb| format!("mem_limit_mb={mb}"));
        let protect = self.protect.as_ref().map(|protect| format!("protect={protect}"));
        [cached, dirty, limit, protect].into_iter().flatten().collect()
    }

    /// As the client of a process needs them that may use `memory` bytes.
    pub fn limits(&self, memory: u64) -> Limits {
        let bytes = |mb: Option<u32>, default| mb.map_or(default, |mb| u64::from(mb) << 20);
        let default = Limits::within(memory);
        Limits {
            cached_bytes_max: bytes(self.max_cached_mb, default.cached_bytes_max),
            dirty_bytes_max: bytes(self.max_dirty_mb, default.dirty_bytes_max),
            ..default
        }
    }
}

fn megabytes(option: &str, value: &str) -> Result<u32> {
    megabytes_from(1, option, value)
}

fn megabytes_from(least: u32, option: &str, value: &str) -> Result<u32> {
    let wrong =
        || Failure::usage(format!("mount option \"{option}\": give a number of MiB, {least} to {MB_MAX}"));
    value.parse().ok().filter(|mb| (least..=MB_MAX).contains(mb)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_options_are_taken() {
        let mut options = Options::default();
        for option in [
            "key=/k",
            "mem_limit_mb=64",
            "max_dirty_mb=8",
            "max_cached_mb=1",
            "protect=encrypt+10.0.0.0/8=none",
        ] {
            assert_eq!(options.take(option), Ok(true), "{option}");
        }
        assert_eq!(options.take("ro"), Ok(false));
        assert_eq!(options.take("unmount_wait=7"), Ok(false));
        assert_eq!(options.key, Some(PathBuf::from("/k")));
        assert_eq!(
            options.to_text(),
            ["max_cached_mb=1", "max_dirty_mb=8", "mem_limit_mb=64", "protect=encrypt+10.0.0.0/8=none"]
        );
        let limits = options.limits(64 << 30);
        assert_eq!((limits.cached_bytes_max, limits.dirty_bytes_max), (1 << 20, 8 << 20));
        for bad in ["max_cached_mb=0", "mem_limit_mb=31", "max_dirty_mb=much", "protect=none"] {
            assert!(matches!(options.take(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
