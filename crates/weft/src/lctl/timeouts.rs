//! `timeouts` of a client's sessions as Lustre prints it (`lprocfs_timeouts_seq_show`): how long answers take, which its timers follow.

use fuse::imports::Import;

/// The text, in seconds as Lustre has them; a fraction of one is rounded up.
pub fn of(import: &Import, now_s: u64) -> String {
    let seconds = |ms: u64| ms.div_ceil(1000);
    let at = if import.worst_ms == 0 { 0 } else { now_s.saturating_sub(import.worst_ago_s) };
    let parts: Vec<String> = import.parts_ms.iter().map(|ms| format!("{:3}", seconds(*ms))).collect();
    format!(
        "service    : cur {:3}  worst {:3} (at {at}, {} ago) {}",
        seconds(import.current_ms),
        seconds(import.worst_ms),
        ago(if at == 0 { 0 } else { import.worst_ago_s }),
        parts.join(" "),
    )
}

/// As Lustre writes it: `0d0h4m59s`.
fn ago(secs: u64) -> String {
    format!("{}d{}h{}m{}s", secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuse::control::Kind;

    #[test]
    fn in_lustres_words() {
        let mut import = Import {
            kind: Kind::Ost,
            index: 3,
            current_ms: 40_001,
            worst_ms: 100_000,
            worst_ago_s: 90_061,
            parts_ms: vec![1, 0, 40_001, 12_000],
        };
        assert_eq!(
            of(&import, 1_700_090_061),
            "service    : cur  41  worst 100 (at 1700000000, 1d1h1m1s ago)   1   0  41  12"
        );
        (import.current_ms, import.worst_ms, import.parts_ms) = (0, 0, vec![0; 4]);
        assert_eq!(
            of(&import, 1_700_090_061),
            "service    : cur   0  worst   0 (at 0, 0d0h0m0s ago)   0   0   0   0"
        );
    }
}
