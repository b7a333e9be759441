//! What is allowed for now.

use std::collections::BTreeMap;
use std::fmt;

use super::{Error, Finding};

/// Allowed measures by rule and path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ratchet {
    allowed: BTreeMap<(String, String), usize>,
}

impl Ratchet {
    /// Reads lines of `rule path measure`; empty lines and those that begin with `#` mean nothing.
    pub(super) fn parse(text: &str) -> Result<Ratchet, Error> {
        let mut ratchet = Ratchet::default();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [rule, path, measure] = words[..] else { return Err(Error::Ratchet { line: index + 1 }) };
            let measure = measure.parse().map_err(|_| Error::Ratchet { line: index + 1 })?;
            ratchet.allowed.insert((rule.to_owned(), path.to_owned()), measure);
        }
        Ok(ratchet)
    }

    /// Lowers every measure to what `findings` have left of it.
    pub(super) fn shrink(&mut self, findings: &[Finding]) {
        let found = measures(findings);
        self.allowed.retain(|key, allowed| {
            *allowed = (*allowed).min(found.get(key).copied().unwrap_or(0));
            *allowed > 0
        });
    }

    /// The findings that are not allowed, and the lines that allow too much. All places of a rule in a file are
    /// shown when they are too many together, because nobody can say which of them is the new one.
    #[expect(clippy::type_complexity)]
    pub(super) fn judge(
        &self,
        findings: Vec<Finding>,
    ) -> (Vec<Finding>, Vec<(String, String, usize, usize)>) {
        let found = measures(&findings);
        let mut loose = Vec::new();
        for (key, &allowed) in &self.allowed {
            let left = found.get(key).copied().unwrap_or(0);
            if left < allowed {
                loose.push((key.0.clone(), key.1.clone(), allowed, left));
            }
        }
        let is_new = |finding: &Finding| {
            let key = key(finding);
            found.get(&key) > self.allowed.get(&key)
        };
        (findings.into_iter().filter(is_new).collect(), loose)
    }
}

impl fmt::Display for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((rule, path), measure) in &self.allowed {
            writeln!(f, "{rule} {path} {measure}")?;
        }
        Ok(())
    }
}

fn key(finding: &Finding) -> (String, String) {
    (finding.rule.to_owned(), finding.path.clone())
}

fn measures(findings: &[Finding]) -> BTreeMap<(String, String), usize> {
    let mut sums = BTreeMap::new();
    for finding in findings {
        *sums.entry(key(finding)).or_default() += finding.measure;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str, measure: usize) -> Finding {
        Finding { rule: "r", path: path.to_owned(), line: 1, measure, text: String::new() }
    }

    fn check(ratchet: &str, measures: &[usize], new: usize, loose: usize) {
        let ratchet = Ratchet::parse(ratchet).expect("it is well formed");
        let findings = measures.iter().map(|&measure| finding("f", measure)).collect();
        let (findings, lines) = ratchet.judge(findings);
        assert_eq!((findings.len(), lines.len()), (new, loose), "{ratchet} {measures:?}");
    }

    #[test]
    fn measures_only_fall() {
        check("", &[], 0, 0);
        check("", &[1], 1, 0);
        check("r f 2\n", &[1, 1], 0, 0);
        check("r f 2\n", &[1, 1, 1], 3, 0);
        check("r f 2\n", &[1], 0, 1);
        check("r f 2\n", &[], 0, 1);
        check("# a comment\n\nr g 2\nq f 1\n", &[1], 1, 2);
    }

    #[test]
    fn shrinking_never_grows() {
        let mut ratchet = Ratchet::parse("r f 5\nr g 5\nr h 1\n").expect("it is well formed");
        ratchet.shrink(&[finding("f", 3), finding("h", 4), finding("new", 1)]);
        assert_eq!(ratchet.to_string(), "r f 3\nr h 1\n");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["r f\n", "r f x\n", "r f 1 2\n", "r f -1\n"] {
            assert!(Ratchet::parse(text).is_err(), "{text}");
        }
    }
}
