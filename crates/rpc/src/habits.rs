//! What is done so that nobody is evicted who comes back in time, and nothing is lost, each with a switch, to see what it is worth.
//!
//! Nothing is switched off but by an experiment in the simulator: only with the feature `experiments`, which the simulator alone asks
//! for, is there anything that switches ([`Experiment`]). What is left then is what Lustre did when the K computer lost its clients: long timers, callbacks that are sent once, connects that wait behind
//! everything else, and a fixed time for the answer to a callback.

use std::sync::Arc;
#[cfg(feature = "experiments")]
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(feature = "experiments")]
use proto::session::machine::{Machine, Pace};
use rt::sync::Semaphore;

/// Whether this program can leave mechanisms out.
pub const EXPERIMENTS: bool = cfg!(feature = "experiments");

/// What a process does. The default is what every process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// `None`: a client tries again after milliseconds, then seconds ([`crate::limits`]).
    pub slow_retries: Option<SlowRetries>,
    /// A callback is sent again until it is answered, over each new connection at once.
    pub resend_callbacks: bool,
    /// `None`: as many requests are carried out as there are; what waits keeps nobody else from being served.
    pub workers: Option<Workers>,
    /// `None`: a client that lives and gets on has as long as it takes.
    pub callback_timeout: Option<Duration>,
    /// What recovery consists of.
    pub safeguards: Safeguards,
}

/// The mechanisms of recovery that can be left out, to show that something is lost without each (`docs/recovery.md#switches`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Safeguards {
    /// A client repeats what a target lost in a restart.
    pub replay: bool,
    /// A target that restarts knows again what it has answered, and answers the same when it is asked again.
    pub reply_slots: bool,
    /// A client states again to a target that restarted what it holds.
    pub restating: bool,
    /// A client uses nothing of what it keeps without a lease.
    pub client_leases: bool,
    /// An MDT that restarts knows again which objects are to be destroyed.
    pub destroy_list: bool,
    /// A target that recovers asks the MGS who lives.
    pub asking_who_lives: bool,
    /// An OST refuses what comes for sealed objects.
    pub seals: bool,
}

impl Safeguards {
    /// As it has to be.
    pub const ALL: Safeguards = Safeguards {
        replay: true,
        reply_slots: true,
        restating: true,
        client_leases: true,
        destroy_list: true,
        asking_who_lives: true,
        seals: true,
    };
}

/// Timers of a client that do not adapt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowRetries {
    /// Between two attempts to reach a target; the first one is made at once.
    pub connect: Duration,
    /// A request without a reply for this long is sent again.
    pub resend: Duration,
}

/// A bounded number of requests is carried out by all targets but the MGS, whoever sent them; the others queue. Those that
/// may take as long as others like, and those that let others go on, are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// How many.
    pub count: usize,
    /// A connect does not need one of them.
    pub reserve_connects: bool,
}

impl Habits {
    /// What every process does.
    pub const TODAY: Habits = Habits {
        slow_retries: None,
        resend_callbacks: true,
        workers: None,
        callback_timeout: None,
        safeguards: Safeguards::ALL,
    };
}

impl Default for Habits {
    fn default() -> Habits {
        Habits::TODAY
    }
}

#[cfg(feature = "experiments")]
impl Habits {
    /// A client's end of a session that has these habits.
    pub(crate) fn paced<W>(&self, mut machine: Machine<W>) -> Machine<W> {
        machine.set_pace(Pace {
            connect: self.slow_retries.map(|slow| slow.connect),
            resend: self.slow_retries.map(|slow| slow.resend),
            replay: self.safeguards.replay,
            restate: self.safeguards.restating,
        });
        machine
    }
}

/// What one process was told to leave out.
#[cfg(feature = "experiments")]
#[derive(Default)]
pub(crate) struct Experiment(OnceLock<(Habits, Option<Arc<Semaphore>>)>);

#[cfg(feature = "experiments")]
impl Experiment {
    pub(crate) fn begin(&self, habits: Habits) {
        let workers = habits.workers.map(|workers| Arc::new(Semaphore::new(workers.count)));
        assert!(self.0.set((habits, workers)).is_ok(), "habits are set once");
    }

    pub(crate) fn habits(&self) -> &Habits {
        self.0.get().map_or(&Habits::TODAY, |(habits, _)| habits)
    }

    pub(crate) fn workers(&self) -> Option<&Arc<Semaphore>> {
        self.0.get()?.1.as_ref()
    }
}

/// Nothing can be left out.
#[cfg(not(feature = "experiments"))]
#[derive(Default)]
pub(crate) struct Experiment {}

#[cfg(not(feature = "experiments"))]
impl Experiment {
    pub(crate) fn habits(&self) -> &'static Habits {
        &Habits::TODAY
    }

    pub(crate) fn workers(&self) -> Option<&Arc<Semaphore>> {
        None
    }
}
