//! The readers of one handle, told apart by where they read.
//!
//! Threads that read through one descriptor look like one reader that jumps. So each read goes to the stream that it continues, and
//! one that continues none begins its own. A stride is found among streams: three of them as long as each other and at one
//! distance are records of one reader.

use std::cmp::Reverse;
use std::ops::Range;

use super::Settings;
use super::stream::{Fit, Stream};
use super::stride::Stride;

/// Most streams of a handle. The one that was not used for the longest time is given up for a new one.
pub(super) const STREAMS_MAX: usize = 16;
/// A stream that none of so many reads of the handle belonged to is given up: what is ahead of it keeps others from reading ahead.
const IDLE_READS_MAX: u64 = 64;

/// All streams of a handle.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    /// Reads of the handle.
    reads: u64,
    next_number: u64,
    /// The file was fetched as a whole.
    whole: bool,
    /// Only sequences are looked for.
    no_strides: bool,
}

/// What a read means.
#[derive(Debug)]
pub(super) struct Noted {
    /// Which stream it belongs to.
    pub(super) number: u64,
    /// How; `None` begins a stream, or is the third record of a stride.
    pub(super) fit: Option<Fit>,
    /// Up to where the stream had been asked for before; 0 for nothing.
    pub(super) asked: u64,
    /// Streams that turned out to be parts of this one.
    pub(super) joined: Vec<u64>,
    /// Streams of which nothing that is ahead will be read. Those that never had a window are left out: nothing is ahead of them.
    pub(super) given_up: Vec<u64>,
}

impl Streams {
    /// Of reads that are rounded to pages: records at one distance are not at one distance any more.
    pub(super) fn of_pages() -> Streams {
        Streams { no_strides: true, ..Streams::default() }
    }

    /// The application reads `read` of a file on `width` targets.
    pub(super) fn note(&mut self, read: &Range<u64>, width: u64, settings: &Settings) -> Noted {
        self.reads += 1;
        let given_up = self.forget_idle();
        let latest = self.streams.iter().map(|stream| stream.touched).max();
        let fits = self.streams.iter().enumerate().filter_map(|(at, stream)| {
            let fit = stream.fit(read, Some(stream.touched) == latest, settings.rpc())?;
            Some((fit, Reverse(stream.touched), at))
        });
        let best = fits.min();
        let mut noted = match best.and_then(|(fit, _, at)| Some((fit, self.streams.get_mut(at)?))) {
            Some((fit, stream)) => {
                let (number, asked) = (stream.number, stream.asked_end());
                let grows = stream.note(read, fit, Some(stream.touched) == latest);
                stream.touched = self.reads;
                if grows && !stream.is_far(width, settings) {
                    stream.grow(settings);
                }
                let joined = if stream.is_strided() { Vec::new() } else { self.join(number) };
                Noted { number, fit: Some(fit), asked, joined, given_up: Vec::new() }
            }
            None => self.begin(read, settings),
        };
        noted.given_up.extend(given_up);
        noted
    }

    /// Number of reads up to now.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Whether the whole file may be fetched: once for each handle.
    pub(super) fn take_whole(&mut self) -> bool {
        !std::mem::replace(&mut self.whole, true)
    }

    /// What was read lately.
    pub(super) fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = self.streams.iter().map(|stream| stream.run.clone()).collect();
        runs.sort_by_key(|run| run.start);
        runs
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.number == number)
    }

    fn forget_idle(&mut self) -> Option<u64> {
        let oldest = self.streams.iter().min_by_key(|stream| stream.touched)?;
        let number = (self.reads - oldest.touched > IDLE_READS_MAX).then_some(oldest.number)?;
        self.forget(number)
    }

    /// Takes a stream away; its number, if something may be ahead of it.
    fn forget(&mut self, number: u64) -> Option<u64> {
        let at = self.streams.iter().position(|stream| stream.number == number)?;
        let stream = self.streams.swap_remove(at);
        stream.has_window().then_some(number)
    }

    /// Joins the stream that begins where this one ends now.
    fn join(&mut self, number: u64) -> Vec<u64> {
        let Some(end) = self.get_mut(number).map(|stream| stream.run.end) else { return Vec::new() };
        let is_next =
            |other: &Stream| other.number != number && !other.is_strided() && other.run.start == end;
        let Some(at) = self.streams.iter().position(is_next) else { return Vec::new() };
        let other = self.streams.swap_remove(at);
        if let Some(stream) = self.get_mut(number) {
            stream.absorb(&other);
        }
        vec![other.number]
    }

    /// The read continues no stream.
    fn begin(&mut self, read: &Range<u64>, settings: &Settings) -> Noted {
        if let Some((stride, number, joined)) = self.find_stride(read) {
            // What was fetched when they still seemed to read in sequence lies between the records.
            let mut given_up: Vec<u64> =
                joined.into_iter().filter_map(|joined| self.forget(joined)).collect();
            if let Some(stream) = self.get_mut(number) {
                given_up.extend(stream.has_window().then_some(number));
                stream.run = read.clone();
                stream.set_stride(stride);
                if !stream.is_strided() {
                    stream.grow(settings);
                }
            }
            self.touch(number);
            return Noted { number, fit: None, asked: 0, joined: Vec::new(), given_up };
        }
        let oldest = self.streams.iter().min_by_key(|stream| stream.touched).map(|stream| stream.number);
        let oldest = oldest.filter(|_| self.streams.len() >= STREAMS_MAX);
        let given_up = oldest.and_then(|oldest| self.forget(oldest)).into_iter().collect();
        let number = self.next_number;
        self.next_number += 1;
        self.streams.push(Stream::new(number, read.clone(), self.reads));
        Noted { number, fit: None, asked: 0, joined: Vec::new(), given_up }
    }

    fn touch(&mut self, number: u64) {
        let reads = self.reads;
        if let Some(stream) = self.get_mut(number) {
            stream.touched = reads;
        }
    }

    /// The stride whose newest record is `read`: with it the stream of the record before, and those of the records before that one.
    ///
    /// Two equal steps make a stride, as in Lustre (`ras_consecutive_stride_requests`), if nobody else read meanwhile. Otherwise three do:
    /// among many reads here and there two are equal by chance.
    fn find_stride(&self, read: &Range<u64>) -> Option<(Stride, u64, Vec<u64>)> {
        if self.no_strides {
            return None;
        }
        let mut order: Vec<&Stream> = self.streams.iter().filter(|stream| !stream.is_strided()).collect();
        order.sort_by_key(|stream| Reverse(stream.touched));
        let latest = self.streams.iter().map(|stream| stream.touched).max()?;
        for (at, last) in order.iter().enumerate() {
            let bytes = last.run.end - last.run.start;
            let Some(length) = read.start.checked_sub(last.run.start).filter(|length| *length > bytes) else {
                continue;
            };
            if read.end - read.start > bytes {
                continue;
            }
            let before = |record: &Stream, from: usize| {
                let start = record.run.start.checked_sub(length)?;
                let is = |other: &&Stream| other.run == (start..start.saturating_add(bytes));
                order.iter().copied().enumerate().skip(from).find(|(_, other)| is(other))
            };
            let Some((second_at, second)) = before(last, at + 1) else { continue };
            let stride = |first: &Stream| Stride { origin: first.run.start, bytes, length };
            if let Some((_, third)) = before(second, second_at + 1) {
                return Some((stride(third), last.number, vec![second.number, third.number]));
            }
            if last.touched == latest && second_at == 1 {
                return Some((stride(second), last.number, vec![second.number]));
            }
        }
        None
    }
}
