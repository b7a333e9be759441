//! `lljobstat`: the jobs that ask most of the targets that are reached from here, in the format of Lustre's tool of that name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;

use crate::failure::{Failure, Outcome, exit};
use crate::lctl;
use crate::lctl::reach::Reach;
use crate::{statistics, usage};

/// Short names of operations, and those of `job_stats`, in the order in which they are printed. `samedir_rename` and
/// `crossdir_rename` are left out: they count what `rename` does.
const OPERATIONS: &[(&str, &str)] = &[
    ("cr", "create"),
    ("op", "open"),
    ("cl", "close"),
    ("mn", "mknod"),
    ("ln", "link"),
    ("ul", "unlink"),
    ("mk", "mkdir"),
    ("rm", "rmdir"),
    ("mv", "rename"),
    ("ga", "getattr"),
    ("sa", "setattr"),
    ("gx", "getxattr"),
    ("sx", "setxattr"),
    ("st", "statfs"),
    ("sy", "sync"),
    ("rd", "read"),
    ("wr", "write"),
    ("pu", "punch"),
    ("mi", "migrate"),
    ("fa", "fallocate"),
    ("dt", "destroy"),
    ("gi", "get_info"),
    ("si", "set_info"),
    ("qc", "quotactl"),
    ("pa", "prealloc"),
];

/// Print the jobs that ask most of the servers.
#[derive(Parser)]
#[command(name = "lljobstat", version)]
struct Arguments {
    /// How many jobs
    #[arg(short, long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Seconds between two tables
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
    /// How many tables [default: one after the other until it is interrupted]
    #[arg(short = 'n', long, value_name = "COUNT")]
    repeats: Option<u32>,
    /// The parameters that are read; * stands for anything
    #[arg(long, value_name = "PATTERN", default_value = "*.*.job_stats")]
    param: String,
    /// Only what OSTs count
    #[arg(long, conflicts_with_all = ["mdt", "param"])]
    ost: bool,
    /// Only what MDTs count
    #[arg(long, conflicts_with = "param")]
    mdt: bool,
    /// The servers' key: ask the servers of every file system that is mounted here, too
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// How often a job did what, by the names of `job_stats`.
type Counts = BTreeMap<String, u64>;

/// The program called as `lljobstat`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    match usage::parse(arguments) {
        Ok(arguments) => exit("lljobstat", run(&arguments)),
        Err(status) => status,
    }
}

fn run(arguments: &Arguments) -> Outcome {
    let pattern = match (arguments.ost, arguments.mdt) {
        (true, _) => "obdfilter.*.job_stats",
        (_, true) => "mdt.*.job_stats",
        _ => &arguments.param,
    };
    let interval = Duration::from_secs(u64::from(arguments.interval));
    let mut next = Instant::now();
    let mut reach = Reach::new(arguments.key.as_deref())?;
    for number in 0.. {
        if arguments.repeats.is_some_and(|repeats| number >= repeats) {
            break;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += interval;
        if number > 0 {
            reach.look_again(arguments.key.as_deref())?;
        }
        let values = lctl::params::values(&mut reach, pattern)?;
        if number == 0 && values.is_empty() {
            return Err(Failure::new(format!(
                "{pattern}: no target that is reached from here has job statistics: run this on a server's host, as root"
            )));
        }
        let mut jobs = BTreeMap::new();
        values.iter().for_each(|text| add(&mut jobs, text));
        crate::out::print(table(&jobs, now_s(), arguments.count as usize));
    }
    Ok(0)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Adds what one target counts, as its `job_stats` says it.
fn add(jobs: &mut BTreeMap<String, Counts>, text: &str) {
    for (job, table) in statistics::jobs(text) {
        let counts = jobs.entry(job).or_default();
        for (name, samples) in table {
            *counts.entry(name).or_default() += samples.count;
        }
    }
}

/// The jobs with the most operations first.
fn table(jobs: &BTreeMap<String, Counts>, now_s: u64, count: usize) -> String {
    let of = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let all = |counts: &Counts| OPERATIONS.iter().map(|(_, name)| of(counts, name)).sum::<u64>();
    let mut top: Vec<(u64, &String, &Counts)> =
        jobs.iter().map(|(job, counts)| (all(counts), job, counts)).filter(|(ops, ..)| *ops > 0).collect();
    top.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let mut text = format!("---\ntimestamp: {now_s}\ntop_jobs:\n");
    for (ops, job, counts) in top.into_iter().take(count) {
        text.push_str(&format!("- {:<17}{{ops: {ops}", format!("{job}:")));
        for (short, name) in OPERATIONS {
            match of(counts, name) {
                0 => {}
                some => text.push_str(&format!(", {short}: {some}")),
            }
        }
        text.push_str("}\n");
    }
    text.push_str("...\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MDT: &str = "job_stats:
- job_id:          \"rm.0\"
  snapshot_time:   1665623345
  open:            { samples:           0, unit: usecs, min:       0, max:       0, sum:               0, sumsq:                  0 }
  close:           { samples:          32, unit: usecs, min:       1, max:       9, sum:              99, sumsq:                999 }
  rename:          { samples:           1, unit: usecs, min:       1, max:       1, sum:               1, sumsq:                  1 }
  samedir_rename:  { samples:           1, unit: usecs, min:       1, max:       1, sum:               1, sumsq:                  1 }
- job_id:          \"4711\"
  create:          { samples:          50, unit: usecs, min:       1, max:       9, sum:              99, sumsq:                999 }";
    const OST: &str = "job_stats:
- job_id:          \"4711\"
  write_bytes:     { samples:           7, unit: bytes, min:       1, max:       9, sum:              99, sumsq:                999 }
  write:           { samples:           7, unit: usecs, min:       1, max:       9, sum:              99, sumsq:                999 }";

    #[test]
    fn jobs_are_summed_over_targets_in_lustres_words() {
        let mut jobs = BTreeMap::new();
        add(&mut jobs, MDT);
        add(&mut jobs, OST);
        assert_eq!(
            table(&jobs, 1_665_623_345, 5),
            "---\ntimestamp: 1665623345\ntop_jobs:\n- 4711:            {ops: 57, cr: 50, wr: 7}\n\
             - rm.0:            {ops: 33, cl: 32, mv: 1}\n...\n"
        );
        assert_eq!(table(&jobs, 7, 1).lines().count(), 5);
    }

    #[test]
    fn what_is_no_statistic_is_left_out() {
        let mut jobs = BTreeMap::new();
        for text in [
            "",
            "job_stats:",
            "open: { samples: 1, unit: usecs }",
            "- job_id: \"a\"\n  open: { x: 1 }\n  close: 7",
        ] {
            add(&mut jobs, text);
        }
        assert_eq!(table(&jobs, 7, 5), "---\ntimestamp: 7\ntop_jobs:\n...\n");
    }
}
