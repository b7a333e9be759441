//! Several futures on one task, at the same time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// What came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The result of the first future.
    First(A),
    /// The result of the second one.
    Second(B),
}

/// The result of whichever is done first; the other is dropped. If both are, the first.
pub fn race<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> impl Future<Output = Either<A, B>> {
    race_into(first, Either::First, second, Either::Second)
}

/// What `future` gives, or `None` if `other` ends first; the loser is dropped. If both are done, what `future` gives.
pub fn unless<T>(
    other: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    race_into(future, Some, other, |()| None)
}

/// What `future` gives, if that takes no waiting.
pub async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// The same as [`race`], with the result of each made into the same type. There is no future around the race, which would have
/// to hold both a second time.
pub async fn race_into<A, B, T>(
    first: impl Future<Output = A>,
    of_first: impl FnOnce(A) -> T,
    second: impl Future<Output = B>,
    of_second: impl FnOnce(B) -> T,
) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let mut of = Some((of_first, of_second));
    let mut take = || of.take().expect("a race ends once");
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(take().0(value)),
        Poll::Pending => second.as_mut().poll(cx).map(|value| take().1(value)),
    })
    .await
}

/// Runs all futures at the same time; their results in order.
///
/// The iterator is used up before anything waits, so that it need not be `Send`.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> impl Future<Output = Vec<F::Output>> {
    let mut futures: Vec<F> = futures.into_iter().collect();
    let single = if futures.len() == 1 { futures.pop() } else { None };
    async move {
        match single {
            Some(future) => vec![future.await],
            None => join_many(futures).await,
        }
    }
}

async fn join_many<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut slots: Vec<Slot<F>> = futures.into_iter().map(|f| Slot::Running(Box::pin(f))).collect();
    poll_fn(|cx| {
        let mut done = true;
        for slot in &mut slots {
            done &= slot.poll_done(cx);
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let take = |slot| match slot {
        Slot::Done(value) => Some(value),
        Slot::Running(_) => None,
    };
    slots.into_iter().filter_map(take).collect()
}

enum Slot<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}

impl<F: Future> Slot<F> {
    fn poll_done(&mut self, cx: &mut Context<'_>) -> bool {
        if let Slot::Running(future) = self {
            match future.as_mut().poll(cx) {
                Poll::Ready(value) => *self = Slot::Done(value),
                Poll::Pending => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_is_ready_is_joined_in_the_first_poll() {
        assert_eq!(poll_once(join_all((0..0).map(|n| async move { n }))), Some(vec![]));
        assert_eq!(poll_once(join_all((0..1).map(|n| async move { n }))), Some(vec![0]));
        assert_eq!(poll_once(join_all((0..4).map(|n| async move { n }))), Some(vec![0, 1, 2, 3]));
        let pending = (0..3).map(|n| async move {
            if n == 1 {
                std::future::pending().await
            }
        });
        assert_eq!(poll_once(join_all(pending)), None);
    }

    #[test]
    fn the_first_to_end_wins() {
        assert_eq!(poll_once(unless(std::future::pending(), async { 7 })), Some(Some(7)));
        assert_eq!(poll_once(unless(async {}, std::future::pending::<u8>())), Some(None));
    }
}
