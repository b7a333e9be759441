//! Whether a run gets on: what each client is doing, and, when nobody finishes anything any more, who waits for what.
//!
//! A wait that nobody ends would otherwise show as a run that reaches its limit of a virtual day, with nothing to say
//! about it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use parking_lot::Mutex;
use rt::sim::Handle;
use rt::wait::unless;

use crate::cluster::Cluster;

/// Longer than anything that a client may rightly wait for: one that is out of reach is given up 170 s after that was
/// noticed, and an operation may wait for several of them one after the other.
const STALL_MAX: Duration = Duration::from_secs(900);
/// How often somebody looks.
const TICK: Duration = Duration::from_secs(5);

/// What all clients of a run are doing; cheap to clone.
#[derive(Clone)]
pub struct Progress {
    handle: Handle,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    finished: u64,
    /// When an operation was finished last.
    finished_at: Duration,
    /// By node: the operation, and since when.
    doing: BTreeMap<String, (String, Duration)>,
    clients: BTreeMap<String, Arc<Client>>,
}

/// An operation under way; finished when dropped.
pub struct Doing {
    progress: Progress,
    node: String,
}

impl Drop for Doing {
    fn drop(&mut self) {
        let mut inner = self.progress.inner.lock();
        inner.doing.remove(&self.node);
        inner.finished += 1;
        inner.finished_at = self.progress.handle.now();
    }
}

impl Progress {
    /// Nobody does anything yet in the world of `handle`.
    pub fn new(handle: Handle) -> Progress {
        Progress { handle, inner: Arc::default() }
    }

    /// The client of `node` is at work from now on.
    pub fn mounted(&self, node: &str, client: &Arc<Client>) {
        self.inner.lock().clients.insert(node.to_owned(), client.clone());
    }

    /// It is over.
    pub fn unmounted(&self, node: &str) {
        self.inner.lock().clients.remove(node);
    }

    /// The clients that are at work, by node.
    pub fn clients(&self) -> Vec<(String, Arc<Client>)> {
        self.inner.lock().clients.iter().map(|(node, client)| (node.clone(), client.clone())).collect()
    }

    /// Waits until so many operations were finished.
    pub async fn until_finished(&self, count: u64) {
        let clock = self.handle.rt("clock");
        while self.inner.lock().finished < count {
            clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// The operations under way now.
    pub fn doing(&self) -> BTreeMap<String, (String, Duration)> {
        self.inner.lock().doing.clone()
    }

    /// The client of `node` begins an operation: one at a time.
    pub fn begin(&self, node: &str, what: String) -> Doing {
        let now = self.handle.now();
        self.inner.lock().doing.insert(node.to_owned(), (what, now));
        Doing { progress: self.clone(), node: node.to_owned() }
    }

    /// What `work` gives. Panics with all that is known if no operation is finished for [`STALL_MAX`].
    pub async fn watch<T>(&self, cluster: &Cluster, work: impl Future<Output = T>) -> T {
        match unless(self.stalled(), work).await {
            Some(result) => result,
            None => panic!("{}", self.describe(cluster)),
        }
    }

    async fn stalled(&self) {
        let clock = self.handle.rt("clock");
        loop {
            clock.sleep(TICK).await;
            if self.handle.now() > self.inner.lock().finished_at + STALL_MAX {
                return;
            }
        }
    }

    /// Who waits for what: every client that is in an operation, then every target.
    pub(crate) fn describe(&self, cluster: &Cluster) -> String {
        let mut text = format!("no operation was finished for {STALL_MAX:?}\n");
        let now = self.handle.now();
        let doing = self.inner.lock().doing.clone();
        for (node, (what, since)) in &doing {
            let _ = writeln!(text, "{node} has been at this for {:?}: {what}", now.saturating_sub(*since));
        }
        for (node, client) in self.clients() {
            let waits = client.admin().waits();
            if !doing.contains_key(&node) && waits.is_empty() {
                continue;
            }
            let sessions = client.admin().held().sessions.into_iter();
            let sessions: Vec<String> =
                sessions.map(|(target, session)| format!("{target} {session:#x}")).collect();
            let _ = writeln!(text, "client of {node}, sessions {}", sessions.join(", "));
            indent(&mut text, &waits);
        }
        for (target, waits) in cluster.waits() {
            let _ = writeln!(text, "{target}");
            indent(&mut text, &waits);
        }
        text
    }
}

fn indent(text: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}
