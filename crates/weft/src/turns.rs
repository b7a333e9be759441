//! Questions over HTTP that one thread answers, one after the other: each asks everybody.

use std::sync::mpsc;

use rt::os::web::Page;
use rt::sync::oneshot;

/// Questions that wait for their turn; further ones are refused.
const WAITING_MAX: usize = 16;

/// Where to ask.
#[derive(Clone)]
pub struct Turn(mpsc::SyncSender<oneshot::Sender<Page>>);

/// Where to ask, and what was asked.
pub fn turns() -> (Turn, mpsc::Receiver<oneshot::Sender<Page>>) {
    let (questions, asked) = mpsc::sync_channel(WAITING_MAX);
    (Turn(questions), asked)
}

impl Turn {
    /// The page, when it is its turn.
    pub async fn ask(&self) -> Page {
        let (sender, page) = oneshot::channel();
        if self.0.try_send(sender).is_ok()
            && let Ok(page) = page.await
        {
            return page;
        }
        let body = "too many ask at the same time\n".to_owned();
        Page { status: 503, kind: "text/plain; charset=utf-8", body }
    }
}
