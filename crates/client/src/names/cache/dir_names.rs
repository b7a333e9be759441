//! The names that are kept of one directory. Pure state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proto::{Fid, Name};

/// Names that a directory does not have, and that are kept even where there is little room.
const ABSENT_KEPT: usize = 1024;
/// Names of a directory of which it is not known whether they are there, for the others to be known.
const DOUBTFUL_MAX: usize = 1024;

/// What is known of the names of a directory.
#[derive(Debug, Default)]
pub(crate) struct DirNames {
    /// Its entries, with the stamp that the file had.
    known: BTreeMap<Name, (Fid, u64)>,
    /// Names that it does not have.
    absent: BTreeSet<Name>,
    /// Where the next look for names begins that mean nothing any more: behind this one.
    swept: Option<Name>,
    /// This client made it, and nobody else has changed its data, or its entries, since.
    made_here: bool,
    /// Names of a directory that was made here of which it is not known whether they are there. Every other one is, if it is known.
    doubtful: BTreeSet<Name>,
}

impl DirNames {
    /// Says whether this client has just made it.
    pub(super) fn made(&mut self, made_here: bool) {
        self.made_here = made_here;
    }

    /// Whether this client made it, and nobody else has changed its data, or its entries, since.
    pub(super) fn is_made_here(&self) -> bool {
        self.made_here
    }

    /// How many are kept.
    pub(super) fn count(&self) -> usize {
        self.known.len() + self.absent.len() + self.doubtful.len()
    }

    /// Others may make entries from now on: it is not known any more that a name is not there.
    pub(super) fn forget_absent(&mut self) {
        self.absent.clear();
    }

    /// What is kept of a name: which file it meant, with the stamp of that; `Some(None)`: there was no such name.
    pub(crate) fn get(&self, name: &Name) -> Option<Option<(Fid, u64)>> {
        match self.known.get(name) {
            Some(known) => Some(Some(*known)),
            None => self.is_absent(name).then_some(None),
        }
    }

    /// Whether a name that is not kept is known not to be there.
    fn is_absent(&self, name: &Name) -> bool {
        self.made_here && !self.doubtful.contains(name) || self.absent.contains(name)
    }

    /// Whether it is a directory that certainly has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.made_here && self.known.is_empty() && self.doubtful.is_empty()
    }

    /// The entries of a directory, if every one is known: it was made here, and there is no doubt about any name.
    pub(super) fn entries(&self) -> Option<impl ExactSizeIterator<Item = (Name, Fid)>> {
        let is_whole = self.made_here && self.doubtful.is_empty();
        is_whole.then(|| self.known.iter().map(|(name, (fid, _))| (name.clone(), *fid)))
    }

    /// It is not known any more whether a name is there.
    fn doubts(&mut self, name: &Name) {
        if !self.made_here {
            return;
        }
        self.doubtful.insert(name.clone());
        if self.doubtful.len() > DOUBTFUL_MAX {
            self.doubts_all();
        }
    }

    /// The same of every name.
    pub(super) fn doubts_all(&mut self) {
        self.made_here = false;
        self.doubtful.clear();
    }

    /// Whether any name is kept.
    pub(crate) fn has_any(&self) -> bool {
        !self.known.is_empty() || !self.absent.is_empty()
    }

    /// Keeps what a name means.
    pub(crate) fn learn(&mut self, name: Name, fid: Fid, stamp: u64) {
        self.absent.remove(&name);
        self.doubtful.remove(&name);
        self.known.insert(name, (fid, stamp));
    }

    /// Keeps that there is no such name.
    pub(crate) fn learn_absence(&mut self, name: Name) {
        self.known.remove(&name);
        self.doubtful.remove(&name);
        if !self.made_here {
            self.absent.insert(name);
        }
    }

    /// Nothing is known of a name.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.known.remove(name);
        self.absent.remove(name);
        self.doubts(name);
    }

    /// Nothing is known of any name.
    pub(crate) fn forget_all(&mut self) {
        (self.known, self.absent, self.swept) = Default::default();
        self.doubts_all();
    }

    /// Some names and what they meant, other ones each time. Of those that are not there as many are forgotten,
    /// if there are many.
    pub(super) fn next(&mut self, count: usize) -> Vec<(Name, (Fid, u64))> {
        for _ in 0..count.min(self.absent.len().saturating_sub(ABSENT_KEPT)) {
            self.absent.pop_first();
        }
        let from = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.known.range((from, Bound::Unbounded)).take(count);
        let next: Vec<(Name, (Fid, u64))> = next.map(|(name, known)| (name.clone(), *known)).collect();
        self.swept = next.last().map(|(name, _)| name.clone());
        next
    }

    /// Forgets a name, if it is what it was.
    pub(super) fn forget_known(&mut self, name: &Name, known: (Fid, u64)) {
        if self.known.get(name) == Some(&known) {
            self.known.remove(name);
            self.doubts(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn too_many_doubts_leave_no_name_that_is_certain() {
        let name = |text: &'static str| Name::new(text.as_bytes()).expect("a plain name");
        let mut dir = DirNames::default();
        dir.made(true);
        dir.learn(name("here"), Fid::ROOT, 1);
        assert_eq!(dir.get(&name("not")), Some(None));
        for number in 0..=DOUBTFUL_MAX {
            let number = Bytes::from(number.to_string());
            dir.forget(&Name::new(number).expect("a plain name"));
        }
        let known = ["here", "not"].map(|text| dir.get(&name(text)));
        assert_eq!((known, dir.doubtful.len()), ([Some(Some((Fid::ROOT, 1))), None], 0));
    }
}
