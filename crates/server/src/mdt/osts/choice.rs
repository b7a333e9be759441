//! By what new files choose among the OSTs: those that are reached, their room, pools that spill, and what lies on the MDT.

use std::sync::Arc;

use parking_lot::Mutex;

use super::table::Table;
use crate::mdt::allocate::Order;
use crate::mdt::away::Away;
use crate::mdt::qos::Qos;
use crate::mdt::spill::Spills;

/// What goes into the order beside the configuration.
pub(in crate::mdt) struct Choice {
    /// OSTs that are not reached.
    pub away: Away,
    /// Pools that spill, or may.
    pub spills: Arc<Spills>,
    /// How much room OSTs have.
    pub qos: Qos,
    /// Most bytes of a new file that lie on the MDT, as an operator wants it; the newest order has it when that is durable.
    pub on_mdt_max: Mutex<Option<u64>>,
}

impl Choice {
    /// Nothing is known but what the stored order says.
    pub fn new(on_mdt_max: Option<u64>) -> Choice {
        Choice {
            away: Away::default(),
            spills: Arc::default(),
            qos: Qos::default(),
            on_mdt_max: Mutex::new(on_mdt_max),
        }
    }

    /// The order of the OSTs of `table`, where `before` is the one before.
    pub fn order(&self, table: &Table, before: &Order) -> Order {
        let avoided = table.degraded.iter().copied().chain(self.away.avoided()).chain(self.qos.full());
        let order = table.order.clone().avoiding(avoided.collect()).with_pools(&table.pools);
        let order = self.qos.in_turns(order, before, &table.servers);
        order.with_on_mdt_max(*self.on_mdt_max.lock()).spilling(self.spills.active())
    }
}
