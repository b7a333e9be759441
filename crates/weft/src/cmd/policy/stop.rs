//! SIGTERM and SIGINT: what is under way is finished, nothing more is begun.

use std::time::{Duration, Instant};

use rt::os::process::Signals;

use crate::failure::Failure;

/// How soon a wait ends when it is told.
const STEP: Duration = Duration::from_millis(50);

/// Whether somebody has told the process to end.
pub struct Stop {
    signals: Option<Signals>,
}

impl Stop {
    /// Takes the signals. Before any other thread is started.
    pub fn catch() -> Result<Stop, Failure> {
        let signals = Signals::catch();
        let signals = signals.map_err(|error| Failure::new(format!("signals cannot be taken: {error}")))?;
        Ok(Stop { signals: Some(signals) })
    }

    /// One that nobody tells.
    pub fn never() -> Stop {
        Stop { signals: None }
    }

    /// Whether it is told.
    pub fn is_told(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.count() > 0)
    }

    /// Waits until then, or until it is told.
    pub fn wait_until(&self, then: Instant) {
        while !self.is_told() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}
