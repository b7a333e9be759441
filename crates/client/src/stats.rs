//! How often what happened on this client: requests by operation, locks.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use proto::wire::messages::Operation;

use crate::Client;

/// Operations that are counted one by one.
const OPERATIONS: usize = 128;

/// Requests by operation.
pub(crate) struct Requests {
    counts: Mutex<[(&'static str, u64); OPERATIONS]>,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests { counts: Mutex::new([("", 0); OPERATIONS]) }
    }

    /// A request is sent.
    pub(crate) fn count<O: Operation>(&self) {
        let mut counts = self.counts.lock();
        if let Some(entry) = counts.get_mut(O::OPCODE as usize) {
            *entry = (O::NAME, entry.1 + 1);
        }
    }
}

impl Client {
    /// Counters since the mount: requests by the name of their operation (`rpc.Create`), and locks.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let shared = &self.shared;
        let requests = *shared.targets.requests().counts.lock();
        let mut counters: BTreeMap<String, u64> = requests
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (format!("rpc.{name}"), *count))
            .collect();
        let [objects, asked, called_back, cancelled] = shared.locks.counts();
        let bits = shared.bits_called_back.load(std::sync::atomic::Ordering::Relaxed);
        let [hits, kept, _] = shared.clean.counts();
        let locks = [
            ("cache.hits", hits),
            ("cache.bytes", kept),
            ("idle.looks", shared.idle.lock().looks()),
            ("lock.objects", objects),
            ("lock.ranges_asked", asked),
            ("lock.ranges_called_back", called_back),
            ("lock.ranges_cancelled", cancelled),
            ("lock.inodes", shared.inodes.count() as u64),
            ("lock.bits_called_back", bits),
        ];
        let lease = self.lease();
        counters.insert("lease.renewals".to_owned(), lease.renewals);
        counters.insert("lease.lapses".to_owned(), lease.lapses);
        counters.extend(locks.map(|(name, count)| (name.to_owned(), count)));
        counters
    }
}
