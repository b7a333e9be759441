//! `lfs migrate`: moves a file's data to other OSTs while it is in use (FEATURES L17). Rules: `docs/locks.md#layouts`.
//!
//! 1. Lock all of every object, so that everybody else has sent what he has, and waits.
//! 2. Copy to a file without a name that has the new layout, and sync it.
//! 3. Seal the old layout on its OSTs: from now on it is of no use to anybody, whatever becomes of the locks.
//! 4. Have the MDT exchange the layouts of the two files.
//! 5. Close the other file: the MDT destroys the old objects.
//!
//! All of it goes through a session of its own, so that users of the file on the same mount are kept out as others are.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::layout::LayoutHint;
use proto::wire::messages::{SealLayout, SwapLayouts};
use proto::{Attr, Code, DataTarget, Fid, FileKind, Layout};
use rt::wait::join_all;

use crate::data::{Call, FileRef, FileState, Sum};
use crate::lock::{Pages as Locking, Pins, whole};
use crate::names::Relaying;
use crate::{Caller, Client, Error, Limits, OpenFlags, Result, Seek, Shared};

/// Bytes that are copied at a time.
const STEP_BYTES: u64 = 4 << 20;
/// Memory of a mover.
const LIMITS: Limits = Limits {
    dirty_bytes_max: 64 << 20,
    ost_dirty_bytes_max: 64 << 20,
    rpc_bytes_max: 1 << 20,
    rpcs_in_flight_max: 8,
    cached_bytes_max: 128 << 20,
};
/// How often a move begins again because an OST restarted or ended the session.
const ATTEMPTS: usize = 5;

/// A file whose data is moved: all of its objects are locked.
struct Source {
    file: FileRef,
    layout: Arc<Layout>,
    attr: Attr,
    pins: Pins,
}

impl Client {
    /// Moves the data of a regular file to where `hint` says. Only its owner may; others who use the file wait meanwhile.
    /// Fails with Busy if the file is being moved by somebody else again and again.
    pub async fn migrate(&self, caller: &Caller, fid: Fid, hint: LayoutHint) -> Result<()> {
        self.shared.names.ahead.share(fid).await;
        let (hub, mgs) = self.shared.targets.way_in();
        let mover = Client::mount(&hub, mgs, LIMITS).await?;
        let mut moved = Err(Error::Refused(Code::Busy));
        for _ in 0..ATTEMPTS {
            moved = mover.move_data(caller, fid, &hint).await;
            if !matches!(moved, Err(Error::Refused(Code::Busy | Code::TryAgain))) {
                break;
            }
        }
        // A goodbye may be lost: then the servers would wait for the mover, and others for what it holds.
        if let Err(error) = mover.shared.give_all_back().await {
            tracing::warn!(%fid, %error, "a mover leaves something to the servers to clear away");
        }
        let _ = mover.unmount().await;
        moved
    }

    async fn move_data(&self, caller: &Caller, fid: Fid, hint: &LayoutHint) -> Result<()> {
        let shared = &self.shared;
        let source = shared.lock_source(caller, fid).await?;
        let superuser = Caller { uid: 0, gid: 0, groups: Arc::new(Vec::new), umask: 0, gives_way: false };
        let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
        let mode = FileKind::File.mode_bits() | 0o600;
        let (_, handle) = self
            .shared
            .files
            .create_unnamed_with(&superuser, Fid::ROOT, mode, flags, Some(hint.clone()))
            .await?;
        let open = shared.files.handles.get(handle)?;
        let target = open.file()?;
        shared.copy_all(&source, target).await?;
        shared.files.sync_file(target, &open.failure_seen).await?;
        // Nobody is told its size from now on: its objects will be those that are given up.
        target.inner.lock().gone = true;
        // They are the file's as soon as the layouts are exchanged.
        let made = target.layout()?;
        let attrs = shared.names.data.objects.object_attrs(&made).await?;
        let blocks = Sum::of(&made, &attrs).blocks;
        let objects = made.places().filter_map(|place| shared.names.data.locks.table.find(place.object));
        shared.names.data.locks.leave_these(objects.collect()).await;
        let sealed = shared.seal(&source.layout).await;
        let swapped = match sealed {
            Ok(()) => shared.swap(caller, fid, open.fid, (source.layout.generation, blocks)).await,
            Err(error) => Err(error),
        };
        if swapped.is_err() {
            // Whoever meets the seal first does it otherwise.
            if let Err(error) = shared.names.layouts.unseal(fid, &source.layout).await {
                tracing::warn!(%fid, %error, "a file that could not be moved stays sealed for a while");
            }
        }
        self.shared.files.release(handle).await;
        swapped
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
    async fn copy_all(self: &Arc<Self>, source: &Source, target: &Arc<FileState>) -> Result<()> {
        let (size, time) = (source.attr.size, source.attr.mtime);
        let layout = self.names.layouts.placed(target, (0, size)).await?;
        let eras = self.names.data.locks.eras(&layout).await?;
        let pins = self.names.data.locks.pin(target.fid, &layout, &whole(&layout), true, Locking::No).await?;
        let call = Call { time, sync: false };
        let mut at = 0;
        while let Some(start) =
            self.names.data.objects.seek_objects(&source.layout, at, size, Seek::Data).await?
        {
            let hole = self.names.data.objects.seek_objects(&source.layout, start, size, Seek::Hole).await?;
            at = start;
            while at < hole.unwrap_or(size) {
                let len = STEP_BYTES.min(hole.unwrap_or(size) - at);
                for slice in
                    self.names.data.read_file(&source.file, &source.layout, (at, len), &source.pins).await?
                {
                    let stored = self.names.data.store(target, &layout, (at, &slice), call, &pins).await?;
                    if stored < slice.len() as u64 {
                        return Err(Error::Refused(Code::TryAgain));
                    }
                    at += stored;
                }
            }
        }
        self.names.data.back.flush_file(target).await;
        self.names.data.objects.set_object_sizes(target, &layout, size, (time, &eras)).await?;
        let lost = !self.names.data.locks.table.still_counts(&source.pins)
            || !self.names.data.locks.table.still_counts(&pins);
        if lost { Err(Error::Refused(Code::TryAgain)) } else { Ok(()) }
    }

    async fn seal(self: &Arc<Self>, layout: &Layout) -> Result<()> {
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

    async fn swap(
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
