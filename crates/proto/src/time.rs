//! Times that files carry.

/// A point of real time with nanoseconds, as `stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub secs: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// One nanosecond earlier.
    pub fn just_before(self) -> Timestamp {
        match self.nanos.checked_sub(1) {
            Some(nanos) => Timestamp { nanos, ..self },
            None => Timestamp { secs: self.secs.saturating_sub(1), nanos: 999_999_999 },
        }
    }
}

/// A day of the Gregorian calendar: year, month, day.
pub type Day = (i64, u8, u8);
/// A time of the day: hour, minute, second.
pub type Clock = (u8, u8, u8);

/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Years are counted from March, so that a leap day is the last of its year.
const DAYS_BEFORE: i64 = 719_468;

/// Day and time of the day (UTC) of so many seconds since 1970.
pub fn civil(secs: i64) -> (Day, Clock) {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let days = days + DAYS_BEFORE;
    let (era, of_era) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (DAYS_OF_ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, again and again.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let clock = ((rest / 3_600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8);
    ((year + era * 400 + next, month as u8, day as u8), clock)
}

/// Seconds since 1970 at which a day (UTC) begins; `None` if the calendar does not have it.
pub fn begin_of(day: Day) -> Option<i64> {
    let (year, month, of_month) = day;
    if !(-1_000_000..=1_000_000).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let (year, of_year) =
        if month > 2 { (year, i64::from(month) - 3) } else { (year - 1, i64::from(month) + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let of_era = 365 * year + year / 4 - year / 100 + (153 * of_year + 2) / 5 + i64::from(of_month) - 1;
    let secs = (era * DAYS_OF_ERA + of_era - DAYS_BEFORE) * 86_400;
    (civil(secs).0 == day).then_some(secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nanosecond_earlier() {
        let at = |secs, nanos| Timestamp { secs, nanos };
        assert_eq!(at(5, 1).just_before(), at(5, 0));
        assert_eq!(at(5, 0).just_before(), at(4, 999_999_999));
    }

    #[test]
    fn seconds_are_days_and_times() {
        let table = [
            (0, (1970, 1, 1), (0, 0, 0)),
            (-1, (1969, 12, 31), (23, 59, 59)),
            (951_782_400, (2000, 2, 29), (0, 0, 0)),
            (951_868_800, (2000, 3, 1), (0, 0, 0)),
            (1_669_115_034, (2022, 11, 22), (11, 3, 54)),
            (4_107_542_399, (2100, 2, 28), (23, 59, 59)),
            (4_107_542_400, (2100, 3, 1), (0, 0, 0)),
            (-62_167_219_200, (0, 1, 1), (0, 0, 0)),
        ];
        for (secs, day, clock) in table {
            assert_eq!(civil(secs), (day, clock), "{secs}");
        }
    }

    #[test]
    fn days_that_are_none() {
        for day in [(2026, 0, 1), (2026, 13, 1), (2026, 2, 29), (2026, 4, 31), (2026, 5, 0), (i64::MAX, 1, 1)]
        {
            assert_eq!(begin_of(day), None, "{day:?}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = civil(-86_400 * 800_000).0;
        for day in -799_999_i64..800_000 {
            let next = civil(day * 86_400).0;
            let follows = (next.0, next.1, next.2) == (before.0, before.1, before.2 + 1)
                || next == (before.0, before.1 + 1, 1) && before.2 >= 28
                || next == (before.0 + 1, 1, 1) && (before.1, before.2) == (12, 31);
            assert!(follows, "{before:?} {next:?}");
            assert_eq!(begin_of(next), Some(day * 86_400));
            before = next;
        }
    }
}
