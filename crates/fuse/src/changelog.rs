//! The changelogs of the MDTs as control attributes: for root, and for whom the mount belongs to.
//!
//! `weft.changelog.MDT0000.7` is a page of records behind the seventh, `weft.changelog.MDT0000.users` says who reads them; both are bodies of
//! `docs/wire.md`. `weft.changelog.MDT0000` is set to an [`Order`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::TargetId;
use proto::wire::Body;
use proto::wire::messages as msg;

use crate::virtuals::{answer, may_administrate};

/// What the names begin with; the target follows.
pub const CHANGELOG: &str = "weft.changelog.";
/// The end of the one that says who reads.
pub const USERS: &str = "users";
/// Bytes of a page: it has to fit into an attribute.
const PAGE_BYTES: u32 = 40 << 10;
/// How long the MDT may take for a page.
const PAGE_WAIT: Duration = Duration::from_secs(5);
/// How long it may take for an order, which is durable then.
const ORDER_WAIT: Duration = Duration::from_secs(8);

/// An order as text: `clear 1 17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order(pub msg::OrderChangelog);

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let msg::OrderChangelog { order, user, number } = &self.0;
        match *order {
            msg::CHANGELOG_REGISTER => write!(f, "register {number}"),
            msg::CHANGELOG_DEREGISTER => write!(f, "deregister {user}"),
            msg::CHANGELOG_CLEAR => write!(f, "clear {user} {number}"),
            _ => f.write_str("list"),
        }
    }
}

impl FromStr for Order {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Order> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().map_err(|_| Errno::INVALID);
        let user = |word: &str| word.parse().map_err(|_| Errno::INVALID);
        let (order, user, number) = match words[..] {
            ["register", random] => (msg::CHANGELOG_REGISTER, 0, number(random)?),
            ["deregister", id] => (msg::CHANGELOG_DEREGISTER, user(id)?, 0),
            ["clear", id, until] => (msg::CHANGELOG_CLEAR, user(id)?, number(until)?),
            _ => return Err(Errno::INVALID),
        };
        Ok(Order(msg::OrderChangelog { order, user, number }))
    }
}

/// What the attribute whose name ends with `asked` says.
pub(crate) async fn get(client: &Client, caller: &Caller, asked: &str) -> Result<Vec<u8>> {
    may_administrate(caller)?;
    let (target, what) = asked.split_once('.').ok_or(Errno::NO_ATTRIBUTE)?;
    let target: TargetId = target.parse().map_err(|_| Errno::NO_ATTRIBUTE)?;
    let mut bytes = Vec::new();
    if what == USERS {
        let list = msg::OrderChangelog { order: msg::CHANGELOG_LIST, user: 0, number: 0 };
        answer(client.admin().order(target, list, PAGE_WAIT).await)?.put_fields(&mut bytes);
    } else {
        let behind = what.parse().map_err(|_| Errno::NO_ATTRIBUTE)?;
        let read = msg::ReadChangelog { behind, bytes_max: PAGE_BYTES };
        answer(client.admin().order(target, read, PAGE_WAIT).await)?.put_fields(&mut bytes);
    }
    Ok(bytes)
}

/// Gives the order `text`.
pub(crate) async fn set(client: &Client, caller: &Caller, target: &str, text: &str) -> Result<()> {
    may_administrate(caller)?;
    let target: TargetId = target.parse().map_err(|_| Errno::NO_ATTRIBUTE)?;
    let Order(order) = text.parse()?;
    answer(client.admin().order(target, order, ORDER_WAIT).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_text() {
        for text in ["register 18446744073709551615", "deregister 2", "clear 1 0"] {
            assert_eq!(text.parse::<Order>().map(|order| order.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "list", "clear 1", "clear cl1 5", "register -1", "deregister 5000000000"] {
            assert_eq!(text.parse::<Order>(), Err(Errno::INVALID), "{text}");
        }
    }
}
