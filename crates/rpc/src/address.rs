//! Which networks this process can reach, and how an address of one is dialled.

use proto::{NetworkKind, Nid};
use rt::Addr;

/// An address in a network that nothing here carries frames over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is in a network that nothing carries yet; write ADDRESS@tcp")]
pub struct NotCarried(pub Nid);

/// Where to connect to, or to listen, for a NID. All networks of kind tcp are reached through the kernel's one TCP: which
/// of several addresses is near is for their order to say.
pub fn dialled(nid: &Nid) -> Result<Addr, NotCarried> {
    match nid.net.kind {
        NetworkKind::Tcp => Ok(Addr(nid.socket_address())),
        NetworkKind::Lo | NetworkKind::O2ib => Err(NotCarried(nid.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tcp_network_is_dialled_and_no_other() {
        let dialled = |text: &str| dialled(&text.parse().expect("a NID")).map_err(|error| error.to_string());
        assert_eq!(dialled("10.1.1.2@tcp"), Ok(Addr("10.1.1.2:7988".into())));
        assert_eq!(dialled("10.1.1.2:7@tcp1"), Ok(Addr("10.1.1.2:7".into())));
        let refusal = "10.1.1.2@o2ib is in a network that nothing carries yet; write ADDRESS@tcp";
        assert_eq!(dialled("10.1.1.2@o2ib"), Err(refusal.into()));
    }
}
