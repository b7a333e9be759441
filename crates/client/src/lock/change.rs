//! Locks of changes that go to OSTs at once: cuts, reservations, copies.
//!
//! An OST that has given the client up gives its locks to others. What was locked before must not be carried out in the session that
//! follows: others may have written since.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use proto::{DataTarget, Fid, Layout};

use super::RangeLocks;
use super::held::Pages;
use super::needs::Need;
use super::table::Pins;
use crate::Result;

/// The sessions in which something was locked, with each target that holds data of a file ([`rpc::Import::era`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Eras(BTreeMap<DataTarget, u64>);

impl Eras {
    /// That with one target.
    pub(crate) fn of(&self, target: DataTarget) -> u64 {
        // Nothing is sent in a session that nobody knows.
        self.0.get(&target).copied().unwrap_or(u64::MAX)
    }
}

/// Ranges of a file that are locked for a change.
pub(crate) struct Locked {
    pub(crate) eras: Eras,
    _pins: Pins,
}

impl RangeLocks {
    /// The sessions with the targets of a file as they are.
    pub(crate) async fn eras(&self, layout: &Layout) -> Result<Eras> {
        let mut eras = BTreeMap::new();
        for place in layout.places() {
            if let Entry::Vacant(vacant) = eras.entry(place.target) {
                vacant.insert(self.targets.data(place.target).await?.era());
            }
        }
        Ok(Eras(eras))
    }

    /// Locks `needs` of a file for a change.
    pub(crate) async fn lock_change(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        needs: &[Need],
    ) -> Result<Locked> {
        loop {
            let eras = self.eras(layout).await?;
            let pins = self.pin(fid, layout, needs, true, Pages::No).await?;
            for need in needs {
                self.make_known(need.place.object).await?;
            }
            // Whatever was locked is lost before the era changes.
            if self.eras(layout).await? == eras {
                return Ok(Locked { eras, _pins: pins });
            }
        }
    }
}
