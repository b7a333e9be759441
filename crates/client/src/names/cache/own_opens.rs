//! Files and directories that nobody can change or remove unseen are opened to read without the MDT (`docs/locks.md#own-opens`).
//!
//! The MDT is told what is open before somebody takes such a file away: by whoever answers a callback, and by whoever removes a name here.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};

use proto::Fid;
use proto::limits::OWN_OPENS_MAX;
use proto::wire::messages::OpenHeld;

use crate::order::{LEAF, Mutex};

/// The numbers of these opens begin here: no request has one of them, and no file that was made ahead
/// ([`proto::wire::messages::Foretold::handle_of`]).
const FIRST_HANDLE: u64 = 1 << 62;

/// What is open without the MDT.
#[derive(Default)]
pub(crate) struct OwnOpens(Mutex<LEAF, Table>);

#[derive(Default)]
struct Table {
    open: BTreeMap<Fid, Open>,
    /// Files of which a name is being taken away here, and how often.
    leaving: BTreeMap<Fid, u32>,
    /// How often that is being done without knowing the file.
    any_leaving: u32,
    numbers: u64,
    /// How many of those that are open the MDT does not know.
    untold: usize,
}

/// A file that is open.
struct Open {
    handle: u64,
    users: u32,
    told: Told,
}

/// What the MDT knows of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing: it is told before anybody removes the file.
    Not,
    /// Nothing, and no callback has it told in time: the MDT restarted, and did not know of the file yet.
    NotBare,
    Yes,
}

/// What the MDT is to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untold {
    /// All that it does not know.
    All,
    /// What it does not know of a file.
    Of(Fid),
    /// What it is not told of in time otherwise.
    Bare,
}

/// What is to be done at the end of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::names) enum End {
    /// It is not one of these.
    Unknown,
    /// Others use it, or the MDT was never told.
    Untold,
    /// The MDT has to close it.
    Told,
}

impl OwnOpens {
    /// One more uses a file; the number of the open. `None` while a name is being taken away.
    pub(super) fn open(&self, fid: Fid) -> Option<u64> {
        let mut table = self.0.lock();
        if table.any_leaving > 0 || table.leaving.contains_key(&fid) {
            return None;
        }
        let (number, is_full) = (FIRST_HANDLE + table.numbers, table.open.len() >= OWN_OPENS_MAX);
        match table.open.entry(fid) {
            Place::Occupied(mut open) => {
                open.get_mut().users += 1;
                Some(open.get().handle)
            }
            Place::Vacant(_) if is_full => None,
            Place::Vacant(vacant) => {
                vacant.insert(Open { handle: number, users: 1, told: Told::Not });
                table.numbers += 1;
                table.untold += 1;
                Some(number)
            }
        }
    }

    /// One less uses a file.
    pub(in crate::names) fn close(&self, fid: Fid, handle: u64) -> End {
        // Most handles are the MDT's.
        if !(FIRST_HANDLE..FIRST_HANDLE << 1).contains(&handle) {
            return End::Unknown;
        }
        let mut table = self.0.lock();
        let Place::Occupied(mut open) = table.open.entry(fid) else { return End::Unknown };
        if open.get().handle != handle {
            return End::Unknown;
        }
        open.get_mut().users -= 1;
        match (open.get().users, open.get().told == Told::Yes) {
            (0, true) => {
                open.remove();
                End::Told
            }
            (0, false) => {
                open.remove();
                table.untold -= 1;
                End::Untold
            }
            _ => End::Untold,
        }
    }

    /// The MDT has restarted, and is told of all that is open of files that it knows. It does not know those of
    /// `pending` of which it was not told before: it hears of them when it does.
    pub(super) fn restarted(&self, pending: &BTreeSet<Fid>) {
        let mut table = self.0.lock();
        let mut untold = 0;
        for (fid, open) in &mut table.open {
            let is_unknown = open.told != Told::Yes && pending.contains(fid);
            open.told = if is_unknown { Told::NotBare } else { Told::Yes };
            untold += usize::from(is_unknown);
        }
        table.untold = untold;
    }

    /// All that the MDT knows, or is to be told after its restart.
    pub(super) fn told_all(&self) -> Vec<(Fid, u64)> {
        let table = self.0.lock();
        let told = table.open.iter().filter(|(_, open)| open.told == Told::Yes);
        told.map(|(fid, open)| (*fid, open.handle)).collect()
    }

    /// Whether a handle is one of which the MDT is told later.
    pub(super) fn is_bare(&self, fid: Fid, handle: u64) -> bool {
        let table = self.0.lock();
        table.open.get(&fid).is_some_and(|open| open.handle == handle && open.told == Told::NotBare)
    }

    /// The MDT has given this client up: whatever is open is not known there.
    pub(super) fn lost(&self) {
        let mut table = self.0.lock();
        table.open.clear();
        table.untold = 0;
    }

    /// What the MDT does not know.
    pub(super) fn untold(&self, which: Untold) -> Vec<OpenHeld> {
        let table = self.0.lock();
        if table.untold == 0 {
            return Vec::new();
        }
        let untold = |(fid, open): (&Fid, &Open)| {
            (open.told != Told::Yes).then_some(OpenHeld { fid: *fid, handle: open.handle })
        };
        match which {
            Untold::All => table.open.iter().filter_map(untold).collect(),
            Untold::Of(fid) => {
                table.open.get(&fid).and_then(|open| untold((&fid, open))).into_iter().collect()
            }
            Untold::Bare => {
                table.open.iter().filter(|(_, open)| open.told == Told::NotBare).filter_map(untold).collect()
            }
        }
    }

    /// The MDT knows of an open file. Whether it is still open.
    pub(super) fn told(&self, held: &OpenHeld) -> bool {
        let mut table = self.0.lock();
        let open = table.open.get_mut(&held.fid).filter(|open| open.handle == held.handle);
        let Some(open) = open else { return false };
        let was_told = std::mem::replace(&mut open.told, Told::Yes) == Told::Yes;
        table.untold -= usize::from(!was_told);
        true
    }

    /// Whether a file is open, and the MDT does not know.
    pub(super) fn is_untold(&self, fid: Fid) -> bool {
        self.0.lock().open.get(&fid).is_some_and(|open| open.told != Told::Yes)
    }

    /// A name of a file is being taken away, or of one that is not known: until that is done it is not opened here.
    pub(super) fn leave(&self, fid: Option<Fid>) -> Leaving<'_> {
        let mut table = self.0.lock();
        match fid {
            Some(fid) => *table.leaving.entry(fid).or_default() += 1,
            None => table.any_leaving += 1,
        }
        Leaving { opens: self, fid }
    }
}

/// A name is being taken away, until this is dropped.
pub(crate) struct Leaving<'a> {
    opens: &'a OwnOpens,
    fid: Option<Fid>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut table = self.opens.0.lock();
        let Some(fid) = self.fid else {
            table.any_leaving -= 1;
            return;
        };
        if let Place::Occupied(mut count) = table.leaving.entry(fid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    #[test]
    fn the_mdt_closes_what_it_was_told_of() {
        let opens = OwnOpens::default();
        let handle = opens.open(FID).expect("nobody removes it");
        assert_eq!(opens.open(FID), Some(handle));
        assert_eq!((opens.close(FID, handle), opens.close(FID, handle)), (End::Untold, End::Untold));
        assert_eq!(opens.close(FID, handle), End::Unknown);
        let again = opens.open(FID).expect("nobody removes it");
        assert_ne!(again, handle);
        let untold = opens.untold(Untold::All);
        assert_eq!(untold, [OpenHeld { fid: FID, handle: again }]);
        assert!(opens.told(&untold[0]) && opens.untold(Untold::Of(FID)).is_empty());
        assert_eq!((opens.close(FID, handle), opens.close(FID, again)), (End::Unknown, End::Told));
        assert!(!opens.told(&untold[0]), "it was closed while the MDT was told");
        // Told twice, as by two callbacks; and one that is told with a restart.
        let handle = opens.open(FID).expect("nobody removes it");
        let held = OpenHeld { fid: FID, handle };
        assert!(opens.told(&held) && opens.told(&held));
        assert_eq!(opens.close(FID, handle), End::Told);
        let handle = opens.open(FID).expect("nobody removes it");
        opens.restarted(&BTreeSet::new());
        assert_eq!(opens.told_all(), [(FID, handle)]);
        assert_eq!((opens.untold(Untold::All).len(), opens.close(FID, handle)), (0, End::Told));
        opens.open(FID).expect("nobody removes it");
        assert_eq!(opens.untold(Untold::All).len(), 1);
        opens.lost();
        assert_eq!((opens.untold(Untold::All).len(), opens.close(FID, handle)), (0, End::Unknown));
    }

    #[test]
    fn a_restarted_mdt_hears_later_of_files_that_it_does_not_know() {
        let (opens, other) = (OwnOpens::default(), Fid { oid: 2, ..FID });
        let handles = [FID, other].map(|fid| opens.open(fid).expect("nobody removes it"));
        opens.restarted(&BTreeSet::from([FID]));
        assert_eq!(opens.told_all(), [(other, handles[1])]);
        assert!(opens.is_bare(FID, handles[0]) && !opens.is_bare(other, handles[1]));
        let bare = [OpenHeld { fid: FID, handle: handles[0] }];
        assert_eq!((opens.untold(Untold::Bare), opens.untold(Untold::All)), (bare.to_vec(), bare.to_vec()));
        // It restarts once more.
        opens.restarted(&BTreeSet::from([FID]));
        assert_eq!(opens.untold(Untold::Bare), bare);
        assert!(opens.told(&bare[0]) && opens.untold(Untold::All).is_empty());
        assert_eq!((opens.close(FID, handles[0]), opens.close(other, handles[1])), (End::Told, End::Told));
    }

    #[test]
    fn nothing_is_opened_while_its_name_goes() {
        let opens = OwnOpens::default();
        for fid in [Some(FID), None] {
            let (one, two) = (opens.leave(fid), opens.leave(fid));
            drop(one);
            assert_eq!(opens.open(FID), None);
            drop(two);
            let handle = opens.open(FID).expect("it stays");
            assert_eq!(opens.close(FID, handle), End::Untold);
        }
    }
}
