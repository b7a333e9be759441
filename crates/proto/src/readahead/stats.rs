//! Lustre's `read_ahead_stats`: what is counted, and how it is printed.

/// What is counted, in Lustre's order (`enum ra_stat`). The comment says what it means here; the unit of all is "pages", also where
/// events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Pages of reads that had been asked for ahead. Hits and misses together are the pages that were read: a page that two reads
    /// in sequence share counts once.
    Hits,
    /// Pages of reads that had not, or not as a whole.
    Misses,
    /// Reads that do not begin where, or a little behind where, one before ended; the steps of a stride are among them.
    NotConsecutive,
    /// Misses of pages that had been asked for and were lost again.
    MissInsideWindow,
    /// Ranges for which the client had no memory.
    NoMemory,
    /// Ranges for which the client had no lock.
    NoLock,
    /// Pages that were fetched, or being fetched, and that nobody read.
    Discarded,
    /// Reads of an empty file.
    ZeroLength,
    /// Reads after which nothing is to be read ahead, for no pattern is known.
    ZeroWindow,
    /// Decisions that reached the end of the file.
    ToEof,
    /// Decisions that were cut because the mount or the file has no room for more.
    HitMax,
    /// Always zero: there is no page cache that could give the page of another file.
    WrongPage,
    /// Decisions that could not be carried out as a whole: no room, or a request that failed.
    FailedToReachEnd,
    /// Decisions to fetch something. All are carried out while the reader goes on.
    Async,
    /// Reads that had to wait: something of them had not been asked for, or had not arrived.
    FailedFastRead,
    /// Always zero: what the kernel reads for a mapping cannot be told from what it reads for a program.
    MmapRangeRead,
    /// Pages of each decision to fetch something.
    ReadaheadPages,
    /// Pages of each read while read-ahead is off. These are neither hits nor misses.
    ForcereadPages,
}

/// Each with the name that Lustre prints.
const COUNTERS: [(Counter, &str); 18] = [
    (Counter::Hits, "hits"),
    (Counter::Misses, "misses"),
    (Counter::NotConsecutive, "readpage_not_consecutive"),
    (Counter::MissInsideWindow, "miss_inside_window"),
    (Counter::NoMemory, "failed_grab_cache_page"),
    (Counter::NoLock, "failed_lock_match"),
    (Counter::Discarded, "read_but_discarded"),
    (Counter::ZeroLength, "zero_length_file"),
    (Counter::ZeroWindow, "zero_size_window"),
    (Counter::ToEof, "readahead_to_eof"),
    (Counter::HitMax, "hit_max_readahead_issue"),
    (Counter::WrongPage, "wrong_page_from_grab_cache_page"),
    (Counter::FailedToReachEnd, "failed_to_reach_end"),
    (Counter::Async, "async_readahead"),
    (Counter::FailedFastRead, "failed_to_fast_read"),
    (Counter::MmapRangeRead, "mmap_range_read"),
    (Counter::ReadaheadPages, "readahead_pages"),
    (Counter::ForcereadPages, "forceread_pages"),
];

/// A count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampled {
    /// How often; for most counters this is all.
    pub samples: u64,
    /// The smallest, in pages.
    pub min: u64,
    /// The largest, in pages.
    pub max: u64,
    /// All together, in pages.
    pub sum: u64,
}

/// How wide the column of names is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 35: Lustre since 2.16.
    Current,
    /// 25: Lustre before. Longer names move what follows them.
    Older,
}

/// All counts of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    counts: [Sampled; COUNTERS.len()],
}

impl Stats {
    /// Counts begin anew (a write of 0 to `read_ahead_stats`).
    pub fn clear(&mut self) {
        *self = Stats::default();
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> Sampled {
        self.counts.get(counter as usize).copied().unwrap_or_default()
    }

    /// Lustre's name of each, and its count, in Lustre's order.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Sampled)> + '_ {
        COUNTERS.iter().map(|(counter, name)| (*name, self.get(*counter)))
    }

    /// It happened `times` times more.
    pub(super) fn add(&mut self, counter: Counter, times: u64) {
        if let Some(count) = self.counts.get_mut(counter as usize) {
            count.samples += times;
        }
    }

    /// It happened once more, to so many pages.
    pub(super) fn sample(&mut self, counter: Counter, pages: u64) {
        let Some(count) = self.counts.get_mut(counter as usize) else { return };
        count.min = if count.samples == 0 { pages } else { count.min.min(pages) };
        count.max = count.max.max(pages);
        count.sum += pages;
        count.samples += 1;
    }

    /// What `lctl get_param` prints behind the name (Lustre's `lprocfs_stats_seq_show`): three lines of time, then what is not zero.
    /// Times are nanoseconds since 1970: now, and when counting began.
    pub fn print(&self, now_ns: u64, since_ns: u64, width: Width) -> String {
        let width = match width {
            Width::Current => 35,
            Width::Older => 25,
        };
        let times = [
            ("snapshot_time", now_ns),
            ("start_time", since_ns),
            ("elapsed_time", now_ns.saturating_sub(since_ns)),
        ];
        let time = |(name, ns): (&str, u64)| {
            format!("{name:<width$} {}.{:09} secs.nsecs\n", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        let mut text: String = times.into_iter().map(time).collect();
        for (counter, name) in COUNTERS {
            let Sampled { samples, min, max, sum } = self.get(counter);
            if samples == 0 {
                continue;
            }
            text += &format!("{name:<width$} {samples} samples [pages]");
            if matches!(counter, Counter::ReadaheadPages | Counter::ForcereadPages) {
                text += &format!(" {min} {max} {sum}");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each, in an order that is not Lustre's.
    fn full() -> Stats {
        let mut stats = Stats::default();
        for (at, (counter, _)) in COUNTERS.into_iter().enumerate().rev() {
            match counter {
                Counter::ReadaheadPages | Counter::ForcereadPages => {
                    [256, 12, 1024].into_iter().for_each(|pages| stats.sample(counter, pages));
                }
                _ => stats.add(counter, 10 + at as u64),
            }
        }
        stats
    }

    #[test]
    fn all_counters_print_as_lustre_prints_them() {
        let text = full().print(1_795_372_938_827_610_837, 1_795_372_938_027_701_436, Width::Current);
        let golden = "\
snapshot_time                       1795372938.827610837 secs.nsecs
start_time                          1795372938.027701436 secs.nsecs
elapsed_time                        0.799909401 secs.nsecs
hits                                10 samples [pages]
misses                              11 samples [pages]
readpage_not_consecutive            12 samples [pages]
miss_inside_window                  13 samples [pages]
failed_grab_cache_page              14 samples [pages]
failed_lock_match                   15 samples [pages]
read_but_discarded                  16 samples [pages]
zero_length_file                    17 samples [pages]
zero_size_window                    18 samples [pages]
readahead_to_eof                    19 samples [pages]
hit_max_readahead_issue             20 samples [pages]
wrong_page_from_grab_cache_page     21 samples [pages]
failed_to_reach_end                 22 samples [pages]
async_readahead                     23 samples [pages]
failed_to_fast_read                 24 samples [pages]
mmap_range_read                     25 samples [pages]
readahead_pages                     3 samples [pages] 12 1024 1292
forceread_pages                     3 samples [pages] 12 1024 1292
";
        assert_eq!(text, golden);
    }

    #[test]
    fn the_older_column_is_25_wide_and_zeros_are_left_out() {
        let mut stats = Stats::default();
        stats.add(Counter::Hits, 33_616_605);
        stats.add(Counter::Misses, 4_444_696);
        stats.add(Counter::WrongPage, 1);
        let golden = "\
snapshot_time             7.000000001 secs.nsecs
start_time                7.000000001 secs.nsecs
elapsed_time              0.000000000 secs.nsecs
hits                      33616605 samples [pages]
misses                    4444696 samples [pages]
wrong_page_from_grab_cache_page 1 samples [pages]
";
        assert_eq!(stats.print(7_000_000_001, 7_000_000_001, Width::Older), golden);
        stats.clear();
        assert_eq!(stats, Stats::default());
    }

    #[test]
    fn each_counter_has_its_place() {
        for (at, (counter, _)) in COUNTERS.into_iter().enumerate() {
            assert_eq!(counter as usize, at);
        }
    }
}
