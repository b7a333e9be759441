//! The rules.

use super::Finding;
use super::source::{Source, closing, words};

/// Most lines of a file.
const FILE_LINES_MAX: usize = 1000;
/// Most lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Calls and types that only the edges may use.
const OUTSIDE: &[&str] =
    &["Instant", "SystemTime", "std::thread", "std::net", "std::fs", "std::process", "std::env"];
/// The edges: the driver of this machine, engines for the kernel's file system interface and what is around them, keys of the
/// program's user, the programs.
const EDGES: &[&str] = &[
    "crates/rt/src/os/",
    "crates/fuse/src/engine/",
    "crates/fuse/src/abort.rs",
    "crates/fuse/src/helper.rs",
    "crates/fuse/src/proc.rs",
    "crates/fuse/src/socket.rs",
    "crates/fuse/src/threads.rs",
    "crates/fuse/examples/",
    "crates/mounting/src/keys.rs",
    "crates/weft/",
    "crates/xtask/",
    "crates/sim/src/main.rs",
];
/// Parts of `std::net` that are only names.
const NAMES_OF_NET: &[&str] = &["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "AddrParseError"];
/// Macros that panic when nobody takes what is printed, and the program that has its own, in `out.rs`.
const PRINTING: (&str, &[&str]) =
    ("crates/weft/src/", &["print!", "println!", "eprint!", "eprintln!", "dbg!"]);
/// Words of work that was left for later.
const LEFTOVERS: &[&str] = &["TODO", "FIXME", "XXX", "todo!", "unimplemented!"];

/// All that is wrong in `source`.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |rule, at: usize, measure, text| {
        let (path, line) = (source.path.clone(), source.line(at));
        findings.push(Finding { rule, path, line, measure, text });
    };
    lengths(source, &mut add);
    outside(source, &mut add);
    leftovers(source, &mut add);
    calls(source, &mut add);
    printing(source, &mut add);
    docs(source, &mut add);
    findings
}

/// Takes the rule, the place, the measure and the text of a finding.
type Add<'a> = dyn FnMut(&'static str, usize, usize, String) + 'a;

fn lengths(source: &Source, add: &mut Add<'_>) {
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let text = format!("the file has {lines} lines, {FILE_LINES_MAX} are allowed");
        add("file-lines", 0, lines - FILE_LINES_MAX, text);
    }
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX {
            let text = format!(
                "the function `{}` has {} lines, {FUNCTION_LINES_MAX} are allowed",
                function.name, function.lines
            );
            add("function-lines", function.at, function.lines - FUNCTION_LINES_MAX, text);
        }
    }
}

fn outside(source: &Source, add: &mut Add<'_>) {
    if !EDGES.iter().any(|edge| source.path.starts_with(edge)) {
        for &call in OUTSIDE {
            for at in words(&source.code, call).filter(|&at| !source.is_test(at)) {
                if call != "std::net" || !names_only(&source.code[at + call.len()..]) {
                    add("outside", at, 1, format!("`{call}` is the business of crates/rt"));
                }
            }
        }
    }
    let may_use_tokio = ["crates/rt/", "crates/xtask/"].iter().any(|path| source.path.starts_with(path));
    if !may_use_tokio {
        for at in words(&source.code, "tokio::") {
            add("tokio", at, 1, "only crates/rt knows tokio; use `rt`".to_owned());
        }
    }
}

/// Whether what follows `std::net` is only names of addresses.
fn names_only(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix("::") else { return false };
    let is_name = |part: &str| NAMES_OF_NET.contains(&part);
    match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().is_some_and(|list| list.split(',').map(str::trim).all(is_name)),
        None => rest.split(|c: char| !c.is_alphanumeric()).next().is_some_and(is_name),
    }
}

fn leftovers(source: &Source, add: &mut Add<'_>) {
    // This crate has to name what it looks for.
    if source.path.starts_with("crates/xtask/") {
        return;
    }
    for &word in LEFTOVERS {
        for at in words(&source.text, word) {
            add("leftover", at, 1, format!("`{word}` is left"));
        }
    }
}

fn calls(source: &Source, add: &mut Add<'_>) {
    for (at, _) in source.code.match_indices(".unwrap()") {
        add(
            "unwrap",
            at,
            1,
            "`unwrap` does not say why it holds; use `expect`, or return an error".to_owned(),
        );
    }
    for (at, _) in source.code.match_indices("#[ignore") {
        add("ignore", at, 1, "a test that does not run is no test".to_owned());
    }
    for at in words(&source.code, "matches!") {
        let starts = source.code[..at].trim_end().ends_with([';', '{', '}']);
        let open = at + "matches!".len();
        if starts
            && source.code[closing(&source.code, open)..]
                .trim_start_matches(')')
                .trim_start()
                .starts_with(';')
        {
            add("matches", at, 1, "`matches!` without `assert!` does nothing".to_owned());
        }
    }
}

fn printing(source: &Source, add: &mut Add<'_>) {
    let (program, macros) = PRINTING;
    if !source.path.starts_with(program) {
        return;
    }
    for &call in macros {
        for at in words(&source.code, call).filter(|&at| !source.is_test(at)) {
            add("printing", at, 1, format!("`{call}` panics when nobody takes it; use `out!` or `err!`"));
        }
    }
}

fn docs(source: &Source, add: &mut Add<'_>) {
    let is_module = source.path.contains("/src/") && !source.is_test(0);
    if is_module && !source.text.starts_with("//! ") {
        add("module-doc", 0, 1, "the file does not begin by saying what it is for".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rules(path: &str, text: &str, expected: &[(&str, usize)]) {
        let text = format!("//! Doc.\n{text}");
        let findings = check(&Source::new(path.to_owned(), text.clone()));
        let found: Vec<_> = findings.iter().map(|finding| (finding.rule, finding.line)).collect();
        assert_eq!(found, expected, "{path}\n{text}");
    }

    const PATH: &str = "crates/a/src/b.rs";

    #[test]
    fn long_things() {
        check_rules(PATH, &"x\n".repeat(999), &[]);
        check_rules(PATH, &"x\n".repeat(1000), &[("file-lines", 1)]);
        check_rules(PATH, &format!("fn f() {{\n{}}}\n", "x;\n".repeat(68)), &[]);
        check_rules(PATH, &format!("\nfn f() {{\n{}}}\n", "x;\n".repeat(69)), &[("function-lines", 3)]);
    }

    #[test]
    fn things_of_the_outside() {
        check_rules(PATH, "use std::time::Instant;\n", &[("outside", 2)]);
        check_rules(PATH, "// Instant, tokio::spawn\nlet x = \"std::fs\"; Instants;\n", &[]);
        check_rules(PATH, "std::fs::read(p)\n", &[("outside", 2)]);
        check_rules("crates/weft/src/b.rs", "std::fs::read(p)\n", &[]);
        check_rules("crates/rt/src/os/b.rs", "use std::net::TcpStream;\n", &[]);
        check_rules("crates/rt/src/sim/b.rs", "use std::net::TcpStream;\n", &[("outside", 2)]);
        check_rules(PATH, "#[cfg(test)]\nmod tests {\n use std::thread;\n}\n", &[]);
        check_rules("crates/a/tests/b.rs", "use std::thread;\n", &[]);
        check_rules(PATH, "tokio::spawn(x)\n", &[("tokio", 2)]);
        check_rules("crates/fuse/src/b.rs", "tokio::spawn(x)\n", &[("tokio", 2)]);
        check_rules("crates/rt/src/sync.rs", "pub use tokio::sync::Notify;\n", &[]);
    }

    #[test]
    fn addresses_are_only_names() {
        check_rules(PATH, "use std::net::IpAddr;\nuse std::net::{Ipv4Addr, SocketAddr};\n", &[]);
        check_rules(PATH, "let x: std::net::SocketAddr = y;\n", &[]);
        check_rules(PATH, "use std::net::{IpAddr, TcpStream};\n", &[("outside", 2)]);
        check_rules(PATH, "use std::net;\n", &[("outside", 2)]);
    }

    #[test]
    fn leftovers_in_comments_too() {
        check_rules(PATH, "// TODO: more\n", &[("leftover", 2)]);
        check_rules(PATH, "fn f() { todo!() }\n// FIXME\n", &[("leftover", 3), ("leftover", 2)]);
        check_rules(PATH, "// TODOS\n", &[]);
    }

    #[test]
    fn calls_that_say_nothing() {
        check_rules(PATH, "x.unwrap();\nx.unwrap_or(1);\n// x.unwrap()\n", &[("unwrap", 2)]);
        check_rules(
            PATH,
            "#[ignore]\nfn f() {}\n#[ignore = \"slow\"]\nfn g() {}\n",
            &[("ignore", 2), ("ignore", 4)],
        );
        check_rules(PATH, "f();\nmatches!(x, Some(_));\n", &[("matches", 3)]);
        check_rules(PATH, "assert!(matches!(x, A));\nlet y = matches!(x, A);\n{ matches!(x, A) }\n", &[]);
    }

    #[test]
    fn the_program_prints_with_its_own_macros() {
        let text = "fn f() { println!(); eprintln!(); out!(); err!(); }\nfn g() { print!() }\n";
        check_rules("crates/weft/src/a.rs", text, &[("printing", 3), ("printing", 2), ("printing", 2)]);
        check_rules("crates/weft/src/a.rs", "#[cfg(test)]\nmod tests {\n println!();\n}\n", &[]);
        check_rules("crates/sim/src/main.rs", text, &[]);
    }

    #[test]
    fn files_say_what_they_are_for() {
        let rules = |path: &str| check(&Source::new(path.to_owned(), "fn f() {}\n".to_owned())).len();
        assert_eq!(rules(PATH), 1);
        assert_eq!(rules("crates/a/tests/b.rs"), 0);
        assert_eq!(rules("crates/a/src/tests.rs"), 0);
    }
}
