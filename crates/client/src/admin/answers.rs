//! How long answers take, which a client's timers follow, and which configuration it knows, as Lustre prints them.

use std::time::Duration;

use proto::session::Estimated;

/// `timeouts` of a session (`lprocfs_timeouts_seq_show`), in seconds as Lustre has them; a fraction of one is rounded up. `now_s`: the
/// time, in seconds since 1970.
pub(super) fn timeouts(answers: &Estimated, now_s: u64) -> String {
    let Estimated { current, worst, worst_ago, parts } = answers;
    let seconds = |time: &Duration| time.as_millis().div_ceil(1000);
    let ago_s = worst_ago.as_secs();
    let at = if seconds(worst) == 0 { 0 } else { now_s.saturating_sub(ago_s) };
    let parts: Vec<String> = parts.iter().map(|part| format!("{:3}", seconds(part))).collect();
    format!(
        "service    : cur {:3}  worst {:3} (at {at}, {} ago) {}",
        seconds(current),
        seconds(worst),
        ago(if at == 0 { 0 } else { ago_s }),
        parts.join(" "),
    )
}

/// As Lustre writes it: `0d0h4m59s`.
fn ago(secs: u64) -> String {
    format!("{}d{}h{}m{}s", secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60)
}

/// `ir_state` of a client: which configuration it knows. Every client hears of a newer one at once
/// (`lprocfs_mgc_rd_ir_state`).
pub(super) fn ir_state(fsname: &str, version: u64) -> String {
    format!(
        "imperative_recovery: ENABLED\nclient_state:\n    - {{ client: {fsname}-client, nidtbl_version: {version} }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_in_lustres_words() {
        let millis = Duration::from_millis;
        let mut told = Estimated {
            current: millis(40_001),
            worst: millis(100_000),
            worst_ago: Duration::from_secs(90_061),
            parts: [1, 0, 40_001, 12_000].map(millis),
        };
        assert_eq!(
            timeouts(&told, 1_700_090_061),
            "service    : cur  41  worst 100 (at 1700000000, 1d1h1m1s ago)   1   0  41  12"
        );
        (told.current, told.worst, told.parts) = (millis(0), millis(0), [millis(0); 4]);
        assert_eq!(
            timeouts(&told, 1_700_090_061),
            "service    : cur   0  worst   0 (at 0, 0d0h0m0s ago)   0   0   0   0"
        );
    }

    #[test]
    fn ir_state_is_lustres() {
        assert_eq!(
            ir_state("w", 9),
            "\
imperative_recovery: ENABLED
client_state:
    - { client: w-client, nidtbl_version: 9 }"
        );
    }
}
