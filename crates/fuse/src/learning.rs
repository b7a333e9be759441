//! Files whose mode and owner the kernel has to learn anew. Pure state.
//!
//! chmod(2), utimensat(2) and directories with the sticky bit go by the mode and owner that came with the last answer to a lookup. The kernel
//! drops what an answer says if it is told to forget anything of the inode between the question and the moment when the thread
//! uses the answer (`attr_version` in fs/fuse/inode.c), and then it refuses the new owner what the old one might not do. So,
//! once it was told to forget mode and owner, it keeps neither name nor attributes of the file until it has had [`LEARNS`] since
//! its first question. Until then it has no size and no times to forget either, and is not told to.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use proto::Fid;
use rt::Time;

/// How long the kernel keeps nothing of a file after the first answer.
const LEARNS: Duration = Duration::from_secs(1);
/// Files at a time; of more the kernel is told each time.
const FILES_MAX: usize = 4096;

/// What has changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Mode, owner, or ACL, and perhaps all the rest.
    Access,
    /// Size, times, or the number of names.
    Contents,
}

/// The files; `None` for one that nobody has asked about since.
#[derive(Debug, Default)]
pub struct Learning(Mutex<HashMap<Fid, Option<Time>>>);

impl Learning {
    /// Something of `fid` has changed: whether the kernel has to be told to forget what it keeps.
    pub fn changed(&self, fid: Fid, change: Change, now: Time) -> bool {
        let mut files = self.0.lock();
        if change == Change::Contents {
            return !files.contains_key(&fid);
        }
        if files.len() >= FILES_MAX && !files.contains_key(&fid) {
            files.retain(|_, until| until.is_none_or(|until| now < until));
        }
        if files.len() < FILES_MAX || files.contains_key(&fid) {
            files.insert(fid, None);
        }
        true
    }

    /// The kernel does not know `fid`.
    pub fn is_unknown(&self, fid: Fid) {
        self.0.lock().remove(&fid);
    }

    /// Whether the kernel may keep what it is about to be answered of `fid`.
    pub fn may_keep(&self, fid: Fid, now: Time) -> bool {
        let mut files = self.0.lock();
        let Some(until) = files.get_mut(&fid) else { return true };
        if now < *until.get_or_insert(now + LEARNS) {
            return false;
        }
        files.remove(&fid);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1);
    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn nothing_is_kept_until_owners_are_learned() {
        let learning = Learning::default();
        assert!(learning.changed(FID, Change::Contents, NOW), "it may keep size and times");
        assert!(learning.may_keep(FID, NOW));
        assert!(learning.changed(FID, Change::Access, NOW));
        let asked = NOW + 5 * LEARNS;
        assert!(!learning.may_keep(FID, asked), "the first answer");
        assert!(!learning.changed(FID, Change::Contents, asked), "it keeps nothing");
        assert!(learning.changed(FID, Change::Access, asked), "it has to learn again");
        assert!(!learning.may_keep(FID, asked + LEARNS), "the first answer since");
        assert!(learning.may_keep(FID, asked + 2 * LEARNS));
        assert!(learning.changed(FID, Change::Contents, asked + 2 * LEARNS), "it may keep them again");
    }

    #[test]
    fn few_are_remembered() {
        let learning = Learning::default();
        for oid in 0..=FILES_MAX as u32 {
            learning.changed(Fid { oid, ..FID }, Change::Access, NOW);
        }
        let last = Fid { oid: FILES_MAX as u32, ..FID };
        assert!(learning.may_keep(last, NOW));
        assert!(learning.changed(last, Change::Contents, NOW), "it is told as ever");
        assert!(!learning.may_keep(FID, NOW));
        learning.changed(last, Change::Access, NOW + LEARNS);
        assert!(!learning.may_keep(last, NOW + LEARNS), "others have learned");
        learning.is_unknown(last);
        assert!(learning.may_keep(last, NOW));
    }
}
