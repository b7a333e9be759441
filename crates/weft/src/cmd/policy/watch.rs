//! `weft policy watch`: when which rule has its turn.

use std::path::Path;
use std::time::{Duration, Instant};

use super::pass::{Mode, pass};
use super::rule::{Action, Rule};
use super::stop::Stop;

/// How often is looked whether a threshold is passed.
const LOOK: Duration = Duration::from_secs(10);
/// The longest pause of a rule that found nothing to do although its threshold is passed.
const LOOK_MAX: Duration = Duration::from_secs(600);

/// When a rule has its turn; times are since the beginning.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    every: Duration,
    /// It is a rule with a threshold that has no time of its own.
    looks: bool,
    pause: Duration,
    next: Duration,
}

impl Turn {
    /// Of a rule: at once, and then every so often. `None` if it would have one turn only.
    pub fn of(rule: &Rule) -> Option<Turn> {
        let looks = rule.every.is_none() && rule.when.is_some();
        let every = rule.every.or(looks.then_some(LOOK))?;
        Some(Turn { every, looks, pause: every, next: Duration::ZERO })
    }

    /// It has had its turn, from `begin` to `end`. `is_well`: it is worth looking soon again.
    fn had(&mut self, begin: Duration, end: Duration, is_well: bool) {
        if self.looks {
            // Where nothing can be moved away, the MDT need not be asked every few seconds.
            self.pause = if is_well { self.every } else { (self.pause * 2).min(LOOK_MAX) };
            self.next = end + self.pause;
            return;
        }
        // In step with its beginning; a turn that was missed is not made up for.
        self.next = (begin + self.every).max(end);
    }
}

/// Gives each rule its turn until it is told to stop.
pub fn watch(rules: &[&Rule], dir: &Path, stop: &Stop) {
    let begin = Instant::now();
    let mut turns: Vec<(&Rule, Turn)> =
        rules.iter().filter_map(|rule| Some((*rule, Turn::of(rule)?))).collect();
    while let Some((rule, turn)) = turns.iter_mut().min_by_key(|(_, turn)| turn.next) {
        stop.wait_until(begin + turn.next);
        if stop.is_told() {
            return;
        }
        let from = begin.elapsed();
        let report = pass(rule, dir, Mode::Act, stop);
        if !report.is_quiet() {
            out!("{}", report.line(verb(&rule.action)));
        }
        for trouble in &report.troubles {
            err!("{}: {}: {}", rule.name, trouble.path, trouble.why);
        }
        turn.had(from, begin.elapsed(), report.is_well());
    }
}

/// What becomes of a file.
pub fn verb(action: &Action) -> &'static str {
    match action {
        Action::Migrate { .. } => "moved",
        Action::Archive => "asked for",
        Action::Release => "released",
        Action::Purge => "removed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn turn(looks: bool, every: u64) -> Turn {
        Turn { every: s(every), looks, pause: s(every), next: s(0) }
    }

    #[test]
    fn rules_keep_in_step() {
        let mut hourly = turn(false, 3600);
        hourly.had(s(0), s(5), true);
        assert_eq!(hourly.next, s(3600));
        hourly.had(s(3600), s(3660), false);
        assert_eq!(hourly.next, s(7200));
        // It took longer than its time.
        hourly.had(s(7200), s(20_000), true);
        assert_eq!(hourly.next, s(20_000));
    }

    #[test]
    fn looking_gets_rarer_where_nothing_can_be_done() {
        let mut looking = turn(true, 10);
        looking.had(s(0), s(1), true);
        assert_eq!(looking.next, s(11));
        looking.had(s(11), s(12), false);
        assert_eq!(looking.next, s(32));
        looking.had(s(32), s(32), false);
        assert_eq!(looking.next, s(72));
        for _ in 0..20 {
            looking.had(s(100), s(100), false);
        }
        assert_eq!(looking.next, s(700));
        looking.had(s(700), s(700), true);
        assert_eq!(looking.next, s(710));
    }
}
