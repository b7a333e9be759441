//! `recovery_status` as Lustre prints it.

use std::fmt::Write;

use fuse::states::{Recovery, Stage};

/// The text of `recovery_status`: Lustre's keys in Lustre's order, `lock_repay_clients` spelt as scripts know it.
pub fn status(recovery: &Recovery) -> String {
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
            // Nothing is replayed past a gap that a missing client left.
            line("VBR", &"DISABLED");
            // Nobody tells clients of a start in place: they find out by trying.
            line("IR", &"DISABLED");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stage: Stage) -> Recovery {
        Recovery {
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
        }
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
        let complete = Recovery { completed: 8, replayed: 0, ..sample(Stage::Complete) };
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
    }
}
