//! Patterns of the shell: `*`, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, and `\` before what stands for itself.
//!
//! As in find(1), nothing is special about a slash or a leading dot. A character is one of UTF-8; a byte that belongs to none is a
//! character of its own. Only letters of ASCII have two cases.

use bytes::Bytes;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// As the user wrote it.
    pub pattern: Bytes,
    /// Whether `a` and `A` are the same.
    pub ignores_case: bool,
}

/// Set beside the value of a byte that belongs to no character.
const LOOSE: u32 = 1 << 24;

impl Glob {
    /// Whether it matches all of `text`, in a time of at most the product of both lengths.
    pub fn matches(&self, text: &[u8]) -> bool {
        if let Some(part) = self.wanted_anywhere() {
            return part.is_empty() || text.windows(part.len()).any(|window| window == part);
        }
        let (mut pattern, mut rest) = (&self.pattern[..], text);
        // Where the last star was, and how much of the text it may take one character more of.
        let mut star: Option<(&[u8], &[u8])> = None;
        loop {
            if let Some((b'*', behind)) = pattern.split_first().map(|(first, rest)| (*first, rest)) {
                star = Some((behind, rest));
                pattern = behind;
                continue;
            }
            let step = match (pattern.is_empty(), rest.is_empty()) {
                (true, true) => return true,
                (false, false) => self.step(pattern, rest),
                _ => None,
            };
            if let Some(behind) = step {
                (pattern, rest) = behind;
                continue;
            }
            let Some((behind, taken)) = star else { return false };
            if taken.is_empty() {
                return false;
            }
            let (_, left) = character(taken);
            star = Some((behind, left));
            (pattern, rest) = (behind, left);
        }
    }

    /// The text that has to be somewhere, if the pattern is that between two stars: the commonest, and a search tries it on every name.
    fn wanted_anywhere(&self) -> Option<&[u8]> {
        let part = self.pattern.strip_prefix(b"*")?.strip_suffix(b"*")?;
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\' | 0x80..);
        if self.ignores_case || part.iter().any(is_special) { None } else { Some(part) }
    }

    /// What is left of both behind one character of the text, if the front of the pattern matches it. Neither is empty.
    fn step<'p, 't>(&self, pattern: &'p [u8], text: &'t [u8]) -> Option<(&'p [u8], &'t [u8])> {
        let (wanted, behind) = character(pattern);
        let (found, left) = character(text);
        if wanted == u32::from(b'?') {
            return Some((behind, left));
        }
        if wanted == u32::from(b'[')
            && let Some((holds, behind)) = self.bracket(behind, found)
        {
            return holds.then_some((behind, left));
        }
        let (wanted, behind) = match wanted == u32::from(b'\\') && !behind.is_empty() {
            true => character(behind),
            false => (wanted, behind),
        };
        (self.fold(wanted) == self.fold(found)).then_some((behind, left))
    }

    /// Whether the set behind `[` holds `found`, and what is left of the pattern; `None` if it has no end.
    fn bracket<'p>(&self, pattern: &'p [u8], found: u32) -> Option<(bool, &'p [u8])> {
        let is_not = matches!(pattern.first(), Some(b'!' | b'^'));
        let mut rest = if is_not { &pattern[1..] } else { pattern };
        let (mut holds, mut is_first) = (false, true);
        loop {
            if rest.is_empty() {
                return None;
            }
            if !is_first && rest[0] == b']' {
                return Some((holds != is_not, &rest[1..]));
            }
            is_first = false;
            if let Some((class, behind)) = class(rest) {
                holds |= u8::try_from(found).is_ok_and(|byte| self.is_in_class(class, byte));
                rest = behind;
                continue;
            }
            let (low, behind) = member(rest)?;
            rest = behind;
            let mut high = low;
            if let [b'-', next, ..] = rest
                && *next != b']'
            {
                (high, rest) = member(&rest[1..])?;
            }
            holds |= (low..=high).contains(&found);
            if self.ignores_case {
                holds |= other_case(found).is_some_and(|other| (low..=high).contains(&other));
            }
        }
    }

    fn is_in_class(&self, class: &[u8], byte: u8) -> bool {
        match class {
            b"alpha" => byte.is_ascii_alphabetic(),
            b"digit" => byte.is_ascii_digit(),
            b"alnum" => byte.is_ascii_alphanumeric(),
            b"upper" => byte.is_ascii_uppercase() || self.ignores_case && byte.is_ascii_lowercase(),
            b"lower" => byte.is_ascii_lowercase() || self.ignores_case && byte.is_ascii_uppercase(),
            b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
            b"blank" => matches!(byte, b' ' | b'\t'),
            b"punct" => byte.is_ascii_punctuation(),
            b"print" => byte == b' ' || byte.is_ascii_graphic(),
            b"graph" => byte.is_ascii_graphic(),
            b"cntrl" => byte.is_ascii_control(),
            b"xdigit" => byte.is_ascii_hexdigit(),
            _ => false,
        }
    }

    fn fold(&self, character: u32) -> u32 {
        match u8::try_from(character) {
            Ok(byte) if self.ignores_case => byte.to_ascii_lowercase().into(),
            _ => character,
        }
    }
}

fn other_case(character: u32) -> Option<u32> {
    let byte = u8::try_from(character).ok().filter(u8::is_ascii_alphabetic)?;
    Some(u32::from(byte ^ 0x20))
}

/// The name in `[:name:]` at the front of `pattern`, and what is left behind it.
fn class(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = pattern.strip_prefix(b"[:")?;
    let end = inner.windows(2).position(|two| two == b":]")?;
    Some((&inner[..end], &inner[end + 2..]))
}

/// A character of a set, and what is left behind it.
fn member(pattern: &[u8]) -> Option<(u32, &[u8])> {
    match pattern {
        [] => None,
        [b'\\', rest @ ..] if !rest.is_empty() => Some(character(rest)),
        _ => Some(character(pattern)),
    }
}

/// The first character of `text`, which is not empty, and what is left behind it.
fn character(text: &[u8]) -> (u32, &[u8]) {
    let first = text[0];
    if first < 0x80 {
        return (first.into(), &text[1..]);
    }
    for len in 2..=text.len().min(4) {
        if let Ok(one) = std::str::from_utf8(&text[..len])
            && let Some(one) = one.chars().next()
        {
            return (one.into(), &text[len..]);
        }
    }
    (LOOSE | u32::from(first), &text[1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &[u8], text: &[u8], expected: bool) {
        let glob = Glob { pattern: Bytes::copy_from_slice(pattern), ignores_case: false };
        let (pattern, shown) = (pattern.escape_ascii(), text.escape_ascii());
        assert_eq!(glob.matches(text), expected, "{pattern} and {shown}");
    }

    #[test]
    fn patterns_match_as_those_of_a_shell() {
        for (pattern, text, expected) in [
            ("*01*", "file.mdtest.0000223", false),
            ("*01*", "file.mdtest.0001123", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*", ".hidden", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "ü", true),
            ("??", "ü", false),
            ("[ä-ü]x", "öx", true),
            ("[!a-c]", "d", true),
            ("[^a-c]", "b", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("[[:digit:]]*", "7up", true),
            ("[[:digit:]]*", "up", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("a/*", "a/b/c", true),
            ("A", "a", false),
        ] {
            check(pattern.as_bytes(), text.as_bytes(), expected);
        }
        check(b"?\xff", b"\xfe\xff", true);
        check(b"\xff", b"\xfe", false);
    }

    #[test]
    fn letters_of_both_cases() {
        let glob = |pattern: &'static str| Glob { pattern: Bytes::from(pattern), ignores_case: true };
        assert!(glob("ReadMe*").matches(b"README.md"));
        assert!(glob("[a-c][[:upper:]]").matches(b"Bx"));
        assert!(!glob("[a-c]").matches(b"D"));
    }

    #[test]
    fn many_stars_end_soon() {
        check("*a".repeat(200).as_bytes(), "a".repeat(255).as_bytes(), true);
        check(("*a".repeat(200) + "b").as_bytes(), "a".repeat(255).as_bytes(), false);
    }
}
