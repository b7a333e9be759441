//! The directories that a client has to itself, and the files in them of which nobody else can know. Pure state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::Fid;
use proto::layout::Spread;
use proto::limits::ALONE_MAX;

/// Files of all directories together of which nobody else can know. With more the oldest directory is given back.
const FILES_MAX: usize = 262_144;
/// Files of all directories together of which it is remembered where they were made. Of more the oldest are forgotten: their attributes are
/// not changed ahead any more.
const MADE_MAX: usize = 65_536;

/// A directory that this client has to itself.
#[derive(Debug)]
pub(super) struct Own {
    /// How new files in it lie.
    pub(super) spread: Arc<Spread>,
    number: u64,
    /// Files in it that may be written, and of which nobody else can know.
    pub(super) files: BTreeSet<Fid>,
}

impl Own {
    /// One that was given up, with promises that are not answered.
    pub(super) fn given_up() -> Own {
        let spread = Spread { stripe_size: 0, stripe_count: 0, osts: Vec::new(), first_sequence: 0 };
        Own { spread: Arc::new(spread), number: 0, files: BTreeSet::new() }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Dirs {
    dirs: BTreeMap<Fid, Own>,
    /// The same by their numbers, the oldest first.
    ages: BTreeMap<u64, Fid>,
    /// Number of the newest.
    newest: u64,
    /// Files in all of them of which nobody else can know.
    files: usize,
    /// In which directory a file was made, and what its number was. In the order of FIDs, in which they are made.
    made: BTreeMap<Fid, (Fid, u64)>,
}

impl Dirs {
    /// One more; gives the oldest, if there are too many.
    pub(super) fn add(&mut self, dir: Fid, spread: Arc<Spread>) -> Option<(Fid, Own)> {
        self.newest += 1;
        self.remove(dir);
        self.ages.insert(self.newest, dir);
        self.dirs.insert(dir, Own { spread, number: self.newest, files: BTreeSet::new() });
        if self.dirs.len() > ALONE_MAX { self.remove_oldest() } else { None }
    }

    /// What is known of one.
    pub(super) fn get(&self, dir: Fid) -> Option<&Own> {
        self.dirs.get(&dir)
    }

    /// New files in one lie in another way.
    pub(super) fn set_spread(&mut self, dir: Fid, spread: Spread) {
        if let Some(own) = self.dirs.get_mut(&dir) {
            own.spread = Arc::new(spread);
        }
    }

    /// A file comes of which nobody else can know; gives the oldest directory, if there are too many.
    pub(super) fn add_file(&mut self, dir: Fid, file: Fid) -> Option<(Fid, Own)> {
        let own = self.dirs.get_mut(&dir)?;
        self.files += usize::from(own.files.insert(file));
        if self.files > FILES_MAX { self.remove_oldest() } else { None }
    }

    /// A file, or what has no data, was made in `dir`.
    pub(super) fn made(&mut self, file: Fid, dir: Fid) {
        let Some(own) = self.dirs.get(&dir) else { return };
        self.made.insert(file, (dir, own.number));
        if self.made.len() > MADE_MAX {
            self.made.pop_first();
        }
    }

    /// The directory in which a file was made, if this client has had it to itself since.
    pub(super) fn dir_of(&self, file: Fid) -> Option<Fid> {
        let (dir, number) = self.made.get(&file)?;
        self.dirs.get(dir).filter(|own| own.number == *number).map(|_| *dir)
    }

    /// A file of `dir` has other names, or none.
    pub(super) fn unmake(&mut self, file: Fid) {
        self.made.remove(&file);
    }

    /// Others may know of a file in `dir`, or it is gone.
    pub(super) fn remove_file_of(&mut self, dir: Fid, file: Fid) {
        if let Some(own) = self.dirs.get_mut(&dir) {
            self.files -= usize::from(own.files.remove(&file));
        }
    }

    /// The same of a file in any of them; whether there was one.
    pub(super) fn remove_file(&mut self, file: Fid) -> bool {
        let is_here = self.dirs.values_mut().any(|own| own.files.remove(&file));
        self.files -= usize::from(is_here);
        is_here
    }

    /// One is not this client's alone any more.
    pub(super) fn remove(&mut self, dir: Fid) -> Option<(Fid, Own)> {
        let removed = self.dirs.remove_entry(&dir)?;
        self.ages.remove(&removed.1.number);
        self.files -= removed.1.files.len();
        Some(removed)
    }

    fn remove_oldest(&mut self) -> Option<(Fid, Own)> {
        let oldest = *self.ages.values().next()?;
        self.remove(oldest)
    }

    /// The same of all.
    pub(super) fn take(&mut self) -> BTreeMap<Fid, Own> {
        self.files = 0;
        self.made.clear();
        self.ages.clear();
        std::mem::take(&mut self.dirs)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.dirs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: usize) -> Fid {
        Fid { seq: 0x2_0000_0400, oid: oid as u32, ver: 0 }
    }

    fn add(dirs: &mut Dirs, dir: usize) -> Option<Fid> {
        dirs.add(fid(dir), Own::given_up().spread).map(|(dir, _)| dir)
    }

    #[test]
    fn the_oldest_directory_makes_room() {
        let mut dirs = Dirs::default();
        for dir in 1..=ALONE_MAX {
            assert_eq!(add(&mut dirs, dir), None);
        }
        assert_eq!(add(&mut dirs, ALONE_MAX + 1), Some(fid(1)));
        assert_eq!(dirs.remove(fid(2)).map(|(dir, _)| dir), Some(fid(2)));
        assert_eq!((add(&mut dirs, ALONE_MAX + 2), dirs.len()), (None, ALONE_MAX));
        assert_eq!((dirs.take().len(), dirs.len()), (ALONE_MAX, 0));
    }

    #[test]
    fn a_file_is_known_by_its_directory_as_long_as_that_is_alone() {
        let mut dirs = Dirs::default();
        add(&mut dirs, 1);
        dirs.made(fid(10), fid(1));
        dirs.made(fid(11), fid(1));
        dirs.made(fid(12), fid(2));
        dirs.unmake(fid(11));
        assert_eq!([10, 11, 12].map(|file| dirs.dir_of(fid(file))), [Some(fid(1)), None, None]);
        dirs.remove(fid(1));
        assert_eq!(dirs.dir_of(fid(10)), None);
        add(&mut dirs, 1);
        assert_eq!(dirs.dir_of(fid(10)), None, "it is another grant");
        for file in 0..=MADE_MAX {
            dirs.made(fid(20 + file), fid(1));
        }
        assert_eq!(
            (dirs.dir_of(fid(20)), dirs.dir_of(fid(21)), dirs.made.len()),
            (None, Some(fid(1)), MADE_MAX)
        );
    }

    #[test]
    fn files_are_bounded_over_all_directories() {
        let mut dirs = Dirs::default();
        add(&mut dirs, 1);
        add(&mut dirs, 2);
        for file in 0..FILES_MAX {
            assert!(dirs.add_file(fid(1 + file % 2), fid(10 + file)).is_none());
        }
        assert!(dirs.add_file(fid(1), fid(10)).is_none(), "it is counted once");
        let (oldest, own) = dirs.add_file(fid(2), fid(9)).expect("there are too many");
        assert_eq!((oldest, own.files.len()), (fid(1), FILES_MAX / 2));
        assert_eq!(dirs.files, FILES_MAX / 2 + 1);
        assert!(dirs.remove_file(fid(9)) && !dirs.remove_file(fid(9)) && !dirs.remove_file(fid(10)));
        dirs.remove_file_of(fid(2), fid(11));
        dirs.remove_file_of(fid(1), fid(11));
        assert_eq!(dirs.files, FILES_MAX / 2 - 1);
        assert!(dirs.add_file(fid(1), fid(12)).is_none() && dirs.remove(fid(1)).is_none());
        dirs.remove(fid(2));
        assert_eq!(dirs.files, 0);
    }
}
