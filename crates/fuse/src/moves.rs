//! Moving the data of a file for a tool: it says where the data is to lie, and then asks how that went, which has it moved.
//!
//! It is not one question, because the kernel has a file locked while it sets an attribute: whoever wrote to the file through the same
//! mount would wait for the whole move, and could not be killed. It locks nothing to ask for the value of one.

use std::sync::atomic::{AtomicBool, Ordering};

use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::Fid;
use rt::sync::Semaphore;
use serde::{Deserialize, Serialize};

use crate::control::{self, Hint};
use crate::remembered::Remembered;

/// What the names of the attribute begin with; a word that the tool has chosen follows.
pub const MIGRATE: &str = "weft.migrate.";
/// Wishes that are remembered. The tool of one that was forgotten says it again.
const WISHES_MAX: usize = 256;
/// Bytes of a wish at most.
const WISH_BYTES_MAX: usize = 48 << 10;
/// Files that are moved at a time; others wait, and are not moved if their process ends meanwhile.
const MOVES_MAX: usize = 64;
/// Bytes of a word at most.
const WORD_BYTES_MAX: usize = 64;

/// Value of the attribute, when it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Where the data is to lie.
    pub hint: Hint,
    /// It stays where it is if others read or write it meanwhile: EAGAIN.
    pub unless_used: bool,
}

/// What tools want, and what is done for them.
pub struct Moves {
    /// What was not asked for yet, by file and word.
    wishes: Remembered<(Fid, String), Move>,
    places: Semaphore,
}

impl Default for Moves {
    fn default() -> Moves {
        Moves { wishes: Remembered::new(WISHES_MAX), places: Semaphore::new(MOVES_MAX) }
    }
}

impl Moves {
    /// Takes what `caller` wants of a file.
    ///
    /// # Errors
    /// EINVAL: it is no [`Move`], or too long.
    pub fn wish(&self, caller: &Caller, fid: Fid, word: &str, value: &[u8]) -> Result<()> {
        if value.len() > WISH_BYTES_MAX {
            return Err(Errno::INVALID);
        }
        let wanted: Move = control::decode(value).map_err(|_| Errno::INVALID)?;
        if word.is_empty() || word.len() > WORD_BYTES_MAX {
            return Err(Errno::INVALID);
        }
        self.wishes.put(caller.uid, (fid, word.to_owned()), wanted);
        Ok(())
    }

    /// Does what `caller` wanted; returns when it is done. Once it `has_begun`, it must not be given up half way.
    ///
    /// # Errors
    /// ENODATA: nobody said so, or it was forgotten. EAGAIN: others use the file.
    pub async fn carry_out(
        &self,
        client: &Client,
        caller: &Caller,
        (fid, word): (Fid, &str),
        has_begun: &AtomicBool,
    ) -> Result<Vec<u8>> {
        let Move { hint, unless_used } = self.take(caller, fid, word).ok_or(Errno::NO_ATTRIBUTE)?;
        let _place = self.places.acquire().await.map_err(|_| Errno::INTERRUPTED)?;
        has_begun.store(true, Ordering::Release);
        match unless_used {
            false => client.migrate(caller, fid, hint.into()).await?,
            true => client.migrate_unless_used(caller, fid, hint.into()).await?,
        }
        Ok(b"moved".to_vec())
    }

    fn take(&self, caller: &Caller, fid: Fid, word: &str) -> Option<Move> {
        self.wishes.take(caller.uid, &(fid, word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(unless_used: bool) -> Vec<u8> {
        control::encode(&Move { hint: Hint::default(), unless_used })
    }

    #[test]
    fn a_wish_is_carried_out_once_and_for_whom_had_it() {
        let moves = Moves::default();
        let (root, other) = (Caller::root(), Caller { uid: 7, ..Caller::root() });
        let fid = Fid::ROOT;
        assert_eq!(moves.wish(&root, fid, "1.1", b"{}"), Err(Errno::INVALID));
        assert_eq!(moves.wish(&root, fid, "", &value(false)), Err(Errno::INVALID));
        assert_eq!(moves.wish(&root, fid, &"x".repeat(65), &value(false)), Err(Errno::INVALID));
        moves.wish(&root, fid, "1.1", &value(false)).expect("it is a wish");
        moves.wish(&root, fid, "1.1", &value(true)).expect("it is another one");
        assert_eq!(moves.take(&other, fid, "1.1"), None);
        assert_eq!(moves.take(&root, Fid { oid: 9, ..fid }, "1.1"), None);
        assert_eq!(moves.take(&root, fid, "1.2"), None);
        assert!(moves.take(&root, fid, "1.1").is_some_and(|wanted| wanted.unless_used));
        assert_eq!(moves.take(&root, fid, "1.1"), None);
    }
}
