use fuse::control::Hint;

use super::*;

const WHOLE: &str = r#"
[[rule]]
name = "cold to disk"
below = "scratch"
files = "-pool flash -amin +60 ! -user root"
action = "migrate"
to = "-p disk -c 1"
order = "atime"
when = { pool = "flash", above = "85%", until = "70.5%" }
every = "1h"

[[rule]]
name = "old"
files = "-name '*.tmp file' -mtime +30"
action = "purge"
[rule.limits]
at_once = 2

[limits]
bytes_per_second = "200M"
files_per_second = 100
"#;

#[test]
fn all_that_a_file_can_say() {
    let policy = parse(WHOLE).expect("a policy");
    let [cold, old] = &policy.rules[..] else { panic!("two rules") };
    assert_eq!((cold.name.as_str(), cold.below.clone()), ("cold to disk", Some("scratch".into())));
    let to = Box::new(Hint { pool: "disk".to_owned(), stripe_count: 1, ..Hint::default() });
    assert_eq!(cold.action, Action::Migrate { to, options: "-p disk -c 1".to_owned() });
    assert_eq!(cold.order, Some(Order::Accessed));
    let of = Measured::Pool("flash".to_owned());
    assert_eq!(cold.when, Some(When { of, above: 850, until: 705 }));
    assert_eq!(cold.every, Some(Duration::from_secs(3600)));
    let limits = Limits { bytes_per_second: Some(200 << 20), files_per_second: Some(100), at_once: 4 };
    assert_eq!((cold.limits, old.limits), (limits, Limits { at_once: 2, ..limits }));
    assert_eq!(old.files, "-name '*.tmp file' -mtime +30");
    assert_eq!((&old.action, old.order, &old.when, old.every), (&Action::Purge, None, &None, None));
}

/// A rule with other lines.
fn check(lines: &str, line: usize, what: &str) {
    let text = format!("# A comment.\n[[rule]]\nname = \"a\"\n{lines}\n");
    assert_eq!(parse(&text), Err(Wrong { line, what: what.to_owned() }), "{text}");
}

const PURGE: &str = "action = \"purge\"\nfiles = \"-name a\"\n";

#[test]
fn what_is_wrong_with_an_action_is_said_with_its_line() {
    let purge = PURGE;
    check("action = \"purge\"", 2, "missing field `files`");
    check(
        &format!("{purge}fils = 1"),
        6,
        "unknown field `fils`, expected one of `name`, `below`, `files`, `action`, `to`, `order`, `when`, `every`, `limits`",
    );
    check("files = \"-name a\"\naction = \"archive\"\nto = \"2\"", 6, "to is for migrate");
    check(
        "files = \"-name a\"\naction = \"move\"",
        5,
        "\"move\" is no action; there are migrate, archive, release and purge",
    );
    check(
        "files = \"-name a\"\naction = \"migrate\"",
        5,
        "migrate needs a line such as to = \"-p disk -c 1\"",
    );
    let why = "\"a/../..\" has to be a directory below that of the command line, without .. in it";
    check(&format!("{purge}below = \"a/../..\""), 6, why);
    check(&format!("{purge}to = \"-p disk\""), 6, "to is for migrate; a purge moves nothing");
    let migrate = "files = \"-name a\"\naction = \"migrate\"\n";
    check(
        &format!("{migrate}to = \"-c 0\""),
        6,
        "to says nothing; write options of lfs migrate, for example -p disk",
    );
    check(&format!("{migrate}to = \"-p disk file\""), 6, "to: unexpected argument 'file' found");
    check(
        &format!("{migrate}to = \"-o 1,1\""),
        6,
        "to: migrate: an OST is in the list twice; use -C for that",
    );
}

#[test]
fn what_is_wrong_with_an_expression_is_said_with_its_line() {
    check("action = \"purge\"\nfiles = \"-nam a\"", 5, "files: unknown test or action '-nam'");
    check(
        "action = \"purge\"\nfiles = \"-name a -print0\"",
        5,
        "files: it has an action of lfs find, and only tests are wanted",
    );
    check("action = \"purge\"\nfiles = \"/mnt -name a\"", 5, "files: '/mnt' is no test of lfs find");
    check("action = \"purge\"\nfiles = \"-name 'a\"", 5, "in \"-name 'a\" a ' is not closed");
    check("action = \"purge\"\nfiles = \"  \"", 5, "files names no test; write -true if all files are meant");
    check(
        "action = \"purge\"\nfiles = \"-type d\"",
        5,
        "files: a directory is purged only if it is empty: write -type d -empty",
    );
}

#[test]
fn what_is_wrong_with_numbers_is_said_with_its_line() {
    let purge = PURGE;
    check(
        &format!("{purge}order = \"ctime\""),
        6,
        "\"ctime\" is no order; there are atime and mtime (oldest first) and size (largest first)",
    );
    check(
        &format!("{purge}every = \"1 week\""),
        6,
        "\"1 week\" is no duration; write for example 30s, 10m, 1h or 2d",
    );
    check(
        &format!("{purge}every = \"0s\""),
        6,
        "\"0s\" is no duration; write for example 30s, 10m, 1h or 2d",
    );
    check(
        &format!("{purge}when = {{ above = \"85\", until = \"70%\" }}"),
        6,
        "\"85\" is no percentage; write for example 85%",
    );
    check(
        &format!("{purge}when = {{ above = \"101%\", until = \"70%\" }}"),
        6,
        "\"101%\" is no percentage; write for example 85%",
    );
    check(
        &format!("{purge}when = {{ above = \"70%\", until = \"70%\" }}"),
        6,
        "until has to be less than above",
    );
    check(
        &format!("{purge}when = {{ pool = \"a\", ost = 1, above = \"80%\", until = \"70%\" }}"),
        6,
        "when measures a pool or an OST, and not both",
    );
    check(
        &format!("{purge}when = {{ ost = -1, above = \"80%\", until = \"70%\" }}"),
        6,
        "ost is the index of an OST",
    );
    check(
        &format!("{purge}[rule.limits]\nat_once = 17"),
        7,
        "at_once is 17, and has to be a number from 1 to 16",
    );
    check(
        &format!("{purge}[limits]\nfiles_per_second = 0"),
        7,
        "files_per_second is 0, and has to be a number from 1 to 1000000000",
    );
    check(&format!("{purge}[limits]\nbytes_per_second = \"0\""), 7, "0 is too small");
    check(&format!("{purge}[[rule]]\nname = \"a\"\n{purge}"), 7, "there are two rules with the name \"a\"");
    assert_eq!(parse("x = [").map_err(|wrong| wrong.line), Err(1));
    assert_eq!(
        parse("[limits]\n"),
        Err(Wrong { line: 1, what: "there is no rule; a rule begins with a line [[rule]]".to_owned() })
    );
}
