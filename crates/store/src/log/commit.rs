//! Group commits: they make pending changes durable, one group at a time.
//!
//! There is one writer. Whoever has it commits what is due, and gives it back when nothing is. Someone who waits for a commit carries it out
//! in a task on its own core ([`hurry`]); what nobody waits for is committed by the task of the target ([`run`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use rt::File;

use crate::error::StoreError;
use crate::log::record::Body;
use crate::log::tail::{Due, Group, Tail};
use crate::log::writer::Writer;
use crate::reserve::{Reserve, is_full};
use crate::shared::Shared;

/// Commits what nobody waits for, until the store is closed, abandoned or poisoned; then nobody writes any more.
pub async fn run(shared: Arc<Shared>, writer: Writer) {
    *shared.writer.lock() = Some(writer);
    loop {
        let (due, reserve) = {
            let tail = shared.tail.lock();
            (tail.due(shared.limits.commit_after, shared.limits.commit_bytes), tail.reserve)
        };
        let is_over = shared.is_poisoned() || due == Due::Closed;
        match due {
            _ if is_over => {}
            Due::At(time) if time > shared.rt.now() && !reserve => {
                let rest = time - shared.rt.now();
                let _ = shared.rt.timeout(rest, shared.commit_wake.notified()).await;
                continue;
            }
            Due::Never if !reserve => {
                shared.commit_wake.notified().await;
                continue;
            }
            _ => {}
        }
        let Some(writer) = shared.writer.lock().take() else {
            // Told by whoever has it.
            shared.commit_wake.notified().await;
            continue;
        };
        if is_over {
            return end(&shared, &writer);
        }
        work(&shared, writer).await;
    }
}

/// Has what is due committed now, on the core of the caller. If the log is being written, whoever does that sees to it.
pub fn hurry(shared: &Arc<Shared>) {
    let Some(writer) = shared.writer.lock().take() else { return };
    let worker = shared.clone();
    // A task of its own: the caller may give up.
    shared.rt.spawn(async move { work(&worker, writer).await });
}

/// Commits what is due, and gives the writer back.
async fn work(shared: &Shared, mut writer: Writer) {
    loop {
        if let Err(error) = commit_due(shared, &mut writer).await {
            shared.poison(&error);
        }
        *shared.writer.lock() = Some(writer);
        // What became due since could not find the writer.
        if shared.is_poisoned() || !is_due(shared) {
            break;
        }
        writer = match shared.writer.lock().take() {
            Some(writer) => writer,
            None => return,
        };
    }
    shared.commit_wake.notify_one();
}

async fn commit_due(shared: &Shared, writer: &mut Writer) -> Result<(), StoreError> {
    while is_due(shared) && !shared.is_poisoned() {
        if std::mem::take(&mut shared.tail.lock().reserve) {
            reserve_again(shared, writer).await?;
        }
        // Nothing but space may have been asked for, and again meanwhile: a group without changes is no record.
        let group = {
            let mut tail = shared.tail.lock();
            is_group_due(shared, &tail).then(|| tail.take())
        };
        if let Some(group) = group {
            commit(shared, writer, group).await?;
        }
    }
    Ok(())
}

/// Whether there is something to do for whoever has the writer.
fn is_due(shared: &Shared) -> bool {
    let tail = shared.tail.lock();
    !tail.abandoned && (tail.reserve || is_group_due(shared, &tail))
}

/// Whether there are changes, and their time has come.
fn is_group_due(shared: &Shared, tail: &Tail) -> bool {
    match tail.due(shared.limits.commit_after, shared.limits.commit_bytes) {
        Due::Now => true,
        Due::At(time) => time <= shared.rt.now(),
        Due::Never | Due::Closed => false,
    }
}

/// Nothing will be written any more.
fn end(shared: &Shared, writer: &Writer) {
    if shared.is_poisoned() {
        return;
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
    prepare(&shared.reserve, writer, &group.bodies).await?;
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

/// Sees to it that `bodies` fit into the log, at the cost of the reserve.
pub(crate) async fn prepare(reserve: &Reserve, writer: &mut Writer, bodies: &[Body]) -> std::io::Result<()> {
    loop {
        match writer.prepare(bodies).await {
            Err(error) if is_full(&error) => {
                reserve.deny();
                if !reserve.give_up(writer.wanted(bodies)).await? {
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
