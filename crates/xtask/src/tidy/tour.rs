//! The stations of `docs/tour.md`: each names a file and a function in it, and both have to be there.

use super::Finding;
use super::source::Source;

/// The file with the tours, below the root.
pub(super) const PATH: &str = "docs/tour.md";
/// Most stations of one tour.
const STATIONS_MAX: usize = 10;

/// The file and the function of a station: "1. `client/fids.rs` `make`: ..." is `make` in `crates/client/src/fids.rs`.
fn station(line: &str) -> Option<(String, &str)> {
    let (number, rest) = line.split_once(". `")?;
    number.parse::<usize>().ok()?;
    let (file, rest) = rest.split_once("` `")?;
    let (function, _) = rest.split_once('`')?;
    let (name, below) = file.split_once('/')?;
    Some((format!("crates/{name}/src/{below}"), function))
}

/// Stations of `text` that are not in `sources`, and tours that are too long.
pub(super) fn check(text: &str, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut stations = 0;
    for (line, words) in (1..).zip(text.lines()) {
        let mut add = |text: String| {
            findings.push(Finding { rule: "tour", path: PATH.into(), line, measure: 1, text });
        };
        if words.starts_with('#') {
            stations = 0;
        }
        if !words.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        stations += 1;
        if stations > STATIONS_MAX {
            add(format!("a tour has {STATIONS_MAX} stations at most"));
        }
        let Some((path, function)) = station(words) else {
            add("a station begins with its file and its function".into());
            continue;
        };
        match sources.iter().find(|source| source.path == path) {
            None => add(format!("there is no file {path}")),
            Some(source) if source.functions().iter().any(|of| of.name == function) => {}
            Some(_) => add(format!("{path} has no function `{function}`")),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_have_to_be_there() {
        let source = Source::new("crates/a/src/b.rs".into(), "//! B.\nfn here() {\n}\n".into());
        let found = |text: &str| {
            let findings = check(text, std::slice::from_ref(&source));
            findings.into_iter().map(|finding| (finding.line, finding.text)).collect::<Vec<_>>()
        };
        assert_eq!(found("# A tour\n\n1. `a/b.rs` `here`: it is.\nNo station.\n"), []);
        let gone = found("1. `a/b.rs` `gone`: a function.\n2. `a/c.rs` `here`: a file.\n3. Nothing.\n");
        assert_eq!(gone.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3], "{gone:?}");
        let long = "1. `a/b.rs` `here`: once more.\n".repeat(11);
        assert_eq!(found(&long).len(), 1);
        assert_eq!(found(&format!("# One\n{long}").replacen("1.", "# Two\n1.", 6)).len(), 0);
    }
}
