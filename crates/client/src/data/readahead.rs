//! Reading ahead: fetches what applications will read next, as the detector says (`docs/readahead.md`), and keeps it with what was
//! read ([`super::Clean`]) until they come.
//!
//! A fetch is read(2) without a reader, and takes the locks that its reader would take. Where the OST leaves clients without
//! locks, nothing is fetched. What is given up to others, or has no room any more, goes from the cache first; the detector
//! hears of it when the file is read the next time, or at once if a lock was called back.

use std::ops::Range;
use std::sync::Arc;

use proto::ObjectId;
use proto::layout::Layout;
use proto::readahead::{self, Decision, Mount, Settings, Why, Width};
use rpc::job::OfJob;
use rt::Wall;
use rt::wait::join_all;

use super::clean::{Clean, Losses, Reader};
use super::read::Plan;
use super::state::{FileState, Inner};
use crate::Result;
use crate::data::Data;
use crate::lock::{Pages as Locking, Pins, needs_of};
use crate::order::{Mutex, READ_AHEAD};

/// What all files of a client share.
pub(crate) struct ReadAhead {
    shared: Mutex<READ_AHEAD, Shared>,
}

struct Shared {
    mount: Mount,
    wanted: Wanted,
    /// When counting began.
    since: Wall,
}

/// What an operator has set, in bytes; the rest follows from what may be cached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) mount_bytes_max: Option<u64>,
    pub(crate) file_bytes_max: Option<u64>,
    pub(crate) whole_bytes_max: Option<u64>,
}

impl Wanted {
    /// For a client that may cache `cached_max` bytes. No bound is above the one that it is part of.
    fn settings(self, cached_max: u64, rpc_bytes: u64) -> Settings {
        let by_itself = Settings::new(cached_max, rpc_bytes);
        let mount_bytes_max = self.mount_bytes_max.unwrap_or(by_itself.mount_bytes_max).min(cached_max / 2);
        let file_bytes_max = self.file_bytes_max.unwrap_or(by_itself.file_bytes_max).min(mount_bytes_max);
        let whole_bytes_max = self.whole_bytes_max.unwrap_or(by_itself.whole_bytes_max).min(file_bytes_max);
        Settings { mount_bytes_max, file_bytes_max, whole_bytes_max, ..by_itself }
    }
}

/// What is ahead in a file.
#[derive(Default)]
pub(crate) struct Ahead {
    detector: readahead::File,
    /// What is on its way.
    coming: Vec<Coming>,
    /// Something was fetched since nothing was ahead.
    is_used: bool,
    /// Bytes of the file, as far as is known: what is behind them is not fetched.
    size: Option<u64>,
    /// Of the layout whose objects it was fetched from.
    generation: Option<u32>,
    /// Those that the detector has heard of.
    losses: Losses,
}

struct Coming {
    range: Range<u64>,
    /// A reader waits for it.
    awaited: bool,
}

impl Ahead {
    /// The file had so many bytes when it was opened.
    pub(crate) fn opened(&mut self, size: u64) {
        self.size = Some(size);
    }

    /// The file has so many bytes, or more.
    pub(super) fn reaches(&mut self, size: u64) {
        self.size = self.size.max(Some(size));
    }

    /// Whether some of `range` is on its way.
    fn is_coming(&self, range: &Range<u64>) -> bool {
        self.coming.iter().any(|coming| touches(&coming.range, range))
    }

    /// Tells the detector what is not there any more.
    fn verify(&mut self, mount: &mut Mount, clean: &Clean, layout: &Layout) {
        if self.generation != Some(layout.generation) {
            self.generation = Some(layout.generation);
            self.detector.set_width(layout.object_count() as u64);
            self.detector.lost(mount, 0..u64::MAX, Why::Taken);
        }
        let losses = clean.losses();
        if losses == self.losses {
            return;
        }
        let why = if losses.taken == self.losses.taken { Why::Dropped } else { Why::Taken };
        self.losses = losses;
        let gone = self.detector.arrived_ranges().filter(|range| !is_there(clean, layout, range));
        for range in gone.collect::<Vec<_>>() {
            self.detector.lost(mount, range, why);
        }
    }
}

fn touches(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether a range of a file is kept whole.
fn is_there(clean: &Clean, layout: &Layout, range: &Range<u64>) -> bool {
    let mut runs = layout.runs(range.start, range.end - range.start);
    runs.all(|run| clean.has(run.place.object, run.object_offset, run.object_offset + run.len))
}

/// Nobody will read what is ahead in a range of a file.
fn drop_ahead(clean: &Clean, layout: &Layout, range: &Range<u64>) {
    for run in layout.runs(range.start, range.end - range.start) {
        clean.drop_ahead(run.place.object, run.object_offset, run.object_offset + run.len);
    }
}

/// What of `range` is in none of `parts`, which are in order.
fn without(range: &Range<u64>, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut at) = (Vec::new(), range.start);
    for part in parts {
        left.push(at..part.start);
        at = part.end;
    }
    left.push(at..range.end);
    left.retain(|range| !range.is_empty());
    left
}

impl ReadAhead {
    /// Of a client that may cache `cached_max` bytes and asks for `rpc_bytes` at a time.
    pub(crate) fn new(cached_max: u64, rpc_bytes: u64, now: Wall) -> ReadAhead {
        let wanted = Wanted::default();
        let mount = Mount::new(wanted.settings(cached_max, rpc_bytes));
        ReadAhead { shared: Mutex::new(Shared { mount, wanted, since: now }) }
    }

    /// How far is read ahead.
    pub(crate) fn settings(&self) -> Settings {
        self.shared.lock().mount.settings
    }

    /// Changes how far is read ahead, for a client that may cache `cached_max` bytes; what is ahead stays.
    pub(crate) fn set(&self, cached_max: u64, set: impl FnOnce(&mut Wanted)) {
        let mut shared = self.shared.lock();
        set(&mut shared.wanted);
        shared.mount.settings = shared.wanted.settings(cached_max, shared.mount.settings.rpc_bytes);
    }

    /// Bytes that are ahead now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.shared.lock().mount.budget.held_bytes()
    }

    /// Lustre's `read_ahead_stats`.
    pub(crate) fn print(&self, now: Wall) -> String {
        let shared = self.shared.lock();
        shared.mount.stats.print(now.as_nanos(), shared.since.as_nanos(), Width::Older)
    }

    /// Counts begin anew.
    pub(crate) fn clear(&self, now: Wall) {
        let mut shared = self.shared.lock();
        shared.mount.stats.clear();
        shared.since = now;
    }
}

impl Data {
    /// An application reads `read` through `handle`, or the kernel does for it, to fill its `pages`. Has fetched what will be read next, and
    /// waits for what of this read is on its way.
    pub(crate) async fn read_ahead(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (handle, pages): (u64, bool),
        read: Range<u64>,
    ) {
        let Decision { fetch, give_up } = self.decide(file, layout, (handle, pages), &read);
        for range in &give_up {
            drop_ahead(&self.clean, layout, range);
        }
        for range in fetch {
            let (data, file, layout) = (self.clone(), file.clone(), layout.clone());
            let job = rpc::job::current();
            // In place: mostly all of a small file is here already.
            self.rt.run_in_place(async move {
                let fetching = std::pin::pin!(data.fetch(&file, &layout, range));
                OfJob::new(job, fetching).await;
            });
        }
        let mut waits = None;
        loop {
            let mut arrived = std::pin::pin!(file.arrived.notified());
            arrived.as_mut().enable();
            if !file.inner.lock().ahead.is_coming(&read) {
                return;
            }
            // What comes may wait for the lock of another client, and that one for pages that the kernel holds locked for this.
            if pages {
                waits.get_or_insert_with(|| self.locks.filling.fill_waits(file.fid, &read));
            }
            arrived.await;
        }
    }

    fn decide(
        &self,
        file: &FileState,
        layout: &Layout,
        (handle, pages): (u64, bool),
        read: &Range<u64>,
    ) -> Decision {
        let mut inner = file.inner.lock();
        let Inner { ahead, cache, .. } = &mut *inner;
        let mut shared = self.ahead.shared.lock();
        let mount = &mut shared.mount;
        ahead.verify(mount, &self.clean, layout);
        mount.is_short = self.rt.memory().is_short();
        if ahead.size < Some(read.end) && !cache.is_empty() {
            ahead.reaches(cache.file_end(layout));
        }
        let size = ahead.size.unwrap_or(read.end);
        let decision = if pages {
            ahead.detector.fill(mount, handle, read.clone(), size)
        } else {
            ahead.detector.read(mount, handle, read.clone(), size)
        };
        ahead.coming.iter_mut().filter(|coming| touches(&coming.range, read)).for_each(|c| c.awaited = true);
        ahead
            .coming
            .extend(decision.fetch.iter().map(|range| Coming { range: range.clone(), awaited: false }));
        decision
    }

    async fn fetch(self: &Arc<Self>, file: &Arc<FileState>, layout: &Arc<Layout>, range: Range<u64>) {
        let brought = self.bring(file, layout, &range).await;
        let unwanted = {
            let mut inner = file.inner.lock();
            let ahead = &mut inner.ahead;
            let mut shared = self.ahead.shared.lock();
            let came = ahead.coming.iter().position(|coming| coming.range == range);
            let awaited = came.is_some_and(|at| ahead.coming.swap_remove(at).awaited);
            match brought {
                Err(why) => {
                    ahead.detector.lost(&mut shared.mount, range.clone(), why);
                    Vec::new()
                }
                Ok(()) => {
                    let wanted = ahead.detector.arrived(range.clone());
                    for part in wanted.iter().filter(|part| !is_there(&self.clean, layout, part)) {
                        // It was taken meanwhile, is not sent yet, or the file has a hole.
                        ahead.detector.lost(&mut shared.mount, part.clone(), Why::Failed);
                    }
                    if awaited { Vec::new() } else { without(&range, &wanted) }
                }
            }
        };
        for part in &unwanted {
            drop_ahead(&self.clean, layout, part);
        }
        file.arrived.notify_waiters();
    }

    /// Fetches a range into the cache.
    async fn bring(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        range: &Range<u64>,
    ) -> std::result::Result<(), Why> {
        let (offset, len) = (range.start, range.end - range.start);
        let needs = needs_of(layout, offset, len);
        let pins = self.locks.pin(file.fid, layout, &needs, false, Locking::No).await;
        let pins = pins.ok().filter(Pins::is_complete).ok_or(Why::NoLock)?;
        let over = Some((&*self.clean, Reader::Ahead));
        let (plan, readings) =
            Plan::new(file, over, layout, (offset, len), (self.files.chunk_bytes, |_| true));
        if !self.locks.table.still_counts(&pins) {
            return Err(Why::NoLock);
        }
        // Behind the end of an object there is nothing to ask for.
        let asks = plan.asks.into_iter().zip(readings).filter(|(ask, _)| self.is_before_end(ask));
        let given = join_all(asks.map(|(ask, reading)| self.read_object(ask, false, reading))).await;
        let given = given.into_iter().collect::<Result<Vec<_>>>();
        given.map(|_| ()).map_err(|_| Why::Failed)
    }

    /// A handle is closed: nobody will read what is ahead of it.
    pub(crate) fn no_more_reads(&self, file: &FileState, handle: u64) {
        let Ok(layout) = file.layout() else { return };
        let (given_up, is_over) = {
            let mut inner = file.inner.lock();
            let ahead = &mut inner.ahead;
            let given_up = ahead.detector.closed(&mut self.ahead.shared.lock().mount, handle);
            let is_over = ahead.is_used && ahead.detector.is_idle() && ahead.coming.is_empty();
            ahead.is_used &= !is_over;
            (given_up, is_over)
        };
        for range in &given_up {
            drop_ahead(&self.clean, &layout, range);
        }
        if is_over {
            // With what a reader was to have that did not come.
            layout.places().for_each(|place| self.clean.drop_ahead(place.object, 0, u64::MAX));
        }
    }

    /// What was read of an object is given up, for others: the window in front of it begins anew.
    pub(super) fn taken_back(&self, object: ObjectId) {
        let Some(held) = self.locks.table.find(object) else { return };
        let Some(file) = self.files.find(held.fid) else { return };
        let Ok(layout) = file.layout() else { return };
        let mut inner = file.inner.lock();
        inner.ahead.verify(&mut self.ahead.shared.lock().mount, &self.clean, &layout);
    }
}
