//! What an administrator sees and sets of a client, by Lustre's names: what a mount caches (`llite.*`), what it has written to each
//! OST (`osc.*`), what it holds of each target (`ldlm.namespaces.*`), how long answers take, and which configuration it knows.
//! What is set holds for as long as the mount does.

use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use proto::parameters::{CLEARS, ClientTree, Parameter, SWITCH, Unit, size, switch};
use proto::{Code, DataTarget, TargetId};

use super::Admin;
use super::answers;
use crate::Result;

/// What `max_rpcs_in_flight` takes, as in Lustre.
const IN_FLIGHT_MAX: usize = 256;
const IN_FLIGHT: &str = "write a number from 1 to 256";
/// What `idle_timeout` takes.
const IDLE: &str = "write seconds, up to 4294967294; 0 for never";

/// What setting a parameter of a client gives: something that has to be waited for.
pub type Setting<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl Admin {
    /// Registers all that a client has.
    pub fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        self.memory.parameters(tree);
        self.read_ahead_in(tree);
        self.statahead_in(tree);
        self.ahead_in(tree);
        self.counting_in(tree);
        self.switches_in(tree);
        self.imports_in(tree);
        let targets: Vec<TargetId> = self.shared.targets.sessions().into_keys().collect();
        for target in &targets {
            self.locks.parameters(*target, tree);
            if let Some(ost) = target.ost_index() {
                self.memory.parameters_of(ost, tree);
                self.in_flight_in(*target, tree);
            }
            self.rpcs_in(*target, tree);
            self.times_in(*target, tree);
        }
        for target in targets {
            tree.of_session(target, || [Parameter::text("timeouts", move || self.timeouts(target))]);
        }
        tree.of_mgs(Parameter::text("ir_state", || {
            self.with_config(|config| answers::ir_state(config.fsname(), config.version()))
        }));
    }

    /// Of every OST, whether it was used or not.
    fn switches_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let targets = &self.shared.targets;
        let osts: Vec<TargetId> = self.with_config(|config| {
            let all = config.targets().map(|entry| entry.target);
            all.filter(|id| id.ost_index().is_some()).collect()
        });
        for id in osts {
            tree.of_session(id, || {
                let active = Parameter::gauge("active", Unit::None, move || u8::from(targets.is_active(id)));
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

    /// As in Lustre, 0 is for ever.
    fn idle_timeout<'a>(&'a self, id: TargetId) -> Parameter<'a, Setting<'a>> {
        let (resting, ost) = (&self.shared.resting, DataTarget::try_from(id));
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
    fn in_flight_in<'a>(&'a self, id: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let Some(made) = self.shared.targets.made(id) else { return };
        tree.of_session(id, || {
            let of = made.clone();
            let most = Parameter::gauge("max_rpcs_in_flight", Unit::None, move || of.writes.most());
            [most.settable(IN_FLIGHT, move |text: &str| -> Setting<'a> {
                let most = text.trim().parse().ok().filter(|most| (1..=IN_FLIGHT_MAX).contains(most));
                let set = most.map(|most| made.set_rpcs_in_flight_max(most));
                Box::pin(ready(set.ok_or(Code::Invalid.into())))
            })]
        });
    }

    /// As in Lustre, whatever is written clears them.
    fn rpcs_in<'a>(&'a self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let text = move || {
            let dirty = target.ost_index().and_then(|ost| self.memory.ost_use(ost)).map_or(0, |of| of.dirty);
            self.shared.targets.made(target).map_or(String::new(), |made| made.rpc_stats(dirty))
        };
        let clear = move |_: &str| -> Setting<'a> {
            if let Some(made) = self.shared.targets.made(target) {
                made.clear_rpc_stats();
            }
            Box::pin(ready(Ok(())))
        };
        tree.of_session(target, || [Parameter::histogram("rpc_stats", text).settable(CLEARS, clear)]);
    }

    /// The same.
    fn times_in<'a>(&'a self, target: TargetId, tree: &mut ClientTree<'a, Setting<'a>>) {
        let Some(made) = self.shared.targets.made(target) else { return };
        tree.of_session(target, || {
            let of = made.clone();
            let clear = move |_: &str| -> Setting<'a> {
                made.clear_stats();
                Box::pin(ready(Ok(())))
            };
            [Parameter::histogram("stats", move || of.stats()).settable(CLEARS, clear)]
        });
    }

    fn timeouts(&self, target: TargetId) -> String {
        let now_s = u64::try_from(self.shared.rt.wall().secs).unwrap_or(0);
        let made = self.shared.targets.made(target);
        made.map_or(String::new(), |made| answers::timeouts(&made.state().answers, now_s))
    }
}

/// In MiB, rounded up.
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// A number of bytes: `64` is in MiB, `1G` says its unit, `10%` is a part of `most`. A name before it, as in what is printed, is left out.
pub(super) fn bytes(text: &str, most: u64) -> Option<u64> {
    let text = text.trim().trim_start_matches("max_cached_mb:").trim();
    if let Some(part) = text.strip_suffix('%') {
        let part: u64 = part.parse().ok().filter(|part| *part <= 100)?;
        return Some(most / 100 * part);
    }
    size(text, 20)
}
