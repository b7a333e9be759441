//! `weft load`: how busy the servers of MDTs were, hour by hour, in the table of the K computer's evaluation (LUG 2015, "MDS CPU Load
//! Comparison"): the average, and how often a day it was above 50 and 70 percent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use proto::TargetKind;
use proto::time::{begin_of, civil};
use proto::wire::messages::ReadParameters;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::lctl::reach::Reach;
use crate::mountpoint;

/// Show how busy the servers of MDTs were: on average, and in how many hours a day above 50 and 70 percent. Times are UTC.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the MDTs of the file system that is mounted here
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: Option<PathBuf>,
    /// Compare what was before and after; may be given several times [default: the last day, week and month]
    #[arg(long, value_name = "YYYY-MM-DD[THH]", value_parser = moment, conflicts_with = "hours")]
    split: Vec<i64>,
    /// Leave out what was before
    #[arg(long, value_name = "YYYY-MM-DD[THH]", value_parser = moment)]
    since: Option<i64>,
    /// Leave out what was from then on
    #[arg(long, value_name = "YYYY-MM-DD[THH]", value_parser = moment)]
    until: Option<i64>,
    /// Print each hour instead
    #[arg(long)]
    hours: bool,
    /// Print one object of JSON
    #[arg(long)]
    json: bool,
    /// Servers' key: all MDTs of the file systems that are mounted here are asked, not only those of this machine
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// What is asked for.
const SERIES: &str = "mdt.*.cpu_load_hours.*";
const HOUR_SECS: i64 = 3600;
const DAY_SECS: i64 = 24 * HOUR_SECS;
/// Percent that an hour is counted above.
const ABOVE: [f64; 2] = [50.0, 70.0];

/// An hour of an MDT.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hour {
    /// Since 1970.
    begin: i64,
    /// For so many seconds it was looked.
    seconds: u32,
    /// In percent.
    average: f64,
    /// The busiest ten seconds.
    peak: f64,
}

/// The hours of each MDT, in order.
type Series = BTreeMap<String, Vec<Hour>>;

/// A stretch of time with a name.
#[derive(Debug, PartialEq)]
struct Period {
    name: String,
    from: i64,
    until: i64,
}

/// What a table says of a period.
#[derive(Debug, PartialEq)]
struct Sum {
    hours: f64,
    average: f64,
    /// How many hours a day were above each of [`ABOVE`].
    above: [f64; 2],
    peak: f64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let (from, until) = (arguments.since.unwrap_or(i64::MIN), arguments.until.unwrap_or(i64::MAX));
    if from >= until {
        return Err(Failure::usage("--since has to be before --until"));
    }
    if let Some(key) = &arguments.key {
        // A wrong one is told of, whether there is something to use it for or not.
        crate::keys::read(key)?;
    }
    let (mut series, silent) = read(arguments)?;
    for hours in series.values_mut() {
        hours.retain(|hour| (from..until).contains(&hour.begin));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let periods = periods(&arguments.split, i64::try_from(now.as_secs()).unwrap_or_default());
    if arguments.json {
        out!("{}", in_json(&series, &periods, arguments.hours));
    } else {
        for (at, (name, hours)) in series.iter().enumerate() {
            if at > 0 {
                out!("");
            }
            crate::out::print(if arguments.hours {
                listed(name, hours)
            } else {
                table(name, hours, &periods)
            });
        }
    }
    for name in &silent {
        err!("weft: {name} does not answer; its hours are missing");
    }
    Ok(u8::from(!silent.is_empty()))
}

/// The hours of each MDT that is reached, in order; which do not answer.
fn read(arguments: &Arguments) -> Result<(Series, Vec<String>), Failure> {
    let mut reach = Reach::new(arguments.key.as_deref())?;
    if let Some(path) = &arguments.mountpoint {
        let path = mountpoint::absolute(path)?;
        let mount = reach.mounts.iter().rfind(|mount| mount.entry.path == path).ok_or_else(|| {
            Failure::new(format!("no weft file system that answers is mounted at {}", path.display()))
        })?;
        let fsname = mount.status.fsname.clone();
        reach.devices.retain(|device| device.fsname == fsname);
    }
    reach.devices.retain(|device| device.target.kind == TargetKind::Mdt);
    let read = ReadParameters { patterns: vec![SERIES.to_owned()], skip: 0, names_only: false };
    let (mut series, mut silent) = (BTreeMap::new(), Vec::new());
    for (device, told) in reach.parameters_of_targets(&read)? {
        match told {
            Ok(months) => {
                let lines = months.iter().flat_map(|month| month.value.lines());
                let mut hours: Vec<Hour> = lines.filter_map(parse).collect();
                hours.sort_by_key(|hour| hour.begin);
                series.insert(device.name, hours);
            }
            Err(_) => silent.push(device.name),
        }
    }
    if series.is_empty() && silent.is_empty() {
        return Err(Failure::new(
            "no MDT is served here: run this where one is, or mount the file system and name the servers' key with --key",
        ));
    }
    Ok((series, silent))
}

/// A line of the parameter: `1764194400 3600 12.34 99.20`.
fn parse(line: &str) -> Option<Hour> {
    let mut words = line.split(' ');
    let (begin, seconds) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (average, peak) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Hour { begin, seconds, average, peak })
}

/// A day, or an hour of a day, in seconds since 1970.
fn moment(text: &str) -> Result<i64, String> {
    let wrong = || "write a day as in 2026-11-20, or an hour as in 2026-11-20T14".to_owned();
    let (day, hour) = text.split_once('T').unwrap_or((text, "00"));
    let parts: Vec<&str> = day.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return Err(wrong()) };
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse::<u16>().ok() } else { None }
    };
    let (year, month, day) = (number(year, 4), number(month, 2), number(day, 2));
    let (Some(year), Some(month), Some(day), Some(hour)) = (year, month, day, number(hour, 2)) else {
        return Err(wrong());
    };
    let begin = begin_of((i64::from(year), month as u8, day as u8)).filter(|_| hour < 24);
    begin.map(|begin| begin + i64::from(hour) * HOUR_SECS).ok_or_else(wrong)
}

/// `2026-11-20 14:00`, or the day alone at midnight.
fn named(secs: i64) -> String {
    let ((year, month, day), (hour, _, _)) = civil(secs);
    let day = format!("{year:04}-{month:02}-{day:02}");
    if secs.rem_euclid(DAY_SECS) == 0 { day } else { format!("{day} {hour:02}:00") }
}

/// The columns of a table.
fn periods(splits: &[i64], now: i64) -> Vec<Period> {
    let mut periods = Vec::new();
    let mut add =
        |name: &str, from: i64, until: i64| periods.push(Period { name: name.to_owned(), from, until });
    let mut splits = splits.to_vec();
    splits.sort_unstable();
    splits.dedup();
    match splits.as_slice() {
        [] => {
            for (name, days) in [("last day", 1), ("last 7 days", 7), ("last 30 days", 30)] {
                add(name, now - days * DAY_SECS, i64::MAX);
            }
        }
        [first, ..] => {
            add(&format!("before {}", named(*first)), i64::MIN, *first);
            for (at, from) in splits.iter().enumerate() {
                let until = splits.get(at + 1).copied().unwrap_or(i64::MAX);
                add(&format!("from {}", named(*from)), *from, until);
            }
        }
    }
    add("all", i64::MIN, i64::MAX);
    periods
}

/// `None` if nothing is known of the period.
fn sum(hours: &[Hour], period: &Period) -> Option<Sum> {
    let hours: Vec<&Hour> =
        hours.iter().filter(|hour| (period.from..period.until).contains(&hour.begin)).collect();
    let seconds: f64 = hours.iter().map(|hour| f64::from(hour.seconds)).sum();
    if seconds <= 0.0 {
        return None;
    }
    let busy: f64 = hours.iter().map(|hour| f64::from(hour.seconds) * hour.average).sum();
    let days = seconds / DAY_SECS as f64;
    let above = |percent: f64| hours.iter().filter(|hour| hour.average > percent).count() as f64 / days;
    Some(Sum {
        hours: seconds / HOUR_SECS as f64,
        average: busy / seconds,
        above: ABOVE.map(above),
        peak: hours.iter().map(|hour| hour.peak).fold(0.0, f64::max),
    })
}

/// The rows of a table: what they say, and of a sum.
type Row = (&'static str, fn(&Sum) -> f64);
const ROWS: [Row; 5] = [
    ("Hours", |sum| sum.hours),
    ("Average MDS Load %", |sum| sum.average),
    ("Over 50% times per day", |sum| sum.above[0]),
    ("Over 70% times per day", |sum| sum.above[1]),
    ("Busiest ten seconds %", |sum| sum.peak),
];

fn table(name: &str, hours: &[Hour], periods: &[Period]) -> String {
    let titles: Vec<&str> = [name].into_iter().chain(periods.iter().map(|one| one.name.as_str())).collect();
    let sums: Vec<Option<Sum>> = periods.iter().map(|period| sum(hours, period)).collect();
    let rows = ROWS.map(|(title, of)| {
        let cells =
            sums.iter().map(|sum| sum.as_ref().map_or("-".to_owned(), |sum| format!("{:.2}", of(sum))));
        [title.to_owned()].into_iter().chain(cells).collect()
    });
    crate::table::render(&titles, &rows)
}

fn listed(name: &str, hours: &[Hour]) -> String {
    let row = |hour: &Hour| {
        let ((year, month, day), (clock, _, _)) = civil(hour.begin);
        let begin = format!("{year:04}-{month:02}-{day:02} {clock:02}:00");
        vec![begin, hour.seconds.to_string(), format!("{:.2}", hour.average), format!("{:.2}", hour.peak)]
    };
    let rows: Vec<Vec<String>> = hours.iter().map(row).collect();
    crate::table::render(&[name, "Seconds", "Average %", "Peak %"], &rows)
}

fn in_json(series: &Series, periods: &[Period], hours: bool) -> Value {
    let of_hour = |hour: &Hour| json!({"begin": hour.begin, "seconds": hour.seconds, "average": hour.average, "peak": hour.peak});
    let of_period = |hours: &[Hour], period: &Period| {
        let sum = sum(hours, period);
        let of = |row: fn(&Sum) -> f64| sum.as_ref().map(|sum| (row(sum) * 100.0).round() / 100.0);
        json!({
            "period": period.name, "hours": of(|sum| sum.hours), "average": of(|sum| sum.average),
            "over_50_per_day": of(|sum| sum.above[0]), "over_70_per_day": of(|sum| sum.above[1]),
            "peak": of(|sum| sum.peak),
        })
    };
    let mut targets = serde_json::Map::new();
    for (name, series) in series {
        let told: Vec<Value> = if hours {
            series.iter().map(of_hour).collect()
        } else {
            periods.iter().map(|period| of_period(series, period)).collect()
        };
        targets.insert(name.clone(), told.into());
    }
    targets.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 1_763_596_800;

    fn hour(at: i64, average: f64) -> Hour {
        Hour { begin: DAY + at * HOUR_SECS, seconds: 3600, average, peak: average + 10.0 }
    }

    #[test]
    fn days_and_hours_are_moments() {
        assert_eq!(moment("2025-11-20"), Ok(DAY));
        assert_eq!(moment("2025-11-20T14"), Ok(DAY + 14 * HOUR_SECS));
        assert_eq!((named(DAY), named(DAY + 50_400)), ("2025-11-20".into(), "2025-11-20 14:00".into()));
        for wrong in
            ["", "2025", "2025-11", "2025-02-29", "2025-11-20T24", "2025-11-20T", "+025-11-20", "2025-1-2"]
        {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_an_hour() {
        let read = Hour { begin: 1_764_194_400, seconds: 3600, average: 12.34, peak: 99.2 };
        assert_eq!(parse("1764194400 3600 12.34 99.20"), Some(read));
        assert_eq!(parse("1764194400 3600 12.34"), None);
    }

    /// Two days before and one after: 3 hours above 50 and one above 70 in the first two.
    #[test]
    fn before_and_after_are_compared() {
        let mut hours: Vec<Hour> = (0..72).map(|at| hour(at, if at < 48 { 20.0 } else { 5.0 })).collect();
        for (at, average) in [(3, 50.01), (4, 60.0), (30, 70.5), (31, 50.0)] {
            hours[at].average = average;
        }
        let periods = periods(&[DAY + 2 * DAY_SECS], DAY);
        let names: Vec<&str> = periods.iter().map(|period| period.name.as_str()).collect();
        assert_eq!(names, ["before 2025-11-22", "from 2025-11-22", "all"]);
        let sums: Vec<Sum> = periods.iter().map(|period| sum(&hours, period).expect("hours")).collect();
        assert_eq!((sums[0].above, sums[1].above), ([1.5, 0.5], [0.0, 0.0]));
        assert!((sums[0].average - 23.135).abs() < 0.001 && (sums[1].average - 5.0).abs() < 0.001);
        let text = table("w-MDT0000", &hours, &periods);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "w-MDT0000               before 2025-11-22  from 2025-11-22  all");
        assert_eq!(lines[2], "Average MDS Load %      23.14              5.00             17.09");
        assert_eq!(lines[3], "Over 50% times per day  1.50               0.00             1.00");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let periods = periods(&[], DAY + 2 * DAY_SECS);
        let text = table("w-MDT0000", &[hour(0, 1.0)], &periods);
        let cells: Vec<&str> = text.lines().nth(2).expect("the average").split_whitespace().skip(4).collect();
        assert_eq!(cells, ["-", "1.00", "1.00", "1.00"]);
        assert_eq!(in_json(&BTreeMap::new(), &periods, true), json!({}));
        let series = BTreeMap::from([("w-MDT0000".to_owned(), vec![hour(0, 1.0 / 3.0)])]);
        let told = in_json(&series, &periods, false);
        assert_eq!(
            (&told["w-MDT0000"][0]["average"], &told["w-MDT0000"][3]["average"]),
            (&Value::Null, &json!(0.33))
        );
    }
}
