//! Where a file ends, as long as this client alone can change that: who appends need not ask the objects each time.

use crate::lock::Grants;
/// The end of a file, if it is known.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Under which grants, and the offset behind the last byte.
    known: Option<(Grants, u64)>,
    /// Changes that an answer which was asked for before them may lack.
    changes: u64,
    /// This client made the file, and has not changed its data since.
    is_untouched: bool,
}

impl End {
    /// The end, if nobody else could change it since it was learnt.
    pub(crate) fn under(&self, grants: &Grants) -> Option<u64> {
        self.known.as_ref().filter(|(of, _)| of == grants).map(|(_, end)| *end)
    }

    /// This client has just made the file: it is empty.
    pub(crate) fn made(&mut self) {
        self.is_untouched = true;
    }

    /// Whether the file is empty for all that this client did to it: it made the file, and has not changed its data since.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// For [`End::learn`], before the objects are asked.
    pub(crate) fn mark(&self) -> u64 {
        self.changes
    }

    /// The objects were asked under `grants`, which are still held.
    pub(crate) fn learn(&mut self, grants: Grants, mark: u64, end: u64) {
        if self.changes == mark {
            self.known = Some((grants, end));
        }
    }

    /// This client wrote up to `end`, which its cache or the objects have.
    pub(crate) fn wrote(&mut self, end: u64) {
        self.is_untouched = false;
        match &mut self.known {
            Some((_, known)) => *known = end.max(*known),
            None => self.changes += 1,
        }
    }

    /// This client changed the objects in some other way, or lost what it wrote.
    pub(crate) fn forget(&mut self) {
        self.is_untouched = false;
        self.known = None;
        self.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Fid;

    fn grants(oid: u32, numbers: &[u64]) -> Grants {
        let layout = Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        Grants { layouts: [layout].into_iter().collect(), numbers: numbers.iter().copied().collect() }
    }

    #[test]
    fn an_end_holds_as_long_as_the_grants() {
        let (mut end, held) = (End::default(), grants(1, &[5, 7]));
        assert_eq!(end.under(&held), None);
        end.learn(held.clone(), end.mark(), 100);
        assert_eq!(end.under(&held), Some(100));
        end.wrote(50);
        end.wrote(104);
        assert_eq!(end.under(&held), Some(104));
        for other in [grants(1, &[5, 8]), grants(2, &[5, 7]), grants(1, &[5])] {
            assert_eq!(end.under(&other), None, "{other:?}");
        }
        end.forget();
        assert_eq!(end.under(&held), None);
    }

    #[test]
    fn a_new_file_is_empty_until_something_is_done_to_it() {
        for touch in [End::forget, |end: &mut End| end.wrote(0)] {
            let mut end = End::default();
            assert!(!end.is_untouched());
            end.made();
            assert!(end.is_untouched());
            touch(&mut end);
            assert!(!end.is_untouched());
        }
    }

    #[test]
    fn an_answer_from_before_a_change_says_nothing() {
        let (mut end, held) = (End::default(), grants(1, &[5]));
        let mark = end.mark();
        end.wrote(10);
        end.learn(held.clone(), mark, 4);
        assert_eq!(end.under(&held), None, "the objects may not have had it");
        let mark = end.mark();
        end.forget();
        end.learn(held.clone(), mark, 10);
        assert_eq!(end.under(&held), None);
        end.learn(held.clone(), end.mark(), 10);
        assert_eq!(end.under(&held), Some(10));
    }
}
