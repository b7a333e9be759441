//! A session with one target, and what this client knows of its own changes there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use proto::seal::Protection;
use proto::wire::messages::{DropOrder, Operation, Statfs};
use proto::{DataTarget, TargetId, Transno};
use rpc::{Answered, Import, LinkState};

use super::SignOfLife;
use super::common::{Common, Shortage};
use super::counters::Counters;
use super::in_flight::Bounds;
use super::pace::Pace;
use super::requests::Requests;
use super::rpcs::Changes;
use crate::Result;
use crate::order::{LEAF, Mutex};

/// A session with one target, and what this client knows of its own changes there.
pub(crate) struct Target {
    pub(super) import: Arc<Import>,
    requests: Arc<Requests>,
    /// What is held of the target needs a lease; `None` for the MGS.
    lease: Option<Arc<dyn SignOfLife>>,
    /// Bounds the data requests in flight.
    pub(crate) in_flight: Bounds,
    /// How long large writes take.
    pub(crate) pace: Pace,
    /// What is counted of the session.
    pub(crate) counters: Counters,
    /// Newest transno of a reply.
    newest: AtomicU64,
    /// Something was asked since this was last looked at.
    used: AtomicBool,
    /// Where that is noted, for an OST with its index.
    notes: Option<Notes>,
    /// It has less space than this client may have unsent.
    short: AtomicBool,
    shortage: Arc<Shortage>,
}

/// An OST, and where it is noted that it was used.
pub(super) type Notes = (DataTarget, Arc<Mutex<LEAF, Vec<DataTarget>>>);

impl Target {
    /// Nothing was asked of it yet.
    pub(super) fn new(
        common: &Common,
        import: Arc<Import>,
        lease: Option<Arc<dyn SignOfLife>>,
        notes: Option<Notes>,
    ) -> Target {
        Target {
            import,
            requests: common.requests.clone(),
            lease,
            in_flight: Bounds::new(common.rpcs_in_flight_max as usize),
            pace: Pace::default(),
            counters: Counters::new(common.hub.rt().clone(), common.counting.clone()),
            newest: AtomicU64::new(0),
            used: AtomicBool::new(false),
            notes,
            short: AtomicBool::new(false),
            shortage: common.shortage.clone(),
        }
    }

    /// Sends `operation` and waits for the reply.
    pub(crate) async fn call<O: Operation>(&self, operation: O) -> Result<Answered<O::Reply>> {
        self.requests.count::<O>();
        self.begin().await;
        let changes = if O::CHANGES { self.counters.changes() } else { None };
        let _changing = changes.as_deref().map(Changes::begin);
        let began = self.counters.begin();
        let answered = self.import.call(operation).await;
        self.counters.done::<O>(began);
        let answered = answered?;
        self.note(answered.transno);
        // It may have brought something to hold.
        self.touch();
        Ok(answered)
    }

    /// The same with bulk.
    pub(crate) async fn call_bulk<O: Operation>(
        &self,
        operation: O,
        bulk: Vec<Bytes>,
    ) -> Result<Answered<O::Reply>> {
        self.requests.count::<O>();
        self.begin().await;
        let began = self.counters.begin();
        let answered = self.import.call_bulk(operation, bulk).await;
        self.counters.done::<O>(began);
        let answered = answered?;
        self.note(answered.transno);
        self.touch();
        Ok(answered)
    }

    /// The same, but only in the session of `era`: for what was locked in it.
    pub(crate) async fn call_locked<O: Operation>(
        &self,
        era: u64,
        operation: O,
        bulk: Vec<Bytes>,
    ) -> Result<Answered<O::Reply>> {
        self.requests.count::<O>();
        self.begin().await;
        let began = self.counters.begin();
        let answered = self.import.call_in_era(era, operation, bulk).await;
        self.counters.done::<O>(began);
        let answered = answered?;
        self.note(answered.transno);
        self.touch();
        Ok(answered)
    }

    fn note(&self, transno: Transno) {
        self.newest.fetch_max(transno.0, Ordering::Relaxed);
        let short =
            self.import.room().is_some_and(|room| room < self.shortage.plenty.load(Ordering::Relaxed));
        if short != self.short.load(Ordering::Relaxed) && short != self.short.swap(short, Ordering::AcqRel) {
            match short {
                true => self.shortage.count.fetch_add(1, Ordering::AcqRel),
                false => self.shortage.count.fetch_sub(1, Ordering::AcqRel),
            };
        }
    }

    /// See [`Import::commit_soon`].
    pub(crate) fn commit_soon(&self) {
        if self.import.retained_bytes() > 0 {
            self.import.commit_soon();
        }
    }

    /// See [`Import::retained_bytes`].
    pub(crate) fn unstable(&self) -> u64 {
        self.import.retained_bytes() as u64
    }

    /// See [`Import::room`].
    pub(crate) fn room(&self) -> Option<u64> {
        self.import.room()
    }

    /// The features of the session.
    pub(crate) fn features(&self) -> u64 {
        self.import.features()
    }

    /// See [`Import::era`].
    pub(crate) fn era(&self) -> u64 {
        self.import.era()
    }

    /// What a request brings needs a lease: the MGS has to know of it before the request is sent.
    async fn begin(&self) {
        self.note_used();
        if let Some(lease) = &self.lease {
            lease.touch();
            if !lease.has_begun() {
                lease.until_begun().await;
            }
        }
    }

    fn note_used(&self) {
        if !self.used.load(Ordering::Relaxed)
            && !self.used.swap(true, Ordering::AcqRel)
            && let Some((ost, used)) = &self.notes
        {
            used.lock().push(*ost);
        }
    }

    fn touch(&self) {
        self.note_used();
        if let Some(lease) = &self.lease {
            lease.touch();
        }
    }

    /// Whether an order is about the session as it is.
    pub(crate) fn is_meant(&self, order: &DropOrder) -> bool {
        match order.session {
            0 => self.is_older_than(order.boot),
            session => self.import.session() == session,
        }
    }

    /// Which target it is.
    pub(crate) fn id(&self) -> TargetId {
        self.import.target()
    }

    /// Whether the session is of a boot before `boot`.
    pub(crate) fn is_older_than(&self, boot: u64) -> bool {
        let of_session = self.import.boot();
        of_session != 0 && of_session < boot
    }

    /// Whether there is no session, and none is being opened.
    pub(crate) fn rests(&self) -> bool {
        self.import.state().link == LinkState::Idle
    }

    /// Whether there is a connection as far as is known.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.import.state().link, LinkState::Connected(_))
    }

    /// Whether the target is in this process.
    pub(crate) fn is_in_process(&self) -> bool {
        self.import.state().link == LinkState::InProcess
    }

    /// Opens a session, and shows that there is nothing to repeat.
    pub(crate) async fn show_up(&self) {
        if let Err(error) = self.call(Statfs {}).await {
            tracing::debug!(target = %self.import.target(), %error, "it waits for this client");
        }
    }

    /// The session is over.
    pub(crate) fn forget_session(&self) {
        self.import.forget_session();
    }

    /// Finds out whether the target still knows this client; what was lost has been told then.
    pub(crate) async fn look(&self) -> Result<()> {
        let looked = self.import.look().await;
        if let Err(error) = &looked {
            tracing::debug!(target = %self.import.target(), %error, "the session is not there again");
        }
        Ok(looked?)
    }

    /// Waits until the session is open; an error if the target is not to be asked.
    pub(crate) async fn reached(&self) -> Result<()> {
        Ok(self.import.reached().await?)
    }

    /// Newest change of this client on the target.
    pub(crate) fn newest(&self) -> Transno {
        Transno(self.newest.load(Ordering::Relaxed))
    }

    /// Every change up to here is durable, as far as replies have told.
    pub(crate) fn last_committed(&self) -> Transno {
        self.import.last_committed()
    }

    /// Waits until every change up to `transno` is durable; an error if it is lost.
    pub(crate) async fn commit(&self, transno: Transno) -> Result<()> {
        if transno == Transno(0) {
            return Ok(());
        }
        let committed = Box::pin(self.import.committed(transno)).await;
        if committed.is_err() {
            // A change that is lost is told of once; the next commit is not to wait for it again.
            let _ = self.newest.compare_exchange(transno.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(committed?)
    }

    /// Whether something was asked since this was called last.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::AcqRel)
    }

    /// Asks for a commit of everything; a failure is told to whoever waits for what it concerns.
    pub(crate) async fn make_durable(&self) {
        if let Err(error) = self.import.committed(self.newest()).await {
            tracing::debug!(target = %self.import.target(), %error, "no commit before the session rests");
        }
    }

    /// See [`Import::rest`].
    pub(crate) async fn rest(&self, holds_nothing: impl FnOnce() -> bool) -> bool {
        self.import.rest(holds_nothing).await
    }

    /// How the frames of its connection are protected; `None` without one.
    pub(crate) fn protection(&self) -> Option<Protection> {
        self.import.protection()
    }

    /// How the session is.
    pub(crate) fn state(&self) -> rpc::ImportState {
        self.import.state()
    }

    /// The session as it is.
    pub(crate) fn session(&self) -> u64 {
        self.import.session()
    }

    /// What is waited for in the session.
    pub(super) fn waits(&self) -> Vec<String> {
        self.import.waits()
    }

    /// Ends the session, with a goodbye.
    pub(crate) async fn disconnect(&self) {
        self.import.disconnect().await;
    }
}
