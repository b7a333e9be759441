//! Whether the sessions of a mount count: their statistics grow with the number of targets.

use proto::parameters::{ClientTree, Parameter, SWITCH, Unit, switch};

use super::Admin;
use super::parameters::Setting;
use crate::Error;

impl Admin {
    /// Whether each session has statistics (`rpc_stats`). Those that there are are given up when it is switched off.
    pub fn set_session_stats(&self, is_on: bool) {
        self.shared.targets.set_counting(is_on);
    }

    /// Bytes that the statistics of all sessions take, but for what a session without them has.
    pub fn session_stats_bytes(&self) -> usize {
        self.shared.targets.counting_bytes()
    }

    pub(super) fn counting_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets = &self.shared.targets;
        let is_on = Parameter::gauge("session_stats", Unit::None, || u8::from(targets.is_counting()));
        tree.of_mount(is_on.settable(SWITCH, move |text: &str| -> Setting<'a> {
            let set = switch(text).map_err(Error::Refused).map(|is_on| self.set_session_stats(is_on));
            Box::pin(std::future::ready(set))
        }));
    }
}
