//! What a client makes ahead of the MDT.

use proto::parameters::{ClientTree, Parameter, SWITCH, Unit, switch};

use super::Admin;
use super::parameters::Setting;
use crate::Error;

impl Admin {
    /// Whether this mount makes files ahead of the MDT in directories that it has to itself.
    pub fn set_metadata_writeback(&self, is_on: bool) {
        self.shared.names.ahead.set(is_on);
    }

    pub(super) fn ahead_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let ahead = &self.shared.names.ahead;
        let is_on = Parameter::gauge("metadata_writeback", Unit::None, || u8::from(ahead.is_on()));
        tree.of_mount(is_on.settable(SWITCH, move |text: &str| -> Setting<'a> {
            let is_on = switch(text).map_err(Error::Refused).map(|is_on| ahead.set(is_on));
            Box::pin(std::future::ready(is_on))
        }));
        tree.of_mount(Parameter::text("metadata_writeback_stats", || {
            let counts = ahead.counts();
            let rows = [
                ("directories", counts.dirs as u64),
                ("pending", counts.pending as u64),
                ("made", counts.kept),
                ("lost", counts.broken),
            ];
            rows.map(|(name, count)| format!("{name}: {count}")).join("\n")
        }));
    }
}
