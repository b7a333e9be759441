//! `import` and `state` of each session, in Lustre's form (`ptlrpc_import_seq_show`): how a target is reached, and what is under way.

use proto::parameters::device_name;
use proto::wire::messages::{
    FEATURE_BASE, FEATURE_BATCH, FEATURE_JOBS, FEATURE_LOCKS, FEATURE_OVERSTRIPING, FEATURE_STATED_OPENS,
};
use proto::{Nid, TargetId};
use rpc::{ImportState, LinkState};

use super::Admin;

/// What both sides of a session can do (docs/wire.md#features).
const FEATURES: [(u64, &str); 6] = [
    (FEATURE_BASE, "base"),
    (FEATURE_OVERSTRIPING, "overstriping"),
    (FEATURE_LOCKS, "locks"),
    (FEATURE_BATCH, "batch"),
    (FEATURE_JOBS, "jobs"),
    (FEATURE_STATED_OPENS, "stated_opens"),
];

/// A session as it is.
struct Session {
    features: u64,
    /// Newest change that the target has answered.
    newest: u64,
    state: ImportState,
}

fn session(admin: &Admin, id: TargetId) -> Option<Session> {
    let made = admin.shared.targets.made(id)?;
    Some(Session { features: made.features(), newest: made.newest().0, state: made.state() })
}

/// `import` of the session with a target.
pub(super) fn import(admin: &Admin, id: TargetId) -> String {
    let (name, nids) = admin.with_config(|config| {
        let nids = config.target(id).map_or(Vec::new(), |entry| entry.nids.clone());
        (device_name(config.fsname(), id), nids)
    });
    text(&name, &nids, session(admin, id).as_ref())
}

/// `state` of the session with a target.
pub(super) fn state(admin: &Admin, id: TargetId) -> String {
    format!("current_state: {}", state_of(session(admin, id).as_ref()))
}

/// The text of `import`. `name`: of the target.
fn text(name: &str, nids: &[Nid], session: Option<&Session>) -> String {
    let features = session.map_or(0, |session| session.features);
    let features: Vec<&str> =
        FEATURES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| *name).collect();
    let nids: Vec<String> = nids.iter().map(|nid| format!("\"{nid}\"")).collect();
    let state = session.map(|session| &session.state);
    let current = match state.map(|state| &state.link) {
        Some(LinkState::Connected(addr)) => format!("\"{addr}@tcp\""),
        Some(LinkState::InProcess) => "\"0@lo\"".to_owned(),
        _ => "<none>".to_owned(),
    };
    let (evictions, in_flight, kept, kept_bytes, committed) = state.map_or((0, 0, 0, 0, 0), |state| {
        let ImportState { evictions, in_flight, retained_count, retained_bytes, last_committed, .. } = state;
        (*evictions, *in_flight, *retained_count, *retained_bytes, last_committed.0)
    });
    let service = state.map_or(0, |state| state.answers.current.as_millis().div_ceil(1000));
    let problem = state.and_then(|state| state.problem.as_ref());
    let problem = problem.map_or(String::new(), |problem| format!("       problem: {problem:?}\n"));
    format!(
        "\
import:
    target: {name}_UUID
    state: {}
    connect_flags: [ {} ]
    connection:
       failover_nids: [ {} ]
       current_connection: {current}
{problem}       evictions: {evictions}
    rpcs:
       inflight: {in_flight}
       kept_for_replay: {kept}
       kept_bytes: {kept_bytes}
    service_estimates:
       services: {service} sec
    transactions:
       last_replay: {}
       peer_committed: {committed}",
        state_of(session),
        features.join(", "),
        nids.join(", "),
        session.map_or(0, |session| session.newest),
    )
}

/// Lustre's word for how a session is.
fn state_of(session: Option<&Session>) -> &'static str {
    match session.map(|session| &session.state.link) {
        None | Some(LinkState::Idle) => "IDLE",
        Some(LinkState::Connecting) => "CONNECTING",
        Some(LinkState::InProcess | LinkState::Connected(_)) => "FULL",
        Some(LinkState::Closed) => "CLOSED",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::Transno;
    use proto::session::Estimated;
    use rt::net::Addr;

    use super::*;

    #[test]
    fn an_import_is_lustres() {
        let nids = ["10.1.1.2@tcp", "10.1.1.3@tcp"].map(|nid| nid.parse().expect("it is one"));
        let answers = Estimated {
            current: Duration::from_millis(1_200),
            worst: Duration::ZERO,
            worst_ago: Duration::ZERO,
            parts: [Duration::ZERO; 4],
        };
        let state = ImportState {
            link: LinkState::Connected(Addr("10.1.1.3:7988".into())),
            problem: None,
            in_flight: 2,
            retained_count: 3,
            retained_bytes: 4096,
            last_committed: Transno(17),
            evictions: 1,
            answers,
        };
        let mut session = Session { features: FEATURE_BASE | FEATURE_JOBS, newest: 20, state };
        let expected = "\
import:
    target: w-OST0001_UUID
    state: FULL
    connect_flags: [ base, jobs ]
    connection:
       failover_nids: [ \"10.1.1.2@tcp\", \"10.1.1.3@tcp\" ]
       current_connection: \"10.1.1.3:7988@tcp\"
       evictions: 1
    rpcs:
       inflight: 2
       kept_for_replay: 3
       kept_bytes: 4096
    service_estimates:
       services: 2 sec
    transactions:
       last_replay: 20
       peer_committed: 17";
        assert_eq!(text("w-OST0001", &nids, Some(&session)), expected);
        session.state.link = LinkState::Connecting;
        session.state.problem = Some("it says \"no\"".into());
        let shown = text("w-OST0001", &nids, Some(&session));
        assert!(shown.contains("state: CONNECTING\n"), "{shown}");
        let gone = "       current_connection: <none>\n       problem: \"it says \\\"no\\\"\"\n";
        assert!(shown.contains(gone), "{shown}");
        let unused = text("w-OST0001", &nids, None);
        assert!(unused.contains("state: IDLE\n    connect_flags: [  ]\n"), "{unused}");
    }
}
