//! The beginning and the end of a mount, and the configuration in between.

use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use proto::wire::messages::{Config, Statfs};
use proto::{Code, Fid, Nid, TargetId, Transno};
use rpc::Hub;
use rt::sync::{Notify, Semaphore};

use crate::cache::Inodes;
use crate::changes::Changes;
use crate::clock::Clock;
use crate::fids::Fids;
use crate::file::{Accesses, Closer, Files, Handles, Keeper};
use crate::io::{Clean, Memory, Rooms};
use crate::lease::Lease;
use crate::lock::flock::Flocks;
use crate::lock::{CalledBack, Filling, Locks};
use crate::removed::Removed;
use crate::targets::Targets;
use crate::util::{join_all, unless};
use crate::{Client, Copies, Error, Limits, Result, Shared};

/// How long the MGS may keep a question for news: less than [`rpc::limits::RESEND_WAITING`], or each would be sent twice.
const CONFIG_WAIT_MS: u32 = 29_000;
/// Waiting time after a first refusal; doubles up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether an unmount gets on.
const LOOK_TICK: Duration = Duration::from_millis(250);
/// Smallest chunk of the write-behind cache.
const CHUNK_BYTES_MIN: u64 = 64 << 10;
const CHUNK_ALIGN: u64 = 4096;

impl Client {
    /// Fetches the configuration from the MGS at `mgs`, all of it (waits for it and for the first MDT), and opens the root.
    pub async fn mount(hub: &Hub, mgs: Vec<Nid>, limits: Limits) -> Result<Arc<Client>> {
        let shared = Arc::new(Shared::new(hub, mgs, limits));
        shared.targets.set_called_back(CalledBack::new(&shared));
        let mut backoff = BACKOFF_MIN;
        while !shared.targets.knows(TargetId::mdt(0)) {
            match shared.next_config().await {
                Ok(config) => shared.targets.set_config(config),
                Err(Error::Refused(Code::TryAgain | Code::NotHere)) => {
                    shared.rt.sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
                Err(error) => return Err(error),
            }
        }
        shared.rt.spawn(shared.clone().keep_lease());
        // Not the attributes of the root: those come with a lock, and who has only mounted holds nothing.
        shared.targets.mdt()?.call(Statfs {}).await?;
        shared.rt.spawn(shared.clone().watch_config());
        shared.rt.spawn(shared.clone().keep());
        Ok(Arc::new(Client { shared }))
    }

    /// Says who keeps copies of what the client tells; they are kept coherent by [`Copies::forget`].
    pub fn set_copies(&self, copies: Arc<dyn Copies>) {
        *self.shared.copies.write() = Some(copies);
    }

    /// The same as [`Client::unmount`], as long as `goes_on` says so, which is told now and then for how long nothing has
    /// moved. Then what is left is lost, and the servers throw this client out when somebody waits for what it has.
    pub async fn unmount_while(
        &self,
        mut goes_on: impl FnMut(Duration) -> bool,
    ) -> std::result::Result<Result<()>, Lost> {
        let shared = &self.shared;
        let mut unmounting = std::pin::pin!(self.unmount());
        let (mut moved, mut before) = (shared.rt.now(), shared.left());
        loop {
            if let Some(done) = shared.rt.timeout(LOOK_TICK, unmounting.as_mut()).await {
                return Ok(done);
            }
            let (now, left) = (shared.rt.now(), shared.left());
            if left != before {
                (moved, before) = (now, left);
            }
            if !goes_on(now - moved) {
                return Err(shared.lost());
            }
        }
    }

    /// Has the kernel write back what was changed through mappings.
    pub async fn write_mappings_back(&self) {
        let shared = &self.shared;
        let files = shared.handles.all().into_iter().filter_map(|handle| {
            let open = shared.handles.get(handle).ok()?;
            let is_mapped = open.file().ok()?.inner.lock().mapped_writers > 0;
            is_mapped.then_some(open.fid)
        });
        let files: std::collections::BTreeSet<Fid> = files.collect();
        join_all(files.into_iter().map(|fid| shared.forget_data(fid, once(0..u64::MAX)))).await;
    }

    /// Flushes everything, closes every session.
    pub async fn unmount(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let synced = shared.sync_all().await;
        for handle in shared.handles.all() {
            self.release(handle).await;
        }
        shared.close_pending();
        shared.closer.drained().await;
        shared.closed.store(true, Ordering::Release);
        shared.closing.notify_waiters();
        shared.lease.close();
        shared.rooms.close();
        let targets = shared.targets.all().into_iter();
        join_all(targets.map(|target| async move { target.disconnect().await })).await;
        shared.say_goodbye().await;
        shared.targets.mgs().disconnect().await;
        synced
    }
}

/// What a client has left to tell; it changes whenever something moves.
#[derive(PartialEq, Eq)]
struct Left {
    unsent: u64,
    closes: usize,
    targets: Vec<(usize, usize, Transno)>,
}

/// What has not reached the servers, or is not durable there, when a client gives up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes that were written and not sent.
    pub bytes: u64,
    /// Files that they belong to.
    pub files: usize,
    /// Requests that were not answered, or whose effect may not be durable.
    pub requests: usize,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lost { bytes, files, requests } = self;
        write!(
            f,
            "{bytes} bytes of {files} files were not written to the servers and are lost, and of {requests} requests it is \
             not known whether the servers have done them or will remember it"
        )
    }
}

impl Shared {
    fn left(&self) -> Left {
        let state = |target: &Arc<crate::targets::Target>| {
            let state = target.state();
            (state.in_flight, state.retained_count, state.last_committed)
        };
        Left {
            unsent: self.rooms.dirty().used,
            closes: self.closer.room(),
            targets: self.targets.all().iter().map(state).collect(),
        }
    }

    /// What is not on its way to be durable.
    pub(crate) fn lost(&self) -> Lost {
        let files = self.keeper.files();
        let requests = self.targets.all().iter().map(|target| target.state().retained_count).sum();
        let bytes = files.iter().map(|file| file.inner.lock().cache.bytes()).sum();
        Lost { bytes, files: files.len(), requests }
    }

    fn new(hub: &Hub, mgs: Vec<Nid>, limits: Limits) -> Shared {
        let rt = hub.rt().clone();
        let (memory_bytes, inodes) = (rt.memory_bytes(), Inodes::new(rt.memory_share()));
        let client = hub.new_client();
        let chunk_bytes = u64::from(limits.rpc_bytes_max)
            .min(proto::limits::BULK_BYTES_MAX as u64)
            .min(limits.dirty_bytes_max / 2)
            .max(CHUNK_BYTES_MIN)
            / CHUNK_ALIGN
            * CHUNK_ALIGN;
        // One write must always fit, whatever the limit says.
        let least = 2 * (chunk_bytes + crate::io::cache::Cache::COST_MAX);
        let [of_ost, dirty, cached] =
            [limits.ost_dirty_bytes_max, limits.dirty_bytes_max, limits.cached_bytes_max]
                .map(|max| max.max(least));
        let rooms = Arc::new(Rooms::new(of_ost, dirty, cached));
        let lease = Arc::new(Lease::new());
        Shared {
            targets: Targets::new(hub, client, mgs, &limits, (lease.clone(), rooms.clone())),
            idle: Mutex::default(),
            lease,
            rt,
            chunk_bytes,
            memory: Memory::new(chunk_bytes as usize, cached),
            clean: Clean::new(rooms.clone()),
            rooms,
            clock: Clock::default(),
            fids: Fids::new(),
            files: Files::new(),
            handles: Handles::new(),
            keeper: Keeper::new(),
            closer: Closer::new(),
            flocks: Flocks::default(),
            locks: Locks::new(memory_bytes),
            filling: Filling::default(),
            inodes,
            changes: Changes::default(),
            removed: Removed::default(),
            copies: RwLock::new(None),
            lost_bits: Mutex::default(),
            recalls: Mutex::default(),
            accesses: Accesses::default(),
            bits_called_back: AtomicU64::new(0),
            draining: Semaphore::new(1),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    async fn next_config(&self) -> Result<Config> {
        let question = self.targets.config().question(CONFIG_WAIT_MS);
        Ok(self.targets.mgs().call(question).await?.reply)
    }

    /// Follows the configuration until the client is unmounted. One that holds nothing does not: it asks for news when it
    /// begins to hold something again.
    async fn watch_config(self: Arc<Self>) {
        let mut backoff = BACKOFF_MIN;
        loop {
            if unless(self.ended(), self.until_leased(true)).await.is_none() {
                return;
            }
            match unless(self.ended(), unless(self.until_leased(false), self.next_config())).await {
                Some(None) => {}
                Some(Some(Ok(config))) => {
                    backoff = BACKOFF_MIN;
                    self.targets.set_config(config);
                }
                Some(Some(Err(Error::Closed))) | None => return,
                Some(Some(Err(error))) => {
                    tracing::warn!(%error, "the MGS does not tell the configuration");
                    if unless(self.ended(), self.rt.sleep(backoff)).await.is_none() {
                        return;
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Waits until the client is unmounted.
    pub(crate) async fn ended(&self) {
        let closing = self.closing.notified();
        if !self.closed.load(Ordering::Acquire) {
            closing.await;
        }
    }
}
