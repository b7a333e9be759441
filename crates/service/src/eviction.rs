//! Clients are evicted: what ends with that, and what is written down, a file for each, in the target's directory.
//!
//! An eviction is what this project exists to avoid, so each one that happens has to be explained afterwards: who it was,
//! why, how long it had been silent, what it held, who waited for it, and what it did last.

use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::Request;
use proto::{ClientId, Code, Whom};
use rpc::Role;
use rt::{Rt, Time, Wall};
use store::{Store, note};

use crate::recent::Past;
use crate::session::Session;
use crate::{Handler, Held, Holding, Target, Watch};

/// Directory of the traces in a target's directory.
pub const DIRECTORY: &str = "evictions";
/// Traces that a target keeps; the oldest go.
const TRACES_MAX: usize = 64;
/// Lines of a trace that say what was held, and as many that say who waited.
const LINES_MAX: usize = 200;

/// What is known of an eviction.
pub(crate) struct Trace {
    pub target: String,
    pub client: ClientId,
    pub nid: String,
    pub why: String,
    /// `None` if the client has not come back since the target's start.
    pub session: Option<PastSession>,
    pub waits: Vec<String>,
}

/// What is known of the session that ends.
pub(crate) struct PastSession {
    pub handle: u64,
    pub server: bool,
    pub began: Time,
    pub requests: u64,
    pub recent: Vec<Past>,
    pub held: Vec<Held>,
}

/// Writes traces, one after the other, in the background.
pub(crate) struct Tracer {
    rt: Rt,
    store: Arc<Store>,
    number: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    traces: VecDeque<(String, String)>,
    busy: bool,
}

impl Tracer {
    pub fn new(rt: Rt, store: Arc<Store>) -> Arc<Tracer> {
        Arc::new(Tracer { rt, store, number: AtomicU64::new(0), queue: Mutex::default() })
    }

    /// Has the trace written; gives the file's path, for the log.
    pub fn write(self: &Arc<Self>, trace: &Trace) -> String {
        let (now, wall) = (self.rt.now(), self.rt.wall());
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let name = name(wall, self.store.boot(), number);
        let path = match self.store.dir().os_path() {
            Some(directory) => directory.join(DIRECTORY).join(&name).display().to_string(),
            None => format!("{DIRECTORY}/{name}"),
        };
        let text = trace.text(now, wall);
        let starts = {
            let mut queue = self.queue.lock();
            // Of more than are kept, the oldest need not be written.
            if queue.traces.len() == TRACES_MAX {
                queue.traces.pop_front();
            }
            queue.traces.push_back((name, text));
            !std::mem::replace(&mut queue.busy, true)
        };
        if starts {
            self.rt.spawn(self.clone().run());
        }
        path
    }

    async fn run(self: Arc<Self>) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let next = queue.traces.pop_front();
                queue.busy = next.is_some();
                next
            };
            let Some((name, text)) = next else { return };
            let written = async {
                let dir = self.store.dir().subdir(DIRECTORY).await?;
                note::keep(&dir, &name, Bytes::from(text), TRACES_MAX).await
            };
            if let Err(error) = written.await {
                tracing::warn!(%error, name, "the trace of an eviction is not written");
            }
        }
    }
}

/// Names sort by age: a digit more is 2286.
fn name(wall: Wall, boot: u64, number: u64) -> String {
    format!("{:010}-{boot:08}-{number:06}.txt", wall.secs)
}

impl Trace {
    fn text(&self, now: Time, wall: Wall) -> String {
        let mut text = String::new();
        let ago = |time: Time| in_seconds(now - time);
        // Writing into a string cannot fail.
        let _ = writeln!(text, "eviction from: {}", self.target);
        let _ = writeln!(text, "time: {}.{:03}", wall.secs, wall.nanos / 1_000_000);
        let _ = writeln!(text, "client: {}", self.client);
        let _ = writeln!(text, "why: {}", self.why);
        let _ = writeln!(text, "nid: {}", self.nid);
        match &self.session {
            None => text.push_str("session: none since the target's start\n"),
            Some(session) => {
                let _ = writeln!(text, "key: {}", if session.server { "servers'" } else { "clients'" });
                let _ = writeln!(text, "session: {:#x}, for {} s", session.handle, ago(session.began));
                let last = session.recent.last().map_or(session.began, |past| past.time);
                let _ = writeln!(text, "silent: {} s", ago(last));
                let _ = writeln!(text, "requests: {}", session.requests);
                let held: Vec<String> = session.held.iter().map(|held| holding(&held.what)).collect();
                list(&mut text, "held", &held);
            }
        }
        list(&mut text, "waiting", &self.waits);
        if let Some(session) = &self.session {
            let last = session.recent.iter().map(|past| {
                let name = Request::name_of(past.opcode).unwrap_or("?");
                format!("{} s before: {name}, xid {}", ago(past.time), past.xid.0)
            });
            list(&mut text, "last requests", &last.collect::<Vec<_>>());
        }
        text
    }
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    let _ = writeln!(text, "{title}: {}", lines.len());
    for line in lines.iter().take(LINES_MAX) {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(more @ 1..) = lines.len().checked_sub(LINES_MAX) {
        let _ = writeln!(text, "  and {more} more");
    }
}

fn holding(what: &Holding) -> String {
    match what {
        Holding::Bits { fid, bits } => format!("inode bits {bits:#x} of {fid}"),
        Holding::Range { object, start, end, write } => {
            let end = if *end == u64::MAX { "EOF".to_owned() } else { end.to_string() };
            let mode = if *write { "write" } else { "read" };
            format!("bytes {start}..{end} of {}.{}, to {mode}", object.layout, object.stripe)
        }
    }
}

fn in_seconds(duration: Duration) -> String {
    format!("{}.{}", duration.as_secs(), duration.subsec_millis() / 100)
}

impl<H: Handler> Target<H> {
    /// Ends the sessions of a client, or of all clients at an address; `NotFound` if there is none.
    pub(crate) fn evict_clients(&self, from: &dyn Display, whom: &Whom) -> Result<(), Code> {
        let _door = self.exports.door.lock();
        let hit = self.exports.named(whom.client, &whom.nid)?;
        let why = format!("an operator at {from} ordered it");
        for session in &hit {
            self.evict_session(session, &why);
        }
        if hit.is_empty() { Err(Code::NotFound) } else { Ok(()) }
    }

    /// Ends a session against its client's will. The caller holds the door.
    pub(crate) fn evict_session(&self, session: &Arc<Session<H::Session>>, why: &str) {
        self.evict_from(session, why, Watch::waits(self));
    }

    /// The same for one that nobody waits for: there may be thousands, and what others wait for is not looked up for each.
    pub(crate) fn evict_unawaited(&self, session: &Arc<Session<H::Session>>, why: &str) {
        self.evict_from(session, why, Vec::new());
    }

    fn evict_from(&self, session: &Arc<Session<H::Session>>, why: &str, waits: Vec<String>) {
        let nid = session.nid();
        let past = PastSession {
            handle: session.handle(),
            server: session.role() == Role::Server,
            began: session.began(),
            requests: session.recent().count(),
            recent: session.recent().list(),
            held: self.handler.held_by(session.handle()),
        };
        self.trace(session.client(), &nid, why, (Some(past), waits));
        self.recovery.give_up(session.client());
        self.clients.evicted(session.handle());
        self.end(session);
    }

    /// Writes down that a client is evicted. The log says where.
    pub(crate) fn trace(
        &self,
        client: ClientId,
        nid: &str,
        why: &str,
        (session, waits): (Option<PastSession>, Vec<String>),
    ) {
        let label = self.store.label();
        let trace = Trace {
            target: format!("{}-{}", label.fsname, label.target),
            client,
            nid: nid.to_owned(),
            why: why.to_owned(),
            session,
            waits,
        };
        let trace = self.tracer.write(&trace);
        tracing::warn!(target = %label.target, %client, nid, why, trace, "a client is evicted");
    }
}

#[cfg(test)]
mod tests {
    use proto::{Fid, ObjectId, Xid};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_trace_says_what_happened() {
        let fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        let object = ObjectId { layout: fid, stripe: 2 };
        let what = Holding::Range { object, start: 0, end: u64::MAX, write: true };
        let session = PastSession {
            handle: 0x77,
            server: false,
            began: Time(10 * SECOND),
            requests: 3,
            recent: vec![Past { time: Time(40 * SECOND), xid: Xid(3), opcode: 60 }],
            held: vec![
                Held { session: 0x77, what },
                Held { session: 0x77, what: Holding::Bits { fid, bits: 3 } },
            ],
        };
        let mut trace = Trace {
            target: "w-OST0000".into(),
            client: ClientId(5),
            nid: "10.1.1.2@tcp".into(),
            why: "it has had no connection for 20s".into(),
            session: Some(session),
            waits: vec!["session 0x78 waits".into()],
        };
        let wall = Wall { secs: 1_620_919_072, nanos: 5_000_000 };
        let expected = "\
eviction from: w-OST0000
time: 1620919072.005
client: 00000000-0000-0000-0000-000000000005
why: it has had no connection for 20s
nid: 10.1.1.2@tcp
key: clients'
session: 0x77, for 50.0 s
silent: 20.0 s
requests: 3
held: 2
  bytes 0..EOF of [0x200000400:0x1:0x0].2, to write
  inode bits 0x3 of [0x200000400:0x1:0x0]
waiting: 1
  session 0x78 waits
last requests: 1
  20.0 s before: Write, xid 3
";
        assert_eq!(trace.text(Time(60 * SECOND), wall), expected);
        trace.session = None;
        trace.waits = (0..LINES_MAX + 2).map(|n| n.to_string()).collect();
        let text = trace.text(Time(60 * SECOND), wall);
        assert!(
            text.contains("nid: 10.1.1.2@tcp\nsession: none since")
                && text.ends_with("  199\n  and 2 more\n"),
            "{text}"
        );
    }

    #[test]
    fn names_sort_by_age() {
        let at = |secs, boot, number| name(Wall { secs, nanos: 0 }, boot, number);
        let names = [at(999_999_999, 9, 9), at(1_620_919_072, 1, 9), at(1_620_919_072, 2, 0)];
        assert!(names.is_sorted());
        assert_eq!(at(1_620_919_072, 2, 10), "1620919072-00000002-000010.txt");
    }
}
