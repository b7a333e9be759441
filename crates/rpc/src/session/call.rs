//! One call as a future.
//!
//! Written by hand for the sake of its size: the compiler moves a future whole into the one that awaits it, and the
//! states that a call can be in while it connects or waits for a slot are ten times those of the usual call within
//! one process. So only the usual case lives here, and the others behind a box.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use proto::wire::messages::{Disconnect, Operation};
use proto::wire::{Reply, Request};
use proto::{Code, JobId};
use rt::BoxFuture;

use super::driver::Driver;
use super::lo::{Here, Pending};
use crate::import::{Answered, RpcError};
use crate::job;
use crate::service::Answer;

/// What a caller may say about a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// The only session in which it may be sent ([`crate::Import::era`]).
    pub(crate) era: Option<u64>,
    /// The job that it belongs to.
    pub(crate) job: JobId,
}

/// A call on its way. Dropping it gives the reply up; a change may happen nevertheless.
#[must_use = "a call is not sent before it is awaited"]
pub struct Calling<'a, O> {
    driver: &'a Driver,
    request: Request,
    bulk: Vec<Bytes>,
    options: Options,
    stage: Stage<'a>,
    operation: PhantomData<fn() -> O>,
}

enum Stage<'a> {
    Start,
    Here(Pending),
    Elsewhere(BoxFuture<'a, Result<Answered<Reply>, RpcError>>),
}

impl<'a, O: Operation> Calling<'a, O> {
    pub(crate) fn new(driver: &'a Driver, operation: O, bulk: Vec<Bytes>, options: Options) -> Self {
        let (request, options) = (operation.into(), Options { job: job::current(), ..options });
        Calling { driver, request, bulk, options, stage: Stage::Start, operation: PhantomData }
    }

    fn start(&mut self) -> Stage<'a> {
        match self.driver.pass(&self.request, self.options) {
            // The copies are for the rare case that the target is not there any more.
            Here::Go(lo, passed) => {
                Stage::Here(lo.start(passed, self.request.clone(), self.bulk.clone(), self.options.job))
            }
            Here::Full | Here::Elsewhere => self.elsewhere(),
        }
    }

    fn elsewhere(&mut self) -> Stage<'a> {
        let request = std::mem::replace(&mut self.request, Request::Disconnect(Disconnect {}));
        let bulk = std::mem::take(&mut self.bulk);
        Stage::Elsewhere(Box::pin(self.driver.request(request, bulk, self.options)))
    }
}

impl<O: Operation> Future for Calling<'_, O> {
    type Output = Result<Answered<O::Reply>, RpcError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                Stage::Start => {
                    // Calls within the process need not wait, so whoever makes many of them would never stop.
                    ready!(this.driver.hub.rt().poll_step(cx));
                    this.stage = this.start();
                }
                Stage::Here(pending) => {
                    let answer = ready!(Pin::new(&mut *pending).poll(cx));
                    match answer.result {
                        Ok(reply) => {
                            let Answer { bulk, transno, .. } = answer;
                            let session = pending.session();
                            return Poll::Ready(typed::<O>(Answered { reply, bulk, transno, session }));
                        }
                        Err(Code::NoSession | Code::NotHere) => {
                            this.driver.lo_lost(Some(pending.lo()));
                            this.stage = this.elsewhere();
                        }
                        Err(Code::TryAgain) => this.stage = this.elsewhere(),
                        Err(code) => return Poll::Ready(Err(RpcError::Refused(code))),
                    }
                }
                Stage::Elsewhere(future) => {
                    let outcome = ready!(future.as_mut().poll(cx));
                    return Poll::Ready(outcome.and_then(typed::<O>));
                }
            }
        }
    }
}

fn typed<O: Operation>(answered: Answered<Reply>) -> Result<Answered<O::Reply>, RpcError> {
    let Answered { reply, bulk, transno, session } = answered;
    match O::reply_of(reply) {
        Some(reply) => Ok(Answered { reply, bulk, transno, session }),
        // The reply to another operation: the target is of another mind than this code.
        None => Err(RpcError::Refused(Code::Malformed)),
    }
}
