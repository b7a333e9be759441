//! Where services and imports of one process meet.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use proto::identity::Identity;
use proto::seal::Protection;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, FsName, Nid, TargetId};
use rt::sync::Semaphore;
use rt::{Addr, Rt};

use crate::callback::{self, CallbackError};
use crate::event::Ended;
use crate::habits::Habits;
use crate::import::Import;
use crate::keys::{Keys, Role};
use crate::limits;
use crate::process::Process;
use crate::protect::Protect;
use crate::service::Service;
use crate::sessions::Sessions;
use crate::tcp::{self, Acceptance, Link, LinkError};
use crate::together::{Gathering, Together};

/// The services and imports of one process. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    rt: Rt,
    fsname: FsName,
    keys: Keys,
    ended: Ended,
    bulk_checksum: AtomicBool,
    services: RwLock<BTreeMap<TargetId, Arc<dyn Service>>>,
    imports: Mutex<BTreeMap<(TargetId, ClientId), Arc<Import>>>,
    /// The incarnations of clients that have several, on several machines even.
    incarnations: Mutex<BTreeMap<ClientId, u64>>,
    links: tcp::Links,
    sessions: Sessions,
    acceptance: Acceptance,
    gathering: Gathering,
    habits: OnceLock<(Habits, Option<Arc<Semaphore>>)>,
    process: OnceLock<Arc<dyn Process>>,
    protect: OnceLock<Protect>,
    /// Of the clients of this process, by name.
    identities: Mutex<BTreeMap<ClientId, Arc<Identity>>>,
}

impl Hub {
    /// A hub without services. With `rt.verify()`, each message is encoded, decoded and compared even on `lo`.
    pub fn new(rt: Rt, fsname: FsName, keys: Keys) -> Hub {
        let inner = Inner {
            sessions: Sessions::new(rt.clone()),
            rt,
            fsname,
            keys,
            ended: Ended::new(),
            bulk_checksum: AtomicBool::new(true),
            services: RwLock::new(BTreeMap::new()),
            imports: Mutex::new(BTreeMap::new()),
            incarnations: Mutex::new(BTreeMap::new()),
            links: tcp::Links::default(),
            acceptance: Acceptance::default(),
            gathering: Gathering::default(),
            habits: OnceLock::new(),
            process: OnceLock::new(),
            protect: OnceLock::new(),
            identities: Mutex::new(BTreeMap::new()),
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
        self.inner.bulk_checksum.store(on, Ordering::Relaxed);
    }

    /// How connections are to be protected: once, before there are any. Every frame is authenticated otherwise.
    pub fn set_protect(&self, protect: Protect) {
        assert!(self.inner.protect.set(protect).is_ok(), "protection is set once");
    }

    pub(crate) fn protect(&self) -> &Protect {
        self.inner.protect.get_or_init(Protect::default)
    }

    /// Switches things off, for an experiment: once, before anything else is done with the hub.
    pub fn set_habits(&self, habits: Habits) {
        let workers = habits.workers.map(|workers| Arc::new(Semaphore::new(workers.count)));
        assert!(self.inner.habits.set((habits, workers)).is_ok(), "habits are set once");
    }

    /// What this process does so that nobody is evicted.
    pub fn habits(&self) -> &Habits {
        self.inner.habits.get().map_or(&Habits::TODAY, |(habits, _)| habits)
    }

    /// What bounds the requests that are carried out, if anything does.
    pub(crate) fn workers(&self) -> Option<&Arc<Semaphore>> {
        self.inner.habits.get()?.1.as_ref()
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

    /// How long the client of a session has not been there, and whether it only went silent: nobody closed its
    /// connection. `None` if it is there, or the session is over.
    pub fn absent_for(&self, target: TargetId, session: u64) -> Option<(Duration, bool)> {
        let absence = self.inner.sessions.absence((target, session)).ok()??;
        Some((self.inner.rt.now() - absence.since, absence.silent))
    }

    /// What is waited for in the sessions of a target of this process, for diagnoses: the session and a line for each.
    pub fn waits(&self, target: TargetId) -> Vec<(u64, String)> {
        self.inner.sessions.waits(target)
    }

    /// A session is over, as its target says: callbacks to it end, and are not begun any more. Every session that a
    /// target ends has to be told, or it stays known here.
    pub fn session_ended(&self, target: TargetId, session: u64) {
        self.inner.sessions.ended((target, session));
    }

    /// A session was ended against its client's will. As [`Hub::session_ended`]; a client that is connected learns of it at
    /// once: its connection is closed, and it finds out when it connects again.
    pub fn session_evicted(&self, target: TargetId, session: u64) {
        self.inner.sessions.evicted((target, session));
    }

    /// Whether this process has the key of `role`.
    pub fn has_key(&self, role: Role) -> bool {
        self.inner.keys.of(role).is_some()
    }

    /// Accepts connections of peers that hold a key; returns where it listens.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Addr> {
        let listener = self.inner.rt.net().listen(addr).await?;
        let addr = listener.addr();
        self.inner.rt.spawn(tcp::accept_loop(self.clone(), listener));
        Ok(addr)
    }

    /// A new client of this process: a name that is shown to others, and a secret behind it that never leaves the process.
    pub fn new_client(&self) -> ClientId {
        let mut secret = [0; proto::identity::SECRET_BYTES];
        self.inner.rt.random_bytes(&mut secret);
        self.identify(&secret)
    }

    /// The client with this secret; sessions of this hub may be made in its name.
    pub fn identify(&self, secret: &[u8; proto::identity::SECRET_BYTES]) -> ClientId {
        let identity = Identity::from_secret(secret);
        let client = identity.client();
        self.inner.identities.lock().insert(client, Arc::new(identity));
        client
    }

    /// What shows on a connection with this binding that `client` is of this process; empty if it is not known to be.
    pub(crate) fn prove(&self, client: ClientId, binding: &[u8; 32]) -> Bytes {
        let identity = self.inner.identities.lock().get(&client).cloned();
        identity.map_or_else(Bytes::new, |identity| Bytes::copy_from_slice(&identity.prove(binding)))
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
            import.close();
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
        poll_fn(|cx| together.poll(cx, &self.inner.gathering)).await
    }

    /// `target` has an owner of this epoch: sessions of this process with one of before are over.
    pub fn owned_by(&self, target: TargetId, epoch: u64) {
        let imports = self.inner.imports.lock();
        let all = imports.range((target, ClientId(0))..=(target, ClientId(u128::MAX)));
        let all: Vec<Arc<Import>> = all.map(|(_, import)| import.clone()).collect();
        drop(imports);
        all.iter().for_each(|import| import.owned_by(epoch));
    }

    /// What `client` asks from now on it asks as its incarnation of this number: after all that it was, and did not end,
    /// with a smaller one. A target is a client of others, wherever it is served.
    pub fn incarnate(&self, client: ClientId, incarnation: u64) {
        self.inner.incarnations.lock().insert(client, incarnation);
    }

    /// Ends every session of `client`, and with `goodbye` tells those with whom it has them, as far as they answer.
    pub async fn end_client(&self, client: ClientId, goodbye: bool) {
        let imports: Vec<Arc<Import>> = {
            let mut imports = self.inner.imports.lock();
            let keys: Vec<_> = imports.keys().filter(|(_, of)| *of == client).copied().collect();
            keys.iter().filter_map(|key| imports.remove(key)).collect()
        };
        if goodbye {
            let goodbyes = async {
                for import in &imports {
                    import.disconnect().await;
                }
            };
            let _ = self.inner.rt.timeout(limits::GOODBYE_TIME_MAX, goodbyes).await;
        }
        for import in imports {
            import.close();
        }
        self.inner.incarnations.lock().remove(&client);
        self.inner.identities.lock().remove(&client);
    }

    pub(crate) fn incarnation(&self, client: ClientId) -> Option<u64> {
        self.inner.incarnations.lock().get(&client).copied()
    }

    /// Tells all peers goodbye and ends every task of the hub.
    pub async fn close(&self) {
        let imports = std::mem::take(&mut *self.inner.imports.lock());
        let goodbyes = async {
            for import in imports.values() {
                import.disconnect().await;
            }
        };
        // Peers that do not answer must not hold up the others' end for ever.
        let _ = self.inner.rt.timeout(limits::GOODBYE_TIME_MAX * 2, goodbyes).await;
        self.inner.ended.end();
        for import in imports.values() {
            import.close();
        }
        self.inner.links.close();
        self.inner.services.write().clear();
    }

    /// Lets everything go at once, as the end of a process does, and tells nobody. Services and imports know their hub,
    /// so that a simulated process that is not closed would never be freed.
    pub fn abandon(&self) {
        self.inner.ended.end();
        let services = std::mem::take(&mut *self.inner.services.write());
        let imports = std::mem::take(&mut *self.inner.imports.lock());
        for import in imports.values() {
            import.close();
        }
        self.inner.links.close();
        drop((services, imports));
    }

    pub(crate) fn forget(&self, import: &Import) {
        let mut imports = self.inner.imports.lock();
        let key = (import.target, import.client);
        if imports.get(&key).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), import)) {
            imports.remove(&key);
        }
    }

    pub(crate) fn service(&self, target: TargetId) -> Option<Arc<dyn Service>> {
        self.inner.services.read().get(&target).cloned()
    }

    pub(crate) async fn link(&self, addr: &Addr, role: Role) -> Result<Arc<Link>, LinkError> {
        self.inner.links.get(self, addr, role).await
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    pub(crate) fn ended(&self) -> &Ended {
        &self.inner.ended
    }

    /// Whether bulk gets a checksum on a connection that is protected so.
    pub(crate) fn bulk_checksum(&self, protection: Protection) -> bool {
        protection < Protection::Frames && self.inner.bulk_checksum.load(Ordering::Relaxed)
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    pub(crate) fn gathering(&self) -> &Gathering {
        &self.inner.gathering
    }

    pub(crate) fn acceptance(&self) -> &Acceptance {
        &self.inner.acceptance
    }
}
