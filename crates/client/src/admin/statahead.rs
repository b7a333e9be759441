//! What a client asks for before applications do, and what came of it, by Lustre's names.

use std::ops::RangeInclusive;

use proto::Code;
use proto::parameters::{CLEARS, ClientTree, Parameter, SWITCH, Unit};

use super::Admin;
use super::parameters::Setting;
use crate::Error;
use crate::names::StataheadSettings as Settings;

/// The greatest `statahead_max`, as in Lustre (`LL_SA_RPC_MAX`).
const MAX: u32 = 2048;

impl Admin {
    pub(super) fn statahead_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let ahead = &self.shared.names.statahead;
        let set =
            move |text: &str, range: RangeInclusive<u32>, change: fn(&mut Settings, u32)| -> Setting<'a> {
                let number = text.parse::<u32>().ok().filter(|number| range.contains(number));
                let set = number.map(|number| ahead.set(|settings| change(settings, number)));
                Box::pin(std::future::ready(set.ok_or(Error::Refused(Code::Invalid))))
            };
        let max = Parameter::gauge("statahead_max", Unit::None, || ahead.settings().max);
        tree.of_mount(max.settable("write a number of names from 0 to 2048", move |text: &str| {
            set(text, 0..=MAX, |settings, max| settings.max = max)
        }));
        let by_name =
            Parameter::gauge("enable_statahead_fname", Unit::None, || u8::from(ahead.settings().by_name));
        tree.of_mount(by_name.settable(SWITCH, move |text: &str| {
            set(text, 0..=1, |settings, by_name| settings.by_name = by_name == 1)
        }));
        let hit =
            Parameter::gauge("statahead_fname_predict_hit", Unit::None, || ahead.settings().predict_hit);
        tree.of_mount(hit.settable("write a number of names from 2 to 1000", move |text: &str| {
            set(text, 2..=1000, |settings, hit| settings.predict_hit = hit)
        }));
        let stats = Parameter::text("statahead_stats", || self.statahead_stats());
        tree.of_mount(stats.settable(CLEARS, move |_: &str| -> Setting<'a> {
            ahead.clear();
            Box::pin(std::future::ready(Ok(())))
        }));
    }

    /// As Lustre prints it. Of directories READDIR brings the attributes, and sizes come with them: nothing of that is counted here.
    fn statahead_stats(&self) -> String {
        let counts = self.shared.names.statahead.counts();
        let rows = [
            ("statahead total", counts.sequences),
            ("statahead wrong", counts.ended),
            ("agl total", 0),
            ("list_total", 0),
            ("fname_total", counts.sequences),
            ("hit_total", counts.hits),
            ("miss_total", counts.misses),
        ];
        rows.map(|(name, count)| format!("{name}: {count}")).join("\n")
    }
}
