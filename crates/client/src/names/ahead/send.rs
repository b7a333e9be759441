//! Has the MDT do what was told, in the order in which it was told.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::limits::PROMISES_MAX;
use proto::wire::messages::{self as msg, Create, KeepPromises, Kept, LOCK_ALONE, OPEN_ALONE, RevokeBits};
use proto::{Code, Fid, Name, Transno};
use rpc::Answered;
use rpc::job::OfJob;

use super::tell::FORETOLD;
use super::{Ahead, Promise};
use crate::data::FileRef;
use crate::names::cache::Asked;
use crate::{Error, Forget, Result};

/// How long a promise may wait for others to travel with.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// Promises in one request, in bytes; one is always taken.
const BYTES_MAX: usize = 256 << 10;
/// What of a promise has the same size in all of them, in bytes, and an object of its layout.
const PROMISE_BYTES: usize = 256;
const OBJECT_BYTES: usize = 8;

impl Ahead {
    /// Has the MDT keep what was promised, until nothing is left. One request is under way at a time: what is left of them after a crash
    /// is what was told first.
    pub(super) async fn send(self: Arc<Self>) {
        while let Some(due) = self.until_due().await {
            self.ask_for(due).await;
        }
    }

    /// The promises that go next; `None` if there are none.
    async fn until_due(&self) -> Option<Vec<Promise>> {
        let begun = self.rt.now();
        let most = self.most_together();
        loop {
            let left = GATHER_TIME.saturating_sub(self.rt.now() - begun);
            {
                let mut state = self.state.lock();
                let count = state.waiting.len();
                if count == 0 {
                    state.is_sending = false;
                    return None;
                }
                if count >= most || left.is_zero() || self.targets.pending.is_waited_for() {
                    let count = travel_together(state.waiting.iter(), most);
                    return Some(state.waiting.drain(..count).collect());
                }
            }
            let _ = self.rt.timeout(left, self.targets.pending.hurried()).await;
        }
    }

    /// How many the MDT takes in one request as long as others ask for something, too.
    fn most_together(&self) -> usize {
        match self.most.load(Ordering::Relaxed) {
            0 => PROMISES_MAX,
            most => most.min(PROMISES_MAX),
        }
    }

    async fn ask_for(self: &Arc<Self>, due: Vec<Promise>) {
        let Some(first) = due.first() else { return };
        let (job, era, dir) = (first.job, first.era, first.fids.first().copied().unwrap_or_default());
        let request = KeepPromises { promises: due.iter().map(|told| told.promise.clone()).collect() };
        let asking = pin!(async { self.targets.mdt_of(dir)?.call_locked(era, request, Vec::new()).await });
        let asked = self.meta.inodes.ask();
        let answer = OfJob::new(job, asking).await;
        let (kept, transno): (Vec<Result<Kept>>, Transno) = match answer {
            Ok(Answered { reply, transno, .. }) => {
                self.most.store(reply.most as usize, Ordering::Relaxed);
                let kept: Vec<Result<Kept>> = reply.kept.into_iter().map(refused).collect();
                due.iter().zip(&kept).for_each(|(told, kept)| log_refusal(&told.promise, kept));
                (kept, transno)
            }
            Err(error) => {
                if error != Error::Closed {
                    let count = due.len();
                    tracing::error!(count, %error, "whether the MDT has done what was done ahead of it is not known");
                }
                (due.iter().map(|_| Err(error)).collect(), Transno(0))
            }
        };
        // An answer that lacks some is none of an MDT.
        let lacking = std::iter::repeat_with(|| Err(Error::Refused(Code::Malformed)));
        for (told, kept) in due.into_iter().zip(kept.into_iter().chain(lacking)) {
            self.answered(&asked, told, kept, transno);
        }
    }

    /// The MDT has said what became of a promise.
    fn answered(self: &Arc<Self>, asked: &Asked<'_>, told: Promise, kept: Result<Kept>, transno: Transno) {
        let Promise { promise, fids, dirs, file, .. } = told;
        let fid = fids.last().copied().unwrap_or_default();
        if let (Some(file), Ok(_)) = (&file, &kept) {
            file.owner_is_of(transno.0);
        }
        match kept {
            Ok(_) if promise.remove.is_some() => self.is_removed(fid, transno),
            Ok(kept) => self.is_kept(asked, (fid, promise.create.as_ref()), &kept, transno),
            Err(error) => self.is_broken(fid, &promise, file.as_ref(), error),
        }
        let is_gone = file.is_some_and(|file| file.inner.lock().gone);
        if is_gone {
            self.data.forget_dead(fid);
        }
        self.state.lock().answered(&dirs);
        self.targets.pending.end(&fids);
        self.targets.pending.answered();
    }

    /// The MDT has made the file, or changed its attributes.
    fn is_kept(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        (fid, create): (Fid, Option<&Create>),
        kept: &Kept,
        transno: Transno,
    ) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.meta.changes.changed(fid, transno);
        let as_told = {
            // Nothing more is told of it in between.
            let mut state = self.state.lock();
            if let (Some(spread), Some(create)) = (&kept.spread, create) {
                state.dirs.set_spread(create.parent, spread.clone());
            }
            if let Some(create) = create {
                self.meta.promises.promise_kept_in(create.parent, transno);
            }
            let attr = kept.attr.as_ref().filter(|_| self.targets.pending.changes_of(fid) == 1);
            self.meta.promises.promise_kept(asked, fid, (kept.lock, transno), attr)
        };
        let lacking = if create.is_some() { FORETOLD & !kept.lock.bits } else { 0 };
        let is_dir = create.is_some_and(|create| create.open & OPEN_ALONE != 0);
        if is_dir && kept.lock.bits & LOCK_ALONE == 0 {
            self.leave(fid);
        }
        if lacking == 0 && as_told {
            return;
        }
        // Whoever is to see the directory waits for this, and nobody who may hold the kernel's lock of it.
        let (ahead, dir) = (self.clone(), create.map_or(fid, |create| create.parent));
        self.forgetting.add(&[dir]);
        self.rt.spawn(async move {
            ahead.meta.recalls.revoke_bits(RevokeBits { fid, bits: lacking, number: 0 }).await;
            if !as_told {
                ahead.meta.kernel.copies.forget(vec![Forget::Attributes(fid)]).await;
            }
            ahead.forgetting.end(&[dir]);
        });
    }

    /// The MDT has taken the last name of a file away.
    fn is_removed(self: &Arc<Self>, fid: Fid, transno: Transno) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.meta.changes.changed(fid, transno);
        // What answers brought since is forgotten, too, as the MDT has forgotten it.
        self.meta.recalls.forget_nameless(fid);
    }

    /// The MDT has not done it: the handles of the file say so, and what was told is forgotten.
    fn is_broken(self: &Arc<Self>, fid: Fid, promise: &msg::Promise, file: Option<&FileRef>, error: Error) {
        self.broken.fetch_add(1, Ordering::Relaxed);
        self.losses.add();
        if let Some(file) = file {
            let mut inner = file.inner.lock();
            inner.fail(failure_of(error));
            inner.gone |= promise.create.is_some();
        }
        let mut forget = vec![Forget::Attributes(fid)];
        if let Some((parent, name)) = entry_of(promise) {
            self.meta.promises.promise_broken(parent, name, fid);
            forget.extend([Forget::NamesOf(fid), Forget::Attributes(parent)]);
            self.state.lock().dirs.unmake(fid);
        } else {
            self.meta.promises.change_broken(fid);
        }
        let ahead = self.clone();
        self.rt.spawn(async move { ahead.meta.kernel.copies.forget(forget).await });
    }
}

/// How many of them go into one request: of one job and session, not too many bytes, and nothing goes that the same request makes or empties.
fn travel_together<'a>(mut waiting: impl Iterator<Item = &'a Promise>, most: usize) -> usize {
    let Some(first) = waiting.next() else { return 0 };
    let made_by = |told: &Promise| told.promise.create.as_ref().map(|create| create.fid);
    let mut made: BTreeSet<Fid> = made_by(first).into_iter().collect();
    let mut bytes = bytes_of(first);
    let rest = waiting.take(most - 1).take_while(|told| {
        bytes += bytes_of(told);
        made.extend(made_by(told));
        let goes = told.promise.remove.as_ref();
        let goes_apart = goes.is_some_and(|remove| remove.unlink.directory || made.contains(&remove.fid));
        (told.job, told.era) == (first.job, first.era) && bytes <= BYTES_MAX && !goes_apart
    });
    1 + rest.count()
}

/// How long a promise is, about.
fn bytes_of(told: &Promise) -> usize {
    let msg::Promise { create, remove, .. } = &told.promise;
    let made = create.as_ref().map_or(0, |create| {
        let layout = create.foretold.as_ref().and_then(|foretold| foretold.layout.as_ref());
        let objects = layout.map_or(0, |layout| layout.object_count());
        create.name.as_bytes().len() + create.target.len() + objects * OBJECT_BYTES
    });
    PROMISE_BYTES + made + remove.as_ref().map_or(0, |remove| remove.unlink.name.as_bytes().len())
}

/// The directory and the name that a promise is about; none if it is about attributes.
fn entry_of(promise: &msg::Promise) -> Option<(Fid, &Name)> {
    let create = promise.create.as_ref().map(|create| (create.parent, &create.name));
    create.or(promise.remove.as_ref().map(|remove| (remove.unlink.parent, &remove.unlink.name)))
}

fn log_refusal(promise: &msg::Promise, kept: &Result<Kept>) {
    if let Err(error) = kept {
        let (parent, name) = entry_of(promise).unzip();
        tracing::error!(?parent, ?name, %error, "the MDT refuses what was done ahead of it, and it is lost");
    }
}

fn refused(kept: Kept) -> Result<Kept> {
    match kept.status {
        0 => Ok(kept),
        code => Err(Error::Refused(Code::from_u32(code).unwrap_or(Code::Malformed))),
    }
}

/// What the handles of a file say that the MDT has not made: its reason means nothing to them, but for want of room.
fn failure_of(error: Error) -> Error {
    match error {
        Error::Refused(Code::NoSpace | Code::Quota) | Error::Closed => error,
        _ => Error::Refused(Code::Evicted),
    }
}
