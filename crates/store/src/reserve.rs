//! What a target keeps back of its disk, so that it starts, and goes on to free space, when there is none.
//!
//! Part of it are *pieces*: files of blocks that were allocated and are never written. Nobody else can use them up. They are
//! given up one by one when the log or the engine finds no space, and made again when there is. The other part, the
//! *margin*, is just left alone: what grows is refused when less than that is available. Rules: `docs/disk.md#room`.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rt::sync::Semaphore;
use rt::{Dir, Rt, Time};

/// Directory of the pieces within the target's.
pub(crate) const DIR: &str = "reserve";
/// Files that the reserve is divided into.
pub(crate) const PIECES: u32 = 16;
/// A file that becomes a piece, or is made to see whether there is as much space as is told.
const PROBE: &str = "probe";
/// Files that the host's file system must still be able to make: segments, tables of the engine, data files.
const FILES_MIN: u64 = 256;
/// Files that are given back with pieces if fewer than that can be made.
const FILES_LOW: u64 = 16;
/// How long what was found out of the disk is believed, while all is well.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// The same while there is no room.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A part of the margin, as a divisor, that may be written before it is tried whether the margin is there.
const TRY_PART: u64 = 8;

/// What is tried of the margin at most, in bytes: a file system in memory takes memory for it.
const TRY_BYTES_MAX: u64 = 32 << 20;

/// Whether others write into the same disk now, and fail if there is no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// The engine applies or merges.
    Write,
    /// Nobody does.
    Rest,
}

/// How much is kept back, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// In pieces.
    pub pieces: u64,
    /// What only those changes use that free space.
    pub margin: u64,
}

/// The reserve of an open target.
pub(crate) struct Reserve {
    dir: Dir,
    sizes: Sizes,
    /// Pieces that there are.
    held: Mutex<BTreeSet<u32>>,
    /// What grows is refused.
    tight: AtomicBool,
    /// Something found no space, whatever the file system tells of it: a quota.
    denied: AtomicBool,
    looked: AtomicU64,
    /// Bytes that were written since it was tried how much there is.
    written: AtomicU64,
    /// One at a time changes the pieces.
    turn: Semaphore,
}

impl Reserve {
    /// The reserve in the target's directory, with the pieces that are there.
    pub async fn open(target: &Dir, sizes: Sizes) -> io::Result<Reserve> {
        let dir = target.subdir(DIR).await?;
        let names = dir.list().await?;
        let held = names.iter().filter_map(|name| name.parse().ok()).filter(|piece| *piece < PIECES);
        Ok(Reserve {
            sizes,
            held: Mutex::new(held.collect()),
            tight: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            written: AtomicU64::new(0),
            turn: Semaphore::new(1),
            dir,
        })
    }

    /// Whether what grows has to be refused.
    pub fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Whether there is less space than is told, so that it is not known how much.
    pub fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Whether there is nothing left to be given up.
    pub fn is_used_up(&self) -> bool {
        self.held.lock().is_empty()
    }

    /// Bytes that others must not use, apart from the pieces.
    pub fn margin(&self) -> u64 {
        self.sizes.margin
    }

    fn piece_bytes(&self) -> u64 {
        (self.sizes.pieces / u64::from(PIECES)).next_multiple_of(crate::limits::BLOCK_BYTES as u64)
    }

    /// Bytes that the engine may need to merge tables, which it does without asking.
    pub fn for_engine(&self) -> u64 {
        self.sizes.pieces / 4 * 3
    }

    /// Something found no space. What grows is refused until a look finds some.
    pub fn deny(&self) {
        self.denied.store(true, Ordering::Relaxed);
        self.tighten();
    }

    fn tighten(&self) {
        if !self.tight.swap(true, Ordering::Relaxed) {
            tracing::warn!("the disk is full: only what frees space is carried out");
        }
    }

    fn relax(&self) {
        if self.tight.swap(false, Ordering::Relaxed) {
            tracing::info!("the disk has room again");
        }
    }

    /// Gives pieces up until `bytes` have become free; whether there were any.
    pub async fn give_up(&self, bytes: u64) -> io::Result<bool> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(false) };
        self.give(bytes).await
    }

    async fn give(&self, bytes: u64) -> io::Result<bool> {
        let mut given = 0;
        while given < bytes {
            let Some(piece) = self.held.lock().pop_last() else { break };
            match self.dir.remove(&piece.to_string()).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => given += self.piece_bytes(),
            }
        }
        if given > 0 {
            self.tighten();
            // Some file systems give freed blocks out only when their journal has the names.
            self.dir.sync().await?;
            tracing::info!(given, held = self.held.lock().len(), "a part of the reserve was given up");
        }
        Ok(given > 0)
    }

    /// Sees to it that `bytes` can be written, at the cost of pieces; how many can.
    pub async fn have(&self, bytes: u64) -> io::Result<u64> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(0) };
        let space = self.dir.space().await?;
        if space.files_available < FILES_LOW {
            self.give(bytes).await?;
        } else if self.is_denied() {
            return self.try_for(bytes).await;
        } else {
            self.give(bytes.saturating_sub(space.available)).await?;
        }
        Ok(self.dir.space().await?.available)
    }

    /// Sees to it that log and engine can be opened, at the cost of pieces. What there is is tried: a quota is not told.
    pub async fn have_for_start(&self) -> io::Result<()> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let held = self.held.lock().len();
        if held > 0 {
            self.try_for(self.for_engine()).await?;
        }
        if self.held.lock().len() < held {
            self.deny();
        }
        Ok(())
    }

    /// Gives pieces up until `bytes` can be allocated; how many can: those, or 0 if it is not known.
    async fn try_for(&self, bytes: u64) -> io::Result<u64> {
        loop {
            if self.can_have(bytes).await? {
                return Ok(bytes);
            }
            if !self.give(self.piece_bytes()).await? {
                return Ok(0);
            }
        }
    }

    /// Bytes that are available now, as far as it is told.
    pub async fn available(&self) -> io::Result<u64> {
        Ok(self.dir.space().await?.available)
    }

    /// So many bytes were written. What a quota leaves is found by trying, as often as a part of the margin may have gone.
    pub fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Looks how much room there is, unless that was just done and little was written since.
    pub async fn look_now_and_then(&self, rt: &Rt, others: Others) -> io::Result<()> {
        let after = if self.is_tight() { LOOK_AGAIN_AFTER } else { LOOK_AFTER };
        let looked = Time(self.looked.load(Ordering::Relaxed));
        if rt.now() < looked + after && !self.has_written_much() {
            return Ok(());
        }
        self.look(rt, others).await
    }

    /// Looks how much room there is: makes the pieces that are missing, and says whether what grows is refused.
    pub async fn look(&self, rt: &Rt, others: Others) -> io::Result<()> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let space = self.dir.space().await?;
        let missing = self.missing();
        let (piece, margin) = (self.piece_bytes(), self.sizes.margin);
        // So that one file more or less does not change it each time.
        let gap = if self.is_tight() { margin / 4 } else { 0 };
        let missing_bytes = missing.len() as u64 * piece;
        let wanted = margin + gap + missing_bytes;
        let has_files = space.files_available >= FILES_MIN;
        let mut enough = space.available >= wanted && has_files;
        // If there is not much more than is wanted, it is told in time that there is less.
        let has_much = space.available / 2 >= wanted;
        if enough && (self.is_denied() || has_much && self.has_written_much()) {
            if others == Others::Write {
                // They must not find that there is nothing just because it is tried how much there is.
                return Ok(());
            }
            enough = self.can_have(self.tried() + gap.min(self.tried() / 4) + missing_bytes).await?;
            self.denied.store(!enough, Ordering::Relaxed);
            self.written.store(0, Ordering::Relaxed);
        } else if !has_much {
            self.written.store(0, Ordering::Relaxed);
        }
        let mut left = space.available;
        for number in missing {
            if left < margin + piece || !has_files {
                break;
            }
            let is_told = !self.is_denied();
            if !is_told && (others == Others::Write || !self.can_have(self.tried() + piece).await?) {
                break;
            }
            if !self.probe(piece).await? {
                self.denied.store(true, Ordering::Relaxed);
                enough = false;
                break;
            }
            self.dir.rename(PROBE, &number.to_string()).await?;
            self.held.lock().insert(number);
            left -= piece;
        }
        if enough {
            self.relax()
        } else {
            self.tighten()
        }
        self.looked.store(rt.now().0, Ordering::Relaxed);
        Ok(())
    }

    fn missing(&self) -> Vec<u32> {
        let held = self.held.lock();
        (0..PIECES).filter(|piece| !held.contains(piece)).collect()
    }

    /// What is tried of the margin, in bytes.
    fn tried(&self) -> u64 {
        self.sizes.margin.min(TRY_BYTES_MAX)
    }

    fn has_written_much(&self) -> bool {
        self.written.load(Ordering::Relaxed) >= self.sizes.margin / TRY_PART
    }

    /// Whether `bytes` can be allocated.
    async fn can_have(&self, bytes: u64) -> io::Result<bool> {
        let has = self.probe(bytes).await?;
        if has {
            self.remove_probe().await?;
        }
        Ok(has)
    }

    /// Makes the file of `bytes`, or says that there is no space for it.
    async fn probe(&self, bytes: u64) -> io::Result<bool> {
        // Of a process that was killed in the midst of this.
        self.remove_probe().await?;
        let made = async { self.dir.create(PROBE).await?.allocate(0, bytes).await };
        match made.await {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                self.remove_probe().await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn remove_probe(&self) -> io::Result<()> {
        match self.dir.remove(PROBE).await {
            // As with pieces, its blocks may be given out only then.
            Ok(()) => self.dir.sync().await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether there is no space for it: the disk or the file system is full, or a quota is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
