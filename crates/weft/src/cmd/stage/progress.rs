//! What a stager says while it works, and when it is done.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often it is said.
const INTERVAL: Duration = Duration::from_secs(1);
/// Blanks out the rest of a line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// What was done so far, by all streams.
#[derive(Debug, Default)]
pub struct Counts {
    /// Files and links that were copied.
    pub copied: AtomicU64,
    /// Files and links that the target had.
    pub up_to_date: AtomicU64,
    /// Files and links that could not be copied.
    pub failed: AtomicU64,
    /// Bytes that were copied: holes do not count, and what was copied in vain, from a file that was being changed, does.
    pub bytes: AtomicU64,
    /// Bytes of the files that need not be copied any more.
    pub bytes_there: AtomicU64,
}

/// What all of it is.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    /// Files and links.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Says how far the work is, on a terminal, until the other end of `ended` is gone.
pub fn tell(counts: &Counts, whole: Whole, ended: &Receiver<()>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let start = Instant::now();
    while matches!(ended.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
        crate::out::say(format_args!("{CLEAR}{}", line(counts, whole, start.elapsed())));
    }
    crate::out::say(CLEAR);
}

fn line(counts: &Counts, whole: Whole, passed: Duration) -> String {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let files = get(&counts.copied) + get(&counts.up_to_date) + get(&counts.failed);
    let (bytes, there) = (get(&counts.bytes), get(&counts.bytes_there));
    let rate = bytes as f64 / passed.as_secs_f64().max(0.001);
    let left = whole.bytes.saturating_sub(bytes + there);
    let eta = match rate as u64 {
        _ if left == 0 => String::new(),
        0 => ", no time can be told".to_owned(),
        rate => format!(", {} left", time_text(left.div_ceil(rate))),
    };
    format!(
        "{files} of {} files, {} of {}, {}/s{eta}",
        whole.files,
        bytes_text(bytes + there),
        bytes_text(whole.bytes),
        bytes_text(rate as u64)
    )
}

/// Bytes as people read them.
pub fn bytes_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Seconds as people read them.
pub fn time_text(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: u64, passed: u64, expected: &str) {
        let counts = Counts { bytes: bytes.into(), bytes_there: (1 << 20).into(), ..Counts::default() };
        counts.copied.store(3, Ordering::Relaxed);
        let whole = Whole { files: 9, bytes: 101 << 20 };
        assert_eq!(line(&counts, whole, Duration::from_secs(passed)), expected);
    }

    #[test]
    fn lines() {
        check(50 << 20, 10, "3 of 9 files, 51.0 MiB of 101.0 MiB, 5.0 MiB/s, 10 s left");
        check(100 << 20, 10, "3 of 9 files, 101.0 MiB of 101.0 MiB, 10.0 MiB/s");
        check(0, 10, "3 of 9 files, 1.0 MiB of 101.0 MiB, 0 B/s, no time can be told");
        check(1024, 1, "3 of 9 files, 1.0 MiB of 101.0 MiB, 1.0 KiB/s, 28 h 26 min left");
        assert_eq!(time_text(101), "2 min");
    }
}
