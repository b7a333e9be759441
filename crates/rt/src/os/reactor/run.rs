//! The thread of a core.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

use super::core::{self, Core, Order};
use super::op::{self, Pending};
use super::ring::{Ring, Seen};
use super::source::{Goes, Source};

/// Tasks that are polled before the ring is looked at again.
const TASKS_MAX: usize = 64;
/// The time that they have: what has come meanwhile is seen then.
const TASKS_TIME_MAX: Duration = Duration::from_micros(500);
/// Tasks of one turn: what they have in common is done after so many at the latest.
const TURN_TASKS: usize = 16;
/// How long operations may take that are under way when the core ends. Later, their memory is never freed.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Starts the thread of `core`.
pub(super) fn start(core: Arc<Core>) -> io::Result<JoinHandle<()>> {
    let (ready, begun) = mpsc::channel();
    let name = format!("weft-core-{}", core.number());
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let ring = Ring::new();
        // A ring belongs to the thread that uses it first.
        let made = match ring {
            Ok(ring) => Thread::new(core.clone(), ring),
            Err(error) => Err(error),
        };
        match made {
            Ok(mut thread) => {
                let _ = ready.send(Ok(()));
                // A core that is gone would leave everybody waiting who is served by it.
                let run = std::panic::AssertUnwindSafe(|| thread.run());
                if std::panic::catch_unwind(run).is_err() {
                    std::process::abort();
                }
                thread.end();
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
        core.end();
    })?;
    begun.recv().map_err(io::Error::other)??;
    Ok(thread)
}

/// What the thread alone has.
struct Thread {
    core: Arc<Core>,
    ring: Ring,
    /// Whoever waits for an entry, by name.
    pending: Vec<Option<Arc<dyn Pending>>>,
    free: Vec<usize>,
    sources: Vec<Option<Box<dyn Source>>>,
    seen: Vec<Seen>,
    /// The watch of what wakes the thread.
    wake: Arc<Woken>,
}

/// The source that the core's own entries have.
const OWN: usize = 0;
/// What wakes the thread.
struct Woken(std::sync::atomic::AtomicU64);

impl Pending for Woken {
    fn completed(&self, _result: i32, _more: bool) {}

    fn name(&self) -> &std::sync::atomic::AtomicU64 {
        &self.0
    }
}

impl Thread {
    fn new(core: Arc<Core>, ring: Ring) -> io::Result<Thread> {
        let (pending, free, sources, seen) = (Vec::new(), Vec::new(), vec![None], Vec::new());
        let wake = Arc::new(Woken(op::NO_NAME.into()));
        let mut thread = Thread { core, ring, pending, free, sources, seen, wake };
        thread.watch_wake()?;
        thread.ring.submit()?;
        match thread.ring.of(OWN).failures().1 {
            Some(error) => Err(error),
            None => Ok(thread),
        }
    }

    fn watch_wake(&mut self) -> io::Result<()> {
        let entry = op::watching(self.core.wake_fd(), libc::POLLIN.cast_unsigned().into());
        self.submit(&entry, self.wake.clone())
    }

    fn run(&mut self) {
        self.core.enter();
        while !self.core.is_stopped() {
            self.work();
            self.put_in();
            let longest = self.may_wait();
            if let Err(error) = self.ring.wait(longest) {
                self.fail(&error);
            }
            self.core.wake_up();
            self.look();
        }
    }

    /// Without its ring the thread could serve nobody, and nobody would know.
    fn fail(&self, error: &io::Error) -> ! {
        tracing::error!(%error, core = self.core.number(), "the ring of a core fails");
        std::process::abort();
    }

    /// Polls what is to be polled.
    fn work(&mut self) {
        if self.core.was_signalled() {
            let inbox = self.core.take_inbox();
            self.obey(Core::take_orders());
            self.obey(inbox.orders);
            inbox.tasks.into_iter().for_each(Core::queue);
        }
        if self.core.timers.first().is_some_and(|first| first <= Instant::now()) {
            self.core.timers.fire(Instant::now());
        }
        let began = Instant::now();
        let mut now = began;
        for count in 1..=TASKS_MAX {
            let Some(task) = Core::next_task() else { break };
            task.run();
            let before = std::mem::replace(&mut now, Instant::now());
            task.took(now - before);
            if now - began > TASKS_TIME_MAX {
                break;
            }
            if count % TURN_TASKS == 0 {
                core::end_turn();
            }
        }
        core::end_turn();
    }

    /// Puts into the ring what came up.
    fn put_in(&mut self) {
        for number in 1..self.sources.len() {
            let Some(mut source) = self.sources[number].take() else { continue };
            match source.submit(self.ring.of(number)) {
                Ok(Goes::On) => self.sources[number] = Some(source),
                Ok(Goes::Away) => {}
                Err(error) => self.fail(&error),
            }
        }
        self.obey(Core::take_orders());
    }

    /// How long the thread may wait; for ever if `None`.
    fn may_wait(&self) -> Option<Duration> {
        if Core::has_tasks() || !self.core.fall_asleep() {
            return Some(Duration::ZERO);
        }
        // After it is known to be asleep: whoever adds an earlier timer now wakes it.
        self.core.timers.first().map(|first| first.saturating_duration_since(Instant::now()))
    }

    /// Hands completions over.
    fn look(&mut self) {
        let mut seen = std::mem::take(&mut self.seen);
        self.ring.take_seen(&mut seen);
        for Seen { source, name, result, more } in seen.drain(..) {
            if source == OWN {
                self.completed(name, result, more);
            } else if let Some(mut taken) = self.sources.get_mut(source).and_then(Option::take) {
                let _ = core::begin_poll();
                taken.completed(name, result);
                self.sources[source] = Some(taken);
            }
        }
        self.seen = seen;
    }

    fn completed(&mut self, name: u64, result: i32, more: bool) {
        let Some(place) = usize::try_from(name).ok().and_then(|at| self.pending.get_mut(at)) else { return };
        let pending = if more { place.clone() } else { place.take() };
        let Some(pending) = pending else { return };
        if !more {
            pending.name().store(op::NO_NAME, Ordering::Release);
            self.free.push(name as usize);
            // The kernel ends a watch when its completion finds no place. Without one, nobody could wake this thread.
            let is_wake = std::ptr::addr_eq(Arc::as_ptr(&pending), Arc::as_ptr(&self.wake));
            if is_wake
                && !self.core.is_stopped()
                && let Err(error) = self.watch_wake()
            {
                self.fail(&error);
            }
        }
        pending.completed(result, more);
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            let result = match order {
                Order::Submit { entry, pending } => self.submit(&entry, pending),
                Order::Cancel(pending) => match op::cancelling(&*pending) {
                    Some(entry) => self.submit(&entry, Arc::new(Woken(op::NO_NAME.into()))),
                    None => Ok(()),
                },
                Order::Attach { source, processor } => {
                    self.attach(source, processor);
                    Ok(())
                }
            };
            if let Err(error) = result {
                self.fail(&error);
            }
        }
    }

    #[allow(unsafe_code)]
    fn submit(&mut self, entry: &io_uring::squeue::Entry128, pending: Arc<dyn Pending>) -> io::Result<()> {
        let at = self.free.pop().unwrap_or(self.pending.len());
        pending.name().store(Ring::whole_name(OWN, at as u64), Ordering::Release);
        match self.pending.get_mut(at) {
            Some(place) => *place = Some(pending),
            None => self.pending.push(Some(pending)),
        }
        // SAFETY: what the entry refers to is in `pending`, which is kept here until its last completion, or leaked by `end`.
        unsafe { self.ring.of(OWN).push(entry, at as u64) }
    }

    fn attach(&mut self, mut source: Box<dyn Source>, processor: Option<usize>) {
        if let Some(processor) = processor {
            stay_on(processor);
        }
        let at = (1..self.sources.len()).find(|at| self.sources[*at].is_none()).unwrap_or(self.sources.len());
        source.begin(self.ring.of(at));
        match self.sources.get_mut(at) {
            Some(place) => *place = Some(source),
            None => self.sources.push(Some(source)),
        }
    }

    /// Drops tasks, and waits for what the kernel still does with memory of this process.
    fn end(mut self) {
        loop {
            let tasks = self.core.take_tasks();
            if tasks.is_empty() {
                break;
            }
            tasks.iter().for_each(|task| task.cancel());
        }
        while Core::next_task().is_some() {}
        core::end_turn();
        Core::take_orders().into_iter().chain(self.core.take_inbox().orders).for_each(Order::refuse);
        let deadline = Instant::now() + END_TIME_MAX;
        let under_way: Vec<_> = self.pending.iter().flatten().cloned().collect();
        self.obey(under_way.into_iter().map(Order::Cancel).collect());
        while self.pending.iter().any(Option::is_some) && Instant::now() < deadline {
            if self.ring.wait(Some(deadline.saturating_duration_since(Instant::now()))).is_err() {
                break;
            }
            self.look();
        }
        if self.pending.iter().any(Option::is_some) || self.sources.iter().any(Option::is_some) {
            // The kernel may still write to their memory.
            std::mem::forget(self);
        }
    }
}

/// A thread elsewhere serves as well, only slower.
fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(%error, processor, "the thread of a core is not bound");
    }
}
