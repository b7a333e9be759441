//! What an experiment may switch off of a machine.

use std::time::Duration;

/// What an experiment may switch off (`rpc::habits`): nothing can without the feature `experiments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// A pause between two attempts to reach the target that does not adapt.
    pub connect: Option<Duration>,
    /// A time after which a request is sent again that does not adapt.
    pub resend: Option<Duration>,
    /// What a target lost in a restart is repeated.
    pub replay: bool,
    /// What the client holds is stated again to a target that restarted.
    pub restate: bool,
}

impl Pace {
    /// What every process does.
    pub const TODAY: Pace = Pace { connect: None, resend: None, replay: true, restate: true };
}

/// The pace of a machine; without the feature `experiments` a constant.
#[derive(Debug)]
pub(super) struct Pacing {
    #[cfg(feature = "experiments")]
    pace: Pace,
}

impl Pacing {
    /// What every process does.
    pub fn today() -> Pacing {
        Pacing {
            #[cfg(feature = "experiments")]
            pace: Pace::TODAY,
        }
    }

    #[cfg(feature = "experiments")]
    pub fn set(&mut self, pace: Pace) {
        self.pace = pace;
    }

    #[cfg(feature = "experiments")]
    pub fn get(&self) -> Pace {
        self.pace
    }

    #[cfg(not(feature = "experiments"))]
    pub fn get(&self) -> Pace {
        Pace::TODAY
    }
}
