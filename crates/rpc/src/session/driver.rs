//! What drives the machine of a session ([`proto::session::machine`]): a lock around it, and tasks that carry out what it
//! says.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::session::machine::{Answered, CallError, Note, Phase, Setup};
use proto::session::{Event, Limits, Machine, Output};
use proto::wire::header::FLAG_UNCHECKED;
use proto::wire::messages::Sync as SyncRequest;
use proto::wire::{Header, Reply, Request};
use proto::{ClientId, Code, Nid, TargetId, Transno, Xid};
use rt::sync::{Notify, oneshot};
use rt::{Time, Wall};

use super::Link;
use super::call::Options;
use super::carrier::Carrier;
use super::connect;
use super::lo::Lo;
use crate::callback::Called;
use crate::event::{Either, race};
use crate::hub::Hub;
use crate::import::Retaining;
use crate::keys::Role;
use crate::limits;

pub(crate) type Outcome = Result<Answered<Reply>, Code>;

/// Who waits for an answer.
pub(crate) type Waiter = oneshot::Sender<Outcome>;

/// What a step of the machine says, and what carries it.
pub(crate) type Said = (Vec<Output<Waiter>>, Option<Carrier>);

/// The machine, and what carries the frames of the session while it is open.
pub(crate) struct State {
    pub(crate) machine: Machine<Waiter>,
    pub(crate) carrier: Option<Carrier>,
}

/// What is known of the machine without its lock.
#[derive(Default)]
struct Shown {
    session: AtomicU64,
    era: AtomicU64,
    /// Bytes of changes that are kept, and who is told when that changes.
    retained: AtomicUsize,
    retaining: OnceLock<Retaining>,
}

/// Whom the machine's outputs wake.
#[derive(Default)]
pub(crate) struct Signals {
    /// The session is open or over, or there is room for requests again.
    pub(crate) room: Notify,
    /// The target may be reached elsewhere than before.
    pub(crate) moved: Notify,
    /// The task that opens the session looks again.
    pub(crate) stirred: Notify,
    /// Those who watch requests look earlier than they meant to.
    earlier: Notify,
    /// The commit mark moved.
    advanced: Notify,
}

/// A client's end of a session with one target.
pub(crate) struct Driver {
    me: Weak<Driver>,
    pub(crate) hub: Hub,
    pub(crate) target: TargetId,
    pub(crate) client: ClientId,
    pub(crate) role: Role,
    state: Mutex<State>,
    shown: Shown,
    /// Bulk goes and comes without a checksum of its own.
    unchecked: AtomicBool,
    pub(crate) signals: Signals,
    called: Arc<Called>,
}

impl Driver {
    pub(crate) fn new(
        hub: Hub,
        target: TargetId,
        client: ClientId,
        role: Role,
        nids: Vec<Nid>,
    ) -> Arc<Driver> {
        let machine = Machine::new(Setup {
            target,
            client,
            fsname: hub.fsname().as_str().to_owned(),
            nids,
            // Epochs go on growing if the same client comes back with a new import, after a reboot of its machine too.
            epoch: first_epoch(hub.clients().incarnation(client), hub.rt().wall()),
            limits: Limits {
                requests_max: limits::REQUESTS_MAX,
                waiting_max: limits::WAITING_MAX,
                retained_count_max: limits::RETAINED_COUNT_MAX,
                retained_bytes_max: limits::RETAINED_BYTES_MAX,
            },
        });
        #[cfg(feature = "experiments")]
        let machine = hub.habits().paced(machine);
        let called = Called::new(hub.clone(), target);
        Arc::new_cyclic(|me| Driver {
            me: me.clone(),
            hub,
            target,
            client,
            role,
            state: Mutex::new(State { machine, carrier: None }),
            shown: Shown::default(),
            unchecked: AtomicBool::new(false),
            signals: Signals::default(),
            called,
        })
    }

    /// Itself, for a task.
    pub(crate) fn me(&self) -> Option<Arc<Driver>> {
        self.me.upgrade()
    }

    pub(crate) fn called(&self) -> &Arc<Called> {
        &self.called
    }

    /// See [`crate::Import::set_checksums`].
    pub(crate) fn set_checksums(&self, on: bool) {
        self.unchecked.store(!on, Ordering::Relaxed);
    }

    /// The header as it goes to another process.
    pub(crate) fn outward(&self, mut header: Header) -> Header {
        if self.unchecked.load(Ordering::Relaxed) {
            header.flags |= FLAG_UNCHECKED;
        }
        header
    }

    /// See [`crate::Import::session`].
    pub(crate) fn session(&self) -> u64 {
        self.shown.session.load(Ordering::Acquire)
    }

    /// See [`crate::Import::era`].
    pub(crate) fn era(&self) -> u64 {
        self.shown.era.load(Ordering::Acquire)
    }

    /// See [`crate::Import::retained_bytes`].
    pub(crate) fn retained_bytes(&self) -> usize {
        self.shown.retained.load(Ordering::Relaxed)
    }

    /// See [`crate::Import::set_retaining`].
    pub(crate) fn set_retaining(&self, retaining: Retaining) {
        assert!(self.shown.retaining.set(retaining).is_ok(), "one is told what is retained");
    }

    /// The next time that the commit mark moves, from this call on.
    pub(crate) fn advanced(&self) -> impl Future<Output = ()> + '_ {
        self.signals.advanced.notified()
    }

    /// The moment as the machine counts.
    pub(crate) fn moment(&self) -> Duration {
        self.hub.rt().now() - Time::default()
    }

    /// Looks at the machine.
    pub(crate) fn look_at<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock())
    }

    /// Tells the machine what happened, and carries out what it says.
    pub(crate) fn on(&self, event: Event<Waiter>) {
        let now = self.moment();
        let (outputs, carrier) = self.step(|state| state.machine.on(event, now));
        self.carry_out(outputs, carrier.as_ref());
    }

    /// The same if the session lives on `link`.
    pub(crate) fn on_link(&self, link: &Arc<Link>, event: Event<Waiter>) {
        let now = self.moment();
        let (outputs, carrier) = self.step(|state| match &state.carrier {
            Some(Carrier::Tcp(here)) if Arc::ptr_eq(here, link) => state.machine.on(event, now),
            _ => Vec::new(),
        });
        self.carry_out(outputs, carrier.as_ref());
    }

    /// A callback came over `link`.
    pub(crate) fn called_back(&self, link: &Arc<Link>, header: Header, request: Request, resent: bool) {
        self.called.came(link, header, request, resent);
    }

    /// Session `session` lives on `link` now: callbacks may come.
    pub(crate) fn joined(&self, link: &Arc<Link>, session: u64, session_epoch: u64) {
        self.called.over(Some(link), session, session_epoch);
    }

    /// The target wants a request again, as it says over `link`, which the session may not be open on yet.
    pub(crate) fn wanted(&self, link: &Arc<Link>, xid: Xid, session_epoch: u64) {
        let now = self.moment();
        let (outputs, _) = self.step(|state| state.machine.on(Event::Wanted { xid, session_epoch }, now));
        self.carry_out(outputs, Some(&Carrier::Tcp(link.clone())));
    }

    /// The target of this process, reached through `lo` (any one without), is not there any more, or forgot the session.
    pub(crate) fn lo_lost(&self, lo: Option<&Arc<Lo>>) {
        let now = self.moment();
        let (outputs, carrier) = self.step(|state| match &state.carrier {
            Some(Carrier::Lo(here)) if lo.is_none_or(|lo| Arc::ptr_eq(here, lo)) => {
                state.machine.on(Event::Broken, now)
            }
            _ => Vec::new(),
        });
        self.carry_out(outputs, carrier.as_ref());
    }

    /// Changes something about the machine that makes it say nothing.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        self.show(&state.machine);
        changed
    }

    /// One step of the machine: what it says, and what carries that.
    pub(crate) fn step(&self, step: impl FnOnce(&mut State) -> Vec<Output<Waiter>>) -> Said {
        let mut state = self.state.lock();
        let outputs = step(&mut state);
        self.show(&state.machine);
        let carrier = match state.machine.phase() {
            Phase::Open { .. } | Phase::Resting if outputs.is_empty() => None,
            Phase::Open { .. } | Phase::Resting => state.carrier.clone(),
            Phase::Idle | Phase::Connecting | Phase::Closed => state.carrier.take(),
        };
        (outputs, carrier)
    }

    /// Lets those see the machine who do not lock it.
    fn show(&self, machine: &Machine<Waiter>) {
        let shown = &self.shown;
        if shown.session.load(Ordering::Relaxed) != machine.known().shown {
            shown.session.store(machine.known().shown, Ordering::Release);
        }
        if shown.era.load(Ordering::Relaxed) != machine.known().era {
            shown.era.store(machine.known().era, Ordering::Release);
        }
        let (_, retained) = machine.requests().retained();
        let before = shown.retained.load(Ordering::Relaxed);
        if before != retained {
            shown.retained.store(retained, Ordering::Relaxed);
            if let Some(retaining) = shown.retaining.get() {
                retaining(before, retained);
            }
        }
    }

    /// Carries out what the machine has said, over `carrier` where something is to be sent.
    pub(crate) fn carry_out(&self, outputs: Vec<Output<Waiter>>, carrier: Option<&Carrier>) {
        for output in outputs {
            match output {
                Output::Send { header, message, together } => {
                    if let Some(carrier) = carrier {
                        carrier.send(self, header, &message, together);
                    }
                }
                Output::SendAll { outgoing, together } => {
                    if let Some(carrier) = carrier {
                        carrier.send_all(self, outgoing, together);
                    }
                }
                Output::Again { header, message } => {
                    tracing::debug!(target = %self.target, xid = ?header.xid, "no answer yet: it is sent again");
                    if let Some(carrier) = carrier {
                        carrier.send_again(self, header, &message);
                    }
                }
                Output::Silent => {
                    if let Some(carrier) = carrier {
                        carrier.give_up();
                    }
                }
                Output::Leave(session) => {
                    if let Some(carrier) = carrier {
                        carrier.leave(self, session);
                    }
                    self.called.no_more();
                }
                // A caller that has gone does not want the answer.
                Output::Answer { waiter, result } => drop(waiter.send(result)),
                Output::Drop(waiters) => drop(waiters),
                Output::Room => self.signals.room.notify_waiters(),
                Output::Advanced => self.signals.advanced.notify_waiters(),
                Output::Stir => self.signals.stirred.notify_one(),
                Output::Moved => self.signals.moved.notify_waiters(),
                Output::Earlier => self.signals.earlier.notify_one(),
                Output::Connect | Output::Sync | Output::EndOfReplays | Output::Watch => self.start(&output),
                Output::Note(note) => self.log(note),
                // Whoever asked sees it.
                Output::NotOpen | Output::Full => {}
            }
        }
    }

    /// Starts a task that the machine wants.
    fn start(&self, task: &Output<Waiter>) {
        let Some(me) = self.me() else { return };
        let rt = self.hub.rt();
        match task {
            Output::Connect => {
                self.called.no_more();
                rt.spawn(async move { connect::open(&me).await });
            }
            Output::Sync => rt.spawn(async move { me.sync_all().await }),
            Output::EndOfReplays => rt.spawn(async move { me.end_of_replays().await }),
            Output::Watch => rt.spawn(async move { me.watch().await }),
            _ => {}
        }
    }

    fn log(&self, note: Note) {
        let target = self.target;
        match note {
            Note::OwnerChanged(epoch) => tracing::info!(%target, epoch, "the target has moved"),
            Note::Unreached(problem) => tracing::info!(%target, %problem, "the target is not reached"),
            Note::Connected { outcome, replays, resends } => {
                tracing::info!(%target, ?outcome, replays, resends, "connected");
            }
            Note::TakenOver(problem) => tracing::error!(%target, client = %self.client, problem),
            Note::Lost { range, unknown } => {
                tracing::error!(
                    %target, lost = ?range, unknown, "changes are lost: the target does not know them any more"
                );
                if range.is_some() {
                    self.tell_changes_lost();
                }
            }
            Note::ReplayRefused(transno, code) => {
                tracing::error!(%target, ?transno, %code, "a change is lost: its replay was refused");
                self.tell_changes_lost();
            }
        }
    }

    fn tell_changes_lost(&self) {
        if let Some(callbacks) = self.called().callbacks() {
            callbacks.changes_lost(self.target);
        }
    }

    /// Looks at requests without an answer when it is time: a connection may lose a frame, or be dead without saying so.
    async fn watch(&self) {
        loop {
            let Some(next) = self.look_at(|state| state.machine.watch_until()) else { return };
            let rt = self.hub.rt();
            let due = race(rt.sleep_until(Time::default() + next), self.signals.earlier.notified());
            if let Either::First(()) = race(self.hub.ended().wait(), due).await {
                return;
            }
            let now = self.moment();
            let (outputs, carrier) = self.step(|state| {
                let heard = state.carrier.as_ref().and_then(Carrier::heard_at);
                state.machine.on(Event::Due { heard: heard.map(|at| at - Time::default()) }, now)
            });
            self.carry_out(outputs, carrier.as_ref());
        }
    }

    /// Asks for commits as long as some are wanted.
    async fn sync_all(&self) {
        while let Some(wanted) = self.look_at(|state| state.machine.commits_mut().next_sync()) {
            if let Err(error) = self.sync(wanted).await {
                self.look_at(|state| state.machine.commits_mut().sync_failed(error));
                self.signals.advanced.notify_waiters();
                // Who waits for room to send a change asks again, in a while.
                self.hub.rt().sleep(limits::BACKOFF_MAX).await;
                self.signals.room.notify_waiters();
                return;
            }
        }
    }

    /// Asks once for a commit up to `transno` and waits for it.
    pub(crate) async fn sync(&self, transno: Transno) -> Result<(), CallError> {
        let generation = self.look_at(|state| state.machine.known().generation);
        let request: Request = SyncRequest { transno }.into();
        let request = self.request(request, Vec::new(), Options::default());
        match race(self.hub.ended().wait(), request).await {
            Either::First(()) => return Err(CallError::Closed),
            Either::Second(done) => done?,
        };
        let (outputs, carrier) = self.step(|state| state.machine.synced(transno, generation));
        self.carry_out(outputs, carrier.as_ref());
        Ok(())
    }

    /// The first ordinary request is the sign for the target that no replays follow; it may hold up other clients
    /// until then. A Sync also makes durable at once what was lost before.
    async fn end_of_replays(&self) {
        let newest = self.look_at(|state| state.machine.commits().newest());
        if let Err(error) = self.sync(newest).await {
            tracing::debug!(target = %self.target, %error, "no commit behind the replays");
        }
    }

    /// Ends the session here; whoever waits is told.
    pub(crate) fn close(&self) {
        let now = self.moment();
        let (outputs, carrier) = self.step(|state| state.machine.on(Event::Close, now));
        self.carry_out(outputs, carrier.as_ref());
        self.called.no_more();
        self.hub.sessions().lost_here((self.target, self.session()));
        if let Some(Carrier::Tcp(link)) = carrier {
            link.close_if_idle();
        }
    }
}

/// From here on are epochs of clients that count their incarnations; what clocks give is below for another 200 years.
const INCARNATIONS: u64 = 1 << 63;
/// Epochs of one incarnation.
const EPOCHS_BITS: u32 = 24;

fn first_epoch(incarnation: Option<u64>, wall: Wall) -> u64 {
    if let Some(incarnation) = incarnation {
        // Clocks of several machines may differ.
        return INCARNATIONS | (incarnation << EPOCHS_BITS);
    }
    u64::try_from(wall.secs).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::from(wall.nanos))
}
