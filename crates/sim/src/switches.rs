//! What each mechanism of recovery is worth: a seed that passes with it and fails without it.
//!
//! The switches are habits of the processes ([`rpc::habits`]) and flaws of the store of owners ([`crate::credulous`]); nothing but
//! these runs touches them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rpc::{Habits, Safeguards};

use crate::coherence::Fate;
use crate::credulous::Flaws;
use crate::scenario::Scale;
use crate::{coherence, dead, failover, restart, scripted};

const RESTART_SCALE: Scale = Scale { clients: 6, osts: 2, steps: 30 };
const DEAD_SCALE: Scale = Scale { clients: 20, osts: 2, steps: 4 };

/// The run that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    Restart,
    Coherence(Fate),
    Dead,
    Failover,
    CutOffReader,
    LostAnswer,
    LateDestroy,
}

/// A mechanism that can be left out.
#[derive(Debug, Clone, Copy)]
pub struct Mechanism {
    /// One word.
    pub name: &'static str,
    /// In a sentence, what is left out.
    pub without: &'static str,
    scenario: Scenario,
    habits: Habits,
    flaws: Flaws,
}

const fn safeguards(safeguards: Safeguards) -> Habits {
    Habits { safeguards, ..Habits::TODAY }
}

const ALL: Safeguards = Safeguards::ALL;

/// All of them.
pub const MECHANISMS: [Mechanism; 9] = [
    Mechanism {
        name: "replay",
        without: "clients do not repeat what a server has lost",
        scenario: Scenario::Restart,
        habits: safeguards(Safeguards { replay: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "reply-slots",
        without: "a server that restarts has forgotten what it has answered",
        scenario: Scenario::LostAnswer,
        habits: safeguards(Safeguards { reply_slots: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "restating",
        without: "clients do not state again what they hold",
        scenario: Scenario::Coherence(Fate::PowerFails),
        habits: safeguards(Safeguards { restating: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "owner-leases",
        without: "an owner that cannot renew its right goes on",
        scenario: Scenario::Failover,
        habits: Habits::TODAY,
        flaws: Flaws { endless: true },
    },
    Mechanism {
        name: "client-leases",
        without: "clients use what they keep without a lease",
        scenario: Scenario::CutOffReader,
        habits: safeguards(Safeguards { client_leases: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "destroy-list",
        without: "an MDT that restarts has forgotten which objects it was to destroy",
        scenario: Scenario::LateDestroy,
        habits: safeguards(Safeguards { destroy_list: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "callbacks",
        without: "a callback is sent once",
        scenario: Scenario::Coherence(Fate::Peace),
        habits: Habits { resend_callbacks: false, ..Habits::TODAY },
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "asking",
        without: "a target that recovers does not ask who lives",
        scenario: Scenario::Dead,
        habits: safeguards(Safeguards { asking_who_lives: false, ..ALL }),
        flaws: Flaws::NONE,
    },
    Mechanism {
        name: "seals",
        without: "an OST takes what comes with a layout that is not in force any more",
        scenario: Scenario::Coherence(Fate::Peace),
        habits: safeguards(Safeguards { seals: false, ..ALL }),
        flaws: Flaws::NONE,
    },
];

/// Seeds that are tried.
const SEEDS: u64 = 40;

/// The first seed that fails without a mechanism.
#[derive(Debug)]
pub struct Shown {
    /// Which one.
    pub seed: u64,
    /// What failed with the mechanism: nothing may.
    pub with: Result<(), String>,
    /// What failed without.
    pub without: String,
}

impl Mechanism {
    /// Runs a seed without the mechanism.
    pub fn run_without(&self, seed: u64) -> Result<(), String> {
        self.run(seed, self.habits, self.flaws)
    }

    /// Looks for a seed that fails without the mechanism, and runs that with it. `None` if all pass.
    pub fn show(&self) -> Option<Shown> {
        (1..=SEEDS).find_map(|seed| {
            let without = self.run_without(seed).err()?;
            Some(Shown { seed, with: self.run(seed, Habits::TODAY, Flaws::NONE), without })
        })
    }

    /// The command that runs a seed of the same kind, or what a run is that has but one.
    pub fn command(&self) -> &'static str {
        match self.scenario {
            Scenario::Restart => "restart",
            Scenario::Coherence(Fate::Peace) => "coherence",
            Scenario::Coherence(Fate::PowerFails) => "coherence-restart",
            Scenario::Coherence(_) => "cut-off",
            Scenario::Dead => "dead",
            Scenario::Failover => "failover",
            Scenario::CutOffReader => "a reader that is cut off",
            Scenario::LostAnswer => "an answer that is lost",
            Scenario::LateDestroy => "a destroy that comes late",
        }
    }

    fn run(&self, seed: u64, habits: Habits, flaws: Flaws) -> Result<(), String> {
        let run = || match self.scenario {
            Scenario::Restart => drop(restart::run_with(seed, RESTART_SCALE, habits)),
            Scenario::Coherence(fate) => drop(coherence::run_with(seed, fate, habits)),
            Scenario::Dead => drop(dead::run_with(seed, DEAD_SCALE, habits)),
            Scenario::Failover => drop(failover::run_with(seed, habits, flaws)),
            Scenario::CutOffReader => scripted::cut_off_reader(habits, &["mgs", "mds", "oss0", "oss1"]),
            Scenario::LostAnswer => scripted::lost_answer(seed, habits),
            Scenario::LateDestroy => scripted::late_destroy(seed, habits),
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| first_line(panic.as_ref()))
    }
}

fn first_line(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let line = text.and_then(|text| text.lines().next()).unwrap_or("it panicked");
    line.chars().take(160).collect()
}
