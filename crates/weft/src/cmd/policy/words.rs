//! Words of one line, split as a shell splits them, and nothing else of a shell: no variables, no patterns, no commands.

use std::ffi::OsString;

/// What is open at a place of the line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// The words of `line`.
///
/// # Errors
/// A sentence, if a quote is not closed or nothing stands behind a backslash.
pub fn split(line: &str) -> Result<Vec<OsString>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, Quote::None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Quote::None, ' ' | '\t' | '\n' | '\r') => words.extend(word.take().map(OsString::from)),
            (Quote::None, '\'') => (quote, word) = (Quote::Single, Some(word.unwrap_or_default())),
            (Quote::None, '"') => (quote, word) = (Quote::Double, Some(word.unwrap_or_default())),
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::None | Quote::Double, '\\') => {
                let next = letters.next().ok_or("nothing stands behind the last backslash")?;
                let word = word.get_or_insert_default();
                // Between double quotes a backslash is one, unless what it stands before would have a meaning.
                if quote == Quote::Double && !matches!(next, '"' | '\\' | '$' | '`') {
                    word.push('\\');
                }
                word.push(next);
            }
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    match quote {
        Quote::None => words.extend(word.map(OsString::from)),
        Quote::Single => return Err("a ' is not closed".to_owned()),
        Quote::Double => return Err("a \" is not closed".to_owned()),
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<&[&str], &str>) {
        let expected = expected.map(|words| words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(split(line), expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn lines_are_split_as_a_shell_splits_them() {
        check("", Ok(&[]));
        check("  -name a\t! -user\n root ", Ok(&["-name", "a", "!", "-user", "root"]));
        check("-name '*.o b' -o \"a 'b\"", Ok(&["-name", "*.o b", "-o", "a 'b"]));
        check("\\( -name a\\ b \\)", Ok(&["(", "-name", "a b", ")"]));
        check("a'b'\"c\"d '' \"\"", Ok(&["abcd", "", ""]));
        check(r#"'\' "\a\"\\" \"#, Err("nothing stands behind the last backslash"));
        check(r#"'\' "\a\"\\""#, Ok(&["\\", "\\a\"\\"]));
        check("$HOME `a` *", Ok(&["$HOME", "`a`", "*"]));
        check("it's", Err("a ' is not closed"));
        check("say \"so", Err("a \" is not closed"));
    }
}
