//! Which crate may ask for the feature that leaves mechanisms out: the simulator, and tests. So the programs that ship do not have it.

use super::Finding;

/// The feature.
const FEATURE: &str = "experiments";
/// The crate that is built with it, and its name for those who would depend on it.
const SIMULATOR: (&str, &str) = ("crates/sim/Cargo.toml", "weft-sim");

/// What is wrong in the manifest at `path`.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.starts_with('[') {
            section = line;
        }
        let mut add = |text: &str| {
            let (path, text) = (path.to_owned(), text.to_owned());
            findings.push(Finding { rule: "features", path, line: at + 1, measure: 1, text });
        };
        if path == SIMULATOR.0 || section.starts_with("[dev-dependencies") {
            continue;
        }
        let defines = section == "[features]" && line.starts_with(FEATURE);
        if line.contains(FEATURE) && !defines {
            add("only the simulator and tests may leave mechanisms out");
        }
        if line.contains(SIMULATOR.1) {
            add("nothing depends on the simulator");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lines(path: &str, text: &str, lines: &[usize]) {
        let found: Vec<usize> = check(path, text).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{path}: {text}");
    }

    #[test]
    fn only_the_simulator_and_tests_have_it() {
        const DEFINES: &str = "[features]\nexperiments = [\"proto/experiments\"]\n";
        const ASKS: &str = "rpc = { workspace = true, features = [\"experiments\"] }\n";
        check_lines("crates/rpc/Cargo.toml", DEFINES, &[]);
        check_lines("crates/sim/Cargo.toml", &format!("[dependencies]\n{ASKS}"), &[]);
        check_lines("crates/weft/Cargo.toml", &format!("[dependencies]\n{ASKS}"), &[2]);
        check_lines("crates/weft/Cargo.toml", "[dependencies.rpc]\nfeatures = [\"experiments\"]\n", &[2]);
        check_lines("Cargo.toml", &format!("[workspace.dependencies]\n{ASKS}"), &[2]);
        check_lines("crates/server/Cargo.toml", &format!("[dev-dependencies]\n{ASKS}"), &[]);
        check_lines("crates/rpc/Cargo.toml", "[features]\ndefault = [\"experiments\"]\n", &[2]);
        check_lines("crates/weft/Cargo.toml", "[features]\nmore = [\"rpc/experiments\"]\n", &[2]);
        check_lines("crates/weft/Cargo.toml", "[dependencies]\nx = { package = \"weft-sim\" }\n", &[2]);
    }
}
