//! Something that a task waits for, besides what it does.

use std::sync::Arc;

use rt::sync::Semaphore;
pub(crate) use rt::wait::{Either, race};

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
