//! Histograms in two columns, of reads and of writes, as Lustre prints them.

use std::fmt::Write;

use super::histogram::Counts;

/// Which classes have a line, and what a line begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// From the first class that has something; class `n` is called `n`. No line if nothing was counted.
    Numbers,
    /// The same; class `n` is called `2^n`, in words as `4K`.
    Powers,
    /// From class 0, which has a line in any case; class `n` is called `2^n`, in digits.
    AllPowers,
    /// The same from class 1; class `n` is called `n`.
    AllFromOne,
    /// The same from class 0, which is called 0; class `n` is called by the smallest value that it has, in units of so much.
    AllFrom(u64),
}

/// Two histograms side by side.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The two lines above the rows, each with its end of line.
    pub head: &'a str,
    /// Which rows there are.
    pub rows: Rows,
    /// How wide the column of what was written is.
    pub width: usize,
    /// How often something was read.
    pub read: Counts,
    /// How often something was written.
    pub write: Counts,
}

impl Table<'_> {
    /// Appends the table: an empty line, its head, its rows.
    pub fn print(&self, text: &mut String) {
        text.push('\n');
        text.push_str(self.head);
        let (reads, writes): (u64, u64) = (self.read.iter().sum(), self.write.iter().sum());
        let skips = matches!(self.rows, Rows::Numbers | Rows::Powers);
        if skips && reads + writes == 0 {
            return;
        }
        let first = usize::from(self.rows == Rows::AllFromOne);
        let (mut read_sum, mut write_sum) = (0, 0);
        let width = self.width;
        for (class, (read, write)) in self.read.iter().zip(&self.write).enumerate().skip(first) {
            read_sum += read;
            write_sum += write;
            if skips && read_sum + write_sum == 0 {
                continue;
            }
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "{}:\t\t{read:10} {:3} {:3}   | {write:width$} {:3} {:3}",
                self.rows.label(class),
                percent(*read, reads),
                percent(read_sum, reads),
                percent(*write, writes),
                percent(write_sum, writes),
            );
            if read_sum == reads && write_sum == writes {
                break;
            }
        }
    }
}

impl Rows {
    fn label(self, class: usize) -> String {
        match (self, class) {
            (Rows::Numbers | Rows::AllFromOne, _) => class.to_string(),
            (Rows::Powers, _) => label(class),
            (Rows::AllPowers, _) => (1u64 << class.min(63)).to_string(),
            (Rows::AllFrom(_), 0) => "0".to_owned(),
            (Rows::AllFrom(unit), _) => (unit << (class - 1).min(63)).to_string(),
        }
    }
}

/// The `class`th power of two in Lustre's words: `512`, `4K`, `1M`.
pub fn label(class: usize) -> String {
    match class {
        0..10 => (1u64 << class).to_string(),
        10..20 => format!("{}K", 1u64 << (class - 10)),
        _ => format!("{}M", 1u64 << class.saturating_sub(20).min(40)),
    }
}

/// Lustre's: rounded down, and 0 of nothing.
fn percent(part: u64, all: u64) -> u64 {
    (part * 100).checked_div(all).unwrap_or(0)
}

/// One histogram in one column, from class 0 (`obd_mod_rpc_stats_seq_show`).
pub fn print_single(head: &str, counts: &Counts, text: &mut String) {
    text.push('\n');
    text.push_str(head);
    let all: u64 = counts.iter().sum();
    let mut sum = 0;
    for (class, count) in counts.iter().enumerate() {
        sum += count;
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{class}:\t\t{count:10} {:3} {:3}", percent(*count, all), percent(sum, all));
        if sum == all {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::{CLASSES, Histogram};
    use super::*;

    #[test]
    fn classes_have_names() {
        assert_eq!((label(7), label(12), label(31)), ("128".into(), "4K".into(), "2048M".into()));
        let named = |rows: Rows| [0, 1, 3].map(|class| rows.label(class)).join(" ");
        assert_eq!(named(Rows::Numbers), "0 1 3");
        assert_eq!(named(Rows::AllPowers), "1 2 8");
        assert_eq!(named(Rows::AllFrom(1)), "0 1 4");
        assert_eq!(named(Rows::AllFrom(512)), "0 512 2048");
    }

    #[test]
    fn rows_end_with_the_last_class_that_has_something() {
        let (read, write) = (Histogram::default(), Histogram::default());
        write.note(2);
        let table = |rows| Table { head: "head\n", rows, width: 4, read: read.read(), write: write.read() };
        let printed = |rows| {
            let mut text = String::new();
            table(rows).print(&mut text);
            text
        };
        assert_eq!(printed(Rows::Numbers), "\nhead\n2:\t\t         0   0   0   |    1 100 100\n");
        assert_eq!(
            printed(Rows::AllFromOne),
            "\nhead\n1:\t\t         0   0   0   |    0   0   0\n2:\t\t         0   0   0   |    1 100 100\n"
        );
        write.clear();
        assert_eq!(
            Table { write: write.read(), ..table(Rows::AllPowers) }.text(),
            "\nhead\n1:\t\t         0   0   0   |    0   0   0\n"
        );
        let mut single = String::new();
        let mut counts = [0; CLASSES];
        counts[1] = 3;
        print_single("head\n", &counts, &mut single);
        assert_eq!(single, "\nhead\n0:\t\t         0   0   0\n1:\t\t         3 100 100\n");
    }

    impl Table<'_> {
        fn text(&self) -> String {
            let mut text = String::new();
            self.print(&mut text);
            text
        }
    }
}
