//! How requests come from the kernel and answers go back: one interface, two engines.
//!
//! An engine reads requests on threads of its own and gives each to a [`Serve`] together with a [`Reply`], which any
//! thread or task may send, at once or later. Which engine serves a mount, nothing else knows.

pub mod dev;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::errno::Errno;
use crate::kernel::abi::init as flags;
use crate::kernel::init::{self, Agreed, Wish};
use crate::kernel::reply::{Answer, Scratch};
use crate::kernel::request::{Dialect, Operation, Request};

/// Fewest threads that take requests: one that waits in a copy must not hold up all others.
const THREADS_MIN: usize = 2;

/// What serves the requests of a mount.
pub trait Serve: Send + Sync + 'static {
    /// Answers `request` with `reply`, now or later. What the request borrows is gone when this returns.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The connection is gone: nothing that is under way has anyone to answer to.
    fn gone(&self);
}

/// Agrees with the kernel and serves its requests on threads of their own. `on_end` is called once, when the connection
/// is gone and no thread of the engine is left.
pub fn start(
    device: OwnedFd,
    serve: Arc<dyn Serve>,
    on_end: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    let device = Arc::new(device);
    let agreed = agree(&device, Wish::default())?;
    let cores = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
    let mut devices = vec![device.clone()];
    for _ in 1..cores.max(THREADS_MIN) {
        // A user who may not open the device itself has one descriptor for all.
        devices.push(dev::clone(&device).map_or_else(|_| device.clone(), Arc::new));
    }
    let ending = Arc::new(Ending {
        running: AtomicUsize::new(devices.len()),
        serve,
        result: Mutex::new(Ok(())),
        on_end: Mutex::new(Some(Box::new(on_end))),
    });
    for (index, device) in devices.into_iter().enumerate() {
        let ending = ending.clone();
        std::thread::Builder::new().name(format!("weft-fuse-{index}")).spawn(move || {
            let result = dev::run(device, &*ending.serve, agreed.dialect());
            ending.thread_ends(result);
        })?;
    }
    Ok(())
}

/// Answers INIT, which comes first and alone.
fn agree(device: &Arc<OwnedFd>, wish: Wish) -> io::Result<Agreed> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut buffer = dev::buffer();
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

/// What the threads of an engine do when they end: the last one tells.
struct Ending {
    running: AtomicUsize,
    serve: Arc<dyn Serve>,
    result: Mutex<io::Result<()>>,
    on_end: Mutex<Option<OnEnd>>,
}

type OnEnd = Box<dyn FnOnce(io::Result<()>) + Send>;

impl Ending {
    fn thread_ends(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::error!(%error, "a thread of the kernel's interface failed");
            *self.result.lock() = Err(error);
        }
        if self.running.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.serve.gone();
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
}

enum To {
    Device(Arc<OwnedFd>),
}

impl Reply {
    /// A reply through the device that the request was read from.
    pub(crate) fn device(unique: u64, device: Arc<OwnedFd>) -> Reply {
        Reply { unique, to: Some(To::Device(device)) }
    }

    /// Names the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers.
    pub fn send(mut self, result: Result<Answer, Errno>) {
        self.deliver(result);
    }

    /// The request is one that has no answer.
    pub fn none(mut self) {
        self.to = None;
    }

    fn deliver(&mut self, result: Result<Answer, Errno>) {
        let Some(to) = self.to.take() else { return };
        let mut scratch = Scratch::default();
        let (errno, pieces) = match &result {
            Ok(answer) => (0, answer.pieces(&mut scratch)),
            Err(errno) => (errno.0, Default::default()),
        };
        match to {
            To::Device(device) => dev::write(&device, self.unique, errno, &pieces),
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
