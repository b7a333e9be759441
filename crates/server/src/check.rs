//! The checker of a stopped target: the store's, and of an MDT also whether names and inodes fit together.

use proto::TargetKind;
use rt::Rt;
use store::check::{Depth, FINDINGS_MAX, Report, check_with};
use store::{Scan, StoreError};

use crate::mdt::NamespaceCheck;

/// Keys that are read in one go.
const KEYS_AT_A_TIME: usize = 4096;

/// Checks the target in `path`, which nobody may serve.
///
/// # Errors
/// Nothing could be checked: `WouldBlock` if it is in use, `NotATarget` if there is none.
pub async fn check_target(rt: &Rt, path: &str, depth: Depth) -> Result<Report, StoreError> {
    check_with(rt, path, depth, check_keys).await
}

fn check_keys(scan: &dyn Scan, report: &mut Report) -> Result<(), StoreError> {
    if report.label.as_ref().is_none_or(|label| label.target.kind != TargetKind::Mdt) {
        return Ok(());
    }
    let mut check = NamespaceCheck::default();
    let mut goes_on = true;
    // A target that never served has no root yet, and nothing else.
    while goes_on && report.findings.len() < FINDINGS_MAX {
        goes_on = check.step(scan, KEYS_AT_A_TIME)?;
        check.found.drain(..).for_each(|found| report.find(found));
    }
    Ok(())
}
