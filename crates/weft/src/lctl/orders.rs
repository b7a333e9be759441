//! Orders to targets: what needs the servers' key.

use std::time::Duration;

use fuse::parameters::PARAMETER_OF;
use fuse::session::MountEntry;
use proto::wire::messages as msg;
use proto::{Code, Whom};
use rpc::AskError;

use super::reach::{Device, Reach};
use crate::ask;
use crate::failure::Failure;

/// How long a target may take for an order that it carries out at once.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// How long a client may take to write what it has not written, for each target that asks it.
pub const DRAIN_WAIT: Duration = Duration::from_secs(600);
/// How long those who are back may replay after a recovery was cut short.
const ABORT_WAIT: Duration = Duration::from_secs(300);

/// Ends the recovery of a target; comes back when it is over.
pub fn abort_recovery(reach: &mut Reach, device: &Device) -> Result<(), Failure> {
    let answer = reach.ask(device, msg::AbortRecovery {}, ABORT_WAIT)?;
    answer.map(|_| ()).map_err(|error| refused(device, &error))
}

/// Whether a parameter was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// It was.
    Done,
    /// It does not take the value.
    Refused,
    /// There is nothing that the value names.
    NotFound,
}

/// Sets a parameter of a target.
pub fn set(reach: &mut Reach, device: &Device, name: &str, value: &str) -> Result<Set, Failure> {
    if let Some(mount) = device.mount() {
        return set_at_mount(mount, device, name, value);
    }
    let parameter = msg::Parameter { name: name.to_owned(), value: value.to_owned() };
    match reach.ask(device, msg::SetParameters { parameters: vec![parameter] }, ORDER_WAIT)? {
        Ok(_) => Ok(Set::Done),
        Err(AskError::Refused(Code::Invalid)) => Ok(Set::Refused),
        Err(AskError::Refused(Code::NotFound)) => Ok(Set::NotFound),
        Err(error) => Err(refused(device, &error)),
    }
}

/// The same for a target that is reached through a mount alone.
fn set_at_mount(mount: &MountEntry, device: &Device, name: &str, value: &str) -> Result<Set, Failure> {
    let attribute = format!("{PARAMETER_OF}{}.{name}", device.target);
    let Err(error) = ask::set(mount, &attribute, value.as_bytes()) else { return Ok(Set::Done) };
    match error.raw_os_error() {
        Some(libc::EINVAL) => Ok(Set::Refused),
        Some(libc::ENOENT) => Ok(Set::NotFound),
        Some(libc::EBUSY) => Err(refused(device, &AskError::Refused(Code::Busy))),
        _ => Err(Failure::new(format!("{}: {}", device.name, crate::control::describe(&error)))),
    }
}

/// The client, or the address, that `named` names: a UUID, or an address with or without `nid:` before it.
pub fn named_client(named: &str) -> Result<Whom, Failure> {
    let address = || named.contains('@').then(|| format!("nid:{named}"));
    Whom::parse(named).or_else(|| Whom::parse(&address()?)).ok_or_else(|| {
        Failure::usage(format!("{named} names no client: write its UUID, or its address as in 10.0.0.7@tcp"))
    })
}

pub fn refused(device: &Device, error: &AskError) -> Failure {
    let name = &device.name;
    Failure::new(match error {
        AskError::Refused(Code::Forbidden) => {
            format!("{name}: Permission denied; this needs the servers' key, as root on the server's host")
        }
        AskError::Refused(Code::NotSupported) => {
            format!("{name} is served for this machine alone: nobody else has a session there")
        }
        AskError::Refused(code) => format!("{name} refuses: {code}"),
        AskError::Unanswered(why) => format!("{name} does not answer ({why})"),
    })
}

#[cfg(test)]
mod tests {
    use proto::ClientId;

    use super::*;

    #[test]
    fn clients_are_named_with_and_without_a_word_before() {
        let client = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
        let address = Whom { client: ClientId(0), nid: "10.0.0.7@tcp".to_owned() };
        assert_eq!(named_client("10.0.0.7@tcp").ok(), Some(address.clone()));
        assert_eq!(named_client("nid:10.0.0.7@tcp").ok(), Some(address));
        assert_eq!(named_client(&client.to_string()).ok(), Some(Whom { client, nid: String::new() }));
        assert!(named_client("somebody").is_err());
    }
}
