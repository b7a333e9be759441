//! How long clients took to come back after a start: `recovery_reconnect_histogram` and `recovery_reconnect_top`, as
//! Lustre 2.18 prints them (`lprocfs_recovery_reconnect_histogram_seq_show`).

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Classes of the histogram: 1, 2, 4, ... seconds.
const CLASSES: usize = 32;
/// The slowest clients that are named.
const TOP_MAX: usize = 10;

/// Who came back, and after how long.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returns {
    /// Clients by the logarithm of their seconds, rounded up.
    classes: [u64; CLASSES],
    /// The last ones, who are the slowest: address and seconds.
    last: VecDeque<(Arc<str>, u64)>,
}

impl Returns {
    /// A client at `nid` has come back `after` the start.
    pub fn note(&mut self, nid: Arc<str>, after: Duration) {
        let seconds = after.as_secs();
        let class = seconds.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(count) = self.classes.get_mut(class) {
            *count += 1;
        }
        if self.last.len() == TOP_MAX {
            self.last.pop_front();
        }
        self.last.push_back((nid, seconds));
    }

    /// Counts anew.
    pub fn clear_classes(&mut self) {
        self.classes = [0; CLASSES];
    }

    /// Names nobody any more.
    pub fn clear_last(&mut self) {
        self.last.clear();
    }

    /// `recovery_reconnect_histogram` of a recovery that began and ended at these seconds since 1970.
    pub fn histogram(&self, began: u64, ended: Option<u64>) -> String {
        let all: u64 = self.classes.iter().sum();
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "recovery_start:  {began}");
        let _ = writeln!(text, "recovery_finish: {}", ended.unwrap_or(0));
        let _ = writeln!(text, "recovery_time:   {}", ended.unwrap_or(began).saturating_sub(began));
        let _ = write!(text, "reconnect_delay_seconds_samples: {all}");
        if all > 0 {
            text.push_str("\nclient_reconnect_histogram:");
        }
        let mut so_far = 0;
        for (class, clients) in self.classes.iter().enumerate() {
            so_far += clients;
            if so_far == 0 {
                continue;
            }
            let (delay, share, sum) = (1u64 << class, clients * 100 / all, so_far * 100 / all);
            let _ = write!(
                text,
                "\n- {{ delay_sec: {delay:3}, clients: {clients:4}, pct: {share:3}, cum_pct: {sum:3} }}"
            );
            if so_far == all {
                break;
            }
        }
        text
    }

    /// `recovery_reconnect_top`.
    pub fn top(&self) -> String {
        let mut text = "client_reconnect_top:".to_owned();
        for (nid, seconds) in self.last.iter().rev() {
            let nid = format!("\"{nid}");
            let _ = write!(text, "\n- {{ nid: {nid:>24}\", delay_sec: {seconds:3} }}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Lustre's manual page, but for a percentage there that the code does not give.
    #[test]
    fn the_histogram_is_lustres() {
        let mut returns = Returns::default();
        let seconds = [(1, 40), (0, 5), (2, 6), (3, 2), (4, 2), (7, 2), (47, 1)];
        for (seconds, clients) in seconds {
            for _ in 0..clients {
                returns.note("192.168.101.7@tcp101".into(), Duration::from_secs(seconds));
            }
        }
        assert_eq!(
            returns.histogram(1_780_002_682, Some(1_780_002_729)),
            "\
recovery_start:  1780002682
recovery_finish: 1780002729
recovery_time:   47
reconnect_delay_seconds_samples: 58
client_reconnect_histogram:
- { delay_sec:   1, clients:   45, pct:  77, cum_pct:  77 }
- { delay_sec:   2, clients:    6, pct:  10, cum_pct:  87 }
- { delay_sec:   4, clients:    4, pct:   6, cum_pct:  94 }
- { delay_sec:   8, clients:    2, pct:   3, cum_pct:  98 }
- { delay_sec:  16, clients:    0, pct:   0, cum_pct:  98 }
- { delay_sec:  32, clients:    0, pct:   0, cum_pct:  98 }
- { delay_sec:  64, clients:    1, pct:   1, cum_pct: 100 }"
        );
        returns.clear_classes();
        assert_eq!(
            returns.histogram(1_780_002_682, None),
            "\
recovery_start:  1780002682
recovery_finish: 0
recovery_time:   0
reconnect_delay_seconds_samples: 0"
        );
    }

    #[test]
    fn the_slowest_are_named_and_no_more_than_ten() {
        let mut returns = Returns::default();
        assert_eq!(returns.top(), "client_reconnect_top:");
        for seconds in 0..12 {
            returns.note(format!("10.0.0.{seconds}@tcp").into(), Duration::from_secs(seconds * 5));
        }
        let top = returns.top();
        let lines: Vec<&str> = top.lines().collect();
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[1], "- { nid:           \"10.0.0.11@tcp\", delay_sec:  55 }");
        assert_eq!(lines[10], "- { nid:            \"10.0.0.2@tcp\", delay_sec:  10 }");
        returns.clear_last();
        assert_eq!(returns.top(), "client_reconnect_top:");
    }
}
