//! `lctl changelog_register` and `lctl changelog_deregister`.

use std::time::Duration;

use proto::Code;
use proto::wire::messages::{CHANGELOG_DEREGISTER, CHANGELOG_LIST, CHANGELOG_REGISTER, OrderChangelog};
use rpc::AskError;

use super::orders;
use super::reach::{Device, Reach};
use crate::changelog::Changelog;
use crate::failure::{Failure, Outcome};

/// How long an MDT may take: it makes the order durable.
const WAIT: Duration = Duration::from_secs(10);

/// Registers one more reader, and prints its name; nothing else if `brief`.
pub fn register(reach: &mut Reach, device: &Device, brief: bool) -> Outcome {
    // By this the reader is found again, and is registered once however often the order comes.
    let number = reach.random()?;
    let users = order(reach, device, OrderChangelog { order: CHANGELOG_REGISTER, user: 0, number })?;
    let reader = users.iter().find(|(_, of)| *of == number);
    let (id, _) = reader.ok_or_else(|| Failure::new(format!("{}: it registers nobody", device.name)))?;
    if brief {
        out!("cl{id}");
    } else {
        out!("{}: Registered changelog userid 'cl{id}'", device.name);
    }
    Ok(0)
}

/// Registers a reader no more.
pub fn deregister(reach: &mut Reach, device: &Device, user: u32) -> Outcome {
    order(reach, device, OrderChangelog { order: CHANGELOG_DEREGISTER, user, number: 0 })?;
    out!("{}: Deregistered changelog user #{user}", device.name);
    Ok(0)
}

/// Gives an order; the readers afterwards, and the numbers of their registrations.
fn order(reach: &mut Reach, device: &Device, order: OrderChangelog) -> Result<Vec<(u32, u64)>, Failure> {
    let user = order.user;
    let state = match device.mount() {
        Some(mount) => {
            let changelog = Changelog::at(mount, device.target, &device.name);
            if order.order != CHANGELOG_LIST {
                changelog.order(order).map_err(|error| match error.raw_os_error() {
                    Some(libc::ENOENT) => missing(device, user),
                    Some(libc::E2BIG) => too_many(device),
                    _ => changelog.refused(&error),
                })?;
            }
            changelog.state()?
        }
        None => reach.ask(device, order, WAIT)?.map_err(|error| match error {
            AskError::Refused(Code::NotFound) => missing(device, user),
            AskError::Refused(Code::TooBig) => too_many(device),
            error => orders::refused(device, &error),
        })?,
    };
    Ok(state.users.iter().map(|reader| (reader.user, reader.number)).collect())
}

fn missing(device: &Device, user: u32) -> Failure {
    let name = &device.name;
    Failure::new(format!(
        "{name} has no changelog user cl{user}; 'lctl get_param mdd.{name}.changelog_users' lists them"
    ))
}

fn too_many(device: &Device) -> Failure {
    Failure::new(format!("{}: too many readers; deregister one first", device.name))
}
