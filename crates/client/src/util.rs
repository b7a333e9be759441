//! Small combinators of futures.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

enum Slot<F: Future> {
    Running(Pin<Box<F>>),
    Done(Option<F::Output>),
}

impl<F: Future> Slot<F> {
    fn poll_done(&mut self, cx: &mut Context<'_>) -> bool {
        if let Slot::Running(future) = self {
            match future.as_mut().poll(cx) {
                Poll::Ready(value) => *self = Slot::Done(Some(value)),
                Poll::Pending => return false,
            }
        }
        true
    }
}

/// Runs all futures at the same time, on this task; their results in order.
///
/// The iterator is used up before anything waits, so that it need not be `Send`.
pub(crate) fn join_all<F: Future>(
    futures: impl IntoIterator<Item = F>,
) -> impl Future<Output = Vec<F::Output>> {
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
    std::future::poll_fn(|cx| {
        let mut done = true;
        for slot in &mut slots {
            done &= slot.poll_done(cx);
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let take = |slot| match slot {
        Slot::Done(value) => value,
        Slot::Running(_) => None,
    };
    slots.into_iter().filter_map(take).collect()
}

/// What `future` gives, or `None` if `other` ends first; the loser is dropped.
pub(crate) async fn unless<T>(other: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut other = std::pin::pin!(other);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        other.as_mut().poll(cx).map(|()| None)
    })
    .await
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
