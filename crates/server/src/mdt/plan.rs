//! What an operation reads before it takes guards.
//!
//! The engine may block, so under guards an operation reads only what is known without it. What it lacks it wants, and ends without
//! having changed anything ([`Halt::Missing`]). Its guards are given back, what it wants is fetched, and it is carried out again from its
//! start: it locks, checks everything again, and commits. What it knows otherwise than by a key counts as long as it is sure that
//! nothing has changed: each [`Fact`] says what shows that.

use bytes::Bytes;
use parking_lot::Mutex;
use proto::lock::bits::Conflict;
use proto::{Code, Fid};
use service::code_of;
use service::keys::behind;
use store::{Held, Known, Value};

use super::inode::Inode;
use super::namespace::Names;
use super::sharing::Key;
use super::{Ctx, keys};

/// Deepest directory of the tree.
const DEPTH_MAX: usize = 65_536;
/// Extended attributes of a file at most: what fits into a list of their names.
pub(super) const XATTRS_MAX: usize = 4096;

/// Why an operation ends without having changed anything.
#[derive(Debug)]
pub(super) enum Halt {
    /// Its client is told.
    Refused(Code),
    /// Others have what it needs: they are called back, and it is carried out again.
    Conflict(Vec<(Fid, Conflict)>),
    /// It lacks something: that is fetched, and it is carried out again.
    Missing(Want),
}

impl From<Code> for Halt {
    fn from(code: Code) -> Halt {
        Halt::Refused(code)
    }
}

/// What a step of an operation gives, unless the operation ends there.
pub(super) type Step<T> = Result<T, Halt>;

/// How an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// What is known without the engine: it holds guards.
    Known,
    /// Everything.
    All,
}

/// What an operation lacks.
#[derive(Debug)]
pub(super) enum Want {
    /// What this key says.
    Key(Bytes),
    /// Whether the directory has entries, at this version.
    Entries(Fid, u64),
    /// The keys of the file's extended attributes, at this version.
    Xattrs(Fid, u64),
    /// Whether `upper` is `lower` or above it, after so many moves of directories.
    Above {
        /// The directory that may be the upper one.
        upper: Fid,
        /// The other one.
        lower: Fid,
        /// [`super::locks::Locks::moves`].
        moves: u64,
    },
}

/// Something that was read, and what shows that it is so still.
#[derive(Debug)]
enum Fact {
    /// Each change of an entry gives its directory a new version.
    Entries { dir: Fid, version: u64, is_empty: bool },
    /// Each change of an attribute gives its file a new version.
    Xattrs { fid: Fid, version: u64, keys: Vec<Bytes> },
    /// Directories move one at a time, and each move is counted.
    Above { upper: Fid, lower: Fid, moves: u64, found: Result<bool, Code> },
}

/// What is known for one operation, or for one change that belongs to none.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// One of each thing that was wanted, the newest.
    facts: Mutex<Vec<Fact>>,
    /// The keys that were wanted, which stay known: else many operations that lack several each would take them from each other for ever
    /// when memory is short.
    held: Mutex<Vec<Held>>,
}

impl Plan {
    fn find<T>(&self, wanted: impl FnMut(&Fact) -> Option<T>) -> Option<T> {
        self.facts.lock().iter().rev().find_map(wanted)
    }

    fn note(&self, fact: Fact) {
        let is_same = |old: &Fact| match (old, &fact) {
            (Fact::Entries { dir: a, .. }, Fact::Entries { dir: b, .. }) => a == b,
            (Fact::Xattrs { fid: a, .. }, Fact::Xattrs { fid: b, .. }) => a == b,
            (Fact::Above { upper: a, lower: c, .. }, Fact::Above { upper: b, lower: d, .. }) => {
                (a, c) == (b, d)
            }
            _ => false,
        };
        let mut facts = self.facts.lock();
        facts.retain(|old| !is_same(old));
        facts.push(fact);
    }

    /// Whether the directory, which the caller has locked, has no entries.
    pub fn is_empty(&self, of: &Inode) -> Step<bool> {
        let found = self.find(|fact| match fact {
            Fact::Entries { dir, version, is_empty } => {
                ((*dir, *version) == (of.fid, of.version)).then_some(*is_empty)
            }
            _ => None,
        });
        found.ok_or(Halt::Missing(Want::Entries(of.fid, of.version)))
    }

    /// The keys of the extended attributes of a file, which the caller has locked.
    pub fn xattrs(&self, of: &Inode) -> Step<Vec<Bytes>> {
        if !of.xattrs {
            return Ok(Vec::new());
        }
        let found = self.find(|fact| match fact {
            Fact::Xattrs { fid, version, keys } => {
                ((*fid, *version) == (of.fid, of.version)).then(|| keys.clone())
            }
            _ => None,
        });
        found.ok_or(Halt::Missing(Want::Xattrs(of.fid, of.version)))
    }

    /// Whether `upper` is `lower` or a directory above it. The caller holds the lock of the tree, where so many moves were counted.
    pub fn is_above(&self, upper: Fid, lower: Fid, moves: u64) -> Step<bool> {
        let wanted = (upper, lower, moves);
        let found = self.find(|fact| match fact {
            Fact::Above { upper, lower, moves, found } => {
                ((*upper, *lower, *moves) == wanted).then_some(*found)
            }
            _ => None,
        });
        Ok(found.ok_or(Halt::Missing(Want::Above { upper, lower, moves }))??)
    }
}

impl Names {
    /// What `key` says.
    pub(super) fn get(&self, reads: Reads, key: &[u8]) -> Step<Option<Value>> {
        if reads == Reads::All {
            return self.store.get(key).map_err(|error| code_of(&error).into());
        }
        match self.store.known(key).map_err(|error| code_of(&error))? {
            Known::Value(value) => Ok(value),
            Known::Nothing => Err(Halt::Missing(Want::Key(Bytes::copy_from_slice(key)))),
        }
    }

    /// Fetches what an operation lacks. No guard is held.
    ///
    /// # Errors
    /// The engine does not read: nothing was changed, and the client is told.
    pub(super) async fn fetch(&self, ctx: &Ctx<'_>, want: Want) -> Result<(), Code> {
        self.store.look_up_time().await;
        if let Want::Above { upper, lower, moves } = want {
            let found = self.walk(ctx, upper, lower).await;
            if found == Err(Code::Io) {
                return Err(Code::Io);
            }
            ctx.plan.note(Fact::Above { upper, lower, moves, found });
            return Ok(());
        }
        self.fetch_now(&ctx.plan, want)
    }

    /// Fetches what a create is sure to lack: that the name means nothing yet, and that there is no such inode. The create is not begun in
    /// vain then.
    pub(super) async fn fetch_for_create(&self, entry: &[u8], fid: Fid) -> Result<(), Code> {
        if self.fetch_key(entry).await?.is_none() {
            self.fetch_key(&keys::inode(fid)).await?;
        }
        Ok(())
    }

    /// What `key` says, known or not.
    async fn fetch_key(&self, key: &[u8]) -> Result<Option<Value>, Code> {
        if let Known::Value(value) = self.store.known(key).map_err(|error| code_of(&error))? {
            return Ok(value);
        }
        self.store.look_up_time().await;
        self.store.get(key).map_err(|error| code_of(&error))
    }

    /// The same for who cannot wait, and asks for nothing about the tree.
    pub(super) fn fetch_now(&self, plan: &Plan, want: Want) -> Result<(), Code> {
        let scan = |from: Vec<u8>, until: Vec<u8>, count_max| {
            self.store.scan(&from, &until, count_max).map_err(|error| code_of(&error))
        };
        match want {
            Want::Key(key) => {
                let held = self.store.hold(key).map_err(|error| code_of(&error))?;
                plan.held.lock().push(held);
            }
            Want::Entries(dir, version) => {
                let is_empty = scan(keys::entries_from(dir, 0), keys::entries_end(dir), 1)?.is_empty();
                plan.note(Fact::Entries { dir, version, is_empty });
            }
            Want::Xattrs(fid, version) => {
                let from = keys::of(keys::XATTR, fid);
                let until = behind(&from);
                let keys = scan(from, until, XATTRS_MAX)?.into_iter().map(|(key, _)| key).collect();
                plan.note(Fact::Xattrs { fid, version, keys });
            }
            Want::Above { .. } => return Err(Code::NotSupported),
        }
        Ok(())
    }

    /// Whether `upper` is `lower` or a directory above it, unless something moves meanwhile.
    async fn walk(&self, ctx: &Ctx<'_>, upper: Fid, lower: Fid) -> Result<bool, Code> {
        let mut at = lower;
        for _ in 0..DEPTH_MAX {
            if at == upper {
                return Ok(true);
            }
            if at == Fid::ROOT {
                return Ok(false);
            }
            let value = self.fetch_key(&keys::inode(at)).await?.ok_or(Code::Stale)?;
            ctx.saw(Key::inode(at));
            let dir = Inode::decode(at, &value.bytes, value.version.0).ok_or(Code::Corrupt)?;
            if !dir.is_dir() {
                return Err(Code::NotDirectory);
            }
            at = dir.parent;
        }
        Err(Code::Corrupt)
    }

    /// Carries out a change that belongs to no request, by who cannot wait: `attempt` takes its guards, and is repeated when it lacks
    /// something.
    pub(super) fn carry_out_apart(
        &self,
        plan: &Plan,
        mut attempt: impl FnMut() -> Step<()>,
    ) -> Result<(), Code> {
        for _ in 0..FETCHES_MAX {
            match attempt() {
                Ok(()) => return Ok(()),
                Err(Halt::Missing(want)) => self.fetch_now(plan, want)?,
                Err(Halt::Refused(code)) => return Err(code),
                Err(Halt::Conflict(_)) => return Err(Code::Busy),
            }
        }
        Err(Code::TryAgain)
    }
}

/// How often an operation is carried out again because it lacked something. What it knows of a directory or of the tree may be old each
/// time, if others change that all the time.
pub(super) const FETCHES_MAX: usize = 1000;
