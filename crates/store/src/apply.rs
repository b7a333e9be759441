//! The engine's task: gives durable records to the engine in large batches and deletes segments that it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt::File;

use crate::engine::{Engine, Item};
use crate::error::StoreError;
use crate::idle::Idle;
use crate::log::commit::sync_all;
use crate::log::record::read_body;
use crate::log::segment::Record;
use crate::shared::{Shared, record_bytes};

enum Step {
    Wait,
    Apply(Part),
    Finish,
    Abandon,
}

/// What the engine gets at once.
struct Part {
    records: Vec<Record>,
    bytes: u64,
    /// Files to sync first: once the engine has a record, nobody looks for data in it.
    behind: Vec<File>,
}

/// Runs until the store is closed, abandoned or poisoned.
pub(crate) async fn run(shared: Arc<Shared>) {
    work(&shared).await;
    shared.apply_ended.store(true, Ordering::Release);
    shared.merge_wake.notify_one();
}

async fn work(shared: &Arc<Shared>) {
    if let Err(error) = shared.look().await {
        return shared.poison(&error.into());
    }
    let mut idle = Idle::default();
    loop {
        let step = if shared.is_poisoned() { Step::Abandon } else { next_step(shared) };
        let done = match step {
            Step::Wait => idle.wait(shared).await,
            Step::Apply(part) => match apply(shared, part).await {
                Ok(()) => idle.applied(shared).await,
                Err(error) => Err(error),
            },
            Step::Finish => match cut_log(shared).await {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Step::Abandon => return,
        };
        if let Err(error) = done {
            return shared.poison(&error);
        }
    }
}

fn next_step(shared: &Shared) -> Step {
    let mut backlog = shared.backlog.lock();
    if backlog.abandoned {
        return Step::Abandon;
    }
    let limits = shared.view.limits();
    let enough = shared.unapplied.load(Ordering::Relaxed) >= limits.apply_after_bytes;
    if backlog.records.is_empty() {
        backlog.flush = false;
        return if backlog.log_ended { Step::Finish } else { Step::Wait };
    }
    if !enough && !backlog.flush && !backlog.log_ended {
        return Step::Wait;
    }
    let mut records = Vec::new();
    let mut bytes = 0;
    while let Some(record) = backlog.records.front()
        && (records.is_empty() || bytes + record_bytes(record) <= limits.apply_bytes)
    {
        bytes += record_bytes(record);
        records.extend(backlog.records.pop_front());
    }
    // All of them: what later records have in a file is synced with it.
    Step::Apply(Part { records, bytes, behind: std::mem::take(&mut backlog.behind) })
}

async fn apply(shared: &Arc<Shared>, part: Part) -> Result<(), StoreError> {
    let Part { records, bytes, behind } = part;
    shared.confirmed().await?;
    let engine = shared.view.engine()?;
    let Some(position) = records.last().map(|record| record.header.last) else { return Ok(()) };
    shared.wait_for_engine(engine.as_ref()).await?;
    sync_all(&behind).await?;
    // Merging takes space, too, and does not ask for it.
    shared.reserve.have(2 * bytes + shared.reserve.for_engine()).await?;
    let worker = shared.clone();
    shared.rt.offload(move || apply_records(&worker, engine.as_ref(), &records, position)).await?;
    shared.merge_wake.notify_one();
    shared.unapplied.fetch_sub(bytes, Ordering::Relaxed);
    shared.room.notify_waiters();
    // Thousands of records and entries were just freed, all over the allocator's memory.
    shared.rt.release_memory_at_times().await;
    let has_old_segment = shared.backlog.lock().segments.front().is_some_and(|s| s.last <= position);
    if has_old_segment {
        cut_log(shared).await?;
    }
    shared.look_now_and_then().await?;
    Ok(())
}

fn apply_records(
    shared: &Shared,
    engine: &dyn Engine,
    records: &[Record],
    position: u64,
) -> Result<(), StoreError> {
    let items = newest_changes(records)?;
    let gone: Vec<_> =
        items.iter().filter(|i| i.value.is_none()).map(|i| (i.key.clone(), i.version)).collect();
    engine.apply(items, position)?;
    shared.view.applied.store(position, Ordering::Release);
    for (key, version) in gone {
        shared.view.table.forget_absent(&key, version);
    }
    shared.view.trim();
    Ok(())
}

/// The newest change of each key in `records`, sorted by key.
fn newest_changes(records: &[Record]) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    for record in records {
        read_body(&record.header, &record.body, |logged| {
            if !logged.is_log_only() {
                items.push(Item { key: logged.key, value: logged.value, version: logged.transno });
            }
        })
        .map_err(|_| StoreError::Corrupt { what: "a record of the log".into() })?;
    }
    // Stable, so that of several changes of one key the last made stays last; reversed, `dedup` keeps it.
    items.reverse();
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items.dedup_by(|later, kept| later.key == kept.key);
    Ok(items)
}

/// Makes the engine durable and deletes the segments that it has whole. A deleted name that comes back after a
/// crash does no harm: the scan starts at the engine's position.
async fn cut_log(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let engine = shared.view.engine()?;
    let durable = shared.rt.offload(move || engine.persist()).await?;
    let mut removed = false;
    loop {
        let segment = {
            let mut backlog = shared.backlog.lock();
            // The newest one shows which owner was the last, even when there is nothing in it.
            let is_newest = backlog.log_ended && backlog.segments.len() == 1;
            match backlog.segments.front() {
                Some(front) if front.last <= durable && shared.log_is_cut && !is_newest => {
                    backlog.segments.pop_front()
                }
                _ => None,
            }
        };
        let Some(segment) = segment else { break };
        match shared.log_dir.remove(&segment.id.name()).await {
            // Another owner of the target, before this one, did it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            done => done?,
        }
        shared.log_bytes.fetch_sub(segment.file_bytes, Ordering::Relaxed);
        removed = true;
    }
    if removed {
        shared.log_dir.sync().await?;
        shared.room.notify_waiters();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::record::{Body, Place};

    #[test]
    fn only_the_newest_change_of_a_key_is_applied() {
        let mut body = Body::default();
        body.begin_batch(1, 3);
        body.push(b"b", Some(b"1"), 0);
        body.push(b"a", Some(b"1"), 0);
        body.push(b"a", Some(b"2"), 1);
        body.begin_batch(2, 1);
        body.push(b"b", None, 1);
        let header = body.header(Place { boot: 1, salt: 0, synced: 4096 }, 0);
        let records = [Record { header, body: Bytes::from(body.bytes) }];
        let items = newest_changes(&records).expect("the body was just made");
        let want = [
            Item { key: Bytes::from("a"), value: Some(Bytes::from("2")), version: 1 },
            Item { key: Bytes::from("b"), value: None, version: 2 },
        ];
        assert_eq!(items, want);
    }
}
