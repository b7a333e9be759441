//! One event as one line, in the form of Lustre's debug log:
//! `subsystem:mask:cpu:seconds:stack:thread:process:(file:line:module) message`.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::ring::Ring;

/// Bytes of a line; what is longer is cut.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Writes events into a ring.
pub struct Lines {
    ring: Arc<Mutex<Ring>>,
    process: u32,
}

impl Lines {
    /// Writes into `ring`.
    pub fn new(ring: Arc<Mutex<Ring>>) -> Lines {
        Lines { ring, process: std::process::id() }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = head(event.metadata(), self.process);
        event.record(&mut Fields(&mut line));
        let end = (0..=LINE_BYTES_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        self.ring.lock().push(&line);
    }
}

fn head(of: &Metadata<'_>, process: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let module = of.target().strip_prefix("weft_").unwrap_or(of.target());
    let (subsystem, module) = module.split_once("::").unwrap_or((module, ""));
    let file = of.file().and_then(|path| path.rsplit('/').next()).unwrap_or("?");
    format!(
        "{subsystem}:{}:{}.0:{}.{:06}:0:{}:{process}:({file}:{}:{module})",
        of.level().as_str().to_ascii_lowercase(),
        rustix::thread::sched_getcpu(),
        now.as_secs(),
        now.subsec_micros(),
        rustix::thread::gettid().as_raw_nonzero(),
        of.line().unwrap_or(0),
    )
}

/// The message, and then the fields, on one line.
struct Fields<'a>(&'a mut String);

impl Fields<'_> {
    fn push(&mut self, field: &Field, value: &dyn Debug) {
        if self.0.len() >= LINE_BYTES_MAX {
            return;
        }
        let said = match field.name() {
            "message" => format!(" {value:?}"),
            name => format!(" {name}={value:?}"),
        };
        self.0.extend(said.chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push(field, &format_args!("{value}"));
    }
}
