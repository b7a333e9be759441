//! How long the requests of a session take, by operation: `osc.*.stats` and `mdc.*.stats`, as Lustre prints them, with weft's operations.
//!
//! What is measured is a request as its caller waits for it: from the moment that it may be sent to its answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::statistics::{Sampled, Snapshot, Sums};
use proto::wire::Request;
use rt::Rt;

use crate::order::{LEAF, Mutex};

/// The times of a session.
pub(super) struct Times {
    /// By the number of the operation.
    sums: Mutex<LEAF, BTreeMap<u16, Sums>>,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

impl Times {
    /// Nothing was asked for yet.
    pub fn new(rt: &Rt) -> Times {
        Times { sums: Mutex::default(), since_ns: AtomicU64::new(rt.wall().as_nanos()) }
    }

    /// A request was answered, or given up, after so long.
    pub fn note(&self, opcode: u16, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sums.lock().entry(opcode).or_default().note(micros);
    }

    /// They begin anew.
    pub fn clear(&self, rt: &Rt) {
        self.sums.lock().clear();
        self.since_ns.store(rt.wall().as_nanos(), Ordering::Relaxed);
    }

    /// The text: all requests together in `req_waittime`, then each operation that there was.
    pub fn text(&self, rt: &Rt) -> String {
        let each: Vec<(&str, Sampled)> = {
            let sums = self.sums.lock();
            let named = sums.iter().filter_map(|(opcode, sums)| Some((Request::name_of(*opcode)?, *sums)));
            named.map(|(name, sums)| (name, Sampled::from(sums))).collect()
        };
        let all = each.iter().fold(Sampled::default(), |all, (_, sums)| all.and(*sums));
        let rows = std::iter::once(("req_waittime", all)).chain(each);
        let snapshot =
            Snapshot { now_ns: rt.wall().as_nanos(), since_ns: self.since_ns.load(Ordering::Relaxed) };
        snapshot.with_sums(rows.map(|(name, sums)| (name, "usecs", sums)))
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{Lookup, Operation, Write};
    use rt::sim::{Options, Sim};

    use super::*;

    #[test]
    fn times_are_summed_up_by_operation() {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt("client");
        let times = Times::new(&rt);
        for (opcode, micros) in [(Write::OPCODE, 900), (Lookup::OPCODE, 5), (Write::OPCODE, 3)] {
            times.note(opcode, Duration::from_micros(micros));
        }
        let text = times.text(&rt);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("samples")).collect();
        let expected = [
            "req_waittime              3 samples [usecs] 3 900 908 810034",
            "Lookup                    1 samples [usecs] 5 5 5 25",
            "Write                     2 samples [usecs] 3 900 903 810009",
        ];
        assert!(rows.len() == 3 && expected.iter().all(|row| rows.contains(row)), "{text}");
        assert!(rows[0] == expected[0] && text.starts_with("snapshot_time"), "{text}");
        times.clear(&rt);
        assert!(!times.text(&rt).contains("samples"));
    }
}
