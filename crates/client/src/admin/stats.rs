//! How often what happened on this client.

use std::collections::BTreeMap;

use super::Admin;

impl Admin {
    /// Counters since the mount: requests by the name of their operation (`rpc.Create`), and locks.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let requests = self.shared.targets.requests().counts().into_iter();
        let mut counters: BTreeMap<String, u64> =
            requests.map(|(name, count)| (format!("rpc.{name}"), count)).collect();
        let [objects, asked, called_back, cancelled, brought, brought_late] =
            self.shared.names.data.locks.table.counts();
        let bits = self.shared.names.meta.recalls.count();
        let [hits, kept, _] = self.shared.names.data.clean.counts();
        let ahead = self.shared.names.ahead.counts();
        let locks = [
            ("ahead.dirs", ahead.dirs as u64),
            ("ahead.made", ahead.kept),
            ("ahead.lost", ahead.broken),
            ("ahead.pending", ahead.pending as u64),
            ("cache.hits", hits),
            ("cache.bytes", kept),
            ("idle.looks", self.shared.resting.looks()),
            ("lock.objects", objects),
            ("lock.ranges_asked", asked),
            ("lock.ranges_called_back", called_back),
            ("lock.ranges_cancelled", cancelled),
            ("lock.brought", brought),
            ("lock.brought_late", brought_late),
            ("lock.inodes", self.shared.names.meta.inodes.count() as u64),
            ("lock.bits_called_back", bits),
        ];
        let lease = self.lease();
        counters.insert("lease.renewals".to_owned(), lease.renewals);
        counters.insert("lease.lapses".to_owned(), lease.lapses);
        counters.extend(locks.map(|(name, count)| (name.to_owned(), count)));
        counters
    }
}
