//! The machines of a job.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use proto::Nid;

use crate::control::describe;
use crate::failure::Failure;

/// Most machines of one file system.
const NODES_MAX: usize = 1024;
/// Most bytes of a list that is read.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// A machine of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// As the list calls it, and as it is reached.
    pub name: String,
    /// As others connect to it, if the list says so.
    pub address: Option<IpAddr>,
}

impl Node {
    /// Its address at `port`.
    pub fn nid(&self, port: u16) -> Result<Nid, Failure> {
        let address = match self.address {
            Some(address) => address,
            None => resolved(&self.name)?,
        };
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Ok(Nid::tcp(format!("{host}:{port}")))
    }
}

fn resolved(name: &str) -> Result<IpAddr, Failure> {
    let say = "write its address behind its name in the list";
    let found = (name, 0).to_socket_addrs();
    let found = found.map_err(|error| Failure::new(format!("{name}: {}; {say}", describe(&error))))?;
    let mut addresses: Vec<IpAddr> = found.map(|one| one.ip()).filter(|ip| !ip.is_loopback()).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    let none = || Failure::new(format!("{name} has no address that other machines reach; {say}"));
    addresses.first().copied().ok_or_else(none)
}

/// Those that the file names.
pub fn read(path: &Path) -> Result<Vec<Node>, Failure> {
    let name = path.display();
    let failed = |error| Failure::new(format!("the list {name} cannot be read: {}", describe(&error)));
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    io_read(file, &mut text).map_err(failed)?;
    parse(&text).map_err(|why| Failure::usage(format!("{name}: {why}")))
}

fn io_read(file: fs::File, text: &mut String) -> std::io::Result<usize> {
    use std::io::Read;
    file.take(LIST_BYTES_MAX).read_to_string(text)
}

/// A machine on each line, as schedulers write them: a name, and an address behind it if others reach it by another one. Further words
/// (`slots=4`) mean nothing here, and a name that comes again (as often as a job has processes there) is the same machine.
fn parse(text: &str) -> Result<Vec<Node>, String> {
    let (mut nodes, mut known) = (Vec::new(), BTreeMap::new());
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:@".contains(&byte);
        if name.starts_with('-') || !name.bytes().all(is_plain) {
            return Err(format!("line {} is no name of a machine", at + 1));
        }
        let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
        match known.get(name) {
            None => {
                known.insert(name.to_owned(), address);
                nodes.push(Node { name: name.to_owned(), address });
            }
            Some(first) if address.is_some() && *first != address => {
                return Err(format!("line {} gives {name} another address than before", at + 1));
            }
            Some(_) => {}
        }
    }
    match nodes.len() {
        0 => Err("the list names no machine".to_owned()),
        count if count > NODES_MAX => Err(format!("the list names more than {NODES_MAX} machines")),
        _ => Ok(nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_schedulers_are_read() {
        let nodes =
            parse("# of job 7\nn1 slots=4\nn1\n\nn2 10.0.0.2\nuser@n3  # the last\n").expect("a list");
        let node = |name: &str, address: Option<&str>| Node {
            name: name.to_owned(),
            address: address.map(|address| address.parse().expect("an address")),
        };
        assert_eq!(nodes, [node("n1", None), node("n2", Some("10.0.0.2")), node("user@n3", None)]);
        assert_eq!(nodes[1].nid(7990), Ok("10.0.0.2:7990@tcp".parse().expect("a NID")));
        for bad in
            ["", "# nobody\n", "n1;reboot\n", "n1 10.0.0.1\nn1 10.0.0.2\n", "-oProxyCommand=x\n", "$(n1)\n"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let many: String = (0..=NODES_MAX).map(|at| format!("n{at}\n")).collect();
        assert!(parse(&many).is_err());
    }

    #[test]
    fn loopback_is_no_address_for_others() {
        assert!(resolved("localhost").is_err());
    }
}
