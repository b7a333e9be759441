//! Which clients live: the MGS knows, through their leases (`docs/recovery.md#leases`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{AskLeases, LEASES_ASKED_MAX, LeaseAsked};
use proto::{ClientId, TargetId};
use rpc::Import;
use rt::sync::Semaphore;
use rt::{Rt, Time};

/// How long an answer of the MGS may take; then it counts as not reached.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
/// An answer counts for so long: many may ask about one client.
const FRESH: Duration = Duration::from_secs(1);
/// Answers that are remembered.
const REMEMBERED_MAX: usize = 1024;

/// Client, session, wish.
type Question = (ClientId, u64, u8);

/// Asks the MGS about clients.
pub struct Lives {
    rt: Rt,
    /// `None` in the MGS itself.
    mgs: Option<Arc<Import>>,
    target: TargetId,
    boot: u64,
    /// One question about single clients at a time.
    turn: Semaphore,
    known: Mutex<BTreeMap<Question, (Time, u8)>>,
}

impl Lives {
    pub(crate) fn new(rt: &Rt, mgs: Option<Arc<Import>>, target: TargetId, boot: u64) -> Lives {
        let known = Mutex::default();
        Lives { rt: rt.clone(), mgs, target, boot, turn: Semaphore::new(1), known }
    }

    /// Whether there is somebody to ask.
    pub(crate) fn has_mgs(&self) -> bool {
        self.mgs.is_some()
    }

    /// How each of `clients` is (`LEASE_*`), in their order; `None` if the MGS does not say.
    pub(crate) async fn ask(&self, clients: &[LeaseAsked]) -> Option<Vec<u8>> {
        let mgs = self.mgs.as_ref()?;
        let mut states = Vec::with_capacity(clients.len());
        for some in clients.chunks(LEASES_ASKED_MAX) {
            let asked = AskLeases { target: self.target, boot: self.boot, clients: some.to_vec() };
            match mgs.call_within(ASK_TIME_MAX, asked).await {
                Some(Ok(answered)) if answered.reply.states.len() == some.len() => {
                    states.extend(answered.reply.states);
                }
                Some(Ok(_)) => return None,
                Some(Err(error)) => {
                    tracing::debug!(target = %self.target, %error, "the MGS does not say who lives");
                    return None;
                }
                None => return None,
            }
        }
        Some(states)
    }

    /// How one client is. Those who ask at the same time share the answer.
    pub(crate) async fn ask_one(&self, asked: LeaseAsked) -> Option<u8> {
        let _turn = self.turn.acquire().await.ok()?;
        let question = (asked.client, asked.session, asked.wish);
        let now = self.rt.now();
        {
            let mut known = self.known.lock();
            if known.len() >= REMEMBERED_MAX {
                known.retain(|_, (at, _)| now - *at < FRESH);
            }
            if let Some((_, state)) = known.get(&question).filter(|(at, _)| now - *at < FRESH) {
                return Some(*state);
            }
        }
        let state = self.ask(std::slice::from_ref(&asked)).await?.first().copied()?;
        self.known.lock().insert(question, (self.rt.now(), state));
        Some(state)
    }
}
