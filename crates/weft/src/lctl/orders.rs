//! Orders to targets: what needs the servers' key.

use std::time::Duration;

use proto::wire::messages as msg;
use proto::{ClientId, Code};
use rpc::AskError;

use super::reach::{Device, Reach};
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

/// Evicts whom `value` names: a UUID, `uuid:UUID` or `nid:ADDRESS`. False if the target has no session of theirs.
pub fn evict(reach: &mut Reach, device: &Device, value: &str) -> Result<bool, Failure> {
    let order = parse(value).ok_or_else(|| {
        Failure::usage(format!(
            "{value} names no client: write its UUID, or nid:ADDRESS as in nid:10.0.0.7@tcp"
        ))
    })?;
    match reach.ask(device, order, ORDER_WAIT)? {
        Ok(_) => Ok(true),
        Err(AskError::Refused(Code::NotFound)) => Ok(false),
        Err(error) => Err(refused(device, &error)),
    }
}

/// Sets a parameter of a target. False if it has none of that name, or the value is none.
pub fn set(reach: &mut Reach, device: &Device, name: &str, value: &str) -> Result<bool, Failure> {
    let parameter = msg::Parameter { name: name.to_owned(), value: value.to_owned() };
    match reach.ask(device, msg::SetParameters { parameters: vec![parameter] }, ORDER_WAIT)? {
        Ok(_) => Ok(true),
        Err(AskError::Refused(Code::NotFound | Code::Invalid)) => Ok(false),
        Err(error) => Err(refused(device, &error)),
    }
}

/// The client, or the address, that `named` names: a UUID, or an address with or without `nid:` before it.
pub fn named_client(named: &str) -> Result<(ClientId, String), Failure> {
    let address = || named.contains('@').then(|| format!("nid:{named}"));
    let found = parse(named).or_else(|| parse(&address()?));
    let found = found.map(|order| (order.client, order.nid));
    found.ok_or_else(|| {
        Failure::usage(format!("{named} names no client: write its UUID, or its address as in 10.0.0.7@tcp"))
    })
}

fn parse(value: &str) -> Option<msg::Evict> {
    if let Some(nid) = value.strip_prefix("nid:") {
        return (!nid.is_empty()).then(|| msg::Evict { client: ClientId(0), nid: nid.to_owned() });
    }
    let digits = value.strip_prefix("uuid:").unwrap_or(value).replace('-', "");
    let client = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    (client != 0).then(|| msg::Evict { client: ClientId(client), nid: String::new() })
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
    use super::*;

    #[test]
    fn clients_are_named_as_in_lustre() {
        let by_nid = |nid: &str| Some(msg::Evict { client: ClientId(0), nid: nid.into() });
        let client = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
        let by_uuid = Some(msg::Evict { client, nid: String::new() });
        assert_eq!(parse("nid:10.0.0.7@tcp"), by_nid("10.0.0.7@tcp"));
        assert_eq!(parse(&client.to_string()), by_uuid);
        assert_eq!(parse(&format!("uuid:{client}")), by_uuid);
        let address = (ClientId(0), "10.0.0.7@tcp".to_owned());
        assert_eq!(named_client("10.0.0.7@tcp").ok(), Some(address.clone()));
        assert_eq!(named_client("nid:10.0.0.7@tcp").ok(), Some(address));
        assert_eq!(named_client(&client.to_string()).ok(), Some((client, String::new())));
        assert!(named_client("somebody").is_err());
        for bad in ["", "nid:", "uuid:", "10.0.0.7@tcp", "1234", &ClientId(0).to_string()] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
