//! What a target counts for one who asks, in sums of the rows of its role: a job (`job_stats`), or the client of a session
//! (`exports.NID.stats`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::parameters::{CLEARS, Parameter, SWITCH, TargetTree, Unit, switch};
use proto::statistics::{Sampled, Snapshot, Sums};
use rt::Rt;

use crate::exports::Exports;
use crate::session::Session;
use crate::timing::{Counting, Stats};

/// Rows of all roles: bytes that were read, and that were written.
const BYTES: [&str; 2] = ["read_bytes", "write_bytes"];
/// The value while nothing is counted by client.
const DISABLED: &str = "disabled";

/// The sums of one who asks.
pub(crate) struct Tally {
    sums: Box<[Sums]>,
}

impl Tally {
    /// Of a role with `stats`; nothing was asked for yet.
    pub fn new(stats: &Stats) -> Tally {
        Tally { sums: vec![Sums::default(); BYTES.len() + stats.of_jobs().count()].into() }
    }

    /// A request that took so long was carried out, whose answer brought `moved[0]` bytes, and which itself brought `moved[1]`.
    pub fn note(&mut self, stats: &Stats, counting: &Counting, took: Duration, moved: [u64; 2]) {
        let (bytes, rows) = self.sums.split_at_mut(BYTES.len());
        for (sums, bytes) in bytes.iter_mut().zip(moved) {
            if bytes > 0 {
                sums.note(bytes);
            }
        }
        for (sums, (_, all)) in rows.iter_mut().zip(stats.of_jobs()) {
            for (_, took) in counting.each(took).filter(|(counted, _)| all.contains(counted)) {
                sums.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }

    /// Each row: its name, its unit and its sums.
    pub fn rows(&self, stats: &Stats) -> impl Iterator<Item = (&'static str, &'static str, &Sums)> {
        let bytes = BYTES.into_iter().map(|name| (name, "bytes"));
        let rows = bytes.chain(stats.of_jobs().map(|(name, _)| (*name, "usecs")));
        rows.zip(&self.sums).map(|((name, unit), sums)| (name, unit, sums))
    }
}

/// The sums of a session, there with its first request that is counted.
#[derive(Default)]
pub(crate) struct OfSession(Mutex<Option<Tally>>);

impl OfSession {
    /// See [`Tally::note`].
    pub fn note(&self, stats: &Stats, counting: &Counting, took: Duration, moved: [u64; 2]) {
        self.0.lock().get_or_insert_with(|| Tally::new(stats)).note(stats, counting, took, moved);
    }

    /// Gives its memory back.
    fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Adds its rows to `all`.
    fn add_to(&self, stats: &Stats, all: &mut [(&'static str, &'static str, Sampled)]) {
        if let Some(tally) = &*self.0.lock() {
            for (sum, (_, _, sums)) in all.iter_mut().zip(tally.rows(stats)) {
                sum.2 = std::mem::take(&mut sum.2).and(Sampled::from(*sums));
            }
        }
    }
}

/// Whether a target counts by client, and since when (`export_stats`).
pub(crate) struct ByClient {
    is_on: AtomicBool,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

impl ByClient {
    /// It does.
    pub fn new(rt: &Rt) -> ByClient {
        ByClient { is_on: AtomicBool::new(true), since_ns: AtomicU64::new(rt.wall().as_nanos()) }
    }

    /// Whether it does.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn switch<S>(&self, on: bool, rt: &Rt, exports: &Exports<S>) {
        self.is_on.store(on, Ordering::Relaxed);
        self.since_ns.store(rt.wall().as_nanos(), Ordering::Relaxed);
        if !on {
            exports.sessions.matching(|_| true).iter().for_each(|session| session.counted().clear());
        }
    }

    /// Registers `export_stats`.
    pub fn switch_in<'a, S>(&'a self, rt: &'a Rt, exports: &'a Exports<S>, tree: &mut TargetTree<'a>) {
        let is_on = Parameter::gauge("export_stats", Unit::None, || u8::from(self.is_on()));
        tree.of_device(is_on.settable(SWITCH, |text: &str| {
            self.switch(switch(text)?, rt, exports);
            Ok(())
        }));
    }

    /// `exports.NID.stats`, of all sessions from an address together. As in Lustre, whatever is written clears them.
    pub fn of_nid<'a, S: Send + Sync + 'a>(
        &'a self,
        (rt, stats): (&'a Rt, &'static Stats),
        nid: &str,
        sessions: Arc<[Arc<Session<S>>]>,
    ) -> Parameter<'a, Result<(), proto::Code>> {
        let all_of_them = sessions.clone();
        let text = move || {
            if !self.is_on() {
                return DISABLED.to_owned();
            }
            let none = Tally::new(stats);
            let mut all: Vec<_> =
                none.rows(stats).map(|(name, unit, _)| (name, unit, Sampled::default())).collect();
            sessions.iter().for_each(|session| session.counted().add_to(stats, &mut all));
            let since_ns = self.since_ns.load(Ordering::Relaxed);
            Snapshot { now_ns: rt.wall().as_nanos(), since_ns }.with_sums(all)
        };
        let clear = move |_: &str| {
            all_of_them.iter().for_each(|session| session.counted().clear());
            Ok(())
        };
        Parameter::histogram(format!("exports.{nid}.stats"), text).settable(CLEARS, clear)
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{Link, Operation, Write};

    use super::*;

    const STATS: Stats = Stats {
        name: "stats",
        moves_data: true,
        rows: &[("link", &[(Link::OPCODE, 0)]), ("write", &[(Write::OPCODE, 0)])],
        own: &[],
    };

    #[test]
    fn sums_of_several_sessions_are_one() {
        let (one, other, silent) = (OfSession::default(), OfSession::default(), OfSession::default());
        let micros = Duration::from_micros;
        one.note(&STATS, &(Write::OPCODE, 0).into(), micros(3), [0, 4096]);
        one.note(&STATS, &(Link::OPCODE, 0).into(), micros(5), [0, 0]);
        other.note(&STATS, &(Write::OPCODE, 0).into(), micros(900), [0, 100]);
        let sum = || {
            let none = Tally::new(&STATS);
            let mut all: Vec<_> =
                none.rows(&STATS).map(|(name, unit, _)| (name, unit, Sampled::default())).collect();
            [&one, &other, &silent].iter().for_each(|of| of.add_to(&STATS, &mut all));
            all.iter().map(|(name, unit, sums)| sums.line(name, unit)).collect::<Vec<_>>()
        };
        let lines = sum();
        assert_eq!(lines[0], "read_bytes                0 samples [bytes] 0 0 0 0");
        assert_eq!(lines[1], "write_bytes               2 samples [bytes] 100 4096 4196 16787216");
        assert_eq!(lines[2], "link                      1 samples [usecs] 5 5 5 25");
        assert_eq!(lines[3], "write                     2 samples [usecs] 3 900 903 810009");
        one.clear();
        assert_eq!(sum()[3], "write                     1 samples [usecs] 900 900 900 810000");
    }
}
