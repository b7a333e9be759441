//! What the page shows, as one JSON object.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::space::{self, Owner, Owners, Pool};
use crate::cmd::exporter::collect::{self, Most};
use crate::cmd::status::{self, Report};
use crate::failure::Failure;
use crate::lctl::params;
use crate::lctl::reach::Reach;

/// What is shown one by one of each target. Owners are shown over all targets ([`space`]).
const MOST: Most = Most { jobs: 50, owners: 0 };
/// Clients that are shown.
const CLIENTS_MAX: usize = 1000;
/// Most bytes of the text of one kind of work.
const WORK_BYTES_MAX: usize = 32 << 10;
/// Long work that there may be: checks, and what copytools do.
const WORK: &[&str] = &[
    "mdd.*.lfsck_namespace",
    "mdd.*.lfsck_layout",
    "mdd.*.lfsck_scrub",
    "mdt.*.hsm.actions",
    "mdt.*.hsm.active_requests",
];

#[derive(Serialize)]
struct State {
    host: String,
    version: &'static str,
    /// Milliseconds since 1970: rates are differences of counts by differences of this.
    asked_ms: u64,
    /// What is mounted here.
    mounts: Vec<Report>,
    /// A line for each target that is served here, where nothing is mounted.
    served: Vec<String>,
    /// Everything that is counted, in Prometheus' text.
    metrics: String,
    pools: Vec<Pool>,
    /// Whose most of the space is.
    owners: Vec<Owner>,
    clients: Vec<Client>,
    /// How many there are.
    clients_count: usize,
    work: Vec<Work>,
}

/// A client by its address.
#[derive(Serialize)]
struct Client {
    nid: String,
    /// Mounts that have a session with an MDT.
    mounts: usize,
}

#[derive(Serialize)]
struct Work {
    name: String,
    text: String,
}

/// Asks everybody who is reached.
pub fn collect(reach: &mut Reach, owners: &mut Owners) -> Result<String, Failure> {
    let mounts = status::reports()?;
    let served = if mounts.is_empty() { status::served_here(reach)? } else { Vec::new() };
    let metrics = collect::collect(reach, MOST)?;
    let mut clients = clients(reach)?;
    let clients_count = clients.len();
    clients.truncate(CLIENTS_MAX);
    let state = State {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION"),
        asked_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        mounts,
        served,
        metrics,
        pools: space::pools(reach)?,
        owners: owners.shown(reach)?,
        clients,
        clients_count,
        work: work(reach)?,
    };
    serde_json::to_string(&state).map_err(|error| Failure::new(format!("the state is no JSON: {error}")))
}

fn clients(reach: &mut Reach) -> Result<Vec<Client>, Failure> {
    let told = params::told(reach, &["mdt.*.exports.*.uuid"])?;
    let mut mounts: BTreeMap<String, usize> = BTreeMap::new();
    for (name, value) in &told.values {
        if let Some(nid) = nid_of(name) {
            *mounts.entry(nid.to_owned()).or_default() += value.lines().count();
        }
    }
    Ok(mounts.into_iter().map(|(nid, mounts)| Client { nid, mounts }).collect())
}

/// The address in `mdt.NAME.exports.NID.uuid`; it has dots itself.
fn nid_of(name: &str) -> Option<&str> {
    name.split_once(".exports.")?.1.strip_suffix(".uuid")
}

fn work(reach: &mut Reach) -> Result<Vec<Work>, Failure> {
    let told = params::told(reach, WORK)?;
    let has_begun = |text: &str| !text.trim().is_empty() && !text.contains("status: init\n");
    let values = told.values.into_iter().filter(|(_, text)| has_begun(text));
    Ok(values.map(|(name, text)| Work { name, text: shortened(text) }).collect())
}

/// What there is room for, in whole lines.
fn shortened(text: String) -> String {
    if text.len() <= WORK_BYTES_MAX {
        return text;
    }
    let mut shown = String::new();
    for line in text.lines() {
        if shown.len() + line.len() >= WORK_BYTES_MAX {
            break;
        }
        shown.push_str(line);
        shown.push('\n');
    }
    shown + "... and more"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_a_name() {
        assert_eq!(nid_of("mdt.w-MDT0000.exports.10.0.0.7@tcp.uuid"), Some("10.0.0.7@tcp"));
        assert_eq!(nid_of("mdt.w-MDT0000.num_exports"), None);
    }
}
