//! Times as `lfs quota` writes them: `1w2d3h4m5s`.

/// Units and their seconds, the longest first.
const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// A number of seconds as text.
pub fn text(seconds: u64) -> String {
    let (mut left, mut text) = (seconds, String::new());
    for (letter, unit) in UNITS {
        if left >= unit {
            text += &format!("{}{letter}", left / unit);
            left %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The inverse; a number alone is seconds.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("\"{text}\" is not a time; write for example 604800 or 1w2d");
    let (mut sum, mut rest) = (0_u64, text);
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().map_err(|_| bad())?;
        let letter = rest[end..].chars().next().unwrap_or('s');
        let (_, unit) = units.find(|(known, _)| *known == letter).ok_or_else(bad)?;
        sum = number.checked_mul(*unit).and_then(|part| sum.checked_add(part)).ok_or_else(bad)?;
        rest = rest.get(end + 1..).unwrap_or("");
    }
    if text.is_empty() { Err(bad()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (seconds, written) in
            [(0, "0s"), (59, "59s"), (604_800, "1w"), (694_861, "1w1d1h1m1s"), (7200, "2h")]
        {
            assert_eq!(text(seconds), written);
            assert_eq!(parse(written), Ok(seconds));
        }
        assert_eq!(parse("90"), Ok(90));
        assert_eq!(parse("1d90"), Ok(86_490));
        for wrong in ["", "d", "1x", "1s1d", "-1", "1d1d", "99999999999999999999", "99999999999999999w"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
