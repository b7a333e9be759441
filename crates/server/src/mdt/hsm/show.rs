//! Parameters of the coordinator, with Lustre's names: `mdt.*.hsm_control`, `mdt.*.hsm.*`.

use std::sync::atomic::{AtomicU32, Ordering};

use proto::Code;
use proto::hsm::{ARCHIVE_MAX, ActionState};
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::wire::messages::HSM_ACTIONS_MAX;

use store::Change;

use super::super::keys;
use super::table::{How, Shown};
use super::{Control, Hsm, is_over};

/// Most actions that one value shows.
const SHOWN_MAX: usize = 500;
/// Words that `hsm_control` takes.
const CONTROLS: &str = "write enabled, disabled, shutdown or purge, which cancels all actions";

impl Hsm {
    /// As Lustre has them.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let control = Parameter::text("hsm_control", || self.state.lock().control.word());
        tree.of_device(control.settable(CONTROLS, |text: &str| self.control(text)));
        tree.of_device(Parameter::text("hsm.actions", || self.actions(|_| true)));
        tree.of_device(Parameter::text("hsm.active_requests", || {
            self.actions(|shown| !is_over(shown.state))
        }));
        tree.of_device(Parameter::text("hsm.agents", || self.agents()));
        let counts = || self.state.lock().table.counts();
        tree.of_device(Parameter::gauge("hsm.waiting", Unit::None, move || counts().0));
        tree.of_device(Parameter::gauge("hsm.running", Unit::None, move || counts().1));
        let archive = number("hsm.default_archive_id", &self.default_archive, (1, ARCHIVE_MAX));
        tree.of_device(archive);
        tree.of_device(number("hsm.max_requests", &self.max_requests, (1, HSM_ACTIONS_MAX)));
    }

    fn control(&self, text: &str) -> Result<(), Code> {
        let mut state = self.state.lock();
        match text.trim() {
            "enabled" => state.control = Control::Enabled,
            "disabled" => state.control = Control::Disabled,
            "shutdown" | "stopped" => state.control = Control::Stopped,
            "purge" => {
                let all: Vec<u64> = state
                    .table
                    .all()
                    .filter(|shown| !is_over(shown.state))
                    .map(|shown| shown.item.cookie)
                    .collect();
                let remove = |cookie: &u64| Change { key: keys::hsm_action(*cookie), value: None };
                self.commit(all.iter().map(remove).collect())?;
                let now = self.rt.now();
                all.into_iter().for_each(|cookie| {
                    state.table.end(cookie, How::Canceled, now);
                });
            }
            _ => return Err(Code::Invalid),
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Lines as Lustre's, without what its log has in front.
    fn actions(&self, wanted: impl Fn(&Shown) -> bool) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        for shown in state.table.all().filter(wanted).take(SHOWN_MAX) {
            text += &line(&shown);
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// `uuid=... archive_id=1 requests=[current:2]`
    fn agents(&self) -> String {
        let state = self.state.lock();
        let line = |(name, archives, has): (&str, &[u32], usize)| {
            let archives: Vec<String> = archives.iter().map(u32::to_string).collect();
            let archives = if archives.is_empty() { "ANY".to_owned() } else { archives.join(",") };
            format!("uuid={name} archive_id={archives} requests=[current:{has}]")
        };
        let lines: Vec<String> = state.table.agents().map(line).collect();
        lines.join("\n")
    }
}

fn line(shown: &Shown) -> String {
    let item = &shown.item;
    format!(
        "fid={} dfid={} cookie={:#x} action={} archive#={} flags=0x0 extent=0x0-0xffffffffffffffff gid=0x0 data=[] status={}{}\n",
        item.fid,
        item.fid,
        item.cookie,
        item.action,
        item.archive,
        shown.state.word(),
        match shown.state {
            ActionState::Started => format!(" agent={} copied={}", shown.agent, shown.done),
            ActionState::Failed => shown.code.map_or_else(String::new, |code| format!(" why={code}")),
            _ => String::new(),
        }
    )
}

/// A number that can be set within bounds.
fn number<'a>(name: &'static str, value: &'a AtomicU32, (least, most): (u32, u32)) -> Parameter<'a> {
    let shown = Parameter::gauge(name, Unit::None, || value.load(Ordering::Relaxed));
    shown.settable(format!("a number from {least} to {most}"), move |text: &str| {
        let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
        value.store(number.ok_or(Code::Invalid)?, Ordering::Relaxed);
        Ok(())
    })
}

impl Control {
    fn word(self) -> &'static str {
        match self {
            Control::Enabled => "enabled",
            Control::Disabled => "disabled",
            Control::Stopped => "stopped",
        }
    }
}
