//! What came of a run: lines for people, an object of JSON for scripts.

use serde::Serialize;

use crate::cmd::stage::bytes_text;

/// All rules of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Each of them.
    pub rules: Vec<RuleReport>,
}

/// How a rule ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Each file that matches had its turn, or enough of them.
    #[default]
    Done,
    /// What it measures is not above its threshold.
    NotNeeded,
    /// Each file had its turn, and what it measures is still fuller than it may be.
    StillFull,
    /// It was told to end.
    Stopped,
    /// Something failed that every other file would fail at.
    Stuck,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RuleReport {
    /// What it is called.
    pub rule: String,
    /// How it ended.
    pub state: State,
    /// The same as a sentence, unless it is done.
    pub note: Option<String>,
    /// Files that match.
    pub matched: u64,
    /// Files that were moved or removed; in a dry run, that would be.
    pub done: u64,
    /// Files that lay already where they are to be.
    pub there: u64,
    /// Files that did not match any more when their turn came.
    pub skipped: u64,
    /// Files, and directories to look into, that could not be dealt with; and the search, if that could not be made.
    pub failed: u64,
    /// Bytes of the data of those that were moved or removed.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What failed: the first ones.
    pub troubles: Vec<Trouble>,
}

/// Something that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// The file.
    pub path: String,
    /// A sentence.
    pub why: String,
}

/// A file that would be acted on.
#[derive(Debug, Serialize)]
pub struct Listed<'a> {
    /// What the rule is called.
    pub rule: &'a str,
    /// The file.
    pub path: &'a str,
    /// Bytes of its data.
    pub bytes: u64,
}

impl RuleReport {
    /// It ended so, for this reason.
    pub fn end(&mut self, state: State, note: impl Into<String>) {
        (self.state, self.note) = (state, Some(note.into()));
    }

    /// Whether there is nothing to tell: it did nothing, as it should be.
    pub fn is_quiet(&self) -> bool {
        let nothing = self.matched == 0 && self.failed == 0;
        nothing && matches!(self.state, State::Done | State::NotNeeded)
    }

    /// Whether it is worth looking soon again: something could be done, or nothing had to be.
    pub fn is_well(&self) -> bool {
        self.done > 0 || self.state == State::NotNeeded
    }

    /// One line for people, of files that were `verb`.
    pub fn line(&self, verb: &str) -> String {
        let rate = self.bytes as f64 / self.seconds.max(0.001);
        let rate = if self.bytes > 0 { format!(", {}/s", bytes_text(rate as u64)) } else { String::new() };
        self.text(verb, &rate)
    }

    /// The same of files that would be.
    pub fn listed_line(&self, verb: &str) -> String {
        self.text(&format!("would be {verb}"), "")
    }

    fn text(&self, verb: &str, rate: &str) -> String {
        let mut text = format!("{}: ", self.rule);
        if self.matched > 0 || self.failed > 0 || self.note.is_none() {
            let (matched, bytes) = (count(self.matched, "file"), bytes_text(self.bytes));
            text += &format!("{matched} matched, {} {verb} ({bytes}{rate})", self.done);
            for (number, what) in [
                (self.there, "were there already"),
                (self.skipped, "matched no more"),
                (self.failed, "failed"),
            ] {
                if number > 0 {
                    text += &format!(", {number} {what}");
                }
            }
            text += &format!(", {:.1} s", self.seconds);
        }
        match &self.note {
            Some(note) if text.ends_with(": ") => text + note,
            Some(note) => format!("{text}; {note}"),
            None => text,
        }
    }
}

/// So many files.
pub fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_and_how_soon_it_goes_on() {
        let check = |state, matched, done, expected| {
            let report = RuleReport { state, matched, done, ..RuleReport::default() };
            assert_eq!((report.is_quiet(), report.is_well()), expected, "{state:?} {matched} {done}");
        };
        check(State::Done, 0, 0, (true, false));
        check(State::Done, 3, 3, (false, true));
        check(State::NotNeeded, 0, 0, (true, true));
        check(State::StillFull, 0, 0, (false, false));
        check(State::StillFull, 9, 9, (false, true));
        check(State::Stuck, 9, 0, (false, false));
        let failed = RuleReport { failed: 1, ..RuleReport::default() };
        assert_eq!((failed.is_quiet(), failed.is_well()), (false, false));
    }

    #[test]
    fn lines() {
        let all = RuleReport {
            rule: "cold".to_owned(),
            matched: 9,
            done: 4,
            there: 2,
            skipped: 1,
            failed: 2,
            bytes: 6 << 20,
            seconds: 2.0,
            ..RuleReport::default()
        };
        let text = "cold: 9 files matched, 4 moved (6.0 MiB, 3.0 MiB/s), 2 were there already, 1 matched no more, 2 failed, 2.0 s";
        assert_eq!(all.line("moved"), text);
        let mut note = all;
        note.end(State::Stopped, "it was stopped");
        assert_eq!(note.line("moved"), format!("{text}; it was stopped"));
        let idle = RuleReport {
            rule: "a".to_owned(),
            note: Some("nothing to do".to_owned()),
            ..RuleReport::default()
        };
        assert_eq!(idle.line("moved"), "a: nothing to do");
        let none = RuleReport { note: None, ..idle };
        assert_eq!(none.line("removed"), "a: 0 files matched, 0 removed (0 B), 0.0 s");
        assert_eq!(none.listed_line("removed"), "a: 0 files matched, 0 would be removed (0 B), 0.0 s");
    }
}
