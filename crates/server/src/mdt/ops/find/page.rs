//! A page of a search: what was found, in order, as far as there is room; what is left over waits for the next page.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::Code;
use proto::wire::messages::{Find, FindPlace, Found, FoundPage};

use super::candidate::{Candidates, Place, end_at, judge_all};
use super::walk::Walk;
use super::{JOB_ENTRIES, bytes_of};
use crate::mdt::Mdt;

/// Files that one page looks at, about: a request is done in a fraction of a second.
const VISITS_MAX: u64 = 200_000;
/// Files that are looked at before it is known how many of them are found, and at most until they are judged: the more there are, the closer
/// together their inodes lie.
const BATCH_MIN: u64 = 4 * JOB_ENTRIES as u64;
const BATCH_MAX: u64 = 262_144;

/// A search that has come so far.
pub(in crate::mdt) struct Progress {
    walk: Walk,
    /// What was judged last, and what of it is in no page yet, in order.
    batch: Arc<Vec<Candidates>>,
    ready: VecDeque<Ready>,
    /// Bytes of what was found.
    bytes: u64,
    /// Entries that were looked at for the pages until now.
    paged: u64,
    /// Where the next page begins.
    next: Option<FindPlace>,
}

struct Ready {
    /// Where it lies in the batch; the start of the search lies in none.
    place: Option<Place>,
    bytes: usize,
    told: Told,
}

enum Told {
    Found(Found),
    /// What the caller may not look into.
    Hidden(Bytes),
}

impl Progress {
    /// Of a walk that has just begun.
    pub(super) fn new(mut walk: Walk) -> Progress {
        let (found, hidden) = walk.take_start();
        let found =
            found.map(|found| Ready { place: None, bytes: bytes_of(&found), told: Told::Found(found) });
        let hidden = hidden.then(|| Ready { place: None, bytes: 0, told: Told::Hidden(Bytes::new()) });
        let ready = found.into_iter().chain(hidden).collect();
        Progress { walk, batch: Arc::default(), ready, bytes: 0, paged: 0, next: None }
    }

    /// Whether the page that is asked for is the one behind the last one.
    pub(super) fn is_before(&self, request: &Find) -> bool {
        let same = |of: &Find| Find { snapshot: 0, behind: None, ..of.clone() };
        request.behind == self.next && same(request) == same(self.walk.request())
    }

    /// Bytes of memory that it takes, about.
    pub(in crate::mdt) fn memory(&self) -> usize {
        let found: usize = self.ready.iter().map(|ready| ready.bytes + size_of::<Ready>()).sum();
        found + self.batch.iter().map(Candidates::memory).sum::<usize>()
    }

    /// The next page. `bytes_max` bounds it, and `batch_bytes_max` what is found ahead of it.
    pub(super) async fn page(
        mut self,
        mdt: &Mdt,
        number: u64,
        (bytes_max, batch_bytes_max): (usize, u64),
    ) -> Result<(FoundPage, Progress), Code> {
        let mut page =
            FoundPage { snapshot: number, found: Vec::new(), visited: 0, hidden: Vec::new(), next: None };
        let mut bytes = 0;
        loop {
            while let Some(ready) = self.ready.pop_front() {
                bytes += ready.bytes;
                match ready.told {
                    Told::Hidden(below) => page.hidden.push(below),
                    Told::Found(found) => page.found.push(found),
                }
                if let Some(place) = ready.place.filter(|_| bytes >= bytes_max) {
                    let (visited, next) = end_at(&self.batch, place)?;
                    return Ok(self.ended(page, visited, Some(next)));
                }
            }
            let (visited, next) = (self.walk.visited(), self.walk.place());
            if next.is_none() || visited - self.paged >= VISITS_MAX {
                return Ok(self.ended(page, visited, next));
            }
            let until = visited + self.batch_count(batch_bytes_max);
            self.walk_to(mdt, until).await?;
        }
    }

    fn ended(mut self, page: FoundPage, visited: u64, next: Option<FindPlace>) -> (FoundPage, Progress) {
        let page = FoundPage { visited: visited - self.paged, next: next.clone(), ..page };
        (self.paged, self.next) = (visited, next);
        (page, self)
    }

    /// How many entries are looked at next, as far as it can be known how many of them are found.
    fn batch_count(&self, bytes_max: u64) -> u64 {
        let visited = self.walk.visited();
        let for_bytes = visited.saturating_mul(bytes_max) / self.bytes.max(1);
        for_bytes.min(16 * visited).clamp(BATCH_MIN, BATCH_MAX)
    }

    /// Walks on for a while, and judges what it came by.
    async fn walk_to(&mut self, mdt: &Mdt, until: u64) -> Result<(), Code> {
        self.walk.go_on(mdt, until).await?;
        let (candidates, hidden) = self.walk.take();
        self.batch = Arc::new(candidates);
        let found = judge_all(mdt, self.walk.search(), &self.batch).await?;
        self.ready.reserve(found.len() + hidden.len());
        let mut hidden = hidden.into_iter().peekable();
        // A page does not end with one of these: that they lie there is known of the entries behind them.
        let told =
            |(_, below): (Place, Bytes)| Ready { place: None, bytes: below.len(), told: Told::Hidden(below) };
        for (place, found) in found {
            while let Some(one) = hidden.next_if(|(before, _)| *before <= place) {
                self.ready.push_back(told(one));
            }
            let bytes = bytes_of(&found);
            self.bytes += bytes as u64;
            self.ready.push_back(Ready { place: Some(place), bytes, told: Told::Found(found) });
        }
        self.ready.extend(hidden.map(told));
        Ok(())
    }
}
