//! What an administrator says of the page cache: which data of objects it keeps (docs/operations.md#read-cache).

use proto::Code;
use proto::parameters::{Parameter, SWITCH, TargetTree, Unit, switch};

use super::Data;

/// What `readcache_max_filesize` takes.
const SIZES: &str = "write a number of bytes, also as 64K, 32M, 1G, or -1 for no limit";

impl Data {
    /// Registers `read_cache_enable`, `writethrough_cache_enable` and `readcache_max_filesize`, as in Lustre; there the first two are on for
    /// disks that rotate.
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
    }
}

/// A size in bytes. As in Lustre, `-1` is no limit.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "-1" {
        return Some(u64::MAX);
    }
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let cases: [(&str, Option<u64>); 12] = [
            ("0", Some(0)),
            ("4096\n", Some(4096)),
            ("64k", Some(64 << 10)),
            ("32M", Some(32 << 20)),
            ("1G", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551615K", None),
            ("", None),
            ("K", None),
            ("1.5G", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), bytes, "{text:?}");
        }
        assert_eq!(size("größe"), None);
    }
}
