//! The process that had a target or an address before this one. The kernel closes the files and sockets of a process that was killed
//! some time after the process has ended, so whoever starts its successor at once finds them in use.

use std::fmt::Display;
use std::time::Duration;

use rt::{Rt, Time};

/// How long a process that ends may still have what this one needs.
const WAIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(50);

/// How long this process waits for its predecessor's end.
pub struct Patience {
    rt: Rt,
    until: Time,
}

impl Patience {
    /// From now on.
    pub fn new(rt: &Rt) -> Patience {
        Patience { rt: rt.clone(), until: rt.now() + WAIT }
    }

    /// Attempts until it succeeds, fails for another reason than `is_in_use`, or was tried for long enough.
    pub async fn attempt<T, E: Display>(
        &self,
        is_in_use: impl Fn(&E) -> bool,
        mut attempt: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut is_told = false;
        loop {
            match attempt().await {
                Err(error) if is_in_use(&error) && self.rt.now() < self.until => {
                    if !is_told {
                        tracing::warn!(%error, "still in use by another process; waiting for its end");
                        is_told = true;
                    }
                    self.rt.sleep(TICK).await;
                }
                result => return result,
            }
        }
    }
}
