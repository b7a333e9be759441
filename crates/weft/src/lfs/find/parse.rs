//! The line of `lfs find`: places, then an expression as find(1) has it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use proto::find::{
    COMPONENT_EXTENSION, COMPONENT_INIT, DEPTH_MAX, Expr, Glob, LAYOUT_COMPOSITE, LAYOUT_MDT,
    LAYOUT_OVERSTRIPED, LAYOUT_RAID0, LAYOUT_RELEASED, NODES_MAX, QUERY_BYTES_MAX, Test, TimeOf, kind_bit,
};
use proto::{FileKind, OstIndex, TargetId, TargetKind};

use super::numbers::{self, Age, Database, World};
use super::print::Format;
use super::{Action, Plan, Query};
use crate::failure::Failure;

type Parsed<T> = Result<T, Failure>;

/// How deep parentheses and negations nest at most.
const NESTING_MAX: usize = 100;

/// What the words mean.
pub fn plan(words: &[OsString], world: &mut impl World) -> Parsed<Plan> {
    let places = words.iter().position(begins_expression).unwrap_or(words.len());
    let mut starts = words[..places].to_vec();
    if starts.is_empty() {
        starts.push(".".into());
    }
    let mut parser = Parser {
        words: &words[places..],
        world,
        nesting: 0,
        depth_min: 0,
        depth_max: u32::MAX,
        action: None,
        tells_matched: false,
    };
    let query = if parser.words.is_empty() { Expr::All(vec![]) } else { parser.either()? };
    if !parser.words.is_empty() {
        return Err(wrong("there is a ')' without a '('"));
    }
    if query.encode().len() > QUERY_BYTES_MAX
        || size_of(&query, DEPTH_MAX).is_none_or(|size| size > NODES_MAX)
    {
        return Err(wrong("the expression is too long, or nests too deep, for one search"));
    }
    let silent = if parser.tells_matched { Action::Count } else { Action::Print(b'\n') };
    Ok(Plan {
        starts,
        query: Query { expr: query, depth_min: parser.depth_min, depth_max: parser.depth_max },
        action: parser.action.unwrap_or(silent),
        tells_matched: parser.tells_matched,
    })
}

/// Whether places end before this word.
pub fn begins_expression(word: &OsString) -> bool {
    word.as_bytes().starts_with(b"-") || word == "!" || word == "("
}

fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("lfs find: {what}"))
}

/// How many nodes it has; `None` if it nests deeper than that.
fn size_of(expr: &Expr, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    match expr {
        Expr::All(parts) | Expr::Any(parts) => {
            parts.iter().try_fold(1, |sum, part| Some(sum + size_of(part, depth)?))
        }
        Expr::Not(inner) => Some(1 + size_of(inner, depth)?),
        Expr::Test(_) => Some(1),
    }
}

struct Parser<'a, W> {
    words: &'a [OsString],
    world: &'a mut W,
    nesting: usize,
    depth_min: u32,
    depth_max: u32,
    action: Option<Action>,
    tells_matched: bool,
}

/// What a word gives.
enum Found {
    Test(Test),
    /// Something that is true of every file, or of none.
    Constant(bool),
    /// A limit or a way to tell, which is about the whole line.
    Nothing,
}

impl<W: World> Parser<'_, W> {
    fn peek(&self) -> Option<&OsStr> {
        self.words.first().map(OsString::as_os_str)
    }

    fn next(&mut self) -> Option<OsString> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first.clone())
    }

    fn is_next(&self, words: &[&str]) -> bool {
        self.peek().is_some_and(|next| words.iter().any(|word| next == *word))
    }

    /// Parts with `-o` between.
    fn either(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.both()?];
        while self.is_next(&["-o", "-or"]) {
            if self.action.is_some() {
                return Err(not_last());
            }
            self.next();
            parts.push(self.both()?);
            if self.action.is_some() {
                return Err(wrong(
                    "an action is for all that is found: put what is before it between '(' and ')'",
                ));
            }
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Expr::Any(parts) })
    }

    /// Parts with `-a` or nothing between.
    fn both(&mut self) -> Parsed<Expr> {
        let (mut parts, mut words) = (Vec::new(), 0);
        while self.peek().is_some() && !self.is_next(&[")", "-o", "-or"]) {
            if words > 0 && self.is_next(&["-a", "-and"]) {
                self.next();
            }
            words += 1;
            parts.extend(self.one()?);
        }
        if words == 0 {
            return Err(wrong("a test is missing"));
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Expr::All(parts) })
    }

    /// One test, or what stands in its place.
    fn one(&mut self) -> Parsed<Option<Expr>> {
        let Some(word) = self.next() else { return Err(wrong("a test is missing")) };
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(wrong("the expression nests too deep"));
        }
        let had_action = self.action.is_some();
        let expr = if word == "!" || word == "-not" {
            let inner = self.one()?.ok_or_else(|| wrong("a test is missing behind '!'"))?;
            Some(Expr::Not(Box::new(inner)))
        } else if word == "(" {
            let inner = self.either()?;
            if self.next().is_none_or(|word| word != ")") {
                return Err(wrong("a ')' is missing"));
            }
            Some(inner)
        } else {
            match self.word(&word)? {
                Found::Test(test) => Some(Expr::Test(test)),
                Found::Constant(true) => Some(Expr::All(vec![])),
                Found::Constant(false) => Some(Expr::Any(vec![])),
                Found::Nothing => None,
            }
        };
        self.nesting -= 1;
        if expr.is_some() && had_action {
            return Err(not_last());
        }
        if self.action.is_some() && self.nesting > 0 {
            return Err(wrong("an action cannot stand between '(' and ')' or behind '!'"));
        }
        Ok(expr)
    }

    fn word(&mut self, word: &OsStr) -> Parsed<Found> {
        let unknown = || wrong(format!("unknown test or action '{}'", word.display()));
        let text = word.to_str().ok_or_else(unknown)?;
        let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).ok_or_else(unknown)?;
        if let Some(found) = self.limit_or_action(name)? {
            return Ok(found);
        }
        let test = match self.test_of_name(name)? {
            Some(test) => Some(test),
            None => match self.test_of_inode(name)? {
                Some(test) => Some(test),
                None => self.test_of_layout(name)?,
            },
        };
        match (test, name) {
            (Some(test), _) => Ok(Found::Test(test)),
            (None, "true") => Ok(Found::Constant(true)),
            (None, "false") => Ok(Found::Constant(false)),
            (None, _) => Err(unknown()),
        }
    }

    fn limit_or_action(&mut self, name: &str) -> Parsed<Option<Found>> {
        let action = match name {
            "maxdepth" => {
                self.depth_max = self.number(name)?;
                return Ok(Some(Found::Nothing));
            }
            "mindepth" => {
                self.depth_min = self.number(name)?;
                return Ok(Some(Found::Nothing));
            }
            "matched" => {
                self.tells_matched = true;
                return Ok(Some(Found::Nothing));
            }
            "print" => Action::Print(b'\n'),
            "print0" | "0" => Action::Print(0),
            "printf" => {
                let format = self.value(name)?;
                Action::Format(Format::parse(format.as_bytes()).map_err(wrong)?)
            }
            _ => return Ok(None),
        };
        if self.action.replace(action).is_some() {
            return Err(wrong("there is more than one action"));
        }
        Ok(Some(Found::Nothing))
    }

    fn test_of_name(&mut self, name: &str) -> Parsed<Option<Test>> {
        Ok(Some(match name {
            "name" | "n" => Test::Name(self.glob(name)?),
            "iname" => Test::Name(self.glob_of_any_case(name)?),
            "path" | "wholename" => Test::Path(self.glob(name)?),
            "ipath" | "iwholename" => Test::Path(self.glob_of_any_case(name)?),
            "type" | "t" => Test::Kind(self.kinds(name)?),
            "empty" => Test::Empty,
            _ => return Ok(None),
        }))
    }

    fn test_of_inode(&mut self, name: &str) -> Parsed<Option<Test>> {
        use TimeOf::{Access, Change, Modification};
        Ok(Some(match name {
            "size" | "s" => Test::Size(self.valued(name, numbers::size)?),
            "links" => Test::Links(self.valued(name, numbers::count)?),
            "perm" => Test::Permissions(self.valued(name, numbers::permissions)?),
            "uid" => Test::Uid(self.valued(name, numbers::count)?),
            "gid" => Test::Gid(self.valued(name, numbers::count)?),
            "projid" => Test::Project(self.valued(name, numbers::count)?),
            "user" | "u" => Test::Uid(self.owner(name, Database::Users)?),
            "group" | "g" => Test::Gid(self.owner(name, Database::Groups)?),
            "newer" | "newermm" => self.newer(name, Modification)?,
            "anewer" | "neweram" => self.newer(name, Access)?,
            "cnewer" | "newercm" => self.newer(name, Change)?,
            "mtime" | "M" => self.age(name, Modification, Age::Days)?,
            "atime" | "A" => self.age(name, Access, Age::Days)?,
            "ctime" | "C" => self.age(name, Change, Age::Days)?,
            "mmin" => self.age(name, Modification, Age::Minutes)?,
            "amin" => self.age(name, Access, Age::Minutes)?,
            "cmin" => self.age(name, Change, Age::Minutes)?,
            _ => return Ok(None),
        }))
    }

    fn test_of_layout(&mut self, name: &str) -> Parsed<Option<Test>> {
        Ok(Some(match name {
            "ost" | "O" => {
                Test::Osts(self.indexes(name, TargetKind::Ost)?.into_iter().map(OstIndex).collect())
            }
            "mdt" | "mdt-index" | "m" => Test::Mdts(self.indexes(name, TargetKind::Mdt)?),
            "stripe-count" | "c" => Test::StripeCount(self.valued(name, numbers::count)?),
            "stripe-size" | "S" => Test::StripeSize(self.valued(name, numbers::bytes)?),
            "pool" => Test::Pool(Bytes::copy_from_slice(self.value(name)?.as_bytes())),
            "layout" | "L" => {
                let value = self.value(name)?;
                let bits = match value.to_str() {
                    Some("raid0") => LAYOUT_RAID0,
                    Some("overstriped") => LAYOUT_OVERSTRIPED,
                    Some("composite") => LAYOUT_COMPOSITE,
                    Some("mdt") => LAYOUT_MDT,
                    Some("released") => LAYOUT_RELEASED,
                    _ => return Err(not(&value, name)),
                };
                Test::Layout(bits)
            }
            _ => return self.test_of_component(name),
        }))
    }

    fn test_of_component(&mut self, name: &str) -> Parsed<Option<Test>> {
        Ok(Some(match name {
            "component-count" | "comp-count" => Test::ComponentCount(self.valued(name, numbers::count)?),
            "component-start" | "comp-start" => Test::ComponentStart(self.valued(name, numbers::bytes)?),
            "component-end" | "comp-end" | "E" => Test::ComponentEnd(self.valued(name, numbers::end)?),
            "extension-size" | "ext-size" | "z" => Test::ExtensionSize(self.valued(name, numbers::bytes)?),
            "component-flags" | "comp-flags" => {
                let (wanted, unwanted) = self.valued(name, component_flags)?;
                Test::ComponentFlags(wanted, unwanted)
            }
            _ => return Ok(None),
        }))
    }

    fn value(&mut self, name: &str) -> Parsed<OsString> {
        self.next().ok_or_else(|| wrong(format!("a value is missing behind '-{name}'")))
    }

    fn valued<T>(&mut self, name: &str, parse: impl FnOnce(&OsStr) -> Option<T>) -> Parsed<T> {
        let value = self.value(name)?;
        parse(&value).ok_or_else(|| not(&value, name))
    }

    fn number(&mut self, name: &str) -> Parsed<u32> {
        self.valued(name, |word| word.to_str()?.parse().ok())
    }

    fn glob(&mut self, name: &str) -> Parsed<Glob> {
        Ok(Glob { pattern: Bytes::copy_from_slice(self.value(name)?.as_bytes()), ignores_case: false })
    }

    fn glob_of_any_case(&mut self, name: &str) -> Parsed<Glob> {
        Ok(Glob { ignores_case: true, ..self.glob(name)? })
    }

    fn kinds(&mut self, name: &str) -> Parsed<u8> {
        let value = self.value(name)?;
        let mut kinds = 0;
        for letter in value.as_bytes().split(|byte| *byte == b',') {
            kinds |= kind_bit(match letter {
                b"f" => FileKind::File,
                b"d" => FileKind::Dir,
                b"l" => FileKind::Symlink,
                b"p" => FileKind::Fifo,
                b"c" => FileKind::Char,
                b"b" => FileKind::Block,
                b"s" => FileKind::Socket,
                _ => return Err(not(&value, name)),
            });
        }
        Ok(kinds)
    }

    fn owner(&mut self, name: &str, database: Database) -> Parsed<proto::find::Span> {
        let value = self.value(name)?;
        let number = || value.to_str().and_then(|text| text.parse().ok());
        let id = self.world.id(database, &value).or_else(number);
        let id = u64::from(id.ok_or_else(|| wrong(format!("there is no {name} '{}'", value.display())))?);
        Ok(proto::find::Span { min: id, max: id })
    }

    fn newer(&mut self, name: &str, of: TimeOf) -> Parsed<Test> {
        let path = self.value(name)?;
        let times = self.world.times(&path);
        let [modified, ..] = times.map_err(|why| wrong(format!("{}: {why}", path.display())))?;
        Ok(Test::Time(of, numbers::later(modified)))
    }

    fn age(&mut self, name: &str, of: TimeOf, counted: Age) -> Parsed<Test> {
        let now = self.world.now();
        Ok(Test::Time(of, self.valued(name, |word| numbers::age(word, counted, now))?))
    }

    /// Targets: indexes, or names such as `weft-OST001f_UUID`, with commas between.
    fn indexes(&mut self, name: &str, kind: TargetKind) -> Parsed<Vec<u32>> {
        let value = self.value(name)?;
        let index = |text: &str| {
            let text = text.strip_suffix("_UUID").unwrap_or(text);
            let of_name = || text.rsplit('-').next()?.parse::<TargetId>().ok();
            let of_name = || of_name().filter(|target| target.kind == kind).map(|target| target.index);
            text.parse().ok().or_else(of_name)
        };
        let indexes = value.to_str().and_then(|text| text.split(',').map(index).collect());
        indexes.ok_or_else(|| not(&value, name))
    }
}

/// Flags with commas between, as those that a component has, and with `^` in front those that it has not.
fn component_flags(word: &OsStr) -> Option<(u8, u8)> {
    let (mut wanted, mut unwanted) = (0, 0);
    for flag in word.to_str()?.split(',') {
        let bit = |name| match name {
            "init" => Some(COMPONENT_INIT),
            "extension" => Some(COMPONENT_EXTENSION),
            _ => None,
        };
        match flag.strip_prefix('^') {
            Some(name) => unwanted |= bit(name)?,
            None => wanted |= bit(flag)?,
        }
    }
    Some((wanted, unwanted))
}

fn not(value: &OsStr, name: &str) -> Failure {
    wrong(format!("'{}' is no value for '-{name}'", value.display()))
}

fn not_last() -> Failure {
    wrong("an action stands last, behind all tests")
}

#[cfg(test)]
mod tests {
    use proto::Timestamp;
    use proto::find::{Permissions, Span, TimeSpan};

    use super::*;

    struct Fake;

    impl World for Fake {
        fn now(&self) -> Timestamp {
            Timestamp { secs: 1_000_000, nanos: 0 }
        }

        fn id(&mut self, database: Database, name: &OsStr) -> Option<u32> {
            (database == Database::Users && name == "ann").then_some(1000)
        }

        fn times(&self, path: &OsStr) -> Result<[Timestamp; 3], String> {
            let time = |secs| Timestamp { secs, nanos: 0 };
            if path == "stamp" { Ok([time(5), time(6), time(7)]) } else { Err("No such file".into()) }
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parsed(line: &str) -> Result<Plan, String> {
        plan(&words(line), &mut Fake).map_err(|failure| failure.message)
    }

    fn name(pattern: &'static str) -> Expr {
        Expr::Test(Test::Name(Glob { pattern: Bytes::from(pattern), ignores_case: false }))
    }

    fn check(line: &str, expected: Expr) {
        assert_eq!(parsed(line).map(|plan| plan.query.expr), Ok(expected), "{line}");
    }

    #[test]
    fn expressions() {
        let all = |parts: Vec<Expr>| Expr::All(parts);
        let test = Expr::Test;
        check("/m", all(vec![]));
        check("/m -name a", name("a"));
        check("-name a -name b", all(vec![name("a"), name("b")]));
        check("-name a -a -name b -o -name c", Expr::Any(vec![all(vec![name("a"), name("b")]), name("c")]));
        check("-name a ( -name b -or -name c )", all(vec![name("a"), Expr::Any(vec![name("b"), name("c")])]));
        check("! -name a -and -not -name b", {
            let not = |expr| Expr::Not(Box::new(expr));
            all(vec![not(name("a")), not(name("b"))])
        });
        check("-maxdepth 2 --name a -print0", name("a"));
        check("-true -false", all(vec![all(vec![]), Expr::Any(vec![])]));
        check("-type f,d", test(Test::Kind(3)));
        check("-user ann", test(Test::Uid(Span { min: 1000, max: 1000 })));
        check("-projid 7", test(Test::Project(Span { min: 7, max: 7 })));
        check("-user 7", test(Test::Uid(Span { min: 7, max: 7 })));
        let after = TimeSpan {
            from: Timestamp { secs: 5, nanos: 1 },
            until: Timestamp { secs: i64::MAX, nanos: 999_999_999 },
        };
        check("-newer stamp", test(Test::Time(TimeOf::Modification, after)));
        check("-cnewer stamp", test(Test::Time(TimeOf::Change, after)));
        check("-perm -g+w", test(Test::Permissions(Permissions::All(0o020))));
        check("-O 0,weft-OST001f_UUID", test(Test::Osts(vec![OstIndex(0), OstIndex(31)])));
        check("-mdt 0", test(Test::Mdts(vec![0])));
        check("-c +1", test(Test::StripeCount(Span { min: 2, max: u64::MAX })));
        check("-comp-count +1", test(Test::ComponentCount(Span { min: 2, max: u64::MAX })));
        check("-z 64M", test(Test::ExtensionSize(Span { min: 64 << 20, max: 64 << 20 })));
        check("-E eof", test(Test::ComponentEnd(Span { min: u64::MAX, max: u64::MAX })));
        check("--component-flags init,^extension", test(Test::ComponentFlags(1, 2)));
        check("-S 1M", test(Test::StripeSize(Span { min: 1 << 20, max: 1 << 20 })));
        check("-layout composite", test(Test::Layout(LAYOUT_COMPOSITE)));
    }

    #[test]
    fn limits_and_actions_are_of_the_whole_line() {
        let plan = parsed("/a /b -mindepth 1 -name x -maxdepth 3 -print0").expect("a line");
        assert_eq!((plan.starts, plan.query.depth_min, plan.query.depth_max), (words("/a /b"), 1, 3));
        assert_eq!(plan.action, Action::Print(0));
        let plan = parsed("-name x --matched").expect("a line");
        assert_eq!((plan.starts, plan.action, plan.tells_matched), (words("."), Action::Count, true));
        let plan = parsed("( -name x -o -name y ) -print --matched").expect("a line");
        assert_eq!((plan.action, plan.tells_matched), (Action::Print(b'\n'), true));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("-prune", "unknown test or action '-prune'"),
            ("-name", "a value is missing behind '-name'"),
            ("-size 1x", "'1x' is no value for '-size'"),
            ("-type q", "'q' is no value for '-type'"),
            ("-user nobody-such", "there is no user 'nobody-such'"),
            ("-newer none", "none: No such file"),
            ("( -name a", "a ')' is missing"),
            ("-name a )", "there is a ')' without a '('"),
            ("-name a -o", "a test is missing"),
            ("!", "a test is missing"),
            ("-print -name a", "an action stands last, behind all tests"),
            ("-name a -print -o -name b", "an action stands last, behind all tests"),
            ("-print -print0", "there is more than one action"),
            ("-ost x", "'x' is no value for '-ost'"),
            ("-printf %q", "the format has '%q', which is not known"),
        ] {
            assert_eq!(parsed(line), Err(format!("lfs find: {why}")), "{line}");
        }
        assert!(parsed("-name a -o -name b -print").is_err_and(|why| why.contains("for all that is found")));
        assert!(parsed(&"! ".repeat(200)).is_err_and(|why| why.contains("too deep")));
        assert!(parsed(&format!("{}-name a", "! ".repeat(50))).is_err_and(|why| why.contains("too deep")));
    }
}
