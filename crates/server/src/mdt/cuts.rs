//! Which clients cut a file: from the permission to truncate it until they have told the size that it has then
//! (`docs/wire.md#sizes`). Meanwhile nobody else's word for the size counts.
//!
//! The table is memory; each cut that it takes has a key in the store, so that a restart does not forget it.

use std::collections::HashMap;

use proto::{ClientId, Fid};
use smallvec::SmallVec;

/// Files of one table of which it is remembered who cuts them. Beyond that no size that is told of a file of the table counts.
const FILES_MAX: usize = 4096;

/// One that cuts a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutter {
    /// Handle of the session.
    pub session: u64,
    /// Its client, by which the store knows it.
    pub client: ClientId,
}

/// Those who cut a file.
#[derive(Debug, Default)]
struct Cutters {
    cutters: SmallVec<[Cutter; 1]>,
    /// There were several at a time, or others have closed what they had written meanwhile, or it is not known: what each of them asked the
    /// objects may be of before that.
    shared: bool,
}

impl Cutters {
    fn others(&self, session: u64) -> bool {
        self.cutters.iter().any(|of| of.session != session)
    }
}

/// The cuts of some files.
#[derive(Debug, Default)]
pub struct Cuts {
    files: HashMap<Fid, Cutters>,
    /// There are more than the table holds.
    has_more: bool,
}

impl Cuts {
    /// Whether the table would remember a cut of the file.
    pub fn takes(&self, fid: Fid) -> bool {
        self.files.len() < FILES_MAX || self.files.contains_key(&fid)
    }

    /// `cutter` begins to cut.
    pub fn begin(&mut self, fid: Fid, cutter: Cutter) {
        if !self.takes(fid) {
            self.has_more = true;
            return;
        }
        let of = self.files.entry(fid).or_default();
        if of.others(cutter.session) {
            of.shared = true;
        }
        if !of.cutters.contains(&cutter) {
            of.cutters.push(cutter);
        }
    }

    /// `cutter` had begun before the target restarted. What others did since is not known.
    pub fn restore(&mut self, fid: Fid, cutter: Cutter) {
        self.begin(fid, cutter);
        if let Some(of) = self.files.get_mut(&fid) {
            of.shared = true;
        }
    }

    /// `session` is done: whether it was alone; `None` if it was not known to cut.
    pub fn end(&mut self, fid: Fid, session: u64) -> Option<bool> {
        let of = self.files.get_mut(&fid)?;
        let at = of.cutters.iter().position(|of| of.session == session)?;
        of.cutters.swap_remove(at);
        let was_alone = !of.shared;
        if of.cutters.is_empty() {
            self.gone(fid);
        }
        Some(was_alone)
    }

    /// The file is no more.
    pub fn gone(&mut self, fid: Fid) {
        self.files.remove(&fid);
        self.has_more &= !self.files.is_empty();
    }

    /// A session is over: the files that it cut.
    pub fn ended(&mut self, session: u64) -> Vec<Fid> {
        let cut = self.files.iter().filter(|(_, of)| of.cutters.iter().any(|of| of.session == session));
        let cut: Vec<Fid> = cut.map(|(fid, _)| *fid).collect();
        for fid in &cut {
            let _ = self.end(*fid, session);
        }
        cut
    }

    /// `session` closes the file, which it may have written: whoever cuts it may have asked the objects before that.
    pub fn was_written(&mut self, fid: Fid, session: u64) {
        if let Some(of) = self.files.get_mut(&fid) {
            of.shared |= of.others(session);
        }
    }

    /// Whether anybody may be cutting the file.
    pub fn is_cut(&self, fid: Fid) -> bool {
        self.files.contains_key(&fid) || self.has_more
    }

    /// Whether `session` is known to cut the file.
    pub fn is_cut_by(&self, fid: Fid, session: u64) -> bool {
        self.files.get(&fid).is_some_and(|of| of.cutters.iter().any(|of| of.session == session))
    }

    /// Whether somebody but `session` may be cutting it.
    pub fn is_cut_by_another(&self, fid: Fid, session: u64) -> bool {
        self.files.get(&fid).is_some_and(|of| of.others(session)) || self.has_more
    }

    /// The clients that are known to cut the file.
    pub fn clients(&self, fid: Fid) -> SmallVec<[ClientId; 1]> {
        let of = self.files.get(&fid).into_iter();
        of.flat_map(|of| of.cutters.iter().map(|cutter| cutter.client)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cutter(session: u64) -> Cutter {
        Cutter { session, client: ClientId(session.into()) }
    }

    fn file(oid: u32) -> Fid {
        Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }
    }

    #[test]
    fn one_that_was_alone_knows() {
        let mut cuts = Cuts::default();
        assert_eq!(cuts.end(file(1), 1), None);
        cuts.begin(file(1), cutter(1));
        cuts.begin(file(1), cutter(1));
        assert!(cuts.is_cut_by(file(1), 1) && !cuts.is_cut_by_another(file(1), 1) && !cuts.is_cut(file(2)));
        assert_eq!(cuts.end(file(1), 1), Some(true));
        cuts.begin(file(1), cutter(1));
        cuts.begin(file(1), cutter(2));
        assert_eq!(cuts.clients(file(1)).to_vec(), [ClientId(1), ClientId(2)]);
        assert_eq!((cuts.end(file(1), 1), cuts.end(file(1), 2)), (Some(false), Some(false)));
        cuts.begin(file(1), cutter(1));
        cuts.was_written(file(1), 1);
        assert_eq!(cuts.end(file(1), 1), Some(true), "it has closed it itself");
        cuts.begin(file(1), cutter(1));
        cuts.was_written(file(1), 2);
        assert_eq!(cuts.end(file(1), 1), Some(false));
        cuts.restore(file(1), cutter(1));
        assert_eq!(cuts.end(file(1), 1), Some(false), "what was before is not known");
    }

    #[test]
    fn files_and_sessions_end() {
        let mut cuts = Cuts::default();
        [(1, 1), (2, 1), (2, 2), (3, 2)].iter().for_each(|(oid, by)| cuts.begin(file(*oid), cutter(*by)));
        let mut ended = cuts.ended(1);
        ended.sort_unstable();
        assert_eq!(ended, [file(1), file(2)]);
        assert!(!cuts.is_cut(file(1)) && cuts.is_cut_by(file(2), 2));
        cuts.gone(file(2));
        assert!(!cuts.is_cut(file(2)) && cuts.is_cut(file(3)));
    }

    /// Nothing counts as long as it is not known what is cut.
    #[test]
    fn there_is_a_limit() {
        let mut cuts = Cuts::default();
        let most = FILES_MAX as u32;
        (0..most).for_each(|oid| cuts.begin(file(oid), cutter(1)));
        assert!(cuts.takes(file(0)) && !cuts.takes(file(most)) && !cuts.is_cut(file(most)));
        cuts.begin(file(most), cutter(1));
        assert!(cuts.is_cut(file(most)) && cuts.is_cut_by_another(file(0), 1));
        assert_eq!(cuts.end(file(most), 1), None);
        assert_eq!(cuts.ended(1).len(), FILES_MAX);
        assert!(!cuts.is_cut(file(most)));
    }
}
