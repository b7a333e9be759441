//! How connections are to be protected, by the addresses between which they are.
//!
//! A text says it: a way for all, and exceptions for addresses, with `+` between: `mac`, or
//! `encrypt+10.1.2.0/24=none+10.1.0.0/16=mac-crc`. The first exception that fits counts. Of two sides the one that demands more
//! decides, so an exception needs to be named at both.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::seal::Protection;
use rt::Addr;

/// Exceptions that one text may name.
const EXCEPTIONS_MAX: usize = 256;

/// What a process demands of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protect {
    everywhere: Protection,
    exceptions: Vec<(Place, Protection)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// All addresses that begin with these bits.
    Network(IpAddr, u32),
    /// A host as connections name it.
    Host(String),
}

/// A text that says nothing about protection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectError {
    /// Neither a way nor an exception.
    #[error(
        "{0:?} is no way to protect connections: mac, mac-crc or encrypt, or ADDRESS/BITS=one of these or none"
    )]
    Way(String),
    /// `none` for everybody.
    #[error(
        "connections without protection need the addresses between which they are, as in mac+10.1.2.0/24=none"
    )]
    PlainEverywhere,
    /// Too many exceptions.
    #[error("more than {EXCEPTIONS_MAX} addresses")]
    TooMany,
}

impl fmt::Display for Protect {
    /// A text that says the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(way_name(self.everywhere))?;
        for (place, protection) in &self.exceptions {
            match place {
                Place::Network(ip, bits) => write!(f, "+{ip}/{bits}")?,
                Place::Host(host) => write!(f, "+{host}")?,
            }
            write!(f, "={}", way_name(*protection))?;
        }
        Ok(())
    }
}

impl Default for Protect {
    /// Every frame is authenticated.
    fn default() -> Protect {
        Protect { everywhere: Protection::Frames, exceptions: Vec::new() }
    }
}

impl Protect {
    /// What a connection with `peer` needs at least.
    pub fn of(&self, peer: &Addr) -> Protection {
        let host = peer.0.rsplit_once(':').map_or(&*peer.0, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        let fits = |place: &Place| match (place, ip) {
            (Place::Network(network, bits), Some(ip)) => begins_with(ip, *network, *bits),
            (Place::Network(..), None) => false,
            (Place::Host(name), _) => name == host,
        };
        let exception = self.exceptions.iter().find(|(place, _)| fits(place));
        exception.map_or(self.everywhere, |(_, protection)| *protection)
    }
}

fn begins_with(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let rest = 32 - bits.min(32);
            u32::from(ip).checked_shr(rest) == u32::from(network).checked_shr(rest)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let rest = 128 - bits.min(128);
            u128::from(ip).checked_shr(rest) == u128::from(network).checked_shr(rest)
        }
        _ => false,
    }
}

fn way_name(protection: Protection) -> &'static str {
    match protection {
        Protection::Plain => "none",
        Protection::Heads => "mac-crc",
        Protection::Frames => "mac",
        Protection::Encrypted => "encrypt",
    }
}

fn way(text: &str) -> Option<Protection> {
    [Protection::Plain, Protection::Heads, Protection::Frames, Protection::Encrypted]
        .into_iter()
        .find(|protection| way_name(*protection) == text)
}

fn place(text: &str) -> Option<Place> {
    let (host, bits) = match text.split_once('/') {
        Some((host, bits)) => (host, Some(bits.parse::<u32>().ok()?)),
        None => (text, None),
    };
    match (host.parse::<IpAddr>(), bits) {
        (Ok(ip), bits) => {
            let all = if ip.is_ipv4() { 32 } else { 128 };
            let bits = bits.unwrap_or(all);
            (1..=all).contains(&bits).then_some(Place::Network(ip, bits))
        }
        (Err(_), None) if !host.is_empty() => Some(Place::Host(host.to_owned())),
        (Err(_), _) => None,
    }
}

impl FromStr for Protect {
    type Err = ProtectError;

    fn from_str(text: &str) -> Result<Protect, ProtectError> {
        let mut protect = Protect::default();
        for part in text.split('+').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || ProtectError::Way(part.to_owned());
            match part.split_once('=') {
                Some((at, how)) => {
                    let exception = (place(at).ok_or_else(wrong)?, way(how).ok_or_else(wrong)?);
                    protect.exceptions.push(exception);
                }
                None => protect.everywhere = way(part).ok_or_else(wrong)?,
            }
        }
        if protect.everywhere == Protection::Plain {
            return Err(ProtectError::PlainEverywhere);
        }
        if protect.exceptions.len() > EXCEPTIONS_MAX {
            return Err(ProtectError::TooMany);
        }
        Ok(protect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, peer: &str) -> Protection {
        text.parse::<Protect>().expect("it says how").of(&Addr(peer.into()))
    }

    #[test]
    fn the_first_exception_that_fits_counts() {
        assert_eq!(of("", "10.0.0.1:988"), Protection::Frames);
        assert_eq!(of("encrypt", "10.0.0.1:988"), Protection::Encrypted);
        let text = "encrypt+10.1.2.0/24=none+10.1.0.0/16=mac-crc+fd00::/8=mac+oss1=none";
        assert_eq!(of(text, "10.1.2.255:988"), Protection::Plain);
        assert_eq!(of(text, "[::ffff:10.1.2.3]:988"), Protection::Plain);
        assert_eq!(of(text, "10.1.3.0:988"), Protection::Heads);
        assert_eq!(of(text, "10.2.0.0:988"), Protection::Encrypted);
        assert_eq!(of(text, "[fd12::1]:988"), Protection::Frames);
        assert_eq!(of(text, "oss1:988"), Protection::Plain);
        assert_eq!(of(text, "oss10:988"), Protection::Encrypted);
        let text = "encrypt+10.1.2.0/24=none+fd00::/8=mac+oss1=mac-crc";
        assert_eq!(text.parse::<Protect>().expect("it says how").to_string(), text);
        assert_eq!(of("mac+10.1.2.3=none", "10.1.2.3:1"), Protection::Plain);
        assert_eq!(of("mac+10.1.2.3=none", "10.1.2.4:1"), Protection::Frames);
    }

    #[test]
    fn plain_needs_an_address_and_nonsense_is_refused() {
        assert_eq!("none".parse::<Protect>(), Err(ProtectError::PlainEverywhere));
        for bad in [
            "crc",
            "10.0.0.0/33=mac",
            "10.0.0.0/8",
            "10.0.0.0/8=",
            "=mac",
            "0.0.0.0/0=none",
            "a/8=mac",
            "mac,encrypt",
        ] {
            assert!(matches!(bad.parse::<Protect>(), Err(ProtectError::Way(_))), "{bad}");
        }
    }
}
