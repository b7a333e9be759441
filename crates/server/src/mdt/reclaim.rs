//! Calling back what clients used longest ago when they hold too much (`docs/locks.md#too-many`).
//!
//! Nobody waits for these callbacks. So a client that does not answer is not evicted, and what an operation needs is
//! called back apart from them ([`super::revoke`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::lock::bits::{Conflict, SessionId};
use proto::wire::Reply;
use proto::wire::messages::{BitLock, RevokeBits};
use proto::{Code, Fid};
use rt::Rt;
use service::{Clients, Stop};

use super::bits::BitLocks;

/// Callbacks under way.
const CALLS_MAX: usize = 512;
/// Those to one session, so that a slow client does not keep others from being called.
const CALLS_PER_SESSION_MAX: usize = 32;
/// How long an answer is waited for. Then the client is asked for something else.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Pause after a client that refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Calls back what is too much.
pub struct Reclaimer {
    rt: Rt,
    stop: Stop,
    clients: Arc<Clients>,
    locks: Arc<BitLocks>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    under_way: usize,
    sessions: BTreeMap<SessionId, usize>,
    /// Parts of the table, a bit for each, in which something is left to call back.
    left: u64,
    /// The part that is looked at next: they take turns.
    turn: u32,
}

impl Reclaimer {
    /// Nobody is being called.
    pub fn new(rt: &Rt, stop: Stop, clients: Arc<Clients>, locks: Arc<BitLocks>) -> Reclaimer {
        Reclaimer { rt: rt.clone(), stop, clients, locks, state: Mutex::default() }
    }

    /// Calls back what is too much whenever there is, until the target is stopped.
    pub async fn run(self: Arc<Self>) {
        while let Some(parts) = self.stop.unless(self.locks.excess()).await {
            self.state.lock().left |= parts;
            while let Some((part, fid, conflict)) = self.next() {
                let reclaimer = self.clone();
                self.rt.spawn(async move { reclaimer.call(part, fid, conflict).await });
            }
        }
    }

    /// The next callback; `None` if nobody may be called now.
    fn next(&self) -> Option<(usize, Fid, Conflict)> {
        let mut state = self.state.lock();
        for _ in 0..u64::BITS {
            let behind = state.left.rotate_right(state.turn).trailing_zeros();
            if state.left == 0 || state.under_way >= CALLS_MAX {
                break;
            }
            let part = ((state.turn + behind) % u64::BITS) as usize;
            state.turn = (state.turn + behind + 1) % u64::BITS;
            let may_call = |session| state.sessions.get(&session).is_none_or(|n| *n < CALLS_PER_SESSION_MAX);
            if let Some((fid, conflict)) = self.locks.next_excess(part, may_call) {
                state.under_way += 1;
                *state.sessions.entry(conflict.session).or_default() += 1;
                return Some((part, fid, conflict));
            }
            if !self.locks.has_excess(part) {
                state.left &= !(1 << part);
            }
        }
        None
    }

    async fn call(&self, part: usize, fid: Fid, conflict: Conflict) {
        let Conflict { session, bits, number } = conflict;
        let request = RevokeBits { fid, bits, number };
        match self.clients.ask(session, request.into(), ANSWER_TIME).await {
            Some(Ok(Reply::RevokeBits(_)) | Err(Code::NotSupported)) => {
                self.locks.reclaimed(session, &BitLock { fid, bits, number });
            }
            Some(_) => {
                self.stop.unless(self.rt.sleep(REFUSED_PAUSE)).await;
            }
            None => {}
        }
        self.locks.excess_answered(part, session);
        let mut state = self.state.lock();
        state.under_way -= 1;
        if let Some(count) = state.sessions.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                state.sessions.remove(&session);
            }
        }
        if state.left != 0 {
            self.locks.note_excess(0);
        }
    }
}
