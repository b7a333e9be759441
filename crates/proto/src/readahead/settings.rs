//! What operators may set, with Lustre's defaults.

/// Unit of the statistics and of [`Unit::Pages`], in bytes (the page of x86-64).
pub const PAGE_BYTES: u64 = 4096;

/// Lustre's `max_read_ahead_mb`, in bytes.
const MOUNT_BYTES_MAX: u64 = 1024 << 20;
/// Lustre's `max_read_ahead_per_file_mb`, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Lustre's `max_read_ahead_whole_mb`, in bytes.
const WHOLE_BYTES_MAX: u64 = 4 << 20;

/// In what a pattern is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// In bytes, as Lustre does since LU-12518 (2.14).
    #[default]
    Bytes,
    /// In pages and with one pattern for each handle, as Lustre did before. For comparisons: records that do not fill whole
    /// pages look irregular.
    Pages,
}

/// How far to read ahead. Every size is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes that are ahead of all readers of the mount (`max_read_ahead_mb`); 0 turns read-ahead off.
    pub mount_bytes_max: u64,
    /// Most bytes that are ahead of all readers of one file (`max_read_ahead_per_file_mb`); 0 turns read-ahead off.
    pub file_bytes_max: u64,
    /// Largest file that is fetched whole with the second read of a handle (`max_read_ahead_whole_mb`).
    pub whole_bytes_max: u64,
    /// Size of a request to an OST. Sequential ranges end at multiples of it.
    pub rpc_bytes: u64,
    /// In what patterns are measured.
    pub unit: Unit,
}

impl Settings {
    /// Lustre's defaults for a client that may use `memory_bytes` for what it keeps of files: half of that is for what was read
    /// ahead, and a file has a quarter of it at most (`ll_init_sbi`).
    pub fn new(memory_bytes: u64, rpc_bytes: u64) -> Settings {
        let mount_bytes_max = MOUNT_BYTES_MAX.min(memory_bytes / 2);
        let file_bytes_max = FILE_BYTES_MAX.min(mount_bytes_max / 4);
        let whole_bytes_max = WHOLE_BYTES_MAX.min(file_bytes_max);
        Settings { mount_bytes_max, file_bytes_max, whole_bytes_max, rpc_bytes, unit: Unit::Bytes }
    }

    /// Nothing is read ahead.
    pub fn is_off(&self) -> bool {
        self.window_max() == 0
    }

    /// Most bytes of one window.
    pub(super) fn window_max(&self) -> u64 {
        self.file_bytes_max.min(self.mount_bytes_max)
    }

    /// Size of a request; a page at least.
    pub(super) fn rpc(&self) -> u64 {
        self.rpc_bytes.max(PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_lustre_as_far_as_memory_goes() {
        let sizes = |memory| {
            let set = Settings::new(memory, 1 << 20);
            (set.mount_bytes_max >> 20, set.file_bytes_max >> 20, set.whole_bytes_max >> 20)
        };
        assert_eq!(sizes(64 << 30), (1024, 256, 4));
        assert_eq!(sizes(1 << 30), (512, 128, 4));
        assert_eq!(sizes(16 << 20), (8, 2, 2));
        assert!(Settings::new(0, 1 << 20).is_off());
    }
}
