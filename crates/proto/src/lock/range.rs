//! Which session may use which bytes of an object: the target's side of extent locks, as byte-range tokens.
//!
//! Each byte of an object is held by nobody, by one session to change it, or by any number of sessions to read it. A
//! [`Table`] grants ranges, grows them while nobody else is there, says whom to call back when somebody is, and keeps
//! the order of those who wait. Rules: `docs/locks.md#ranges`. There are no lock handles: a range names itself, and the
//! number of its grant tells an old callback from a new one.
//!
//! Objects that a session used longest ago are called back when it, or all together, hold too much
//! ([`super::ages`]).
//!
//! Nothing is done here: the caller carries out what [`Table::take_outputs`] says and tells what came of it.
//!
//! - [`spans`]: ranges of one mode; [`contention`]: whether clients get into each other's way;
//! - [`holdings`]: what is held of one object; [`object`]: the rules for one object; [`table`]: all objects of a target;
//! - here: what is asked for, and what is to be done, and the limits.

mod contention;
mod holdings;
mod object;
mod spans;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};

use super::ages::{Bound, Bounds};
use crate::ids::ObjectId;
use crate::limits::SLOTS_MAX;
use crate::wire::messages::{RevokeRange, Token};

pub use contention::{CONTENDED_NANOS, HOT_CONFLICTS, HOT_NANOS, HOT_WINDOW_NANOS, SMALL_BYTES};
pub use table::Table;

/// Most ranges that are held of one object; beyond, nothing more is granted.
pub const RANGES_PER_OBJECT_MAX: usize = 16_384;
/// Most ranges that are held in one table, unless it is set otherwise; beyond, nothing more is granted.
pub const RANGES_MAX: usize = 1 << 20;
/// Callbacks under way for want of room.
pub const RECLAIMS_MAX: usize = 64;
/// Those to one session, so that a slow client does not keep others from being called.
pub const RECLAIMS_PER_SESSION_MAX: usize = 8;
/// Most objects of which something is held in one table; beyond, nothing more is granted.
pub const OBJECTS_MAX: usize = 1 << 20;
/// How many times that may be stated again after a restart: large requests are granted beyond the limits, and callbacks part what is held.
const RESTATED_TIMES: usize = 4;
/// Most requests of one session that wait in one table; beyond, they are refused.
pub const WAITING_PER_SESSION_MAX: usize = 1024;
/// Most accesses of one session that wait in one table; beyond, they are refused. Fewer than a session has reply slots,
/// or none would be left for what it has to write before it can answer a callback.
pub const USES_WAITING_PER_SESSION_MAX: usize = SLOTS_MAX as usize / 2;
/// Most requests that wait for one object; beyond, they are refused.
pub const WAITING_PER_OBJECT_MAX: usize = 16_384;
/// Most objects of which nothing is held that are remembered for their contention.
pub const FADING_MAX: usize = 4096;

/// A session with the target, by its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

/// Bytes `start..end` of an object; `end` is `u64::MAX` for no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
}

impl Range {
    /// All of an object.
    pub const ALL: Range = Range { start: 0, end: u64::MAX };

    /// Bytes; all ranges have some.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether a byte is in both.
    pub fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether every byte of `other` is in it.
    pub fn contains(self, other: Range) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes in both.
    pub fn intersection(self, other: Range) -> Option<Range> {
        let both = Range { start: self.start.max(other.start), end: self.end.min(other.end) };
        (both.start < both.end).then_some(both)
    }

    /// The smallest range with both in it.
    pub fn hull(self, other: Range) -> Range {
        Range { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// What lies before and behind `part`, which is in it.
    fn without(self, part: Range) -> impl Iterator<Item = Range> {
        [Range { start: self.start, end: part.start }, Range { start: part.end, end: self.end }]
            .into_iter()
            .filter(|rest| rest.start < rest.end)
    }
}

/// The numbers of a target's grants. Each start of the target begins above all numbers of the one before, so that what
/// was sent then takes nothing of now away.
#[derive(Debug)]
pub struct Numbers(AtomicU64);

/// Bits of a number that count the grants of one start of a target.
const NUMBER_BITS: u32 = 40;

impl Numbers {
    /// Numbers of the target's `boot`-th start.
    pub fn new(boot: u64) -> Numbers {
        Numbers(AtomicU64::new(boot << NUMBER_BITS))
    }

    /// The next one; the first is above 0.
    pub fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Names the request; never used again in this table.
    pub id: u64,
    /// Who asks.
    pub holder: Holder,
    /// What for.
    pub purpose: Purpose,
    /// How it is to be used.
    pub mode: Mode,
    /// Which bytes; not empty.
    pub range: Range,
}

/// How a range is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is read; others may read it too.
    Read,
    /// It is changed.
    Write,
}

impl Mode {
    /// As a message says it.
    pub fn of(write: bool) -> Mode {
        if write { Mode::Write } else { Mode::Read }
    }

    /// Whether it is changed.
    pub fn writes(self) -> bool {
        self == Mode::Write
    }
}

/// What a range is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be held until it is called back.
    Hold,
    /// For one access by the target itself, in the name of a session that does not hold it.
    Use,
}

/// What becomes of an [`Ask`] at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is granted.
    Granted(Token),
    /// Nothing is granted: the range is to be used without being held.
    Contended,
    /// The access may begin; [`Table::end_use`] ends it.
    Go,
    /// It waits; an [`Output`] will say more.
    Wait,
    /// Too many wait: ask again later.
    Full,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A request that waited is granted.
    Granted {
        /// The request.
        id: u64,
        /// Whose it is.
        holder: Holder,
        /// What is granted.
        token: Token,
        /// Who held it to change it, and has been called back for this.
        from: Option<Holder>,
    },
    /// A request that waited is not granted: the range is to be used without being held.
    Contended {
        /// The request.
        id: u64,
        /// Whose it is.
        holder: Holder,
    },
    /// An access that waited may begin.
    Go {
        /// The request.
        id: u64,
        /// Whose it is.
        holder: Holder,
    },
    /// Somebody is to be called back.
    Call(Call),
    /// The same for want of room: nobody waits for it. [`Table::reclaimed`] has to follow.
    Reclaim(Reclaim),
}

/// A callback for want of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// The callback.
    pub call: Call,
    /// Ranges that it is for.
    weight: usize,
}

impl Output {
    /// The request that is answered by this, and whose it is.
    pub fn answers(&self) -> Option<(u64, Holder)> {
        match self {
            Output::Granted { id, holder, .. }
            | Output::Contended { id, holder }
            | Output::Go { id, holder } => Some((*id, *holder)),
            Output::Call(_) | Output::Reclaim(_) => None,
        }
    }
}

/// A callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Names the callback in this table.
    pub id: u64,
    /// The object.
    pub object: ObjectId,
    /// Who is called.
    pub holder: Holder,
    /// What somebody else needs.
    pub range: Range,
    /// Whatever was granted up to this number.
    pub number: u64,
    /// The other one only reads.
    pub keep_read: bool,
}

impl Call {
    /// The message. What around the range is not used is always asked for: a callback is there because a second client
    /// is.
    pub fn request(&self) -> RevokeRange {
        RevokeRange {
            object: self.object,
            start: self.range.start,
            end: self.range.end,
            number: self.number,
            keep_read: self.keep_read,
            trim: true,
        }
    }
}

/// A range that a session holds, for those who look on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The object.
    pub object: ObjectId,
    /// Who holds it.
    pub holder: Holder,
    /// Which bytes.
    pub range: Range,
    /// Whether it may be changed.
    pub write: bool,
}

/// What can be switched.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Whether ranges that clients take from each other again and again are used without being held.
    pub contended_answers: bool,
    /// Ranges that may be held.
    pub bounds: Bounds,
}

impl Default for Settings {
    fn default() -> Settings {
        let total = Bound { reclaim: RANGES_MAX / 4 * 3, max: RANGES_MAX };
        let session = Bound { reclaim: RANGES_MAX / 4, max: RANGES_MAX / 2 };
        Settings { contended_answers: true, bounds: Bounds { session, total } }
    }
}
