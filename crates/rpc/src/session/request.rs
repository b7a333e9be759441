//! One request of a caller, in every case: connecting, waiting for room, a target elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use proto::session::machine::{Answered, CallError, Phase};
use proto::session::{Event, Message, Output};
use proto::wire::{Reply, Request};
use proto::{Code, JobId, Xid};
use rt::sync::oneshot;

use super::call::Options;
use super::driver::{Driver, Outcome};
use super::lo::Here;
use crate::limits;
use crate::service::Answer;

/// Why a request was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unsent {
    /// There was no room: wait for some.
    Full,
    /// The session is not open, or has moved before the request was sent.
    NotOpen,
}

impl Driver {
    /// Sends `request` and waits for its answer, over as many reconnects as it takes.
    pub(crate) async fn request(
        &self,
        request: Request,
        bulk: Vec<Bytes>,
        options: Options,
    ) -> Result<Answered<Reply>, CallError> {
        let mut message = None;
        let mut pause = limits::BACKOFF_MIN;
        loop {
            let roomier = self.signals.room.notified();
            let mut tried = self.try_here(&request, &bulk, options).await;
            if let Err(Unsent::NotOpen) = tried {
                self.ready().await?;
                if options.era.is_some_and(|era| era != self.era()) {
                    return Err(CallError::Refused(Code::Evicted));
                }
                tried = self.try_there(&request, &bulk, &mut message, options).await?;
            }
            match tried {
                Ok(Ok(answered)) => return Ok(answered),
                Ok(Err(Code::TryAgain)) => {
                    self.hub.rt().sleep(pause).await;
                    pause = (pause * 2).min(limits::BACKOFF_MAX);
                }
                Ok(Err(code)) => return Err(CallError::Refused(code)),
                Err(Unsent::Full) => roomier.await,
                Err(Unsent::NotOpen) => {}
            }
        }
    }

    /// The attempt within this process.
    async fn try_here(&self, request: &Request, bulk: &[Bytes], options: Options) -> Result<Outcome, Unsent> {
        let (lo, passed) = match self.pass(request, options) {
            Here::Go(lo, passed) => (lo, passed),
            Here::Full => return Err(Unsent::Full),
            Here::Elsewhere => return Err(Unsent::NotOpen),
        };
        // The copies are for the rare case that the target is not there any more.
        let pending = lo.clone().start(passed, request.clone(), bulk.to_vec(), options.job);
        let session = pending.session();
        let Answer { result, bulk, transno, .. } = pending.await;
        match result {
            Err(Code::NoSession | Code::NotHere) => {
                self.lo_lost(Some(&lo));
                Err(Unsent::NotOpen)
            }
            result => Ok(result.map(|reply| Answered { reply, bulk, transno, session })),
        }
    }

    /// The attempt over a connection.
    async fn try_there(
        &self,
        request: &Request,
        bulk: &[Bytes],
        message: &mut Option<Arc<Message>>,
        options: Options,
    ) -> Result<Result<Outcome, Unsent>, CallError> {
        if self.look_at(|state| state.machine.phase() == (Phase::Open { here: true })) {
            return Ok(Err(Unsent::NotOpen));
        }
        let message = match message {
            Some(message) => message.clone(),
            None => message.insert(encode(request, bulk, options.job)?).clone(),
        };
        let (waiter, reply) = oneshot::channel();
        let (event, now) = (Event::Call { message, waiter, era: options.era }, self.moment());
        let (outputs, carrier) = self.step(|state| state.machine.on(event, now));
        let said = outputs.iter().find_map(|output| match output {
            Output::Send { header, .. } => Some(Ok(header.xid)),
            Output::Full => Some(Err(Unsent::Full)),
            Output::NotOpen => Some(Err(Unsent::NotOpen)),
            _ => None,
        });
        self.carry_out(outputs, carrier.as_ref());
        let xid = match said {
            Some(Ok(xid)) => xid,
            Some(Err(unsent)) => return Ok(Err(unsent)),
            None => return Ok(Err(Unsent::NotOpen)),
        };
        let waiting = InFlight { driver: self, xid };
        let outcome = reply.await.map_err(|_| CallError::Closed)?;
        std::mem::forget(waiting);
        match outcome {
            // It was carried out nowhere, and may be in the session that follows, unless it belongs to this one.
            Err(Code::NoSession) => Ok(Err(Unsent::NotOpen)),
            outcome => Ok(Ok(outcome)),
        }
    }

    /// Waits until the session is open.
    pub(crate) async fn ready(&self) -> Result<(), CallError> {
        let mut seen = None;
        loop {
            let changed = self.signals.room.notified();
            let (phase, refusals, refusal) = self.look_at(|state| {
                let trouble = state.machine.trouble();
                (state.machine.phase(), trouble.refusals, trouble.refusal)
            });
            let seen = *seen.get_or_insert(refusals);
            if let Some(code) = refusal.filter(|_| refusals > seen) {
                return Err(CallError::Refused(code));
            }
            match phase {
                Phase::Open { .. } => return Ok(()),
                Phase::Closed => return Err(CallError::Closed),
                Phase::Connecting | Phase::Resting => {}
                Phase::Idle => self.on(Event::Need),
            }
            changed.await;
        }
    }
}

fn encode(request: &Request, bulk: &[Bytes], job: JobId) -> Result<Arc<Message>, CallError> {
    let message = Message::new(request, bulk).map_err(CallError::Refused)?;
    Ok(Arc::new(Message { job, ..message }))
}

/// A caller that waits for a reply; tells the session if it goes away.
struct InFlight<'a> {
    driver: &'a Driver,
    xid: Xid,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.driver.on(Event::Gone(self.xid));
    }
}
