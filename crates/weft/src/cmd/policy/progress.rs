//! What is said on a terminal while a rule works.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::work::Counts;
use crate::cmd::stage::{bytes_text, time_text};

/// How often it is said.
const INTERVAL: Duration = Duration::from_secs(1);
/// Blanks out the rest of a line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// What is to be done, as far as that is known.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// There may be more.
    pub is_least: bool,
}

/// Says how far the rule is until the other end of `ended` is gone. Rates are those since this began.
pub fn tell(name: &str, counts: &Counts, whole: Whole, ended: &Receiver<()>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let (start, before) = (Instant::now(), seen(counts));
    while matches!(ended.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
        let since = Since { passed: start.elapsed(), before, now: seen(counts) };
        crate::out::say(format_args!("{CLEAR}{name}: {}", line(since, whole)));
    }
    crate::out::say(CLEAR);
}

/// Files and bytes that had their turn.
type Seen = (u64, u64);

struct Since {
    passed: Duration,
    before: Seen,
    now: Seen,
}

fn seen(counts: &Counts) -> Seen {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let files = get(&counts.done) + get(&counts.there) + get(&counts.skipped) + get(&counts.failed);
    (files, get(&counts.bytes))
}

fn line(since: Since, whole: Whole) -> String {
    let (files, bytes) = since.now;
    let seconds = since.passed.as_secs_f64().max(0.001);
    let files_rate = (files - since.before.0) as f64 / seconds;
    let bytes_rate = (bytes - since.before.1) as f64 / seconds;
    let left = |done: u64, all: u64, rate: f64| match rate as u64 {
        _ if all <= done => Some(0),
        0 => None,
        rate => Some((all - done).div_ceil(rate)),
    };
    // Bytes of what was skipped never come.
    let by_files = left(files, whole.files, files_rate);
    let by_bytes = if bytes_rate > 0.0 { left(bytes, whole.bytes, bytes_rate) } else { Some(0) };
    let eta = match (by_files, by_bytes) {
        (Some(0), _) => String::new(),
        (Some(files), Some(bytes)) => format!(", {} left", time_text(files.max(bytes))),
        _ => ", no time can be told".to_owned(),
    };
    let least = if whole.is_least { "at least " } else { "" };
    format!(
        "{files} of {least}{} files, {} of {least}{}, {files_rate:.0} files/s, {}/s{eta}",
        whole.files,
        bytes_text(bytes),
        bytes_text(whole.bytes),
        bytes_text(bytes_rate as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(now: Seen, is_least: bool, expected: &str) {
        let whole = Whole { files: 1000, bytes: 100 << 20, is_least };
        let since = Since { passed: Duration::from_secs(10), before: (100, 10 << 20), now };
        assert_eq!(line(since, whole), expected);
    }

    #[test]
    fn lines() {
        check(
            (200, 20 << 20),
            false,
            "200 of 1000 files, 20.0 MiB of 100.0 MiB, 10 files/s, 1.0 MiB/s, 80 s left",
        );
        // Small files first: the bytes take longer.
        check(
            (600, 20 << 20),
            false,
            "600 of 1000 files, 20.0 MiB of 100.0 MiB, 50 files/s, 1.0 MiB/s, 80 s left",
        );
        check(
            (100, 10 << 20),
            true,
            "100 of at least 1000 files, 10.0 MiB of at least 100.0 MiB, 0 files/s, 0 B/s, no time can be told",
        );
        check((1000, 90 << 20), false, "1000 of 1000 files, 90.0 MiB of 100.0 MiB, 90 files/s, 8.0 MiB/s");
    }
}
