//! Tidy: limits on length, words and calls that do not belong, and documentation that is missing.
//!
//! What cannot be mended at once stands in a ratchet file with its measure. A measure may only fall; a line that
//! allows more than there is, is an error as well.

mod features;
mod ratchet;
mod rules;
mod source;
mod tour;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ratchet::Ratchet;
use source::Source;

/// The file with what is allowed for now, below the root.
const RATCHET: &str = "crates/xtask/tidy-ratchet.txt";

/// Why tidy could not say anything.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line of the ratchet file makes no sense.
    #[error("{RATCHET}:{line}: expected `rule path measure`")]
    Ratchet {
        /// Which one.
        line: usize,
    },
}

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// The file, below the root.
    pub path: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// How far the rule is broken: lines beyond a limit, or 1.
    pub measure: usize,
    /// What is wrong, for people.
    pub text: String,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// Places that break a rule and that the ratchet does not allow.
    pub findings: Vec<Finding>,
    /// Lines of the ratchet that allow more than there is: rule, path, allowed, found.
    pub loose: Vec<(String, String, usize, usize)>,
    /// Files looked at.
    pub files: usize,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.loose.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { rule, path, line, text, .. } in &self.findings {
            writeln!(f, "{path}:{line}: {text} [{rule}]")?;
        }
        for (rule, path, allowed, found) in &self.loose {
            writeln!(f, "{RATCHET}: {rule} {path} allows {allowed}, but {found} is left; run tidy --shrink")?;
        }
        let wrong = self.findings.len() + self.loose.len();
        writeln!(f, "tidy: {} files, {wrong} things to mend", self.files)
    }
}

/// Checks the repository at `root`. With `shrink`, the ratchet is lowered first to what is left.
pub fn run(root: &Path, shrink: bool) -> Result<Report, Error> {
    let sources = sources(root)?;
    let mut findings: Vec<Finding> = sources.iter().flat_map(rules::check).collect();
    findings.extend(manifests(root)?.iter().flat_map(|(path, text)| features::check(path, text)));
    if root.join(tour::PATH).exists() {
        findings.extend(tour::check(&read(&root.join(tour::PATH))?, &sources));
    }
    let path = root.join(RATCHET);
    let mut ratchet = Ratchet::parse(&read(&path)?)?;
    if shrink {
        ratchet.shrink(&findings);
        fs::write(&path, ratchet.to_string()).map_err(|error| Error::File { path, error })?;
    }
    let (findings, loose) = ratchet.judge(findings);
    Ok(Report { findings, loose, files: sources.len() })
}

/// All Rust files of all crates, in order of their names.
fn sources(root: &Path) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::File { path: folder.clone(), error };
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                // A folder of that name in the source is no place for what is built.
                let is_built = path.file_name().is_some_and(|name| name == "target")
                    && folder.parent() == Some(&root.join("crates"));
                if !is_built {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                sources.push(Source::new(below, read(&path)?));
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The manifest of the workspace and those of its crates, with their paths below the root.
fn manifests(root: &Path) -> Result<Vec<(String, String)>, Error> {
    let crates = root.join("crates");
    let failed = |error| Error::File { path: crates.clone(), error };
    let mut paths = vec!["Cargo.toml".to_owned()];
    for entry in fs::read_dir(&crates).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        paths.push(format!("crates/{}/Cargo.toml", name.to_string_lossy()));
    }
    paths.sort();
    paths.retain(|path| root.join(path).exists());
    paths.into_iter().map(|path| read(&root.join(&path)).map(|text| (path, text))).collect()
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        // Where it is run: what was built may have been brought here from another place.
        let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
        let root = Path::new(&here).join("../..");
        let report = run(&root, false).expect("the repository can be read");
        assert!(report.files > 50, "the files were found");
        assert!(report.is_clean(), "\n{report}");
    }

    #[test]
    fn a_run_finds_reports_and_shrinks() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let put = |path: &str, text: &str| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().expect("it is below the root")).expect("folders can be made");
            fs::write(path, text).expect("files can be written");
        };
        put("crates/a/src/lib.rs", "//! A.\nfn f() { x.unwrap(); }\n");
        put("crates/a/target/skipped.rs", "");
        put("crates/a/src/target/seen.rs", "//! Seen.\n");
        put(RATCHET, "");
        let report = run(temp.path(), false).expect("it runs");
        assert_eq!((report.findings.len(), report.files), (1, 2));
        assert!(report.to_string().starts_with("crates/a/src/lib.rs:2: "));

        put(RATCHET, "unwrap crates/a/src/lib.rs 3\n");
        assert!(!run(temp.path(), false).expect("it runs").is_clean(), "the ratchet is loose");
        assert!(run(temp.path(), true).expect("it runs").is_clean());
        assert_eq!(read(&temp.path().join(RATCHET)).expect("it is there"), "unwrap crates/a/src/lib.rs 1\n");
    }
}
