//! `weft stat`: what mounts and targets do, a line for each interval, in collectl's columns.
//!
//! It knows the statistics that it asks for by their names in the tree of parameters (`llite.*.stats`, `obdfilter.*.stats`,
//! `mdt.*.md_stats`), and prints what they grew by.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proto::wire::messages::ReadParameters;

use crate::failure::{Failure, Outcome};
use crate::lctl::reach::Reach;
use crate::mountpoint;

/// Print each second what the mounts and the targets of this machine do. KB are 1,024 bytes, and all columns are for each second.
/// Begins with what happens from now on; ends with -c, or Ctrl-C.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this mount, and the targets of its file system
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: Option<PathBuf>,
    /// Seconds from line to line
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// How many lines are printed [default: no end]
    #[arg(short = 'c', long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Print an object of JSON on each line: bytes and operations of the interval
    #[arg(long)]
    json: bool,
    /// Servers' key: all targets of the file systems that are mounted here are asked, not only those of this machine
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// After so many lines the titles are printed again.
const LINES_PER_TITLE: u64 = 40;
/// How long servers that did not answer are not asked again.
const LOOK_AROUND_AFTER: Duration = Duration::from_secs(10);
const KB: u64 = 1024;

/// What is taken of a row of statistics.
#[derive(Clone, Copy)]
enum Of {
    /// How often.
    Count,
    /// All together, which is bytes.
    Sum,
}

/// A column.
struct Column {
    /// As JSON calls it.
    name: &'static str,
    width: usize,
    of: Of,
    /// The rows that it adds up.
    rows: &'static [&'static str],
}

/// What belongs together.
struct Group {
    /// As JSON calls it.
    name: &'static str,
    titles: [&'static str; 2],
    pattern: &'static str,
    columns: &'static [Column],
}

const fn column(name: &'static str, width: usize, of: Of, rows: &'static [&'static str]) -> Column {
    Column { name, width, of, rows }
}

/// As collectl 4 has them: its plug-ins lustreClient, lustreOSS and lustreMDS.
const GROUPS: [Group; 3] = [
    Group {
        name: "client",
        titles: ["<--------Lustre Client-------->", " KBRead  Reads  KBWrite Writes "],
        pattern: "llite.*.stats",
        columns: &[
            column("read_bytes", 7, Of::Sum, &["read_bytes"]),
            column("reads", 6, Of::Count, &["read_bytes"]),
            column("write_bytes", 8, Of::Sum, &["write_bytes"]),
            column("writes", 6, Of::Count, &["write_bytes"]),
        ],
    },
    Group {
        name: "ost",
        titles: ["<---------Lustre OST--------->", " KBRead  Reads  KBWrit Writes "],
        pattern: "obdfilter.*.stats",
        columns: &[
            column("read_bytes", 7, Of::Sum, &["read_bytes"]),
            column("reads", 6, Of::Count, &["read_bytes"]),
            column("write_bytes", 7, Of::Sum, &["write_bytes"]),
            column("writes", 6, Of::Count, &["write_bytes"]),
        ],
    },
    Group {
        name: "mds",
        titles: ["<-----------Lustre MDS----------->", "Gattr+ Sattr+   Sync  Unlnk Create"],
        pattern: "mdt.*.md_stats",
        columns: &[
            column("getattr", 6, Of::Count, &["getattr", "getxattr"]),
            column("setattr", 6, Of::Count, &["setattr", "setxattr"]),
            column("sync", 6, Of::Count, &["sync"]),
            column("unlink", 6, Of::Count, &["unlink", "rmdir"]),
            column("create", 6, Of::Count, &["create"]),
        ],
    },
];

/// Rows of statistics: how often, and all together.
type Rows = BTreeMap<String, (u64, u64)>;

/// What was told last, by the names of the statistics, and what it has grown by since the beginning.
struct Grown {
    group: &'static Group,
    known: BTreeMap<String, Rows>,
    /// By column.
    totals: Vec<u64>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut reach = look_around(arguments)?;
    let mut looked = Instant::now();
    let mut groups: Vec<Grown> = GROUPS.iter().map(Grown::new).collect();
    sample(&mut reach, &mut groups)?;
    groups.retain(|group| !group.known.is_empty());
    if groups.is_empty() {
        return Err(Failure::new(
            "no weft file system is mounted here, and no target of this machine answers",
        ));
    }
    let interval = Duration::from_secs(u64::from(arguments.interval));
    let mut next = Instant::now() + interval;
    for line in 0..arguments.count.map_or(u64::MAX, u64::from) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += interval;
        let before: Vec<Vec<u64>> = groups.iter().map(|group| group.totals.clone()).collect();
        let is_silent = sample(&mut reach, &mut groups)?;
        if arguments.json {
            out!("{}", json(&groups, &before, arguments.interval));
        } else {
            if line.is_multiple_of(LINES_PER_TITLE) {
                titles(&groups);
            }
            out!("{}", text(&groups, &before, u64::from(arguments.interval)));
        }
        if is_silent && looked.elapsed() >= LOOK_AROUND_AFTER {
            (reach, looked) = (look_around(arguments)?, Instant::now());
        }
    }
    Ok(0)
}

/// Whom to ask.
fn look_around(arguments: &Arguments) -> Result<Reach, Failure> {
    let mut reach = Reach::new(arguments.key.as_deref())?;
    if let Some(path) = &arguments.mountpoint {
        let path = mountpoint::absolute(path)?;
        // Of several that are mounted over each other the last one is seen.
        let mount =
            reach.mounts.iter().rfind(|mount| mount.entry.path == path).cloned().ok_or_else(|| {
                Failure::new(format!("no weft file system that answers is mounted at {}", path.display()))
            })?;
        reach.devices.retain(|device| device.fsname == mount.status.fsname);
        reach.mounts = vec![mount];
    }
    Ok(reach)
}

/// Asks everybody; whether somebody did not answer.
fn sample(reach: &mut Reach, groups: &mut [Grown]) -> Result<bool, Failure> {
    let patterns = groups.iter().map(|group| group.group.pattern.to_owned()).collect::<Vec<_>>();
    let mut is_silent = false;
    for (pattern, group) in patterns.into_iter().zip(groups) {
        let read = ReadParameters { patterns: vec![pattern], skip: 0, names_only: false };
        let mut told = Vec::new();
        for (_, shown) in reach.parameters_of_mounts(&read) {
            told.extend(shown);
        }
        for (_, answer) in reach.parameters_of_targets(&read)? {
            match answer {
                Ok(shown) => told.extend(shown),
                Err(_) => is_silent = true,
            }
        }
        for one in told {
            group.take(one.name, rows(&one.value));
        }
    }
    Ok(is_silent)
}

/// Rows as `lprocfs_stats_seq_show` prints them: `read_bytes 12 samples [bytes] 1 4096 8192 33554432`.
fn rows(text: &str) -> Rows {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, count) = (words.next()?, words.next()?.parse().ok()?);
        let sum = words.nth(4).and_then(|sum| sum.parse().ok()).unwrap_or(0);
        Some((name.to_owned(), (count, sum)))
    };
    text.lines().filter(|line| line.contains(" samples [")).filter_map(row).collect()
}

impl Grown {
    fn new(group: &'static Group) -> Grown {
        Grown { group, known: BTreeMap::new(), totals: vec![0; group.columns.len()] }
    }

    /// Statistics that are told for the first time tell from when on the others count. A count that is smaller than before
    /// has begun anew.
    fn take(&mut self, name: String, rows: Rows) {
        if let Some(before) = self.known.get(&name) {
            for (column, total) in self.group.columns.iter().zip(&mut self.totals) {
                for row in column.rows {
                    let value = |rows: &Rows| {
                        let (count, sum) = rows.get(*row).copied().unwrap_or_default();
                        match column.of {
                            Of::Count => count,
                            Of::Sum => sum,
                        }
                    };
                    let (before, now) = (value(before), value(&rows));
                    *total = total.wrapping_add(now.checked_sub(before).unwrap_or(now));
                }
            }
        }
        self.known.insert(name, rows);
    }
}

fn titles(groups: &[Grown]) {
    for line in 0..2 {
        let titles: Vec<&str> = groups.iter().map(|group| group.group.titles[line]).collect();
        out!("#{}", titles.concat());
    }
}

/// A line. What is cut off a number here is in a later one, so that all lines together say all bytes.
fn text(groups: &[Grown], before: &[Vec<u64>], interval: u64) -> String {
    let mut text = String::new();
    for (group, before) in groups.iter().zip(before) {
        let columns = group.group.columns.iter().zip(before.iter().zip(&group.totals));
        for (column, (before, now)) in columns {
            let unit = match column.of {
                Of::Count => interval,
                Of::Sum => KB * interval,
            };
            text += &format!(" {:>width$}", now / unit - before / unit, width = column.width);
        }
        text.push(' ');
    }
    text.trim_end().to_owned()
}

fn json(groups: &[Grown], before: &[Vec<u64>], interval: u32) -> serde_json::Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut object = serde_json::Map::new();
    object.insert("time".into(), now.as_secs_f64().into());
    object.insert("interval".into(), interval.into());
    for (group, before) in groups.iter().zip(before) {
        let columns = group.group.columns.iter().zip(before.iter().zip(&group.totals));
        let columns = columns.map(|(column, (before, now))| (column.name.to_owned(), (now - before).into()));
        object.insert(group.group.name.into(), serde_json::Value::Object(columns.collect()));
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(reads: u64, bytes: u64) -> Rows {
        rows(&format!(
            "snapshot_time             1783960164.279418700 secs.nsecs\n\
             read_bytes                {reads} samples [bytes] 1 4096 {bytes} 16777216\n\
             read                      {reads} samples [usecs] 2 12215 10099392 1764429274"
        ))
    }

    #[test]
    fn titles_stand_above_their_columns() {
        for group in &GROUPS {
            let width: usize = group.columns.iter().map(|column| column.width + 1).sum();
            let titles = group.titles.map(str::len);
            assert!(titles.iter().all(|len| len.abs_diff(width) <= 1), "{}: {titles:?} {width}", group.name);
        }
    }

    #[test]
    fn rows_are_read_as_they_are_printed() {
        let rows = stats(3, 8192);
        assert_eq!(rows.get("read_bytes"), Some(&(3, 8192)));
        assert_eq!(rows.len(), 2);
    }

    /// All lines together say all bytes, although each of them is cut to KB; what begins anew counts from there.
    #[test]
    fn lines_sum_up_to_all_bytes() {
        let mut group = Grown::new(&GROUPS[0]);
        group.take("llite.a.stats".into(), stats(100, 1_000_000));
        group.take("llite.b.stats".into(), stats(1, 1));
        let (mut all, mut bytes) = (0, 1_000_000);
        for n in 1..=10 {
            let before = group.totals.clone();
            bytes += 1500;
            group.take("llite.a.stats".into(), stats(100 + n, bytes));
            let line = text(std::slice::from_ref(&group), &[before], 1);
            let mut words = line.split_whitespace();
            all += words.next().and_then(|kb| kb.parse::<u64>().ok()).expect("a number");
            assert_eq!(words.next(), Some("1"));
        }
        assert_eq!(all, 15_000 / KB);
        group.take("llite.a.stats".into(), stats(2, 500));
        assert_eq!(group.totals, [15_500, 12, 0, 0]);
        let told = json(std::slice::from_ref(&group), &[vec![15_000, 10, 0, 0]], 1);
        assert_eq!(told["client"]["read_bytes"], 500);
    }

    #[test]
    fn a_line_looks_as_collectls() {
        let mut group = Grown::new(&GROUPS[1]);
        group.totals = vec![4096 * KB, 4, 0, 0];
        assert_eq!(text(&[group], &[vec![0; 4]], 1), "    4096      4       0      0");
    }
}
