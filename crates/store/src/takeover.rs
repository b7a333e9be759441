//! Taking a target over from an owner of which nobody knows whether it is gone.
//!
//! It may wake up at any moment, finish what it was at, and delete what it believes to be superfluous, before it notices.
//! So nothing that it may change is used any more: the engine's files are copied (those that are never changed are
//! shared), and what the log holds behind the engine's position is written once more as the new owner's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rt::os::disk::tree::{copy_tree, remove_tree};
use rt::{Dir, Rt};

use crate::engine::{Engine, MemoryEngine};
use crate::error::StoreError;
use crate::limits::Limits;
use crate::log;
use crate::log::commit::prepare;
use crate::log::record::Body;
use crate::log::scan::Scanned;
use crate::log::segment::Record;
use crate::log::writer::{Begin, Writer};
use crate::open::{Read, engine_name, engine_name_of, open_engine};
use crate::reserve::{Reserve, is_full};
use crate::view::View;

/// Directories of the engine whose files are never changed.
const UNCHANGED: &[&str] = &["tables", "blobs"];
/// How often a log is read again that a former owner may be writing.
const READ_AGAIN: u32 = 5;
/// How long after.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often the engine is copied again that a former owner may be writing.
const COPY_AGAIN: u32 = 2;
/// Bytes of bodies that are written at a time.
const COPY_BYTES: usize = 8 << 20;

/// What an owner that takes a target over makes for itself before it has it.
pub(crate) struct TakeOver<'a> {
    pub rt: &'a Rt,
    pub dir: &'a Dir,
    pub log_dir: &'a Dir,
    /// Its boot.
    pub boot: u64,
    pub limits: Limits,
    pub reserve: &'a Reserve,
}

impl TakeOver<'_> {
    /// The target as the new owner has it. `taken` is the last boot that is known to have taken the log over. If there is no space for it,
    /// nothing of it stays.
    pub async fn run(&self, taken: u64) -> Result<Taken, StoreError> {
        let mut left = COPY_AGAIN;
        loop {
            let error = match self.prepare(taken).await {
                Ok(mut taken) => {
                    // From here on it may count, whatever is told of it.
                    taken.writer.release().await?;
                    return Ok(taken);
                }
                Err(error) => error,
            };
            if let Err(error) = self.discard().await {
                tracing::warn!(%error, boot = self.boot, "files of a take-over that failed stay");
                left = 0;
            }
            // The former owner may have cut off its log what its engine has only now, behind the copy of that.
            match error {
                StoreError::Damaged(why) if left > 0 => tracing::info!(%why, "the engine is copied again"),
                error => return Err(error),
            }
            left -= 1;
        }
    }

    async fn prepare(&self, taken: u64) -> Result<Taken, StoreError> {
        let engine = self.own_engine().await?;
        let position = engine.position()?;
        let view = View::new(engine, position, self.limits, self.rt.memory_share());
        let mut log = self.read_log(&view, position, taken).await?;
        std::mem::take(&mut log.kept).put_back(self.dir).await?;
        let begin = Begin { boot: self.boot, prev: position, salt: self.rt.random_u64() };
        let mut writer = Writer::create_held_back(self.log_dir.clone(), begin, self.limits).await?;
        let last = log.scanned.last;
        self.copy_log(&mut writer, &mut log.records, &mut log.scanned).await?;
        Ok(Taken { view, log, last, writer })
    }

    /// An engine of its own, with what the engine of the owner before has.
    async fn own_engine(&self) -> Result<Arc<dyn Engine>, StoreError> {
        let Some(path) = self.dir.os_path().map(Path::to_owned) else {
            return Ok(Arc::new(MemoryEngine::new(self.dir)));
        };
        let (former, own) = (engine_name(self.dir, self.log_dir).await?, engine_name_of(self.boot));
        let (from, to) = (path.join(former), path.join(&own));
        loop {
            let (from, to) = (from.clone(), to.clone());
            let copied = self.rt.offload(move || match from.is_dir() {
                true => copy_tree(&from, &to, UNCHANGED).inspect_err(|_| _ = remove_tree(&to)),
                // It was not used before.
                false => Ok(()),
            });
            match copied.await {
                Err(error) if is_full(&error) && self.reserve.give_up(self.reserve.for_engine()).await? => {}
                done => break done?,
            }
        }
        self.dir.sync().await?;
        open_engine(self.rt, self.dir, &own, self.limits).await
    }

    /// Reads what the log has behind `position` into `view`. The former owner may be writing: then what is seen may look like damage,
    /// and is read again.
    async fn read_log(&self, view: &View, position: u64, taken: u64) -> Result<Read, StoreError> {
        let mut left = READ_AGAIN;
        loop {
            match crate::open::read_log(self.log_dir, view, position, taken).await {
                Err(StoreError::Damaged(why)) if left > 0 => tracing::info!(%why, "reading the log again"),
                done => return done,
            }
            left -= 1;
            self.rt.sleep(READ_AGAIN_AFTER).await;
        }
    }

    /// Writes `records`, all that the log has behind the position where `writer`, which is held back, begins, as records of its own.
    /// They count when all of them are durable, and not before: the machine may fail in between.
    async fn copy_log(
        &self,
        writer: &mut Writer,
        records: &mut Vec<Record>,
        scanned: &mut Scanned,
    ) -> Result<(), StoreError> {
        let (mut bodies, mut bytes, mut copied) = (Vec::new(), 0, Vec::new());
        let count = records.len();
        for (index, record) in std::mem::take(records).into_iter().enumerate() {
            bytes += record.body.len();
            bodies.push(Body::of(&record));
            if bytes < COPY_BYTES && index + 1 < count {
                continue;
            }
            prepare(self.reserve, writer, &bodies).await?;
            let appended = writer.append(&std::mem::take(&mut bodies)).await?;
            copied.extend(appended.records);
            scanned.segments.extend(appended.closed);
            bytes = 0;
        }
        *records = copied;
        Ok(())
    }

    /// Takes away what it has made. Its log is held back: nobody reads anything of it.
    async fn discard(&self) -> Result<(), StoreError> {
        let ids = log::scan::list(self.log_dir).await?.into_iter();
        // Without the first one the others would count: it goes when they are gone for good.
        for id in ids.filter(|id| id.boot == self.boot).rev() {
            if id.number == 0 {
                self.log_dir.sync().await?;
            }
            self.log_dir.remove(&id.name()).await?;
        }
        self.log_dir.sync().await?;
        if let Some(path) = self.dir.os_path().map(|path| path.join(engine_name_of(self.boot))) {
            self.rt.offload(move || if path.is_dir() { remove_tree(&path) } else { Ok(()) }).await?;
        }
        Ok(())
    }
}

/// A target that was taken over.
pub(crate) struct Taken {
    pub view: View,
    pub log: Read,
    /// The last transno of the log before.
    pub last: u64,
    pub writer: Writer,
}
