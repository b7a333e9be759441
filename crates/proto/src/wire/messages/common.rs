//! What every target answers.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ids::{ClientId, Transno};
use crate::wire_struct;

/// The target can keep size on the MDT, objects without precreation, and everything else of version 1.
pub const FEATURE_BASE: u64 = 1 << 0;
/// Layouts with several stripes on one OST (Lustre's OBD_CONNECT2_OVERSTRIPING).
pub const FEATURE_OVERSTRIPING: u64 = 1 << 1;
/// The client keeps what it is granted, and gives it back when it is called (`docs/locks.md`).
pub const FEATURE_LOCKS: u64 = 1 << 2;
/// Several requests may come in one frame, and their answers too ([`crate::wire::batch`]).
pub const FEATURE_BATCH: u64 = 1 << 3;
/// Requests say in their headers to which job they belong.
pub const FEATURE_JOBS: u64 = 1 << 4;
/// An MDT is told of files that a client has opened without it ([`StateOpens`](super::StateOpens)).
pub const FEATURE_STATED_OPENS: u64 = 1 << 5;
/// Every feature that this code has.
pub const FEATURES_ALL: u64 =
    FEATURE_BASE | FEATURE_OVERSTRIPING | FEATURE_LOCKS | FEATURE_BATCH | FEATURE_JOBS | FEATURE_STATED_OPENS;

wire_struct! {
    /// Opens or resumes a session with a target.
    pub struct Connect {
        /// Name of this run of the client.
        pub client: ClientId,
        /// Features that the client has; the session has those that both sides have.
        pub features: u64,
        /// Name of the file system that the client means.
        pub fsname: String,
        /// The target's boot that the client knew; 0 for a new session.
        pub boot: u64,
        /// Epoch of the session that the client asks for: one more than its last.
        pub session_epoch: u64,
        /// The newest change of which the client was ever told that it is durable there.
        pub committed: Transno,
        /// Shows that the name is the sender's own ([`crate::identity`]). Those with the servers' key need none.
        pub proof: Bytes,
    }
}

wire_struct! {
    /// The session is open.
    pub struct Connected {
        /// Names the session in later headers.
        pub session: u64,
        /// Features of the session.
        pub features: u64,
        /// This start of the target; a different one than before means that it restarted.
        pub boot: u64,
        /// Reply slots that the client may use.
        pub slots: u32,
        /// Every change up to here is durable.
        pub last_committed: Transno,
        /// Whether the target knew the client: what it had not committed can be replayed.
        pub resumed: bool,
    }
}

wire_struct! {
    /// Ends the session: the client holds nothing any more.
    pub struct Disconnect {}
}

wire_struct! {
    /// Done; the header says the rest.
    pub struct Done {}
}

wire_struct! {
    /// Makes changes durable; the reply comes when they are.
    pub struct Sync {
        /// Every change up to here; 0 for every change that was answered so far.
        pub transno: Transno,
    }
}

wire_struct! {
    /// Asks for the space of a target.
    pub struct Statfs {}
}

wire_struct! {
    /// Space of a target.
    #[derive(Copy, Default)]
    pub struct Space {
        /// Bytes in all.
        pub bytes_total: u64,
        /// Bytes not used.
        pub bytes_free: u64,
        /// Bytes that a user can still write.
        pub bytes_available: u64,
        /// Files or objects that the target can hold.
        pub files_total: u64,
        /// Files or objects that can still be made.
        pub files_free: u64,
        ;
        /// What is to be known of it besides; bits as in Lustre's `os_state`, of which there are
        /// [`Space::DEGRADED`], [`Space::NO_CREATE`] and [`Space::FULL`].
        pub state: u32,
        /// The disk that the target shares with all others that tell the same number; 0 if it does not tell.
        pub disk: u64,
        /// Of the bytes that are not used, those in files of the target's own, which no other target can use.
        pub bytes_own: u64,
    }
}

impl Space {
    /// An operator has marked the target: new files keep away from it.
    pub const DEGRADED: u32 = 1;
    /// An operator is about to take the target away: new files keep away from it.
    pub const NO_CREATE: u32 = 4;
    /// The target has no room: only what frees space is carried out.
    pub const FULL: u32 = 0x20;

    /// Space of several targets together. A disk that some of them share is counted once.
    pub fn sum(spaces: impl IntoIterator<Item = Space>) -> Space {
        let mut disks: BTreeMap<u64, Space> = BTreeMap::new();
        let mut sum = Space::default();
        for space in spaces {
            sum.bytes_own = sum.bytes_own.saturating_add(space.bytes_own);
            sum.state |= space.state;
            let shared = Space {
                bytes_free: space.bytes_free.saturating_sub(space.bytes_own),
                bytes_available: space.bytes_available.saturating_sub(space.bytes_own),
                ..space
            };
            if space.disk == 0 {
                sum.add(&shared);
                continue;
            }
            let disk = disks.entry(space.disk).or_default();
            disk.bytes_total = disk.bytes_total.max(shared.bytes_total);
            disk.bytes_free = disk.bytes_free.max(shared.bytes_free);
            disk.bytes_available = disk.bytes_available.max(shared.bytes_available);
            let used = |space: &Space| space.files_total.saturating_sub(space.files_free);
            let used = used(disk).saturating_add(used(&shared));
            disk.files_free = disk.files_free.max(shared.files_free);
            disk.files_total = disk.files_free.saturating_add(used);
        }
        disks.values().for_each(|disk| sum.add(disk));
        sum.bytes_free = sum.bytes_free.saturating_add(sum.bytes_own).min(sum.bytes_total);
        sum.bytes_available = sum.bytes_available.saturating_add(sum.bytes_own).min(sum.bytes_total);
        sum
    }

    fn add(&mut self, other: &Space) {
        self.bytes_total = self.bytes_total.saturating_add(other.bytes_total);
        self.bytes_free = self.bytes_free.saturating_add(other.bytes_free);
        self.bytes_available = self.bytes_available.saturating_add(other.bytes_available);
        self.files_total = self.files_total.saturating_add(other.files_total);
        self.files_free = self.files_free.saturating_add(other.files_free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(disk: u64, bytes: [u64; 3], bytes_own: u64, files: [u64; 2]) -> Space {
        let [bytes_total, bytes_free, bytes_available] = bytes;
        let [files_total, files_free] = files;
        Space { bytes_total, bytes_free, bytes_available, files_total, files_free, disk, bytes_own, state: 0 }
    }

    /// `df` of a file system whose targets lie on one disk showed it once for each of them.
    #[test]
    fn a_disk_that_targets_share_is_counted_once() {
        let one = space(7, [1000, 610, 510], 10, [120, 100]);
        let two = space(7, [1000, 620, 520], 20, [130, 100]);
        let other = space(8, [500, 400, 300], 0, [10, 5]);
        let untold = space(0, [50, 40, 30], 0, [4, 2]);
        assert_eq!(Space::sum([one]), Space { disk: 0, ..one });
        assert_eq!(Space::sum([one, two]), space(0, [1000, 630, 530], 30, [150, 100]));
        assert_eq!(Space::sum([one, other, two]), space(0, [1500, 1030, 830], 30, [160, 105]));
        assert_eq!(Space::sum([untold, untold]), space(0, [100, 80, 60], 0, [8, 4]));
        assert_eq!(Space::sum([]), Space::default());
    }
}
