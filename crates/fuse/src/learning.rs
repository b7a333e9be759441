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
/// Files at a time. When there are more, those go whose mode and owner have not changed for longest: the kernel hardly asks about them
/// any more.
const FILES_MAX: usize = 4096;

/// What has changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Mode, owner, or ACL, and perhaps all the rest.
    Access,
    /// Size, times, or the number of names.
    Contents,
}

/// A file whose mode or owner has changed.
#[derive(Debug, Clone, Copy)]
struct File {
    /// When.
    changed: Time,
    /// When the kernel may keep what it is answered; `None` if nobody has asked since.
    until: Option<Time>,
}

/// The files.
#[derive(Debug, Default)]
pub struct Learning(Mutex<HashMap<Fid, File>>);

impl Learning {
    /// Something of `fid` has changed: whether the kernel has to be told to forget what it keeps.
    pub fn changed(&self, fid: Fid, change: Change, now: Time) -> bool {
        let mut files = self.0.lock();
        if change == Change::Contents {
            return !files.contains_key(&fid);
        }
        if files.len() >= FILES_MAX && !files.contains_key(&fid) {
            make_room(&mut files, now);
        }
        files.insert(fid, File { changed: now, until: None });
        true
    }

    /// The kernel does not know `fid`.
    pub fn is_unknown(&self, fid: Fid) {
        self.0.lock().remove(&fid);
    }

    /// Whether the kernel may keep what it is about to be answered of `fid`.
    pub fn may_keep(&self, fid: Fid, now: Time) -> bool {
        let mut files = self.0.lock();
        let Some(file) = files.get_mut(&fid) else { return true };
        if now < *file.until.get_or_insert(now + LEARNS) {
            return false;
        }
        files.remove(&fid);
        true
    }
}

/// Lets go of what has been learned, and if that is little, of the half that changed first.
fn make_room(files: &mut HashMap<Fid, File>, now: Time) {
    files.retain(|_, file| file.until.is_none_or(|until| now < until));
    if files.len() <= FILES_MAX / 2 {
        return;
    }
    let mut changes: Vec<Time> = files.values().map(|file| file.changed).collect();
    let middle = changes.len() / 2;
    let (_, newest_that_goes, _) = changes.select_nth_unstable(middle);
    let newest_that_goes = *newest_that_goes;
    files.retain(|_, file| file.changed > newest_that_goes);
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

    /// Files that nobody asks about any more must not keep out those that are in use.
    #[test]
    fn of_many_those_are_remembered_that_changed_last() {
        let learning = Learning::default();
        let at = |n: u64| NOW + Duration::from_millis(n);
        let file = |n: u64| Fid { oid: n as u32, ..FID };
        for n in 0..3 * FILES_MAX as u64 {
            assert!(learning.changed(file(n), Change::Access, at(n)));
            assert!(!learning.changed(file(n), Change::Contents, at(n)), "it is learned anew");
        }
        let known = learning.0.lock().len();
        assert!((FILES_MAX / 2..=FILES_MAX).contains(&known), "{known}");
        let last = file(3 * FILES_MAX as u64 - 1);
        let now = at(3 * FILES_MAX as u64);
        assert!(!learning.may_keep(last, now));
        assert!(learning.may_keep(file(0), now), "it was let go");
        learning.is_unknown(last);
        assert!(learning.may_keep(last, now));
    }

    #[test]
    fn what_was_learned_goes_first() {
        let learning = Learning::default();
        let file = |n: usize| Fid { oid: n as u32, ..FID };
        for n in 0..FILES_MAX {
            learning.changed(file(n), Change::Access, NOW);
        }
        (1..FILES_MAX).for_each(|n| assert!(!learning.may_keep(file(n), NOW)));
        assert!(learning.changed(file(FILES_MAX), Change::Access, NOW + 2 * LEARNS));
        assert_eq!(learning.0.lock().len(), 2);
        assert!(!learning.may_keep(file(0), NOW + 2 * LEARNS), "nobody has asked about it yet");
    }
}
