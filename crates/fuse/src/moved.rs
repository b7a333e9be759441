//! A file that another mount moves while this one is renaming it.
//!
//! For rename(2) the kernel looks up the old name, and then the new one. If it has found the file by the old name, and
//! another mount gives it the new name before that is looked up, the kernel sees one file with two names, and says without
//! asking anybody that there is nothing to do (`source == target` in `vfs_rename`): both mounts have moved the file. The
//! lock of the directory, which keeps a local file system from this, is this mount's alone.
//!
//! So the new name that is looked up for rename(2), of a file of which the kernel may be using the old one, is said not to be
//! there: then the kernel asks for the rename, and the MDT decides. Which call a thread is in, and with which paths, /proc
//! tells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::Fid;
use rt::sync::{Semaphore, oneshot};
use rt::{Rt, Time};

use crate::names::Place;
use crate::{proc, threads};

/// Threads whose last name is remembered.
const THREADS_MAX: usize = 4096;
/// For how long, if there are many.
const REMEMBERED: Duration = Duration::from_secs(10);

/// rename, renameat and renameat2, of programs of 64 bits and of 32, whose numbers no call has that looks up a name.
#[cfg(target_arch = "x86_64")]
const RENAMES: [i64; 6] = [82, 264, 316, 38, 302, 353];
/// renameat and renameat2.
#[cfg(not(target_arch = "x86_64"))]
const RENAMES: [i64; 2] = [libc::SYS_renameat as i64, libc::SYS_renameat2 as i64];

/// The same calls, whose paths are the second and the fourth argument; of rename, the first and the second.
#[cfg(target_arch = "x86_64")]
const RENAMES_OF_TWO: [i64; 2] = [82, 38];
#[cfg(not(target_arch = "x86_64"))]
const RENAMES_OF_TWO: [i64; 0] = [];

/// renameat2, whose fifth argument are flags.
#[cfg(target_arch = "x86_64")]
const RENAMES_WITH_FLAGS: [i64; 2] = [316, 353];
#[cfg(not(target_arch = "x86_64"))]
const RENAMES_WITH_FLAGS: [i64; 1] = [libc::SYS_renameat2 as i64];

/// The longest path.
const PATH_BYTES_MAX: usize = 4096;
/// Memory of a process is read in pieces of a page, which is there whole or not at all.
const PAGE_BYTES: u64 = 4096;
/// How long it is waited for what /proc says.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a thread is doing that asks for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// It renames: the last names of the two paths.
    Rename(Vec<u8>, Vec<u8>),
    /// Anything else.
    Other,
    /// That cannot be seen.
    Unknown,
}

impl Call {
    /// What `thread` waits in. Its memory may lie in a file of this very mount: so a thread of its own looks, and is not waited for
    /// for long. Of such threads there are as many as `room` permits.
    pub async fn of(thread: u32, rt: &Rt, room: &Arc<Semaphore>) -> Call {
        let Ok(place) = room.clone().try_acquire_owned() else { return Call::Unknown };
        let (tell, told) = oneshot::channel();
        let look = move || {
            let _place = place;
            let syscall = proc::read(thread, "syscall").unwrap_or_default();
            let memory = proc::memory(thread);
            // Nobody waits any more if it took too long.
            let _ = tell.send(Call::parse(&syscall, |at| last_name(memory.as_ref().ok()?, at)));
        };
        match threads::start("weft-moved", look) {
            Ok(()) => rt.timeout(PATIENCE, told).await.and_then(Result::ok).unwrap_or(Call::Unknown),
            Err(_) => Call::Unknown,
        }
    }

    /// `last_name` reads the last name of the path at an address.
    fn parse(text: &str, last_name: impl Fn(u64) -> Option<Vec<u8>>) -> Call {
        let fields: Vec<&str> = text.split_whitespace().collect();
        // The number, six arguments, and two registers. A thread of io_uring's has an empty stack.
        let [number, one, two, _, four, five, _, stack, _] = fields[..] else { return Call::Unknown };
        let number = match number.parse::<i64>() {
            Ok(number) if number >= 0 && stack != "0x0" => number,
            _ => return Call::Unknown,
        };
        if !RENAMES.contains(&number) {
            return Call::Other;
        }
        let flags = u64::from_str_radix(five.trim_start_matches("0x"), 16).unwrap_or_default();
        // Two names are exchanged only if both are there.
        if RENAMES_WITH_FLAGS.contains(&number) && flags & u64::from(libc::RENAME_EXCHANGE) != 0 {
            return Call::Unknown;
        }
        let (old, new) = if RENAMES_OF_TWO.contains(&number) { (one, two) } else { (two, four) };
        let name = |at: &str| last_name(u64::from_str_radix(at.strip_prefix("0x")?, 16).ok()?);
        match (name(old), name(new)) {
            (Some(old), Some(new)) => Call::Rename(old, new),
            _ => Call::Unknown,
        }
    }
}

/// The last name of the path at an address of a process.
fn last_name(memory: &proc::Memory, at: u64) -> Option<Vec<u8>> {
    let (mut path, mut at) = (Vec::new(), at);
    while path.len() < PATH_BYTES_MAX {
        let mut piece = vec![0; (PAGE_BYTES - at % PAGE_BYTES) as usize];
        memory.read(at, &mut piece).ok()?;
        at = at.checked_add(piece.len() as u64)?;
        let end = piece.iter().position(|byte| *byte == 0);
        path.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() {
            let name = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
            return name.map(<[u8]>::to_vec);
        }
    }
    None
}

/// What a thread is told of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The truth.
    Truth,
    /// There is no such name.
    Nothing,
    /// The kernel has to look at everything again.
    Again,
}

/// The name that each thread looked up last.
#[derive(Debug, Default)]
pub struct LastNames {
    threads: HashMap<u32, (Place, Fid, Time)>,
}

impl LastNames {
    /// Other names of `fid`, which `thread` finds at `place`, that the kernel may be using in the same call although they are not true any
    /// more: the one that the thread looked up last, and those that are `expiring`.
    pub fn others(&self, thread: u32, (place, fid): (&Place, Fid), expiring: &[Place]) -> Vec<Vec<u8>> {
        let last = self.threads.get(&thread).filter(|(_, file, _)| *file == fid).map(|(last, _, _)| last);
        match last {
            Some(last) if last == place => Vec::new(),
            last => last.into_iter().chain(expiring).map(|(_, name)| name.to_vec()).collect(),
        }
    }

    /// What `thread` is told, which looks up `place` and finds `fid`; `call` is what it is doing, which counts if there are `others`.
    /// `leads_on`: other names are found through the file, so its own is perhaps not the last of a path.
    pub fn looked_up(
        &mut self,
        thread: u32,
        (place, fid): (&Place, Fid),
        (others, call): (&[Vec<u8>], Call),
        leads_on: bool,
        now: Time,
    ) -> Said {
        let said = if others.is_empty() { Said::Truth } else { said(&place.1, others, leads_on, call) };
        if said != Said::Nothing {
            self.remember(thread, place.clone(), fid, now);
        }
        said
    }

    fn remember(&mut self, thread: u32, place: Place, fid: Fid, now: Time) {
        if thread == 0 {
            return;
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread) {
            self.threads.retain(|_, (_, _, at)| now - *at < REMEMBERED);
            if self.threads.len() >= THREADS_MAX {
                return;
            }
        }
        self.threads.insert(thread, (place, fid, now));
    }
}

/// What is said of `name` to who may be using one of `others` for the same file.
fn said(name: &[u8], others: &[Vec<u8>], leads_on: bool, call: Call) -> Said {
    match call {
        Call::Other => Said::Truth,
        Call::Unknown => Said::Again,
        // Its old name, or one on the way.
        Call::Rename(old, new) if new != name || !others.contains(&old) => Said::Truth,
        // Which of the two is looked up cannot be told apart, or it may be one on the way.
        Call::Rename(old, new) if leads_on || old == new => Said::Again,
        Call::Rename(..) => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const OTHER: Fid = Fid { seq: 0x2_0000_0400, oid: 8, ver: 0 };

    fn place(name: &'static str) -> Place {
        (1, Bytes::from_static(name.as_bytes()))
    }

    fn look(
        last: &mut LastNames,
        (place, fid): (&Place, Fid),
        (expiring, leads_on): (&[Place], bool),
        call: Call,
    ) -> Said {
        let others = last.others(5, (place, fid), expiring);
        last.looked_up(5, (place, fid), (&others, call), leads_on, Time::default())
    }

    fn rename(old: &str, new: &str) -> Call {
        Call::Rename(old.into(), new.into())
    }

    #[test]
    fn a_file_that_moves_under_a_rename_is_not_there() {
        let mut last = LastNames::default();
        let mut looks = |name, fid, call| look(&mut last, (&place(name), fid), (&[], false), call);
        assert_eq!(looks("a", FILE, rename("a", "b")), Said::Truth);
        assert_eq!(looks("b", FILE, rename("a", "b")), Said::Nothing);
        assert_eq!(
            looks("b", FILE, rename("a", "b")),
            Said::Nothing,
            "the kernel asks twice if it knew the name"
        );
        assert_eq!(looks("b", FILE, Call::Other), Said::Truth, "a later call");
        assert_eq!(looks("c", OTHER, rename("c", "b")), Said::Truth);
        assert_eq!(looks("b", FILE, rename("c", "b")), Said::Truth, "another file goes over it");
    }

    /// A file that had been renamed, or that was seen under its former name, was said not to be there to who renamed it next.
    #[test]
    fn what_is_renamed_is_there() {
        let mut last = LastNames::default();
        let mut looks = |name, call| look(&mut last, (&place(name), FILE), (&[], false), call);
        assert_eq!(looks("a", rename("a", "b")), Said::Truth);
        assert_eq!(looks("b", rename("b", "c")), Said::Truth);
        assert_eq!(looks("c", rename("c", "d")), Said::Truth);
    }

    #[test]
    fn what_cannot_be_told_apart_is_looked_up_again() {
        let mut last = LastNames::default();
        let mut looks = |name, leads_on, call| look(&mut last, (&place(name), FILE), (&[], leads_on), call);
        assert_eq!(looks("a", true, rename("a", "b")), Said::Truth);
        assert_eq!(looks("b", true, rename("a", "b")), Said::Again);
        assert_eq!(looks("b", true, rename("a", "b")), Said::Truth);
        assert_eq!(looks("a", false, Call::Unknown), Said::Again);
        assert_eq!(looks("a", false, Call::Unknown), Said::Truth);
    }

    #[test]
    fn a_name_that_is_being_expired_counts() {
        let mut last = LastNames::default();
        let expiring = [place("a")];
        let mut looks = |call| look(&mut last, (&place("b"), FILE), (&expiring, false), call);
        assert_eq!(looks(rename("a", "b")), Said::Nothing);
        assert_eq!(looks(rename("c", "b")), Said::Truth);
    }

    #[test]
    fn threads_tell_what_they_wait_in() {
        let parse = |number: i64, stack: &str| {
            let line = format!("{number} 0x1 0x2 0x3 0x4 0x1 0x6 {stack} 0x7f00\n");
            Call::parse(&line, |at| Some(vec![at as u8]))
        };
        assert_eq!(parse(libc::SYS_renameat2, "0x7ffd"), Call::Rename(vec![2], vec![4]));
        assert_eq!(parse(libc::SYS_newfstatat, "0x7ffd"), Call::Other);
        assert_eq!(parse(libc::SYS_renameat2, "0x0"), Call::Unknown, "a thread of io_uring");
        let exchange = format!("{} 0x1 0x2 0x3 0x4 0x2 0x6 0x7ffd 0x7f00\n", libc::SYS_renameat2);
        assert_eq!(Call::parse(&exchange, |_| Some(vec![1])), Call::Unknown);
        assert_eq!(Call::parse("running\n", |_| None), Call::Unknown);
        assert_eq!(Call::parse("-1 0x7ffd 0x7f00\n", |_| None), Call::Unknown);
    }

    #[test]
    fn paths_are_read_from_a_process() {
        let memory = proc::memory("self").expect("its own memory");
        for (path, name) in
            [(&b"/a/b/name\0"[..], &b"name"[..]), (b"name\0", b"name"), (b"a/dir//\0", b"dir")]
        {
            assert_eq!(last_name(&memory, path.as_ptr().addr() as u64).as_deref(), Some(name));
        }
        assert_eq!(last_name(&memory, 1), None);
    }
}
