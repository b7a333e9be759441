//! A copytool: it takes actions from the MDT and carries them out with an archive (`docs/hsm.md#copytools`).
//!
//! Whatever it is in the middle of when it ends is done again by the next one: what counts is what the MDT is told last, and the MDT
//! looks whether it still holds. Each copy has a name of its own, so that a copytool that was taken for gone writes over nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proto::hsm::{Action, flag};
use proto::wire::messages::{HsmItem, HsmProgress, TakeHsm};
use proto::{Attr, Code, Fid};
use rt::sync::Notify;

use crate::order::{LEAF, Mutex};
use crate::{Caller, Client, Error, Handle, OpenFlags, Result, Seek};

/// Bytes that are copied at a time.
const STEP_BYTES: u32 = 4 << 20;
/// How long it waits for work before it says again that it is there.
const WAIT: Duration = Duration::from_secs(5);
/// Waiting time after a question to the MDT that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a file is restored again because a server restarted.
const ATTEMPTS: usize = 5;

/// Where copies are.
pub trait Archive: Send + Sync + 'static {
    /// A copy that is made. Dropped, it never was.
    type Put: Put;
    /// A copy that is read.
    type Get: Get;

    /// Begins a copy of a file.
    fn put(&self, of: Copy<'_>) -> impl Future<Output = Result<Self::Put>> + Send;
    /// Opens a copy.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    fn get(&self, of: Copy<'_>) -> impl Future<Output = Result<Self::Get>> + Send;
    /// Removes a copy; that there is none is no error.
    fn remove(&self, of: Copy<'_>) -> impl Future<Output = Result<()>> + Send;
}

/// Which copy.
#[derive(Debug, Clone, Copy)]
pub struct Copy<'a> {
    /// The file.
    pub fid: Fid,
    /// Number of the archive.
    pub archive: u32,
    /// Names the copy, and no other one of the file.
    pub copy: u64,
    /// Attributes of the file when the copy began, and a path of it, if one is known; of one that is made.
    pub about: Option<(&'a Attr, &'a str)>,
}

/// A copy that is made.
pub trait Put: Send {
    /// A part of the data. Parts come in order; what is left out between them is a hole.
    fn write(&mut self, offset: u64, bytes: Bytes) -> impl Future<Output = Result<()>> + Send;
    /// The copy is complete, and durable when this returns.
    fn finish(self, size: u64) -> impl Future<Output = Result<()>> + Send;
}

/// A copy that is read.
pub trait Get: Send {
    /// Bytes of the file.
    fn size(&self) -> u64;
    /// The next part of the data, in order; `None` if there is no more, and all of it was what was written once.
    fn next(&mut self) -> impl Future<Output = Result<Option<(u64, Bytes)>>> + Send;
}

/// How a copytool works.
#[derive(Debug, Clone)]
pub struct CopytoolOptions {
    /// Its name, as `hsm.agents` shows it.
    pub agent: String,
    /// The archives that it serves; empty for all.
    pub archives: Vec<u32>,
    /// Most actions at a time.
    pub parallel: usize,
}

/// What a copytool has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The file.
    pub fid: Fid,
    /// What was done.
    pub action: Action,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// Hears of an action that is over.
type Report = dyn Fn(Done, &Result<()>) + Send + Sync;

/// A copytool.
pub struct Copytool<A> {
    client: Arc<Client>,
    archive: A,
    options: CopytoolOptions,
    /// What it does, and the bytes that are copied.
    working: Mutex<LEAF, BTreeMap<u64, Arc<AtomicU64>>>,
    /// Something was done.
    ended: Notify,
    /// Hears of each action that is over.
    report: Box<Report>,
}

impl<A: Archive> Copytool<A> {
    /// One that has not begun. `report` hears of each action that is over.
    pub fn new(
        client: Arc<Client>,
        archive: A,
        options: CopytoolOptions,
        report: impl Fn(Done, &Result<()>) + Send + Sync + 'static,
    ) -> Arc<Copytool<A>> {
        let (working, ended) = (Mutex::new(BTreeMap::new()), Notify::new());
        Arc::new(Copytool { client, archive, options, working, ended, report: Box::new(report) })
    }

    /// Works until the client is unmounted, or until it is dropped.
    pub async fn run(self: Arc<Self>) -> Result<()> {
        let rt = self.client.shared.rt.clone();
        loop {
            let ended = self.ended.notified();
            let room = self.options.parallel.saturating_sub(self.working.lock().len());
            if room == 0 {
                rt.timeout(WAIT, ended).await;
            }
            let wait_ms = if room == 0 { 0 } else { WAIT.as_millis() as u32 };
            let take = TakeHsm {
                agent: self.options.agent.clone(),
                archives: self.options.archives.clone(),
                working: self.progress(),
                max: room as u32,
                wait_ms,
            };
            match self.client.hsm_take(take).await {
                Ok(work) => {
                    for item in work.actions {
                        let done = Arc::new(AtomicU64::new(0));
                        self.working.lock().insert(item.cookie, done.clone());
                        rt.spawn(self.clone().carry_out(item, done));
                    }
                    // What nobody wants any more ends by itself: the MDT takes no notice of it.
                }
                Err(error @ (Error::Closed | Error::Refused(Code::Forbidden | Code::Invalid))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "the MDT gives no work");
                    rt.sleep(PAUSE).await;
                }
            }
        }
    }

    fn progress(&self) -> Vec<HsmProgress> {
        let working = self.working.lock();
        let progress = |(cookie, done): (&u64, &Arc<AtomicU64>)| HsmProgress {
            cookie: *cookie,
            done: done.load(Ordering::Relaxed),
        };
        working.iter().map(progress).collect()
    }

    async fn carry_out(self: Arc<Self>, item: HsmItem, done: Arc<AtomicU64>) {
        let result = match item.action() {
            Some(Action::Archive) => self.store(&item, &done).await,
            Some(Action::Restore) => self.restore(&item, &done).await,
            Some(Action::Remove) => self.remove(&item).await,
            None => Err(Error::Refused(Code::NotSupported)),
        };
        let why = match &result {
            Ok(()) => None,
            Err(Error::Refused(code)) => Some(*code),
            Err(_) => Some(Code::Io),
        };
        if let Err(error) = self.client.hsm_end(&self.options.agent, (item.fid, item.cookie), why).await {
            tracing::warn!(fid = %item.fid, %error, "the MDT was not told that an action is over: it is done again");
        }
        if let Some(action) = item.action() {
            let bytes = done.load(Ordering::Relaxed);
            (self.report)(Done { fid: item.fid, action, bytes }, &result);
        }
        self.working.lock().remove(&item.cookie);
        self.ended.notify_waiters();
    }

    async fn store(&self, item: &HsmItem, done: &AtomicU64) -> Result<()> {
        let (client, fid) = (&self.client, item.fid);
        // 0 is none.
        let copy = client.shared.rt.random_u64() | 1;
        let attr = match client.hsm_begin_archive(fid, copy).await {
            // It was archived and released meanwhile.
            Err(Error::Refused(Code::Released)) => return Ok(()),
            attr => attr?,
        };
        let paths = client.names().fid_to_path(&Caller::root(), fid).await.unwrap_or_default();
        let path = paths.first().map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default();
        let flags = OpenFlags { read: true, no_atime: true, ..OpenFlags::default() };
        let handle = client.files().open(&Caller::root(), fid, flags).await?;
        let of = Copy { fid, archive: item.archive, copy, about: Some((&attr, &path)) };
        let copied = self.copy_out(of, (fid, handle), attr.size, done).await;
        client.files().release(handle).await;
        let of = Copy { about: None, ..of };
        if let Err(error) = copied {
            // A part of it may be there, whose name nobody knows afterwards.
            if let Err(error) = self.archive.remove(of).await {
                tracing::debug!(%fid, %error, "what is left of a copy that failed stays in the archive");
            }
            return Err(error);
        }
        match client.hsm_end_archive(fid, (item.archive, copy)).await {
            Ok(state) if state.copy == copy => match state.replaced {
                0 => Ok(()),
                replaced => self.archive.remove(Copy { copy: replaced, ..of }).await,
            },
            // Another copytool is at it: it is no end of the action.
            Ok(state) if state.flags & (flag::ARCHIVED | flag::DIRTY) != flag::ARCHIVED => {
                self.archive.remove(of).await.and(Err(Error::Refused(Code::Busy)))
            }
            // Another one counts.
            Ok(_) | Err(Error::Refused(Code::Released)) => self.archive.remove(of).await,
            Err(error) => Err(error),
        }
    }

    async fn copy_out(
        &self,
        of: Copy<'_>,
        (fid, handle): (Fid, Handle),
        size: u64,
        done: &AtomicU64,
    ) -> Result<()> {
        let mut put = self.archive.put(of).await?;
        let (files, mut at) = (self.client.files(), 0);
        while at < size {
            let Some(start) = files.seek(fid, at, Seek::Data).await? else { break };
            let end = files.seek(fid, start, Seek::Hole).await?.unwrap_or(size).min(size);
            at = start;
            while at < end {
                let len = u64::from(STEP_BYTES).min(end - at) as u32;
                let parts = files.read(handle, at, len).await?;
                if parts.iter().all(Bytes::is_empty) {
                    // Somebody cuts it: the copy is one of a file that changes.
                    return put.finish(at).await;
                }
                for part in parts {
                    let len = part.len() as u64;
                    put.write(at, part).await?;
                    at += len;
                    done.fetch_add(len, Ordering::Relaxed);
                }
            }
            at = end;
        }
        put.finish(size).await
    }

    async fn restore(&self, item: &HsmItem, done: &AtomicU64) -> Result<()> {
        let mut restored = Err(Error::Refused(Code::TryAgain));
        for _ in 0..ATTEMPTS {
            restored = self.restore_once(item, done).await;
            match restored {
                Err(Error::Refused(Code::TryAgain | Code::Evicted)) => {
                    self.client.shared.rt.sleep(PAUSE).await;
                }
                // Another one was first.
                Err(Error::Refused(Code::Busy)) => {}
                _ => return restored,
            }
        }
        restored
    }

    async fn restore_once(&self, item: &HsmItem, done: &AtomicU64) -> Result<()> {
        done.store(0, Ordering::Relaxed);
        let Some(restoring) = self.client.hsm_begin_restore(item.fid).await? else { return Ok(()) };
        let (archive, copy) = restoring.copy();
        let of = Copy { fid: item.fid, archive, copy, about: None };
        let copied = async {
            let mut get = self.archive.get(of).await?;
            if get.size() != restoring.size() {
                return Err(Error::Refused(Code::Corrupt));
            }
            while let Some((offset, bytes)) = get.next().await? {
                let len = bytes.len() as u64;
                restoring.write(offset, bytes).await?;
                done.fetch_add(len, Ordering::Relaxed);
            }
            Ok(())
        };
        match copied.await {
            Ok(()) => restoring.finish().await,
            Err(error) => {
                restoring.give_up().await;
                Err(error)
            }
        }
    }

    async fn remove(&self, item: &HsmItem) -> Result<()> {
        // In this order: a copy that is not there must not count.
        match self.client.hsm_forget(item.fid).await?.replaced {
            0 => Ok(()),
            copy => {
                self.archive.remove(Copy { fid: item.fid, archive: item.archive, copy, about: None }).await
            }
        }
    }
}
