//! The session that moves the data of files for a client: one for all of them, made with the first file and ended a while after
//! the last one. What it does with a file: [`crate::migrate`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proto::{Fid, Nid};
use rpc::Hub;
use rt::Rt;
use rt::sync::{Notify, Semaphore};

use crate::order::{LEAF, Mutex};
use crate::{Client, Error, Limits, Result, Shared};

/// How long a mover stays that has nothing to move.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Memory of a mover.
const LIMITS: Limits = Limits {
    dirty_bytes_max: 64 << 20,
    ost_dirty_bytes_max: 64 << 20,
    rpc_bytes_max: 1 << 20,
    rpcs_in_flight_max: 8,
    cached_bytes_max: 128 << 20,
};

/// What moves files for a client.
pub(crate) struct Movers {
    rt: Rt,
    /// Who makes a mover.
    making: Semaphore,
    state: Mutex<LEAF, State>,
    /// A file or a mover is used no more.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Files that are moved.
    files: BTreeSet<Fid>,
    /// Who moves the next file.
    kept: Option<Arc<Mover>>,
    /// Those that have not ended.
    all: Vec<Arc<Mover>>,
    /// None is made any more.
    has_ended: bool,
}

struct Mover {
    client: Arc<Client>,
    users: AtomicUsize,
}

/// A file that nobody else of this client moves.
pub(crate) struct Turn<'a> {
    movers: &'a Movers,
    fid: Fid,
}

/// A mover that is used. It moves no other file unless this one is [`InUse::done`].
pub(crate) struct InUse {
    movers: Arc<Movers>,
    mover: Arc<Mover>,
    is_done: bool,
}

impl Movers {
    /// Nothing is moved yet.
    pub(crate) fn new(rt: Rt) -> Arc<Movers> {
        let (making, state) = (Semaphore::new(1), Mutex::new(State::default()));
        Arc::new(Movers { rt, making, state, changed: Notify::new() })
    }

    /// Waits until nobody else of this client moves a file: within one session locks keep nobody out.
    pub(crate) async fn turn(&self, fid: Fid) -> Turn<'_> {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().files.insert(fid) {
                return Turn { movers: self, fid };
            }
            changed.await;
        }
    }

    /// The mover, which is made if there is none.
    pub(crate) async fn take(self: &Arc<Self>, (hub, mgs): (Hub, Vec<Nid>)) -> Result<InUse> {
        if let Some(mover) = self.take_kept() {
            return Ok(mover);
        }
        let Ok(_making) = self.making.acquire().await else { return Err(Error::Closed) };
        if let Some(mover) = self.take_kept() {
            return Ok(mover);
        }
        if self.state.lock().has_ended {
            return Err(Error::Closed);
        }
        let client = Client::mount(&hub, mgs, LIMITS).await?;
        let mover = Arc::new(Mover { client, users: AtomicUsize::new(1) });
        {
            let mut state = self.state.lock();
            state.kept = Some(mover.clone());
            state.all.push(mover.clone());
        }
        self.rt.spawn(self.clone().keep(mover.clone()));
        Ok(InUse { movers: self.clone(), mover, is_done: false })
    }

    fn take_kept(self: &Arc<Self>) -> Option<InUse> {
        let state = self.state.lock();
        let mover = state.kept.clone()?;
        mover.users.fetch_add(1, Ordering::SeqCst);
        Some(InUse { movers: self.clone(), mover, is_done: false })
    }

    /// Has every mover end that moves nothing; done when they have.
    pub(crate) async fn end_idle(&self) {
        self.end_those(|mover| mover.users.load(Ordering::SeqCst) == 0).await;
    }

    /// The same of every mover: what is moved is moved first, and nothing else.
    pub(crate) async fn end(&self) {
        self.state.lock().has_ended = true;
        self.end_those(|_| true).await;
    }

    async fn end_those(&self, is_meant: impl Fn(&Mover) -> bool) {
        self.state.lock().kept = None;
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            if !self.state.lock().all.iter().any(|mover| is_meant(mover)) {
                return;
            }
            changed.await;
        }
    }

    /// Ends a mover once it is used no more.
    async fn keep(self: Arc<Self>, mover: Arc<Mover>) {
        loop {
            let changed = self.changed.notified();
            let is_kept = self.is_kept(&mover);
            match mover.users.load(Ordering::SeqCst) {
                0 if !is_kept => break,
                0 => {
                    if self.rt.timeout(IDLE_MAX, changed).await.is_none() && self.let_go(&mover) {
                        break;
                    }
                }
                _ => changed.await,
            }
        }
        let client = &mover.client;
        // A goodbye may be lost: then the servers would wait for the mover, and others for what it holds.
        if let Err(error) = client.shared.give_all_back().await {
            tracing::warn!(%error, "a mover leaves something to the servers to clear away");
        }
        let _ = client.unmount().await;
        self.state.lock().all.retain(|other| !Arc::ptr_eq(other, &mover));
        self.changed.notify_waiters();
    }

    fn is_kept(&self, mover: &Arc<Mover>) -> bool {
        self.state.lock().kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, mover))
    }

    /// The next file gets another one, unless this one is used again.
    fn let_go(&self, mover: &Arc<Mover>) -> bool {
        let mut state = self.state.lock();
        let is_idle = mover.users.load(Ordering::SeqCst) == 0;
        if is_idle {
            state.kept.take_if(|kept| Arc::ptr_eq(kept, mover));
        }
        is_idle
    }
}

impl InUse {
    /// Its session.
    pub(crate) fn session(&self) -> &Arc<Shared> {
        &self.mover.client.shared
    }

    /// The file is moved.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if !self.is_done {
            self.movers.state.lock().kept.take_if(|kept| Arc::ptr_eq(kept, &self.mover));
        }
        self.mover.users.fetch_sub(1, Ordering::SeqCst);
        self.movers.changed.notify_waiters();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.movers.state.lock().files.remove(&self.fid);
        self.movers.changed.notify_waiters();
    }
}
