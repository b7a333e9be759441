//! Making and opening a target's directory.

use std::sync::Arc;

use bytes::Bytes;
use proto::Transno;
use rt::{Dir, Rt};

use crate::atomic_file::Kind;
use crate::engine::{Engine, FjallEngine, MemoryEngine};
use crate::error::StoreError;
use crate::label::{self, Label};
use crate::limits::Limits;
use crate::log;
use crate::log::record::read_body;
use crate::log::scan::{Scanned, scan};
use crate::log::segment::Record;
use crate::log::writer::Writer;
use crate::shared::{Shared, record_bytes};
use crate::view::View;

/// How often the target was opened.
pub(crate) const BOOT_FILE: Kind = Kind { name: "boot", magic: *b"WEFTBOOT", version: 1 };
/// Directory of the key-value engine's files.
pub(crate) const ENGINE_DIR: &str = "kv";
/// What a fresh file system may hold in its root directory.
const LOST_AND_FOUND: &str = "lost+found";

/// A target that was read up to the end of its log.
pub(crate) struct Opened {
    pub label: Label,
    pub boot: u64,
    pub dir: Dir,
    pub shared: Shared,
    pub writer: Writer,
}

pub(crate) async fn format(rt: &Rt, path: &str, label: &Label) -> Result<(), StoreError> {
    let dir = rt.disk().create_dir(path).await?;
    let names = dir.list().await?;
    let is_ours = |name: &str| name == LOST_AND_FOUND || label::FILE.is_leftover(name);
    if let Some(name) = names.iter().find(|name| !is_ours(name)) {
        let what = if name == label::FILE.name { "holds a target already" } else { "is not empty" };
        return Err(StoreError::NotATarget(format!("{path} {what} (there is {name})")));
    }
    label::FILE.write(&dir, &label.encode()).await
}

pub(crate) async fn open(rt: &Rt, path: &str, limits: Limits) -> Result<Opened, StoreError> {
    let dir = rt.disk().open_dir(path).await?;
    let label = Label::read(&dir, path).await?;
    dir.lock().await?;
    let log_dir = dir.subdir(log::DIR).await?;
    // Nothing else is written before the boot is durable: its number is in the names of all files made from now on.
    let boot = last_boot(&dir, &log_dir).await? + 1;
    BOOT_FILE.write(&dir, &boot.to_le_bytes()).await?;
    let engine = open_engine(rt, &dir, limits).await?;
    let position = engine.position()?;
    let view = View::new(engine, position, limits.table_bytes_max);
    let mut records = Vec::new();
    let scanned = scan(&log_dir, position, |record| {
        replay(&view, &record)?;
        records.push(record);
        Ok(())
    })
    .await?;
    let writer = Writer::create(log_dir.clone(), boot, scanned.last, limits).await?;
    let shared = Shared::new(rt, limits, log_dir, view, scanned.last);
    fill_backlog(&shared, records, scanned, writer.allocated());
    Ok(Opened { label, boot, dir, shared, writer })
}

/// The boot of the newest owner; 0 if there was none.
pub(crate) async fn last_boot(dir: &Dir, log_dir: &Dir) -> Result<u64, StoreError> {
    let counted = match BOOT_FILE.read(dir).await? {
        None => 0,
        Some(body) => decode_boot(&body)?,
    };
    let newest = log::scan::list(log_dir).await?.last().map_or(0, |id| id.boot);
    Ok(counted.max(newest))
}

pub(crate) fn decode_boot(body: &Bytes) -> Result<u64, StoreError> {
    let bytes = <[u8; 8]>::try_from(&body[..])
        .map_err(|_| StoreError::Corrupt { what: format!("the file {}", BOOT_FILE.name) })?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) async fn open_engine(rt: &Rt, dir: &Dir, limits: Limits) -> Result<Arc<dyn Engine>, StoreError> {
    let Some(path) = dir.os_path() else { return Ok(Arc::new(MemoryEngine::default())) };
    let path = path.join(ENGINE_DIR);
    let engine = rt.offload(move || FjallEngine::open(&path, &limits)).await?;
    Ok(Arc::new(engine))
}

/// Puts the changes of a record into the memory tables.
pub(crate) fn replay(view: &View, record: &Record) -> Result<(), StoreError> {
    read_body(&record.header, &record.body, |logged| {
        let value = logged.value.as_deref().map(Bytes::copy_from_slice);
        view.table.put(&logged.key, value, logged.transno);
    })
    .map_err(|_| StoreError::Corrupt { what: format!("the log's record behind {}", record.header.prev) })
}

fn fill_backlog(shared: &Shared, records: Vec<Record>, scanned: Scanned, allocated: u64) {
    let bytes: u64 = records.iter().map(record_bytes).sum();
    let log_bytes: u64 = scanned.segments.iter().map(|segment| segment.file_bytes).sum();
    shared.unapplied.store(bytes, std::sync::atomic::Ordering::Relaxed);
    shared.log_bytes.store(log_bytes + allocated, std::sync::atomic::Ordering::Relaxed);
    let mut backlog = shared.backlog.lock();
    // What former boots left goes into the engine at once, so that their segments do not pile up.
    backlog.flush = !scanned.segments.is_empty();
    backlog.records.extend(records);
    backlog.segments.extend(scanned.segments);
    drop(backlog);
    tracing::debug!(last = ?Transno(scanned.last), bytes, "the log was read");
}
