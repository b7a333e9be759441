//! Questions over HTTP that one thread answers, one after the other: each asks everybody.

use std::net::SocketAddr;
use std::sync::mpsc;

use rt::os::Node;
use rt::os::web::{Page, Server};
use rt::sync::oneshot;

use crate::control::describe;
use crate::failure::Failure;

/// Questions that wait for their turn; further ones are refused.
const WAITING_MAX: usize = 16;

/// Where to ask.
#[derive(Clone)]
pub struct Turn(mpsc::SyncSender<oneshot::Sender<Page>>);

/// Listens at `at`, and says where that is.
pub fn listen(node: &Node, at: SocketAddr) -> Result<(Server, SocketAddr), Failure> {
    let cannot = |error| {
        Failure::new(format!("{at} cannot be listened at: {}; name another with --listen", describe(&error)))
    };
    let server = node.block_on(Server::listen(node, at)).map_err(cannot)?;
    let addr = server.addr().map_err(cannot)?;
    Ok((server, addr))
}

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
