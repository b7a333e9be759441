//! Names that differ in a number which grows by the same step, as `file.mdtest.0.17`, `img_0001.jpg`: which ones come next.
//!
//! Pure: it is told which names were found, in which directory, and says what to ask for. Each beginning of a name has a sequence of its
//! own, so ranks of a job that look at files of their own in one directory do not disturb each other (Lustre: LU-14361,
//! `statahead_fname`).

use std::collections::HashMap;
use std::time::Duration;

use proto::{Fid, Name};
use rt::Time;

/// Most sequences that are known at a time.
const SEQUENCES_MAX: usize = 256;
/// A sequence of which nothing was heard for so long is forgotten first (`statahead_timeout`).
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How many names are asked for at first; twice as many each time, up to the bound.
const WINDOW_MIN: u32 = 16;
/// A larger step is no pattern.
const STEP_MAX: u64 = 64;
/// Threads of a program come a little out of order: a number that is so many steps behind belongs to it still.
const LATE_MAX: u64 = 256;
/// Most digits of a number.
const DIGITS_MAX: usize = 18;

/// What an operator may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Most names that are asked for ahead in a sequence; 0 for none (`statahead_max`).
    pub max: u32,
    /// Whether names are predicted (`enable_statahead_fname`).
    pub by_name: bool,
    /// After so many names in order the next ones are asked for (`statahead_fname_predict_hit`).
    pub predict_hit: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { max: 128, by_name: true, predict_hit: 2 }
    }
}

/// A name in three parts; the last number in it counts.
struct Parts<'a> {
    before: &'a [u8],
    number: u64,
    /// Digits, if it is filled up with zeros.
    width: usize,
    behind: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(name: &'a [u8]) -> Option<Parts<'a>> {
        let end = name.iter().rposition(u8::is_ascii_digit)? + 1;
        let digits = name[..end].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > DIGITS_MAX {
            return None;
        }
        let (before, text) = name[..end].split_at(end - digits);
        let number = text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        let width = if digits > 1 && text[0] == b'0' { digits } else { 0 };
        Some(Parts { before, number, width, behind: &name[end..] })
    }

    fn key(&self, dir: Fid) -> (Fid, Vec<u8>) {
        // No name has this byte in it.
        (dir, [self.before, b"/", self.behind].concat())
    }
}

struct Sequence {
    /// The greatest one that was looked at.
    number: u64,
    step: u64,
    /// How many came in order.
    hits: u32,
    /// The last one that was asked for; `number` at least.
    ahead: u64,
    /// The first one that is not there, as far as is known.
    end: u64,
    /// Some were asked for since it began.
    is_ahead: bool,
    width: usize,
    window: u32,
    used: Time,
}

/// What a name that was looked at is to the sequences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It was asked for ahead.
    pub was_ahead: bool,
    /// The first names of a sequence are to be asked for.
    pub begins: bool,
    /// These are to be asked for.
    pub wanted: Vec<Name>,
}

/// The sequences of all directories.
#[derive(Default)]
pub(crate) struct Sequences(HashMap<(Fid, Vec<u8>), Sequence>);

impl Sequences {
    /// `name` of `dir` was looked at, and is there.
    pub(crate) fn saw(&mut self, dir: Fid, name: &Name, now: Time, settings: &Settings) -> Seen {
        let Some(parts) = Parts::of(name.as_bytes()) else { return Seen::default() };
        let Some(sequence) = self.0.get_mut(&parts.key(dir)) else {
            self.begin(dir, &parts, now);
            return Seen::default();
        };
        sequence.used = now;
        let was_ahead = sequence.take(&parts);
        let Some(numbers) = sequence.next(settings) else { return Seen { was_ahead, ..Seen::default() } };
        let width = sequence.width;
        let named = |number: u64| {
            let digits = format!("{number:0width$}");
            Name::new([parts.before, digits.as_bytes(), parts.behind].concat()).ok()
        };
        let begins = !std::mem::replace(&mut sequence.is_ahead, true);
        Seen { was_ahead, begins, wanted: numbers.filter_map(named).collect() }
    }

    /// `name` was asked for ahead, and is not there: the sequence ends before it. Says whether it had no end until now.
    pub(crate) fn ended(&mut self, dir: Fid, name: &Name) -> bool {
        let Some(parts) = Parts::of(name.as_bytes()) else { return false };
        let Some(sequence) = self.0.get_mut(&parts.key(dir)) else { return false };
        let before = sequence.end;
        sequence.end = sequence.end.min(parts.number);
        before == u64::MAX
    }

    fn begin(&mut self, dir: Fid, parts: &Parts<'_>, now: Time) {
        if self.0.len() >= SEQUENCES_MAX {
            self.0.retain(|_, sequence| now - sequence.used < IDLE_MAX);
        }
        if self.0.len() >= SEQUENCES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, sequence)| sequence.used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.0.remove(&key));
        }
        let Parts { number, width, .. } = *parts;
        let sequence = Sequence {
            number,
            step: 0,
            hits: 0,
            ahead: number,
            end: u64::MAX,
            is_ahead: false,
            width,
            window: WINDOW_MIN,
            used: now,
        };
        self.0.insert(parts.key(dir), sequence);
    }
}

impl Sequence {
    /// Takes a number; says whether it was asked for ahead.
    fn take(&mut self, parts: &Parts<'_>) -> bool {
        let number = parts.number;
        if number >= self.end {
            // What was asked for behind the end was not there then.
            (self.end, self.ahead) = (u64::MAX, self.number);
        }
        let was_ahead = number <= self.ahead && self.ahead > self.number;
        if number <= self.number {
            if self.step > 0 && (self.number - number) / self.step > LATE_MAX {
                self.restart(parts, 0);
            }
            return was_ahead;
        }
        let step = number - self.number;
        if self.step > 0 && step.is_multiple_of(self.step) && (step == self.step || was_ahead) {
            self.hits = self.hits.saturating_add(1);
            self.number = number;
            self.ahead = self.ahead.max(number);
        } else {
            self.restart(parts, step);
        }
        was_ahead
    }

    fn restart(&mut self, parts: &Parts<'_>, step: u64) {
        let is_step = (1..=STEP_MAX).contains(&step);
        self.step = if is_step { step } else { 0 };
        self.hits = u32::from(is_step);
        (self.number, self.ahead, self.width) = (parts.number, parts.number, parts.width);
        (self.window, self.is_ahead, self.end) = (WINDOW_MIN, false, u64::MAX);
    }

    /// The numbers that are to be asked for: as soon as half of those before have been used.
    fn next(&mut self, settings: &Settings) -> Option<impl Iterator<Item = u64> + use<>> {
        let window = u64::from(self.window.min(settings.max));
        let is_due = self.ahead - self.number <= self.step * u64::from(self.window / 4);
        if window == 0 || self.step == 0 || self.hits < settings.predict_hit.max(1) || !is_due {
            return None;
        }
        let (from, step) = (self.ahead, self.step);
        let until = self.number.checked_add(step * window)?.min(self.end - 1);
        if until <= from {
            return None;
        }
        self.ahead = until;
        self.window = self.window.saturating_mul(2).min(settings.max.saturating_mul(2));
        Some((1..).map(move |n| from + n * step).take_while(move |number| *number <= until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const SETTINGS: Settings = Settings { max: 64, by_name: true, predict_hit: 2 };

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes().to_vec()).expect("a name")
    }

    fn saw(sequences: &mut Sequences, text: &str) -> Seen {
        sequences.saw(DIR, &name(text), Time(0), &SETTINGS)
    }

    fn wanted(sequences: &mut Sequences, text: &str) -> Vec<String> {
        let wanted = saw(sequences, text).wanted;
        wanted.iter().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn two_steps_make_a_sequence() {
        let mut sequences = Sequences::default();
        assert!(wanted(&mut sequences, "f.mdtest.0.7").is_empty());
        assert!(wanted(&mut sequences, "f.mdtest.0.8").is_empty());
        let first = wanted(&mut sequences, "f.mdtest.0.9");
        assert_eq!(
            (first.len(), first[0].as_str(), first[15].as_str()),
            (16, "f.mdtest.0.10", "f.mdtest.0.25")
        );
        // Half of the window first, then twice as many.
        let mut asked = Vec::new();
        for number in 10..200 {
            let seen = saw(&mut sequences, &format!("f.mdtest.0.{number}"));
            assert!(seen.was_ahead, "{number}");
            asked.extend(seen.wanted);
        }
        let names: Vec<Name> = (26..26 + asked.len()).map(|n| name(&format!("f.mdtest.0.{n}"))).collect();
        assert_eq!(asked, names);
        assert!((200 - 26 + 32..=200 - 26 + 64).contains(&asked.len()), "{}", asked.len());
        assert_eq!(saw(&mut sequences, "f.mdtest.0.200").wanted.len() % 32, 0);
    }

    #[test]
    fn ranks_zeros_steps_and_ends_of_names() {
        let mut sequences = Sequences::default();
        let mut all = Vec::new();
        for n in 0..3 {
            for rank in 0..4 {
                all.extend(wanted(&mut sequences, &format!("f.{rank}.{}", n * 4)));
            }
            all.extend(wanted(&mut sequences, &format!("img_{:04}.jpg", 998 + n)));
        }
        assert!(all.contains(&"f.3.12".to_owned()) && all.contains(&"f.0.72".to_owned()));
        assert!(all.contains(&"img_1001.jpg".to_owned()));
        let mut zeros = Sequences::default();
        wanted(&mut zeros, "a008");
        wanted(&mut zeros, "a009");
        assert_eq!(wanted(&mut zeros, "a010")[0], "a011");
    }

    #[test]
    fn what_jumps_is_no_sequence() {
        let mut sequences = Sequences::default();
        for text in ["f1", "f100000", "f2", "f5000", "f17", "f40", "plain", "f"] {
            assert!(wanted(&mut sequences, text).is_empty(), "{text}");
        }
        let mut random = 88_172_645_463_325_252u64;
        for _ in 0..500 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let text = format!("r{}", random % 1_000_000);
            assert_eq!(saw(&mut sequences, &text), Seen::default(), "{text}");
        }
    }

    /// Eight threads take the next number each.
    #[test]
    fn a_little_out_of_order_is_in_order() {
        let mut sequences = Sequences::default();
        let mut ahead = 0;
        for block in 0..100u64 {
            for at in [3, 0, 1, 2, 5, 4, 7, 6] {
                ahead += usize::from(saw(&mut sequences, &format!("f{}", block * 8 + at)).was_ahead);
            }
        }
        assert!(ahead > 760, "{ahead} of 800");
    }

    #[test]
    fn an_end_is_an_end_and_nothing_grows() {
        let mut sequences = Sequences::default();
        for n in 1..=3 {
            wanted(&mut sequences, &format!("f{n}"));
        }
        assert!(sequences.ended(DIR, &name("f9")));
        assert!(!sequences.ended(DIR, &name("f10")));
        assert_eq!(saw(&mut sequences, "f4").wanted, []);
        // It has grown since.
        for n in 5..=9 {
            assert_eq!(saw(&mut sequences, &format!("f{n}")).wanted.is_empty(), n < 9, "{n}");
        }
        for n in 0..10_000u64 {
            let dir = Fid { oid: n as u32, ..DIR };
            sequences.saw(dir, &name("x1"), Time(n), &SETTINGS);
        }
        assert!(sequences.0.len() <= SEQUENCES_MAX);
        assert!(Parts::of(b"n9999999999999999999999").is_none());
        let most = format!("f{}", 999_999_999_999_999_998u64);
        for n in [999_999_999_999_999_996u64, 999_999_999_999_999_997] {
            wanted(&mut sequences, &format!("f{n}"));
        }
        assert!(!wanted(&mut sequences, &most).is_empty());
        assert!(Settings { max: 0, ..SETTINGS } != SETTINGS);
    }

    #[test]
    fn switched_off_nothing_is_asked_for() {
        let mut sequences = Sequences::default();
        let off = Settings { max: 0, ..SETTINGS };
        for n in 0..20 {
            assert!(sequences.saw(DIR, &name(&format!("f{n}")), Time(0), &off).wanted.is_empty());
        }
    }
}
