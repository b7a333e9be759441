//! Files whose data was moved: an OST refuses what comes with a layout that is not in force any more, and the operation begins
//! again with the one that the MDT tells. Rules: `docs/locks.md#layouts`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{Entry, GetAttr, PlaceData, SealLayout, SwapLayouts};
use proto::{Code, Cred, DataTarget, Fid, Layout};
use rt::wait::join_all;
use rt::{Rt, Time};

use super::restored::is_released;
use crate::data::{FileState, Objects, WriteBack};
use crate::names::MetadataCache;
use crate::targets::Targets;
use crate::{Error, Result};

/// How long a layout may be sealed before whoever sealed it is taken for gone.
const SEALED_MAX: Duration = Duration::from_secs(5);
/// Waiting time after a first refusal; doubles up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What an operation has seen of sealed layouts so far.
#[derive(Default)]
pub(crate) struct Relaying {
    since: Option<Time>,
    pause: Duration,
}

/// Whether an OST may have refused something because of its layout.
pub(crate) fn is_of_layout(error: Error) -> bool {
    matches!(error, Error::Refused(Code::Sealed | Code::Gone | Code::Stale))
}

/// Learns where the data of a file lies now.
pub(crate) struct Layouts {
    pub(super) rt: Rt,
    pub(super) targets: Arc<Targets>,
    pub(super) meta: Arc<MetadataCache>,
    back: Arc<WriteBack>,
}

impl Layouts {
    pub(super) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        meta: Arc<MetadataCache>,
        back: Arc<WriteBack>,
    ) -> Layouts {
        Layouts { rt, targets, meta, back }
    }

    /// Whether an operation that ended with `error` is to begin again, since `layout` may not be in force any more. The file
    /// has the layout that is, then.
    pub(crate) async fn relaid(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        error: Error,
        relaying: &mut Relaying,
    ) -> Result<bool> {
        self.relaid_one_of(&[(file, layout)], error, relaying).await
    }

    /// The same of an operation with several files: an OST does not say which of them it refused.
    pub(crate) async fn relaid_one_of(
        self: &Arc<Self>,
        files: &[(&Arc<FileState>, &Layout)],
        error: Error,
        relaying: &mut Relaying,
    ) -> Result<bool> {
        if !is_of_layout(error) {
            return Ok(false);
        }
        for (file, layout) in files {
            if !file.layout()?.lies_as(layout) {
                relaying.since = None;
                return Ok(true);
            }
        }
        let mut still = Vec::new();
        for (file, layout) in files {
            let entry = self.fetch_entry(file.fid).await?;
            file.set_owner(&entry.attr);
            let Some(told) = entry.layout else { return Ok(false) };
            if told.lies_as(layout) {
                still.push((file.fid, told));
                continue;
            }
            relaying.since = None;
            // Nothing of before can be left: it would have been sent before the layout was sealed.
            self.back.flush_file(file).await;
            file.set_layout(Some(told));
            if file.layout()?.lies_as(layout) {
                self.rt.sleep(PAUSE_MAX).await;
            }
            return Ok(true);
        }
        self.still_sealed(&still, error, relaying).await
    }

    /// How long a file is, as its objects say; while it is being moved this waits.
    pub(crate) async fn true_size(self: &Arc<Self>, file: &Arc<FileState>, objects: &Objects) -> Result<u64> {
        let mut relaying = Relaying::default();
        loop {
            self.current(file).await?;
            let layout = self.there(file).await?;
            match objects.true_size(file, &layout).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                size => return size,
            }
        }
    }

    /// The MDT tells the layouts of which an OST refused one: whoever moves the data is not done, or is gone.
    pub(crate) async fn still_sealed(
        self: &Arc<Self>,
        files: &[(Fid, Layout)],
        error: Error,
        relaying: &mut Relaying,
    ) -> Result<bool> {
        if error != Error::Refused(Code::Sealed) {
            return Ok(false);
        }
        let now = self.rt.now();
        if now - *relaying.since.get_or_insert(now) >= SEALED_MAX {
            relaying.since = None;
            for (fid, layout) in files {
                tracing::warn!(%fid, "whoever was moving this file's data is gone: it stays where it is");
                match self.unseal(*fid, layout).await {
                    // Whether it has happened is not known: who looks again sees. Whoever only reads has lost nothing.
                    Ok(()) | Err(Error::Refused(Code::Evicted)) => {}
                    Err(error) => return Err(error),
                }
            }
            return Ok(true);
        }
        relaying.pause = (relaying.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.rt.sleep(relaying.pause).await;
        Ok(true)
    }

    /// Makes sure that a layout stays in force, and takes its seals away.
    pub(crate) async fn unseal(self: &Arc<Self>, fid: Fid, layout: &Layout) -> Result<()> {
        let generation = layout.generation;
        let stay = SwapLayouts { fid, with: Fid::ZERO, generation, cred: Cred::root(), blocks: None };
        let _changing = self.meta.inodes.change(&[fid], &[]);
        let told = match self.targets.settled_mdt_of(fid).await?.call(stay).await {
            Ok(answered) => {
                self.meta.changes.changed(fid, answered.transno);
                answered.reply.layout
            }
            // Somebody else came first, or the data was moved after all.
            Err(Error::Refused(Code::Busy)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(told) = told else { return Ok(()) };
        let generation = told.generation;
        let objects: BTreeSet<(DataTarget, Fid)> =
            told.places().map(|place| (place.target, place.object.layout)).collect();
        let unsealed = join_all(objects.into_iter().map(|(target, layout)| async move {
            let unseal = SealLayout { layout, stripes: Vec::new(), generation, sealed: false };
            match self.targets.data(target).await?.call(unseal).await {
                // Somebody has begun to move it anew, and sealed it again.
                Ok(_) | Err(Error::Refused(Code::Busy)) => Ok(()),
                Err(error) => Err(error),
            }
        }));
        unsealed.await.into_iter().collect()
    }
}

impl Layouts {
    /// What the MDT says of a file. What it grants with it is kept: otherwise the MDT would believe so for good.
    pub(crate) async fn fetch_entry(self: &Arc<Self>, fid: Fid) -> Result<Entry> {
        let asked = self.meta.inodes.ask();
        let entry = self.targets.settled_mdt_of(fid).await?.call(GetAttr { fid }).await?.reply;
        self.meta.answers.learn(&asked, &entry);
        Ok(entry)
    }
}

impl Layouts {
    /// The layout of a file that has objects for all of `[offset, offset + len)`. If it has none, the MDT is asked for them: before
    /// anything is locked, as it calls back what others know of the layout.
    pub(crate) async fn placed(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        (offset, len): (u64, u64),
    ) -> Result<Arc<Layout>> {
        let fid = file.fid;
        loop {
            let layout = self.there(file).await?;
            if layout.is_placed(offset, len) {
                return Ok(layout);
            }
            let changing = self.meta.inodes.change(&[fid], &[]);
            let place = PlaceData { fid, offset, len };
            let answered = match self.targets.settled_mdt_of(fid).await?.call(place).await {
                Err(error) if is_released(error) => {
                    file.set_layout(self.restored(fid).await?);
                    continue;
                }
                answered => answered?,
            };
            self.meta.changes.changed(fid, answered.transno);
            self.meta.answers.not_kept(&changing, &answered.reply);
            file.set_entry(answered.reply);
            let layout = file.layout()?;
            return if layout.is_placed(offset, len) { Ok(layout) } else { Err(Error::Refused(Code::Io)) };
        }
    }

    /// The layout of a file as it is now. The MDT is asked if it may have more objects than this client knows of: not while this client
    /// holds the layout.
    pub(crate) async fn current(self: &Arc<Self>, file: &Arc<FileState>) -> Result<Arc<Layout>> {
        let layout = file.layout()?;
        if !layout.is_growing() {
            return Ok(layout);
        }
        match self.meta.kept.layout(file.fid) {
            Some(layout) => file.set_layout(Some(layout)),
            None => file.set_entry(self.fetch_entry(file.fid).await?),
        }
        file.layout()
    }

    /// Whether `layout` is not in force any more, if others may have let it grow. The file has the one that is, then.
    pub(crate) async fn has_grown(self: &Arc<Self>, file: &Arc<FileState>, layout: &Layout) -> Result<bool> {
        Ok(layout.is_growing() && !self.current(file).await?.lies_as(layout))
    }
}
