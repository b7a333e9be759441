//! Which pages the kernel wants filled, and which it is made to forget: neither may wait for the other in a circle.
//!
//! The kernel holds a page locked from the moment it asks for it until it has the answer, and cannot forget it meanwhile.
//! A fill may wait for another client to give a range back; that client may wait, through any number of others, for a
//! range of ours whose pages have to be forgotten first. So nothing that forgets waits for a fill that waits:
//!
//! - A page whose fill waits has no content: there is nothing to forget in it, and it is left out.
//! - A fill holds no range while it waits for another one ([`Shared::pin_fill`]).
//! - A fill that comes while its pages are being forgotten already waits for a moment only, and then goes without a lock.
//! - The kernel writes no page of a file back as long as it waits for a truncate of it, and forgets none that was
//!   changed: so a truncate that goes on for long is not waited for.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::{Fid, Layout};

use super::held::{Pages, Progress};
use super::needs::Need;
use super::tokens::{Pin, Pins};
use crate::{Error, Forget, Result, Shared};

/// Bytes of the smallest page.
const PAGE_BYTES: u64 = 4096;
/// How long a fill waits whose pages are being forgotten.
const FORGOTTEN_WAIT: Duration = Duration::from_millis(100);
/// How long pages are waited for that a truncate of their file may keep from being written back.
const CUT_WAIT: Duration = Duration::from_millis(500);
/// How often a fill of several objects tries to have all of them at once.
const ROUNDS_MAX: u32 = 8;

/// What is under way of the kernel's pages.
#[derive(Default)]
pub(crate) struct Filling {
    table: Mutex<Table>,
}

/// Numbers grow: of a fill and a forgetting, the lower one was first.
#[derive(Default)]
struct Table {
    last: u64,
    /// Fills that wait.
    fills: BTreeMap<u64, (Fid, Range<u64>)>,
    /// What is being forgotten.
    forgotten: BTreeMap<u64, (Fid, Range<u64>)>,
}

impl Table {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whole pages.
fn rounded(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    range.start / PAGE_BYTES * PAGE_BYTES..end
}

/// An entry of the table, for as long as it lives.
struct Entry {
    shared: Arc<Shared>,
    numbers: Vec<u64>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.shared.filling.table.lock();
        for number in &self.numbers {
            table.fills.remove(number);
            table.forgotten.remove(number);
        }
    }
}

impl Filling {
    /// A fill of these pages waits.
    fn fill_waits(&self, fid: Fid, range: &Range<u64>) -> u64 {
        let mut table = self.table.lock();
        let number = table.next();
        table.fills.insert(number, (fid, rounded(range)));
        number
    }

    /// Whether its pages are being forgotten since before it came.
    fn is_forgotten(&self, fill: u64) -> bool {
        let table = self.table.lock();
        let Some((fid, pages)) = table.fills.get(&fill) else { return false };
        table.forgotten.range(..fill).any(|(_, (other, range))| other == fid && overlap(range, pages))
    }

    /// What of `range` is to be forgotten: all but pages whose fill waits. Each part has its number.
    fn forget(&self, fid: Fid, range: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let mut table = self.table.lock();
        let mut holes: Vec<Range<u64>> =
            table.fills.values().filter(|(other, _)| *other == fid).map(|(_, pages)| pages.clone()).collect();
        holes.sort_unstable_by_key(|hole| hole.start);
        let parts = without(range, &holes);
        parts
            .into_iter()
            .map(|part| {
                let number = table.next();
                table.forgotten.insert(number, (fid, rounded(&part)));
                (number, part)
            })
            .collect()
    }
}

/// `range` without `holes`, which are in the order of their starts.
fn without(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut at, mut parts) = (range.start, Vec::new());
    for hole in holes.iter().filter(|hole| overlap(hole, &range)) {
        if at < hole.start {
            parts.push(at..hole.start);
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

impl Shared {
    /// Has the kernel forget ranges of a file. Done when nothing of them is used any more.
    pub(crate) async fn forget_data(
        self: &Arc<Self>,
        fid: Fid,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let Some(copies) = self.copies() else { return };
        let mut entry = Entry { shared: self.clone(), numbers: Vec::new() };
        let mut forget = Vec::new();
        for range in ranges {
            for (number, part) in self.filling.forget(fid, range) {
                entry.numbers.push(number);
                forget.push(Forget::Data(fid, part));
            }
        }
        if forget.is_empty() {
            return;
        }
        let mut forgetting = copies.forget(forget);
        while self.rt.timeout(CUT_WAIT, forgetting.as_mut()).await.is_none() {
            if self.is_being_cut(fid) {
                tracing::debug!(%fid, "pages are given up while a truncate keeps them");
                self.rt.spawn(async move {
                    forgetting.await;
                    drop(entry);
                });
                return;
            }
        }
    }

    fn is_being_cut(&self, fid: Fid) -> bool {
        self.files.find(fid).is_some_and(|file| file.inner.lock().cuts > 0)
    }

    /// Pins what a fill of the kernel's pages `range` needs. It holds nothing while it waits.
    pub(crate) async fn pin_fill(
        self: &Arc<Self>,
        (fid, range): (Fid, Range<u64>),
        layout: &Arc<Layout>,
        needs: &[Need],
        write: bool,
    ) -> Result<Pins> {
        let mut waits: Option<Entry> = None;
        let mut kept: Option<(u32, Pin)> = None;
        for _ in 0..ROUNDS_MAX {
            let mut pins = Pins::default();
            let mut missing = None;
            for need in needs {
                if kept.as_ref().is_some_and(|(stripe, _)| *stripe == need.stripe) {
                    continue;
                }
                let (pin, want) = self.register(fid, layout, need, write, Pages::Fill);
                let progress = pin.look();
                match progress {
                    Progress::Pinned => pins.add(pin),
                    Progress::Ask | Progress::Wait => {
                        missing = Some((need.stripe, pin, want));
                        break;
                    }
                    Progress::Contended | Progress::Unlocked => pins.unlocked = true,
                    Progress::Failed(error) => return Err(error),
                }
            }
            let Some((stripe, pin, want)) = missing else {
                if let Some((_, pin)) = kept {
                    pins.add(pin);
                }
                return Ok(pins);
            };
            drop((pins, kept.take()));
            let number = *waits
                .get_or_insert_with(|| {
                    let numbers = vec![self.filling.fill_waits(fid, &range)];
                    Entry { shared: self.clone(), numbers }
                })
                .numbers
                .first()
                .ok_or(Error::Closed)?;
            let progress = {
                let pinned = std::pin::pin!(self.pinned(&pin, want));
                self.unless_forgotten(number, pinned).await
            };
            match progress {
                Some(Progress::Pinned) => kept = Some((stripe, pin)),
                Some(Progress::Failed(error)) => return Err(error),
                _ => break,
            }
        }
        Ok(Pins::none())
    }

    /// What the fill waits for; `None` if its pages are being forgotten, and that may wait for it.
    async fn unless_forgotten<F: Future<Output = Progress> + Unpin>(
        &self,
        fill: u64,
        mut pinned: F,
    ) -> Option<Progress> {
        if !self.filling.is_forgotten(fill) {
            return Some(pinned.await);
        }
        match self.rt.timeout(FORGOTTEN_WAIT, &mut pinned).await {
            Some(progress) => Some(progress),
            None if self.filling.is_forgotten(fill) => None,
            None => Some(pinned.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const OTHER: Fid = Fid { seq: 0x2_0000_0400, oid: 8, ver: 0 };

    fn parts(filling: &Filling, fid: Fid, range: Range<u64>) -> Vec<(u64, u64)> {
        filling.forget(fid, range).into_iter().map(|(_, part)| (part.start, part.end)).collect()
    }

    #[test]
    fn what_waits_to_be_filled_is_not_forgotten() {
        let filling = Filling::default();
        filling.fill_waits(FID, &(8192..16384));
        filling.fill_waits(FID, &(4096..9000));
        filling.fill_waits(FID, &(40_960..45_056));
        assert_eq!(parts(&filling, FID, 100..20_000), [(100, 4096), (16_384, 20_000)]);
        assert_eq!(parts(&filling, FID, 5000..6000), []);
        assert_eq!(parts(&filling, FID, 41_000..u64::MAX), [(45_056, u64::MAX)]);
        assert_eq!(parts(&filling, OTHER, 0..20_000), [(0, 20_000)]);
    }

    #[test]
    fn only_what_was_forgotten_before_stands_in_the_way_of_a_fill() {
        let filling = Filling::default();
        let fill = filling.fill_waits(FID, &(0..4096));
        let [(early, _)] = filling.forget(FID, 100..9000)[..] else { panic!("one part") };
        assert!(!filling.is_forgotten(fill), "it was left out");
        let beside = filling.fill_waits(FID, &(12_288..16_384));
        assert!(!filling.is_forgotten(beside));
        let late = filling.fill_waits(FID, &(8192..16_384));
        assert!(filling.is_forgotten(late), "the page of a border counts");
        filling.table.lock().forgotten.remove(&early);
        assert!(!filling.is_forgotten(late));
    }
}
