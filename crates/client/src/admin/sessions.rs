//! What a mount has of each session with a target: how it is, how many requests may be under way, and what it counts (`osc.*`, `mdc.*`).

use std::future::ready;
use std::time::Duration;

use proto::parameters::{CLEARS, ClientTree, Parameter, SWITCH, Unit, switch};
use proto::seal::Protection;
use proto::{Code, DataTarget, TargetId, TargetKind};

use super::parameters::Setting;
use super::{Admin, answers, import};

/// What `max_rpcs_in_flight` takes, as in Lustre.
const IN_FLIGHT_MAX: usize = 256;
const IN_FLIGHT: &str = "write a number from 1 to 256";
/// What `checksums` takes.
const CHECKSUMS: &str = "write 0 or 1; 0 needs a connection that does not authenticate its data (-o protect=mac-crc on both sides)";
/// What `idle_timeout` takes.
const IDLE: &str = "write seconds, up to 4294967294; 0 for never";

/// The sessions of a mount.
#[derive(Clone, Copy)]
pub(super) struct OfSessions<'a> {
    pub admin: &'a Admin,
}

impl<'a> OfSessions<'a> {
    /// Registers all that they have.
    pub(super) fn parameters(self, tree: &mut ClientTree<'a, Setting<'a>>) {
        self.switches_in(tree);
        self.imports_in(tree);
        let targets: Vec<TargetId> = self.admin.shared.targets.sessions().into_keys().collect();
        for target in &targets {
            self.admin.locks.parameters(*target, tree);
            if let Some(ost) = target.ost_index() {
                self.admin.memory.parameters_of(ost, tree);
                self.in_flight_in(*target, tree);
            }
            self.rpcs_in(*target, tree);
            self.times_in(*target, tree);
        }
        for target in targets {
            tree.of_session(target, || [Parameter::text("timeouts", move || self.timeouts(target))]);
        }
    }

    /// Of every MDT and OST, whether it was used or not.
    fn imports_in(self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets: Vec<TargetId> = self.admin.with_config(|config| {
            let all = config.targets().map(|entry| entry.target);
            all.filter(|id| id.kind != TargetKind::Mgs).collect()
        });
        for id in targets {
            tree.of_session(id, || {
                [
                    Parameter::text("import", move || import::import(self.admin, id)),
                    Parameter::text("state", move || import::state(self.admin, id)),
                ]
            });
        }
    }

    /// Of every OST, whether it was used or not.
    fn switches_in(self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets = &self.admin.shared.targets;
        let osts: Vec<TargetId> = self.admin.with_config(|config| {
            let all = config.targets().map(|entry| entry.target);
            all.filter(|id| id.ost_index().is_some()).collect()
        });
        for id in osts {
            self.checksums_in(id, tree);
            tree.of_session(id, || {
                let active = Parameter::gauge("active", Unit::None, move || {
                    u8::from(targets.switches().is_active(id))
                });
                let active = active.settable(SWITCH, move |text: &str| -> Setting<'a> {
                    let active = switch(text);
                    Box::pin(async move {
                        targets.set_active(id, active.map_err(crate::Error::Refused)?);
                        Ok(())
                    })
                });
                [active, self.idle_timeout(id)]
            });
        }
    }

    /// Whether data gets a checksum on its way. Where it is authenticated nothing else is needed, and nothing can be switched off.
    fn checksums_in(self, id: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets = &self.admin.shared.targets;
        let protection = move || targets.made(id).and_then(|made| made.protection());
        let covers = move || protection().filter(|protection| *protection >= Protection::Frames);
        tree.of_session(id, || {
            let is_on = move || u8::from(covers().is_some() || targets.switches().has_checksums(id));
            let on = Parameter::gauge("checksums", Unit::None, is_on);
            let on = on.settable(CHECKSUMS, move |text: &str| -> Setting<'a> {
                let on = switch(text)
                    .and_then(|on| if on || covers().is_none() { Ok(on) } else { Err(Code::Invalid) });
                Box::pin(ready(on.map(|on| targets.set_checksums(id, on)).map_err(crate::Error::Refused)))
            });
            [on, Parameter::text("checksum_type", move || checksum_type(covers()).to_owned())]
        });
    }

    /// As in Lustre, 0 is for ever.
    fn idle_timeout(self, id: TargetId) -> Parameter<'a, Setting<'a>> {
        let (resting, ost) = (&self.admin.shared.resting, DataTarget::try_from(id));
        let seconds = move || {
            let idle_max = ost.ok().and_then(|ost| resting.idle_max(ost));
            idle_max.map_or(0, |idle_max| idle_max.as_secs())
        };
        let set = move |text: &str| -> Setting<'a> {
            let seconds = text.trim().parse::<u32>().ok().filter(|seconds| *seconds < u32::MAX);
            Box::pin(async move {
                let (Some(seconds), Ok(ost)) = (seconds, ost) else { return Err(Code::Invalid.into()) };
                resting.set_idle_max(ost, (seconds > 0).then(|| Duration::from_secs(seconds.into())));
                Ok(())
            })
        };
        Parameter::gauge("idle_timeout", Unit::Seconds, seconds).settable(IDLE, set)
    }

    /// Reads and writes apart. Those that are under way when it is set end by themselves.
    fn in_flight_in(self, id: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let Some(made) = self.admin.shared.targets.made(id) else { return };
        tree.of_session(id, || {
            let of = made.clone();
            let most = Parameter::gauge("max_rpcs_in_flight", Unit::None, move || of.in_flight.writes.most());
            [most.settable(IN_FLIGHT, move |text: &str| -> Setting<'a> {
                let most = text.trim().parse().ok().filter(|most| (1..=IN_FLIGHT_MAX).contains(most));
                let set = most.map(|most| made.in_flight.set_most(most));
                Box::pin(ready(set.ok_or(Code::Invalid.into())))
            })]
        });
    }

    /// As in Lustre, whatever is written clears them.
    fn rpcs_in(self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let text = move || {
            let dirty =
                target.ost_index().and_then(|ost| self.admin.memory.ost_use(ost)).map_or(0, |of| of.dirty);
            self.admin
                .shared
                .targets
                .made(target)
                .map_or(String::new(), |made| made.counters.rpc_stats(target.kind, dirty))
        };
        let clear = move |_: &str| -> Setting<'a> {
            if let Some(made) = self.admin.shared.targets.made(target) {
                made.counters.clear_rpc_stats();
            }
            Box::pin(ready(Ok(())))
        };
        tree.of_session(target, || [Parameter::histogram("rpc_stats", text).settable(CLEARS, clear)]);
    }

    /// The same.
    fn times_in(self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let Some(made) = self.admin.shared.targets.made(target) else { return };
        tree.of_session(target, || {
            let of = made.clone();
            let clear = move |_: &str| -> Setting<'a> {
                made.counters.clear_stats();
                Box::pin(ready(Ok(())))
            };
            [Parameter::histogram("stats", move || of.counters.stats()).settable(CLEARS, clear)]
        });
    }

    fn timeouts(self, target: TargetId) -> String {
        let now_s = u64::try_from(self.admin.shared.rt.wall().secs).unwrap_or(0);
        let made = self.admin.shared.targets.made(target);
        made.map_or(String::new(), |made| answers::timeouts(&made.state().answers, now_s))
    }
}

/// What stands for the data on its way, in Lustre's brackets.
fn checksum_type(covers: Option<Protection>) -> &'static str {
    if covers.is_some() { "crc32c [mac]" } else { "[crc32c] mac" }
}
