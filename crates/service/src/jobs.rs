//! `job_stats`: what each job asks a target for, in Lustre's format (`job_stats_seq_show`).
//!
//! A request says to which job it belongs. Those without one cost nothing here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::JobId;
use proto::parameters::{Parameter, TargetTree, Unit};
use rt::{Rt, Time};

use crate::tally::Tally;
use crate::timing::{Counting, Stats};

/// Jobs that a target counts for. Each takes a kilobyte.
const JOBS_MAX: usize = 4096;
/// Jobs that go when there are more: those that were not seen for longest. Several at a time, as finding them means to look at all.
const ROOM_JOBS: usize = JOBS_MAX / 16;
/// Seconds after which a job goes that asks for nothing, unless others are set; Lustre's.
const CLEANUP_S: u64 = 600;
/// Jobs in one part of the value: it is shorter than the longest value that an answer carries, and than an attribute of a mount.
const PART_JOBS: usize = 12;
/// How wide names are, with what stands between them and their values.
const NAME_WIDTH: usize = 17;
/// What clears everything, as no job is called then.
const CLEAR: &str = "clear";
const TAKES: &str = "write clear, or the name of a job";

/// The jobs of a target.
pub(crate) struct Jobs {
    stats: Option<&'static Stats>,
    table: Mutex<Table>,
    /// 0 for never.
    cleanup_s: AtomicU64,
}

#[derive(Default)]
struct Table {
    jobs: BTreeMap<JobId, Job>,
    /// When those were last looked for that can go.
    swept: Time,
}

/// What is counted of one job.
struct Job {
    seen: Time,
    /// Seconds since 1970.
    seen_s: i64,
    since_s: i64,
    tally: Tally,
}

impl Jobs {
    /// Those of a role with `stats`; of one without, nothing is counted.
    pub fn new(stats: Option<&'static Stats>) -> Jobs {
        Jobs { stats, table: Mutex::default(), cleanup_s: AtomicU64::new(CLEANUP_S) }
    }

    /// A request for `job` was carried out; see [`Tally::note`].
    pub fn done(&self, job: JobId, rt: &Rt, (counting, took): (&Counting, Duration), moved: [u64; 2]) {
        let Some(stats) = self.stats else { return };
        let mut table = self.table.lock();
        let cleanup = self.cleanup();
        let job = table.job(job, stats, (rt.now(), rt.wall().secs), cleanup);
        job.tally.note(stats, counting, took, moved);
    }

    fn cleanup(&self) -> Option<Duration> {
        let seconds = self.cleanup_s.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Registers them. The value of many jobs is longer than an answer is, so it comes in parts with one name, of which whoever
    /// reads it makes one.
    pub fn parameters<'a>(&'a self, rt: &'a Rt, tree: &mut TargetTree<'a>) {
        let Some(stats) = self.stats else { return };
        let parts = {
            let mut table = self.table.lock();
            table.sweep(rt.now(), self.cleanup());
            table.jobs.len().div_ceil(PART_JOBS)
        };
        let part = |part| Parameter::text("job_stats", move || self.part(stats, part));
        tree.of_device(part(0).settable(TAKES, |text: &str| {
            self.remove(text.trim());
            Ok(())
        }));
        if tree.has_values() {
            (1..parts).for_each(|number| tree.of_device(part(number)));
        }
        let cleanup = Parameter::gauge("job_cleanup_interval", Unit::Seconds, || {
            self.cleanup_s.load(Ordering::Relaxed)
        });
        tree.of_device(cleanup.settable("write a number of seconds, 0 for never", |text: &str| {
            let seconds = text.trim().parse().map_err(|_| proto::Code::Invalid)?;
            self.cleanup_s.store(seconds, Ordering::Relaxed);
            Ok(())
        }));
    }

    /// A job that is not there is gone already.
    fn remove(&self, text: &str) {
        let mut table = self.table.lock();
        match text {
            CLEAR => table.jobs.clear(),
            name => drop(table.jobs.remove(&JobId::named(name.as_bytes()))),
        }
    }

    fn part(&self, stats: &Stats, part: usize) -> String {
        let table = self.table.lock();
        let jobs = table.jobs.iter().skip(part * PART_JOBS).take(PART_JOBS);
        let mut text = if part == 0 { "job_stats:\n".to_owned() } else { String::new() };
        jobs.for_each(|(id, job)| job.print(*id, stats, &mut text));
        text.truncate(text.trim_end().len());
        text
    }
}

impl Table {
    /// The counts of a job that is seen now.
    fn job(
        &mut self,
        id: JobId,
        stats: &Stats,
        (now, now_s): (Time, i64),
        cleanup: Option<Duration>,
    ) -> &mut Job {
        if !self.jobs.contains_key(&id) {
            self.sweep(now, cleanup);
            if self.jobs.len() >= JOBS_MAX {
                self.make_room();
            }
        }
        let job = self.jobs.entry(id).or_insert_with(|| Job {
            seen: now,
            seen_s: now_s,
            since_s: now_s,
            tally: Tally::new(stats),
        });
        (job.seen, job.seen_s) = (now, now_s);
        job
    }

    /// Drops those that were not seen for `cleanup`. As in Lustre, half that time lies between two looks.
    fn sweep(&mut self, now: Time, cleanup: Option<Duration>) {
        let Some(cleanup) = cleanup else { return };
        if now - self.swept >= cleanup / 2 {
            self.swept = now;
            self.jobs.retain(|_, job| now - job.seen < cleanup);
        }
    }

    fn make_room(&mut self) {
        let mut seen: Vec<(Time, JobId)> = self.jobs.iter().map(|(id, job)| (job.seen, *id)).collect();
        seen.sort_unstable();
        seen.iter().take(ROOM_JOBS).for_each(|(_, id)| drop(self.jobs.remove(id)));
    }
}

impl Job {
    fn print(&self, id: JobId, stats: &Stats, text: &mut String) {
        let mut line = |mark: &str, name: &str, value: &str| {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{mark}{:<NAME_WIDTH$}{value}", format!("{name}:"));
        };
        line("- ", "job_id", &quoted(id));
        line("  ", "snapshot_time", &self.seen_s.to_string());
        line("  ", "start_time", &self.since_s.to_string());
        line("  ", "elapsed_time", &self.seen_s.saturating_sub(self.since_s).to_string());
        for (name, unit, sums) in self.tally.rows(stats) {
            line("  ", name, &sums.braces(unit));
        }
    }
}

/// As YAML takes it.
fn quoted(id: JobId) -> String {
    format!("\"{}\"", id.as_str().replace('\\', "\\x5c").replace('"', "\\x22"))
}

#[cfg(test)]
mod tests {
    use proto::parameters::Tree;
    use proto::wire::messages::{Link, Operation, ReadParameters, Write};
    use proto::{Code, TargetId};
    use rt::sim::{Options, Sim};

    use super::*;

    const STATS: Stats = Stats {
        name: "stats",
        moves_data: true,
        rows: &[("link", &[(Link::OPCODE, 0)]), ("write", &[(Write::OPCODE, 0)]), ("more", &[])],
        own: &["more"],
    };

    fn check<F: Future<Output = ()>>(test: impl FnOnce(Rt, Jobs) -> F) {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt("server");
        sim.run(async { test(rt.clone(), Jobs::new(Some(&STATS))).await });
    }

    fn note(jobs: &Jobs, rt: &Rt, job: &str, opcode: u16, bytes: u64) {
        jobs.done(JobId::named(job.as_bytes()), rt, (&(opcode, 0).into(), Duration::ZERO), [0, bytes]);
    }

    fn tree<'a>(jobs: &'a Jobs, rt: &'a Rt, pattern: &str, names_only: bool, skip: u32) -> Tree<'a> {
        let read = ReadParameters { patterns: vec![pattern.to_owned()], skip, names_only };
        let mut tree = TargetTree::new("w", TargetId::ost(0), Tree::new(&read).expect("it is short"));
        jobs.parameters(rt, &mut tree);
        tree.into_tree()
    }

    fn text(jobs: &Jobs, rt: &Rt) -> String {
        let (mut values, mut more) = (Vec::new(), true);
        while more {
            let page = tree(jobs, rt, "*.job_stats", false, values.len() as u32).page();
            more = page.more;
            values.extend(page.parameters.into_iter().map(|one| one.value));
        }
        values.join("\n")
    }

    fn set(jobs: &Jobs, rt: &Rt, name: &str, value: &str) -> Result<(), Code> {
        let mut found = tree(jobs, rt, &format!("*.{name}"), true, 0).found()?;
        assert_eq!(found.len(), 1, "there is one to be set");
        found.remove(0).set(value)?
    }

    fn names(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix("- job_id:          ")).collect()
    }

    #[test]
    fn what_was_asked_for_is_summed_up_by_job() {
        check(|rt, jobs| async move {
            assert_eq!(text(&jobs, &rt), "job_stats:");
            for bytes in [4096, 100] {
                note(&jobs, &rt, "dd.0", Write::OPCODE, bytes);
            }
            note(&jobs, &rt, "a\"\\", Link::OPCODE, 0);
            let now = rt.wall().secs;
            let times = format!("  snapshot_time:   {now}\n  start_time:      {now}\n  elapsed_time:    0\n");
            let nothing = "{ samples:           0, unit: bytes, min:       0, max:       0, sum:               0, sumsq:                  0 }";
            let none = nothing.replace("bytes", "usecs");
            let one = none.replace("samples:           0", "samples:           1");
            let two = none.replace("samples:           0", "samples:           2");
            assert_eq!(
                text(&jobs, &rt),
                format!(
                    "job_stats:\n- job_id:          \"a\\x22\\x5c\"\n{times}  read_bytes:      {nothing}\n  write_bytes:     {nothing}\n  \
                     link:            {one}\n  write:           {none}\n\
                     - job_id:          \"dd.0\"\n{times}  read_bytes:      {nothing}\n  write_bytes:     {{ samples:           2, \
                     unit: bytes, min:     100, max:    4096, sum:            4196, sumsq:           16787216 }}\n  \
                     link:            {none}\n  write:           {two}"
                )
            );
            assert_eq!(set(&jobs, &rt, "job_stats", "dd.0\n"), Ok(()));
            assert_eq!(names(&text(&jobs, &rt)), ["\"a\\x22\\x5c\""]);
            assert_eq!(set(&jobs, &rt, "job_stats", "clear"), Ok(()));
            assert_eq!(text(&jobs, &rt), "job_stats:");
        });
    }

    #[test]
    fn jobs_go_that_ask_for_nothing() {
        check(|rt, jobs| async move {
            let pass = async |seconds| rt.sleep(Duration::from_secs(seconds)).await;
            note(&jobs, &rt, "old", Write::OPCODE, 1);
            pass(590).await;
            note(&jobs, &rt, "new", Write::OPCODE, 1);
            pass(300).await;
            assert_eq!(names(&text(&jobs, &rt)), ["\"new\""]);
            assert_eq!(set(&jobs, &rt, "job_cleanup_interval", "0"), Ok(()));
            pass(10_000).await;
            assert_eq!(names(&text(&jobs, &rt)), ["\"new\""]);
            assert_eq!(set(&jobs, &rt, "job_cleanup_interval", "60"), Ok(()));
            assert_eq!(names(&text(&jobs, &rt)), [""; 0]);
            assert_eq!(set(&jobs, &rt, "job_cleanup_interval", "soon"), Err(Code::Invalid));
        });
    }

    /// More than there is room for: those go that were not seen for longest, and the rest is shown in parts.
    #[test]
    fn jobs_are_bounded_and_all_of_them_shown() {
        check(|rt, jobs| async move {
            for number in 0..=JOBS_MAX {
                note(&jobs, &rt, &format!("job{number:05}"), Write::OPCODE, 1);
                note(&jobs, &rt, "always", Write::OPCODE, 1);
                rt.sleep(Duration::from_millis(1)).await;
            }
            let all = text(&jobs, &rt);
            let names = names(&all);
            assert!((JOBS_MAX - 2 * ROOM_JOBS..=JOBS_MAX).contains(&names.len()), "{}", names.len());
            assert!(names.contains(&"\"always\"") && names.contains(&"\"job04096\""));
            assert!(!names.contains(&"\"job00000\""));
            assert!(
                names.is_sorted() && all.lines().count() == 1 + names.len() * 8,
                "{}",
                all.lines().count()
            );
        });
    }
}
