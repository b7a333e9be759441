//! The group commit task: makes pending changes durable, one group at a time, and sleeps when there are none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use rt::File;

use crate::error::StoreError;
use crate::log::tail::{Due, Group};
use crate::log::writer::Writer;
use crate::reserve::is_full;
use crate::shared::Shared;

/// Runs until the store is closed, abandoned or poisoned.
pub async fn run(shared: Arc<Shared>, mut writer: Writer) {
    loop {
        let (due, reserve) = {
            let mut tail = shared.tail.lock();
            let due = tail.due(shared.limits.commit_after, shared.limits.commit_bytes);
            (due, std::mem::take(&mut tail.reserve))
        };
        if shared.is_poisoned() {
            return;
        }
        if reserve && let Err(error) = reserve_again(&shared, &mut writer).await {
            return shared.poison(&error.into());
        }
        match due {
            Due::Closed => break,
            Due::Never => shared.commit_wake.notified().await,
            Due::At(time) if time > shared.rt.now() => {
                let rest = time - shared.rt.now();
                let _ = shared.rt.timeout(rest, shared.commit_wake.notified()).await;
            }
            Due::Now | Due::At(_) => {
                let group = shared.tail.lock().take();
                if let Err(error) = commit(&shared, &mut writer, group).await {
                    return shared.poison(&error);
                }
            }
        }
    }
    let mut backlog = shared.backlog.lock();
    backlog.segments.push_back(writer.closed());
    backlog.log_ended = true;
    drop(backlog);
    shared.apply_wake.notify_one();
}

async fn commit(shared: &Shared, writer: &mut Writer, group: Group) -> Result<(), StoreError> {
    sync_all(&group.data).await?;
    let allocated_before = writer.allocated();
    prepare(shared, writer, &group).await?;
    let under = shared.counts.writes.begin(&shared.rt);
    let appended = writer.append(&group.bodies).await?;
    under.done(&shared.rt, appended.bytes);
    let grown = match &appended.closed {
        None => writer.allocated() - allocated_before,
        Some(closed) => writer.allocated() + closed.file_bytes - allocated_before,
    };
    shared.log_bytes.fetch_add(grown, Ordering::Relaxed);
    shared.reserve.note_written(appended.bytes as u64);
    note_space(shared, writer);
    // What another owner may not have read must not be announced, nor have any effect.
    shared.confirmed().await?;
    shared.enqueue(appended, group.behind);
    shared.unsynced.fetch_sub(group.bytes, Ordering::Relaxed);
    shared.announce(group.last);
    shared.look_now_and_then().await?;
    Ok(())
}

/// Sees to it that the group fits into the log, at the cost of the reserve.
async fn prepare(shared: &Shared, writer: &mut Writer, group: &Group) -> std::io::Result<()> {
    loop {
        match writer.prepare(&group.bodies).await {
            Err(error) if is_full(&error) => {
                shared.reserve.deny();
                let bytes = Writer::len_of(&group.bodies) as u64 + shared.limits.allocate_bytes;
                if !shared.reserve.give_up(bytes).await? {
                    return Err(error);
                }
            }
            done => return done,
        }
    }
}

async fn reserve_again(shared: &Shared, writer: &mut Writer) -> std::io::Result<()> {
    let before = writer.allocated();
    writer.reserve(0).await?;
    shared.log_bytes.fetch_add(writer.allocated() - before, Ordering::Relaxed);
    note_space(shared, writer);
    shared.look_now_and_then().await?;
    shared.room.notify_waiters();
    Ok(())
}

fn note_space(shared: &Shared, writer: &Writer) {
    let short = writer.short_of_space();
    if short {
        shared.reserve.deny();
    }
    shared.short_of_space.store(short, Ordering::Relaxed);
}

/// Syncs all of `files`, at the same time.
pub(crate) async fn sync_all(files: &[File]) -> std::io::Result<()> {
    let mut syncs: Vec<Pin<Box<dyn Future<Output = std::io::Result<()>> + Send + '_>>> = Vec::new();
    for file in files {
        syncs.push(Box::pin(file.sync()));
    }
    std::future::poll_fn(|cx| {
        let mut at = 0;
        while at < syncs.len() {
            match syncs[at].as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(Ok(())) => drop(syncs.swap_remove(at)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        if syncs.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
