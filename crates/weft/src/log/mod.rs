//! What a process says of itself: lines on its standard error, and a bounded ring of its last lines in memory, which
//! `lctl dk` fetches.
//!
//! The ring has its own level, which an operator changes while the process runs. Nothing is formatted of a level that
//! is not kept, and nothing below both levels costs more than one comparison.

mod line;
mod ring;

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use proto::Code;
use proto::parameters::{Parameter, Tree, Unit};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use line::Lines;
pub use ring::{Page, Ring};

/// Chooses what is printed.
const PRINTED_VARIABLE: &str = "WEFT_LOG";
/// What is printed if nobody chooses.
const PRINTED: &str = "info,fjall=warn,lsm_tree=warn";
/// Libraries that say more than is of use: a level alone is not for them.
const LIBRARIES: &str = "fjall=warn,lsm_tree=warn,hyper=warn,hyper_util=warn,rustls=warn";
/// The level of the ring if nobody sets it.
const KEPT: &str = "info";

/// Memory of the ring if nobody sets it: Lustre's 5 MiB for each processor, for one (bytes).
const RING_BYTES: usize = 5 << 20;
/// Least and most that can be set (MiB).
const RING_MB: std::ops::RangeInclusive<usize> = 1..=1024;
/// What it takes to set what is kept.
const LEVELS_TAKEN: &str = "it is error, warn, info, debug or trace, MODULE=LEVEL with commas between, -1 for all or 0 for the least";
/// What it takes to set its memory.
const MEMORY_TAKEN: &str = "it is a number of MiB from 1 to 1024";
/// Bytes of one page of the log: it has to fit into an extended attribute with its head.
const PAGE_BYTES_MAX: usize = 48 << 10;
/// Bytes of a mark.
const MARK_BYTES_MAX: usize = 1024;
/// Bytes of a level, or of levels of modules.
const LEVELS_BYTES_MAX: usize = 1024;

/// Name: a page of the log begins with the line of the number that follows. Set: all before that number is forgotten.
pub const DEBUG_LOG: &str = "debug_log";
/// Name: set, a line is written.
pub const MARK: &str = "mark";

/// The log in memory, and what is kept in it.
pub struct Log {
    ring: Arc<Mutex<Ring>>,
    filter: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<String>,
}

/// The log of this process: as the subscriber that fills it, there is one.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// Starts to log. Call once, before threads are started.
pub fn start() {
    let printed = EnvFilter::try_from_env(PRINTED_VARIABLE).unwrap_or_else(|_| EnvFilter::new(PRINTED));
    let kept = directives(KEPT).unwrap_or_default();
    let (filter, handle) = reload::Layer::new(EnvFilter::new(kept));
    let ring = Arc::new(Mutex::new(Ring::new(RING_BYTES)));
    let printer = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    let started = tracing_subscriber::registry()
        .with(Lines::new(ring.clone()).with_filter(filter))
        .with(printer.with_filter(printed))
        .try_init();
    // Tests start more than one.
    if started.is_ok() {
        let log = Log { ring, filter: handle, levels: Mutex::new(KEPT.into()) };
        let _ = LOG.set(Arc::new(log));
    }
}

/// The log of this process, once it was started.
pub fn of_process() -> Option<Arc<Log>> {
    LOG.get().cloned()
}

impl Log {
    fn set_levels(&self, value: &str) -> Result<(), Code> {
        let text = directives(value).ok_or(Code::Invalid)?;
        let filter = EnvFilter::builder().parse(text).map_err(|_| Code::Invalid)?;
        let mut levels = self.levels.lock();
        self.filter.reload(filter).map_err(|_| Code::Io)?;
        *levels = value.to_owned();
        Ok(())
    }

    fn set_memory(&self, value: &str) -> Result<(), Code> {
        let mb = value.parse::<usize>().ok().filter(|mb| RING_MB.contains(mb)).ok_or(Code::Invalid)?;
        self.ring.lock().set_bytes_max(mb << 20);
        Ok(())
    }
}

impl rpc::Process for Log {
    fn parameters<'a>(&'a self, tree: &mut Tree<'a>) {
        let kept = Parameter::text("debug", || self.levels.lock().clone());
        tree.add("", kept.settable(LEVELS_TAKEN, |text| self.set_levels(text)));
        let memory = Parameter::gauge("debug_mb", Unit::Mebibytes, || self.ring.lock().bytes_max() >> 20);
        tree.add("", memory.settable(MEMORY_TAKEN, |text| self.set_memory(text)));
    }

    fn value(&self, name: &str) -> Option<String> {
        let from = name.strip_prefix(DEBUG_LOG)?.strip_prefix('.')?.parse().ok()?;
        Some(self.ring.lock().page(from, PAGE_BYTES_MAX).to_text())
    }

    fn set_value(&self, name: &str, value: &str) -> Result<(), Code> {
        match name {
            DEBUG_LOG => {
                let before = value.parse().map_err(|_| Code::Invalid)?;
                self.ring.lock().forget(before);
                Ok(())
            }
            MARK if value.len() <= MARK_BYTES_MAX => {
                tracing::warn!("DEBUG MARKER: {value}");
                Ok(())
            }
            MARK => Err(Code::TooBig),
            _ => Err(Code::NotFound),
        }
    }
}

/// What a level, or levels of modules as in `info,weft_server=trace`, means for the ring; `None` if it is neither.
/// Lustre's -1 is all there is, and 0 what is always said.
fn directives(value: &str) -> Option<String> {
    const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
    let is_directive = |part: &str| match part.split_once('=') {
        Some((module, level)) => !module.is_empty() && LEVELS.contains(&level),
        None => LEVELS.contains(&part),
    };
    match value {
        "-1" => Some(format!("trace,{LIBRARIES}")),
        "0" => Some("error".to_owned()),
        _ if value.len() > LEVELS_BYTES_MAX || !value.split(',').all(is_directive) => None,
        _ => Some(format!("{LIBRARIES},{value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for (value, fine) in [
            ("info", true),
            ("trace", true),
            ("-1", true),
            ("0", true),
            ("info,weft_server::ost=trace", true),
            ("weft_client=debug", true),
            ("", false),
            ("loud", false),
            ("+rpctrace", false),
            ("=trace", false),
            ("weft_client=loud", false),
            ("info,", false),
        ] {
            let meant = directives(value);
            assert_eq!(meant.is_some(), fine, "{value}");
            let parsed = meant.map(|text| EnvFilter::builder().parse(text).is_ok());
            assert_ne!(parsed, Some(false), "{value}");
        }
        assert_eq!(directives(&"a=info,".repeat(500)), None);
    }

    #[test]
    fn what_is_kept_can_be_changed_while_it_runs() {
        use proto::parameters::PROCESS_PLACES;
        use proto::wire::messages::ReadParameters;
        use rpc::Process;
        let (filter, handle) = reload::Layer::new(EnvFilter::new("info"));
        let ring = Arc::new(Mutex::new(Ring::new(RING_BYTES)));
        let log = Log { ring: ring.clone(), filter: handle, levels: Mutex::new(KEPT.into()) };
        let subscriber = tracing_subscriber::registry().with(Lines::new(ring).with_filter(filter));
        let page = || log.value("debug_log.0").expect("there is a log");
        let set = |name: &str, value: &str| rpc::process::set(&log, name, value);
        let value = |name: &str| {
            let read = ReadParameters { patterns: vec![name.to_owned()], skip: 0, names_only: false };
            let told = rpc::process::read(&log, &read).expect("the pattern is short").parameters;
            assert!(told.iter().all(|one| one.name.starts_with(PROCESS_PLACES[0])), "{told:?}");
            told.into_iter().map(|one| one.value).collect::<Vec<_>>()
        };
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target = "w-OST0001", count = 3, why = "it \"may\"\nbe", "said");
            tracing::debug!("not kept");
            let before = page();
            assert!(before.starts_with("1 1 0\n"), "{before}");
            assert!(
                before.ends_with(
                    r#") said target="w-OST0001" count=3 why="it \"may\"\nbe"
"#
                ),
                "{before}"
            );
            assert_eq!(set("debug", "debug"), Ok(()));
            tracing::debug!("kept\nin one line");
            assert!(page().starts_with("2 2 0\n") && page().ends_with(") kept in one line\n"), "{}", page());
            assert_eq!(set("debug", "loud"), Err(Code::Invalid));
            assert_eq!(value("debug"), ["debug"]);
            assert_eq!(set(DEBUG_LOG, "2"), Ok(()));
            assert_eq!(page(), "2 2 0\n");
            assert_eq!(set(MARK, "here"), Ok(()));
            assert!(page().contains(":warn:") && page().ends_with(") DEBUG MARKER: here\n"), "{}", page());
        });
        assert_eq!(value("debug*"), ["debug", "5"]);
        assert_eq!(set("debug_mb", "0"), Err(Code::Invalid));
        assert_eq!(set("debug_mb", "7"), Ok(()));
        assert_eq!(value("debug_mb"), ["7"]);
        assert_eq!(set("secrets", "1"), Err(Code::NotFound));
        assert_eq!((value("secrets"), log.value("secrets")), (vec![], None));
    }
}
