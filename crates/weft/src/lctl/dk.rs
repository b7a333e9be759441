//! `lctl dk`, `clear` and `mark`: the logs in memory of the processes of this machine.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::processes::{Process, Silence};
use super::reach::Reach;
use crate::failure::{Failure, Outcome};
use crate::log::{DEBUG_LOG, MARK, Page};

/// The log of one process.
struct Fetched {
    process: Process,
    lines: Vec<String>,
    /// The number of the line behind the last one.
    next: u64,
    dropped: u64,
}

/// Prints what the processes have logged, in order of time, or writes it to `file`, and has them forget it.
pub fn fetch(reach: &mut Reach, file: Option<&Path>) -> Outcome {
    let mut status = 0;
    let mut logs = Vec::new();
    for process in reach.processes()? {
        match fetch_one(reach, &process)? {
            Ok(log) => logs.push(log),
            Err(silence) => status = complain("dk", &process, &silence),
        }
    }
    let mut lines: Vec<&String> = logs.iter().flat_map(|log| &log.lines).collect();
    lines.sort_by_key(|line| when(line));
    match file {
        None => crate::out::print_with(|out| write(out, &lines)),
        Some(path) => {
            let created = File::options().write(true).create(true).truncate(true).open(path);
            created.and_then(|file| write(BufWriter::new(file), &lines)).map_err(|error| {
                let why = crate::control::describe(&error);
                Failure::new(format!("{}: {why}; nothing is forgotten", path.display()))
            })?;
        }
    }
    let dropped: u64 = logs.iter().map(|log| log.dropped).sum();
    out!(
        "Debug log: {} lines, {} kept, {dropped} dropped, 0 bad.",
        lines.len() as u64 + dropped,
        lines.len()
    );
    for log in &logs {
        if let Err(silence) = reach.set_process_value(&log.process, DEBUG_LOG, &log.next.to_string())? {
            status = complain("dk", &log.process, &silence);
        }
    }
    Ok(status)
}

fn write(mut out: impl Write, lines: &[&String]) -> io::Result<()> {
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

fn complain(command: &str, process: &Process, silence: &Silence) -> u8 {
    err!("error: {command}: process {}: {}", process.pid, silence.why);
    silence.status
}

/// All that a process has now, page by page. What it logs meanwhile stays for the next time.
fn fetch_one(reach: &mut Reach, process: &Process) -> Result<Result<Fetched, Silence>, Failure> {
    let mut log = Fetched { process: process.clone(), lines: Vec::new(), next: 0, dropped: 0 };
    let mut end = None;
    while end.is_none_or(|end| log.next < end) {
        let text = match reach.process_value(process, &format!("{DEBUG_LOG}.{}", log.next))? {
            Ok(text) => text,
            Err(silence) => return Ok(Err(silence)),
        };
        let page = Page::parse(&text).ok_or_else(|| {
            Failure::new(format!("process {} answers what is no log; is it of another version?", process.pid))
        })?;
        end.get_or_insert(page.end);
        log.dropped = page.dropped;
        log.lines.extend(page.lines);
        if page.next <= log.next {
            break;
        }
        log.next = page.next;
    }
    Ok(Ok(log))
}

/// The time of a line, the fourth of its parts, in microseconds.
fn when(line: &str) -> u64 {
    let time = line.split(':').nth(3).and_then(|time| time.split_once('.'));
    let micros = time.and_then(|(seconds, micros)| {
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)
    });
    micros.unwrap_or(0)
}

/// Has the processes forget what they have logged.
pub fn clear(reach: &mut Reach) -> Outcome {
    tell_all(reach, "clear", DEBUG_LOG, &u64::MAX.to_string())
}

/// Has the processes write a line.
pub fn mark(reach: &mut Reach, text: &str) -> Outcome {
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        format!("{}.{:06}", since.as_secs(), since.subsec_micros())
    };
    let text = if text.is_empty() { now() } else { text.to_owned() };
    tell_all(reach, "mark", MARK, &text)
}

fn tell_all(reach: &mut Reach, command: &str, name: &str, value: &str) -> Outcome {
    let mut status = 0;
    for process in reach.processes()? {
        if let Err(silence) = reach.set_process_value(&process, name, value)? {
            status = complain(command, &process, &silence);
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ordered_by_their_times() {
        let mut lines = [
            "server:info:1.0:1700000001.000002:0:7:7:(a.rs:1:b) later",
            "rpc:info:0.0:1700000001.000001:0:8:8:(a.rs:1:b) between",
            "server:info:1.0:1699999999.999999:0:7:7:(a.rs:1:b) first",
        ];
        lines.sort_by_key(|line| when(line));
        assert!(lines[0].ends_with("first") && lines[1].ends_with("between"));
        assert_eq!(when("nonsense"), 0);
    }
}
