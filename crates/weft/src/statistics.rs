//! What values of parameters say, in Lustre's formats. Lines that mean nothing here are left out: a newer server may say more.

use std::collections::BTreeMap;

/// How often something was done, and the sizes or times of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Samples {
    /// How often.
    pub count: u64,
    /// The least of them.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// All together.
    pub sum: u64,
}

impl Samples {
    /// Adds those of another.
    pub fn add(&mut self, other: &Samples) {
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// Samples by the names of what was done.
pub type Table = BTreeMap<String, Samples>;

/// `stats`: `read_bytes   6 samples [bytes] 4096 1048576 6291456 ...`.
pub fn stats(text: &str) -> Table {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, count) = (words.next()?, words.next()?.parse().ok()?);
        if words.next()? != "samples" {
            return None;
        }
        let mut numbers = words.skip(1).map_while(|word| word.parse().ok());
        let mut next = || numbers.next().unwrap_or(0);
        Some((name.to_owned(), Samples { count, min: next(), max: next(), sum: next() }))
    };
    text.lines().filter_map(row).collect()
}

/// `job_stats`: the table of each job.
pub fn jobs(text: &str) -> BTreeMap<String, Table> {
    let mut jobs: BTreeMap<String, Table> = BTreeMap::new();
    let mut job = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name == "- job_id" {
            job = Some(value.trim_matches('"').to_owned());
        } else if let (Some(job), Some(samples)) = (&job, braced(value)) {
            jobs.entry(job.clone()).or_default().insert(name.trim().to_owned(), samples);
        }
    }
    jobs
}

/// `{ samples: 52, unit: usecs, min: 1, max: 9, sum: 99, ...`.
fn braced(value: &str) -> Option<Samples> {
    let fields = value.strip_prefix('{')?.trim_end_matches('}').split(',');
    let fields: BTreeMap<&str, &str> = fields
        .filter_map(|field| field.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let number = |name: &str| fields.get(name)?.parse().ok();
    let or_0 = |name: &str| number(name).unwrap_or(0);
    Some(Samples { count: number("samples")?, min: or_0("min"), max: or_0("max"), sum: or_0("sum") })
}

/// A row of a table of `brw_stats`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Heading of the table, as far as the first word of its columns.
    pub table: String,
    /// Sizes, counts or times of this row, up to which it goes.
    pub size: u64,
    /// How often, in reads and in writes.
    pub counts: [u64; 2],
}

/// `brw_stats`: tables with a heading, and rows as `256:   6 100 100   |    6 100 100`.
pub fn buckets(text: &str) -> Vec<Bucket> {
    let (mut table, mut all) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some((heading, _)) = line.split_once("% cum %") {
            let words: Vec<&str> = heading.split_whitespace().collect();
            // The last word says what is counted.
            table = words.split_last().map_or(String::new(), |(_, name)| name.join(" "));
        } else if let Some((size, counts)) = line.split_once(':')
            && let (Some(size), Some((read, write))) = (scaled(size.trim()), counts.split_once('|'))
        {
            let first = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
            let counts = [first(read).unwrap_or(0), first(write).unwrap_or(0)];
            all.push(Bucket { table: table.clone(), size, counts });
        }
    }
    all
}

/// `4`, `4K`, `1M`.
fn scaled(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `NAME: VALUE` lines.
pub fn lines(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect()
}

/// `4/8`, or `4` alone.
pub fn fraction(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once('/') {
        Some((part, whole)) => Some((part.parse().ok()?, Some(whole.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    }
}

/// A reader of a changelog: its name, what it has cleared, and for how many seconds it has been idle.
pub type Reader<'a> = (&'a str, u64, u64);

/// The readers of `changelog_users`: `cl1   123 (45)`.
pub fn readers(text: &str) -> Vec<Reader<'_>> {
    let row = |line| {
        let mut words = str::split_whitespace(line);
        let (name, index) = (words.next()?, words.next()?.parse().ok()?);
        let idle = words.next()?.strip_prefix('(')?.strip_suffix(')')?.parse().ok()?;
        Some((name, index, idle))
    };
    text.lines().filter_map(row).collect()
}

/// What an owner has of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Number of the user, group or project.
    pub id: u32,
    /// Its files.
    pub inodes: u64,
    /// Its space, in KiB.
    pub kbytes: u64,
}

/// The owners of `quota_slave.acct_user` and its like.
pub fn accounts(text: &str) -> impl Iterator<Item = Account> + '_ {
    let mut id = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(number) = line.strip_prefix("- id:") {
            id = number.trim().parse().ok();
            return None;
        }
        let usage = line.strip_prefix("usage:")?;
        let number = |name: &str| {
            let (_, rest) = usage.split_once(name)?;
            rest.split([',', '}']).next()?.trim().parse().ok()
        };
        Some(Account { id: id.take()?, inodes: number("inodes:")?, kbytes: number("kbytes:")? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_as_they_are_printed() {
        let text = "usr_accounting:\n\
            - id:      0\n  usage:   { inodes:                  209, kbytes:                 2616 }\n\
            - id:      840000038\n  usage:   { inodes:                    1, kbytes:                 1048 }\n\
            - id:      x\n  usage:   { inodes:                    1, kbytes:                 1048 }";
        let account = |id, inodes, kbytes| Account { id, inodes, kbytes };
        assert_eq!(Vec::from_iter(accounts(text)), [account(0, 209, 2616), account(840_000_038, 1, 1048)]);
        assert_eq!(accounts("usr_accounting:").count(), 0);
    }

    #[test]
    fn rows_of_stats() {
        let table = stats(
            "snapshot_time             1795637066.66 secs.nsecs\n\
             read_bytes                6 samples [bytes] 4096 1048576 6291456 6597069766656\n\
             ping                      2 samples [reqs]\nnonsense",
        );
        let read = Samples { count: 6, min: 4096, max: 1_048_576, sum: 6_291_456 };
        let ping = Samples { count: 2, ..Samples::default() };
        assert_eq!(table, Table::from([("read_bytes".into(), read), ("ping".into(), ping)]));
    }

    #[test]
    fn jobs_have_tables() {
        let jobs = jobs(
            "job_stats:\n- job_id:          \"dd.0\"\n  snapshot_time:   7\n  \
             write_bytes:     { samples:           7, unit: bytes, min:       1, max:       9, sum:              30, sumsq: 4 }\n\
             - job_id:          a:b\n  open:            { samples: 2, unit: usecs, min: 3, max: 4, sum: 7, sumsq: 25 }",
        );
        let write = Samples { count: 7, min: 1, max: 9, sum: 30 };
        assert_eq!(jobs["dd.0"], Table::from([("write_bytes".into(), write)]));
        assert_eq!(jobs["a:b"]["open"].count, 2);
        assert_eq!(jobs.len(), 2);
    }

    #[test]
    fn rows_of_brw_stats() {
        let found = buckets(
            "snapshot_time:            1795637066.67 secs.nsecs\n\n                           read      |     write\n\
             pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %\n256:\t\t         6 100 100   |    7 100 100\n\n\
             disk I/O size          ios   % cum % |  ios         % cum %\n4K:\t\t         0   0   0   |    1  12  12\n",
        );
        let bucket = |table: &str, size, counts| Bucket { table: table.into(), size, counts };
        assert_eq!(found, [bucket("pages per bulk r/w", 256, [6, 7]), bucket("disk I/O size", 4096, [0, 1])]);
    }

    #[test]
    fn readers_and_fractions() {
        let text = "current_index: 9\nID    index (idle seconds)\ncl1   7 (45)";
        assert_eq!(readers(text), [("cl1", 7, 45)]);
        assert_eq!(lines(text)["current_index"], "9");
        assert_eq!(
            (fraction("3/8"), fraction("3"), fraction("x")),
            (Some((3, Some(8))), Some((3, None)), None)
        );
    }

    #[test]
    fn samples_add_up() {
        let mut sum = Samples::default();
        sum.add(&Samples { count: 2, min: 3, max: 4, sum: 7 });
        sum.add(&Samples { count: 1, min: 1, max: 1, sum: 1 });
        assert_eq!(sum, Samples { count: 3, min: 1, max: 4, sum: 8 });
    }
}
