//! What an operator asks for, as `lctl` writes it.

use proto::Code;

/// Bytes that all targets together read in a second, if nobody says how many.
pub const RATE: u64 = 256 << 20;

/// What is checked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Names and inodes.
    pub namespace: bool,
    /// Which objects belong to which files.
    pub layout: bool,
    /// The data of objects against its checksums.
    pub scrub: bool,
    /// Objects that belong to no file are destroyed.
    pub deletes_orphans: bool,
    /// Bytes that all targets together read in a second at most; 0 for any number.
    pub rate: u64,
}

/// An order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// To check.
    Start(Check),
    /// To end a check.
    Stop,
}

/// What can be said, for whoever said something else.
pub const TAKES: &str = "write stop, or start and what: namespace layout scrub delete_orphans rate=BYTES, as lctl lfsck_start does";

impl Order {
    /// The order in words: `stop`, or `start` and any of `namespace`, `layout`, `scrub`, `delete_orphans`, `rate=BYTES`.
    ///
    /// # Errors
    /// Invalid if it is another one.
    pub fn parse(text: &str) -> Result<Order, Code> {
        let mut words = text.split_whitespace();
        let first = words.next();
        if first == Some("stop") && words.next().is_none() {
            return Ok(Order::Stop);
        }
        if first != Some("start") {
            return Err(Code::Invalid);
        }
        let mut check =
            Check { namespace: false, layout: false, scrub: false, deletes_orphans: false, rate: RATE };
        for word in words {
            match word.split_once('=') {
                None if word == "namespace" => check.namespace = true,
                None if word == "layout" => check.layout = true,
                None if word == "scrub" => check.scrub = true,
                None if word == "delete_orphans" => check.deletes_orphans = true,
                Some(("rate", rate)) => check.rate = rate.parse().map_err(|_| Code::Invalid)?,
                _ => return Err(Code::Invalid),
            }
        }
        let looks = check.namespace || check.layout || check.scrub;
        let deletes_unseen = check.deletes_orphans && !check.layout;
        if looks && !deletes_unseen { Ok(Order::Start(check)) } else { Err(Code::Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_words() {
        assert_eq!(Order::parse("stop"), Ok(Order::Stop));
        let all = Check { namespace: true, layout: true, scrub: true, deletes_orphans: true, rate: 5 };
        let words = "start namespace layout scrub delete_orphans rate=5";
        assert_eq!(Order::parse(words), Ok(Order::Start(all)));
        let one = Check { namespace: false, scrub: false, deletes_orphans: false, rate: RATE, ..all };
        assert_eq!(Order::parse("start layout"), Ok(Order::Start(one)));
        for wrong in [
            "",
            "stop it",
            "start",
            "start rate=1",
            "layout",
            "start layout rate=x",
            "start scrub delete_orphans",
        ] {
            assert_eq!(Order::parse(wrong), Err(Code::Invalid), "{wrong}");
        }
    }
}
