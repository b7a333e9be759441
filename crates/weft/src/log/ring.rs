//! The last lines, as many as fit into a bound of bytes. Each has a number, one more than the one before.

use std::collections::VecDeque;
use std::fmt::Write;

/// Bytes that a line takes besides its text: its place in the ring, and what the allocator keeps of it.
const LINE_BYTES: usize = size_of::<Box<str>>() + 16;

/// Lines, oldest first.
pub struct Ring {
    lines: VecDeque<Box<str>>,
    /// Number of the oldest line.
    first: u64,
    bytes: usize,
    bytes_max: usize,
    /// Lines that had to go for newer ones since somebody last forgot lines.
    dropped: u64,
}

/// Some lines that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where the next page begins.
    pub next: u64,
    /// The number of the next line that will be kept.
    pub end: u64,
    /// Lines that had to go before anybody fetched them.
    pub dropped: u64,
    /// The lines.
    pub lines: Vec<String>,
}

impl Ring {
    /// An empty one, for so many bytes.
    pub fn new(bytes_max: usize) -> Ring {
        Ring { lines: VecDeque::new(), first: 0, bytes: 0, bytes_max, dropped: 0 }
    }

    /// Keeps a line; the oldest ones make room.
    pub fn push(&mut self, line: &str) {
        self.bytes += line.len() + LINE_BYTES;
        self.lines.push_back(line.into());
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max && self.take_oldest() {
            self.dropped += 1;
        }
    }

    fn take_oldest(&mut self) -> bool {
        let Some(line) = self.lines.pop_front() else { return false };
        self.bytes -= line.len() + LINE_BYTES;
        self.first += 1;
        true
    }

    /// Most bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Keeps so many bytes from now on.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.make_room();
        self.lines.shrink_to_fit();
    }

    /// The lines from the number `from` on, as many as fit into `bytes_max`, but one at least.
    pub fn page(&self, from: u64, bytes_max: usize) -> Page {
        let from = from.max(self.first);
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |line: &&str| {
            let is_first = bytes == 0;
            bytes += line.len() + 1;
            is_first || bytes <= bytes_max
        };
        let rest = self.lines.iter().skip(skipped).map(|line| &**line);
        let lines: Vec<String> = rest.take_while(fits).map(ToOwned::to_owned).collect();
        let end = self.first + self.lines.len() as u64;
        Page { next: (from + lines.len() as u64).min(end), end, dropped: self.dropped, lines }
    }

    /// Forgets the lines before the number `before`, and what was dropped.
    pub fn forget(&mut self, before: u64) {
        while self.first < before && self.take_oldest() {}
        self.dropped = 0;
        self.lines.shrink_to_fit();
    }
}

impl Page {
    /// The page as text: a head of three numbers, and the lines.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {} {}\n", self.next, self.end, self.dropped);
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// The same back; `None` if it is none.
    pub fn parse(text: &str) -> Option<Page> {
        let (head, lines) = text.split_once('\n')?;
        let mut numbers = head.split(' ').map(str::parse);
        let mut number = || numbers.next()?.ok();
        let (next, end, dropped) = (number()?, number()?, number()?);
        Some(Page { next, end, dropped, lines: lines.lines().map(ToOwned::to_owned).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_make_room() {
        let mut ring = Ring::new(10 * (LINE_BYTES + 3));
        for number in 0..100 {
            ring.push(&format!("{number:3}"));
            assert!(ring.bytes <= ring.bytes_max);
        }
        let page = ring.page(0, 1 << 20);
        assert_eq!((page.next, page.end, page.dropped, page.lines.len()), (100, 100, 90, 10));
        assert_eq!(page.lines.first().map(String::as_str), Some(" 90"));
        ring.set_bytes_max(2 * (LINE_BYTES + 3));
        assert_eq!(ring.page(0, 1 << 20).lines, [" 98", " 99"]);
        // One that is longer than all there is room for is not kept either.
        ring.push(&"x".repeat(1000));
        assert_eq!((ring.page(0, 1 << 20).lines.len(), ring.bytes), (0, 0));
    }

    #[test]
    fn pages_follow_each_other() {
        let mut ring = Ring::new(1 << 20);
        (0..10).for_each(|number| ring.push(&format!("line {number}")));
        let (mut from, mut lines) = (0, Vec::new());
        loop {
            let page = ring.page(from, 15);
            assert_eq!(Page::parse(&page.to_text()), Some(page.clone()));
            if page.lines.is_empty() {
                break;
            }
            assert!(page.lines.len() <= 2 && page.next == from + page.lines.len() as u64);
            from = page.next;
            lines.extend(page.lines);
        }
        assert_eq!((from, lines.len()), (10, 10));
        // What came after the last page stays.
        ring.push("later");
        ring.forget(from);
        assert_eq!(ring.page(0, 15).lines, ["later"]);
        ring.forget(u64::MAX);
        let nothing = ring.page(u64::MAX, 15);
        assert_eq!((nothing.lines.len(), nothing.end), (0, 11));
        assert_eq!(Page::parse("nonsense"), None);
    }
}
