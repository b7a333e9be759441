//! What takes blocks of the data files, and how its data gets there.

use super::page_cache::Via;
use super::placed::Durable;
use crate::target::Need;

/// What takes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// What grows. It waits for a commit that frees enough.
    Growth,
    /// What takes the place of something, or was there before a crash. It waits for readers, too.
    Overwrite,
    /// What can be left undone. It waits for nobody.
    Merge,
}

impl Taker {
    /// What it needs space for.
    pub(super) fn need(self) -> Need {
        match self {
            Taker::Growth | Taker::Merge => Need::Growth,
            Taker::Overwrite => Need::Release,
        }
    }
}

impl From<Need> for Taker {
    fn from(need: Need) -> Taker {
        match need {
            Need::Growth => Taker::Growth,
            Need::Release => Taker::Overwrite,
        }
    }
}

/// How data is placed.
#[derive(Clone, Copy)]
pub struct Way {
    /// What takes the blocks.
    pub taker: Taker,
    /// How the data gets durable.
    pub durable: Durable,
    /// Whether the page cache keeps it.
    pub via: Via,
}
