//! The record of a run: a hash of every event, counts, and on demand lines of text.

use std::collections::VecDeque;
use std::time::Duration;

/// Most lines that are kept; older ones go.
const LINES_MAX: usize = 1_000_000;

/// What happened. The digest that goes with each says a little more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Spawn,
    Poll,
    Timer,
    Crash,
    Kill,
    Restart,
    Pause,
    Resume,
    Connect,
    Refuse,
    Accept,
    Close,
    Reset,
    Send,
    Deliver,
    Drop,
    Duplicate,
    Reorder,
    Partition,
    Heal,
    Name,
    Read,
    Write,
    Sync,
    SyncFailed,
    WriteFailed,
    DiskCrash,
}

pub(super) struct Trace {
    hash: u64,
    lines: Option<VecDeque<String>>,
}

impl Trace {
    pub(super) fn new(seed: u64, lines: bool) -> Trace {
        Trace { hash: fold(seed, 0), lines: lines.then(VecDeque::new) }
    }

    pub(super) fn fold(&mut self, now: u64, node: u32, kind: Kind, digest: u64) {
        self.hash = fold(fold(self.hash, now), (u64::from(node) << 8 | kind as u64) ^ digest.rotate_left(32));
    }

    pub(super) fn wants_lines(&self) -> bool {
        self.lines.is_some()
    }

    pub(super) fn push_line(&mut self, now: u64, name: &str, kind: Kind, digest: u64) {
        let Some(lines) = &mut self.lines else { return };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        let (secs, nanos) = (now / 1_000_000_000, now % 1_000_000_000);
        lines.push_back(format!("{secs}.{nanos:09} {name} {kind:?} {digest:#x}"));
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().flatten().cloned().collect()
    }
}

fn fold(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed ^ (mixed >> 32)
}

/// A small digest of `bytes`: their length and at most 64 of them.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes[..bytes.len().min(64)].chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = fold(hash, u64::from_le_bytes(word));
    }
    hash
}

/// What a node, or the whole world, has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Virtual time that passed.
    pub elapsed: Duration,
    /// Events taken from the heap: timers, arrivals, completions.
    pub events: u64,
    /// Times a task was polled.
    pub polls: u64,
    /// Tasks started.
    pub spawns: u64,
    /// Connections asked for.
    pub connects: u64,
    /// Connections that broke for no reason.
    pub breaks: u64,
    /// Frames handed over for sending.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Frames that arrived.
    pub frames_delivered: u64,
    /// Frames lost: by chance, in a partition, or because nobody was there.
    pub frames_dropped: u64,
    /// Frames that were sent twice.
    pub frames_duplicated: u64,
    /// Frames that others could overtake.
    pub frames_reordered: u64,
    /// Crashes and kills.
    pub crashes: u64,
    /// Reads of files.
    pub reads: u64,
    /// Their bytes.
    pub bytes_read: u64,
    /// Writes of files.
    pub writes: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Pieces that a disk with heads wrote (`DiskOptions::seek_ns`).
    pub pieces: u64,
    /// Those of at most 8 KiB.
    pub pieces_small: u64,
    /// Bytes of all pieces.
    pub piece_bytes: u64,
    /// Pieces that did not begin where the one before them ended.
    pub seeks: u64,
    /// Syncs of files and directories, failed ones too.
    pub syncs: u64,
    /// Syncs that failed.
    pub syncs_failed: u64,
    /// Sectors of unsynced writes that crashes took away or mixed.
    pub sectors_lost: u64,
    /// Writes that arrived, or will, after their node had lost power.
    pub writes_late: u64,
}

impl Stats {
    pub(super) fn add(&mut self, other: &Stats) {
        self.events += other.events;
        self.polls += other.polls;
        self.spawns += other.spawns;
        self.connects += other.connects;
        self.breaks += other.breaks;
        self.frames_sent += other.frames_sent;
        self.bytes_sent += other.bytes_sent;
        self.frames_delivered += other.frames_delivered;
        self.frames_dropped += other.frames_dropped;
        self.frames_duplicated += other.frames_duplicated;
        self.frames_reordered += other.frames_reordered;
        self.crashes += other.crashes;
        self.reads += other.reads;
        self.bytes_read += other.bytes_read;
        self.writes += other.writes;
        self.bytes_written += other.bytes_written;
        self.pieces += other.pieces;
        self.pieces_small += other.pieces_small;
        self.piece_bytes += other.piece_bytes;
        self.seeks += other.seeks;
        self.syncs += other.syncs;
        self.syncs_failed += other.syncs_failed;
        self.sectors_lost += other.sectors_lost;
        self.writes_late += other.writes_late;
    }
}
