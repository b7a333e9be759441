//! A page of a search: what was found, in order, as far as there is room; what is left over waits for the next page.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::Code;
use proto::wire::messages::{Find, FindPlace, Found, FoundPage};

use super::candidate::{Candidates, Judged, Place, end_at, judge_all};
use super::walk::{Enough, Hidden, HiddenAt, Walk, is_damage};
use super::{JOB_ENTRIES, bytes_of};
use crate::mdt::Mdt;

/// What one page looks at, about: a request is done in a fraction of a second.
const WORK_MAX: u64 = 200_000;
/// What is looked at first, before it is judged, and at most: the more there is, the closer together the inodes lie.
const BATCH_MIN: u64 = 4 * JOB_ENTRIES as u64;
const BATCH_MAX: u64 = 262_144;
/// What the path of a directory that is not looked into counts besides its bytes: a message has 65,536 of them at most.
const HIDDEN_BYTES: usize = 16;

/// A search that has come so far.
pub(in crate::mdt) struct Progress {
    walk: Walk,
    /// What was judged last, and what of it is in no page yet, in order.
    batch: Arc<Vec<Candidates>>,
    ready: VecDeque<Ready>,
    /// Entries that were looked at for the pages until now.
    paged: u64,
    /// Where the next page begins.
    next: Option<FindPlace>,
}

struct Ready {
    end: End,
    bytes: usize,
    told: Told,
}

/// Where a page may end.
enum End {
    /// Not here: that is the start of the search.
    Start,
    /// With this one of the batch.
    At(Place),
    /// With a directory that is not looked into.
    Hidden(HiddenAt),
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
            found.map(|found| Ready { end: End::Start, bytes: bytes_of(&found), told: Told::Found(found) });
        let hidden = hidden.then(|| Ready { end: End::Start, bytes: 0, told: Told::Hidden(Bytes::new()) });
        let ready = found.into_iter().chain(hidden).collect();
        Progress { walk, batch: Arc::default(), ready, paged: 0, next: None }
    }

    /// Whether the page that is asked for is the one behind the last one.
    pub(super) fn is_before(&self, request: &Find) -> bool {
        let same = |of: &Find| Find { snapshot: 0, behind: None, ..of.clone() };
        request.behind == self.next && same(request) == same(self.walk.request())
    }

    /// Bytes of memory that it takes, about.
    pub(in crate::mdt) fn memory(&self) -> u64 {
        let ready: usize = self.ready.iter().map(|ready| ready.bytes + size_of::<Ready>()).sum();
        ready as u64 + self.batch.iter().map(|of| of.memory(false)).sum::<u64>()
    }

    /// The next page. `bytes_max` bounds it, and `batch_bytes_max` what is found ahead of it. What is found ahead may come by what cannot be read:
    /// the page ends before that, without the progress, and the next one begins anew and is refused if it comes no further.
    pub(super) async fn page(
        mut self,
        mdt: &Mdt,
        number: u64,
        (bytes_max, batch_bytes_max): (usize, u64),
    ) -> Result<(FoundPage, Option<Progress>), Code> {
        let mut page =
            FoundPage { snapshot: number, found: Vec::new(), visited: 0, hidden: Vec::new(), next: None };
        let (mut bytes, mut work) = (0, 0);
        loop {
            while let Some(ready) = self.ready.pop_front() {
                bytes += ready.bytes;
                match ready.told {
                    Told::Hidden(below) => page.hidden.push(below),
                    Told::Found(found) => page.found.push(found),
                }
                let end = match ready.end {
                    _ if bytes < bytes_max => None,
                    End::Start => None,
                    End::At(place) => Some(end_at(&self.batch, place)?),
                    End::Hidden(HiddenAt { visited, place, .. }) => Some((visited, place)),
                };
                if let Some((visited, next)) = end {
                    let (page, progress) = self.ended(page, visited, Some(next));
                    return Ok((page, Some(progress)));
                }
            }
            let (visited, next) = (self.walk.visited(), self.walk.place());
            if next.is_none() || work >= WORK_MAX {
                let (page, progress) = self.ended(page, visited, next);
                return Ok((page, Some(progress)));
            }
            let enough = (self.walk.work() * 16).clamp(BATCH_MIN, BATCH_MAX);
            match self.walk_on(mdt, Enough { work: enough, bytes: batch_bytes_max }).await {
                Ok(done) => work += done,
                Err(code) if visited > self.paged && is_damage(code) => {
                    tracing::debug!(%code, number, "a page of a search ends before what cannot be read");
                    return Ok((self.ended(page, visited, next).0, None));
                }
                Err(code) => return Err(code),
            }
        }
    }

    fn ended(mut self, page: FoundPage, visited: u64, next: Option<FindPlace>) -> (FoundPage, Progress) {
        let page = FoundPage { visited: visited - self.paged, next: next.clone(), ..page };
        (self.paged, self.next) = (visited, next);
        (page, self)
    }

    /// Walks on for a while, and judges what it came by; how much was looked at.
    async fn walk_on(&mut self, mdt: &Mdt, enough: Enough) -> Result<u64, Code> {
        let before = self.walk.work();
        self.walk.go_on(mdt, enough).await?;
        let (candidates, hidden) = self.walk.take();
        let batch = Arc::new(candidates);
        let found = judge_all(mdt, self.walk.search(), &batch).await?;
        let old = std::mem::replace(&mut self.batch, batch);
        let ready = mdt.rt.offload(move || {
            drop(old);
            in_order(found, hidden)
        });
        self.ready = ready.await;
        Ok(self.walk.work() - before)
    }
}

/// Both in the order of the walk.
fn in_order(found: Vec<Vec<Judged>>, hidden: Vec<Hidden>) -> VecDeque<Ready> {
    let mut found: Vec<Judged> = found.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(place, _)| *place);
    let mut ready = VecDeque::with_capacity(found.len() + hidden.len());
    let mut hidden = hidden.into_iter().peekable();
    let told = |Hidden { below, at }: Hidden| Ready {
        bytes: below.len() + HIDDEN_BYTES,
        end: End::Hidden(at),
        told: Told::Hidden(below),
    };
    for (place, found) in found {
        while let Some(one) = hidden.next_if(|one| one.at.before <= place) {
            ready.push_back(told(one));
        }
        let bytes = bytes_of(&found);
        ready.push_back(Ready { end: End::At(place), bytes, told: Told::Found(found) });
    }
    ready.extend(hidden.map(told));
    ready
}
