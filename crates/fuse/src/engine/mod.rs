//! How requests come from the kernel and answers go back: one interface, two engines.
//!
//! An engine reads requests on threads of its own and gives each to a [`Serve`] together with a [`Reply`], which any
//! thread or task may send, at once or later. Which engine serves a mount, nothing else knows.

// Its threads, and what they read, are the kernel's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod dev;
pub mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;
use rt::os::reactor::Reactors;

use crate::kernel::abi::init as flags;
use crate::kernel::init::{self, Agreed, Wish};
use crate::kernel::reply::{Answer, Scratch};
use crate::kernel::request::{Dialect, Operation, Request};
use crate::stats::Sample;
use crate::ways::Way;
use client::posix::Errno;

/// Fewest threads that take requests: one that waits in a copy must not hold up all others.
const THREADS_MIN: usize = 2;

/// What serves the requests of a mount.
pub trait Serve: Send + Sync + 'static {
    /// Answers `request` with `reply`, now or later. What the request borrows is gone when this returns.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The connection is gone: nothing that is under way has anyone to answer to.
    fn gone(&self);
}

/// Which engine is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where the kernel offers it and the administrator permits it.
    #[default]
    Auto,
    /// io_uring or no mount.
    Uring,
    /// /dev/fuse.
    Dev,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "uring" => Ok(Choice::Uring),
            "dev" => Ok(Choice::Dev),
            _ => Err(format!("\"{text}\" is none of auto, uring, dev")),
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Choice::Auto => "auto",
            Choice::Uring => "uring",
            Choice::Dev => "dev",
        })
    }
}

/// An engine that serves, as logs and `weft status` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Threads on /dev/fuse.
    Dev,
    /// FUSE over io_uring.
    Uring,
}

impl Kind {
    /// `dev` or `uring`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dev => "dev",
            Kind::Uring => "uring",
        }
    }
}

/// What happens at the end of an engine.
pub struct Ends {
    /// Breaks the connection, so that every thread of the engine comes to its end: one of them failed, and a core
    /// whose requests nobody takes would hang.
    pub abort: Box<dyn Fn() + Send + Sync>,
    /// Called once, when the connection is gone and no thread is left.
    pub on_end: Box<dyn FnOnce(io::Result<()>) + Send>,
}

/// What is wanted of an engine.
pub struct Wanted<'a> {
    /// Which.
    pub choice: Choice,
    /// What the kernel is asked for.
    pub wish: Wish,
    /// The cores whose rings may carry it.
    pub reactors: Option<&'a Arc<Reactors>>,
}

/// Agrees with the kernel and serves its requests: on the cores, or on threads of their own.
///
/// # Errors
/// The kernel does not go on with the mount, or threads cannot be started.
pub fn start(
    device: &Arc<OwnedFd>,
    wanted: Wanted<'_>,
    serve: Arc<dyn Serve>,
    ends: Ends,
) -> io::Result<(Kind, Agreed)> {
    let Wanted { choice, wish, reactors } = wanted;
    let usable = match (choice, reactors) {
        (Choice::Dev, _) => Err("another engine is wanted".to_owned()),
        (_, None) => Err("io_uring cannot be used here".to_owned()),
        (_, Some(reactors)) => uring::usable().map(|()| reactors),
    };
    let agreed = agree(device, Wish { uring: usable.is_ok(), ..wish })?;
    let offered = usable.and_then(|reactors| match agreed.has(flags::OVER_IO_URING) {
        true => Ok(reactors),
        false => Err("the kernel does not offer it".to_owned()),
    });
    let ending = Arc::new(Ending::new(ends));
    let threads = Threads { device: device.clone(), serve, dialect: agreed.dialect(), ending };
    let kind = match (offered, choice) {
        (Ok(reactors), _) => threads.start_uring(choice, reactors),
        (Err(why), Choice::Uring) => Err(io::Error::other(format!("no FUSE over io_uring: {why}"))),
        (Err(why), _) => {
            tracing::info!(
                engine = Kind::Dev.name(),
                why_not_uring = why,
                "the kernel's requests are served"
            );
            let cores = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
            threads.start_dev(cores.max(THREADS_MIN), Vec::new()).map(|()| Kind::Dev)
        }
    }?;
    Ok((kind, agreed))
}

/// What the threads of an engine are started with.
struct Threads {
    device: Arc<OwnedFd>,
    serve: Arc<dyn Serve>,
    dialect: Dialect,
    ending: Arc<Ending>,
}

impl Threads {
    fn spawn(&self, name: String, run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let (ending, serve) = (self.ending.clone(), self.serve.clone());
        ending.begins();
        let body = move || ending.ends(run(), &*serve);
        std::thread::Builder::new().name(name).spawn(body).map(|_| ()).inspect_err(|_| {
            self.ending.running.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Threads that read the device. When the connection is gone, they say so to `queues`.
    fn start_dev(&self, count: usize, queues: Vec<Arc<uring::Queue>>) -> io::Result<()> {
        for index in 0..count {
            // A user who may not open the device itself has one descriptor for all.
            let device = match index {
                0 => self.device.clone(),
                _ => dev::clone(&self.device).map_or_else(|_| self.device.clone(), Arc::new),
            };
            let (serve, dialect, queues) = (self.serve.clone(), self.dialect, queues.clone());
            self.spawn(format!("weft-fuse-{index}"), move || {
                let result = dev::run(device, &*serve, dialect);
                queues.iter().for_each(|queue| queue.end());
                result
            })?;
        }
        Ok(())
    }

    fn start_uring(&self, choice: Choice, reactors: &Reactors) -> io::Result<Kind> {
        let count = uring::queue_count()?;
        let queues: Vec<_> = (0..count).map(|number| Arc::new(uring::Queue::new(number))).collect();
        self.start_dev(1, queues.clone())?;
        let (sender, readiness) = mpsc::channel();
        for queue in &queues {
            let sender = sender.clone();
            let ready = Box::new(move |ready| {
                // Whoever waits for it has given up if it is gone.
                let _ = sender.send(ready);
            });
            let (device, serve) = (self.device.clone(), self.serve.clone());
            let (dialect, ending) = (self.dialect, self.ending.clone());
            uring::attach(reactors, queue, uring::Serving { device, serve, dialect, ending, ready });
        }
        drop(sender);
        match readiness.iter().collect::<Result<(), uring::Unready>>() {
            Ok(()) => {
                tracing::info!(
                    engine = Kind::Uring.name(),
                    queues = count,
                    "the kernel's requests are served"
                );
                Ok(Kind::Uring)
            }
            Err(uring::Unready::Refused(error)) if choice == Choice::Auto => {
                // A refused registration has switched the kernel back to the device.
                tracing::warn!(%error, "FUSE over io_uring does not start; /dev/fuse serves instead");
                queues.iter().for_each(|queue| queue.end());
                let cores = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
                self.start_dev(cores.max(THREADS_MIN) - 1, Vec::new()).map(|()| Kind::Dev)
            }
            Err(uring::Unready::Refused(error) | uring::Unready::NoMemory(error)) => {
                queues.iter().for_each(|queue| queue.end());
                Err(error)
            }
        }
    }
}

/// Answers INIT, which comes first and alone.
fn agree(device: &Arc<OwnedFd>, wish: Wish) -> io::Result<Agreed> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut buffer = dev::Buffer::default();
    let message = dev::next(device, &mut buffer)?.ok_or_else(|| refused("unmounted at once".into()))?;
    let request = Request::parse(message, Dialect::default()).map_err(|error| refused(error.to_string()))?;
    let reply = Reply::device(request.unique, device.clone());
    let Operation::Init(given) = request.operation else {
        return Err(refused("the kernel does not begin with INIT".into()));
    };
    let (out, agreed) = match init::answer(&given, wish) {
        Ok(answer) => answer,
        Err(error) => {
            reply.send(Err(Errno(libc::EPROTO)));
            return Err(refused(error.to_string()));
        }
    };
    reply.send(Ok(Answer::Init(out)));
    tracing::debug!(minor = agreed.minor, flags = format!("{:#x}", agreed.flags), "agreed with the kernel");
    if !agreed.has(flags::DIRECT_IO_ALLOW_MMAP) {
        tracing::warn!("this kernel cannot map files of the mount shared (Linux 6.6 and later can)");
    }
    Ok(agreed)
}

/// What the threads and queues of an engine do when they end: the last one tells.
struct Ending {
    running: AtomicUsize,
    result: Mutex<io::Result<()>>,
    abort: Box<dyn Fn() + Send + Sync>,
    on_end: Mutex<Option<OnEnd>>,
}

type OnEnd = Box<dyn FnOnce(io::Result<()>) + Send>;

impl Ending {
    fn new(ends: Ends) -> Ending {
        let Ends { abort, on_end } = ends;
        let running = AtomicUsize::new(0);
        Ending { running, result: Mutex::new(Ok(())), abort, on_end: Mutex::new(Some(on_end)) }
    }

    /// One more thread, or queue of a core, serves.
    fn begins(&self) {
        self.running.fetch_add(1, Ordering::AcqRel);
    }

    fn ends(&self, result: io::Result<()>, serve: &dyn Serve) {
        if let Err(error) = result {
            tracing::error!(%error, "a thread of the kernel's interface failed");
            *self.result.lock() = Err(error);
            (self.abort)();
        }
        if self.running.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        serve.gone();
        let on_end = self.on_end.lock().take();
        if let Some(on_end) = on_end {
            on_end(std::mem::replace(&mut *self.result.lock(), Ok(())));
        }
    }
}

/// The obligation to answer one request. Dropped without an answer it says EIO, so that no application hangs.
pub struct Reply {
    unique: u64,
    to: Option<To>,
    sample: Option<Sample>,
    way: Option<Way>,
}

enum To {
    Device(Arc<OwnedFd>),
    Slot(uring::SlotReply),
}

impl Reply {
    /// A reply through the device that the request was read from.
    pub(crate) fn device(unique: u64, device: Arc<OwnedFd>) -> Reply {
        Reply { unique, to: Some(To::Device(device)), sample: None, way: None }
    }

    /// A reply through the ring entry that has the request.
    pub(crate) fn slot(unique: u64, slot: uring::SlotReply) -> Reply {
        Reply { unique, to: Some(To::Slot(slot)), sample: None, way: None }
    }

    /// Names the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// It is counted when the answer is sent.
    pub(crate) fn measured(mut self, sample: Option<Sample>) -> Reply {
        self.sample = sample;
        self
    }

    /// What is told of the answer before that is sent.
    pub(crate) fn on_way(mut self, way: Option<Way>) -> Reply {
        self.way = way;
        self
    }

    /// Answers.
    pub fn send(mut self, result: Result<Answer, Errno>) {
        self.deliver(result);
    }

    /// The request is one that has no answer.
    pub fn none(mut self) {
        self.to = None;
    }

    fn deliver(&mut self, mut result: Result<Answer, Errno>) {
        let Some(to) = self.to.take() else { return };
        if let Some(sample) = self.sample.take() {
            sample.end(&result);
        }
        if let Some(way) = self.way.take() {
            result = way.ended(result);
        }
        let mut scratch = Scratch::default();
        let (errno, pieces) = match &result {
            Ok(answer) => (0, answer.pieces(&mut scratch)),
            Err(errno) => (errno.0, Default::default()),
        };
        match to {
            To::Device(device) => dev::write(&device, self.unique, errno, &pieces),
            To::Slot(slot) => slot.send(errno, &pieces, result.as_ref().ok().and_then(Answer::held)),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.to.is_some() {
            self.deliver(Err(Errno::IO));
        }
    }
}
