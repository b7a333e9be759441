//! Taking a target over from an owner of which nobody knows whether it is gone.
//!
//! It may wake up at any moment, finish what it was at, and delete what it believes to be superfluous, before it notices.
//! So nothing that it may change is used any more: the engine's files are copied (those that are never changed are
//! shared), and what the log holds behind the engine's position is written once more as the new owner's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rt::os::disk::tree::copy_tree;
use rt::{Dir, Rt};

use crate::engine::{Engine, MemoryEngine};
use crate::error::StoreError;
use crate::limits::Limits;
use crate::log::record::Body;
use crate::log::scan::Scanned;
use crate::log::segment::Record;
use crate::log::writer::Writer;
use crate::open::{Read, engine_name, engine_name_of, open_engine};
use crate::view::View;

/// Directories of the engine whose files are never changed.
const UNCHANGED: &[&str] = &["tables", "blobs"];
/// How often a log is read again that a former owner may be writing.
const READ_AGAIN: u32 = 5;
/// How long after.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Bytes of bodies that are written at a time.
const COPY_BYTES: usize = 8 << 20;

/// An engine of the owner `boot`, with what the engine of the one before has.
pub(crate) async fn own_engine(
    rt: &Rt,
    dir: &Dir,
    log_dir: &Dir,
    boot: u64,
    limits: Limits,
) -> Result<Arc<dyn Engine>, StoreError> {
    let Some(path) = dir.os_path().map(Path::to_owned) else { return Ok(Arc::new(MemoryEngine::new(dir))) };
    let (former, own) = (engine_name(dir, log_dir).await?, engine_name_of(boot));
    let (from, to) = (path.join(former), path.join(&own));
    rt.offload(move || match from.is_dir() {
        true => copy_tree(&from, &to, UNCHANGED),
        // It was not used before.
        false => Ok(()),
    })
    .await?;
    dir.sync().await?;
    open_engine(rt, dir, &own, limits).await
}

/// Reads what the log has behind `position` into `view`. The former owner may be writing: then what is seen may look like damage,
/// and is read again.
pub(crate) async fn read_log(
    rt: &Rt,
    log_dir: &Dir,
    view: &View,
    position: u64,
    taken: u64,
) -> Result<Read, StoreError> {
    let mut left = READ_AGAIN;
    loop {
        match crate::open::read_log(log_dir, view, position, taken).await {
            Err(StoreError::Damaged(why)) if left > 0 => tracing::info!(%why, "reading the log again"),
            done => return done,
        }
        left -= 1;
        rt.sleep(READ_AGAIN_AFTER).await;
    }
}

/// Writes `records`, all that the log has behind the position where `writer`, which is held back, begins, as records of its own.
/// They count when all of them are durable, and not before: the machine may fail in between.
pub(crate) async fn copy_log(
    writer: &mut Writer,
    records: &mut Vec<Record>,
    scanned: &mut Scanned,
) -> Result<(), StoreError> {
    let (mut bodies, mut bytes, mut copied) = (Vec::new(), 0, Vec::new());
    let count = records.len();
    for (index, record) in std::mem::take(records).into_iter().enumerate() {
        bytes += record.body.len();
        bodies.push(Body::of(&record));
        if bytes >= COPY_BYTES && index + 1 < count {
            let appended = writer.append(&std::mem::take(&mut bodies)).await?;
            copied.extend(appended.records);
            scanned.segments.extend(appended.closed);
            bytes = 0;
        }
    }
    let appended = writer.append(&bodies).await?;
    copied.extend(appended.records);
    scanned.segments.extend(appended.closed);
    *records = copied;
    Ok(())
}
