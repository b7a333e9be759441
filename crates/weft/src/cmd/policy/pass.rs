//! One rule, carried out once: measured, searched for, acted on, and told.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use proto::wire::messages::FIND_ENTRY;

use super::collect::{Candidate, Collector, Filter, Pages, Room};
use super::place::Place;
use super::progress::{self, Whole};
use super::report::{Listed, RuleReport, State, Trouble};
use super::rule::{Action, Rule, When, percent};
use super::space::{self, Usage};
use super::stop::Stop;
use super::there::Wanted;
use super::work::{Job, Work};
use crate::lfs::find::{Query, Search};

/// Memory of the files of one batch, in bytes: a million with paths of 60 bytes.
const BATCH_BYTES: usize = 128 << 20;
/// The same where nothing but a list comes of it.
const LISTED_BYTES: usize = 4 << 20;
/// How long it may take until OSTs show that files have gone, and how often they are asked.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLE_STEP: Duration = Duration::from_millis(500);

/// What is done with the files that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What the rule says.
    Act,
    /// They are listed.
    List,
    /// They are listed as lines of JSON.
    ListJson,
}

/// How far a pass has come.
struct Pass<'a> {
    rule: &'a Rule,
    place: &'a Place,
    mode: Mode,
    stop: &'a Stop,
    report: RuleReport,
}

/// Carries out `rule` once, below `dir`. What goes wrong is in the report.
pub fn pass(rule: &Rule, dir: &Path, mode: Mode, stop: &Stop) -> RuleReport {
    let start = Instant::now();
    let mut report = RuleReport { rule: rule.name.clone(), ..RuleReport::default() };
    match place_of(rule, dir) {
        Ok(place) => {
            let mut pass = Pass { rule, place: &place, mode, stop, report };
            // Ages count from now.
            let query = rule.query().map_err(|failure| failure.message);
            if let Err(why) = query.and_then(|query| pass.run(&query)) {
                pass.fail(Trouble { path: place.path(b"").to_string_lossy().into_owned(), why });
            }
            report = pass.report;
        }
        Err(trouble) => {
            report.failed = 1;
            report.troubles.push(trouble);
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    report
}

/// The directory of a rule: that of the command line, or one below it.
pub fn place_of(rule: &Rule, dir: &Path) -> Result<Place, Trouble> {
    let below = rule.below.as_deref().unwrap_or(Path::new(""));
    let trouble = |why| Trouble { path: dir.join(below).to_string_lossy().into_owned(), why };
    let inside = if below.is_absolute() { below.strip_prefix(dir) } else { Ok(below) };
    let inside = inside.map_err(|_| trouble(format!("it does not lie below {}", dir.display())))?;
    Place::open(dir, inside).map_err(trouble)
}

impl Pass<'_> {
    fn run(&mut self, query: &Query) -> Result<(), String> {
        let (mut measured, mut goal) = (None, None);
        if let Some(when) = &self.rule.when {
            let found = space::measure(self.place.mount(), &when.of)?;
            if !when.is_passed(found.usage) {
                let (of, full) = (when.of.text(), percent(found.usage.thousandths()));
                let note = format!("{of} is {full} full, and not above {}", percent(when.above));
                self.report.end(State::NotNeeded, note);
                return Ok(());
            }
            goal = Some(when.goal(found.usage));
            measured = Some(found.osts);
        }
        let wanted = match &self.rule.action {
            Action::Migrate { to, .. } => Some(Wanted::of(to, self.place.mount())?),
            Action::Archive | Action::Release | Action::Purge => None,
        };
        let filter = Filter { rule: self.rule, wanted: wanted.as_ref(), measured };
        let place = self.place;
        let begin =
            || Box::new(Search::new(place.asked(0), query, place.start(), FIND_ENTRY)) as Box<dyn Pages>;
        let mut collector = Collector::new(filter, begin);
        let done = match self.mode {
            Mode::Act => {
                let job = Job { rule: self.rule, query, place, wanted: wanted.as_ref(), stop: self.stop };
                self.act(&Work::new(job), &mut collector, goal)
            }
            Mode::List | Mode::ListJson => self.list(&mut collector, goal),
        };
        let tally = collector.tally;
        self.report.matched = tally.matched;
        self.report.there += tally.there;
        self.report.failed += tally.hidden;
        for hidden in tally.hidden_named {
            let path = self.place.path(&hidden).to_string_lossy().into_owned();
            self.report.troubles.push(Trouble { path, why: "Permission denied".to_owned() });
        }
        if self.stop.is_told() {
            self.report.end(State::Stopped, "it was stopped");
        }
        done
    }

    fn list(&mut self, collector: &mut Collector<'_>, goal: Option<u64>) -> Result<(), String> {
        let memory = if self.rule.order.is_some() { BATCH_BYTES } else { LISTED_BYTES };
        let (mut left, room) = (goal, Room { memory, frees: goal });
        loop {
            let batch = collector.next_batch(Room { frees: left, ..room }, self.stop)?;
            if batch.is_empty() {
                return Ok(());
            }
            for candidate in batch {
                if left == Some(0) {
                    return Ok(());
                }
                left = left.map(|left| left.saturating_sub(candidate.frees));
                self.print(&candidate);
                self.report.done += 1;
                self.report.bytes += candidate.bytes;
            }
        }
    }

    fn print(&self, candidate: &Candidate) {
        let path = self.place.path(&candidate.below);
        if self.mode == Mode::List {
            use std::os::unix::ffi::OsStrExt;
            return crate::out::print_with(|out| {
                out.write_all(path.as_os_str().as_bytes()).and_then(|()| out.write_all(b"\n"))
            });
        }
        let path = path.to_string_lossy();
        let listed = Listed { rule: &self.rule.name, path: &path, bytes: candidate.bytes };
        out!("{}", serde_json::to_string(&listed).unwrap_or_default());
    }

    fn act(
        &mut self,
        work: &Work<'_>,
        collector: &mut Collector<'_>,
        goal: Option<u64>,
    ) -> Result<(), String> {
        let acted = self.act_until(work, collector, goal);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &work.counts;
        self.report.done = get(&counts.done);
        self.report.there = get(&counts.there);
        self.report.skipped = get(&counts.skipped);
        self.report.failed = get(&counts.failed);
        self.report.bytes = get(&counts.bytes);
        self.report.troubles = work.troubles();
        if work.is_stuck() {
            self.report.end(State::Stuck, "it ended there, since nothing more could be done");
        }
        acted
    }

    /// Batch after batch, until nothing more matches or what is measured is no fuller than it may be.
    fn act_until(
        &mut self,
        work: &Work<'_>,
        collector: &mut Collector<'_>,
        goal: Option<u64>,
    ) -> Result<(), String> {
        let (mut goal, mut batch) = (goal, Vec::new());
        loop {
            if batch.is_empty() {
                let room = Room { memory: BATCH_BYTES, frees: goal };
                batch = collector.next_batch(room, self.stop)?;
            }
            if batch.is_empty() || work.is_over() {
                return self.end(goal);
            }
            let whole = Whole {
                files: collector.tally.matched - collector.tally.there,
                bytes: collector.tally.bytes,
                is_least: !collector.is_over(),
            };
            let acted = with_progress(&self.rule.name, work, whole, || work.act_on(&batch, goal));
            batch.drain(..acted);
            if let (Some(when), Some(_)) = (&self.rule.when, goal) {
                let left = self.settled(when, work)?;
                if left == 0 {
                    return Ok(());
                }
                goal = Some(left);
            }
        }
    }

    /// Nothing more can be done. If there was something to be reached, it was not.
    fn end(&mut self, goal: Option<u64>) -> Result<(), String> {
        if let (Some(when), Some(_)) = (&self.rule.when, goal) {
            let usage = space::measure(self.place.mount(), &when.of)?.usage;
            if when.goal(usage) > 0 {
                let full = percent(usage.thousandths());
                let note = format!("{} is still {full} full, and nothing more matches", when.of.text());
                self.report.end(State::StillFull, note);
            }
        }
        Ok(())
    }

    /// Bytes that still have to go. OSTs free the space of objects a moment after a file has left them, so they have some time for it.
    fn settled(&self, when: &When, work: &Work<'_>) -> Result<u64, String> {
        let begin = Instant::now();
        let mut last: Option<Usage> = None;
        loop {
            let usage = space::measure(self.place.mount(), &when.of)?.usage;
            let left = when.goal(usage);
            let is_still = last == Some(usage) && begin.elapsed() >= SETTLE / 2;
            if left == 0 || is_still || work.is_over() || begin.elapsed() >= SETTLE {
                return Ok(left);
            }
            last = Some(usage);
            self.stop.wait_until(Instant::now() + SETTLE_STEP);
        }
    }

    fn fail(&mut self, trouble: Trouble) {
        self.report.failed += 1;
        self.report.troubles.push(trouble);
    }
}

fn with_progress<T>(name: &str, work: &Work<'_>, whole: Whole, act: impl FnOnce() -> T) -> T {
    let (ending, ended) = mpsc::sync_channel::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || progress::tell(name, &work.counts, whole, &ended));
        let acted = act();
        drop(ending);
        acted
    })
}
