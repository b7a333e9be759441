//! A store of owners that promises more than it knows, to show what is lost then.

use std::time::Duration;

use proto::wire::messages::{Tenure, Wanted};
use rt::BoxFuture;
use server::owner::{Grant, Me, MgsOwners, OwnerStore, Renewed, Unavailable};

/// What it promises wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flaws {
    /// A renewal holds for ever: owners do not hold still when they cannot renew.
    pub endless: bool,
}

impl Flaws {
    /// None.
    pub const NONE: Flaws = Flaws { endless: false };
}

/// The MGS's store, with flaws.
pub struct Credulous {
    store: MgsOwners,
    flaws: Flaws,
}

impl Credulous {
    /// Promises what `store` does, but for the flaws.
    pub fn new(store: MgsOwners, flaws: Flaws) -> Credulous {
        Credulous { store, flaws }
    }
}

impl OwnerStore for Credulous {
    fn identity(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        self.store.identity()
    }

    fn renew<'a>(&'a self, me: &'a Me, holds: Vec<Tenure>) -> BoxFuture<'a, Result<Renewed, Unavailable>> {
        Box::pin(async move {
            let mut renewed = self.store.renew(me, holds).await?;
            if self.flaws.endless {
                renewed.ttl = Duration::from_secs(3600);
            }
            Ok(renewed)
        })
    }

    fn take<'a>(
        &'a self,
        me: &'a Me,
        wanted: Vec<Wanted>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Vec<Grant>, Unavailable>> {
        self.store.take(me, wanted, wait)
    }

    fn settle<'a>(&'a self, me: &'a Me, tenure: Tenure) -> BoxFuture<'a, Result<(), Unavailable>> {
        self.store.settle(me, tenure)
    }

    fn release<'a>(
        &'a self,
        me: &'a Me,
        tenure: Tenure,
        to: &'a str,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        self.store.release(me, tenure, to)
    }
}
