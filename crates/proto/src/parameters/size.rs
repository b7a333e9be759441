//! Sizes as operators write them.

/// A size in bytes: a whole number, in units of 1 << `shift` bytes unless `K`, `M`, `G` or `T` stands behind it. `None` if it is none, or too large.
pub fn size(text: &str, shift: u32) -> Option<u64> {
    let text = text.trim();
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find(|(unit, _)| text.to_ascii_uppercase().ends_with(*unit));
    let (digits, shift) = unit.map_or((text, shift), |(_, shift)| (&text[..text.len() - 1], *shift));
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        let cases: [(&str, Option<u64>); 12] = [
            ("0", Some(0)),
            ("4096\n", Some(4096)),
            ("64k", Some(64 << 10)),
            ("32M", Some(32 << 20)),
            ("1G", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551615K", None),
            ("", None),
            ("K", None),
            ("1.5G", None),
            ("größe", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text, 0), bytes, "{text:?}");
        }
        assert_eq!((size("3", 20), size("3k", 20)), (Some(3 << 20), Some(3 << 10)));
    }
}
