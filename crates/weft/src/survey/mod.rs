//! How fast each layer is, under the same load: pieces of 1 MiB, so many at a time, written and then read.
//!
//! [`disk`] is the device below all others, [`store`] a target's own way to it, [`net`] a connection and nothing else, and [`client`] all
//! of it, through a mount. Each takes a bounded amount of data and of time, and leaves nothing behind.

pub mod client;
pub mod disk;
pub mod net;
pub mod scratch;
pub mod store;

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::Failure;

/// Bytes of a piece.
pub const PIECE: u64 = 1 << 20;
/// How many pieces are under way at a time: one, and as many as keep a device busy.
pub const DEPTHS: [u64; 2] = [1, 8];
/// Pieces that buffers differ in, so that nothing on the way finds two equal ones beside each other.
const PATTERNS: u64 = 16;
/// How often progress is shown.
const TICK: Duration = Duration::from_millis(200);

/// How much is moved at most, and for how long.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Bytes, in whole pieces.
    pub bytes: u64,
    /// Time of each measurement.
    pub time: Duration,
    /// Whether somebody wants it to end before.
    pub ended: &'a (dyn Fn() -> bool + Sync),
}

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Away from whoever measures.
    Write,
    /// Back.
    Read,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Which way data went.
    pub way: Way,
    /// How many pieces were under way at a time.
    pub depth: u64,
    /// How much was moved.
    pub bytes: u64,
    /// How long that took, to the last byte in its place.
    pub seconds: f64,
    /// Millions of bytes in a second.
    pub mb_per_s: f64,
}

impl Speed {
    fn new(way: Way, depth: u64, bytes: u64, took: Duration) -> Speed {
        let seconds = took.as_secs_f64();
        let mb_per_s = if seconds > 0.0 { bytes as f64 / 1e6 / seconds } else { 0.0 };
        Speed { way, depth, bytes, seconds, mb_per_s }
    }
}

/// A measurement, as it is described to those who wait for it.
pub struct Measure<'a> {
    /// `store: write`.
    pub what: &'a str,
    pub way: Way,
    pub depth: u64,
}

impl Measure<'_> {
    /// Has `depth` workers move pieces, by their numbers from 0, until all are moved or the time is over, and then `finish` put the last byte in its place.
    ///
    /// # Errors
    /// The first failure, or that somebody has ended it.
    pub fn run(
        &self,
        bounds: &Bounds<'_>,
        step: impl Fn(u64) -> Result<(), String> + Sync,
        finish: impl FnOnce() -> Result<(), String>,
    ) -> Result<Speed, Failure> {
        let pieces = (bounds.bytes / PIECE).max(1);
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let failed: Mutex<Option<String>> = Mutex::new(None);
        let began = Instant::now();
        let goes_on = || began.elapsed() < bounds.time && !(bounds.ended)();
        let work = || {
            while goes_on() {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    break;
                }
                if let Err(why) = step(piece) {
                    next.store(pieces, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(why);
                    break;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..self.depth).map(|_| scope.spawn(work)).collect();
            let shows = std::io::stderr().is_terminal();
            while shows && !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                self.show(done.load(Ordering::Relaxed), pieces, began.elapsed());
                std::thread::sleep(TICK);
            }
            if shows {
                crate::out::say(format_args!("\r\x1b[K"));
            }
        });
        let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let outcome = match failed {
            Some(why) => Err(why),
            None => finish(),
        };
        outcome.map_err(|why| Failure::new(format!("{} failed: {why}", self.what)))?;
        if (bounds.ended)() {
            return Err(Failure::new(format!("{} was broken off; nothing is left behind", self.what)));
        }
        let bytes = done.load(Ordering::Relaxed) * PIECE;
        Ok(Speed::new(self.way, self.depth, bytes, began.elapsed()))
    }

    fn show(&self, done: u64, pieces: u64, elapsed: Duration) {
        let percent = done * 100 / pieces;
        let mb_per_s = Speed::new(self.way, self.depth, done * PIECE, elapsed).mb_per_s;
        let (what, depth) = (self.what, self.depth);
        crate::out::say(format_args!("\r\x1b[K{what}, {depth} at a time: {percent} %, {mb_per_s:.0} MB/s"));
    }
}

/// Data that compresses to nothing smaller, in aligned memory.
pub struct Data(Vec<bytes::Bytes>);

impl Data {
    /// Makes the patterns.
    pub fn new(rt: &rt::Rt) -> Data {
        let pattern = |_| {
            let mut buf = rt::buf::AlignedBuf::zeroed(PIECE as usize);
            rt.random_bytes(buf.as_mut());
            buf.freeze()
        };
        Data((0..PATTERNS).map(pattern).collect())
    }

    /// What the piece with this number holds.
    pub fn of(&self, piece: u64) -> bytes::Bytes {
        self.0.get((piece % PATTERNS) as usize).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(pieces: u64, millis: u64) -> Bounds<'static> {
        Bounds { bytes: pieces * PIECE, time: Duration::from_millis(millis), ended: &|| false }
    }

    fn measure(depth: u64) -> Measure<'static> {
        Measure { what: "test: write", way: Way::Write, depth }
    }

    #[test]
    fn each_piece_is_moved_once() {
        let moved = Mutex::new(Vec::new());
        let speed = measure(4).run(
            &bounds(100, 60_000),
            |piece| {
                moved.lock().expect("nobody panics").push(piece);
                Ok(())
            },
            || Ok(()),
        );
        assert_eq!(speed.map(|speed| speed.bytes), Ok(100 * PIECE));
        let mut moved = moved.into_inner().expect("nobody panics");
        moved.sort_unstable();
        assert!(moved.into_iter().eq(0..100));
    }

    #[test]
    fn it_ends_with_its_time_and_with_a_failure() {
        let speed = measure(1).run(&bounds(u64::MAX / PIECE, 20), |_| Ok(()), || Ok(()));
        assert!(speed.is_ok_and(|speed| speed.bytes > 0 && speed.seconds < 30.0));
        let ended = Bounds { ended: &|| true, ..bounds(9, 60_000) };
        let broken = measure(2).run(&ended, |_| Ok(()), || Ok(())).map_err(|failure| failure.message);
        assert_eq!(broken, Err("test: write was broken off; nothing is left behind".into()));
        let failed = measure(2).run(&bounds(9, 60_000), |_| Err("no".into()), || Ok(()));
        assert_eq!(failed.map_err(|failure| failure.message), Err("test: write failed: no".into()));
    }
}
