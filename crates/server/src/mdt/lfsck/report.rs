//! What became of checks, in words: Lustre's `lfsck_namespace` and `lfsck_layout`, and what was found.

use proto::parameters::VALUE_BYTES_MAX;
use rt::{Rt, Time};

/// Findings that are kept.
pub const FINDINGS_MAX: usize = 10_000;
/// Parts in which findings are told: each has room for a value.
pub const PARTS: usize = 32;

/// How a check ended, or that it has not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Status {
    /// Never begun since the target started.
    #[default]
    Init,
    Scanning,
    Completed,
    Stopped,
    /// In a sentence why.
    Failed(String),
}

impl Status {
    /// As Lustre calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Status::Init => "init",
            Status::Scanning => "scanning-phase1",
            Status::Completed => "completed",
            Status::Stopped => "stopped",
            Status::Failed(_) => "failed",
        }
    }
}

/// A moment: for people, and to measure from.
#[derive(Debug, Clone, Copy)]
struct Moment {
    secs: i64,
    at: Time,
}

impl Moment {
    fn now(rt: &Rt) -> Moment {
        Moment { secs: rt.wall().secs, at: rt.now() }
    }
}

/// One kind of check: how far it is, or how it ended.
#[derive(Debug, Clone, Default)]
pub struct Phase {
    pub status: Status,
    param: &'static str,
    begun: Option<Moment>,
    ended: Option<Moment>,
    completed: Option<Moment>,
    successes: u32,
    pub position: String,
    /// Lines of numbers: names and values.
    pub counts: Vec<(&'static str, u64)>,
}

impl Phase {
    /// It begins. `param` is what it may change.
    pub fn begin(&mut self, rt: &Rt, param: &'static str) {
        let (completed, successes) = (self.completed, self.successes);
        let begun = Some(Moment::now(rt));
        *self = Phase { status: Status::Scanning, param, begun, completed, successes, ..Phase::default() };
    }

    /// It has ended.
    pub fn end(&mut self, rt: &Rt, status: Status) {
        let now = Moment::now(rt);
        self.position.clear();
        self.ended = Some(now);
        if status == Status::Completed {
            self.completed = Some(now);
            self.successes += 1;
        }
        self.status = status;
    }

    /// Its lines.
    pub fn text(&self, name: &str, rt: &Rt) -> String {
        let now = rt.now();
        let since = |moment: Option<Moment>| match moment {
            Some(moment) => format!("{} seconds", (now - moment.at).as_secs()),
            None => "N/A".to_owned(),
        };
        let at = |moment: Option<Moment>| moment.map_or("N/A".to_owned(), |moment| moment.secs.to_string());
        let mut text = format!("name: {name}\nstatus: {}\n", self.status.name());
        if let Status::Failed(why) = &self.status {
            text.push_str(&format!("reason: {why}\n"));
        }
        text.push_str(&format!("param: {}\n", self.param));
        text.push_str(&format!("last_completed_time: {}\n", at(self.completed)));
        text.push_str(&format!("time_since_last_completed: {}\n", since(self.completed)));
        text.push_str(&format!("latest_start_time: {}\n", at(self.begun)));
        text.push_str(&format!("time_since_latest_start: {}\n", since(self.begun)));
        for (name, count) in &self.counts {
            text.push_str(&format!("{name}: {count}\n"));
        }
        text.push_str(&format!("success_count: {}\n", self.successes));
        let run = self.begun.map_or(0, |begun| {
            let end = self.ended.map_or(now, |ended| ended.at);
            (end - begun.at).as_secs()
        });
        let checked = self.counts.first().map_or(0, |(_, count)| *count);
        text.push_str(&format!("run_time_phase1: {run} seconds\n"));
        text.push_str(&format!("average_speed_phase1: {} items/sec\n", checked / run.max(1)));
        let position = if self.position.is_empty() { "N/A" } else { &self.position };
        text.push_str(&format!("current_position: {position}"));
        text
    }
}

/// What was found, each a line.
#[derive(Debug, Default)]
pub struct Findings {
    lines: Vec<String>,
    /// Those that there was no room for.
    more: u64,
}

impl Findings {
    pub fn add(&mut self, line: String) {
        tracing::error!("{line}");
        if self.lines.len() < FINDINGS_MAX {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    /// The lines of one of [`PARTS`], as many as a value has room for.
    pub fn part(&self, part: usize) -> String {
        let mut parts = vec![String::new()];
        let more = (self.more > 0).then(|| format!("... and {} more", self.more));
        for line in self.lines.iter().chain(&more) {
            let room = parts.last().map_or(0, |last| VALUE_BYTES_MAX.saturating_sub(last.len()));
            if line.len() + 1 > room && parts.len() < PARTS {
                parts.push(String::new());
            }
            if let Some(last) = parts.last_mut() {
                if !last.is_empty() {
                    last.push('\n');
                }
                last.push_str(line);
            }
        }
        parts.into_iter().nth(part).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_findings_are_in_the_parts_in_order() {
        let mut findings = Findings::default();
        assert_eq!(findings.part(0), "");
        let line = |n: usize| format!("finding {n} {}", "x".repeat(80));
        (0..FINDINGS_MAX + 3).for_each(|n| findings.add(line(n)));
        let parts: Vec<String> = (0..PARTS).map(|part| findings.part(part)).collect();
        assert!(parts.iter().all(|part| part.len() <= VALUE_BYTES_MAX));
        let lines: Vec<&str> = parts.iter().flat_map(|part| part.lines()).collect();
        assert_eq!(lines.len(), FINDINGS_MAX + 1);
        assert!(lines.iter().take(FINDINGS_MAX).enumerate().all(|(n, found)| *found == line(n)));
        assert_eq!(lines.last(), Some(&"... and 3 more"));
    }
}
