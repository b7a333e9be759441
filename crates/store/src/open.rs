//! Making and opening a target's directory.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proto::Transno;
use rt::os::disk::tree::remove_tree;
use rt::{Dir, Rt};

use crate::boot::Boot;
use crate::engine::{Engine, FjallEngine, MemoryEngine};
use crate::error::StoreError;
use crate::label::{self, Label};
use crate::limits::{BLOCK_BYTES, Limits};
use crate::log;
use crate::log::record::read_body;
use crate::log::scan::{Scanned, scan};
use crate::log::segment::Record;
use crate::log::writer::{Begin, Writer};
use crate::object::logged::Kept;
use crate::reserve::{Reserve, is_full};
use crate::right::Owned;
use crate::shared::{Shared, record_bytes};
use crate::takeover::{TakeOver, Taken};
use crate::view::View;

/// Directory of the key-value engine's files, unless an owner made itself another one.
pub(crate) const ENGINE_DIR: &str = "kv";
/// What a fresh file system may hold in its root directory.
const LOST_AND_FOUND: &str = "lost+found";

/// By which right a target is opened.
pub(crate) enum Way {
    /// Nobody else can have it. The boot is so much larger than the last one that the directory knows of.
    Sole {
        /// 1, but for a copy of which nobody knows how often the other one was opened meanwhile.
        boots: u64,
    },
    /// Others may.
    Owned(Owned),
}

/// A target that was read up to the end of its log.
pub(crate) struct Opened {
    pub label: Label,
    pub boot: u64,
    /// The first transno that this boot draws, but for what is replayed.
    pub first: u64,
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
    label.write(&dir).await
}

/// Opens the target in `path`, with limits for its disk if none are given.
pub(crate) async fn open(
    rt: &Rt,
    path: &str,
    limits: Option<Limits>,
    way: Way,
) -> Result<Opened, StoreError> {
    let (boots, owned) = match way {
        Way::Sole { boots } => (boots, None),
        Way::Owned(owned) => (0, Some(owned)),
    };
    let dir = rt.disk().open_dir(path).await?;
    let label = Label::read(&dir, path).await?;
    let locked = dir.lock().await;
    if owned.is_none() {
        locked.as_ref().map_err(|error| std::io::Error::from(error.kind()))?;
    }
    let total = dir.space().await?.total;
    let limits =
        limits.unwrap_or_else(|| Limits::of_disk(total, label.target.kind).within(rt.memory_bytes()));
    let reserve = Reserve::open(&dir, limits.reserve).await?;
    reserve.have_for_start().await?;
    let log_dir = dir.subdir(log::DIR).await?;
    let told = Boot::read(&dir).await?.unwrap_or_default();
    let known = told.number.max(newest_segment(&log_dir).await?);
    let (boot, in_place) = match &owned {
        None => (known.saturating_add(boots), true),
        // Whoever wrote that has the target now.
        Some(owned) if known >= owned.epoch => return Err(StoreError::NotOwner),
        Some(owned) => (owned.epoch, locked.is_ok() && owned.follows(log::scan::newest(&log_dir).await?)),
    };
    // Nothing else is written before the boot is durable: its number is in the names of all files made from now on.
    write_boot(&dir, &reserve, Boot { number: boot, ..told }).await?;
    label.renew(&dir).await?;
    let over = TakeOver { rt, dir: &dir, log_dir: &log_dir, boot, limits, reserve: &reserve };
    let Taken { view, log, last, writer } = match in_place {
        true => go_on(&over, told).await?,
        false => over.run(told.taken).await?,
    };
    // From now on a log without that first block is damaged.
    let first = first_transno(told, last);
    write_boot(&dir, &reserve, Boot { number: boot, taken: boot, first }).await?;
    tidy_engines(rt, &dir, &log_dir).await?;
    let right = owned.map(|owned| owned.right);
    let shared = Shared::new(rt, limits, log_dir, view, last, right, reserve);
    fill_backlog(&shared, log, writer.allocated());
    Ok(Opened { label, boot, first, dir, shared, writer })
}

/// So many transnos lie between the first ones of two boots, more than can be drawn and not be durable.
const TRANSNOS_OF_BOOT: u64 = 1 << 26;

/// The first transno that a boot draws. What a crash took back of the boots before is below: nothing that was told is told again
/// (`docs/recovery.md#renumbered`; Lustre: `LR_EPOCH_BITS`).
fn first_transno(told: Boot, last: u64) -> u64 {
    match (told, last) {
        (Boot { number: 0, .. }, 0) => 0,
        (Boot { first, .. }, last) => first.max(last).saturating_add(TRANSNOS_OF_BOOT),
    }
}

/// Writes which boot it is, at the cost of the reserve.
async fn write_boot(dir: &Dir, reserve: &Reserve, boot: Boot) -> Result<(), StoreError> {
    loop {
        match boot.write(dir).await {
            Err(StoreError::Io(error)) if is_full(&error) && reserve.give_up(BLOCK_BYTES as u64).await? => {}
            done => return done,
        }
    }
}

/// The target as it was left, with a log that goes on.
async fn go_on(of: &TakeOver<'_>, told: Boot) -> Result<Taken, StoreError> {
    let TakeOver { rt, dir, log_dir, boot, limits, .. } = *of;
    let name = engine_name(dir, log_dir).await?;
    if was_being_made(rt, dir, log_dir, (&name, told)).await? {
        discard_engine(rt, dir, &name).await?;
    }
    let engine = open_engine(rt, dir, &name, limits).await?;
    let position = engine.position()?;
    let view = View::new(engine, position, limits, rt.memory_share());
    let mut log = read_log(log_dir, &view, position, told.taken).await?;
    std::mem::take(&mut log.kept).put_back(dir).await?;
    let last = log.scanned.last;
    let begin = Begin { boot, prev: last, salt: rt.random_u64() };
    let writer = Writer::create(log_dir.clone(), begin, limits).await?;
    Ok(Taken { view, log, last, writer })
}

/// What the log has behind the engine's position.
pub(crate) struct Read {
    pub records: Vec<Record>,
    /// Data that data files may lack.
    pub kept: Kept,
    pub scanned: Scanned,
}

/// Reads what the log has behind `position` into `view`.
pub(crate) async fn read_log(
    log_dir: &Dir,
    view: &View,
    position: u64,
    taken: u64,
) -> Result<Read, StoreError> {
    let (mut records, mut kept) = (Vec::new(), Kept::default());
    let scanned = scan(log_dir, position, taken, |record| {
        replay(view, &mut kept, &record)?;
        records.push(record);
        Ok(())
    })
    .await?;
    Ok(Read { records, kept, scanned })
}

/// Gives the directory back after it could not be opened.
pub(crate) async fn let_go(rt: &Rt, path: &str) {
    if let Ok(dir) = rt.disk().open_dir(path).await {
        let _ = dir.unlock().await;
    }
}

/// The boot of the newest owner; 0 if there was none.
pub(crate) async fn last_boot(dir: &Dir, log_dir: &Dir) -> Result<u64, StoreError> {
    let told = Boot::read(dir).await?.unwrap_or_default();
    Ok(told.number.max(newest_segment(log_dir).await?))
}

/// The newest boot that has a segment.
async fn newest_segment(log_dir: &Dir) -> Result<u64, StoreError> {
    Ok(log::scan::list(log_dir).await?.last().map_or(0, |id| id.boot))
}

/// Name of the directory of the engine's files: that of the newest owner that made itself a new one and read the log.
pub(crate) async fn engine_name(dir: &Dir, log_dir: &Dir) -> Result<String, StoreError> {
    let newest = log::scan::newest(log_dir).await?;
    let made = engines(dir).await?;
    let unused = !made.is_empty();
    match made.into_iter().filter(|(boot, _)| *boot <= newest).max() {
        Some((_, name)) => Ok(name),
        None if unused => {
            Err(StoreError::Damaged("the log is damaged: it has no file of the owner of the engine".into()))
        }
        None => Ok(ENGINE_DIR.to_owned()),
    }
}

/// The directories of engines that there are, each with the boot that made it.
async fn engines(dir: &Dir) -> Result<Vec<(u64, String)>, StoreError> {
    let parse = |name: String| {
        let boot = match name.strip_prefix(ENGINE_DIR)? {
            "" => 0,
            suffix => u64::from_str_radix(suffix.strip_prefix('.')?, 16).ok()?,
        };
        Some((boot, name))
    };
    Ok(dir.list().await?.into_iter().filter_map(parse).collect())
}

/// Name of the engine's directory that the owner `boot` makes.
pub(crate) fn engine_name_of(boot: u64) -> String {
    format!("{ENGINE_DIR}.{boot:016x}")
}

/// Takes the engines away that nobody uses: of former owners, and of such that did not come to use theirs.
async fn tidy_engines(rt: &Rt, dir: &Dir, log_dir: &Dir) -> Result<(), StoreError> {
    let Some(path) = dir.os_path().map(Path::to_owned) else { return Ok(()) };
    let used = engine_name(dir, log_dir).await?;
    let made = engines(dir).await?;
    rt.offload(move || {
        for (_, name) in made.into_iter().filter(|(_, name)| *name != used) {
            // Of a former owner that may be alive still, and making files there.
            if let Err(error) = remove_tree(&path.join(&name)) {
                tracing::info!(%error, name, "a former engine's files stay until the next start");
            }
        }
    })
    .await;
    Ok(())
}

/// Whether the process ended while it made the engine, at the first start of the target: the engine lacks the file that it makes last
/// (`version`), no boot has taken the log over, and the log has no file.
pub(crate) async fn was_being_made(
    rt: &Rt,
    dir: &Dir,
    log_dir: &Dir,
    (name, told): (&str, Boot),
) -> Result<bool, StoreError> {
    if told.taken != 0 || newest_segment(log_dir).await? != 0 {
        return Ok(false);
    }
    let Some(path) = dir.os_path().map(|path| path.join(name)) else { return Ok(false) };
    Ok(rt.offload(move || path.is_dir() && !path.join("version").exists()).await)
}

/// Removes an engine that was never finished: it has nothing.
async fn discard_engine(rt: &Rt, dir: &Dir, name: &str) -> Result<(), StoreError> {
    let Some(path) = dir.os_path().map(|path| path.join(name)) else { return Ok(()) };
    tracing::info!(path = %path.display(), "the engine was not finished at the first start: it is made again");
    Ok(rt.offload(move || remove_tree(&path)).await?)
}

pub(crate) async fn open_engine(
    rt: &Rt,
    dir: &Dir,
    name: &str,
    limits: Limits,
) -> Result<Arc<dyn Engine>, StoreError> {
    let Some(path) = dir.os_path() else { return Ok(Arc::new(MemoryEngine::new(dir))) };
    let path = path.join(name);
    let engine = rt.offload(move || FjallEngine::open(&path, &limits)).await?;
    Ok(Arc::new(engine))
}

/// Puts the changes of a record into the memory tables, and the data that it carries into `kept`.
pub(crate) fn replay(view: &View, kept: &mut Kept, record: &Record) -> Result<(), StoreError> {
    let mut taken = Ok(());
    let read = read_body(&record.header, &record.body, |logged| {
        if logged.is_log_only() {
            taken = taken.and(kept.take(&logged.key, logged.value.as_ref()));
            return;
        }
        let value = logged.value.as_deref().map(Bytes::copy_from_slice);
        view.table.put(&logged.key, value, logged.transno);
    });
    read.and(taken)
        .map_err(|_| StoreError::Corrupt { what: format!("the log's record behind {}", record.header.prev) })
}

fn fill_backlog(shared: &Shared, log: Read, allocated: u64) {
    let Read { records, scanned, .. } = log;
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
