//! What a client knows of recoveries, as Lustre prints it.

use fuse::control::Configuration;

/// `ir_state` of a client: which configuration it knows. Every client hears of a newer one at once
/// (`lprocfs_mgc_rd_ir_state`).
pub fn ir_state(config: &Configuration) -> String {
    let Configuration { fsname, version, .. } = config;
    format!(
        "imperative_recovery: ENABLED\nclient_state:\n    - {{ client: {fsname}-client, nidtbl_version: {version} }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
