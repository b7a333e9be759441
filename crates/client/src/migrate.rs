//! `lfs migrate`: moves a file's data to other OSTs while it is in use (FEATURES L17). Rules: `docs/locks.md#layouts`.
//!
//! 1. Lock all of every object, so that everybody else has sent what he has, and waits.
//! 2. Copy to a file without a name that has the new layout, and sync it.
//! 3. Seal the old layout on its OSTs: from now on it is of no use to anybody, whatever becomes of the locks.
//! 4. Have the MDT exchange the layouts of the two files.
//! 5. Close the other file: the MDT destroys the old objects.
//!
//! All of it goes through a session of its own ([`crate::mover`]), so that users of the file on the same mount are kept out as
//! others are.

use rt::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use proto::layout::LayoutHint;
use proto::wire::messages::{SealLayout, SwapLayouts};
use proto::{Attr, Code, DataTarget, Fid, FileKind, Layout};
use rt::wait::join_all;

use crate::data::{Call, FileRef, FileState, Resize, Sum};
use crate::lock::{Pages as Locking, Pins, whole};
use crate::names::Relaying;
use crate::{Caller, Client, Error, Handle, OpenFlags, Result, Seek, Shared};

/// Bytes that are copied at a time.
const STEP_BYTES: u64 = 4 << 20;
/// How often a move begins again because an OST restarted or ended the session.
const ATTEMPTS: usize = 5;

/// A file whose data is moved, or goes: all of its objects are locked.
pub(crate) struct Source {
    pub(crate) file: FileRef,
    pub(crate) layout: Arc<Layout>,
    pub(crate) attr: Attr,
    pins: Pins,
}

/// What a mover does with a file, all of whose objects are locked.
pub(crate) trait Work: Sync {
    fn carry_out<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        caller: &'a Caller,
        source: Source,
    ) -> BoxFuture<'a, Result<()>>;
}

/// What becomes of others who use a file while it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// They wait (`lfs migrate -b`).
    Wait,
    /// They go before, and the file stays where it is (`lfs migrate -n`).
    GoBefore,
}

/// Its data lies as the hint says.
struct Move {
    hint: LayoutHint,
    others: Others,
}

impl Work for Move {
    fn carry_out<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        caller: &'a Caller,
        source: Source,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(shared.move_locked(caller, source, self))
    }
}

impl Source {
    /// Fails if others go before, and somebody is there.
    fn give_way(&self, others: Others) -> Result<()> {
        match others {
            Others::GoBefore if self.pins.is_wanted() => Err(Error::Refused(Code::WouldBlock)),
            _ => Ok(()),
        }
    }
}

impl Client {
    /// Moves the data of a regular file to where `hint` says. Only its owner may; others who use the file wait meanwhile.
    /// Fails with Busy if the file is being moved by somebody else again and again.
    pub async fn migrate(&self, caller: &Caller, fid: Fid, hint: LayoutHint) -> Result<()> {
        self.by_mover(caller, fid, &Move { hint, others: Others::Wait }).await
    }

    /// The same, unless others read or write the file meanwhile: then it fails with WouldBlock, the file stays where it is, and they have
    /// waited for a step of the copy at most. Of a file that others only have open nothing is noticed.
    pub async fn migrate_unless_used(&self, caller: &Caller, fid: Fid, hint: LayoutHint) -> Result<()> {
        self.by_mover(caller, fid, &Move { hint, others: Others::GoBefore }).await
    }

    /// Has the mover do something with a file, and again if others come between.
    pub(crate) fn by_mover<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        work: &'a dyn Work,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.shared.names.ahead.share(fid).await;
            let _turn = self.movers.turn(fid).await;
            let mut done = Err(Error::Refused(Code::Busy));
            let mut mover = self.movers.take(self.shared.targets.way_in()).await?;
            for _ in 0..ATTEMPTS {
                done = mover.session().work_on(caller, fid, work).await;
                match done {
                    Ok(()) => {
                        mover.done();
                        return done;
                    }
                    // It holds nothing of the file, and is as good for the next one.
                    Err(Error::Refused(Code::WouldBlock)) => {
                        mover.done();
                        return done;
                    }
                    Err(Error::Refused(Code::Busy | Code::TryAgain)) => {}
                    // What was held before is lost; the next session knows nothing of that.
                    Err(Error::Refused(Code::Evicted)) => {
                        drop(mover);
                        mover = self.movers.take(self.shared.targets.way_in()).await?;
                    }
                    Err(_) => return done,
                }
            }
            done
        })
    }
}

impl Shared {
    async fn work_on(self: &Arc<Self>, caller: &Caller, fid: Fid, work: &dyn Work) -> Result<()> {
        let source = self.lock_source(caller, fid).await?;
        let layout = source.layout.clone();
        let done = work.carry_out(self, caller, source).await;
        match done {
            Ok(()) => self.forget_objects(&layout),
            Err(_) => self.leave_objects(&layout),
        }
        done
    }

    /// A file without a name that exchanges its layout with another one.
    pub(crate) async fn create_heir(self: &Arc<Self>, hint: LayoutHint) -> Result<Handle> {
        let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
        let (mode, root) = (FileKind::File.mode_bits() | 0o600, Caller::root());
        Ok(self.files.create_unnamed_with(&root, Fid::ROOT, mode, flags, Some(hint)).await?.1)
    }

    /// What was written to such a file is durable, and its locks are given back: its objects are another file's as soon as the layouts
    /// are exchanged. Gives their blocks of 512 bytes.
    pub(crate) async fn settle_heir(
        self: &Arc<Self>,
        heir: &FileRef,
        failure_seen: &AtomicU64,
    ) -> Result<u64> {
        self.files.writer.sync_file(heir, failure_seen).await?;
        // Nobody is told its size from now on: its objects will be those that are given up.
        heir.inner.lock().gone = true;
        let made = heir.layout()?;
        let attrs = self.names.data.objects.object_attrs(&made).await?;
        let objects = made.places().filter_map(|place| self.locks().table.find(place.object));
        self.locks().leaver.leave_these(objects.collect()).await;
        Ok(Sum::of(&made, &attrs).blocks)
    }

    async fn move_locked(self: &Arc<Self>, caller: &Caller, mut source: Source, wanted: &Move) -> Result<()> {
        // Whatever the MDT believes, nothing that is there is left behind.
        source.attr.size = self.check_objects(&source).await?;
        let handle = self.create_heir(wanted.hint.clone()).await?;
        let moved = self.move_into(caller, &source, wanted.others, handle).await;
        // Others wait for what it has locked.
        drop(source);
        self.files.release(handle).await;
        moved
    }

    /// A file that has lost data is not moved: what is missing would be zeros for ever, and nothing would tell of the loss. Gives where its
    /// objects end.
    async fn check_objects(self: &Arc<Self>, source: &Source) -> Result<u64> {
        let Source { file, layout, attr, .. } = source;
        let there = self.names.data.objects.true_size(file, layout).await?;
        if there < attr.size {
            tracing::error!(
                fid = %file.fid, size = attr.size, there,
                "a file is not moved, for its objects end before the size that the MDT knows: data is lost"
            );
            return Err(Error::Refused(Code::Io));
        }
        Ok(there)
    }

    /// Moves the data into a file without a name, which has the other layout then.
    async fn move_into(
        self: &Arc<Self>,
        caller: &Caller,
        source: &Source,
        others: Others,
        handle: Handle,
    ) -> Result<()> {
        let fid = source.file.fid;
        let open = self.files.handles.get(handle)?;
        let target = open.file()?;
        self.copy_all(source, target, others).await?;
        let blocks = self.settle_heir(target, &open.failure_seen).await?;
        source.give_way(others)?;
        let sealed = self.seal(&source.layout).await;
        let swapped = match sealed {
            Ok(()) => self.swap(caller, fid, open.fid, (source.layout.generation, blocks)).await,
            Err(error) => Err(error),
        };
        if swapped.is_err() {
            // Whoever meets the seal first does it otherwise.
            if let Err(error) = self.names.layouts.unseal(fid, &source.layout).await {
                tracing::warn!(%fid, %error, "a file that could not be moved stays sealed for a while");
            }
        }
        swapped
    }

    /// Objects that were given up are destroyed: nobody is told of their locks.
    fn forget_objects(self: &Arc<Self>, layout: &Layout) {
        let objects: BTreeSet<Fid> = layout.places().map(|place| place.object.layout).collect();
        objects.into_iter().for_each(|fid| self.locks().forget_dead(fid));
    }

    /// What is used on is given back, before anybody asks for it.
    fn leave_objects(self: &Arc<Self>, layout: &Layout) {
        let objects = layout.places().filter_map(|place| self.locks().table.find(place.object));
        objects.for_each(|object| self.locks().leaver.leave(object));
    }
}

impl Shared {
    async fn lock_source(self: &Arc<Self>, caller: &Caller, fid: Fid) -> Result<Source> {
        let mut relaying = Relaying::default();
        loop {
            let entry = self.names.layouts.fetch_entry(fid).await?;
            if entry.attr.kind() != FileKind::File {
                return Err(Error::Refused(Code::Invalid));
            }
            if caller.uid != 0 && caller.uid != entry.attr.uid {
                return Err(Error::Refused(Code::NotPermitted));
            }
            let layout = Arc::new(entry.layout.ok_or(Error::Refused(Code::Invalid))?);
            if layout.is_released() {
                return Err(Error::Refused(Code::Released));
            }
            let file = self.names.data.files.get(fid);
            file.set_layout(Some(Layout::clone(&layout)));
            let pins = match self.names.data.locks.pin(fid, &layout, &whole(&layout), true, Locking::No).await
            {
                Ok(pins) => pins,
                Err(error) if self.names.layouts.relaid(&file, &layout, error, &mut relaying).await? => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Asked again: it may have been moved before the lock came.
            let entry = self.names.layouts.fetch_entry(fid).await?;
            if entry.layout.as_ref() == Some(&*layout) && pins.is_complete() {
                let attr = self.names.sizes.complete(&entry).await?;
                return Ok(Source { file, layout, attr, pins });
            }
        }
    }

    /// Copies everything but holes. The data keeps the time of its last change.
    async fn copy_all(
        self: &Arc<Self>,
        source: &Source,
        target: &Arc<FileState>,
        others: Others,
    ) -> Result<()> {
        let (size, time) = (source.attr.size, source.attr.data_time());
        let layout = self.names.layouts.placed(target, (0, size)).await?;
        let eras = self.names.data.locks.eras(&layout).await?;
        let pins = self.names.data.locks.pin(target.fid, &layout, &whole(&layout), true, Locking::No).await?;
        let call = Call { time, sync: false, fences: None };
        let mut at = 0;
        while let Some(start) =
            self.names.data.objects.seek_objects(&source.layout, at, size, Seek::Data).await?
        {
            let hole = self.names.data.objects.seek_objects(&source.layout, start, size, Seek::Hole).await?;
            at = start;
            while at < hole.unwrap_or(size) {
                source.give_way(others)?;
                let len = STEP_BYTES.min(hole.unwrap_or(size) - at);
                let slices =
                    self.names.data.read_file(&source.file, &source.layout, (at, len), &source.pins).await?;
                if slices.is_empty() {
                    return Err(Error::Refused(Code::Io));
                }
                for slice in slices {
                    let stored = self.names.data.store(target, &layout, (at, &slice), call, &pins).await?;
                    if stored < slice.len() as u64 {
                        return Err(Error::Refused(Code::TryAgain));
                    }
                    at += stored;
                }
            }
        }
        self.names.data.back.flush_file(target).await;
        self.names.data.objects.set_object_sizes(target, &layout, Resize::To(size), (time, &eras)).await?;
        let lost = !self.names.data.locks.table.still_counts(&source.pins)
            || !self.names.data.locks.table.still_counts(&pins);
        if lost { Err(Error::Refused(Code::TryAgain)) } else { Ok(()) }
    }

    pub(crate) async fn seal(self: &Arc<Self>, layout: &Layout) -> Result<()> {
        let mut stripes: BTreeMap<(DataTarget, Fid), Vec<u32>> = BTreeMap::new();
        for place in layout.places() {
            stripes.entry((place.target, place.object.layout)).or_default().push(place.object.stripe);
        }
        let generation = layout.generation;
        let sealed = join_all(stripes.into_iter().map(|((target, layout), stripes)| async move {
            let seal = SealLayout { layout, stripes, generation, sealed: true };
            self.targets.data(target).await?.call(seal).await.map(|_| ())
        }));
        sealed.await.into_iter().collect()
    }

    pub(crate) async fn swap(
        self: &Arc<Self>,
        caller: &Caller,
        fid: Fid,
        with: Fid,
        (generation, blocks): (u32, u64),
    ) -> Result<()> {
        let (_changing, blocks) = (self.names.meta.inodes.change(&[fid, with], &[]), Some(blocks));
        let answered =
            self.targets.ask(fid, caller, |cred| SwapLayouts { fid, with, generation, cred, blocks }).await?;
        [fid, with].iter().for_each(|fid| self.names.meta.changes.changed(*fid, answered.transno));
        Ok(())
    }
}
