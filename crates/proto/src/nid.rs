//! Network identifiers: where a process can be reached, in which network.

use std::fmt;
use std::str::FromStr;

use crate::limits::{NID_BYTES_MAX, PORT_DEFAULT};

/// What kind of network it is, which says how one is connected to in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkKind {
    /// The process itself.
    Lo,
    /// IP, over TCP.
    Tcp,
    /// InfiniBand or RoCE, by the IP address of the interface.
    O2ib,
}

impl NetworkKind {
    const ALL: [NetworkKind; 3] = [NetworkKind::Lo, NetworkKind::Tcp, NetworkKind::O2ib];

    fn name(self) -> &'static str {
        match self {
            NetworkKind::Lo => "lo",
            NetworkKind::Tcp => "tcp",
            NetworkKind::O2ib => "o2ib",
        }
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A network: its kind, and a number that tells those of one kind apart. Printed `tcp`, `tcp1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    /// Its kind.
    pub kind: NetworkKind,
    /// Its number; 0 is not printed.
    pub number: u16,
}

impl Network {
    /// The process itself.
    pub const LO: Network = Network { kind: NetworkKind::Lo, number: 0 };
    /// The first network over TCP.
    pub const TCP: Network = Network { kind: NetworkKind::Tcp, number: 0 };
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => self.kind.fmt(f),
            number => write!(f, "{}{number}", self.kind),
        }
    }
}

impl FromStr for Network {
    type Err = NidParseError;

    /// Reads what [`fmt::Display`] writes, and `tcp0` for `tcp`.
    fn from_str(text: &str) -> Result<Network, NidParseError> {
        let unknown = || NidParseError::Network(text.to_owned());
        let named = |kind: &NetworkKind| text.strip_prefix(kind.name()).map(|number| (*kind, number));
        let (kind, number) = NetworkKind::ALL.iter().find_map(named).ok_or_else(unknown)?;
        let number = match number {
            "" => 0,
            // The process itself is one.
            _ if kind == NetworkKind::Lo => return Err(unknown()),
            // One text for one number.
            number if number.starts_with('+') || number.len() > 1 && number.starts_with('0') => {
                return Err(unknown());
            }
            number => number.parse().map_err(|_| unknown())?,
        };
        Ok(Network { kind, number })
    }
}

/// Network identifier, `address@network`: `10.1.1.2@tcp`, `10.1.1.2:7990@tcp1`, `10.1.1.2@o2ib`, `0@lo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid {
    /// Address within the network; for `tcp` a host or `host:port`.
    pub address: String,
    /// The network in which it counts.
    pub net: Network,
}

impl Nid {
    /// The same process.
    pub fn lo() -> Nid {
        Nid { address: "0".into(), net: Network::LO }
    }

    /// A host, or `host:port`, in the first network over TCP.
    pub fn tcp(address: impl Into<String>) -> Nid {
        Nid { address: address.into(), net: Network::TCP }
    }

    /// Whether this names the same process.
    pub fn is_lo(&self) -> bool {
        self.net == Network::LO
    }

    /// Host and port of a NID whose network has them, the default port filled in.
    pub fn socket_address(&self) -> String {
        let has_port = match self.address.rfind(':') {
            None => false,
            Some(at) => {
                self.address.starts_with('[') && self.address[..at].ends_with(']')
                    || !self.address[..at].contains(':')
            }
        };
        if has_port { self.address.clone() } else { format!("{}:{PORT_DEFAULT}", self.address) }
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.address, self.net)
    }
}

/// A text that is not a NID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NidParseError {
    /// It is not made of an address and a network.
    #[error(
        "\"{0}\" is not a network identifier; write ADDRESS@tcp, for example 10.1.1.2@tcp or 10.1.1.2:7990@tcp"
    )]
    Form(String),
    /// There is no such network.
    #[error(
        "\"{0}\" is no network that weft knows; write tcp, o2ib, or one of them with a number, as in tcp1"
    )]
    Network(String),
}

impl FromStr for Nid {
    type Err = NidParseError;

    fn from_str(text: &str) -> Result<Nid, NidParseError> {
        let bad = || NidParseError::Form(text.to_owned());
        let (address, net) = text.split_once('@').ok_or_else(bad)?;
        let sane = !address.is_empty()
            && text.len() <= NID_BYTES_MAX
            && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b',');
        if !sane {
            return Err(bad());
        }
        let nid = Nid { address: address.into(), net: net.parse()? };
        match nid.is_lo() && nid != Nid::lo() {
            true => Err(bad()),
            false => Ok(nid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nid_text() {
        let nid: Nid = "10.1.1.2@tcp".parse().expect("a plain NID");
        assert_eq!(nid.socket_address(), "10.1.1.2:7988");
        let nid: Nid = "10.1.1.2:99@tcp".parse().expect("a NID with a port");
        assert_eq!(nid.socket_address(), "10.1.1.2:99");
        assert_eq!(Nid::lo().to_string(), "0@lo");
        for bad in
            ["", "10.1.1.2", "@tcp", "1@lo", "0@lo0", "a b@tcp", "a@", "a@tcp@tcp", "a/b@tcp", "a,b@tcp"]
        {
            assert!(bad.parse::<Nid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_are_a_kind_and_a_number() {
        for (text, kind, number) in [
            ("a@tcp", NetworkKind::Tcp, 0),
            ("a@tcp1", NetworkKind::Tcp, 1),
            ("a:7@tcp65535", NetworkKind::Tcp, 65535),
            ("a@o2ib", NetworkKind::O2ib, 0),
            ("a@o2ib12", NetworkKind::O2ib, 12),
        ] {
            let nid: Nid = text.parse().expect("a known network");
            assert_eq!(nid.net, Network { kind, number }, "{text}");
            assert_eq!(nid.to_string(), text);
        }
        assert_eq!("a@tcp0".parse(), Ok(Nid::tcp("a")));
        assert_ne!("a@tcp1".parse(), Ok(Nid::tcp("a")), "an address counts within its network");
    }

    #[test]
    fn an_unknown_network_is_refused_by_its_name() {
        for net in ["kfi", "tcp65536", "tcp-1", "tcp+1", "tcp01", "o2ib 1", "TCP", "lo1", "tcp1x"] {
            let error = format!("a@{net}").parse::<Nid>().expect_err("there is no such network").to_string();
            assert!(error.contains(net), "{net}: {error}");
        }
        let error = "10.1.1.2@kfi3".parse::<Nid>().expect_err("there is no such network");
        assert_eq!(
            error.to_string(),
            "\"kfi3\" is no network that weft knows; write tcp, o2ib, or one of them with a number, as in tcp1"
        );
    }
}
