//! The beginning and the end of a mount, and the configuration in between.

use rt::BoxFuture;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::wire::messages::{Config, DrainDone, Statfs};
use proto::{Code, Nid, TargetId, Transno};
use rpc::Hub;
use rt::sync::Semaphore;
use rt::wait::{join_all, unless};

use crate::callbacks::CalledBack;
use crate::clock::Clock;
use crate::copies::Keepers;
use crate::data::{Cache, Data, Files, Memory, Rooms, WriteBack};
use crate::files::OpenFiles;
use crate::lease::{Lease, LeaseKeeper};
use crate::lock::{RangeLocks, Resting};
use crate::mover::Movers;
use crate::names::Names;
use crate::targets::Targets;
use crate::{Admin, Client, Copies, Error, Limits, MemoryBounds, Result, Shared};

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
    pub fn mount(hub: &Hub, mgs: Vec<Nid>, limits: Limits) -> BoxFuture<'_, Result<Arc<Client>>> {
        Box::pin(async move {
            let shared = Shared::new(hub, mgs, &limits);
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
            // The parts of the client live as long as it has a lease to keep.
            let kept = shared.clone();
            shared.rt.spawn(async move { kept.lessee.keep_lease().await });
            // Not the attributes of the root: those come with a lock, and who has only mounted holds nothing.
            shared.targets.first_mdt()?.call(Statfs {}).await?;
            shared.rt.spawn(shared.clone().watch_config());
            shared.rt.spawn(shared.clone().watch_memory());
            shared.rt.spawn(shared.names.sizes.clone().keep());
            let movers = Movers::new(shared.rt.clone());
            Ok(Arc::new(Client { admin: Admin::of(&shared), movers, shared }))
        })
    }

    /// Says who keeps copies of what the client tells; they are kept coherent by [`Copies::forget`].
    pub fn set_copies(&self, copies: Arc<dyn Copies>) {
        self.shared.copies.set(copies);
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

    /// Everything this client wrote, data and names, is durable when it returns.
    ///
    /// # Errors
    /// What could not be made durable; and once [`proto::Code::Evicted`] if something was lost since the last time, as syncfs(2) has it.
    pub async fn sync_all(&self) -> Result<()> {
        let shared = &self.shared;
        let synced = shared.sync_all().await;
        let (data, names) = (&shared.names.data.back.losses, &shared.names.ahead.losses);
        let [data_told, names_told] = &shared.synced;
        // Both are told at once.
        let (data, names) = (data.take(data_told), names.take(names_told));
        synced.and(data).and(names)
    }

    /// Writes what was not written, waits until all changes are durable, and gives back every lock that is not in use; says
    /// what is left. Whatever is asked for later locks again.
    pub async fn drain(&self) -> Result<DrainDone> {
        self.movers.end_idle().await;
        self.shared.drain().await
    }

    /// Flushes everything, closes every session.
    pub fn unmount(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let shared = &self.shared;
            if shared.lease.is_closed() {
                return Ok(());
            }
            self.movers.end().await;
            let synced = shared.sync_all().await;
            for handle in shared.files.handles.all() {
                self.shared.files.release(handle).await;
            }
            shared.names.sizes.close_pending();
            shared.names.sizes.closer.drained().await;
            shared.lease.close();
            shared.names.data.back.rooms.close();
            let targets = shared.targets.all().into_iter();
            join_all(targets.map(|target| async move { target.disconnect().await })).await;
            shared.lessee.say_goodbye().await;
            shared.targets.mgs().disconnect().await;
            synced
        })
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
    /// Everything that was written, data and names, is durable when this returns.
    pub(crate) fn sync_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let back = &self.names.data.back;
            let files = back.dirty.files();
            self.names.ahead.all_settled().await;
            join_all(files.into_iter().map(|file| async move { back.flush_file(&file).await })).await;
            let commits = self
                .targets
                .all()
                .into_iter()
                .map(|target| async move { target.commit(target.newest()).await });
            join_all(commits).await.into_iter().collect()
        })
    }

    fn left(&self) -> Left {
        let state = |target: &Arc<crate::targets::Target>| {
            let state = target.state();
            (state.in_flight, state.retained_count, state.last_committed)
        };
        Left {
            unsent: self.names.data.back.rooms.dirty().used,
            closes: self.names.sizes.closer.room(),
            targets: self.targets.all().iter().map(state).collect(),
        }
    }

    /// What is not on its way to be durable.
    pub(crate) fn lost(&self) -> Lost {
        let files = self.names.data.back.dirty.files();
        let requests = self.targets.all().iter().map(|target| target.state().retained_count).sum();
        let bytes = files.iter().map(|file| file.inner.lock().cache.bytes()).sum();
        Lost { bytes, files: files.len(), requests }
    }

    fn new(hub: &Hub, mgs: Vec<Nid>, limits: &Limits) -> Arc<Shared> {
        let rt = hub.rt().clone();
        let chunk_bytes = u64::from(limits.rpc_bytes_max)
            .min(proto::limits::BULK_BYTES_MAX as u64)
            .min(limits.dirty_bytes_max / 2)
            .max(CHUNK_BYTES_MIN)
            / CHUNK_ALIGN
            * CHUNK_ALIGN;
        // One write must always fit, whatever the limit says.
        let least = 2 * (chunk_bytes + Cache::COST_MAX);
        let [of_ost, dirty, cached] =
            [limits.ost_dirty_bytes_max, limits.dirty_bytes_max, limits.cached_bytes_max]
                .map(|max| max.max(least));
        let rooms = Arc::new(Rooms::new([of_ost, dirty, cached], rt.memory().user("written")));
        let retained = {
            let rooms = rooms.clone();
            Arc::new(move |before, now| rooms.retained(before as u64, now as u64))
        };
        let (clock, lease) = (Arc::new(Clock::new(rt.clone())), Arc::new(Lease::new(rt.clone())));
        let targets = Arc::new(Targets::new(hub, hub.new_client(), mgs, limits, (lease.clone(), retained)));
        let copies = Arc::new(Keepers::default());
        let locks = Arc::new(RangeLocks::new(rt.clone(), targets.clone(), lease.clone(), copies.clone()));
        let files =
            Files::new(Memory::new(chunk_bytes as usize, cached, rt.memory().user("buffers")), chunk_bytes);
        let back = Arc::new(WriteBack::new(rt.clone(), targets.clone(), files, locks.clone(), rooms));
        let data = Arc::new(Data::new(clock, lease.clone(), locks.clone(), back));
        let user: Weak<Data> = Arc::downgrade(&data);
        locks.set_user(user);
        let names = Arc::new(Names::new(data, copies.clone()));
        let files = Arc::new(OpenFiles::new(rt.clone(), targets.clone(), names.clone()));
        let lessee = Arc::new(LeaseKeeper::new(rt.clone(), lease.clone(), targets.clone()));
        let resting = Arc::new(Resting::new(rt.clone(), targets.clone(), lease.clone(), locks));
        let draining = Semaphore::new(1);
        let shared = Arc::new(Shared {
            rt,
            targets,
            lease,
            lessee,
            resting,
            names,
            files,
            copies,
            synced: [const { AtomicU64::new(0) }; 2],
            draining,
        });
        let holder: Weak<Shared> = Arc::downgrade(&shared);
        shared.lessee.set_holder(holder);
        shared.targets.set_called_back(CalledBack::new(&shared));
        shared
    }

    async fn next_config(&self) -> Result<Config> {
        let question = self.targets.config().question(CONFIG_WAIT_MS);
        Ok(self.targets.mgs().call(question).await?.reply)
    }

    /// Follows the limit of the process's memory until the client is unmounted: bounds that followed from the old one, and those that
    /// are too large for the new one, become what follows from it.
    async fn watch_memory(self: Arc<Self>) {
        let (memory, bounds) = (self.rt.memory().clone(), MemoryBounds::of(&self));
        let (mut limit, mut before) = (memory.limit(), Limits::within(memory.bytes()));
        loop {
            let Some(now) = unless(self.lease.ended(), memory.changed(limit)).await else { return };
            let after = Limits::within(memory.bytes());
            let used = bounds.cache_use();
            let follows = |bound: u64, before: u64, after: u64| bound == before || bound > after;
            if follows(used.dirty_max, before.dirty_bytes_max, after.dirty_bytes_max) {
                _ = bounds.set_dirty_max(after.dirty_bytes_max);
            }
            if follows(used.max, before.cached_bytes_max, after.cached_bytes_max) {
                _ = bounds.set_cached_max(after.cached_bytes_max).await;
            }
            (limit, before) = (now, after);
        }
    }

    /// Follows the configuration until the client is unmounted. One that holds nothing does not: it asks for news when it
    /// begins to hold something again.
    async fn watch_config(self: Arc<Self>) {
        let mut backoff = BACKOFF_MIN;
        loop {
            if unless(self.lease.ended(), self.lease.until_leased(true)).await.is_none() {
                return;
            }
            match unless(self.lease.ended(), unless(self.lease.until_leased(false), self.next_config())).await
            {
                Some(None) => {}
                Some(Some(Ok(config))) => {
                    backoff = BACKOFF_MIN;
                    self.targets.set_config(config);
                }
                Some(Some(Err(Error::Closed))) | None => return,
                Some(Some(Err(error))) => {
                    tracing::warn!(%error, "the MGS does not tell the configuration");
                    if unless(self.lease.ended(), self.rt.sleep(backoff)).await.is_none() {
                        return;
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }
}
