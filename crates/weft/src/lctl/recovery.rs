//! `recovery_status` as Lustre prints it.

use std::fmt::Write;

use fuse::control::Configuration;
use fuse::states::{Stage, State};

/// The text of `recovery_status`: Lustre's keys in Lustre's order, `lock_repay_clients` spelt as scripts know it.
pub fn status(state: &State) -> String {
    let recovery = &state.recovery;
    let mut text = String::new();
    let stage = match recovery.stage {
        Stage::Inactive => "INACTIVE",
        Stage::Waiting => "WAITING_FOR_CLIENTS",
        Stage::Recovering => "RECOVERING",
        Stage::Complete => "COMPLETE",
        Stage::Unknown => "UNKNOWN",
    };
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{key}: {value}");
    };
    line("status", &stage);
    match recovery.stage {
        Stage::Inactive | Stage::Waiting | Stage::Unknown => {}
        Stage::Recovering => {
            line("recovery_start", &recovery.began_s);
            line("time_remaining", &recovery.remaining_s);
            line("connected_clients", &format!("{}/{}", recovery.connected, recovery.expected));
            line("req_replay_clients", &recovery.replaying);
            line("lock_repay_clients", &recovery.unfinished);
            line("completed_clients", &recovery.completed);
            line("evicted_clients", &recovery.evicted);
            line("replayed_requests", &recovery.replayed);
            line("queued_requests", &recovery.queued);
            line("next_transno", &recovery.next_transno);
        }
        Stage::Complete => {
            line("recovery_start", &recovery.began_s);
            line("recovery_duration", &recovery.duration_s);
            line("completed_clients", &format!("{}/{}", recovery.completed, recovery.expected));
            line("replayed_requests", &recovery.replayed);
            line("last_transno", &recovery.next_transno.saturating_sub(1));
            line("VBR", &enabled(state.versions));
            // Of a start in place nobody tells clients: they find out by trying.
            line("IR", &enabled(state.told));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// `ir_state` of a client: which configuration it knows. Every client hears of a newer one at once
/// (`lprocfs_mgc_rd_ir_state`).
pub fn ir_state(config: &Configuration) -> String {
    let Configuration { fsname, version, .. } = config;
    format!(
        "imperative_recovery: ENABLED\nclient_state:\n    - {{ client: {fsname}-client, nidtbl_version: {version} }}"
    )
}

fn enabled(is: bool) -> &'static str {
    if is { "ENABLED" } else { "DISABLED" }
}

#[cfg(test)]
mod tests {
    use fuse::states::Recovery;

    use super::*;

    fn sample(stage: Stage) -> State {
        let recovery = Recovery {
            stage,
            began_s: 1_620_919_072,
            duration_s: 31,
            remaining_s: 119,
            expected: 8,
            connected: 4,
            replaying: 1,
            unfinished: 0,
            completed: 3,
            evicted: 0,
            replayed: 3,
            queued: 0,
            next_transno: 4_294_967_297,
        };
        State { recovery, sessions: 8, ..State::default() }
    }

    #[test]
    fn ir_state_is_lustres() {
        let config = Configuration { fsname: "w".into(), version: 9, targets: Vec::new(), more: false };
        assert_eq!(
            ir_state(&config),
            "\
imperative_recovery: ENABLED
client_state:
    - { client: w-client, nidtbl_version: 9 }"
        );
    }

    /// `lprocfs_recovery_status_seq_show` of Lustre 2.15 and later.
    #[test]
    fn the_keys_are_lustres() {
        assert_eq!(status(&sample(Stage::Inactive)), "status: INACTIVE");
        assert_eq!(status(&sample(Stage::Waiting)), "status: WAITING_FOR_CLIENTS");
        assert_eq!(
            status(&sample(Stage::Recovering)),
            "\
status: RECOVERING
recovery_start: 1620919072
time_remaining: 119
connected_clients: 4/8
req_replay_clients: 1
lock_repay_clients: 0
completed_clients: 3
evicted_clients: 0
replayed_requests: 3
queued_requests: 0
next_transno: 4294967297"
        );
        let mut complete = sample(Stage::Complete);
        (complete.recovery.completed, complete.recovery.replayed) = (8, 0);
        assert_eq!(
            status(&complete),
            "\
status: COMPLETE
recovery_start: 1620919072
recovery_duration: 31
completed_clients: 8/8
replayed_requests: 0
last_transno: 4294967296
VBR: DISABLED
IR: DISABLED"
        );
        (complete.told, complete.versions) = (true, true);
        assert!(status(&complete).ends_with("\nVBR: ENABLED\nIR: ENABLED"));
    }
}
