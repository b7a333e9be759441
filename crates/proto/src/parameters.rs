//! The tree of parameters and statistics, by Lustre's names: `mdt.w-MDT0000.recovery_status`.
//!
//! Whoever owns a value registers it in one place, with its name, what it is, how it is read, and how it is set if it can be.
//! A tree is made for one question: it borrows the owners, and keeps what the question is about. So values that come and
//! go, such as those of sessions, are registered as they are at that moment. Nothing here knows a name.

use std::fmt::Display;

use crate::wire::messages as msg;
use crate::{Code, TargetId, TargetKind};

/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 255;
/// Most parameters of one answer.
pub const PAGE_COUNT_MAX: usize = 4096;
/// Bytes of the names and values of one answer; it has at least one parameter, however long.
pub const PAGE_BYTES_MAX: usize = 256 << 10;
/// Longest value that is told, in bytes. Of a longer one the last lines are left out.
pub const VALUE_BYTES_MAX: usize = 48 << 10;

/// What a value is, for whoever shows it without knowing its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Words, or several lines.
    Text,
    /// A number that goes up and down, or that is set.
    Gauge,
    /// A number that only grows until the process ends or somebody clears it.
    Counter,
    /// Lines that say how often which sizes or times occurred.
    Histogram,
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, or the value is no number.
    None,
    /// Bytes.
    Bytes,
    /// 1,048,576 bytes.
    Mebibytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Text => msg::PARAMETER_TEXT,
            Kind::Gauge => msg::PARAMETER_GAUGE,
            Kind::Counter => msg::PARAMETER_COUNTER,
            Kind::Histogram => msg::PARAMETER_HISTOGRAM,
        }
    }
}

impl Unit {
    /// As answers say it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Mebibytes => "MiB",
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
        }
    }
}

type Reader<'a> = Box<dyn FnOnce() -> String + 'a>;

/// One parameter or statistic. `S` is what setting it gives: an outcome, or something that has to be waited for.
pub struct Parameter<'a, S = Result<(), Code>> {
    name: String,
    kind: Kind,
    unit: Unit,
    read: Option<Reader<'a>>,
    set: Option<Setter<'a, S>>,
}

struct Setter<'a, S> {
    takes: String,
    set: Box<dyn FnOnce(&str) -> S + 'a>,
}

impl<'a, S> Parameter<'a, S> {
    fn new(name: impl Into<String>, kind: Kind, unit: Unit, read: Option<Reader<'a>>) -> Parameter<'a, S> {
        Parameter { name: name.into(), kind, unit, read, set: None }
    }

    /// A number that goes up and down, or that is set.
    pub fn gauge<V: Display>(
        name: impl Into<String>,
        unit: Unit,
        read: impl FnOnce() -> V + 'a,
    ) -> Parameter<'a, S> {
        Parameter::new(name, Kind::Gauge, unit, Some(Box::new(|| read().to_string())))
    }

    /// A number that only grows until somebody clears it.
    pub fn counter<V: Display>(
        name: impl Into<String>,
        unit: Unit,
        read: impl FnOnce() -> V + 'a,
    ) -> Parameter<'a, S> {
        Parameter::new(name, Kind::Counter, unit, Some(Box::new(|| read().to_string())))
    }

    /// Words, or several lines without an end of line behind the last one.
    pub fn text<V: Into<String>>(name: impl Into<String>, read: impl FnOnce() -> V + 'a) -> Parameter<'a, S> {
        Parameter::new(name, Kind::Text, Unit::None, Some(Box::new(|| read().into())))
    }

    /// Lines that say how often what occurred.
    pub fn histogram(name: impl Into<String>, read: impl FnOnce() -> String + 'a) -> Parameter<'a, S> {
        Parameter::new(name, Kind::Histogram, Unit::None, Some(Box::new(read)))
    }

    /// What can only be set.
    pub fn order(
        name: impl Into<String>,
        takes: impl Into<String>,
        set: impl FnOnce(&str) -> S + 'a,
    ) -> Parameter<'a, S> {
        Parameter::new(name, Kind::Text, Unit::None, None).settable(takes, set)
    }

    /// It can be set. `takes` tells whoever has written something that `set` refuses what it takes.
    pub fn settable(self, takes: impl Into<String>, set: impl FnOnce(&str) -> S + 'a) -> Parameter<'a, S> {
        Parameter { set: Some(Setter { takes: takes.into(), set: Box::new(set) }), ..self }
    }

    /// Its whole name, once it is in a tree.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets it.
    ///
    /// # Errors
    /// `Forbidden`: it can only be read.
    pub fn set(self, value: &str) -> Result<S, Code> {
        self.set.map(|setter| (setter.set)(value)).ok_or(Code::Forbidden)
    }

    fn shown(self, names_only: bool) -> msg::ShownParameter {
        let readable = if self.read.is_some() { msg::PARAMETER_READABLE } else { 0 };
        let settable = if self.set.is_some() { msg::PARAMETER_SETTABLE } else { 0 };
        let value = self.read.filter(|_| !names_only).map(|read| read()).unwrap_or_default();
        msg::ShownParameter {
            name: self.name,
            value: shortened(value),
            access: readable | settable,
            kind: self.kind.number(),
            unit: self.unit.name().to_owned(),
            takes: self.set.map(|setter| setter.takes).unwrap_or_default(),
        }
    }
}

/// A switch is `0` or `1`.
///
/// # Errors
/// `Invalid` for anything else.
pub fn switch(value: &str) -> Result<bool, Code> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Code::Invalid),
    }
}

/// What [`switch`] takes.
pub const SWITCH: &str = "write 0 or 1";
/// What a statistic takes that is cleared by whatever is written to it, as in Lustre.
pub const CLEARS: &str = "write clear";

/// Cuts what is too long behind its last whole line.
fn shortened(mut value: String) -> String {
    if value.len() > VALUE_BYTES_MAX {
        let lines = value.as_bytes()[..VALUE_BYTES_MAX].iter().rposition(|byte| *byte == b'\n');
        let mut end = lines.unwrap_or(VALUE_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
    }
    value
}

/// What fits a question, in the order in which it was registered.
pub struct Tree<'a, S = Result<(), Code>> {
    patterns: Vec<Glob>,
    found: Vec<Parameter<'a, S>>,
}

impl<'a, S> Tree<'a, S> {
    /// Nothing yet of what fits one of `patterns`, in which `*` stands for any characters.
    ///
    /// # Errors
    /// `TooBig`: there are more than [`msg::PARAMETERS_MAX`], or one is longer than [`PATTERN_BYTES_MAX`].
    pub fn new(patterns: &[String]) -> Result<Tree<'a, S>, Code> {
        if patterns.len() > msg::PARAMETERS_MAX || patterns.iter().any(|one| one.len() > PATTERN_BYTES_MAX) {
            return Err(Code::TooBig);
        }
        let patterns = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
        Ok(Tree { patterns, found: Vec::new() })
    }

    /// Registers a parameter of `place`, which is all of its name but the last part; empty if there is no other part.
    pub fn add(&mut self, place: &str, mut parameter: Parameter<'a, S>) {
        if !place.is_empty() {
            parameter.name = format!("{place}.{}", parameter.name);
        }
        if self.patterns.iter().any(|pattern| pattern.matches(&parameter.name)) {
            self.found.push(parameter);
        }
    }

    /// Whether a pattern has `word` in it: what there is for each session is shown to those only who ask for it by its word.
    pub fn says(&self, word: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.says(word))
    }

    /// All that fit.
    pub fn found(self) -> Vec<Parameter<'a, S>> {
        self.found
    }

    /// Those behind the first `skip`, as an answer.
    pub fn page(self, skip: u32, names_only: bool) -> msg::ParameterPage {
        let mut behind = self.found.into_iter().skip(skip as usize).peekable();
        let (mut parameters, mut bytes) = (Vec::new(), 0);
        while parameters.len() < PAGE_COUNT_MAX
            && bytes < PAGE_BYTES_MAX
            && let Some(parameter) = behind.next()
        {
            let shown = parameter.shown(names_only);
            bytes += shown.name.len() + shown.value.len() + shown.takes.len();
            parameters.push(shown);
        }
        msg::ParameterPage { parameters, more: behind.peek().is_some() }
    }
}

/// A pattern of names.
pub struct Glob(Vec<u8>);

impl Glob {
    /// In `pattern`, `*` stands for any characters.
    pub fn new(pattern: &str) -> Glob {
        Glob(pattern.as_bytes().to_vec())
    }

    /// Whether `name` fits.
    pub fn matches(&self, name: &str) -> bool {
        self.after(name).last() == Some(&true)
    }

    fn says(&self, word: &str) -> bool {
        self.0.windows(word.len().max(1)).any(|part| part == word.as_bytes())
    }

    /// Whether a name may fit that begins with `prefix`.
    pub fn may_begin_with(&self, prefix: &str) -> bool {
        self.after(prefix).contains(&true)
    }

    /// Which beginnings of the pattern, by their lengths, `text` fits. What this takes grows with both lengths, whatever they hold.
    fn after(&self, text: &str) -> Vec<bool> {
        let Glob(pattern) = self;
        // A star stands for nothing, too.
        let settle = |fits: &mut Vec<bool>| {
            for (at, byte) in pattern.iter().enumerate() {
                if *byte == b'*' && fits[at] {
                    fits[at + 1] = true;
                }
            }
        };
        let mut fits = vec![false; pattern.len() + 1];
        fits[0] = true;
        settle(&mut fits);
        for byte in text.bytes() {
            let mut next = vec![false; pattern.len() + 1];
            for (at, wanted) in pattern.iter().enumerate().filter(|(at, _)| fits[*at]) {
                match *wanted {
                    b'*' => next[at] = true,
                    wanted if wanted == byte => next[at + 1] = true,
                    _ => {}
                }
            }
            settle(&mut next);
            fits = next;
        }
        fits
    }
}

/// Lustre's name of what serves a target of a kind.
pub fn device_type(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mgs => "mgs",
        TargetKind::Mdt => "mdt",
        TargetKind::Ost => "obdfilter",
    }
}

/// What the device of a target is called: `w-OST0000`, or `MGS`.
pub fn device_name(fsname: &str, target: TargetId) -> String {
    if target == TargetId::MGS { "MGS".to_owned() } else { format!("{fsname}-{target}") }
}

/// The places of a target: all names of its parameters begin with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPlaces {
    /// `mdt.w-MDT0000`.
    pub device: String,
    /// `ldlm.namespaces.mdt-w-MDT0000_UUID`.
    pub locks: String,
}

impl TargetPlaces {
    /// Those of `target`.
    pub fn new(fsname: &str, target: TargetId) -> TargetPlaces {
        let name = device_name(fsname, target);
        let space = match target.kind {
            TargetKind::Ost => "filter",
            kind => device_type(kind),
        };
        TargetPlaces {
            device: format!("{}.{name}", device_type(target.kind)),
            locks: format!("ldlm.namespaces.{space}-{name}_UUID"),
        }
    }

    /// What `pattern` means in this target, as well as that can be said without asking it.
    pub fn within(&self, pattern: &str) -> String {
        let glob = Glob::new(pattern);
        let is_meant = |place: &&&String| glob.may_begin_with(&format!("{place}."));
        let place = [&self.device, &self.locks].iter().find(is_meant).map_or(&self.device, |place| *place);
        let parts = place.split('.').count();
        let rest = pattern.splitn(parts + 1, '.').nth(parts).unwrap_or("*");
        format!("{place}.{rest}")
    }

    /// Whether a name of the target may fit.
    pub fn may_fit(&self, pattern: &Glob) -> bool {
        [&self.device, &self.locks].iter().any(|place| pattern.may_begin_with(&format!("{place}.")))
    }
}

/// The tree of one target, for those who register a last part only.
pub struct TargetTree<'a> {
    places: TargetPlaces,
    tree: Tree<'a>,
}

impl<'a> TargetTree<'a> {
    /// Nothing yet of `target`.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn new(fsname: &str, target: TargetId, patterns: &[String]) -> Result<TargetTree<'a>, Code> {
        Ok(TargetTree { places: TargetPlaces::new(fsname, target), tree: Tree::new(patterns)? })
    }

    /// Registers a parameter of its device: `mdt.w-MDT0000.NAME`.
    pub fn of_device(&mut self, parameter: Parameter<'a>) {
        self.tree.add(&self.places.device, parameter);
    }

    /// Registers a parameter of its locks: `ldlm.namespaces.mdt-w-MDT0000_UUID.NAME`.
    pub fn of_locks(&mut self, parameter: Parameter<'a>) {
        self.tree.add(&self.places.locks, parameter);
    }

    /// As [`Tree::says`].
    pub fn says(&self, word: &str) -> bool {
        self.tree.says(word)
    }

    /// What was found.
    pub fn into_tree(self) -> Tree<'a> {
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn tree<'a>(patterns: &[&str]) -> Tree<'a> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Tree::new(&patterns).expect("they are few and short")
    }

    #[test]
    fn globs() {
        for (pattern, name, fits) in [
            ("version", "version", true),
            ("ver*", "version", true),
            ("*", "version", true),
            ("*e*k", "health_check", true),
            ("ver", "version", false),
            ("*x*", "version", false),
            ("", "", true),
            ("", "version", false),
            ("**", "version", true),
            ("mdt.*.recovery_status", "mdt.w-MDT0000.recovery_status", true),
            ("mdt.*.recovery_status", "obdfilter.w-OST0000.recovery_status", false),
            ("mdt.*.exports.*.uuid", "mdt.w-MDT0000.exports.10.1.1.2@tcp.uuid", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), fits, "{pattern}");
        }
        // Trying each place for each star would not end.
        let stars = Glob::new(&"*a".repeat(100));
        assert!(!stars.matches(&"a".repeat(99)) && stars.matches(&"a".repeat(100)));
    }

    #[test]
    fn a_place_is_asked_only_for_what_it_may_have() {
        let ost = TargetPlaces::new("w", TargetId::ost(1));
        assert_eq!(ost.device, "obdfilter.w-OST0001");
        assert_eq!(ost.locks, "ldlm.namespaces.filter-w-OST0001_UUID");
        for (pattern, may) in [
            ("*", true),
            ("obdfilter.*", true),
            ("obdfilter.w-OST0001.brw_stats", true),
            ("ldlm.namespaces.*.lru_size", true),
            ("*OST0001*", true),
            ("version", false),
            ("obdfilter.w-OST0002.*", false),
            ("ldlm.namespaces.mdt-*", false),
        ] {
            assert_eq!(ost.may_fit(&Glob::new(pattern)), may, "{pattern}");
        }
        for (pattern, name) in [
            ("obdfilter.*.num_exports", "obdfilter.w-OST0001.num_exports"),
            ("ldlm.namespaces.*.lru_size", "ldlm.namespaces.filter-w-OST0001_UUID.lru_size"),
            ("obdfilter.*.exports.*.uuid", "obdfilter.w-OST0001.exports.*.uuid"),
            ("*", "obdfilter.w-OST0001.*"),
        ] {
            assert_eq!(ost.within(pattern), name);
        }
        assert_eq!(TargetPlaces::new("w", TargetId::MGS).device, "mgs.MGS");
        assert!(tree(&["*", "mdt.*.exports.*"]).says("exports.") && !tree(&["*"]).says("exports."));
        let mut tree = tree(&["mdt.*.recovery_status"]);
        tree.add("mdt.w-MDT0000", Parameter::text("recovery_status", || "INACTIVE"));
        tree.add("mdt.w-MDT0000", Parameter::text("version", unreachable_text));
        assert_eq!(tree.page(0, false).parameters.len(), 1);
    }

    fn unreachable_text() -> String {
        panic!("nobody asks for it")
    }

    #[test]
    fn what_can_be_set_says_so_and_takes_what_it_says() {
        let value = Cell::new(3u32);
        let register = |patterns: &[&str]| {
            let mut tree = tree(patterns);
            let gauge = Parameter::gauge("size", Unit::Mebibytes, || value.get());
            tree.add(
                "a.b",
                gauge.settable("write a number of MiB up to 9", |text: &str| {
                    let new = text.parse().ok().filter(|new| *new <= 9).ok_or(Code::Invalid)?;
                    value.set(new);
                    Ok(())
                }),
            );
            tree.add("a.b", Parameter::counter("count", Unit::None, || 7));
            tree.add("a.b", Parameter::order("clear", CLEARS, |_| Ok(())));
            tree
        };
        let set = |name: &str, text: &str| {
            let found = register(&[name]).found();
            found.into_iter().next().ok_or(Code::NotFound).and_then(|one| one.set(text)).and_then(|set| set)
        };
        assert_eq!((set("a.b.size", "9"), set("a.b.size", "10")), (Ok(()), Err(Code::Invalid)));
        assert_eq!(
            (set("a.b.count", "0"), set("a.b.none", "0")),
            (Err(Code::Forbidden), Err(Code::NotFound))
        );
        let shown = |name: &str, value: &str, access, kind, unit: &str, takes: &str| msg::ShownParameter {
            name: name.into(),
            value: value.into(),
            access,
            kind,
            unit: unit.into(),
            takes: takes.into(),
        };
        let both = msg::PARAMETER_READABLE | msg::PARAMETER_SETTABLE;
        let page = register(&["a.*"]).page(0, false);
        assert!(!page.more);
        assert_eq!(
            page.parameters,
            [
                shown("a.b.size", "9", both, msg::PARAMETER_GAUGE, "MiB", "write a number of MiB up to 9"),
                shown("a.b.count", "7", msg::PARAMETER_READABLE, msg::PARAMETER_COUNTER, "", ""),
                shown("a.b.clear", "", msg::PARAMETER_SETTABLE, msg::PARAMETER_TEXT, "", CLEARS),
            ]
        );
        let names = register(&["a.*"]).page(1, true).parameters;
        assert_eq!(names.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a.b.count", "a.b.clear"]);
        assert!(names.iter().all(|one| one.value.is_empty()));
    }

    #[test]
    fn questions_and_answers_have_limits() {
        let many = vec!["a".to_owned(); msg::PARAMETERS_MAX + 1];
        assert_eq!(Tree::<()>::new(&many).err(), Some(Code::TooBig));
        assert_eq!(Tree::<()>::new(&["a".repeat(PATTERN_BYTES_MAX + 1)]).err(), Some(Code::TooBig));
        let register = || {
            let mut tree = tree(&["*"]);
            for number in 0..PAGE_COUNT_MAX + 5 {
                tree.add("a", Parameter::gauge(format!("n{number}"), Unit::None, move || number));
            }
            tree
        };
        let page = register().page(0, true);
        assert_eq!((page.parameters.len(), page.more), (PAGE_COUNT_MAX, true));
        let page = register().page(PAGE_COUNT_MAX as u32, true);
        assert_eq!((page.parameters.len(), page.more), (5, false));
        let mut long = tree(&["*"]);
        for number in 0..9 {
            let name = format!("n{number}");
            long.add("a", Parameter::text(name, || "0123456789\n".repeat(VALUE_BYTES_MAX)));
        }
        let page = long.page(0, false);
        assert!(page.more && page.parameters.len() * VALUE_BYTES_MAX < PAGE_BYTES_MAX + VALUE_BYTES_MAX * 2);
        for one in page.parameters {
            assert!(one.value.len() <= VALUE_BYTES_MAX && one.value.ends_with("6789"));
        }
    }
}
