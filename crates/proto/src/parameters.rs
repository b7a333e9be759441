//! The tree of parameters and statistics, by Lustre's names: `mdt.w-MDT0000.recovery_status`.
//!
//! Whoever owns a value registers it in one place, with its name, what it is, how it is read, and how it is set if it can be.
//! A tree is made for one question: it borrows the owners, and keeps what the question is about. So values that come and
//! go, such as those of sessions, are registered as they are at that moment. Nothing here knows a name.

mod places;
mod size;

use std::fmt::Display;

use crate::Code;
use crate::wire::messages as msg;

pub use places::{
    ClientPlaces, ClientTree, PROCESS_PLACES, TargetPlaces, TargetTree, device_name, device_type, may_fit_any,
};
pub use size::size;

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

    /// Whether it keeps what it is set to: it can be read and set, and is no statistic, which is cleared by what is written to it.
    pub fn is_kept(&self) -> bool {
        let is_statistic = self.set.as_ref().is_none_or(|setter| setter.takes == CLEARS);
        self.read.is_some() && !is_statistic
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
            value: shortened(value, VALUE_BYTES_MAX),
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

/// A value of at most `bytes_max`. What is longer is cut behind its last line that fits.
pub fn shortened(mut value: String, bytes_max: usize) -> String {
    if value.len() > bytes_max {
        let lines = value.as_bytes()[..bytes_max].iter().rposition(|byte| *byte == b'\n');
        let mut end = lines.unwrap_or(bytes_max);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
    }
    value
}

/// What fits a question, in the order in which it was registered. However much is registered, it keeps no more than an answer has
/// room for.
pub struct Tree<'a, S = Result<(), Code>> {
    patterns: Vec<Glob>,
    names_only: bool,
    /// How many of those that fit are left out, as they are known already.
    skip: u32,
    found: Vec<Parameter<'a, S>>,
    /// There was no room for one.
    more: bool,
}

impl<'a, S> Tree<'a, S> {
    /// Nothing yet of what `read` asks for.
    ///
    /// # Errors
    /// `TooBig`: there are more patterns than [`msg::PARAMETERS_MAX`], or one is longer than [`PATTERN_BYTES_MAX`].
    pub fn new(read: &msg::ReadParameters) -> Result<Tree<'a, S>, Code> {
        let msg::ReadParameters { patterns, skip, names_only } = read;
        if patterns.len() > msg::PARAMETERS_MAX || patterns.iter().any(|one| one.len() > PATTERN_BYTES_MAX) {
            return Err(Code::TooBig);
        }
        let patterns = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
        Ok(Tree { patterns, names_only: *names_only, skip: *skip, found: Vec::new(), more: false })
    }

    /// Nothing yet of what fits `pattern`, and is to be set.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn to_set(pattern: &str) -> Result<Tree<'a, S>, Code> {
        Tree::new(&msg::ReadParameters { patterns: vec![pattern.to_owned()], skip: 0, names_only: true })
    }

    /// Registers a parameter of `place`, which is all of its name but the last part; empty if there is no other part.
    pub fn add(&mut self, place: &str, mut parameter: Parameter<'a, S>) {
        if self.more {
            return;
        }
        if !place.is_empty() {
            parameter.name = format!("{place}.{}", parameter.name);
        }
        if !self.patterns.iter().any(|pattern| pattern.matches(&parameter.name)) {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.found.len() < PAGE_COUNT_MAX {
            self.found.push(parameter);
        } else {
            self.more = true;
        }
    }

    /// Whether a name may fit that begins with `place`: what has many parameters asks before it registers them.
    pub fn may_fit(&self, place: &str) -> bool {
        !self.more && self.patterns.iter().any(|pattern| pattern.may_begin_with(place))
    }

    /// Whether a parameter of this whole name is asked for, and there is room.
    pub fn wants(&self, name: &str) -> bool {
        !self.more && self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether a pattern has `word` in it: what there is for each session is shown to those only who ask for it by its word.
    pub fn says(&self, word: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.says(word))
    }

    /// Whether values are asked for, and not only which there are.
    pub fn has_values(&self) -> bool {
        !self.names_only
    }

    /// Those that fit, to be set.
    ///
    /// # Errors
    /// `NotFound`: nothing fits. `TooBig`: more than an answer has room for.
    pub fn found(self) -> Result<Vec<Parameter<'a, S>>, Code> {
        match (self.found.is_empty(), self.more) {
            (true, _) => Err(Code::NotFound),
            (_, true) => Err(Code::TooBig),
            _ => Ok(self.found),
        }
    }

    /// The answer.
    pub fn page(self) -> msg::ParameterPage {
        let mut behind = self.found.into_iter().peekable();
        let (mut parameters, mut bytes) = (Vec::new(), 0);
        while bytes < PAGE_BYTES_MAX
            && let Some(parameter) = behind.next()
        {
            let shown = parameter.shown(self.names_only);
            bytes += shown.name.len() + shown.value.len() + shown.takes.len();
            parameters.push(shown);
        }
        msg::ParameterPage { parameters, more: behind.peek().is_some() || self.more }
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
        let mut next = fits.clone();
        for byte in text.bytes() {
            next.fill(false);
            for (at, wanted) in pattern.iter().enumerate().filter(|(at, _)| fits[*at]) {
                match *wanted {
                    b'*' => next[at] = true,
                    wanted if wanted == byte => next[at + 1] = true,
                    _ => {}
                }
            }
            settle(&mut next);
            std::mem::swap(&mut fits, &mut next);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn read(patterns: &[&str]) -> msg::ReadParameters {
        let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        msg::ReadParameters { patterns, skip: 0, names_only: false }
    }

    fn tree<'a>(patterns: &[&str]) -> Tree<'a> {
        Tree::new(&read(patterns)).expect("they are few and short")
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
    fn what_nobody_asks_for_is_not_read() {
        assert!(tree(&["*", "mdt.*.exports.*"]).says("exports.") && !tree(&["*"]).says("exports."));
        let mut tree = tree(&["mdt.*.recovery_status"]);
        tree.add("mdt.w-MDT0000", Parameter::text("recovery_status", || "INACTIVE"));
        tree.add("mdt.w-MDT0000", Parameter::text("version", unreachable_text));
        assert_eq!(tree.page().parameters.len(), 1);
    }

    fn unreachable_text() -> String {
        panic!("nobody asks for it")
    }

    #[test]
    fn what_can_be_set_says_so_and_takes_what_it_says() {
        let value = Cell::new(3u32);
        let register = |skip, patterns: &[&str]| {
            let read = msg::ReadParameters { skip, names_only: skip > 0, ..read(patterns) };
            let mut tree = Tree::new(&read).expect("they are few and short");
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
            let found = register(0, &[name]).found()?;
            found.into_iter().try_for_each(|one| one.set(text)?)
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
        let page = register(0, &["a.*"]).page();
        assert!(!page.more);
        assert_eq!(
            page.parameters,
            [
                shown("a.b.size", "9", both, msg::PARAMETER_GAUGE, "MiB", "write a number of MiB up to 9"),
                shown("a.b.count", "7", msg::PARAMETER_READABLE, msg::PARAMETER_COUNTER, "", ""),
                shown("a.b.clear", "", msg::PARAMETER_SETTABLE, msg::PARAMETER_TEXT, "", CLEARS),
            ]
        );
        let names = register(1, &["a.*"]).page().parameters;
        assert_eq!(names.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a.b.count", "a.b.clear"]);
        assert!(names.iter().all(|one| one.value.is_empty()));
    }

    #[test]
    fn questions_and_answers_have_limits() {
        let many = read(&["a"; msg::PARAMETERS_MAX + 1]);
        assert_eq!(Tree::<()>::new(&many).err(), Some(Code::TooBig));
        assert_eq!(Tree::<()>::to_set(&"a".repeat(PATTERN_BYTES_MAX + 1)).err(), Some(Code::TooBig));
        let register = |skip| {
            let read = msg::ReadParameters { skip, names_only: true, ..read(&["*"]) };
            let mut tree: Tree<'_> = Tree::new(&read).expect("they are few and short");
            for number in 0..PAGE_COUNT_MAX + 5 {
                assert!(tree.may_fit("a.") || tree.more);
                tree.add("a", Parameter::gauge(format!("n{number}"), Unit::None, move || number));
            }
            assert!(tree.found.len() <= PAGE_COUNT_MAX, "what does not fit is not kept");
            tree
        };
        assert_eq!(register(0).found().err(), Some(Code::TooBig));
        let page = register(0).page();
        assert_eq!((page.parameters.len(), page.more), (PAGE_COUNT_MAX, true));
        let page = register(PAGE_COUNT_MAX as u32).page();
        assert_eq!((page.parameters.len(), page.more), (5, false));
        let mut long = tree(&["*"]);
        for number in 0..9 {
            let name = format!("n{number}");
            long.add("a", Parameter::text(name, || "0123456789\n".repeat(VALUE_BYTES_MAX)));
        }
        let page = long.page();
        assert!(page.more && page.parameters.len() * VALUE_BYTES_MAX < PAGE_BYTES_MAX + VALUE_BYTES_MAX * 2);
        for one in page.parameters {
            assert!(one.value.len() <= VALUE_BYTES_MAX && one.value.ends_with("6789"));
        }
    }
}
