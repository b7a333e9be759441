//! `mgs.MGS.live.FSNAME` in Lustre's format: the targets, and how clients hear of what is new (imperative recovery).
//!
//! Every client that holds anything has a question for a newer configuration waiting here, so all hear at once of a target that is new or has
//! moved. How long that takes is counted from when the change was durable to when the last of the questions that waited then
//! was answered.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::Config;
use rt::{Rt, Time};

/// After its start the MGS may not have heard of all clients for so long: as long as a lease lasts.
const STARTUP: Duration = Duration::from_millis(proto::lease::TTL_MS as u64);

/// Who waits for news, and how long they took to get them.
pub(super) struct Notices {
    rt: Rt,
    began: Time,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers of the questions that wait.
    waiting: BTreeSet<u64>,
    next: u64,
    round: Option<Round>,
    total: Duration,
    max: Duration,
    count: u64,
}

/// News are being told.
struct Round {
    began: Time,
    /// Questions with a smaller number waited when they came.
    until: u64,
    left: usize,
}

/// A question that waits; dropped when it is answered.
pub(super) struct Waiting<'a> {
    notices: &'a Notices,
    number: u64,
}

impl Notices {
    pub fn new(rt: &Rt) -> Notices {
        Notices { rt: rt.clone(), began: rt.now(), state: Mutex::default() }
    }

    /// A question begins to wait.
    pub fn wait(&self) -> Waiting<'_> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number);
        Waiting { notices: self, number }
    }

    /// There are news: all who wait are told.
    pub fn news(&self) {
        let now = self.rt.now();
        let mut state = self.state.lock();
        state.count += 1;
        let (until, left) = (state.next, state.waiting.len());
        // Who has not been told of the news before is told of both.
        let began = state.round.as_ref().map_or(now, |round| round.began);
        state.round = (left > 0).then_some(Round { began, until, left });
    }

    /// Counts anew.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        (state.total, state.max, state.count) = (Duration::ZERO, Duration::ZERO, 0);
    }

    /// The text of `live.FSNAME`.
    pub fn text(&self, config: &Config) -> String {
        let (fsname, version) = (&config.fsname, config.version);
        let mut text = String::new();
        // Writing into a string cannot fail. There are no flags.
        let _ = writeln!(text, "fsname: {fsname}\nflags: 0     gen: {version}");
        for entry in &config.targets {
            let _ = writeln!(text, "{fsname}-{}", entry.target);
        }
        text.push_str("\nSecure RPC Config Rules:\n\nimperative_recovery_state:\n");
        let state = self.state.lock();
        let stage = if self.rt.now() < self.began + STARTUP { "STARTUP" } else { "FULL" };
        let seconds = |time: Duration| format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
        let _ = writeln!(text, "    state: {stage}");
        // There are no clients that know nothing of this.
        let _ = writeln!(text, "    nonir_clients: 0");
        let _ = writeln!(text, "    nidtbl_version: {version}");
        let _ = writeln!(text, "    notify_duration_total: {}", seconds(state.total));
        // Spelt as in Lustre.
        let _ = writeln!(text, "    notify_duation_max: {}", seconds(state.max));
        let _ = write!(text, "    notify_count: {}", state.count);
        text
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.notices.rt.now();
        let mut state = self.notices.state.lock();
        state.waiting.remove(&self.number);
        let Some(round) = state.round.as_mut().filter(|round| self.number < round.until) else { return };
        round.left -= 1;
        if round.left > 0 {
            return;
        }
        let took = now - round.began;
        state.total += took;
        state.max = state.max.max(took);
        state.round = None;
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::TargetEntry;
    use proto::{ClientId, TargetId};
    use rt::sim::{Options, Sim};

    use super::*;

    fn config() -> Config {
        let entry = |target| {
            let (uuid, nids, server) = (ClientId(1), Vec::new(), String::new());
            TargetEntry { target, uuid, nids, server, replaces: false }
        };
        let targets = vec![entry(TargetId::mdt(0)), entry(TargetId::ost(0x1f))];
        Config { version: 9, targets, ..Config::empty("w") }
    }

    /// `mgs_live_seq_show` and `lprocfs_rd_ir_state` of Lustre 2.17.
    #[test]
    fn the_format_is_lustres_and_news_are_timed() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("mgs");
        let notices = Notices::new(&rt);
        assert!(notices.text(&config()).contains("    state: STARTUP\n    nonir_clients: 0\n"));
        sim.run(rt.sleep(STARTUP));
        let (client, server) = (notices.wait(), notices.wait());
        notices.news();
        let later = notices.wait();
        sim.run(rt.sleep(Duration::from_millis(2)));
        drop(client);
        // Who came later is not waited for.
        drop(later);
        sim.run(rt.sleep(Duration::from_micros(1)));
        drop(server);
        assert!(notices.text(&config()).contains("_total: 0.002001000\n"));
        notices.clear();
        let client = notices.wait();
        notices.news();
        sim.run(rt.sleep(Duration::from_millis(3)));
        drop(client);
        assert_eq!(
            notices.text(&config()),
            "\
fsname: w
flags: 0     gen: 9
w-MDT0000
w-OST001f

Secure RPC Config Rules:

imperative_recovery_state:
    state: FULL
    nonir_clients: 0
    nidtbl_version: 9
    notify_duration_total: 0.003000000
    notify_duation_max: 0.003000000
    notify_count: 1"
        );
    }

    #[test]
    fn news_take_until_the_last_one_who_waited_is_told() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("mgs");
        let notices = Notices::new(&rt);
        let ends = |text: &str, end: &str| assert!(text.ends_with(end), "{text}");
        notices.news();
        ends(&notices.text(&config()), "_max: 0.000000000\n    notify_count: 1");
        let waiting = [notices.wait(), notices.wait()];
        notices.news();
        for one in waiting {
            sim.run(rt.sleep(Duration::from_millis(1)));
            notices.wait();
            drop(one);
        }
        ends(&notices.text(&config()), "_max: 0.002000000\n    notify_count: 2");
        let slow = notices.wait();
        notices.news();
        sim.run(rt.sleep(Duration::from_millis(1)));
        notices.news();
        drop(slow);
        ends(
            &notices.text(&config()),
            "_total: 0.003000000\n    notify_duation_max: 0.002000000\n    notify_count: 4",
        );
    }
}
