//! Where services and imports of one process meet.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use proto::identity::Identity;
use proto::session::Event;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, FsName, Nid, TargetId};
use rt::sync::Semaphore;
use rt::wait::join_all;
use rt::{Addr, Rt};

use crate::callback::{self, CallbackError};
use crate::clients::Clients;
use crate::event::Ended;
use crate::export::{Acceptance, Sessions};
use crate::guard::Guard;
use crate::habits::{Experiment, Habits};
use crate::import::Import;
use crate::keys::{Keys, Role};
use crate::limits;
use crate::process::Process;
use crate::protect::Protect;
use crate::service::Service;
use crate::session::{Link, LinkError, Links};
use crate::together::{Gathering, Together};

/// The services and imports of one process. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    rt: Rt,
    fsname: FsName,
    guard: Guard,
    ended: Ended,
    services: RwLock<BTreeMap<TargetId, Arc<dyn Service>>>,
    imports: Mutex<BTreeMap<(TargetId, ClientId), Arc<Import>>>,
    clients: Clients,
    carried: Carried,
    sessions: Sessions,
    experiment: Experiment,
    process: OnceLock<Arc<dyn Process>>,
}

/// Whether those with whom a client has sessions hear that it ends them, as far as they answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// They are told.
    Said,
    /// They find out.
    Unsaid,
}

/// What carries frames to other processes, and from them.
#[derive(Default)]
pub(crate) struct Carried {
    links: Links,
    pub(crate) acceptance: Acceptance,
    pub(crate) gathering: Gathering,
}

impl Carried {
    /// The connection to `addr`, made if there is none.
    pub(crate) async fn link(&self, hub: &Hub, addr: &Addr, role: Role) -> Result<Arc<Link>, LinkError> {
        self.links.get(hub, addr, role).await
    }
}

impl Hub {
    /// A hub without services. With `rt.verify()`, each message is encoded, decoded and compared even on `lo`.
    pub fn new(rt: Rt, fsname: FsName, keys: Keys) -> Hub {
        let inner = Inner {
            sessions: Sessions::new(rt.clone()),
            rt,
            fsname,
            guard: Guard::new(keys),
            ended: Ended::new(),
            services: RwLock::new(BTreeMap::new()),
            imports: Mutex::new(BTreeMap::new()),
            clients: Clients::default(),
            carried: Carried::default(),
            experiment: Experiment::default(),
            process: OnceLock::new(),
        };
        Hub { inner: Arc::new(inner) }
    }

    /// The door to the outside.
    pub fn rt(&self) -> &Rt {
        &self.inner.rt
    }

    /// The file system that the process belongs to.
    pub fn fsname(&self) -> &FsName {
        &self.inner.fsname
    }

    /// Whether bulk gets a checksum where it is not authenticated. It does unless this says otherwise; the checksum of a
    /// peer is checked always.
    pub fn set_bulk_checksum(&self, on: bool) {
        self.inner.guard.set_bulk_checksum(on);
    }

    /// How connections are to be protected: once, before there are any. Every frame is authenticated otherwise.
    pub fn set_protect(&self, protect: Protect) {
        self.inner.guard.set_protect(protect);
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.inner.guard
    }

    /// Switches things off, for an experiment: once, before anything else is done with the hub.
    #[cfg(feature = "experiments")]
    pub fn set_habits(&self, habits: Habits) {
        self.inner.experiment.begin(habits);
    }

    /// What this process does so that nobody is evicted; without the feature `experiments` a constant.
    pub fn habits(&self) -> &Habits {
        self.inner.experiment.habits()
    }

    /// What bounds the requests that are carried out, if anything does.
    pub(crate) fn workers(&self) -> Option<&Arc<Semaphore>> {
        self.inner.experiment.workers()
    }

    /// Lets operators read and set what the process itself has: once, before `listen`.
    pub fn set_process(&self, process: Arc<dyn Process>) {
        assert!(self.inner.process.set(process).is_ok(), "a process is what it is");
    }

    /// What the process itself has, if anything.
    pub fn process(&self) -> Option<&Arc<dyn Process>> {
        self.inner.process.get()
    }

    /// Offers `service` as `target` to this process and, through `listen`, to others.
    pub fn serve(&self, target: TargetId, service: Arc<dyn Service>) {
        self.inner.services.write().insert(target, service);
    }

    /// Offers `target` no more. Requests that are under way go on.
    pub fn withdraw(&self, target: TargetId) {
        self.inner.services.write().remove(&target);
        self.inner.sessions.withdrawn(target);
        let imports: Vec<Arc<Import>> = self.inner.imports.lock().values().cloned().collect();
        for import in imports.into_iter().filter(|import| import.target() == target) {
            import.withdrawn();
        }
    }

    /// Calls the client of `session` with `target` back ([`crate::Call::session`]) and waits for its answer, over as many
    /// reconnects as it takes. What the client refuses is in the inner result. [`CallbackError::Unreachable`] if
    /// the client has had no connection for `patience` in a row, counted from this call at the earliest; whether it
    /// only went silent [`Hub::absent_for`] says. Dropping the
    /// future gives the callback up; the client may carry it out nevertheless, and it may do so twice.
    pub async fn call_back(
        &self,
        target: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> Result<Result<Reply, Code>, CallbackError> {
        callback::call_back(self, (target, session), request, patience).await
    }

    /// Whether this process has the key of `role`.
    pub fn has_key(&self, role: Role) -> bool {
        self.inner.guard.keys.of(role).is_some()
    }

    /// A new client of this process: a name that is shown to others, and a secret behind it that never leaves the process.
    pub fn new_client(&self) -> ClientId {
        let mut secret = [0; proto::identity::SECRET_BYTES];
        self.inner.rt.random_bytes(&mut secret);
        self.identify(&secret)
    }

    /// The client with this secret; sessions of this hub may be made in its name.
    pub fn identify(&self, secret: &[u8; proto::identity::SECRET_BYTES]) -> ClientId {
        self.inner.clients.add(Identity::from_secret(secret))
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.inner.clients
    }

    /// This process's session with `target`, as `client` with the rights of `role`; made on first use, one per
    /// (target, client). Connects lazily, reconnects and resends for ever.
    pub fn import(&self, target: TargetId, client: ClientId, role: Role, nids: Vec<Nid>) -> Arc<Import> {
        let mut imports = self.inner.imports.lock();
        let import = imports
            .entry((target, client))
            .or_insert_with(|| Import::new(self.clone(), target, client, role, nids))
            .clone();
        drop(imports);
        if self.inner.ended.is_ended() {
            import.driver().close();
        }
        import
    }

    /// Runs futures at the same time on the caller's task; their results are in order. Calls that they begin together
    /// go out in few frames, as far as the targets take batches, and each is answered by itself. How many they are is
    /// for the caller to bound.
    pub async fn together<F: Future>(&self, futures: Vec<F>) -> Vec<F::Output> {
        self.together_within(usize::MAX, futures).await
    }

    /// The same with at most so many under way; the others begin when some of these have ended.
    pub(crate) async fn together_within<F: Future>(&self, max: usize, futures: Vec<F>) -> Vec<F::Output> {
        let mut together = Together::new(futures, max);
        poll_fn(|cx| together.poll(cx, &self.inner.carried.gathering)).await
    }

    /// `target` has an owner of this epoch: sessions of this process with one of before are over.
    pub fn owned_by(&self, target: TargetId, epoch: u64) {
        let imports = self.inner.imports.lock();
        let all = imports.range((target, ClientId(0))..=(target, ClientId(u128::MAX)));
        let all: Vec<Arc<Import>> = all.map(|(_, import)| import.clone()).collect();
        drop(imports);
        all.iter().for_each(|import| import.driver().on(Event::Owner(epoch)));
    }

    /// What `client` asks from now on it asks as its incarnation of this number: after all that it was, and did not end,
    /// with a smaller one. A target is a client of others, wherever it is served.
    pub fn incarnate(&self, client: ClientId, incarnation: u64) {
        self.inner.clients.incarnate(client, incarnation);
    }

    /// Ends every session of `client`.
    pub async fn end_client(&self, client: ClientId, goodbye: Goodbye) {
        let imports: Vec<Arc<Import>> = {
            let mut imports = self.inner.imports.lock();
            let keys: Vec<_> = imports.keys().filter(|(_, of)| *of == client).copied().collect();
            keys.iter().filter_map(|key| imports.remove(key)).collect()
        };
        if goodbye == Goodbye::Said {
            // At the same time: those that are away answer none.
            let goodbyes = join_all(imports.iter().map(|import| import.disconnect()));
            let _ = self.inner.rt.timeout(limits::GOODBYE_TIME_MAX, goodbyes).await;
        }
        for import in imports {
            import.driver().close();
        }
        self.inner.clients.forget(client);
    }

    /// Tells all peers goodbye and ends every task of the hub.
    pub async fn close(&self) {
        let imports = std::mem::take(&mut *self.inner.imports.lock());
        let goodbyes = join_all(imports.values().map(|import| import.disconnect()));
        // Peers that do not answer must not hold up the others' end for ever.
        let _ = self.inner.rt.timeout(limits::GOODBYE_TIME_MAX * 2, goodbyes).await;
        self.inner.ended.end();
        for import in imports.values() {
            import.driver().close();
        }
        self.inner.carried.links.close();
        self.inner.services.write().clear();
    }

    /// Lets everything go at once, as the end of a process does, and tells nobody. Services and imports know their hub,
    /// so that a simulated process that is not closed would never be freed.
    pub fn abandon(&self) {
        self.inner.ended.end();
        let services = std::mem::take(&mut *self.inner.services.write());
        let imports = std::mem::take(&mut *self.inner.imports.lock());
        for import in imports.values() {
            import.driver().close();
        }
        self.inner.carried.links.close();
        drop((services, imports));
    }

    pub(crate) fn forget(&self, import: &Import) {
        let mut imports = self.inner.imports.lock();
        let key = (import.target(), import.driver().client);
        if imports.get(&key).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), import)) {
            imports.remove(&key);
        }
    }

    pub(crate) fn service(&self, target: TargetId) -> Option<Arc<dyn Service>> {
        self.inner.services.read().get(&target).cloned()
    }

    pub(crate) fn ended(&self) -> &Ended {
        &self.inner.ended
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    pub(crate) fn carried(&self) -> &Carried {
        &self.inner.carried
    }
}
