//! Calling inode bits back: every client that has what an operation needs, all of them at the same time, and each
//! once, however many operations wait for the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::lock::bits::{Conflict, SessionId};
use proto::wire::messages::{BitLock, MdtRequest, RevokeBits};
use proto::{Code, Fid};
use rt::sync::oneshot;
use rt::wait::unless;
use rt::{Rt, Time};
use service::{Called, Clients, Wait};

use super::Ctx;
use super::bits::BitLocks;

/// Callbacks that one operation has under way.
const CALLBACKS_MAX: usize = 1024;

/// How long a client may take to say that what was closed is unlocked. It waits a tenth of that for the kernel.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long a change waits for others, and its client for the answer to a callback, before the change gives way. An answer that nothing
/// holds up comes much sooner; one that is late for another reason costs the client another request.
const PATIENCE: Duration = Duration::from_millis(25);

/// Calls clients back.
pub struct Revoker {
    rt: Rt,
    clients: Arc<Clients>,
    locks: Arc<BitLocks>,
    under_way: Mutex<BTreeMap<(SessionId, Fid), Vec<Callback>>>,
}

/// A callback whose answer is waited for.
struct Callback {
    bits: u32,
    number: u64,
    since: Time,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Revoker {
    /// Nobody is being called.
    pub fn new(rt: &Rt, clients: Arc<Clients>, locks: Arc<BitLocks>) -> Revoker {
        Revoker { rt: rt.clone(), clients, locks, under_way: Mutex::new(BTreeMap::new()) }
    }

    /// Waits until nobody has any more what `conflicts` says; fails if the target is being stopped.
    pub async fn revoke(self: &Arc<Self>, conflicts: Vec<(Fid, Conflict)>) -> Result<(), Code> {
        for some in conflicts.chunks(CALLBACKS_MAX) {
            let answers: Vec<_> = some.iter().map(|(fid, conflict)| self.call(*fid, *conflict)).collect();
            for answer in answers {
                answer.await.map_err(|_| Code::TryAgain)?;
            }
        }
        Ok(())
    }

    /// The same for `request`. A client's kernel may have locked the directories that the request changes, and may need them to answer a
    /// callback; if another client is in the same place, each waits for the other one. So a change gives way when its client does not answer
    /// (`docs/locks.md#kernel-names`).
    pub(super) async fn revoke_for(
        self: &Arc<Self>,
        ctx: &Ctx<'_>,
        request: &MdtRequest,
        conflicts: Vec<(Fid, Conflict)>,
    ) -> Result<(), Code> {
        let revoked = self.revoke(conflicts);
        let locks_dirs = matches!(
            request,
            MdtRequest::Create(_) | MdtRequest::Unlink(_) | MdtRequest::Rename(_) | MdtRequest::Link(_)
        );
        if !locks_dirs {
            return revoked.await;
        }
        let has_to_give_way = self.is_waited_for(ctx.session().handle());
        unless(has_to_give_way, revoked).await.unwrap_or(Err(Code::GiveWay))
    }

    /// Waits until others wait for an answer of `session` that is late.
    async fn is_waited_for(&self, session: SessionId) {
        loop {
            self.rt.sleep(PATIENCE).await;
            let late = self.rt.now();
            let under_way = self.under_way.lock();
            let of_session =
                under_way.range((session, Fid::ZERO)..).take_while(|((of, _), _)| *of == session);
            if of_session.flat_map(|(_, callbacks)| callbacks).any(|one| one.since + PATIENCE <= late) {
                return;
            }
        }
    }

    /// Waits until the client of `session` has unlocked the files of `fid` that its applications have closed; not for long. A client that
    /// is dead has unlocked everything.
    pub async fn settle_closes(&self, session: SessionId, fid: Fid) {
        let request = RevokeBits { fid, bits: 0, number: 0 };
        if self.clients.ask(session, request.into(), CLOSE_TIME).await.is_none() {
            self.end_if_dead(session).await;
        }
    }

    /// Ends the session of a client that is dead. Nobody else is evicted for locks of applications, however long they are waited for.
    pub async fn end_if_dead(&self, session: SessionId) {
        if self.clients.end_if_dead(session).await {
            self.locks.drop_session(session);
        }
    }

    /// Callbacks that are not answered yet.
    pub fn waits(&self) -> Vec<Wait> {
        let under_way = self.under_way.lock();
        let all = under_way.iter().flat_map(|(key, callbacks)| callbacks.iter().map(move |one| (key, one)));
        all.map(|((session, fid), Callback { bits, number, waiters, .. })| {
            let text = format!(
                "session {session:#x} is called back for bits {bits:#x} of {fid} up to grant {number}; {} wait for it",
                waiters.len()
            );
            Wait { sessions: vec![*session], text }
        })
        .collect()
    }

    /// Calls a client, unless it is being called for the same already.
    fn call(self: &Arc<Self>, fid: Fid, conflict: Conflict) -> oneshot::Receiver<()> {
        let (waiter, answered) = oneshot::channel();
        let Conflict { session, bits, number } = conflict;
        let mut under_way = self.under_way.lock();
        let callbacks = under_way.entry((session, fid)).or_default();
        let same = callbacks.iter_mut().find(|other| bits & !other.bits == 0 && number <= other.number);
        if let Some(same) = same {
            same.waiters.push(waiter);
            return answered;
        }
        callbacks.push(Callback { bits, number, since: self.rt.now(), waiters: vec![waiter] });
        drop(under_way);
        self.locks.called_back();
        let revoker = self.clone();
        self.rt.spawn(async move { revoker.carry_out(fid, conflict).await });
        answered
    }

    async fn carry_out(&self, fid: Fid, conflict: Conflict) {
        let Conflict { session, bits, number } = conflict;
        let called = self.clients.call_back(session, RevokeBits { fid, bits, number }.into()).await;
        match called {
            Called::Answered(_) | Called::Unknown => self.given_back(session, &BitLock { fid, bits, number }),
            Called::Gone => self.locks.drop_session(session),
            Called::Stopped => {}
        }
        let mut under_way = self.under_way.lock();
        let Some(callbacks) = under_way.get_mut(&(session, fid)) else { return };
        let at = callbacks.iter().position(|callback| (callback.bits, callback.number) == (bits, number));
        let done = at.map(|at| callbacks.swap_remove(at));
        if callbacks.is_empty() {
            under_way.remove(&(session, fid));
        }
        drop(under_way);
        // Whoever waits learns of a stop by its waiter being dropped.
        if called != Called::Stopped {
            for waiter in done.into_iter().flat_map(|done| done.waiters) {
                let _ = waiter.send(());
            }
        }
    }

    /// A client has given something back because somebody else needs it: the moment from which the other one may see
    /// what it did.
    fn given_back(&self, session: SessionId, lock: &BitLock) {
        self.locks.given_up(session, lock);
    }
}
