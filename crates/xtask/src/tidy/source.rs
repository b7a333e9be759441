//! A source file, with what is not code taken out.

use std::ops::Range;

/// A file to check.
pub(super) struct Source {
    /// Below the root, with slashes.
    pub(super) path: String,
    /// All of it.
    pub(super) text: String,
    /// The same length and lines, with blanks where comments and literals were.
    pub(super) code: String,
    /// Where modules of tests are, in bytes.
    tests: Vec<Range<usize>>,
}

/// A function: where its `fn` is, in bytes, and the lines from there to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) lines: usize,
}

impl Source {
    pub(super) fn new(path: String, text: String) -> Source {
        let code = code_of(&text);
        let mut tests = Vec::new();
        for (at, _) in code.match_indices("#[cfg(test)]") {
            let item = code[at + "#[cfg(test)]".len()..].trim_start();
            let item = item.strip_prefix("pub ").or(item.strip_prefix("pub(crate) ")).unwrap_or(item);
            if item.starts_with("mod ")
                && let Some(open) = body_of(&code, at + "#[cfg(test)]".len())
            {
                tests.push(at..closing(&code, open));
            }
        }
        Source { path, text, code, tests }
    }

    /// Whether the byte at `at` belongs to tests.
    pub(super) fn is_test(&self, at: usize) -> bool {
        let by_name =
            |part: &str| matches!(part.trim_end_matches(".rs"), "tests" | "testing" | "benches" | "examples");
        self.path.split('/').any(by_name) || self.tests.iter().any(|range| range.contains(&at))
    }

    /// Line of the byte at `at`, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// All functions that have a body, those within others too.
    pub(super) fn functions(&self) -> Vec<Function<'_>> {
        let mut functions = Vec::new();
        for at in words(&self.code, "fn") {
            let rest = self.code[at + 2..].trim_start();
            let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
            // A type has a parenthesis here, a declaration ends without a body.
            if !name.is_empty()
                && let Some(open) = body_of(&self.code, at)
            {
                let end = closing(&self.code, open);
                functions.push(Function { name, at, lines: self.line(end) - self.line(at) + 1 });
            }
        }
        functions
    }
}

/// Where `word` stands as a word of its own.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let goes_on = word.ends_with(is_word) && after.is_some_and(is_word);
        !goes_on && !before.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The brace that opens the body of the item at `at`; `None` if a semicolon ends it before.
fn body_of(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(offset),
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`, or the end of the file.
pub(super) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return offset;
        }
    }
    code.len()
}

/// `text` with blanks for comments and for what is in literals.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n"),
            b'/' if bytes[at..].starts_with(b"/*") => end_of_comment(bytes, at),
            b'"' => end_of_string(bytes, at),
            b'r' if at == 0 || !is_word(char::from(bytes[at - 1])) || bytes[at - 1] == b'b' => {
                end_of_raw_string(bytes, at).unwrap_or(at)
            }
            b'\'' => end_of_char(text, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // A literal or comment begins and ends between characters, so what is left is whole.
    String::from_utf8_lossy(&code).into_owned()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    (from..bytes.len()).find(|&at| bytes[at..].starts_with(what)).unwrap_or(bytes.len())
}

fn end_of_comment(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_raw_string(bytes: &[u8], from: usize) -> Option<usize> {
    let hashes = bytes[from + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = from + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
    Some((find(bytes, open + 1, &close) + close.len()).min(bytes.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn end_of_char(text: &str, from: usize) -> Option<usize> {
    let mut chars = text[from + 1..].char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
    }
    // Escapes may be long, a plain character is one.
    let (offset, _) = if first == '\\' {
        chars.find(|&(_, c)| c == '\'')?
    } else {
        chars.next().filter(|&(_, c)| c == '\'')?
    };
    Some(from + 1 + offset + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_code(text: &str, code: &str) {
        assert_eq!(code_of(text).split_whitespace().collect::<Vec<_>>().join(" "), code, "{text}");
        assert_eq!(code_of(text).lines().count(), text.lines().count());
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        check_code("a // b { \"\nc", "a c");
        check_code("a /* { /* } */ \" */ b", "a b");
        check_code("a(\"} \\\" {\", 'x', '\\'', '{', b'}', '\\u{7b}')", "a( , , , , b , )");
        check_code("r#\"a \" {\"# br\"{\" b\"{\" for_r(\"x\")", "b b for_r( )");
        check_code("fn f<'a>(x: &'a str) { 'outer: loop {} }", "fn f<'a>(x: &'a str) { 'outer: loop {} }");
        check_code("é 'é' \"é\" // é\nü", "é ü");
    }

    fn check_functions(text: &str, expected: &[(&str, usize)]) {
        let source = Source::new("crates/a/src/b.rs".to_owned(), text.to_owned());
        let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn functions_are_measured() {
        check_functions("fn a() {}\n", &[("a", 1)]);
        check_functions("trait T {\n fn a(&self) -> [u8; 4];\n fn b() {\n }\n}\n", &[("b", 2)]);
        check_functions(
            "pub async fn a(\n x: fn(u8),\n) -> [u8; 2]\nwhere T: X,\n{\n if x {\n }\n}\n",
            &[("a", 8)],
        );
        check_functions("fn a() {\n fn b() {\n }\n \"}\";\n}\n", &[("a", 5), ("b", 2)]);
        check_functions("// fn a() {}\nlet fnord = x_fn (y);\n", &[]);
    }

    #[test]
    fn tests_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse x;\nfn d() {}\n";
        let source = Source::new("crates/a/src/b.rs".to_owned(), text.to_owned());
        let in_tests: Vec<_> = source.functions().iter().map(|f| source.is_test(f.at)).collect();
        assert_eq!(in_tests, [false, true, false, false]);
        for (path, is_test) in [("a/tests/b.rs", true), ("a/src/tests.rs", true), ("a/src/test.rs", false)] {
            assert_eq!(Source::new(path.to_owned(), String::new()).is_test(0), is_test, "{path}");
        }
    }
}
