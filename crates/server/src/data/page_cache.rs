//! What an administrator says of the page cache: which data of objects it keeps (docs/operations.md#read-cache).

use proto::Code;
use proto::parameters::{self, Parameter, SWITCH, TargetTree, Unit, switch};

use super::Data;

/// What `readcache_max_filesize` takes.
const SIZES: &str = "write a number of bytes, also as 64K, 32M, 1G, or -1 for no limit";

impl Data {
    /// Registers `read_cache_enable`, `writethrough_cache_enable` and `readcache_max_filesize`, as in Lustre, where the first two are on for
    /// disks that rotate; and `readcache_hot_filesize`.
    pub fn cache_parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let cache = self.objects.page_cache();
        let reads = Parameter::gauge("read_cache_enable", Unit::None, || u8::from(cache.keeps_reads()));
        tree.of_disk(reads.settable(SWITCH, |text: &str| switch(text).map(|on| cache.keep_reads(on))));
        let writes =
            Parameter::gauge("writethrough_cache_enable", Unit::None, || u8::from(cache.keeps_writes()));
        tree.of_disk(writes.settable(SWITCH, |text: &str| switch(text).map(|on| cache.keep_writes(on))));
        let max = Parameter::gauge("readcache_max_filesize", Unit::Bytes, || cache.object_bytes_max());
        tree.of_disk(max.settable(SIZES, |text: &str| {
            cache.set_object_bytes_max(size(text).ok_or(Code::Invalid)?);
            Ok(())
        }));
        let hot = Parameter::gauge("readcache_hot_filesize", Unit::Bytes, || cache.hot_bytes_max());
        tree.of_disk(hot.settable(SIZES, |text: &str| {
            cache.set_hot_bytes_max(size(text).ok_or(Code::Invalid)?);
            Ok(())
        }));
    }
}

/// A size in bytes. As in Lustre, `-1` is no limit.
fn size(text: &str) -> Option<u64> {
    if text.trim() == "-1" { Some(u64::MAX) } else { parameters::size(text, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_a_size() {
        assert_eq!(["-1\n", "64k", "-2"].map(size), [Some(u64::MAX), Some(64 << 10), None]);
    }
}
