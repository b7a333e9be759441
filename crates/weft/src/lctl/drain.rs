//! `lctl drain`: a client gives back all that it holds.
//!
//! Each target that is reached asks the client for everything, and says what it believes that the client holds then.

use std::collections::BTreeMap;

use proto::wire::messages as msg;
use proto::{ClientId, Code, TargetKind, Whom};
use rpc::AskError;

use super::orders::{self, refused};
use super::reach::Reach;
use crate::failure::Outcome;

/// What a client has left.
#[derive(Debug, Default)]
struct Left {
    nid: String,
    /// Targets at which it holds locks, and how many.
    locks: Vec<(String, u32)>,
    /// Targets that it did not answer.
    silent: Vec<String>,
    unsent_bytes: u64,
    open_count: u32,
    open_files: Vec<String>,
}

/// Runs the command. Exit status 1: something is in use.
pub fn run(reach: &mut Reach, named: &str) -> Outcome {
    let Whom { client, nid } = orders::named_client(named)?;
    let mut clients: BTreeMap<ClientId, Left> = BTreeMap::new();
    let mut unanswered = false;
    for device in reach.devices.clone() {
        // What is served for one mount alone has no other client; that one is drained by "weft drain".
        if device.target.kind == TargetKind::Mgs || device.is_mounted() {
            continue;
        }
        let order = msg::DrainClient { client, nid: nid.clone() };
        match reach.ask(&device, order, orders::DRAIN_WAIT)? {
            Ok(drained) => drained.clients.into_iter().for_each(|one| note(&mut clients, &device.name, one)),
            // Nobody has a session with a target that is not served here, or not yet; and a client gives everything back,
            // whichever target asks it.
            Err(AskError::Refused(Code::NotFound | Code::NotHere)) => {}
            // The user was told.
            Err(AskError::Unanswered(_)) => unanswered = true,
            Err(error) => return Err(refused(&device, &error)),
        }
    }
    if clients.is_empty() {
        err!("error: drain: no client {named} has a session with a target that is reached from here");
        return Ok(libc::ENOENT as u8);
    }
    for (client, left) in &clients {
        out!("{}", line(*client, left));
    }
    Ok(u8::from(unanswered || !clients.values().all(Left::is_empty)))
}

fn note(clients: &mut BTreeMap<ClientId, Left>, target: &str, one: msg::DrainedClient) {
    let left = clients.entry(one.client).or_default();
    left.nid = one.nid;
    if !one.answered {
        left.silent.push(target.to_owned());
        return;
    }
    if one.locks > 0 {
        left.locks.push((target.to_owned(), one.locks));
    }
    // What the client said last counts.
    left.unsent_bytes = one.left.unsent_bytes;
    left.open_count = one.left.open_count;
    left.open_files = one.left.open_files.iter().map(ToString::to_string).collect();
}

impl Left {
    fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.silent.is_empty() && self.unsent_bytes == 0 && self.open_count == 0
    }
}

fn line(client: ClientId, left: &Left) -> String {
    let mut parts = Vec::new();
    if !left.silent.is_empty() {
        parts.push(format!("it does not answer {}", left.silent.join(", ")));
    }
    if left.unsent_bytes > 0 {
        parts.push(format!("{} bytes are not written", left.unsent_bytes));
    }
    for (target, count) in &left.locks {
        parts.push(format!("{count} locks of {target} are in use"));
    }
    if left.open_count > 0 {
        let files = left.open_files.join(" ");
        parts.push(format!("{} open files: {files}", left.open_count));
    }
    let said = if parts.is_empty() { "nothing is held any more".to_owned() } else { parts.join("; ") };
    format!("{client} at {}: {said}", left.nid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told() {
        let fid = proto::Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        let mut clients = BTreeMap::new();
        let one = |locks, answered, open_count| msg::DrainedClient {
            client: ClientId(5),
            nid: "10.0.0.7@tcp".into(),
            answered,
            locks,
            left: msg::DrainDone {
                unsent_bytes: 0,
                locks: 0,
                open_count,
                open_files: vec![fid; open_count as usize],
            },
        };
        note(&mut clients, "w-MDT0000", one(0, true, 0));
        let left = &clients[&ClientId(5)];
        let who = "00000000-0000-0000-0000-000000000005 at 10.0.0.7@tcp";
        assert_eq!(line(ClientId(5), left), format!("{who}: nothing is held any more"));
        assert!(left.is_empty());
        note(&mut clients, "w-OST0000", one(2, true, 1));
        note(&mut clients, "w-OST0001", one(0, false, 0));
        let left = &clients[&ClientId(5)];
        assert_eq!(
            line(ClientId(5), left),
            format!(
                "{who}: it does not answer w-OST0001; 2 locks of w-OST0000 are in use; 1 open files: [0x200000400:0x1:0x0]"
            )
        );
        assert!(!left.is_empty());
    }
}
