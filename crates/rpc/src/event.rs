//! Small tools for tasks that wait for one of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rt::sync::Semaphore;

/// Something that happens once and stays so; any number of tasks can wait for it.
#[derive(Clone)]
pub(crate) struct Ended(Arc<Semaphore>);

impl Ended {
    pub(crate) fn new() -> Ended {
        Ended(Arc::new(Semaphore::new(0)))
    }

    pub(crate) fn end(&self) {
        self.0.close();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) async fn wait(&self) {
        // There is never a permit: the wait ends when the semaphore is closed.
        let closed = self.0.acquire().await;
        assert!(closed.is_err(), "nobody adds permits");
    }
}

/// What came first.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

/// The result of whichever is done first; the other is dropped. If both are, the first.
pub(crate) async fn race<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> Either<A, B> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(value));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
