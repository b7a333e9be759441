//! `recovery_status` as Lustre prints it.

use std::fmt::Write;

use proto::wire::messages as msg;

/// The text of `recovery_status`: Lustre's keys in Lustre's order, `lock_repay_clients` spelt as scripts know it.
pub(crate) fn text(state: &msg::TargetState) -> String {
    let recovery = &state.recovery;
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{key}: {value}");
    };
    match recovery.state {
        msg::RECOVERY_INACTIVE => line("status", &"INACTIVE"),
        msg::RECOVERY_WAITING => line("status", &"WAITING_FOR_CLIENTS"),
        msg::RECOVERY_COMPLETE => {
            line("status", &"COMPLETE");
            line("recovery_start", &recovery.began_s);
            line("recovery_duration", &recovery.duration_s);
            line("completed_clients", &format!("{}/{}", recovery.completed, recovery.expected));
            line("replayed_requests", &recovery.replayed);
            line("last_transno", &recovery.next_transno.0.saturating_sub(1));
            line("VBR", &enabled(state.flags & msg::STATE_VERSIONS != 0));
            // Of a start in place nobody tells clients: they find out by trying.
            line("IR", &enabled(state.flags & msg::STATE_TOLD != 0));
        }
        _ => {
            line("status", &"RECOVERING");
            line("recovery_start", &recovery.began_s);
            line("time_remaining", &recovery.remaining_s);
            line("connected_clients", &format!("{}/{}", recovery.connected, recovery.expected));
            line("req_replay_clients", &recovery.replaying);
            line("lock_repay_clients", &recovery.unfinished);
            line("completed_clients", &recovery.completed);
            line("evicted_clients", &recovery.evicted);
            line("replayed_requests", &recovery.replayed);
            line("queued_requests", &recovery.queued);
            line("next_transno", &recovery.next_transno.0);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn enabled(is: bool) -> &'static str {
    if is { "ENABLED" } else { "DISABLED" }
}

#[cfg(test)]
mod tests {
    use proto::Transno;

    use super::*;

    fn sample(state: u8) -> msg::TargetState {
        let recovery = msg::RecoveryReport {
            state,
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
            next_transno: Transno(4_294_967_297),
        };
        let (problems, missing) = (Vec::new(), Vec::new());
        msg::TargetState { recovery, sessions: 8, problems, missing, missing_count: 0, flags: 0 }
    }

    /// `lprocfs_recovery_status_seq_show` of Lustre 2.15 and later.
    #[test]
    fn the_keys_are_lustres() {
        assert_eq!(text(&sample(msg::RECOVERY_INACTIVE)), "status: INACTIVE");
        assert_eq!(text(&sample(msg::RECOVERY_WAITING)), "status: WAITING_FOR_CLIENTS");
        assert_eq!(
            text(&sample(msg::RECOVERY_RUNNING)),
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
        let mut complete = sample(msg::RECOVERY_COMPLETE);
        (complete.recovery.completed, complete.recovery.replayed) = (8, 0);
        assert_eq!(
            text(&complete),
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
        complete.flags = msg::STATE_TOLD | msg::STATE_VERSIONS;
        assert!(text(&complete).ends_with("\nVBR: ENABLED\nIR: ENABLED"));
    }
}
