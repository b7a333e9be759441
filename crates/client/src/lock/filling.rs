//! Which pages the kernel wants filled, and which it is made to forget: neither may wait for the other in a circle.
//!
//! The kernel holds a page locked from the moment it asks for it until it has the answer, and cannot forget it meanwhile.
//! A fill may wait for another client to give a range back; that client may wait, through any number of others, for a
//! range of ours whose pages have to be forgotten first. So nothing that forgets waits for a fill that waits:
//!
//! - A page whose fill waits has no content: there is nothing to forget in it, and it is left out.
//! - When a fill begins to wait for whose pages the kernel was told to forget them, what is left to forget is told once
//!   more, without them; the first call ends when it can.
//! - The kernel writes no page of a file back as long as it waits for a truncate of it, and forgets none that was
//!   changed: so a truncate that goes on for long is not waited for.
//!
//! No page is filled without a lock: what is changed in it through a mapping is written back as a whole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use proto::intervals::Intervals;
use proto::{Code, Fid, Layout};
use rt::sync::Notify;
use rt::wait::unless;
use rt::{BoxFuture, Rt};

use super::held::{Pages, Progress};
use super::needs::Need;
use super::table::Pins;
use super::{RangeLocks, Users};
use crate::copies::Keepers;
use crate::order::{LEAF, Mutex};
use crate::{Error, Forget, Result};

/// Bytes of the smallest page.
const PAGE_BYTES: u64 = 4096;
/// How long pages are waited for that a truncate of their file may keep from being written back.
const CUT_WAIT: Duration = Duration::from_millis(500);

/// What is under way of the kernel's pages.
pub(crate) struct Filling {
    rt: Rt,
    copies: Arc<Keepers>,
    users: Arc<Users>,
    table: Mutex<LEAF, Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    /// Fills that wait.
    fills: BTreeMap<u64, (Fid, Range<u64>)>,
    /// What is being forgotten.
    forgotten: BTreeMap<u64, Forgotten>,
}

struct Forgotten {
    fid: Fid,
    pages: Vec<Range<u64>>,
    /// Told of a fill that begins to wait for some of them.
    overtaken: Arc<Notify>,
}

impl Table {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A fill of these pages waits.
    fn note_fill(&mut self, fid: Fid, range: &Range<u64>) -> u64 {
        let (number, pages) = (self.next(), rounded(range));
        for forgotten in self.forgotten.values().filter(|forgotten| forgotten.fid == fid) {
            if forgotten.pages.iter().any(|part| overlap(part, &pages)) {
                forgotten.overtaken.notify_one();
            }
        }
        self.fills.insert(number, (fid, pages));
        number
    }

    /// What of `ranges` is to be forgotten: all but pages whose fill waits. With the number of the entry, and what tells
    /// of a fill that begins to wait for pages of it.
    fn forget(&mut self, fid: Fid, ranges: &[Range<u64>]) -> Option<(u64, Vec<Range<u64>>, Arc<Notify>)> {
        let mut fills = Intervals::default();
        for (_, pages) in self.fills.values().filter(|(other, _)| *other == fid) {
            fills.add(pages.clone());
        }
        let parts: Vec<Range<u64>> = ranges.iter().flat_map(|range| fills.missing(range.clone())).collect();
        if parts.is_empty() {
            return None;
        }
        let (number, overtaken) = (self.next(), Arc::new(Notify::new()));
        let pages = parts.iter().map(rounded).collect();
        self.forgotten.insert(number, Forgotten { fid, pages, overtaken: overtaken.clone() });
        Some((number, parts, overtaken))
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
    filling: Arc<Filling>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.filling.table.lock();
        table.fills.remove(&self.number);
        table.forgotten.remove(&self.number);
    }
}

impl Filling {
    pub(super) fn new(rt: Rt, copies: Arc<Keepers>, users: Arc<Users>) -> Filling {
        Filling { rt, copies, users, table: Mutex::default() }
    }

    /// Has the kernel forget ranges of a file. Done when nothing of them is used any more.
    pub(crate) async fn forget_data(
        self: &Arc<Self>,
        fid: Fid,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let Some(copies) = self.copies.get() else { return };
        let ranges: Vec<Range<u64>> = ranges.into_iter().collect();
        loop {
            let found = self.table.lock().forget(fid, &ranges);
            let Some((number, parts, overtaken)) = found else { return };
            let _entry = Entry { filling: self.clone(), number };
            let what = parts.into_iter().map(|part| Forget::Data(fid, part)).collect();
            let mut forgetting = copies.forget(what);
            let is_done = unless(overtaken.notified(), self.unless_cut(fid, &mut forgetting)).await;
            match is_done {
                Some(true) => return,
                Some(false) => tracing::debug!(%fid, "pages are given up while a truncate keeps them"),
                None => tracing::trace!(%fid, "a fill waits for pages that are being forgotten"),
            }
            // It is the kernel's to end it.
            self.rt.spawn(forgetting);
            if is_done.is_some() {
                return;
            }
        }
    }

    /// Waits until the kernel has forgotten; false: a truncate keeps it from that.
    async fn unless_cut(&self, fid: Fid, forgetting: &mut BoxFuture<'static, ()>) -> bool {
        while self.rt.timeout(CUT_WAIT, forgetting.as_mut()).await.is_none() {
            let user = self.users.get();
            if user.is_some_and(|user| user.is_being_cut(fid)) {
                return false;
            }
        }
        true
    }

    /// A fill of these pages waits, for as long as what is returned lives: they are left out where pages are forgotten.
    pub(crate) fn fill_waits(self: &Arc<Self>, fid: Fid, range: &Range<u64>) -> impl Sized + use<> {
        let number = self.table.lock().note_fill(fid, range);
        Entry { filling: self.clone(), number }
    }
}

impl RangeLocks {
    /// Pins what a fill of the kernel's pages `range` needs: `needs`, in the order of their stripes. It holds some while
    /// it waits for others, in the order in which everybody takes them.
    pub(crate) async fn pin_fill(
        self: &Arc<Self>,
        (fid, range): (Fid, Range<u64>),
        layout: &Arc<Layout>,
        needs: &[Need],
        write: bool,
    ) -> Result<Pins> {
        let mut waits = None;
        let waiting = || self.filling.fill_waits(fid, &range);
        loop {
            if !self.may_use(needs) {
                waits.get_or_insert_with(waiting);
                self.until_may_use(needs).await?;
            }
            if self.pages.is_lost(needs) {
                waits.get_or_insert_with(waiting);
                self.pages.until_dropped(needs).await;
            }
            let mut pins = self.table.no_pins();
            for need in needs {
                let (pin, want) = self.register(fid, layout, need, write, Pages::Fill);
                let mut progress = pin.look();
                if matches!(progress, Progress::Ask | Progress::Wait) {
                    waits.get_or_insert_with(waiting);
                    progress = self.pinned(&pin, want).await;
                }
                match progress {
                    Progress::Pinned => pins.add(pin),
                    Progress::Failed(error) => return Err(error),
                    // So much is never refused a lock.
                    _ => return Err(Error::Refused(Code::Malformed)),
                }
            }
            // What the kernel writes back while something is lost is of before.
            if (self.may_use(needs) || self.lease.is_closed()) && !self.pages.is_lost(needs) {
                self.pages.kernel_gets(needs);
                return Ok(pins);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const OTHER: Fid = Fid { seq: 0x2_0000_0400, oid: 8, ver: 0 };

    fn parts(table: &mut Table, fid: Fid, range: Range<u64>) -> Vec<(u64, u64)> {
        let found = table.forget(fid, &[range]);
        found.into_iter().flat_map(|(_, parts, _)| parts).map(|part| (part.start, part.end)).collect()
    }

    #[test]
    fn what_waits_to_be_filled_is_not_forgotten() {
        let mut table = Table::default();
        table.note_fill(FID, &(8192..16384));
        table.note_fill(FID, &(4096..9000));
        table.note_fill(FID, &(40_960..45_056));
        assert_eq!(parts(&mut table, FID, 100..20_000), [(100, 4096), (16_384, 20_000)]);
        assert_eq!(parts(&mut table, FID, 5000..6000), []);
        assert_eq!(parts(&mut table, FID, 41_000..u64::MAX), [(45_056, u64::MAX)]);
        assert_eq!(parts(&mut table, OTHER, 0..20_000), [(0, 20_000)]);
    }

    #[test]
    fn who_forgets_is_told_of_a_fill_that_begins_to_wait() {
        let mut table = Table::default();
        let mut overtaken = |range| table.forget(FID, &[range]).expect("something is to be forgotten").2;
        let (one, beside) = (overtaken(100..9000), overtaken(12_288..16_384));
        let is_told = |notify: &Notify| {
            let mut waits = std::pin::pin!(notify.notified());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            waits.as_mut().poll(&mut cx).is_ready()
        };
        table.note_fill(OTHER, &(0..4096));
        assert!(!is_told(&one));
        table.note_fill(FID, &(8192..12_288));
        assert!(is_told(&one), "the page of a border counts");
        assert!(!is_told(&beside));
    }
}
