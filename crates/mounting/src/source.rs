//! What a file system is called, and where its MGS is.

use std::net::Ipv4Addr;

use proto::{FsName, Nid};

use crate::{Failure, Result};

/// What is mounted: `NID[,NID][:NID]:/FSNAME`, as with Lustre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where the MGS may be.
    pub mgs: Vec<Nid>,
    /// The file system.
    pub fsname: FsName,
}

impl Source {
    /// Parses what `mount` shows.
    ///
    /// # Errors
    /// It names no file system, or a NID that nothing reaches.
    pub fn parse(text: &str) -> Result<Source> {
        let form = "write NID:/FSNAME, for example 10.1.1.2@tcp:/weft";
        let (nids, path) = text
            .split_once(":/")
            .ok_or_else(|| Failure::usage(format!("\"{text}\" does not name a file system; {form}")))?;
        let path = path.trim_end_matches('/');
        if path.contains('/') {
            return Err(Failure::usage(format!(
                "\"{text}\" names a directory inside a file system, which cannot be mounted by itself yet; {form}"
            )));
        }
        let fsname = path.parse().map_err(|error| Failure::usage(format!("{error}; {form}")))?;
        Ok(Source { mgs: parse_list(nids)?, fsname })
    }
}

impl Source {
    /// Where the MGS may be, as text.
    pub fn nids(&self) -> String {
        let nids: Vec<String> = self.mgs.iter().map(ToString::to_string).collect();
        nids.join(",")
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:/{}", self.nids(), self.fsname)
    }
}

/// NIDs with commas or colons between. A colon within an address stands before its `@`, so it does not separate.
///
/// # Errors
/// One is none, or nothing reaches it.
pub fn parse_list(text: &str) -> Result<Vec<Nid>> {
    let (mut nids, mut rest) = (Vec::new(), text);
    loop {
        let at = rest.find('@').unwrap_or(rest.len());
        let end = rest[at..].find([',', ':']).map_or(rest.len(), |offset| at + offset);
        nids.push(reachable(&rest[..end])?);
        match rest.get(end + 1..) {
            Some(behind) => rest = behind,
            None => return Ok(nids),
        }
    }
}

/// A NID that somebody has typed: one that nothing here could reach is refused before anything waits for it.
fn reachable(text: &str) -> Result<Nid> {
    let nid: Nid = text.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    if !nid.is_lo() {
        checked(&nid)?;
        rpc::dialled(&nid).map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(nid)
}

/// An address that a host may have, and a port.
fn checked(nid: &Nid) -> Result<()> {
    let refused = |what: String| Err(Failure::usage(format!("{nid}: {what}")));
    let address = nid.socket_address();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    if port.parse::<u16>().ok().is_none_or(|port| port == 0) {
        return refused(format!("{port} is no port; it is a number from 1 to 65535"));
    }
    let is_numbers = host.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    match host.parse::<Ipv4Addr>() {
        Err(_) if is_numbers => refused(format!("{host} is no IP address: four numbers up to 255 are one")),
        Ok(ip) if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() => {
            refused(format!("{host} is no address of one host"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_reaches_is_refused_with_a_sentence() {
        let refusal = |text: &str| Source::parse(text).expect_err("it is refused").to_string();
        assert!(refusal("a@tcp,b@o2ib:/weft").starts_with("b@o2ib is in a network that nothing carries yet"));
        let cases = [
            ("300.1.1.1:7", "300.1.1.1 is no IP address"),
            ("1.2.3.4:0", "0 is no port"),
            ("h:x", "x is no port"),
            ("0.0.0.0", "no address of one host"),
        ];
        for (address, what) in cases {
            assert!(refusal(&format!("{address}@tcp:/weft")).contains(what), "{address}");
        }
        assert!(refusal("b@kfi:/weft").starts_with("\"kfi\" is no network that weft knows"));
    }

    fn check(text: &str, nids: &[&str]) {
        let source = Source::parse(text).expect("a source");
        assert_eq!(source.mgs.iter().map(ToString::to_string).collect::<Vec<_>>(), nids);
        assert_eq!(source.fsname.as_str(), "weft");
    }

    #[test]
    fn sources_are_parsed() {
        check("10.1.1.2@tcp:/weft", &["10.1.1.2@tcp"]);
        check("10.1.1.2:99@tcp:/weft/", &["10.1.1.2:99@tcp"]);
        check("a@tcp,b:7@tcp:c@tcp:/weft", &["a@tcp", "b:7@tcp", "c@tcp"]);
        check("[::1]:7990@tcp:/weft", &["[::1]:7990@tcp"]);
        check("a@tcp:a:7@tcp1:/weft", &["a@tcp", "a:7@tcp1"]);
        for bad in
            ["", "weft", ":/weft", "10.1.1.2:/weft", "a@tcp:/", "a@tcp:/toolongname", "a@tcp:/weft/sub"]
        {
            assert!(matches!(Source::parse(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
