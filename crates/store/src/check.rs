//! The checker: reads all that a stopped target has and says in sentences what does not fit.
//!
//! It changes none of weft's files. The key-value engine is opened as at a start, which may tidy its own journal.

use std::sync::Arc;

use rt::{BoxFuture, Dir, Rt};

use crate::boot::{BOOT_FILE, Boot};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::label::{self, Label};
use crate::limits::Limits;
use crate::log::record::{BEFORE_UNKNOWN, read_body};
use crate::log::segment::{Record, SegmentId};
use crate::object::logged::Kept;
use crate::open::{ENGINE_DIR, engine_name, open_engine, replay, was_being_made};
use crate::scan::Scan;
use crate::view::View;
use crate::{log, log::scan, object, recount};

/// Keys that are read at a time.
const KEYS_AT_A_TIME: usize = 1000;
/// Findings after which the checker stops.
pub const FINDINGS_MAX: usize = 1000;

/// What the checker found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Who the target is, if its label can be read.
    pub label: Option<Label>,
    /// Records of the log that the engine does not have.
    pub records: u64,
    /// Keys that exist.
    pub keys: u64,
    /// What does not fit, each a sentence; empty if all is well.
    pub findings: Vec<String>,
}

impl Report {
    /// Adds a sentence.
    pub fn find(&mut self, sentence: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(sentence.into());
        }
    }

    /// Whether all is well so far.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Everything but the data of objects.
    Structure,
    /// The data of objects too, against its checksums.
    Data,
}

/// Checks the target in `path`, which must not be in use, but not the data of its objects. An error means that
/// nothing could be checked.
pub async fn check(rt: &Rt, path: &str) -> Result<Report, StoreError> {
    check_to(rt, path, Depth::Structure).await
}

/// Checks the target in `path`. An error means that nothing could be checked: `WouldBlock` that it is in use, `NotATarget` that
/// there is none.
pub async fn check_to(rt: &Rt, path: &str, depth: Depth) -> Result<Report, StoreError> {
    check_with(rt, path, depth, |_, _| Ok(())).await
}

/// What else is checked of a target's keys: of a kind of target that the report's label says.
pub type Also = fn(&dyn Scan, &mut Report) -> Result<(), StoreError>;

/// The same as [`check_to`], and with it what `also` does.
pub fn check_with<'a>(
    rt: &'a Rt,
    path: &'a str,
    depth: Depth,
    also: Also,
) -> BoxFuture<'a, Result<Report, StoreError>> {
    Box::pin(async move {
        let mut report = Report::default();
        let dir = rt.disk().open_dir(path).await?;
        match Label::read(&dir, path).await {
            Ok(label) => report.label = Some(label),
            // A target without a label, or with a damaged one, is damaged; what has nothing of a target is none.
            Err(error) if !is_target(&dir.list().await?) => return Err(error),
            Err(error) => {
                report.find(error.to_string());
                return Ok(report);
            }
        }
        // Its server changes it meanwhile: what would be found means nothing.
        dir.lock().await?;
        let names = dir.list().await?;
        let has = |name: &str| names.iter().any(|n| n == name);
        if !has(BOOT_FILE.name) {
            // A target that lost power in its very first start has the log's directory, and nothing in it.
            let has_log = has(log::DIR) && !dir.subdir(log::DIR).await?.list().await?.is_empty();
            if has_log || has(ENGINE_DIR) {
                report.find(format!("The file {} is missing.", BOOT_FILE.name));
            }
            return Ok(report);
        }
        if let Err(error) = check_target(rt, &dir, &has, (depth, also), &mut report).await {
            report.find(sentence(&error));
        }
        Ok(report)
    })
}

/// Whether a directory with these names has anything of a target.
fn is_target(names: &[String]) -> bool {
    names.iter().any(|name| [label::FILE.name, BOOT_FILE.name, log::DIR].contains(&name.as_str()))
}

async fn check_target(
    rt: &Rt,
    dir: &Dir,
    has: &impl Fn(&str) -> bool,
    (depth, also): (Depth, Also),
    report: &mut Report,
) -> Result<(), StoreError> {
    // Nothing is known without the file, so nothing can contradict it.
    let unknown = Boot { number: u64::MAX, ..Boot::default() };
    let mut boot = Boot::read(dir).await.map(|boot| boot.unwrap_or(unknown)).unwrap_or_else(|error| {
        report.find(sentence(&error));
        unknown
    });
    if report.label.as_ref().is_some_and(|label| !label.service.is_empty()) {
        // An owner that was stopped for long, and has a successor, may have set it back.
        boot.number = u64::MAX;
    }
    let name = if has(log::DIR) {
        engine_name(dir, &dir.subdir(log::DIR).await?).await?
    } else {
        ENGINE_DIR.to_owned()
    };
    if has(log::DIR) {
        let log_dir = dir.subdir(log::DIR).await?;
        if was_being_made(rt, dir, &log_dir, (&name, Boot { taken: boot.taken, ..Boot::default() })).await? {
            // Its first start was broken off: the next one makes the engine.
            return Ok(());
        }
    }
    let engine: Arc<dyn Engine> = if has(&name) || rt.is_sim() {
        open_engine(rt, dir, &name, Limits::default().within(rt.memory_bytes())).await?
    } else {
        report.find(format!("The directory {name} is missing."));
        return Ok(());
    };
    let position = engine.position()?;
    check_engine(engine.as_ref(), position, report)?;
    let view = View::new(engine, position, Limits::default(), rt.memory_share());
    let mut kept = Kept::default();
    if has(log::DIR) {
        check_log(&dir.subdir(log::DIR).await?, (&view, &mut kept), boot, position, report).await?;
    }
    report.keys = count_keys(&view)?;
    object::check::structure_of(dir, &view, report).await?;
    recount::check_of(&view, report)?;
    also(&view, report)?;
    if depth == Depth::Data {
        object::check::data_of(dir, &view, &kept, report).await?;
    }
    let engine = view.close_engine();
    rt.offload(move || drop(engine)).await;
    Ok(())
}

fn check_engine(engine: &dyn Engine, position: u64, report: &mut Report) -> Result<(), StoreError> {
    engine.scan(&[], &[crate::limits::KEY_RESERVED], &mut |key, _, version| {
        if version > position || version == 0 {
            let key = key.escape_ascii();
            report.find(format!(
                "The key-value engine has the change {version} of the key \"{key}\" but says that its last change is {position}."
            ));
        }
        report.findings.len() < FINDINGS_MAX
    })
}

/// Reads the log behind the engine's position into `view`, comparing what each change says of the state before it.
async fn check_log(
    dir: &Dir,
    (view, kept): (&View, &mut Kept),
    boot: Boot,
    position: u64,
    report: &mut Report,
) -> Result<(), StoreError> {
    for name in dir.list().await? {
        match SegmentId::parse(&name) {
            None => report.find(format!("The log's directory holds {name}, which is none of weft's files.")),
            Some(id) if id.boot > boot.number => report.find(format!(
                "The log segment {name} is of boot {}, but the target was opened {} times only.",
                id.boot, boot.number
            )),
            Some(_) => {}
        }
    }
    scan::scan(dir, position, boot.taken, |record| {
        report.records += 1;
        check_versions(view, &record, report)?;
        replay(view, kept, &record)
    })
    .await?;
    Ok(())
}

/// A record's changes name the versions that their keys had before.
fn check_versions(view: &View, record: &Record, report: &mut Report) -> Result<(), StoreError> {
    let mut failed = None;
    // Versions of keys that this record changes more than once.
    let mut within = std::collections::BTreeMap::new();
    let read = read_body(&record.header, &record.body, |logged| {
        if logged.is_log_only() {
            return;
        }
        let known = match within.get(&logged.key) {
            Some(version) => Ok(*version),
            None => view.get(&logged.key).map(|value| value.map_or(0, |value| value.version.0)),
        };
        match known {
            Ok(version) if logged.before != BEFORE_UNKNOWN && logged.before != version => report.find(format!(
                "The change {} says that the key \"{}\" was of version {} before, but it was of version {version}.",
                logged.transno,
                logged.key.escape_ascii(),
                logged.before
            )),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
        within.insert(logged.key, if logged.value.is_some() { logged.transno } else { 0 });
    });
    if read.is_err() {
        report.find(format!("The log's record behind the change {} is damaged.", record.header.prev));
    }
    failed.map_or(Ok(()), Err)
}

fn count_keys(view: &View) -> Result<u64, StoreError> {
    let mut from = Vec::new();
    let mut count = 0;
    loop {
        let keys = view.scan(&from, &[crate::limits::KEY_RESERVED], KEYS_AT_A_TIME)?;
        count += keys.len() as u64;
        match keys.last() {
            Some((last, _)) if keys.len() == KEYS_AT_A_TIME => from = [last, &[0][..]].concat(),
            _ => return Ok(count),
        }
    }
}

fn sentence(error: &StoreError) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
