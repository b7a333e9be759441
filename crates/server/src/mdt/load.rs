//! How busy the processors of an MDT's server are (FEATURES M4): `docs/operations.md#load`.
//!
//! Each hour is a record of the store, so the series goes with the MDT from server to server. What is counted is the process that serves
//! the MDT: on a machine of its own that is the machine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::time::civil;
use rt::{Rt, Time};
use service::keys::behind;
use service::{Env, Recovery, Stop};
use store::{Batch, Change, Need, Store, StoreError};

use super::keys;

/// How often it is looked.
const SAMPLE_SECS: i64 = 10;
/// A sample that is shorter, after a start, counts for the average only.
const SAMPLE_MIN: Duration = Duration::from_secs(5);
/// How often what was seen is written down. A multiple of it is an hour, so that hours are written when they end.
const WRITE_SECS: i64 = 600;
/// Seconds of an hour.
const HOUR_SECS: i64 = 3600;
/// How many hours are kept: two years.
const HOURS_MAX: u32 = 2 * 366 * 24;
/// Most hours of before that are taken away with one write.
const OLD_COUNT: usize = 64;
/// More than the hours of a month.
const MONTH_COUNT: usize = 1024;
/// Version of the format of an hour.
const FORMAT: u8 = 1;
/// What the names of the series begin with; a month follows.
const SERIES: &str = "cpu_load_hours.";

/// What was seen of an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Hour {
    /// For so many milliseconds it was looked.
    seen_ms: u32,
    /// For so many of them the processors were busy, as if they all worked together.
    busy_ms: u32,
    /// The most in one sample, in hundredths of a percent.
    peak: u16,
}

impl Hour {
    fn add(&mut self, seen: Duration, busy: Duration) {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.seen_ms = self.seen_ms.saturating_add(ms(seen));
        self.busy_ms = self.busy_ms.saturating_add(ms(busy));
        // A moment says nothing of ten seconds.
        if seen >= SAMPLE_MIN {
            self.peak = self.peak.max(share(ms(seen), ms(busy)));
        }
    }

    fn encode(self) -> Bytes {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.seen_ms.to_le_bytes());
        bytes.extend_from_slice(&self.busy_ms.to_le_bytes());
        bytes.extend_from_slice(&self.peak.to_le_bytes());
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Option<Hour> {
        let rest = bytes.strip_prefix(&[FORMAT])?;
        let (seen_ms, rest) = rest.split_first_chunk()?;
        let (busy_ms, rest) = rest.split_first_chunk()?;
        Some(Hour {
            seen_ms: u32::from_le_bytes(*seen_ms),
            busy_ms: u32::from_le_bytes(*busy_ms),
            peak: u16::from_le_bytes(rest.try_into().ok()?),
        })
    }

    /// `1764194400 3600 12.34 99.20`: when it began, for how many seconds it was looked, average and peak in percent.
    fn line(self, hour: u32) -> String {
        let average = percent(share(self.seen_ms, self.busy_ms));
        let begin = i64::from(hour) * HOUR_SECS;
        format!("{begin} {} {average} {}", self.seen_ms / 1000, percent(self.peak))
    }
}

/// Hundredths of a percent, at most all.
fn share(seen_ms: u32, busy_ms: u32) -> u16 {
    let share = u64::from(busy_ms) * 10_000 / u64::from(seen_ms.max(1));
    u16::try_from(share.min(10_000)).unwrap_or(10_000)
}

fn percent(hundredths: u16) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The hour of a moment in seconds since 1970.
fn hour_of(secs: i64) -> u32 {
    u32::try_from(secs / HOUR_SECS).unwrap_or_default()
}

/// `2026-11`.
fn month_of(hour: u32) -> String {
    let ((year, month, _), _) = civil(i64::from(hour) * HOUR_SECS);
    format!("{year:04}-{month:02}")
}

/// The load of the server of an MDT.
pub(super) struct Load {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    seen: Mutex<Seen>,
}

/// What was seen last.
struct Seen {
    at: Time,
    used: Duration,
    /// The share of the last sample; none before the first.
    last: u16,
    hour: u32,
    now: Hour,
    is_written: bool,
}

impl Seen {
    /// From now on it is `hour`, of which `known` was seen before.
    fn begin(&mut self, hour: u32, known: Hour) {
        (self.hour, self.now) = (hour, known);
    }

    /// Takes what was used until `at`.
    fn take(&mut self, at: Time, used: Duration, processors: usize) {
        let seen = at - self.at;
        let busy = used.saturating_sub(self.used) / u32::try_from(processors.max(1)).unwrap_or(u32::MAX);
        let mut sample = Hour::default();
        sample.add(seen, busy.min(seen));
        self.now.add(seen, busy.min(seen));
        (self.at, self.used, self.last, self.is_written) =
            (at, used, share(sample.seen_ms, sample.busy_ms), false);
    }
}

/// Looks again and again, until the target stops.
pub(super) async fn sample(load: Arc<Load>) {
    loop {
        let secs = load.rt.wall().secs;
        let pause = SAMPLE_SECS - secs.rem_euclid(SAMPLE_SECS);
        let pause = Duration::from_secs(pause.unsigned_abs());
        if load.stop.unless(load.rt.sleep(pause)).await.is_none() {
            return;
        }
        load.look(hour_of(secs));
        if (secs + SAMPLE_SECS).div_euclid(WRITE_SECS) != secs.div_euclid(WRITE_SECS) {
            load.write().await;
        }
    }
}

impl Load {
    /// Nothing is seen yet.
    pub(super) fn open(env: &Env) -> Load {
        let (rt, store) = (env.rt.clone(), env.store.clone());
        let hour = hour_of(rt.wall().secs);
        let now = read(&store, hour);
        let (at, used) = (rt.now(), rt.processor_time());
        let seen = Mutex::new(Seen { at, used, last: 0, hour, now, is_written: true });
        Load { rt, store, stop: env.stop.clone(), recovery: env.recovery.clone(), seen }
    }

    fn look(&self, hour: u32) {
        let is_another = self.seen.lock().hour != hour;
        let known = is_another.then(|| read(&self.store, hour));
        let mut seen = self.seen.lock();
        if let Some(known) = known {
            seen.begin(hour, known);
        }
        seen.take(self.rt.now(), self.rt.processor_time(), self.rt.processors());
    }

    /// Writes down what was seen of the hour. What cannot be written is missing in the series, and nothing else is wrong.
    pub(super) async fn write(&self) {
        // Clients that recover repeat their changes before there are new ones.
        if self.recovery.is_active() || self.store.room(Need::Release).await.is_err() {
            return;
        }
        let (hour, now) = {
            let seen = self.seen.lock();
            if seen.is_written {
                return;
            }
            (seen.hour, seen.now)
        };
        let written = self.old(hour).and_then(|old| {
            let mut changes: Vec<Change> = old.into_iter().map(|key| Change { key, value: None }).collect();
            changes.push(Change { key: keys::load(hour), value: Some(now.encode()) });
            self.store.commit(Batch { changes, ..Batch::default() })
        });
        match written {
            Ok(_) => self.seen.lock().is_written = true,
            Err(error) => tracing::warn!(%error, "the load of this hour is not written down"),
        }
    }

    /// Keys of hours that are not kept any more.
    fn old(&self, hour: u32) -> Result<Vec<Bytes>, StoreError> {
        let end = keys::load(hour.saturating_sub(HOURS_MAX));
        let old = self.store.scan(&[keys::LOAD], &end, OLD_COUNT)?;
        Ok(old.into_iter().map(|(key, _)| key).collect())
    }

    /// Registers its values.
    pub(super) fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        tree.of_device(Parameter::gauge("cpu_load", Unit::None, || percent(self.seen.lock().last)));
        // They are long: whoever lists everything of a target does not want them.
        if tree.says(SERIES) {
            for (month, from) in self.months() {
                tree.of_device(Parameter::text(format!("{SERIES}{month}"), move || self.series(from)));
            }
        }
    }

    /// The months of which something is known, by their names, and an hour of each before which it has none.
    fn months(&self) -> Vec<(String, u32)> {
        let mut months: Vec<(String, u32)> = Vec::new();
        let mut from = keys::load(0).to_vec();
        // A failing disk shows in other places; here a part is as good as it gets.
        while let Ok(page) = self.store.scan(&from, &behind(&[keys::LOAD]), MONTH_COUNT)
            && let Some((last, _)) = page.last()
        {
            from = [last, &[0][..]].concat();
            let hours = page.iter().filter_map(|(key, _)| keys::load_of(key));
            months.extend(hours.map(|hour| (month_of(hour), hour)));
            months.dedup_by(|later, first| later.0 == first.0);
        }
        let hour = self.seen.lock().hour;
        if months.last().is_none_or(|(last, _)| *last != month_of(hour)) {
            months.push((month_of(hour), hour));
        }
        months
    }

    /// A line for each hour of the month of `first`, its first.
    fn series(&self, first: u32) -> String {
        let until = keys::load(first.saturating_add(MONTH_COUNT as u32));
        let page = self.store.scan(&keys::load(first), &until, MONTH_COUNT).unwrap_or_default();
        let known =
            page.iter().filter_map(|(key, value)| Some((keys::load_of(key)?, Hour::decode(&value.bytes)?)));
        let mut hours: std::collections::BTreeMap<u32, Hour> = known.collect();
        let seen = self.seen.lock();
        hours.insert(seen.hour, seen.now);
        drop(seen);
        hours.retain(|hour, load| month_of(*hour) == month_of(first) && load.seen_ms > 0);
        hours.into_iter().map(|(hour, load)| load.line(hour)).collect::<Vec<_>>().join("\n")
    }
}

/// What is written of an hour.
fn read(store: &Store, hour: u32) -> Hour {
    let value = store.get(&keys::load(hour)).ok().flatten();
    value.and_then(|value| Hour::decode(&value.bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_round_trips() {
        let hour = Hour { seen_ms: 3_600_000, busy_ms: 899_999, peak: 10_000 };
        assert_eq!(Hour::decode(&hour.encode()), Some(hour));
        assert_eq!(Hour::decode(&hour.encode()[1..]), None);
        assert_eq!(Hour::decode(&[2; 11]), None);
        assert_eq!(hour.line(490_000), "1764000000 3600 24.99 100.00");
    }

    #[test]
    fn samples_make_hours() {
        let start = (Time(5_000_000_000), Duration::from_secs(3));
        let mut seen =
            Seen { at: start.0, used: start.1, last: 0, hour: 7, now: Hour::default(), is_written: true };
        let take = |seen: &mut Seen, secs: u64, used: u64| {
            seen.take(start.0 + Duration::from_secs(secs), start.1 + Duration::from_secs(used), 4);
        };
        // Four processors of which two worked, then none.
        take(&mut seen, 10, 20);
        assert_eq!((seen.last, seen.is_written), (5000, false));
        take(&mut seen, 20, 20);
        assert_eq!(seen.last, 0);
        assert_eq!(seen.now, Hour { seen_ms: 20_000, busy_ms: 5_000, peak: 5_000 });
        // An hour that is known goes on; nothing is busier than all the time.
        seen.begin(8, Hour { seen_ms: 10_000, busy_ms: 0, peak: 1 });
        take(&mut seen, 30, 500);
        assert_eq!(seen.now, Hour { seen_ms: 20_000, busy_ms: 10_000, peak: 10_000 });
        assert_eq!((seen.hour, seen.now.line(8)), (8, "28800 20 50.00 100.00".to_owned()));
    }

    #[test]
    fn months_begin_at_their_first_hour() {
        let hour = hour_of(1_764_547_200);
        assert_eq!((month_of(hour - 1), month_of(hour)), ("2025-11".to_owned(), "2025-12".to_owned()));
    }
}
