//! Sizes as people write them: `1M`, `64k`, `47104K`.

/// Reads a stripe size: K, M, G, T count in powers of 1024, and a number without a unit below 4096 is KiB, as `lfs`
/// has always read it. 0 stands for the default.
pub fn stripe_size(text: &str) -> Result<u32, String> {
    let bytes = parse(text)?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = if plain && bytes < 4096 { bytes * 1024 } else { bytes };
    let unit = u64::from(proto::limits::STRIPE_SIZE_UNIT);
    match u32::try_from(bytes) {
        Ok(size) if bytes.is_multiple_of(unit) => Ok(size),
        Ok(_) => Err(format!("stripe size {text} is not a multiple of 64K")),
        Err(_) => Err(format!("stripe size {text} is 4G or more")),
    }
}

/// Where a component ends: a size, or `eof` or `-1` for no end.
pub fn component_end(text: &str) -> Result<u64, String> {
    if text.eq_ignore_ascii_case("eof") || text == "-1" {
        return Ok(u64::MAX);
    }
    let end = parse(text)?;
    let unit = u64::from(proto::limits::STRIPE_SIZE_UNIT);
    if end > 0 && end.is_multiple_of(unit) {
        Ok(end)
    } else {
        Err(format!("{text} is not a multiple of 64K"))
    }
}

/// By how much a component extends itself.
pub fn extension_size(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    match bytes > 0 && bytes.is_multiple_of(u64::from(proto::limits::STRIPE_SIZE_UNIT)) {
        true => Ok(bytes),
        false => Err(format!("extension size {text} is not a multiple of 64K")),
    }
}

/// A number of bytes, which is not 0.
pub fn bytes(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("0 is too small".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A number, perhaps of a unit of 1024 and its powers.
pub fn count(text: &str) -> Result<u64, String> {
    parse(text).map_err(|_| format!("\"{text}\" is not a number; write for example 1000 or 64K"))
}

fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("\"{text}\" is not a size; write for example 1M or 64K");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(bad()),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// Bytes with one digit and a unit, as `lfs df -h` writes them; counts below `base` stay as they are.
pub fn cooked(value: u64, base: f64) -> String {
    let (mut cooked, mut radix) = (value as f64, 0);
    while cooked > base {
        cooked /= base;
        radix += 1;
    }
    match radix {
        0 => format!("{value:>11}"),
        _ => format!("{cooked:8.1}{}", b"KMGTPEZY"[radix - 1] as char),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripe_sizes() {
        for (text, size) in [
            ("64", 65_536),
            ("64K", 65_536),
            ("1M", 1 << 20),
            ("1m", 1 << 20),
            ("1048576", 1 << 20),
            ("47104k", 47_104 << 10),
            ("1G", 1 << 30),
            ("0", 0),
        ] {
            assert_eq!(stripe_size(text), Ok(size), "{text}");
        }
        for bad in ["", "M", "65537", "-1", "1.5M", "4G", "1x", "99999999999999999999"] {
            assert!(stripe_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cooked_values() {
        assert_eq!(cooked(0, 1024.0), "          0");
        assert_eq!(cooked(1024, 1024.0), "       1024");
        assert_eq!(cooked(3_250_585, 1024.0), "     3.1M");
        assert_eq!(cooked(5_600_000_000, 1000.0), "     5.6G");
    }
}
